"""The ``aicore`` command. Modules that take long to import are imported where they are needed."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viz import c_commands, error_commands, time_commands
from viz.options import check_figure, parse_count, parse_shape, refuse, resolve_product
from viz.output import note, print_json, printing, save_figure
from viz.progress import LateProgress, Stopwatch

if TYPE_CHECKING:
    from ops import BatchNormGrads, Operands

BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
SLOW_ELEMENTS = 50_000_000
"""From here on the instruction engine takes minutes."""
EXACT_CHANNELS = 4096
"""Channels up to which a printed report compares all of them with exact results."""
TEXT_LEAVES = 64
"""Elements up to which a tree is printed as an expression and drawn."""
TREE_ELEMENTS = 1 << 26
"""Elements of a channel up to which its tree is built (some 50 bytes each)."""


def _help(summary: str, more: str, *examples: str) -> str:
    """Text of --help; a backspace makes click keep the lines of the examples."""
    return "\n\n".join([summary, more, "\n".join(["\b", "Examples:", *(f"  {e}" for e in examples)])])


app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help=_help(
        "Emulate Ascend AI cores running aclnnBatchNormReduceBackward.",
        "Exit status: 0; 2 for bad input, with one line on stderr; 130 when interrupted.",
        "aicore run --figure run.png",
        "aicore plan 32,64,56,56",
    ),
)

ProductOption = Annotated[
    str | None, typer.Option("--product", metavar="NAME", help="SoC, as `aicore products` lists them; default 950.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Make it a what-if machine; may be given again."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")]
FigureOption = Annotated[
    Path | None, typer.Option("--figure", metavar="FILE", help="Also draw it: .png, .svg or .pdf.")
]
CoresOption = Annotated[str, typer.Option("--cores", metavar="N|all", help="Cores the tables show.")]
ShapeArgument = Annotated[str, typer.Argument(metavar="SHAPE", help="32,64,56,56 or 32x64x56x56; channels second.")]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        try:
            typer.echo(f"aicore {installed('aicore-emulator')}")
        except PackageNotFoundError:
            typer.echo("aicore (not installed)")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    help=_help(
        "Run the operator, core by core.",
        "Shows the plan, the work of every core, and the outputs beside their exact values.",
        "aicore run",
        "aicore run dump.npz --product Ascend910B1 --engine fast --json",
        "aicore run --set vector_cores=40 --figure run.png",
    )
)
def run(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help=".npz, folder of .npy or .safetensors; default: a bundled fp16 dump."),
    ] = None,
    product: ProductOption = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="instruction or fast; the bits are equal.")
    ] = "instruction",
    out_dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Of all outputs; default: that of grad_out.")
    ] = None,
    no_input_g: Annotated[bool, typer.Option("--no-input-g", help="Leave out sumDy and sumDyXmu.")] = False,
    no_weight_g: Annotated[bool, typer.Option("--no-weight-g", help="Leave out gradWeight.")] = False,
    no_bias_g: Annotated[bool, typer.Option("--no-bias-g", help="Leave out gradBias.")] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Shuffle the arrival order of the cores.")
    ] = None,
    settings: SetOption = None,
    channels: Annotated[int, typer.Option(min=1, metavar="N", help="Channels of the outputs to show.")] = 4,
    cores: CoresOption = "8",
    figure: FigureOption = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Draw the modelled time of each core and pipe.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the operator, core by core."""
    chip = resolve_product(product, settings or [])
    shown = parse_count(cores, "--cores")
    check_figure(figure)
    check_figure(timeline, "--timeline")
    watch = Stopwatch()
    with LateProgress() as progress:
        progress.step("reading the operands")
        import ops

        operands = replace(ops.bundled(), path=None) if file is None else ops.load(file)
        if (figure or timeline) and operands.input.size == 0:
            what = "--figure" if figure else "--timeline"
            raise refuse(what, got="operands without elements", allowed="a plan to draw", remedy="leave it out")
        if engine == "instruction" and operands.input.size > SLOW_ELEMENTS:
            note(f"{operands.input.size:,} elements on the instruction engine; --engine fast is quicker")
        options = {
            "input_g": not no_input_g,
            "weight_g": not no_weight_g,
            "bias_g": not no_bias_g,
            "out_dtype": out_dtype,
            "product": chip,
            "engine": engine,
        }
        progress.step(f"{engine} engine (a first start compiles it)")
        grads = _operate(operands, options, seed, progress)
        progress.step("exact results")
        from studies.summary import summarize_run

        every = as_json or operands.input.shape[1] <= EXACT_CHANNELS
        summary = summarize_run(operands, grads, exact_channels=None if every else channels)
        if figure is not None and summary.plan is not None:
            from viz.figures import plan_figure

            progress.step("drawing")
            save_figure(plan_figure(summary.plan), figure)
        if timeline is not None:
            from studies.timed import timed_operator
            from viz.time_commands import draw

            progress.step("timing")
            shape, dtype = operands.input.shape, operands.input.dtype.name
            save_figure(draw(timed_operator(shape, product=chip, dtype=dtype), "gantt"), timeline)
    total, compiling = watch.stop()
    if as_json:
        from viz.records import run_record

        print_json(run_record(summary, seconds=total, compile_seconds=compiling))
    else:
        from viz.report import print_run

        with printing() as out:
            print_run(out, summary, channels=channels, cores=shown, total_seconds=total, compile_seconds=compiling)


