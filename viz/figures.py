"""The picture of a plan: who sums what, and where partial sums meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from viz.style import (
    FAINT,
    FEW,
    INK,
    NORMAL,
    SMALL,
    core_colours,
    draw_heading,
    heading_inches,
    heading_lines,
    ink_on,
    new_figure,
    tidy,
)
from viz.tables import count, plural, span

if TYPE_CHECKING:
    from studies.summary import CoreWork, PlanSummary

WIDTH = 10.0
LEFT, RIGHT, BOTTOM = 0.95, 1.75, 0.65
"""Inches around the axes."""
PLOT_HEIGHT = 4.4
COMBINE_FROM, COMBINE_TO = 1.2, 1.32
"""Where the combine row lies, in heights of the R axis."""
WITHOUT_COMBINE = 1.12
"""Where the axis ends when there is none."""
MOST_ARROWS = 128
"""Arrows beyond which there is one for each channel group."""
LEAST_POINTS = 5
"""Tile boundaries closer than this are left out."""
TEXT_SHARE = 0.16
"""Share of a core's width kept free of arrows, for its index."""
CENTRED_TICKS = 16


def plan_figure(plan: PlanSummary) -> Figure:
    """Cores over channels (x) and R tiles (y), coloured by core, and the combine below."""
    lines = heading_lines(plan.product, WIDTH)
    height = heading_inches(lines) + PLOT_HEIGHT + BOTTOM
    figure = new_figure(WIDTH, height)
    title = f"ReduceSum of {list(plan.shape)}: {plan.cores} of {plural(plan.cores_available, 'core')}, "
    title += f"{plural(plan.a_tiles, 'A tile')} by {plural(plan.r_tiles, 'R tile')}"
    draw_heading(figure, title, lines)
    plot_width = WIDTH - LEFT - RIGHT
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / height, plot_width / WIDTH, PLOT_HEIGHT / height))
    tidy(axes)
    axes.spines["left"].set_visible(False)
    bottom = plan.r_tiles * _axis_end(plan)
    axes.set_xlim(0, plan.channels)
    axes.set_ylim(bottom, 0)
    points = (72 * plot_width / plan.channels, 72 * PLOT_HEIGHT / bottom)
    colours = core_colours(plan.cores)
    _draw_cores(axes, plan, colours, points)
    _draw_tiles(axes, plan, points)
    _draw_combine(axes, plan, colours, points)
    _label_axes(axes, plan)
    _draw_key(figure, axes, plan, colours)
    return figure


def _axis_end(plan: PlanSummary) -> float:
    return COMBINE_TO + 0.02 if plan.combine else WITHOUT_COMBINE


def _block(
    axes: Any, box: tuple[float, float, float, float], colour: Any, text: str, points: tuple[float, float],
    longest: int, share: float = 1.0,
) -> None:  # fmt: skip
    """A coloured box x, y, width, height with its core's index in the first ``share`` of the width.

    points: per data unit; longest: characters of the longest index. It is left out where that does not fit.
    """
    x, y, width, height = box
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="white", linewidth=0.8))
    wide, high = share * width * points[0], height * points[1]
    long, short = 4.6 * longest + 2, SMALL
    upright = wide >= long and high >= short
    if upright or (high >= long and wide >= short - 1):
        axes.text(
            x + share * width / 2,
            y + height / 2,
            text,
            ha="center",
            va="center",
            rotation=0 if upright else 90,
            fontsize=SMALL - 1,
            color=ink_on(colour),
            zorder=4,
        )


def _draw_cores(axes: Any, plan: PlanSummary, colours: list[Any], points: tuple[float, float]) -> None:
    for work in plan.work:
        (c0, c1), (r0, r1) = work.channels, work.r_tiles
        share = TEXT_SHARE if plan.combine else 1.0
        _block(
            axes,
            (c0, r0, c1 - c0, r1 - r0),
            colours[work.core],
            str(work.core),
            points,
            len(str(plan.cores - 1)),
            share,
        )


def _draw_tiles(axes: Any, plan: PlanSummary, points: tuple[float, float]) -> None:
    """Boundaries of the tiles inside the cores."""
    lines = []
    if plan.factor_a > 1 and plan.unit_a * points[0] >= LEAST_POINTS:
        lines += [[(x, 0), (x, plan.r_tiles)] for x in range(plan.unit_a, plan.channels, plan.unit_a)]
    if plan.factor_r > 1 and points[1] >= LEAST_POINTS:
        lines += [[(0, y), (plan.channels, y)] for y in range(1, plan.r_tiles)]
    axes.add_collection(LineCollection(lines, colors="white", linewidths=0.5, alpha=0.45), autolim=False)


