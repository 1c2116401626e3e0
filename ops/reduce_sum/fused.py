"""The fast engine: both sums of the operator in one pass over the operands, in the order of the tiling.

The same additions in the same order as ``kernel.reduce_sum`` run twice on gradOut and on gradOut * input
(reduce_spec 4), but without Unified Buffers and without storing the product. A *block* of 1024 padded
elements (16 registers) is put together in the first-level cache and folded to one register at once. Threads
share the work by (A tile, R group), the pieces real cores get, so no result depends on their number.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.formats import decode
from emulator.jit import njit
from ops.reduce_sum.geometry import Geometry, Piece, bisection, piece_of, power_below, trailing_ones
from ops.reduce_sum.tiling import CHUNK

REG = 64
BLOCK = 16 * REG
LANE_CHUNK = 128
"""Columns of a [rows, lanes] tile handled at a time (lanes are independent)."""
MAX_SLOTS = 48
SERIAL_BELOW = 200_000
"""Elements below which starting threads costs more than it gains."""

F32 = NDArray[np.float32]


@njit(nogil=True)
def _load(y: F32, p: F32, dy: Any, x: Any, src: int, valid: int, accumulate: bool) -> None:
    """y = dy, p = dy * x for ``valid`` elements from ``src``, +0 after them; or add that to what is there."""
    a, b = dy[src : src + valid], x[src : src + valid]
    y0, p0, y1, p1 = y[:valid], p[:valid], y[valid:], p[valid:]
    if accumulate:
        for i in range(valid):
            v = decode(a[i])
            y0[i] = y0[i] + v
            p0[i] = p0[i] + v * decode(b[i])
        for i in range(y1.size):
            y1[i] = y1[i] + np.float32(0)
            p1[i] = p1[i] + np.float32(0)
    else:
        for i in range(valid):
            v = decode(a[i])
            y0[i] = v
            p0[i] = v * decode(b[i])
        for i in range(y1.size):
            y1[i] = np.float32(0)
            p1[i] = np.float32(0)


@njit(nogil=True)
def _add_into(a: F32, b: F32, count: int) -> None:
    """a[i] = a[i] + b[i] for i < count."""
    u, v = a[:count], b[:count]
    for i in range(count):
        u[i] = u[i] + v[i]


@njit(nogil=True)
def _halve(v: F32, rows: int, width: int) -> None:
    """Stride-halving over ``rows`` (a power of two) rows of ``width`` elements; the sum ends in row 0."""
    while rows > 1:
        rows //= 2
        _add_into(v, v[rows * width : 2 * rows * width], rows * width)


@njit(nogil=True)
def _grouped(v: F32, rows: int, width: int) -> None:
    """Passes over 16 consecutive rows while there are 16, then halving; the sum ends in row 0."""
    while rows >= 16:
        for group in range(rows // 16):
            block = v[16 * group * width : 16 * (group + 1) * width]
            _halve(block, 16, width)
            v[group * width : (group + 1) * width] = block[:width]
        rows //= 16
    _halve(v, rows, width)


@njit(nogil=True)
def _pair_tree(v: F32, lanes: int) -> np.float32:
    """Adjacent-pair tree over ``lanes`` (a power of two) elements, in place."""
    while lanes > 1:
        lanes //= 2
        for i in range(lanes):
            v[i] = v[2 * i] + v[2 * i + 1]
    return v[0]


# ------------------------------------------------------------------ [channels, R] tiles


@njit(nogil=True)
def _segment(y: F32, p: F32, dy: Any, x: Any, g: Geometry, c: int, piece: Piece, start: int, accumulate: bool) -> None:
    """Padded elements start .. start + y.size - 1 of one channel's row of a tile."""
    plane = g.c * g.s
    base = piece.n0 * plane + c * g.s + piece.s0
    pos = 0
    while pos < y.size:
        row = (start + pos) // g.pitch
        col = start + pos - row * g.pitch
        end = min(y.size, pos + g.pitch - col)
        if row < piece.rows:
            valid = max(min(piece.length - col, end - pos), 0)
        else:
            valid, end = 0, y.size
        _load(y[pos:end], p[pos:end], dy, x, base + row * plane + col, valid, accumulate)
        pos = end


@njit(nogil=True)
def _padded(y: F32, p: F32, dy: Any, x: Any, g: Geometry, c: int, tile: int, other: int, start: int) -> None:
    """The same elements of tile ``tile`` plus, unless -1, tile ``other``."""
    _segment(y, p, dy, x, g, c, piece_of(g, tile), start, False)
    if other >= 0:
        _segment(y, p, dy, x, g, c, piece_of(g, other), start, True)


