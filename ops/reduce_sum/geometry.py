"""The tiling as compiled code reads it: plain integers on x[n, c, s].

Every batch-norm reduction is a sum over n and s for each c: (N, C) has s = 1, [C, S] has n = 1. Both engines
read this tuple and nothing else.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from emulator.jit import njit
from ops.reduce_sum.tiling import BLOCK_ELEMENTS, ELEMENT_BYTES, Tiling, ceil_div, ceil_to

R_WHOLE, R_SPLIT_S, R_SPLIT_N = range(3)


class Geometry(NamedTuple):
    """Sizes in elements unless a name says bytes."""

    n: int
    c: int
    s: int
    tail_r: int
    """1: tiles are [channels, R] matrices; 0: [rows, lanes] (s = 1)."""
    a_step: int
    """Channels of an A tile."""
    a_tiles: int
    factor_a: int
    split: int
    """R_WHOLE, R_SPLIT_S or R_SPLIT_N."""
    r_step: int
    r_tiles: int
    factor_r: int
    group_r: int
    s_tiles: int
    """Pieces of one row when s is split."""
    pitch: int
    """Room of one row in a [channels, R] tile."""
    k: int
    """Padded R length of a tile ([channels, R]) or its rows ([rows, lanes])."""
    nddma: int
    basic_bytes: int
    result_bytes: int
    slot: int
    """Elements of one slot of the cache tree."""
    buffers: int
    """Pairs of input buffers in use: 2, or 1 when copies shall not overlap the sums (time only, not values)."""


class Piece(NamedTuple):
    """What one R tile reads: rows n0 .. n0 + rows - 1, elements s0 .. s0 + length - 1 of each."""

    n0: int
    rows: int
    s0: int
    length: int


def make_geometry(tiling: Tiling, *, double_buffer: bool = True) -> Geometry:
    """The geometry of a tiling with something to reduce (patterns AR, ARA, ARAR).

    double_buffer: whether copies of the next leaf may overlap the sums of this one, as the vendor has it.
    """
    shape, unit_a, unit_r = tiling.canonical.shape, tiling.unit_a, tiling.unit_r
    n = {"AR": 1, "ARA": shape[1], "ARAR": shape[1]}[tiling.canonical.pattern]
    c = shape[2] if len(shape) > 2 else shape[0]
    s = shape[-1] if tiling.canonical.tail_r else 1
    a_step = min(c, unit_a.step * math.prod(shape[unit_a.idx + 2 :: 2]))
    split = R_WHOLE
    if unit_r.idx >= 0:
        split = R_SPLIT_S if tiling.canonical.tail_r and unit_r.idx == len(shape) - 1 else R_SPLIT_N
    rows = {R_WHOLE: n, R_SPLIT_S: 1, R_SPLIT_N: unit_r.step}[split]
    length = unit_r.step if split == R_SPLIT_S else s
    pitch = length if tiling.use_nddma else ceil_to(length, BLOCK_ELEMENTS)
    return Geometry(
        n=n,
        c=c,
        s=s,
        tail_r=int(tiling.canonical.tail_r),
        a_step=a_step,
        a_tiles=ceil_div(c, a_step),
        factor_a=tiling.factor_a,
        split=split,
        r_step=unit_r.step,
        r_tiles=unit_r.outer,
        factor_r=tiling.factor_r,
        group_r=tiling.group_r,
        s_tiles=ceil_div(s, unit_r.step) if split == R_SPLIT_S else 1,
        pitch=pitch,
        k=ceil_to(rows * pitch, BLOCK_ELEMENTS) if tiling.canonical.tail_r else rows,
        nddma=int(tiling.use_nddma),
        basic_bytes=tiling.basic_block,
        result_bytes=tiling.result_block,
        slot=ceil_to(ceil_to(a_step, BLOCK_ELEMENTS), 256 // ELEMENT_BYTES),
        buffers=2 if double_buffer else 1,
    )


@njit
def piece_of(g: Geometry, tile: int) -> Piece:
    """The part of the tensor R tile ``tile`` covers (linear order, innermost split axis fastest)."""
    if g.split == R_SPLIT_S:
        s0 = (tile % g.s_tiles) * g.r_step
        return Piece(tile // g.s_tiles, 1, s0, min(g.r_step, g.s - s0))
    if g.split == R_SPLIT_N:
        n0 = tile * g.r_step
        return Piece(n0, min(g.r_step, g.n - n0), 0, g.s)
    return Piece(0, g.n, 0, g.s)


@njit
def bisection(tiles: int) -> int:
    """FindNearestPower2: leaves of the cache tree over ``tiles`` tiles (reduce_spec 4.2)."""
    if tiles <= 2:
        return min(tiles, 1)
    power = 2
    while 2 * power < tiles:
        power *= 2
    return power


@njit
def trailing_ones(i: int) -> int:
    """Trailing one bits of ``i``: slots of the cache tree that leaf ``i`` completes."""
    count = 0
    while i & 1:
        count += 1
        i >>= 1
    return count


@njit
def power_below(k: int) -> int:
    """The largest power of two not above ``k``."""
    power = 1
    while 2 * power <= k:
        power *= 2
    return power
