"""Commands about time: ``aicore timeline``, ``trace``, ``compare``, and the listing of the model's numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viz.options import refuse
from viz.output import save_figure, save_text

if TYPE_CHECKING:
    from emulator.timing import TimingParameters
    from studies.timed import TimedOperator

FIGURES = ("gantt", "heatmap", "stalls")
FIGURE_TYPES = (".png", ".svg", ".pdf")

WhatArgument = Annotated[
    str, typer.Argument(help="a file of operands, or a shape such as 32,64,56,56", show_default=False)
]
ProductOption = Annotated[str | None, typer.Option("--product", "-p", help="product to run on")]
CoresOption = Annotated[int | None, typer.Option("--cores", min=1, help="what-if: another number of vector cores")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="what-if: NAME=NUMBER of the timing model")]
SingleOption = Annotated[bool, typer.Option("--single-buffer", help="switch double buffering off")]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", help="of a SHAPE: float32, float16 or bfloat16; default: float32")
]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object for programs")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("timeline")(timeline)
    app.command("trace")(trace)
    app.command("compare")(compare)


def timeline(
    what: WhatArgument,
    product: ProductOption = None,
    cores: CoresOption = None,
    changes: SetOption = None,
    single_buffer: SingleOption = False,
    dtype: DtypeOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="figure: .png, .svg or .pdf")] = None,
    figure: Annotated[str, typer.Option("--figure", help="gantt, heatmap or stalls")] = "gantt",
    csv_folder: Annotated[Path | None, typer.Option("--csv", help="folder for CSV files as msprof writes them")] = None,
    as_json: JsonOption = False,
) -> None:
    """Time the operator: how long, how busy each pipe is, what holds it up."""
    if figure not in FIGURES:
        raise refuse("--figure", got=figure, allowed=", ".join(FIGURES), remedy="choose one of them")
    if out is not None:
        _check_out(out, FIGURE_TYPES)
    run = _timed(what, product, cores, changes, single_buffer, dtype)
    record = timing_record(run)
    if csv_folder is not None:
        _write_csv(run, csv_folder)
    if out is not None:
        save_figure(draw(run, figure), out)
    if as_json:
        _print(json.dumps(record, allow_nan=False))
        return
    _print(timing_text(record))
    if out is not None:
        _print(f"figure: {out}")


def trace(
    what: WhatArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="trace file (.json) for Perfetto or MindStudio Insight")],
    product: ProductOption = None,
    cores: CoresOption = None,
    changes: SetOption = None,
    single_buffer: SingleOption = False,
    dtype: DtypeOption = None,
) -> None:
    """Write a Chrome trace of the operator: one process per core, one thread per pipe."""
    from viz.chrome_trace import trace_json

    _check_out(out, (".json",))
    run = _timed(what, product, cores, changes, single_buffer, dtype)
    save_text(trace_json([(s.name, s.timeline) for s in run.steps]), out)
    for note in run.notes:
        _print(note)
    _print(f"trace: {out} ({sum(len(s.timeline.costs.kind) for s in run.steps)} events)")


def compare(
    first: Annotated[
        str, typer.Argument(metavar="A", help="PRODUCT[:CORES][:single], for example 950 or 950:32", show_default=False)
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="the other one", show_default=False)],
    shape: Annotated[str, typer.Option("--shape", "-s", help="a shape or a file of operands")] = "32,64,56,56",
    changes: SetOption = None,
    dtype: DtypeOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="figure: .png, .svg or .pdf")] = None,
    as_json: JsonOption = False,
) -> None:
    """Two products, core counts or buffer settings side by side: time, utilisation, traffic."""
    if out is not None:
        _check_out(out, FIGURE_TYPES)
    runs = [_side(text, shape, changes, dtype) for text in (first, second)]
    records = [timing_record(run) for run in runs]
    if out is not None:
        from viz.timeline_figures import comparison

        names = (first, second) if first != second else (f"{first} (A)", f"{second} (B)")
        save_figure(comparison(runs[0], runs[1], names), out)
    if as_json:
        _print(json.dumps({"a": records[0], "b": records[1]}, allow_nan=False))
        return
    _print(comparison_text(first, second, records))
    if out is not None:
        _print(f"figure: {out}")


def draw(run: TimedOperator, figure: str) -> Any:
    """The Matplotlib figure of that name."""
    from viz import timeline_figures as figures

    steps = [(s.name, s.timeline) for s in run.steps]
    if figure == "heatmap":
        return figures.utilisation_heatmap(steps)
    if figure == "stalls":
        return figures.stall_waterfall(steps)
    shape = " x ".join(map(str, run.shape))
    return figures.gantt(steps, title=f"When each core works: {shape}, {run.task_us:.1f} µs", notes=run.notes)


def timing_record(run: TimedOperator) -> dict[str, Any]:
    """What `timeline` reports, as plain values."""
    from emulator.isa.table import Pipe
    from emulator.timing import critical_path, utilisation

    steps: list[dict[str, Any]] = []
    for s in run.steps:
        u, path = utilisation(s.timeline), critical_path(s.timeline)
        steps.append(
            {
                "name": s.name,
                "task_us": s.task_us,
                "aiv_us": s.timeline.aiv_time_us,
                "cores": s.timeline.run.blocks,
                "idle_cores": list(u.idle_cores),
                "busy_percent": {Pipe(p).name: 100 * float(u.busy(p).mean()) / u.makespan for p in range(4)},
                "balance": u.balance,
                "read_bytes": round(float(u.read_bytes.sum()) * s.scale),
                "written_bytes": round(float(u.written_bytes.sum()) * s.scale),
                "minimum_bytes": round(u.minimum_bytes * s.scale),
                "flops_per_byte": u.intensity,
                "roofline_percent": 100 * u.attained_flops_per_s / u.roof_flops_per_s if u.flops else 0.0,
                "floor_us": path.floor / 1e6,
                "path_us": {k: v / 1e6 for k, v in path.by_kind().items()},
                "advice": path.advice,
                "assumed_percent": 100 * path.assumed_share,
                "repeated": s.repeated,
            }
        )
    changes = run.steps[0].timeline.parameters.changes
    assumed = sum(s["assumed_percent"] * s["task_us"] for s in steps) / run.task_us
    return {
        "shape": list(run.shape), "product": run.product.label, "set": list(changes), "task_us": run.task_us,
        "assumed_percent": assumed, "double_buffer": run.double_buffer, "notes": list(run.notes), "steps": steps,
    }  # fmt: skip


def timing_text(record: dict[str, Any]) -> str:
    """The report of `timeline`."""
    shape = " x ".join(map(str, record["shape"]))
    lines = [f"{shape} on {record['product']}", *record["notes"]]
    if record["set"]:
        lines.append("what-if: " + ", ".join(record["set"]))
    lines.append(f"total {record['task_us']:.2f} us; {record['assumed_percent']:.0f} % of it rests on assumed numbers")
    lines.append("")
    lines.append(
        f"{'launch':<28}{'us':>9}{'cores':>6}{'VECTOR':>8}{'MTE2':>6}{'MTE3':>6}{'floor us':>10}{'GB':>9}{'roof':>6}"
    )
    for s in record["steps"]:
        b = s["busy_percent"]
        size = (s["read_bytes"] + s["written_bytes"]) / 1e9
        lines.append(
            f"{s['name']:<28}{s['task_us']:>9.2f}{s['cores']:>6}{b['VECTOR']:>7.0f}%{b['MTE2']:>5.0f}%{b['MTE3']:>5.0f}%"
            f"{s['floor_us']:>10.2f}{size:>9.4f}{s['roofline_percent']:>5.0f}%"
        )
    lines.append("")
    lines += [f"{s['name']}: {s['advice']}" for s in record["steps"]]
    return "\n".join(lines)


def comparison_text(first: str, second: str, records: list[dict[str, Any]]) -> str:
    """The report of `compare`."""
    rows = [["", first, second]]

    def add(name: str, get: Any, form: str) -> None:
        rows.append([name, *(form.format(get(r)) for r in records)])

    add("time us", lambda r: r["task_us"], "{:.2f}")
    for k, step in enumerate(records[0]["steps"]):
        add(f"  {step['name']}", lambda r, k=k: r["steps"][k]["task_us"], "{:.2f}")
    for pipe in ("VECTOR", "MTE2", "MTE3"):
        add(
            f"{pipe} busy %",
            lambda r, p=pipe: sum(s["busy_percent"][p] * s["task_us"] for s in r["steps"]) / r["task_us"],
            "{:.1f}",
        )
    add("cores used", lambda r: max(s["cores"] for s in r["steps"]), "{}")
    add("moved MB", lambda r: sum(s["read_bytes"] + s["written_bytes"] for s in r["steps"]) / 1e6, "{:.1f}")
    add("assumed %", lambda r: r["assumed_percent"], "{:.0f}")
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    text = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
    ratio = records[0]["task_us"] / records[1]["task_us"]
    return "\n".join([*text, f"{second} takes {1 / ratio:.2f} times as long as {first}"])


def parameter_rows(parameters: TimingParameters) -> list[tuple[str, str, str, str, str]]:
    """(name, value, unit, kind, source) of every number, for ``aicore products NAME --timing``."""
    return [(p.name, f"{p.value:g}", p.unit, p.kind, p.source) for p in parameters.parameters.values()]


def parameter_records(product_name: str) -> list[dict[str, Any]]:
    """The same for programs: name, value, unit, kind, source."""
    from emulator import products
    from emulator.timing import timing_parameters

    numbers = timing_parameters(products.get(product_name), {}).parameters.values()
    return [{"name": p.name, "value": p.value, "unit": p.unit, "kind": p.kind, "source": p.source} for p in numbers]


def parameter_text(product_name: str, changes: list[str] | None = None) -> str:
    """The listing of the timing model's numbers for one product. Raises EmulatorError."""
    from emulator import products
    from emulator.timing import timing_parameters
    from emulator.timing.parameters import parse_changes

    product = products.get(product_name)
    parameters = timing_parameters(product, parse_changes(changes or []))
    rows = parameter_rows(parameters)
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=False)) + "  " + row[4] for row in rows]
    return "\n".join([f"timing model of {product.label}", *lines])


