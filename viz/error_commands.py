"""``aicore error`` and ``aicore reveal``; `register` adds them to the application."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from viz.options import refuse
from viz.output import save_figure

OUTPUT_NAMES = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
QUICK: dict[str, Any] = {"count": 4096, "channels": 8}
QUICK_GROWTH: dict[str, Any] = {"sizes": (1_000, 10_000, 100_000), "trials": 5}
STUDY_ELEMENTS = 1 << 25
"""Elements up to which all channels are studied; evenly spaced ones beyond."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        name="error",
        help="Where rounding error comes from: the exact account of every output, by step, level, core and tile.",
    )(error)
    app.command(name="reveal", help="The addition tree of a sum, found from outside by mask probing.")(reveal)


def _operands(file: Path | None) -> tuple[Any, str]:
    import ops

    if file is None:
        return ops.bundled(), "bundled digits_cnn_bn_fp16"
    operands = ops.load(file)
    return operands, operands.name


def _masters(path: Path | None) -> dict[str, Any] | None:
    """float64 grad_out and input of an .npz."""
    if path is None:
        return None
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {k: archive[k] for k in ("grad_out", "input") if k in archive}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        refused = refuse(
            "--master", got=str(path), allowed="an .npz with grad_out and input in float64", remedy="check it"
        )
        raise refused from error