@njit(nogil=True)
def _sum_short(v: F32, k: int) -> np.float32:
    """A row of at most 64 padded elements (``v`` has 64, +0 from k on)."""
    if k < 32:
        for b in range(1, k // 8):
            for lane in range(8):
                v[lane] = v[8 * b + lane] + v[lane]
        return _pair_tree(v, 8)
    return _pair_tree(v, REG)


@njit(nogil=True)
def _channel_leaf(
    dy: Any, x: Any, g: Geometry, c: int, tile: int, other: int, y: F32, p: F32, y2: F32, p2: F32, vy: F32, vp: F32
) -> tuple[np.float32, np.float32]:
    """ReduceSum<AR> of one channel's row of a leaf (reduce_spec 4.3); vy and vp hold one register per block."""
    if g.k <= REG:
        y[:REG] = np.float32(0)
        p[:REG] = np.float32(0)
        _padded(y[: g.k], p[: g.k], dy, x, g, c, tile, other, 0)
        return _sum_short(y, g.k), _sum_short(p, g.k)
    m = power_below(g.k)
    size = min(m, BLOCK)
    for block in range(m // size):
        start = block * size
        _padded(y[:size], p[:size], dy, x, g, c, tile, other, start)
        fold = min(size, g.k - m - start)
        if fold > 0:
            _padded(y2[:fold], p2[:fold], dy, x, g, c, tile, other, m + start)
            _add_into(y, y2, fold)
            _add_into(p, p2, fold)
        _halve(y, size // REG, REG)
        _halve(p, size // REG, REG)
        vy[block * REG : (block + 1) * REG] = y[:REG]
        vp[block * REG : (block + 1) * REG] = p[:REG]
    _grouped(vy, m // size, REG)
    _grouped(vp, m // size, REG)
    return _pair_tree(vy, REG), _pair_tree(vp, REG)


@njit(nogil=True)
def _channels(first: int, last: int, dy: Any, x: Any, g: Geometry, out_y: F32, out_p: F32) -> None:
    """Items first .. last - 1 of [channels, R] tiles; an item is an (A tile, R group)."""
    work = np.empty((4, BLOCK), np.float32)
    registers = max(power_below(g.k) // BLOCK, 1) * REG
    vy, vp = np.empty(registers, np.float32), np.empty(registers, np.float32)
    cache = np.empty((2, MAX_SLOTS), np.float32)
    for item in range(first, last):
        group = item % g.group_r
        a_tile = item // g.group_r
        first_r = group * g.factor_r
        tiles = min(g.factor_r, g.r_tiles - first_r)
        pos = bisection(tiles)
        for c in range(a_tile * g.a_step, min((a_tile + 1) * g.a_step, g.c)):
            for i in range(pos):
                other = first_r + i + pos if i < tiles - pos else -1
                sy, sp = _channel_leaf(dy, x, g, c, first_r + i, other, work[0], work[1], work[2], work[3], vy, vp)
                slots = trailing_ones(i)
                for j in range(slots):
                    sy = sy + cache[0, j]
                    sp = sp + cache[1, j]
                cache[0, slots] = sy
                cache[1, slots] = sp
            root = trailing_ones(pos - 1)
            out_y[group, c] = cache[0, root]
            out_p[group, c] = cache[1, root]


# ------------------------------------------------------------------ [rows, lanes] tiles


@njit(nogil=True)
def _row(y: F32, p: F32, dy: Any, x: Any, g: Geometry, c0: int, piece: Piece, row: int, accumulate: bool) -> None:
    """Row ``row`` of a tile from column ``c0`` on; +0 where the tile has no such row."""
    valid = y.size if row < piece.rows else 0
    _load(y, p, dy, x, (piece.n0 + row) * g.c + c0, valid, accumulate)


@njit(nogil=True)
def _paired_row(y: F32, p: F32, dy: Any, x: Any, g: Geometry, c0: int, tile: int, other: int, row: int) -> None:
    """Row ``row`` of tile ``tile`` plus, unless -1, of tile ``other``."""
    _row(y, p, dy, x, g, c0, piece_of(g, tile), row, False)
    if other >= 0:
        _row(y, p, dy, x, g, c0, piece_of(g, other), row, True)


@njit(nogil=True)
def _rows_leaf(
    dy: Any, x: Any, g: Geometry, c0: int, width: int, lanes: int, tile: int, other: int, y: F32, p: F32, y2: F32,
    p2: F32, vy: F32, vp: F32,
) -> None:  # fmt: skip
    """ReduceSum<RA> of ``width`` columns of a leaf (reduce_spec 4.4); the sums end in row 0 of vy and vp.

    ``lanes`` is the width of the whole tile, which decides the order: 16 consecutive rows at a time for 33 to
    64 lanes, else stride-halving. Either way 16 rows are put together and folded at once.
    """
    m = power_below(g.k)
    consecutive = 32 < lanes <= 64
    together = min(m, 16)
    results = m // together
    for result in range(results):
        for j in range(together):
            row = 16 * result + j if consecutive else result + j * results
            a, b = y[j * width : (j + 1) * width], p[j * width : (j + 1) * width]
            _paired_row(a, b, dy, x, g, c0, tile, other, row)
            if m + row < g.k:
                _paired_row(y2[:width], p2[:width], dy, x, g, c0, tile, other, m + row)
                _add_into(a, y2, width)
                _add_into(b, p2, width)
        _halve(y, together, width)
        _halve(p, together, width)
        vy[result * width : (result + 1) * width] = y[:width]
        vp[result * width : (result + 1) * width] = p[:width]
    if consecutive:
        _grouped(vy, results, width)
        _grouped(vp, results, width)
    else:
        _halve(vy, results, width)
        _halve(vp, results, width)


@njit(nogil=True)
def _rows(first: int, last: int, dy: Any, x: Any, g: Geometry, out_y: F32, out_p: F32) -> None:
    """Items first .. last - 1 of [rows, lanes] tiles; an item is an (A tile, R group)."""
    y, p = np.empty(16 * LANE_CHUNK, np.float32), np.empty(16 * LANE_CHUNK, np.float32)
    y2, p2 = np.empty(LANE_CHUNK, np.float32), np.empty(LANE_CHUNK, np.float32)
    size = max(power_below(g.k) // 16, 1) * LANE_CHUNK
    vy, vp = np.empty(size, np.float32), np.empty(size, np.float32)
    cache = np.empty((2, MAX_SLOTS, LANE_CHUNK), np.float32)
    for item in range(first, last):
        group = item % g.group_r
        a_tile = item // g.group_r
        first_r = group * g.factor_r
        tiles = min(g.factor_r, g.r_tiles - first_r)
        pos = bisection(tiles)
        first_c = a_tile * g.a_step
        channels = min(g.a_step, g.c - first_c)
        lanes = -(-channels // 8) * 8
        for c0 in range(first_c, first_c + channels, LANE_CHUNK):
            width = min(LANE_CHUNK, first_c + channels - c0)
            for i in range(pos):
                other = first_r + i + pos if i < tiles - pos else -1
                _rows_leaf(dy, x, g, c0, width, lanes, first_r + i, other, y, p, y2, p2, vy, vp)
                slots = trailing_ones(i)
                for j in range(slots):
                    _add_into(vy, cache[0, j], width)
                    _add_into(vp, cache[1, j], width)
                cache[0, slots, :width] = vy[:width]
                cache[1, slots, :width] = vp[:width]
            root = trailing_ones(pos - 1)
            out_y[group, c0 : c0 + width] = cache[0, root, :width]
            out_p[group, c0 : c0 + width] = cache[1, root, :width]


# ------------------------------------------------------------------ across cores, and the entry


@njit(nogil=True)
def combine(partials: F32, out: F32) -> None:
    """Second stage of a group reduce: chunks of 64 columns, rows as in a [rows, lanes] tile (reduce_spec 4.5)."""
    rows, c = partials.shape
    m = power_below(rows)
    v = np.empty(rows * CHUNK, np.float32)
    for c0 in range(0, c, CHUNK):
        width = min(CHUNK, c - c0)
        for r in range(rows):
            v[r * width : (r + 1) * width] = partials[r, c0 : c0 + width]
        _add_into(v, v[m * width : rows * width], (rows - m) * width)
        if width > 32:
            _grouped(v, m, width)
        else:
            _halve(v, m, width)
        out[c0 : c0 + width] = v[:width]


@njit(nogil=True)
def _copy(dy: Any, x: Any, out_y: F32, out_p: F32) -> None:
    """Nothing to reduce: one element per channel."""
    for c in range(out_y.shape[1]):
        v = decode(dy[c])
        out_y[0, c] = v
        out_p[0, c] = v * decode(x[c])


def fused_sums(dy: NDArray[Any], x: NDArray[Any], g: Geometry | None, channels: int) -> tuple[F32, F32, F32, F32]:
    """sum dy, sum dy * x and the partial sums of both.

    dy and x are flat device arrays (float32, uint16 for fp16, int16 for bf16); ``g`` is None when there is
    nothing to reduce. Returns (C,), (C,), (group_r, C), (group_r, C) in fp32.
    """
    rows = 1 if g is None else g.group_r
    part_y, part_p = np.empty((rows, channels), np.float32), np.empty((rows, channels), np.float32)
    if g is None:
        _copy(dy, x, part_y, part_p)
    else:
        body = _channels if g.tail_r else _rows
        items = g.a_tiles * g.group_r
        threads = min(os.cpu_count() or 1, items) if dy.size >= SERIAL_BELOW else 1
        if threads == 1:
            body(0, items, dy, x, g, part_y, part_p)
        else:
            pieces = min(items, 4 * threads)
            bounds = [items * i // pieces for i in range(pieces + 1)]
            with np.errstate(all="ignore"), ThreadPoolExecutor(threads) as pool:
                jobs = [
                    pool.submit(body, first, last, dy, x, g, part_y, part_p)
                    for first, last in zip(bounds, bounds[1:], strict=False)
                ]
                for job in jobs:
                    job.result()
    if rows == 1:
        return part_y[0], part_p[0], part_y, part_p
    sum_y, sum_p = np.empty(channels, np.float32), np.empty(channels, np.float32)
    combine(part_y, sum_y)
    combine(part_p, sum_p)
    return sum_y, sum_p, part_y, part_p