def _side(text: str, what: str, changes: list[str] | None, dtype: str | None) -> TimedOperator:
    """A run from ``PRODUCT[:CORES][:single]``."""
    name, *rest = text.split(":")
    single = "single" in rest
    numbers = [r for r in rest if r != "single"]
    if len(numbers) > 1 or not all(n.isascii() and n.isdigit() and 0 < int(n) <= 65535 for n in numbers):
        raise refuse("compare", got=text, allowed="PRODUCT[:CORES][:single]", remedy="write for example 950:32")
    return _timed(what, name, int(numbers[0]) if numbers else None, changes, single, dtype)


def _timed(
    what: str,
    product: str | None,
    cores: int | None,
    changes: list[str] | None,
    single_buffer: bool,
    dtype: str | None,
) -> TimedOperator:
    from emulator import products
    from emulator.timing.parameters import parse_changes
    from studies.timed import timed_operator

    chip = products.get(product or products.DEFAULT_PRODUCT)
    if cores is not None:
        chip = chip.replace(vector_cores=cores)
    shape, name = _source(what, dtype)
    return timed_operator(
        shape, product=chip, dtype=name, double_buffer=not single_buffer, changes=parse_changes(changes or [])
    )


def _source(what: str, dtype: str | None) -> tuple[tuple[int, ...], str]:
    """Shape and dtype, typed or those of a file's input."""
    from ops.operands import load
    from ops.reduce_sum.plan import check_shape

    parts = what.strip("()[] ").lower().replace("x", ",").split(",")
    if len(parts) > 1 and all(p.strip().isascii() and p.strip().isdigit() and len(p) < 18 for p in parts):
        return check_shape([int(p) for p in parts], "SHAPE"), dtype or "float32"
    if dtype is not None:
        raise refuse("--dtype", got=dtype, allowed="only with a SHAPE; a file has its own", remedy="leave it out")
    if not Path(what).exists():
        raise refuse(
            "FILE|SHAPE", got=what, allowed="a file of operands, or dims as 32,64,56,56", remedy="check the name"
        )
    x = load(Path(what)).input
    return tuple(x.shape), x.dtype.name


def _check_out(path: Path, types: tuple[str, ...]) -> None:
    if path.suffix.lower() not in types:
        raise refuse("--out", got=str(path), allowed=" or ".join(types), remedy="give the file such an ending")
    if not path.parent.is_dir():
        raise refuse("--out", got=str(path), allowed="a file in a folder that exists", remedy="make the folder first")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _write_csv(run: TimedOperator, folder: Path) -> None:
    """One folder per launch, in order."""
    from viz.msprof_csv import as_csv, msprof_tables

    for k, step in enumerate(run.steps):
        place = folder / f"{k}_{step.name.replace(' ', '_')}"
        place.mkdir(parents=True, exist_ok=True)
        for name, rows in msprof_tables(step.name, step.timeline).items():
            save_text(as_csv(rows), place / name)
