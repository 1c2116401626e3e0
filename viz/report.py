"""Reports for people: a plan, a run, an addition tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from emulator.jit import cache_dir
from ops.batch_norm_reduce_backward.pipeline import VENDOR_NAMES
from viz.tables import count, grid, number, percent, plural, seconds, size, span, table

if TYPE_CHECKING:
    from emulator.products import Product
    from ops.reduce_sum.tree import AdditionTree
    from studies.summary import PlanSummary, RunSummary

DEFAULT_CORES = 8
"""Cores a table shows unless asked for more."""
PARTIALS_SHOWN = 2
"""Channels of a core whose partial sums are shown."""

NOT_KEPT = "the cache folder cannot be written, so every start compiles; set AICORE_CACHE_DIR to one that can"


def product_lines(product: Product) -> Iterator[tuple[str, str]]:
    """The product, and for a model what that means."""
    yield "Product", product.label
    if product.fidelity == "model":
        yield "", product.fidelity_note


def plan_lines(plan: PlanSummary) -> Iterator[tuple[str, str]]:
    """The plan in sentences."""
    shape = f"{list(plan.shape)} -> canonical {list(plan.canonical_shape)}, pattern {plan.pattern}"
    yield "Plan", f"fp32 sum over every axis but 1 of {shape}"
    yield "A (kept)", f"{plural(plan.channels, 'channel')} in {plural(plan.a_tiles, 'tile')} of {count(plan.unit_a)}"
    yield "R (reduced)", _reduced(plan)
    balance = count(plan.least_elements)
    if plan.most_elements != plan.least_elements:
        balance += f" to {count(plan.most_elements)}"
    tiles = f"at most {plural(plan.factor_a, 'A tile')} by {plural(plan.factor_r, 'R tile')}"
    yield "Cores", f"{plan.cores} of {plan.cores_available} used; {balance} elements of an operand for each, {tiles}"
    yield "Group reduce", group_text(plan)
    yield "Workspace", f"{size(plan.workspace_bytes)}, {size(plan.system_workspace_bytes)} of it the system's"


def _reduced(plan: PlanSummary) -> str:
    per_channel = f"{plural(plan.elements_per_channel, 'element')} of each channel"
    if plan.r_split == "none":
        return f"{per_channel} in 1 tile"
    unit = "batch row" if plan.r_split == "N" else "spatial element"
    elements = f" ({count(plan.r_tile_elements)} elements)" if plan.r_tile_elements != plan.unit_r else ""
    return f"{per_channel} in {plural(plan.r_tiles, 'tile')} of {plural(plan.unit_r, unit)}{elements}"


def group_text(plan: PlanSummary) -> str:
    """Who adds the partial sums."""
    if plan.group_r == 1:
        return "no: one core sums all of its channels, nothing to combine"
    return (
        f"yes: {plan.group_r} cores share each A tile; their partial sums meet in the workspace at SyncAll, then "
        f"{plural(plan.group_r, 'row')} are added in chunks of 64 channels by {plural(len(plan.combine), 'core')}"
    )


def ub_table(plan: PlanSummary) -> Any:
    """The UB buffers of the ReduceSum kernel against the capacity."""
    rows = [(name, count(n), percent(n, plan.ub_bytes)) for name, n in plan.ub_buffers]
    free = plan.ub_bytes - plan.ub_used_bytes
    rows.append(("free", count(free), percent(free, plan.ub_bytes)))
    title = f"UB of a core: {count(plan.ub_used_bytes)} of {size(plan.ub_bytes)} used by ReduceSum"
    return table(title, ("buffer", "bytes", "of UB"), rows, left=("buffer",))


def print_plan(console: Any, plan: PlanSummary, *, cores: int | None = DEFAULT_CORES) -> None:
    """``aicore plan``. ``cores``: rows of the table, None for all."""
    console.print(grid([*product_lines(plan.product), *plan_lines(plan)]))
    console.print()
    console.print(ub_table(plan))
    _print_cores(console, plan, cores)
    items = [(name, str(value)) for name, value in plan.tiling_data.items()]
    half = -(-len(items) // 2)
    rows = [(*a, *b) for a, b in zip_longest(items[:half], items[half:], fillvalue=("", ""))]
    titles = ("field", "value", " field", " value")
    console.print(table("Tiling data", titles, rows, left=("field", " field")))


def _print_cores(console: Any, plan: PlanSummary, cores: int | None) -> None:
    shown = plan.work[:cores]
    columns = ["core", "channels", "A tiles", "R tiles", "elements"]
    pipes = list(shown[0].instructions)
    rows = [
        (
            *(w.core, span(w.channels), span(w.a_tiles), span(w.r_tiles), count(w.elements)),
            *(count(w.instructions[p]) for p in pipes),
        )
        for w in shown
    ]
    title = "Cores of ReduceSum" + (", instructions by pipe over both sums" if pipes else "")
    console.print(table(title, columns + pipes, rows))
    _print_rest(console, len(plan.work), len(shown))


def _print_rest(console: Any, total: int, shown: int) -> None:
    if total > shown:
        console.print(f"... {total - shown} more (--cores all)")
        console.print()


def _print_partials(console: Any, plan: PlanSummary, cores: int | None) -> None:
    shown = plan.work[:cores]
    rows = []
    for w in shown:
        first = w.channels[0]
        for offset, (dy, dy_x) in enumerate(zip(w.partials["sum_dy"], w.partials["sum_dy_x"], strict=True)):
            if offset < PARTIALS_SHOWN:
                rows.append((w.core, first + offset, number(dy, "float32"), number(dy_x, "float32")))
    title = f"Partial sums of each core (fp32, its first {plural(PARTIALS_SHOWN, 'channel')})"
    console.print(table(title, ("core", "channel", "sumDy", "sumDy*X"), rows))
    _print_rest(console, len(plan.work), len(shown))


def _print_launches(console: Any, run: RunSummary) -> None:
    pipes = list(run.launches[0].instructions)
    rows = [
        (
            launch.step,
            launch.blocks,
            *(count(launch.instructions[p]) for p in pipes),
            count(launch.bytes_in),
            count(launch.bytes_out),
            percent(launch.ub_used_bytes, run.product.ub_bytes),
            launch.sync_rounds,
        )
        for launch in run.launches
    ]
    columns = ("kernel launch", "blocks", *pipes, "bytes in", "bytes out", "UB", "SyncAll")
    console.print(table("Kernel launches, all blocks together", columns, rows, left=("kernel launch",)))


def input_lines(run: RunSummary) -> Iterator[tuple[str, str]]:
    """The operands."""
    data = run.input
    notes = "".join(f", {name} {value}" for name, value in data.notes.items())
    elements, channels = plural(data.elements, "element"), plural(data.channels, "channel")
    name = data.name if data.path else f"{data.name} (bundled)"
    yield "Input", f"{name}: {list(data.shape)} {data.dtype}, {elements}, {channels}{notes}"
    if data.path is not None:
        yield "", data.path
    if data.largest_ratio is None or data.least_ratio is None:
        yield "|mean|/sigma", "not finite in any channel"
    else:
        yield (
            "|mean|/sigma",
            f"{data.least_ratio:.4g} to {data.largest_ratio:.4g} (largest in channel {data.largest_ratio_channel})",
        )


def run_lines(run: RunSummary) -> Iterator[tuple[str, str]]:
    """How it was run, and what a reader should know."""
    order = run.schedule if run.engine == "instruction" else "none: no cores are simulated, and no bit depends on it"
    yield "Engine", f"{run.engine}, algorithm {run.algorithm}, outputs {run.out_dtype}"
    yield "Arrival order", order
    for i, text in enumerate(run.notes):
        yield "Note" if i == 0 else "", text


def _print_outputs(console: Any, run: RunSummary, channels: int) -> None:
    rows: list[tuple[str, ...]] = []
    for output in run.outputs:
        name = VENDOR_NAMES[output.name]
        if output.values is None or output.rounded is None or output.error_ulp is None:
            rows.append((name, "", "masked off", "", ""))
            continue
        for c, (value, exact, error) in enumerate(zip(output.values, output.rounded, output.error_ulp, strict=False)):
            if c < channels:
                texts = number(value, output.dtype), number(exact, output.dtype)
                rows.append((name if c == 0 else "", str(c), *texts, f"{error:.3g}"))
        if output.largest_error_ulp is not None and channels < run.exact_channels:
            where = f"largest of {run.exact_channels}"
            rows.append(
                ("", where, "", f"in channel {output.largest_error_channel}", f"{output.largest_error_ulp:.3g}")
            )
    title = f"Outputs ({run.out_dtype}) beside the exact results rounded once"
    columns = ("output", "channel", "value", "exactly rounded", "error (ulp)")
    console.print(table(title, columns, rows, left=("output",)))


def print_run(
    console: Any,
    run: RunSummary,
    *,
    channels: int,
    cores: int | None,
    total_seconds: float,
    compile_seconds: float,
) -> None:
    """``aicore run``. ``cores``: rows of the per-core tables, None for all."""
    plan = run.plan
    lines = [
        ("Operator", "aclnnBatchNormReduceBackward"),
        *product_lines(run.product),
        *input_lines(run),
        *run_lines(run),
    ]
    console.print(grid(lines if plan is None else [*lines, *plan_lines(plan)]))
    console.print()
    if plan is not None:
        console.print(ub_table(plan))
        _print_cores(console, plan, cores)
        if run.launches:
            _print_launches(console, run)
        else:
            console.print("Instructions are counted with --engine instruction.\n")
        _print_partials(console, plan, cores)
    _print_outputs(console, run, channels)
    text = f"Time: {seconds(run.seconds)} for the operator, {seconds(total_seconds)} in all"
    if compile_seconds > 1:
        kept = cache_dir("ops") is not None
        after = "the next start finds the code in its cache" if kept else NOT_KEPT
        text += f", of which {seconds(compile_seconds)} compiling; {after}"
    console.print(text)


def print_tree(console: Any, tree: AdditionTree, product: Product, *, text: bool) -> None:
    """``aicore tree``; ``text``: with the whole sum as one expression."""
    levels, pads = tree.leaves_per_level(), tree.pads_per_level()
    per_channel = f"channel {tree.channel} of {list(tree.shape)}: {plural(tree.leaves, 'element')}"
    lines = [
        *product_lines(product),
        ("Tree", f"{per_channel}, {plural(tree.pads, 'pad')} of +0"),
        ("Height", f"{plural(tree.height, 'addition')} between the deepest element and the sum"),
    ]
    console.print(grid(lines))
    console.print()
    if text:
        console.print(tree.text(), soft_wrap=True)
        console.print()
    rows = [(depth, count(levels.get(depth, 0)), count(pads.get(depth, 0))) for depth in sorted({*levels, *pads})]
    console.print(table("Leaves by depth (additions below the sum)", ("depth", "elements", "pads"), rows))
    stages = [(name, count(additions)) for name, additions in tree.stages()]
    console.print(table("Additions by stage", ("stage", "additions"), stages, left=("stage",)))