def _choose(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise refuse(what, got=value, allowed=", ".join(allowed), remedy="choose one of these")
    return value


def _folder(path: Path | None) -> Path | None:
    """The folder for figures, made if need be."""
    if path is not None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            refused = refuse("--out", got=str(path), allowed="a folder that can be written", remedy="choose another")
            raise refused from error
    return path


def error(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help=".npz, folder of .npy or .safetensors; default: a bundled fp16 dump."),
    ] = None,
    product: Annotated[str | None, typer.Option(metavar="NAME", help="SoC, as `aicore products` lists them.")] = None,
    algorithm: Annotated[
        str,
        typer.Option(metavar="CONTRACT", help="cann, centred, torch_cuda, sequential, numpy, exact, cann_fp16, ..."),
    ] = "cann",
    out_dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="Of all outputs; default: grad_out's.")] = None,
    master: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".npz with float64 grad_out and input before rounding.")
    ] = None,
    output: Annotated[
        str, typer.Option(metavar="NAME", help="Output shown: " + ", ".join(OUTPUT_NAMES))
    ] = "grad_weight",
    channel: Annotated[
        int | None, typer.Option(min=0, metavar="C", help="Of the waterfall; default: the worst.")
    ] = None,
    channels: Annotated[int, typer.Option(min=1, metavar="N", help="Channels the table shows.")] = 4,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Largest single roundings to list.")] = 5,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the figures; default: NAME_error here; none for --json."),
    ] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Only print.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Cancellation and growth at the sizes of the docs (minutes).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Attribute every rounding of a run."""
    from typing import get_args

    from emulator import products
    from ops.batch_norm_reduce_backward.pipeline import Algorithm
    from studies.accuracy import cancellation_study, growth_study
    from studies.attribution import error_ledger
    from studies.error_study import error_study
    from studies.metrics import channel_metrics
    from studies.verdict import judge_ledger
    from viz import error_figures, error_report

    name: Any = _choose(algorithm, get_args(Algorithm), "--algorithm")
    _choose(output, OUTPUT_NAMES, "--output")
    chip = products.get(products.DEFAULT_PRODUCT if product is None else product)
    masters = _masters(master)
    operands, source = _operands(file)
    data = operands.grad_out, operands.input, operands.mean, operands.invstd
    ledger = error_ledger(*data, product=chip, algorithm=name, out_dtype=out_dtype, master=masters, source=source)
    if channel is not None and channel >= ledger.channels:
        allowed = f"0 to {ledger.channels - 1}"
        raise refuse("--channel", got=channel, allowed=allowed, remedy="choose a channel of axis 1")
    per_channel = max(operands.input.size // ledger.channels, 1)
    step = max(1, -(-per_channel * ledger.channels // STUDY_ELEMENTS))
    study = None
    if name != "exact":
        study = error_study(*data, product=chip, algorithm=name, top=top, channels=range(0, ledger.channels, step))
    compared: Any = [name, *(a for a in ("cann", "centred") if a != name)]
    cancellation = cancellation_study(product=chip, algorithms=compared, **({} if full else QUICK))
    growth = growth_study(product=chip, **({} if full else QUICK_GROWTH))
    verdicts = judge_ledger(ledger)
    folder = None if no_figures or (as_json and out is None) else _folder(out or Path(f"{operands.name}_error"))
    written = []
    if folder is not None:
        made = error_figures.figures(ledger, study, cancellation, growth, output=output, channel=channel)
        for stem, figure in made.items():
            save_figure(figure, folder / f"{stem}.png")
            written.append(str(folder / f"{stem}.png"))
    if as_json:
        metrics = {n: channel_metrics(ledger, n, *data[:3]) for n in OUTPUT_NAMES}
        record = error_report.as_json(ledger, study, verdicts, metrics, cancellation, growth)
        typer.echo(json.dumps({**record, "figures": written}, allow_nan=False))
    else:
        shown = range(min(channels, ledger.channels))
        metrics_one = channel_metrics(ledger, output, *data[:3])
        typer.echo("\n".join(error_report.report_lines(ledger, study, verdicts, metrics_one, output, shown)))
        if written:
            typer.echo(f"\nfigures: {', '.join(written)}")
    if not ledger.residual_is_zero:
        raise typer.Exit(1)


def reveal(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="operator or numpy.")] = "operator",
    shape: Annotated[str, typer.Option(metavar="NxS", help="Rows and columns of one channel.")] = "8x8",
    channels: Annotated[
        int, typer.Option(min=1, metavar="C", help="Channels of the operator, one probe in each.")
    ] = 64,
    product: Annotated[str | None, typer.Option(metavar="NAME", help="SoC of the operator.")] = None,
    algorithm: Annotated[str, typer.Option(metavar="CONTRACT", help="Contract of the operator.")] = "cann",
    against: Annotated[str | None, typer.Option(metavar="CONTRACT", help="Compare with this contract's tree.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (up to 64 leaves).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as one JSON object.")] = False,
) -> None:
    """Reveal the addition tree of a sum."""
    import numpy as np

    import ops
    from emulator import products
    from ops.batch_norm_reduce_backward.contracts import contract, orders_of
    from studies.probes import operator_sum
    from studies.reveal import first_difference, reveal_tree, tree_of_order
    from viz.reveal_figure import draw_tree

    _choose(what, ("operator", "numpy"), "WHAT")
    parts = shape.lower().split("x")
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and 0 < int(p) < 10**7 for p in parts):
        raise refuse("--shape", got=shape, allowed="NxS as 8x8", remedy="write two whole numbers")
    rows, columns = (int(p) for p in parts)
    chip = products.get(products.DEFAULT_PRODUCT if product is None else product)
    rule: Any = contract(algorithm)
    if what == "numpy":
        tree = reveal_tree(lambda x: np.add.reduce(x), rows * columns)
    else:
        call = operator_sum(rows, columns, channels, product=chip, algorithm=rule.name)
        tree = reveal_tree(call, rows * columns, batch=channels)
    title = f"np.add.reduce, float32, n = {tree.n}"
    if what == "operator":
        title = (
            f"{chip.name} (fidelity: {chip.fidelity}), contract {rule.name}, float32, ({rows}, {channels}, {columns})"
        )
    record = {
        "what": title, "leaves": tree.n, "height": tree.height(), "sha256": tree.fingerprint(), "probes": tree.probes,
        "calls": tree.calls, "expression": tree.text(),
    }  # fmt: skip
    if against is not None:
        other = contract(against)
        if other.order == "none":
            raise refuse("--against", got=against, allowed="a contract that adds", remedy="not exact")
        plan = ops.plan_reduce_sum((rows, channels, columns), product=chip)
        record["against"] = against
        record["comparison"] = first_difference(tree, tree_of_order(orders_of(other, plan)[0]))
    if figure is not None:
        draw_tree(tree, title).savefig(figure)
    if as_json:
        typer.echo(json.dumps(record))
    else:
        typer.echo("\n".join(f"{k}: {v}" for k, v in record.items()))
