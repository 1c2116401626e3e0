"""Local errors of the operator's own contract in one pass: the traversal of `ops.reduce_sum.fused`, with errors.

The same tiles, folds and trees as the fast engine, and bit-equal partial sums (tested); but every addition also
yields its TwoSum error, which is added up per level and lane in float64. A sticky flag says whether that was
exact. If not, the channel's items run again in double-double; if even that is not exact, or a value is not
finite, the channel is left to `ledger_orders`. (numerics 3.4)
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.jit import njit
from ops.reduce_sum.fused_kernels import BLOCK, MAX_SLOTS, REG
from ops.reduce_sum.geometry import Geometry, Piece, bisection, piece_of, power_below, trailing_ones
from ops.reduce_sum.order import PLAN_LEVELS
from ops.reduce_sum.plan import ReducePlan
from ops.reduce_sum.tiling import CHUNK
from studies.exact_sums import TierCount, two_sum64
from studies.ledger import ZERO, SumErrors
from studies.ledger_adds import BAD, EXACT_PRODUCT, HIGH, LOW, WIDE, add, add_rows, grouped, halve, load, one, pair_tree

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
PAIRING, IN_TILE, LANES, CACHE, COMBINE, PRODUCT = range(6)
LANE_CHUNK = 128
"""Columns of a [rows, lanes] tile handled at a time."""
SERIAL_BELOW = 200_000
"""Elements below which threads are not started."""
ROWS = 6
"""Rows of an accumulator: PLAN_LEVELS, then the products."""


# ------------------------------------------------------------------ [channels, R] tiles


@njit(nogil=True)
def _segment(
    y: F32, p: F32, dy: Any, x: Any, g: Geometry, c: int, piece: Piece, start: int, acc: F64, mode: int
) -> None:
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
        load(y[pos:end], p[pos:end], dy, x, base + row * plane + col, valid, acc, mode)
        pos = end


@njit(nogil=True)
def _padded(
    work: F32, at: int, size: int, dy: Any, x: Any, g: Geometry, c: int, tile: int, other: int, start: int, acc: F64,
    mode: int,
) -> None:  # fmt: skip
    """Elements of tile ``tile`` plus, unless -1, tile ``other`` into rows ``at`` and ``at + 1`` of work."""
    y, p = work[at, :size], work[at + 1, :size]
    _segment(y, p, dy, x, g, c, piece_of(g, tile), start, acc[1, PRODUCT], mode)
    if other >= 0:
        y2, p2 = work[4, :size], work[5, :size]
        _segment(y2, p2, dy, x, g, c, piece_of(g, other), start, acc[1, PRODUCT], mode)
        add_rows(y, y2, size, REG, acc[0, PAIRING], mode)
        add_rows(p, p2, size, REG, acc[1, PAIRING], mode)


@njit(nogil=True)
def _short(v: F32, k: int, acc: F64, mode: int) -> np.float32:
    """A row of at most 64 padded elements; acc is (levels, 3, lanes)."""
    if k < 32:
        for b in range(1, k // 8):
            for lane in range(8):
                v[lane] = one(v[8 * b + lane], v[lane], acc[IN_TILE], lane, mode)
        return pair_tree(v, 8, acc[LANES], mode)
    return pair_tree(v, REG, acc[LANES], mode)


@njit(nogil=True)
def _channel_leaf(
    dy: Any, x: Any, g: Geometry, c: int, tile: int, other: int, work: F32, registers: F32, acc: F64, mode: int
) -> tuple[np.float32, np.float32]:
    """ReduceSum<AR> of one channel's row of a leaf (reduce_spec 4.3)."""
    if g.k <= REG:
        work[:, :REG] = np.float32(0)
        _padded(work, 0, g.k, dy, x, g, c, tile, other, 0, acc, mode)
        return _short(work[0], g.k, acc[0], mode), _short(work[1], g.k, acc[1], mode)
    m = power_below(g.k)
    size = min(m, BLOCK)
    for block in range(m // size):
        start = block * size
        _padded(work, 0, size, dy, x, g, c, tile, other, start, acc, mode)
        fold = min(size, g.k - m - start)
        if fold > 0:
            _padded(work, 2, fold, dy, x, g, c, tile, other, m + start, acc, mode)
        for which in range(2):
            v = work[which]
            if fold > 0:
                add_rows(v, work[2 + which], fold, REG, acc[which, IN_TILE], mode)
            halve(v, size // REG, REG, acc[which, IN_TILE], mode)
            registers[which, block * REG : (block + 1) * REG] = v[:REG]
    for which in range(2):
        grouped(registers[which], m // size, REG, acc[which, IN_TILE], mode)
    return (
        pair_tree(registers[0], REG, acc[0, LANES], mode),
        pair_tree(registers[1], REG, acc[1, LANES], mode),
    )


@njit(nogil=True)
def _fold_lanes(acc: F64, out: F64) -> None:
    """Lanes of (levels, 3, lanes) into (levels, 3)."""
    for level in range(acc.shape[0]):
        high, low, bad = 0.0, 0.0, 0.0
        for i in range(acc.shape[2]):
            high, r = two_sum64(high, acc[level, HIGH, i])
            low, f = two_sum64(low, r)
            low, h = two_sum64(low, acc[level, LOW, i])
            bad += abs(f) + abs(h) + acc[level, BAD, i]
        out[level, HIGH], out[level, LOW], out[level, BAD] = high, low, bad


@njit(nogil=True)
def _channels(
    first: int, last: int, dy: Any, x: Any, g: Geometry, parts: F32, errors: F64, wanted: Any, mode: int
) -> None:
    """Items first .. last - 1 of [channels, R] tiles.

    parts: (2, group_r, C) partial sums. errors: (2, group_r, C, levels, 3). wanted: (C,) channels to do.
    """
    work = np.empty((6, BLOCK), np.float32)
    registers = np.empty((2, max(power_below(g.k) // BLOCK, 1) * REG), np.float32)
    cache = np.empty((2, MAX_SLOTS), np.float32)
    acc = np.empty((2, ROWS, 3, REG))
    for item in range(first, last):
        group = item % g.group_r
        a_tile = item // g.group_r
        first_r = group * g.factor_r
        tiles = min(g.factor_r, g.r_tiles - first_r)
        pos = bisection(tiles)
        for c in range(a_tile * g.a_step, min((a_tile + 1) * g.a_step, g.c)):
            if not wanted[c]:
                continue
            acc[:] = 0
            for i in range(pos):
                other = first_r + i + pos if i < tiles - pos else -1
                sy, sp = _channel_leaf(dy, x, g, c, first_r + i, other, work, registers, acc, mode)
                slots = trailing_ones(i)
                for j in range(slots):
                    sy = one(sy, cache[0, j], acc[0, CACHE], 0, mode)
                    sp = one(sp, cache[1, j], acc[1, CACHE], 0, mode)
                cache[0, slots] = sy
                cache[1, slots] = sp
            root = trailing_ones(pos - 1)
            for which in range(2):
                parts[which, group, c] = cache[which, root]
                _fold_lanes(acc[which], errors[which, group, c])


# ------------------------------------------------------------------ [rows, lanes] tiles


@njit(nogil=True)
def _row(
    v: F32, scratch: F32, dy: Any, x: Any, g: Geometry, c0: int, tile: int, other: int, row: int, acc: F64, mode: int
) -> None:
    """Row ``row`` of tile ``tile`` plus, unless -1, of tile ``other``: dy in v[0], the product in v[1]."""
    piece = piece_of(g, tile)
    valid = v.shape[1] if row < piece.rows else 0
    load(v[0], v[1], dy, x, (piece.n0 + row) * g.c + c0, valid, acc[1, PRODUCT], mode)
    if other >= 0:
        piece = piece_of(g, other)
        valid = v.shape[1] if row < piece.rows else 0
        load(scratch[0], scratch[1], dy, x, (piece.n0 + row) * g.c + c0, valid, acc[1, PRODUCT], mode)
        add(v[0], scratch[0], acc[0, PAIRING], mode)
        add(v[1], scratch[1], acc[1, PAIRING], mode)


@njit(nogil=True)
def _rows_leaf(
    dy: Any, x: Any, g: Geometry, c0: int, width: int, lanes: int, tile: int, other: int, work: F32, spare: F32,
    results_of: F32, acc: F64, mode: int,
) -> None:  # fmt: skip
    """ReduceSum<RA> of ``width`` columns of a leaf (reduce_spec 4.4); the sums end in row 0 of results_of."""
    m = power_below(g.k)
    consecutive = 32 < lanes <= 64
    together = min(m, 16)
    results = m // together
    for result in range(results):
        for j in range(together):
            row = 16 * result + j if consecutive else result + j * results
            v = work[:, j * width : (j + 1) * width]
            _row(v, spare[2:, :width], dy, x, g, c0, tile, other, row, acc, mode)
            if m + row < g.k:
                _row(spare[:2, :width], spare[2:, :width], dy, x, g, c0, tile, other, m + row, acc, mode)
                add(v[0], spare[0, :width], acc[0, IN_TILE], mode)
                add(v[1], spare[1, :width], acc[1, IN_TILE], mode)
        for which in range(2):
            halve(work[which], together, width, acc[which, IN_TILE], mode)
            results_of[which, result * width : (result + 1) * width] = work[which, :width]
    for which in range(2):
        if consecutive:
            grouped(results_of[which], results, width, acc[which, IN_TILE], mode)
        else:
            halve(results_of[which], results, width, acc[which, IN_TILE], mode)


@njit(nogil=True)
def _rows(first: int, last: int, dy: Any, x: Any, g: Geometry, parts: F32, errors: F64, wanted: Any, mode: int) -> None:
    """Items first .. last - 1 of [rows, lanes] tiles; arguments as `_channels`, ``wanted`` is not used."""
    work, spare = np.empty((2, 16 * LANE_CHUNK), np.float32), np.empty((4, LANE_CHUNK), np.float32)
    results_of = np.empty((2, max(power_below(g.k) // 16, 1) * LANE_CHUNK), np.float32)
    cache = np.empty((2, MAX_SLOTS, LANE_CHUNK), np.float32)
    acc = np.empty((2, ROWS, 3, LANE_CHUNK))
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
            acc[:] = 0
            for i in range(pos):
                other = first_r + i + pos if i < tiles - pos else -1
                _rows_leaf(
                    dy, x, g, c0, width, lanes, first_r + i, other, work, spare, results_of, acc[:, :, :, :width], mode
                )
                slots = trailing_ones(i)
                for which in range(2):
                    v = results_of[which, :width]
                    for j in range(slots):
                        add(v, cache[which, j, :width], acc[which, CACHE], mode)
                    cache[which, slots, :width] = v
            root = trailing_ones(pos - 1)
            for which in range(2):
                parts[which, group, c0 : c0 + width] = cache[which, root, :width]
                for i in range(width):
                    errors[which, group, c0 + i] = acc[which, :, :, i]


@njit(nogil=True)
def _combine(partials: F32, out: F32, errors: F64) -> None:
    """Second stage of a group reduce (reduce_spec 4.5); errors: (C, 3), double-double."""
    rows, c = partials.shape
    m = power_below(rows)
    v = np.empty(rows * CHUNK, np.float32)
    acc = np.empty((3, CHUNK))
    for c0 in range(0, c, CHUNK):
        width = min(CHUNK, c - c0)
        acc[:] = 0
        for r in range(rows):
            v[r * width : (r + 1) * width] = partials[r, c0 : c0 + width]
        add_rows(v, v[m * width : rows * width], (rows - m) * width, width, acc, WIDE)
        if width > 32:
            grouped(v, m, width, acc, WIDE)
        else:
            halve(v, m, width, acc, WIDE)
        out[c0 : c0 + width] = v[:width]
        for i in range(width):
            errors[c0 + i] = acc[:, i]


@njit(nogil=True)
def _over_groups(errors: F64, out: F64) -> None:
    """(2, group_r, C, levels, 3) summed over the groups into (2, C, levels, 3)."""
    for which in range(2):
        for c in range(errors.shape[2]):
            for level in range(errors.shape[3]):
                high, low, bad = 0.0, 0.0, 0.0
                for group in range(errors.shape[1]):
                    e = errors[which, group, c, level]
                    high, r = two_sum64(high, e[HIGH])
                    low, f = two_sum64(low, r)
                    low, h = two_sum64(low, e[LOW])
                    bad += abs(f) + abs(h) + e[BAD]
                o = out[which, c, level]
                o[HIGH], o[LOW], o[BAD] = high, low, bad


def traverse(
    dy: NDArray[Any], x: NDArray[Any], g: Geometry, wanted: NDArray[np.bool_], wide: bool
) -> tuple[F32, F32, F64]:
    """One pass over flat device arrays: partial sums (2, group_r, C), sums (2, C), level errors (2, C, 6, 3)."""
    parts = np.zeros((2, g.group_r, g.c), np.float32)
    errors = np.zeros((2, g.group_r, g.c, ROWS, 3))
    body = _channels if g.tail_r else _rows
    items = g.a_tiles * g.group_r
    mode = (WIDE if wide else 0) | (EXACT_PRODUCT if dy.dtype == np.uint16 else 0)
    threads = min(os.cpu_count() or 1, items) if dy.size >= SERIAL_BELOW // 8 else 1
    pieces = min(items, 4 * threads)
    bounds = [items * i // pieces for i in range(pieces + 1)]
    with np.errstate(all="ignore"):
        if threads == 1:
            body(0, items, dy, x, g, parts, errors, wanted, mode)
        else:
            with ThreadPoolExecutor(threads) as pool:
                jobs = [
                    pool.submit(body, a, b, dy, x, g, parts, errors, wanted, mode)
                    for a, b in itertools.pairwise(bounds)
                ]
                for job in jobs:
                    job.result()
        out = np.zeros((2, g.c, ROWS, 3))
        _over_groups(errors, out)
        sums = parts[:, 0].copy()
        if g.group_r > 1:
            for which in range(2):
                _combine(parts[which], sums[which], out[which, :, COMBINE])
    return parts, sums, out


def fast_errors(
    plan: ReducePlan, grad_out: NDArray[Any], input: NDArray[Any], tiers: TierCount
) -> list[SumErrors | None]:
    """Exact level sums of every channel of the contract cann; None where the orders must be asked."""
    g = plan.geometry
    assert g is not None
    flat = [formats.to_bits(np.ascontiguousarray(a)).reshape(-1) for a in (grad_out, input)]
    wanted = np.ones(g.c, np.bool_)
    _, sums, errors = traverse(flat[0], flat[1], g, wanted, False)
    finite: Any = np.isfinite(sums).all(axis=0) & np.isfinite(errors).all(axis=(0, 2, 3))
    flags: Any = (errors[:, :, :, BAD] != 0).any(axis=(0, 2))
    inexact = finite & flags
    if inexact.any():
        _, _, again = traverse(flat[0], flat[1], g, inexact, True)
        errors[:, inexact] = again[:, inexact]
    result: list[SumErrors | None] = []
    for c in range(g.c):
        if not finite[c] or errors[:, c, :, BAD].any() or not np.isfinite(errors[:, c]).all():
            result.append(None)
            continue
        exact = [[_fraction(e) for e in errors[which, c]] for which in range(2)]
        tiers.add(int(inexact[c]), 2 * len(PLAN_LEVELS) + 1)
        levels = [dict(zip(PLAN_LEVELS, row[:PRODUCT], strict=True)) for row in exact]
        result.append(
            SumErrors(
                sum_dy=float(sums[0, c]), second=float(sums[1, c]), levels_dy=levels[0], levels_second=levels[1],
                product=exact[1][PRODUCT],
            )
        )  # fmt: skip
    return result


def _fraction(planes: F64) -> Fraction:
    high, low = float(planes[HIGH]), float(planes[LOW])
    if low == 0:
        return Fraction(high) if high else ZERO
    return Fraction(high) + Fraction(low)