def _draw_combine(axes: Any, plan: PlanSummary, colours: list[Any], points: tuple[float, float]) -> None:
    if not plan.combine:
        middle = plan.r_tiles * (1 + WITHOUT_COMBINE) / 2
        text = "no combine: one core per channel group"
        axes.text(
            plan.channels / 2, middle, text, ha="center", va="center", fontsize=NORMAL, style="italic", color=FAINT
        )
        return
    top, end = plan.r_tiles * COMBINE_FROM, plan.r_tiles * COMBINE_TO
    for part in plan.combine:
        first, last = part.channels
        _block(
            axes,
            (first, top, last - first, end - top),
            colours[part.core],
            str(part.core),
            points,
            len(str(plan.cores - 1)),
        )
    halo = [withStroke(linewidth=2.2, foreground="white", alpha=0.8)]
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    bundled = plan.cores > MOST_ARROWS
    for work in plan.work:
        row = work.core % plan.group_r
        if bundled and row:
            continue
        c0, c1 = work.channels
        share = 0.5 if bundled else TEXT_SHARE + (1 - TEXT_SHARE) * (row + 0.5) / plan.group_r
        x = c0 + (c1 - c0) * share
        y = plan.r_tiles if bundled else (work.r_tiles[0] + work.r_tiles[1]) / 2
        axes.annotate("", xy=(x, top), xytext=(x, y), arrowprops={**arrow, "path_effects": halo}, zorder=3)
        axes.plot([x], [y], marker="o", markersize=2.5, color=INK, zorder=3, path_effects=halo)


def _label_axes(axes: Any, plan: PlanSummary) -> None:
    axes.set_xlabel("channel (index on axis 1)", fontsize=NORMAL, color=INK)
    tile = plural(plan.r_tile_elements, "element")
    axes.set_ylabel(f"R tile (index; {tile} of a channel each)", fontsize=NORMAL, color=INK)
    axes.yaxis.set_label_coords(-0.075, 1 - 0.5 / _axis_end(plan))
    _index_ticks(axes.xaxis, plan.channels)
    _index_ticks(axes.yaxis, plan.r_tiles)
    if plan.combine:
        middle = plan.r_tiles * (COMBINE_FROM + COMBINE_TO) / 2
        axes.text(
            -0.01, middle, "combine\nafter SyncAll", transform=axes.get_yaxis_transform(), ha="right", va="center",
            fontsize=SMALL, color=INK,
        )  # fmt: skip
        axes.text(
            1.01, middle, f"{plan.group_r} partial sums\nper channel", transform=axes.get_yaxis_transform(), ha="left",
            va="center", fontsize=SMALL, color=FAINT,
        )  # fmt: skip


def _index_ticks(axis: Any, length: int) -> None:
    """Ticks of an index axis: under each cell when they are few, else at whole numbers."""
    axis.set_minor_locator(NullLocator())
    if length <= CENTRED_TICKS:
        axis.set_major_locator(FixedLocator([i + 0.5 for i in range(length)]))
        axis.set_major_formatter(lambda _, position: str(position))
        axis.set_tick_params(length=0)
        return
    ticks = [t for t in MaxNLocator(8, integer=True).tick_values(0, length) if 0 <= t <= length]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(lambda value, _: count(round(value)))


def _draw_key(figure: Figure, axes: Any, plan: PlanSummary, colours: list[Any]) -> None:
    """Which colour is which core."""
    if plan.cores <= FEW:
        patches = [Patch(color=colours[w.core], label=_share_text(w, plan.group_r > 1)) for w in plan.work]
        legend = axes.legend(
            handles=patches, loc="upper left", bbox_to_anchor=(1.005, 1.0), fontsize=SMALL, frameon=False, title="core"
        )
        legend.get_title().set_fontsize(NORMAL)
        legend.set_alignment("left")
        return
    width, height = figure.get_size_inches()
    span_inches = PLOT_HEIGHT / _axis_end(plan)
    place = (
        (width - RIGHT + 0.2) / width,
        (BOTTOM + PLOT_HEIGHT - span_inches) / height,
        0.18 / width,
        span_inches / height,
    )
    norm = BoundaryNorm([i - 0.5 for i in range(plan.cores + 1)], plan.cores)
    bar = figure.colorbar(
        ScalarMappable(norm, ListedColormap(colours)), cax=figure.add_axes(place), drawedges=False, spacing="uniform"
    )
    last = plan.cores - 1
    ticks = [t for t in MaxNLocator(8, integer=True).tick_values(0, last) if 0 <= t <= 0.95 * last] + [last]
    bar.set_ticks(ticks, labels=[count(round(t)) for t in ticks])
    bar.ax.minorticks_off()
    bar.ax.invert_yaxis()
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("core (block index)", fontsize=NORMAL, color=INK)


def _share_text(work: CoreWork, grouped: bool) -> str:
    channels = f"{work.core}: channels {span(work.channels)}"
    return f"{channels},\n    R tiles {span(work.r_tiles)}" if grouped else channels
