"""The compiled part of the fast engine: tiles read, folded and merged in the order of reduce_spec 4.

Everything is in blocks of 8 elements (``fused_lanes``): rows of [channels, R] tiles are padded to blocks (but
for those of NDDMA, which are packed), and so are rows of [rows, lanes] tiles. The work array of a thread has a
region for each of the two sums; functions name places in it by their offset.

Memory is read in its own order, in runs as long as can be, into regions that stay in the first caches and are
folded there. Adding registers while they are read takes fewer instructions but reads 4 to 16 places of a page
at once, which halves the rate at which memory delivers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.formats import decode
from emulator.jit import njit
from ops.reduce_sum.fused_lanes import first, get, lane0, load, pairs, pointer, put, store, with_lane, zeros
from ops.reduce_sum.geometry import Geometry, Piece, bisection, piece_of, power_below, trailing_ones
from ops.reduce_sum.tiling import CHUNK

REG = 64
BLOCK = 16 * REG
"""Padded elements of a channel put together and folded to one register at a time."""
ROOM = BLOCK + 16
"""Distance of blocks in the work array; 4 KiB apart they would fight for the same cache lines."""
MAX_SLOTS = 48

F32 = NDArray[np.float32]


class Memory(NamedTuple):
    """Pointers to the operands (``size`` elements each) and to the work array of this thread."""

    w: Any
    dy: Any
    x: Any
    size: int


# ------------------------------------------------------------------ folds


@njit
def _quarter(w: Any, o: int, step: int) -> Any:
    """Two levels of halving on 4 blocks ``step`` apart."""
    return (load(w, o) + load(w, o + 2 * step)) + (load(w, o + step) + load(w, o + 3 * step))


@njit
def _halve(w: Any, o: int, rows: int, width: int) -> None:
    """Stride-halving over ``rows`` (a power of two) rows of ``width`` elements; the sum ends in row 0."""
    while rows >= 4:
        rows //= 4
        for i in range(o, o + rows * width, 8):
            store(w, i, _quarter(w, i, rows * width))
    if rows == 2:
        for i in range(o, o + width, 8):
            store(w, i, load(w, i) + load(w, i + width))


@njit
def _move(w: Any, to: int, what: int, count: int) -> None:
    """w[to + i] = w[what + i] for i < count."""
    for i in range(0, count, 8):
        store(w, to + i, load(w, what + i))


@njit
def _grouped(w: Any, o: int, rows: int, width: int) -> None:
    """Passes over 16 consecutive rows while there are 16, then halving; the sum ends in row 0."""
    while rows >= 16:
        rows //= 16
        for group in range(rows):
            block = o + 16 * group * width
            _halve(w, block, 16, width)
            _move(w, o + group * width, block, width)
    _halve(w, o, rows, width)


@njit
def _add_into(w: Any, to: int, what: int, count: int) -> None:
    """w[to + i] = w[to + i] + w[what + i] for i < count."""
    for i in range(0, count, 8):
        store(w, to + i, load(w, to + i) + load(w, what + i))


@njit
def _pairs_of_8(v: Any) -> Any:
    """Adjacent-pair tree over 8 lanes."""
    v = pairs(v, v)
    v = pairs(v, v)
    return lane0(pairs(v, v))


@njit
def _pairs_of_64(w: Any, o: int) -> Any:
    """Adjacent-pair tree over a register."""
    a = pairs(pairs(load(w, o), load(w, o + 8)), pairs(load(w, o + 16), load(w, o + 24)))
    b = pairs(pairs(load(w, o + 32), load(w, o + 40)), pairs(load(w, o + 48), load(w, o + 56)))
    return _pairs_of_8(pairs(a, b))


@njit
def _sum_short(w: Any, o: int, k: int) -> Any:
    """A channel of ``k`` <= 64 padded elements (reduce_spec 4.3)."""
    if k < 32:
        v = load(w, o)
        for i in range(8, k, 8):
            v = load(w, o + i) + v
        return _pairs_of_8(v)
    for i in range(k, REG, 8):
        store(w, o + i, zeros())
    return _pairs_of_64(w, o)


# ------------------------------------------------------------------ reading


@njit
def _some(a: Any, size: int, i: int, count: int) -> Any:
    """a[i] .. a[i + count - 1] (count < 8) of ``size`` elements as fp32, and +0 in the other lanes."""
    if i + 8 <= size:
        return first(load(a, i), count)
    v = zeros()
    for j in range(count):
        v = with_lane(v, j, get(a, i + j))
    return v


@njit
def _set(w: Any, y: int, p: int, a: Any, b: Any, add: bool) -> None:
    """A block of both sums: set, or added to what is there."""
    ab = a * b
    if add:
        a = load(w, y) + a
        ab = load(w, p) + ab
    store(w, y, a)
    store(w, p, ab)


@njit
def _runs(mem: Memory, y: int, p: int, src: int, valid: int, room: int, add: bool, count: int, step: int) -> None:
    """``count`` pieces of both sums, ROOM apart in w and ``step`` apart in dy and x.

    Each is dy and dy * x for ``valid`` elements from ``src``, then +0 up to ``room`` (a multiple of 8).
    """
    w, dy, x = mem.w, mem.dy, mem.x
    rest = valid & 7
    whole = valid - rest
    for _ in range(count):
        if add:
            for i in range(0, whole, 8):
                a = load(dy, src + i)
                store(w, y + i, load(w, y + i) + a)
                store(w, p + i, load(w, p + i) + a * load(x, src + i))
        else:
            for i in range(0, whole, 8):
                a = load(dy, src + i)
                store(w, y + i, a)
                store(w, p + i, a * load(x, src + i))
        i = whole
        if rest:
            _set(w, y + i, p + i, _some(dy, mem.size, src + i, rest), _some(x, mem.size, src + i, rest), add)
            i += 8
        while i < room:
            _set(w, y + i, p + i, zeros(), zeros(), add)
            i += 8
        y += ROOM
        p += ROOM
        src += step


# ------------------------------------------------------------------ [channels, R] tiles


@njit
def _packed(mem: Memory, g: Geometry, y: int, p: int, c: int, piece: Piece, start: int, size: int, add: bool) -> None:
    """As ``_fill`` for one channel of a tile of NDDMA, whose rows (shorter than 8) follow each other."""
    w = mem.w
    row, col = start // g.pitch, start % g.pitch
    for i in range(size):
        v, vx = np.float32(0), np.float32(0)
        if row < piece.rows:
            src = ((piece.n0 + row) * g.c + c) * g.s + col
            v, vx = get(mem.dy, src), get(mem.x, src)
        q = v * vx
        if add:
            v, q = get(w, y + i) + v, get(w, p + i) + q
        put(w, y + i, v)
        put(w, p + i, q)
        col += 1
        if col == g.pitch:
            row, col = row + 1, 0


@njit
def _fill(
    mem: Memory, g: Geometry, y: int, p: int, c: int, channels: int, tile: int, start: int, size: int, add: bool
) -> None:
    """Padded elements start .. start + size - 1 of the rows of ``channels`` channels in a tile, ROOM apart."""
    piece = piece_of(g, tile)
    if g.nddma:
        for b in range(channels):
            _packed(mem, g, y + b * ROOM, p + b * ROOM, c + b, piece, start, size, add)
        return
    row, col = start // g.pitch, start % g.pitch
    pos = 0
    while pos < size:
        room = min(size - pos, g.pitch - col)
        valid = min(max(piece.length - col, 0), room)
        if row >= piece.rows:
            room, valid = size - pos, 0
        src = ((piece.n0 + row) * g.c + c) * g.s + piece.s0 + col
        _runs(mem, y + pos, p + pos, src, valid, room, add, channels, g.s)
        pos += room
        row, col = row + 1, 0


@njit
def _leaf_block(mem: Memory, g: Geometry, c: int, channels: int, tile: int, other: int, start: int, size: int) -> None:
    """One block of a leaf (tile ``tile`` plus, unless -1, tile ``other``), its tail folded on (reduce_spec 4.3 a)."""
    m = power_below(g.k) if g.k > REG else g.k
    fold = min(size, g.k - m - start)
    span = channels * ROOM
    _fill(mem, g, 0, span, c, channels, tile, start, size, False)
    if other < 0:
        if fold > 0:
            _fill(mem, g, 0, span, c, channels, tile, m + start, fold, True)
        return
    _fill(mem, g, 0, span, c, channels, other, start, size, True)
    if fold > 0:
        _fill(mem, g, 2 * span, 3 * span, c, channels, tile, m + start, fold, False)
        _fill(mem, g, 2 * span, 3 * span, c, channels, other, m + start, fold, True)
        for b in range(2 * channels):
            _add_into(mem.w, b * ROOM, 2 * span + b * ROOM, fold)


@njit
def _channel_leaf(
    mem: Memory, g: Geometry, registers: int, sums: int, c: int, channels: int, tile: int, other: int
) -> None:
    """ReduceSum<AR> of a leaf (reduce_spec 4.3): the sums of dy, then of dy * x, to w[sums].

    w[registers]: room for one register per block and sum.
    """
    w = mem.w
    if g.k <= REG:
        _leaf_block(mem, g, c, channels, tile, other, 0, g.k)
        for b in range(2 * channels):
            put(w, sums + b, _sum_short(w, b * ROOM, g.k))
        return
    m = power_below(g.k)
    size = min(m, BLOCK)
    blocks = m // size
    for block in range(blocks):
        _leaf_block(mem, g, c, channels, tile, other, block * size, size)
        for b in range(2 * channels):
            _halve(w, b * ROOM, size // REG, REG)
            _move(w, registers + (b * blocks + block) * REG, b * ROOM, REG)
    for b in range(2 * channels):
        _grouped(w, registers + b * blocks * REG, blocks, REG)
        put(w, sums + b, _pairs_of_64(w, registers + b * blocks * REG))


@njit(nogil=True)
def sum_channels(
    begin: int, end: int, step: int, work: F32, dy: Any, x: Any, g: Geometry, out_y: F32, out_p: F32
) -> None:
    """Items begin .. end - 1 of [channels, R] tiles; an item is (``step`` channels, R group)."""
    registers = 4 * step * ROOM
    cache = registers + step * (power_below(g.k) // 8 + 2 * REG)
    w = pointer(work)
    mem = Memory(w, pointer(dy), pointer(x), dy.size)
    for item in range(begin, end):
        group, c = item % g.group_r, item // g.group_r * step
        channels = min(step, g.c - c)
        first_r = group * g.factor_r
        tiles = min(g.factor_r, g.r_tiles - first_r)
        pos = bisection(tiles)
        for i in range(pos):
            other = first_r + i + pos if i < tiles - pos else -1
            slots = trailing_ones(i)
            sums = cache + slots * 2 * step
            _channel_leaf(mem, g, registers, sums, c, channels, first_r + i, other)
            for j in range(slots):
                for b in range(2 * channels):
                    put(w, sums + b, get(w, sums + b) + get(w, cache + j * 2 * step + b))
        root = cache + trailing_ones(pos - 1) * 2 * step
        for b in range(channels):
            out_y[group, c + b] = get(w, root + b)
            out_p[group, c + b] = get(w, root + channels + b)


# ------------------------------------------------------------------ [rows, lanes] tiles


@njit
def _fill_rows(
    mem: Memory, g: Geometry, y: int, p: int, c: int, columns: int, tile: int, row: int, end: int, add: bool
) -> None:
    """Rows row .. end - 1 of a tile from column ``c`` on; +0 where the tile has no such row."""
    piece = piece_of(g, tile)
    width = -(-columns // 8) * 8
    for r in range(row, end):
        valid = columns if r < piece.rows else 0
        _runs(mem, y, p, (piece.n0 + r) * g.c + c, valid, width, add, 1, 0)
        y += width
        p += width


@njit
def _rows_leaf(mem: Memory, g: Geometry, p: int, c: int, columns: int, tile: int, other: int) -> None:
    """ReduceSum<RA> of ``columns`` columns of a leaf (reduce_spec 4.4); the sums end in w[0] and w[p]."""
    m = power_below(g.k)
    width = -(-columns // 8) * 8
    _fill_rows(mem, g, 0, p, c, columns, tile, 0, m, False)
    if other < 0:
        _fill_rows(mem, g, 0, p, c, columns, tile, m, g.k, True)
    else:
        _fill_rows(mem, g, 0, p, c, columns, other, 0, m, True)
        _fill_rows(mem, g, m * width, p + m * width, c, columns, tile, m, g.k, False)
        _fill_rows(mem, g, m * width, p + m * width, c, columns, other, m, g.k, True)
        _add_into(mem.w, 0, m * width, (g.k - m) * width)
        _add_into(mem.w, p, p + m * width, (g.k - m) * width)


@njit(nogil=True)
def sum_rows(begin: int, end: int, step: int, work: F32, dy: Any, x: Any, g: Geometry, out_y: F32, out_p: F32) -> None:
    """Items begin .. end - 1 of [rows, lanes] tiles; an item is (``step`` columns, R group)."""
    step8 = -(-step // 8) * 8
    p = g.k * step8
    cache = 2 * p
    w = pointer(work)
    mem = Memory(w, pointer(dy), pointer(x), dy.size)
    m = power_below(g.k)
    for item in range(begin, end):
        group, c = item % g.group_r, item // g.group_r * step
        columns = min(step, g.c - c)
        width = -(-columns // 8) * 8
        lanes = min(g.a_step, g.c - c // g.a_step * g.a_step)
        first_r = group * g.factor_r
        tiles = min(g.factor_r, g.r_tiles - first_r)
        pos = bisection(tiles)
        for i in range(pos):
            other = first_r + i + pos if i < tiles - pos else -1
            _rows_leaf(mem, g, p, c, columns, first_r + i, other)
            slots = trailing_ones(i)
            for part in range(2):
                if 32 < lanes <= 64:
                    _grouped(w, part * p, m, width)
                else:
                    _halve(w, part * p, m, width)
                for j in range(slots):
                    _add_into(w, part * p, cache + (2 * j + part) * step8, width)
                _move(w, cache + (2 * slots + part) * step8, part * p, width)
        root = cache + 2 * trailing_ones(pos - 1) * step8
        for i in range(columns):
            out_y[group, c + i] = get(w, root + i)
            out_p[group, c + i] = get(w, root + step8 + i)


def work_size(g: Geometry, step: int) -> int:
    """Elements of the work array that ``sum_channels`` or ``sum_rows`` needs."""
    if g.tail_r:
        return step * (4 * ROOM + g.k // 8 + 2 * REG + 2 * MAX_SLOTS)
    return -(-step // 8) * 8 * 2 * (g.k + MAX_SLOTS)


# ------------------------------------------------------------------ across cores


@njit
def combine(work: F32, partials: F32, out: F32) -> None:
    """Second stage of a group reduce: chunks of 64 columns, rows as in a [rows, lanes] tile (reduce_spec 4.5)."""
    rows, c = partials.shape
    m = power_below(rows)
    w = pointer(work)
    for c0 in range(0, c, CHUNK):
        columns = min(CHUNK, c - c0)
        for r in range(rows):
            for i in range(columns):
                put(w, r * CHUNK + i, partials[r, c0 + i])
        _add_into(w, 0, m * CHUNK, (rows - m) * CHUNK)
        if columns > 32:
            _grouped(w, 0, m, CHUNK)
        else:
            _halve(w, 0, m, CHUNK)
        for i in range(columns):
            out[c0 + i] = get(w, i)


@njit
def copy_channels(dy: Any, x: Any, out_y: F32, out_p: F32) -> None:
    """Nothing to reduce: one element per channel."""
    for c in range(out_y.shape[1]):
        v = decode(dy[c])
        out_y[0, c] = v
        out_p[0, c] = v * decode(x[c])