def _operate(operands: Operands, options: dict[str, Any], seed: int | None, progress: LateProgress) -> BatchNormGrads:
    import ops
    from emulator.schedule import VENDOR, Schedule

    return ops.batch_norm_reduce_backward(
        operands.grad_out,
        operands.input,
        operands.mean,
        operands.invstd,
        operands.weight,
        schedule=VENDOR if seed is None else Schedule(seed=seed),
        progress=progress.report,
        **options,
    )


@app.command(
    help=_help(
        "List the products; name one for its sources.",
        "Vector cores, UB, clock, dtypes and fidelity of every SoC.",
        "aicore products",
        "aicore products Ascend910B3",
    )
)
def products(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one, number by number.")] = None,
    as_json: JsonOption = False,
    timing: Annotated[bool, typer.Option("--timing", help="Of NAME: the numbers of the timing model.")] = False,
) -> None:
    """List the products; name one for its sources."""
    if timing:
        if name is None:
            raise refuse(
                "--timing", got="no NAME", allowed="one product", remedy="name it: aicore products 950 --timing"
            )
        from viz.time_commands import parameter_records, parameter_text

        if as_json:
            print_json(parameter_records(name))
        else:
            typer.echo(parameter_text(name))
        return
    from emulator import products as catalogue
    from viz import catalogue as printed
    from viz import records

    if name is not None:
        one = catalogue.get(name)
        if as_json:
            print_json(records.product_record(one, sources=True))
        else:
            with printing() as out:
                printed.print_product(out, one)
        return
    all_products = [catalogue.get(n) for n in catalogue.names()]
    if as_json:
        print_json(records.products_record(all_products, catalogue.unsupported()))
    else:
        with printing() as out:
            printed.print_products(out, all_products, catalogue.unsupported())


@app.command(
    help=_help(
        "Show the tiling of a shape.",
        "Tiles, cores, UB, workspace, tiling data.",
        "aicore plan 32,64,56,56",
        "aicore plan 4096x256 --product Ascend910B1 --figure plan.png",
    )
)
def plan(
    shape: ShapeArgument,
    product: ProductOption = None,
    settings: SetOption = None,
    cores: CoresOption = "8",
    figure: FigureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tiling of a shape."""
    dims = parse_shape(shape)
    chip = resolve_product(product, settings or [])
    shown = parse_count(cores, "--cores")
    check_figure(figure)
    from ops import plan_reduce_sum
    from studies.summary import summarize_plan

    summary = summarize_plan(plan_reduce_sum(dims, product=chip))
    if figure is not None:
        from viz.figures import plan_figure

        save_figure(plan_figure(summary), figure)
    if as_json:
        from viz.records import plan_record

        print_json(plan_record(summary))
    else:
        from viz.report import print_plan

        with printing() as out:
            print_plan(out, summary, cores=shown)


@app.command(
    help=_help(
        "Show the addition tree of a channel.",
        "The expression when it is small, statistics always.",
        "aicore tree 4,2 --channel 0",
        "aicore tree 32x64x56x56 --channel 5 --figure tree.png",
    )
)
def tree(
    shape: ShapeArgument,
    channel: Annotated[int, typer.Option(metavar="C", help="Channel, from 0 on.")] = 0,
    product: ProductOption = None,
    settings: SetOption = None,
    figure: FigureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the addition tree of a channel."""
    dims = parse_shape(shape)
    chip = resolve_product(product, settings or [])
    check_figure(figure)
    from ops import plan_reduce_sum
    from ops.reduce_sum.tree import addition_tree

    tiling = plan_reduce_sum(dims, product=chip)
    elements = tiling.tiling.canonical.reduce_count
    if elements > TREE_ELEMENTS:
        allowed = f"at most {TREE_ELEMENTS} elements in a channel"
        raise refuse(f"SHAPE {shape}", got=elements, allowed=allowed, remedy="choose a smaller shape")
    with LateProgress() as progress:
        progress.step("building the tree")
        grown = addition_tree(tiling, channel)
        small = grown.leaves <= TEXT_LEAVES
        if figure is not None:
            from viz.tree_figure import tree_figure

            progress.step("drawing")
            save_figure(tree_figure(grown, chip), figure)
    if as_json:
        from viz.records import tree_record

        print_json(tree_record(grown, chip, text=small))
    else:
        from viz.report import print_tree

        with printing() as out:
            print_tree(out, grown, chip, text=small)


for _commands in (c_commands, error_commands, time_commands):
    _commands.register(app)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 2 for bad input, 130 when interrupted.

    arguments: by default those of the process.
    """
    command = typer.main.get_command(app)
    for name in ("stdout", "stderr"):  # closed by the caller: what would be said there is dropped
        if getattr(sys, name) is None:
            setattr(sys, name, io.StringIO())
    try:
        with command.make_context("aicore", sys.argv[1:] if arguments is None else list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        text = _explained(error)
        if text is None:
            raise
        note(text)
        return BAD_INPUT
    return 0


_USAGE_ERROR = typer.BadParameter.__mro__[1]
_CLICK_ERROR = typer.BadParameter.__mro__[2]


def _explained(error: Exception) -> str | None:
    """The text of an error that bad input causes, or None for a fault of ours."""
    from emulator.errors import EmulatorError

    if isinstance(error, EmulatorError):
        return str(error)
    if isinstance(error, _CLICK_ERROR):
        context = getattr(error, "ctx", None)
        help_of = context.command_path if context is not None else "aicore"
        return f"{error.format_message().rstrip('.')}; see {help_of} --help"  # type: ignore[attr-defined]
    if isinstance(error, MemoryError):
        return "not enough memory for these operands; use smaller ones"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    return None
