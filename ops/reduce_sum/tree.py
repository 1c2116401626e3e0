"""The addition tree of one channel: which two values every addition of a plan adds.

Built symbolically by following the tiling (reduce_spec 4) on arrays of node numbers. Tests hold it against
both engines by evaluating it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import explain
from ops.errors import AclnnError
from ops.reduce_sum.geometry import Geometry, bisection, piece_of, power_below, trailing_ones
from ops.reduce_sum.plan import ReducePlan
from ops.reduce_sum.tiling import CHUNK

Ids = NDArray[np.int64]
PAD = -1
"""Child number of a +0 that fills a tile; a data leaf p (p = n * S + s) is -2 - p; nodes count from 0."""
REG = 64


@dataclass(frozen=True, kw_only=True)
class AdditionTree:
    """All additions of one channel, children before parents."""

    shape: tuple[int, ...]
    channel: int
    left: Ids
    right: Ids
    root: int
    batches: tuple[tuple[str, int, int], ...]
    """(stage, first node, past the last) in order of execution."""

    def stages(self) -> list[tuple[str, int]]:
        """Additions by stage, pads included, in order of first use."""
        totals: dict[str, int] = {}
        for name, first, last in self.batches:
            totals[name] = totals.get(name, 0) + last - first
        return list(totals.items())

    def nodes(self) -> tuple[Ids, Ids]:
        """Children of every addition."""
        return self.left, self.right

    def _depths(self) -> tuple[Ids, Ids]:
        """(depth, child) of every leaf under an addition; the root is at depth 0."""
        depth = np.zeros(len(self.left), np.int64)
        for _, first, last in reversed(self.batches):
            here = depth[first:last] + 1
            for child in (self.left[first:last], self.right[first:last]):
                inner = child >= 0
                depth[child[inner]] = here[inner]
        children = np.concatenate([self.left, self.right])
        leaf = children < 0
        return np.concatenate([depth, depth])[leaf] + 1, children[leaf]

    def _levels(self, wanted: Callable[[Ids], NDArray[np.bool_]]) -> dict[int, int]:
        if self.root < 0:
            return {0: 1} if wanted(np.array([self.root]))[0] else {}
        depths, children = self._depths()
        levels, counts = np.unique(depths[wanted(children)], return_counts=True)
        return {int(level): int(count) for level, count in zip(levels, counts, strict=True)}

    def leaves_per_level(self) -> dict[int, int]:
        """Depth -> data leaves there."""
        return self._levels(lambda children: children < PAD)

    def pads_per_level(self) -> dict[int, int]:
        """Depth -> +0 pads there."""
        return self._levels(lambda children: children == PAD)

    @property
    def leaves(self) -> int:
        """Data leaves: the elements of the channel."""
        return sum(self.leaves_per_level().values())

    @property
    def pads(self) -> int:
        """+0 leaves that fill tiles; they change no value but the sign of a zero."""
        return sum(self.pads_per_level().values())

    @property
    def height(self) -> int:
        """Additions between the deepest data leaf and the sum; the h of the error bound h * u."""
        return max(self.leaves_per_level())

    def label(self, child: int) -> str:
        """Text of a leaf: x[...] with the index in the original shape, or 0."""
        if child == PAD:
            return "0"
        index = np.unravel_index(self._offset(-2 - child), self.shape)
        return f"x[{','.join(str(int(i)) for i in index)}]"

    def _offset(self, p: Any) -> Any:
        """Place of data leaf p (n * S + s) in the flat tensor."""
        c = self.shape[1]
        s = int(np.prod(self.shape[2:], dtype=np.int64))
        return p // s * c * s + self.channel * s + p % s

    def text(self) -> str:
        """The whole sum as one expression; parentheses are the order."""
        if self.root < 0:
            return self.label(self.root)
        done: list[str] = []
        todo: list[tuple[int, bool]] = [(self.root, False)]
        while todo:
            node, ready = todo.pop()
            if node < 0:
                done.append(self.label(node))
            elif ready:
                right, left = done.pop(), done.pop()
                sum_text = f"{left} + {right}"
                done.append(sum_text if node == self.root else f"({sum_text})")
            else:
                todo += [(node, True), (int(self.right[node]), False), (int(self.left[node]), False)]
        return done[0]

    def evaluate(self, x: NDArray[np.float32]) -> np.float32:
        """The fp32 sum of this channel of ``x`` (shape ``shape``) along the tree."""
        flat = np.ascontiguousarray(x, np.float32).reshape(-1)
        if self.root < 0:
            return np.float32(flat[self._offset(-2 - self.root)])
        values = np.zeros(len(self.left), np.float32)

        def take(child: Ids) -> NDArray[np.float32]:
            out = np.zeros(len(child), np.float32)
            inner, data = child >= 0, child < PAD
            out[inner] = values[child[inner]]
            out[data] = flat[self._offset(-2 - child[data])]
            return out

        with np.errstate(all="ignore"):
            for _, first, last in self.batches:
                values[first:last] = take(self.left[first:last]) + take(self.right[first:last])
        return np.float32(values[self.root])


class _Builder:
    """Numbers additions; arrays of node numbers go in and come out."""

    def __init__(self) -> None:
        self.left: list[Ids] = []
        self.right: list[Ids] = []
        self.batches: list[tuple[str, int, int]] = []
        self.count = 0

    def add(self, stage: str, a: Ids, b: Ids) -> Ids:
        first = self.count
        self.count += a.size
        self.left.append(a.reshape(-1))
        self.right.append(b.reshape(-1))
        self.batches.append((stage, first, self.count))
        return np.arange(first, self.count).reshape(a.shape)

    def fold(self, v: Ids) -> Ids:
        """What reaches past the largest power of two is added to the front."""
        m = power_below(len(v))
        t = len(v) - m
        return np.concatenate([self.add("fold to a power of two", v[:t], v[m:]), v[t:m]]) if t else v

    def halve(self, v: Ids) -> Ids:
        """Stride-halving over axis 0 to one row."""
        while len(v) > 1:
            half = len(v) // 2
            v = self.add("halving", v[:half], v[half:])
        return v[0]

    def grouped(self, v: Ids) -> Ids:
        """Passes over 16 consecutive rows, then halving."""
        while len(v) >= 16:
            v = np.moveaxis(v.reshape(len(v) // 16, 16, *v.shape[1:]), 1, 0)
            for half in (8, 4, 2, 1):
                v = self.add("groups of 16", v[:half], v[half:])
            v = v[0]
        return self.halve(v)

    def pairs(self, v: Ids) -> Ids:
        """Adjacent-pair tree of one register."""
        while len(v) > 1:
            v = self.add("pair tree in a register", v[0::2], v[1::2])
        return v[0]

    def channel_row(self, v: Ids) -> Ids:
        """ReduceSum<AR> of one row (reduce_spec 4.3)."""
        k = len(v)
        if k < 32:
            acc = v[:8]
            for b in range(1, k // 8):
                acc = self.add("blocks of 8 in turn", v[8 * b : 8 * b + 8], acc)
            return self.pairs(acc)
        if k <= REG:
            return self.pairs(np.concatenate([v, np.full(REG - k, PAD)]))
        return self.pairs(self.grouped(self.fold(v).reshape(-1, REG)))

    def rows(self, v: Ids, lanes: int) -> Ids:
        """ReduceSum<RA> of one lane (reduce_spec 4.4)."""
        v = self.fold(v)
        return self.grouped(v) if 32 < lanes <= 64 else self.halve(v)


def _tile(g: Geometry, tile: int) -> Ids:
    """The padded elements of one channel in an R tile."""
    piece = piece_of(g, tile)
    ids = np.full(g.k, PAD, np.int64)
    pitch = g.pitch if g.tail_r else 1
    grid = ids[: g.k // pitch * pitch].reshape(-1, pitch)
    n = np.arange(piece.n0, piece.n0 + piece.rows)[:, None]
    s = np.arange(piece.s0, piece.s0 + piece.length)[None, :]
    grid[: piece.rows, : piece.length] = -2 - (n * g.s + s)
    return ids


def _group(build: _Builder, g: Geometry, lanes: int, group: int) -> Ids:
    """The partial sum of one core: tile pairs, then the cache tree (reduce_spec 4.2)."""
    first = group * g.factor_r
    tiles = min(g.factor_r, g.r_tiles - first)
    pos = bisection(tiles)
    cache: dict[int, Ids] = {}
    for i in range(pos):
        ids = _tile(g, first + i)
        if i < tiles - pos:
            ids = build.add("tile pairing", ids, _tile(g, first + i + pos))
        value = build.channel_row(ids) if g.tail_r else build.rows(ids, lanes)
        slots = trailing_ones(i)
        for j in range(slots):
            value = build.add("cache tree over tiles", value, cache[j])
        cache[slots] = value
    return cache[trailing_ones(pos - 1)]


def addition_tree(plan: ReducePlan, channel: int) -> AdditionTree:
    """The tree of ``channel``. Raises AclnnError when the shape has no such channel."""
    if not 0 <= channel < plan.channels:
        raise AclnnError(
            explain(
                "channel",
                got=channel,
                allowed=f"0 to {plan.channels - 1} for shape {list(plan.shape)}",
                remedy="choose a channel of axis 1",
            )
        )
    build = _Builder()
    g = plan.geometry
    if g is None:
        root = -2
    else:
        first_c = channel // g.a_step * g.a_step
        lanes = -(-min(g.a_step, g.c - first_c) // 8) * 8
        partials = np.array([_group(build, g, lanes, group) for group in range(g.group_r)]).reshape(-1)
        if g.group_r > 1:
            stage_two = _Builder()
            stage_two.count = build.count
            width = min(CHUNK, g.c - channel // CHUNK * CHUNK)
            partials = stage_two.rows(partials, -(-width // 8) * 8).reshape(-1)
            build.left += stage_two.left
            build.right += stage_two.right
            build.batches += [("combine across cores", first, last) for _, first, last in stage_two.batches]
        root = int(partials[0])
    empty = [np.empty(0, np.int64)]
    return AdditionTree(
        shape=plan.shape,
        channel=channel,
        left=np.concatenate(build.left or empty),
        right=np.concatenate(build.right or empty),
        root=root,
        batches=tuple(build.batches),
    )
