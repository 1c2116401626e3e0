"""The picture of an addition tree: leaves by depth, and the tree itself when it is small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from viz.style import (
    FAINT,
    INK,
    NORMAL,
    OKABE_ITO,
    SMALL,
    draw_heading,
    heading_inches,
    heading_lines,
    new_figure,
    tidy,
)
from viz.tables import count, plural

if TYPE_CHECKING:
    from emulator.products import Product
    from ops.reduce_sum.tree import AdditionTree

Point = tuple[float, int]

PAD = -1
"""Child number of a pad in `AdditionTree.nodes`."""
DRAWN_LEAVES = 128
"""Leaves, pads with them, up to which the tree is drawn."""
LOG_RATIO = 50
BARS_INCHES, PLOT_INCHES, LEFT, GAP, BOTTOM = 4.2, 4.4, 0.75, 0.8, 0.65
ELEMENT, PAD_COLOUR = OKABE_ITO[0], OKABE_ITO[1]


def tree_figure(tree: AdditionTree, product: Product) -> Figure:
    """Leaves by depth; beside it every addition, coloured by stage, when there are few."""
    leaves = tree.leaves + tree.pads
    drawn = 2 <= leaves <= DRAWN_LEAVES
    tree_inches = min(max(4.5, 0.17 * leaves), 18.0)
    width = LEFT + BARS_INCHES + 0.3 + (GAP + tree_inches if drawn else 3.0)
    lines = heading_lines(product, width)
    height = heading_inches(lines) + PLOT_INCHES + BOTTOM
    figure = new_figure(width, height)
    size = f"{plural(tree.leaves, 'element')}, height {tree.height}"
    title = f"Additions of channel {tree.channel} of {list(tree.shape)}: {size}"
    draw_heading(figure, title, lines)
    bars_inches = BARS_INCHES if drawn else width - LEFT - 0.3
    place = (LEFT / width, BOTTOM / height, bars_inches / width, (PLOT_INCHES - 0.25) / height)
    _draw_levels(figure.add_axes(place), tree)
    if drawn:
        left = LEFT + BARS_INCHES + GAP
        place = (left / width, BOTTOM / height, tree_inches / width, (PLOT_INCHES - 0.25) / height)
        _draw_tree(figure.add_axes(place), tree)
    return figure


def _draw_levels(axes: Any, tree: AdditionTree) -> None:
    """Bars: elements and pads at each depth."""
    tidy(axes)
    counts = [("elements", tree.leaves_per_level(), ELEMENT), ("pads of +0", tree.pads_per_level(), PAD_COLOUR)]
    counts = [row for row in counts if row[1]]
    thick = 0.8 / len(counts)
    largest = max(n for _, levels, _ in counts for n in levels.values())
    logarithmic = largest > LOG_RATIO * min(n for _, levels, _ in counts for n in levels.values())
    for i, (name, levels, colour) in enumerate(counts):
        middles = [depth - 0.4 + (i + 0.5) * thick for depth in levels]
        bars = axes.barh(middles, list(levels.values()), height=thick, color=colour, label=name)
        axes.bar_label(bars, labels=[count(n) for n in levels.values()], fontsize=SMALL, padding=2, color=INK)
    depths = [depth for _, levels, _ in counts for depth in levels]
    first, last = max(min(depths) - 3, 0), max(depths)
    axes.set_ylim(last + 0.6, first - 0.6)
    axes.yaxis.set_major_locator(FixedLocator(range(first, last + 1, 1 + (last - first) // 20)))
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(0.7, largest * 4)
    else:
        axes.set_xlim(0, largest * 1.15)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: count(round(value)))
    axes.set_ylabel("depth (additions below the sum)", fontsize=NORMAL, color=INK)
    axes.set_xlabel("leaves" + (" (log scale)" if logarithmic else ""), fontsize=NORMAL, color=INK)
    axes.legend(fontsize=SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _places(tree: AdditionTree) -> tuple[dict[int, Point], list[tuple[int, Point]], list[tuple[Point, Point]]]:
    """Points (x, depth) of every addition and of every leaf (with its child number), and the edges.

    Leaves stand one beside the other, an addition above the middle of its two children.
    """
    left, right = tree.nodes()
    places: dict[int, Point] = {}
    leaves: list[tuple[int, Point]] = []
    edges: list[tuple[Point, Point]] = []
    done: list[Point] = []
    todo = [(tree.root, 0, False)]
    while todo:
        node, depth, ready = todo.pop()
        if node < 0:
            done.append((float(len(leaves)), depth))
            leaves.append((node, done[-1]))
        elif ready:
            b, a = done.pop(), done.pop()
            places[node] = ((a[0] + b[0]) / 2, depth)
            edges += [(places[node], a), (places[node], b)]
            done.append(places[node])
        else:
            todo += [(node, depth, True), (int(right[node]), depth + 1, False), (int(left[node]), depth + 1, False)]
    return places, leaves, edges


def _draw_tree(axes: Any, tree: AdditionTree) -> None:
    """Every addition as a dot coloured by its stage, elements with their index, pads hollow."""
    places, leaves, edges = _places(tree)
    axes.add_collection(LineCollection(edges, colors=FAINT, linewidths=0.7, zorder=1))
    names = [name for name, _ in tree.stages()]
    stage_of = {node: name for name, first, last in tree.batches for node in range(first, last)}
    for i, name in enumerate(names):
        at = [places[n] for n in places if stage_of[n] == name]
        axes.scatter(
            [x for x, _ in at], [d for _, d in at], s=22, color=OKABE_ITO[i % len(OKABE_ITO)], label=name, zorder=2
        )
    data = [(child, point) for child, point in leaves if child != PAD]
    pads = [point for child, point in leaves if child == PAD]
    axes.scatter([x for _, (x, _) in data], [d for _, (_, d) in data], s=8, color=INK, zorder=2)
    if pads:
        axes.scatter(
            [x for x, _ in pads],
            [d for _, d in pads],
            s=8,
            facecolor="white",
            edgecolor=FAINT,
            label="pad of +0",
            zorder=2,
        )
    deepest = max(depth for _, (_, depth) in leaves)
    longest = max(len(tree.label(child)) for child, _ in data)
    for child, point in data:
        axes.annotate(
            tree.label(child), point, (0, -5), textcoords="offset points", rotation=90, ha="center", va="top",
            fontsize=SMALL - 1, color=INK,
        )  # fmt: skip
    axes.set_xlim(-0.7, len(leaves) - 0.3)
    axes.set_ylim(deepest + 0.3 + 0.022 * longest * (deepest + 1), -0.4)
    axes.set_axis_off()
    axes.legend(fontsize=SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=3)
