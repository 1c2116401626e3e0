"""An addition tree as a dendrogram."""

from __future__ import annotations

from matplotlib.figure import Figure

from emulator.errors import EmulatorError, explain
from studies.reveal import RevealedTree
from viz.error_figures import INK, PALETTE, new_figure

MOST_LEAVES = 64


def draw_tree(tree: RevealedTree, title: str) -> Figure:
    """Leaves on the left, the sum on the right; every join is one addition. Raises EmulatorError past 64 leaves."""
    if tree.n > MOST_LEAVES:
        allowed = f"up to {MOST_LEAVES} leaves"
        raise EmulatorError(
            explain("tree to draw", got=tree.n, allowed=allowed, remedy="draw a smaller one, or print it")
        )
    height = 1.6 + 0.17 * tree.n
    figure = new_figure(8.0, height, "Addition tree", title)
    axes = figure.add_axes((0.1, 0.55 / height, 0.86, 1 - 1.5 / height))
    rows = _leaf_rows(tree)
    depth: list[int] = []
    place: list[float] = []
    for a, b in zip(tree.left.tolist(), tree.right.tolist(), strict=True):
        xs = [depth[c] if c >= 0 else 0 for c in (a, b)]
        ys = [place[c] if c >= 0 else rows[-2 - c] for c in (a, b)]
        depth.append(max(xs) + 1)
        place.append(sum(ys) / 2)
        for x, y in zip(xs, ys, strict=True):
            axes.plot([x, depth[-1], depth[-1]], [y, y, place[-1]], color=PALETTE[0], linewidth=1)
    for leaf, row in rows.items():
        axes.text(-0.1, row, f"x{leaf}", ha="right", va="center", fontsize=7, color=INK)
    top = max(depth, default=0)
    axes.set_xlim(-0.6, top + 0.5)
    axes.set_ylim(tree.n - 0.4, -0.6)
    axes.set_xticks(range(0, top + 1, max(1, top // 10)))
    axes.set_yticks([])
    axes.set_xlabel("additions", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return figure


def _leaf_rows(tree: RevealedTree) -> dict[int, int]:
    """Leaf to row, so that no lines cross."""
    rows: dict[int, int] = {}
    todo = [tree.root]
    while todo:
        v = todo.pop()
        if v >= 0:
            todo += [int(tree.right[v]), int(tree.left[v])]
        else:
            rows[-2 - v] = len(rows)
    return rows
