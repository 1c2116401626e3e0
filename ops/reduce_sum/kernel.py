"""The ReduceSum kernel of the instruction engine, in Ascend instructions (reduce_spec 4.1 to 4.5).

One core: for each of its A tiles, R tiles are read in pairs (tile i with tile i + pos), reduced inside the
tile, and merged by a binary cache tree. In a group reduce the partial sums go to the workspace, all cores
meet, and a second stage adds the rows of the workspace.

UB: two pairs of input buffers (so copies of the next leaf overlap the sums of this one), one buffer for the
sum of a pair, two results, and the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from emulator.core import Core, GlobalTensor, LocalTensor, Strides, at, set_tile
from emulator.isa import (
    MTE2_MTE3,
    MTE2_V,
    MTE3_MTE2,
    MTE3_V,
    NO_PAD,
    PIPE_V,
    SYNC_ALL,
    V_MTE2,
    V_MTE3,
    CopyParams,
    NddmaParams,
    PadParams,
    add,
    add_repeat,
    block_reduce_sum,
    copy,
    data_copy_pad_in,
    data_copy_pad_out,
    duplicate,
    init_buffer,
    nddma_copy_in,
    pipe_barrier,
    set_flag,
    sync_all,
    wait_flag,
    whole_reduce_sum,
)
from emulator.isa.copy import MAX_BLOCK_COUNT
from emulator.isa.operands import MAX_REPEAT, MAX_STRIDE
from emulator.jit import aicore
from emulator.launch import kernel
from ops.reduce_sum.geometry import Geometry, Piece, bisection, piece_of, power_below, trailing_ones
from ops.reduce_sum.tiling import CACHE_BUF_BYTES, CHUNK

REG = 64
"""Lanes of one register or iteration."""


# ------------------------------------------------------------------ copy in


@aicore
def copy_rows_in(
    core: Core,
    dst: LocalTensor,
    x: GlobalTensor,
    offset: int,
    rows: int,
    length: int,
    src_step: int,
    dst_step: int,
) -> None:
    """Rows of ``length`` elements, ``src_step`` apart in GM and ``dst_step`` (a multiple of 8) apart in UB."""
    width = -(-length // 8) * 8
    pad = PadParams(1, 0, width - length, 0.0)
    for first in range(0, rows, MAX_BLOCK_COUNT):
        count = min(MAX_BLOCK_COUNT, rows - first)
        params = CopyParams(count, 4 * length, 4 * (src_step - length), (dst_step - width) // 8)
        data_copy_pad_in(core, at(dst, 4 * first * dst_step), x, offset + first * src_step, params, pad)


@aicore
def load_channels(
    core: Core, dst: LocalTensor, x: GlobalTensor, g: Geometry, c0: int, channels: int, piece: Piece
) -> int:
    """A [channels, R] tile. Returns the elements of each channel that are in place; the rest is not zero yet."""
    plane = g.c * g.s
    base = piece.n0 * plane + c0 * g.s + piece.s0
    if g.nddma:
        nddma_copy_in(core, dst, x, base, NddmaParams(channels, g.s, g.k, piece.rows, plane, g.pitch, piece.length))
        return g.k
    width = -(-piece.length // 8) * 8
    if channels <= piece.rows:
        for c in range(channels):
            copy_rows_in(core, at(dst, 4 * c * g.k), x, base + c * g.s, piece.rows, piece.length, plane, width)
    else:
        for r in range(piece.rows):
            copy_rows_in(core, at(dst, 4 * r * width), x, base + r * plane, channels, piece.length, g.s, g.k)
    return piece.rows * width


@aicore
def load_rows(
    core: Core, dst: LocalTensor, x: GlobalTensor, g: Geometry, c0: int, channels: int, piece: Piece, lanes: int
) -> int:
    """A [rows, lanes] tile. Returns the rows that are in place; the rest is not zero yet."""
    base = piece.n0 * g.c + c0
    if g.nddma:
        nddma_copy_in(core, dst, x, base, NddmaParams(1, 0, g.k * lanes, piece.rows, g.c, lanes, channels))
        return g.k
    copy_rows_in(core, dst, x, base, piece.rows, channels, g.c, lanes)
    return piece.rows


@aicore
def zero_rest(core: Core, buf: LocalTensor, g: Geometry, channels: int, lanes: int, valid: int) -> None:
    """Set what a short tile left out to +0."""
    if valid < g.k:
        if g.tail_r:
            for c in range(channels):
                duplicate(core, at(buf, 4 * (c * g.k + valid)), 0.0, g.k - valid)
        else:
            duplicate(core, at(buf, 4 * valid * lanes), 0.0, (g.k - valid) * lanes)


# ------------------------------------------------------------------ inside a tile


@aicore
def add_lanes(core: Core, buf: LocalTensor, rows: int, k: int, dst: int, src0: int, src1: int, count: int) -> None:
    """In every row of ``k`` elements: buf[dst + i] = buf[src0 + i] + buf[src1 + i] for i < count.

    One instruction per row, or one per register over all rows, whichever is fewer.
    """
    registers = (count + REG - 1) // REG
    if rows > registers and k // 8 <= MAX_STRIDE:
        strides = Strides(1, 1, 1, k // 8, k // 8, k // 8)
        for first in range(0, rows, MAX_REPEAT):
            repeat = min(MAX_REPEAT, rows - first)
            for j in range(0, count, REG):
                base = first * k + j
                add_repeat(
                    core,
                    at(buf, 4 * (base + dst)),
                    at(buf, 4 * (base + src0)),
                    at(buf, 4 * (base + src1)),
                    min(REG, count - j),
                    repeat,
                    strides,
                )
    else:
        for row in range(rows):
            base = row * k
            add(core, at(buf, 4 * (base + dst)), at(buf, 4 * (base + src0)), at(buf, 4 * (base + src1)), count)


@aicore
def sum_registers(core: Core, dst: LocalTensor, buf: LocalTensor, rows: int, k: int, lanes: int) -> None:
    """dst[row] = pair tree over the first ``lanes`` (<= 64) of each row of ``k`` elements."""
    per_call = MAX_REPEAT if k // 8 <= MAX_STRIDE else 1
    for first in range(0, rows, per_call):
        repeat = min(per_call, rows - first)
        stride = k // 8 if repeat > 1 else 8
        whole_reduce_sum(core, at(dst, 4 * first), at(buf, 4 * first * k), lanes, repeat, 1, 1, stride)


@aicore
def sum_blocks(core: Core, dst: LocalTensor, buf: LocalTensor, rows: int, k: int) -> None:
    """dst[row] = pair tree over 8 lanes of each row; blocks of a row (k = 8, 16, 24) are added one after another."""
    per_call = 8 * MAX_REPEAT
    for first in range(0, rows, per_call):
        count = min(per_call, rows - first)
        for part in range(2):  # whole iterations of 8 rows, then the rest
            at_row = first if part == 0 else first + count // 8 * 8
            repeat = count // 8 if part == 0 else min(count % 8, 1)
            mask = REG if part == 0 else 8 * (count % 8)
            if repeat > 0:
                acc = at(buf, 4 * at_row * k)
                strides = Strides(k // 8, k // 8, k // 8, k, k, k)
                for b in range(1, k // 8):
                    add_repeat(core, acc, at(acc, 32 * b), acc, mask, repeat, strides)
                    pipe_barrier(core, PIPE_V)
                block_reduce_sum(core, at(dst, 4 * at_row), acc, mask, repeat, 1, k // 8, k)


@aicore
def sum_channels(core: Core, dst: LocalTensor, buf: LocalTensor, channels: int, k: int) -> None:
    """ReduceSum<AR>: dst[row] = sum of row ``row`` of a [channels, k] matrix (reduce_spec 4.3)."""
    if k < 32:
        sum_blocks(core, dst, buf, channels, k)
        return
    if k > REG:
        m = power_below(k)
        if k > m:
            add_lanes(core, buf, channels, k, 0, 0, m, k - m)
            pipe_barrier(core, PIPE_V)
        registers = m // REG
        while registers >= 16:  # passes over groups of 16 consecutive registers
            for group in range(registers // 16):
                first = 16 * group * REG
                for half in (8, 4, 2):
                    add_lanes(core, buf, channels, k, first, first, first + half * REG, half * REG)
                    pipe_barrier(core, PIPE_V)
                add_lanes(core, buf, channels, k, group * REG, first, first + REG, REG)
                pipe_barrier(core, PIPE_V)
            registers //= 16
        while registers > 1:
            registers //= 2
            add_lanes(core, buf, channels, k, 0, 0, registers * REG, registers * REG)
            pipe_barrier(core, PIPE_V)
    sum_registers(core, dst, buf, channels, k, min(k, REG))


@aicore
def sum_rows(core: Core, dst: LocalTensor, buf: LocalTensor, rows: int, lanes: int) -> None:
    """ReduceSum<RA>: dst[lane] = sum over the rows of a [rows, lanes] matrix (reduce_spec 4.4)."""
    m = power_below(rows)
    if rows > m:
        add(core, buf, buf, at(buf, 4 * m * lanes), (rows - m) * lanes)
        pipe_barrier(core, PIPE_V)
    if 32 < lanes <= 64:
        while m >= 16:  # passes over groups of 16 consecutive rows
            for group in range(m // 16):
                first = at(buf, 4 * 16 * group * lanes)
                for half in (8, 4, 2):
                    add(core, first, first, at(first, 4 * half * lanes), half * lanes)
                    pipe_barrier(core, PIPE_V)
                add(core, at(buf, 4 * group * lanes), first, at(first, 4 * lanes), lanes)
                pipe_barrier(core, PIPE_V)
            m //= 16
    while m > 1:
        m //= 2
        add(core, buf, buf, at(buf, 4 * m * lanes), m * lanes)
        pipe_barrier(core, PIPE_V)
    copy(core, dst, buf, lanes)


# ------------------------------------------------------------------ the kernel


@kernel(
    buffers=("inA0", "inA1", "inB0", "inB1", "pairSum", "result0", "result1", "cache"),
    writes=("out", "workspace"),
)
def reduce_sum(core: Core, x: GlobalTensor, out: GlobalTensor, workspace: GlobalTensor, g: Geometry) -> Iterator[int]:
    """out[c] = sum over n, s of x[n, c, s]; workspace holds group_r rows of partial sums (else unused)."""
    in_a0 = init_buffer(core, g.basic_bytes)
    in_a1 = init_buffer(core, g.basic_bytes)
    in_b0 = init_buffer(core, g.basic_bytes)
    in_b1 = init_buffer(core, g.basic_bytes)
    pair_sum = init_buffer(core, g.basic_bytes)
    result0 = init_buffer(core, g.result_bytes)
    result1 = init_buffer(core, g.result_bytes)
    cache = init_buffer(core, CACHE_BUF_BYTES)

    group = core.index % g.group_r
    first_r = group * g.factor_r
    tiles = min(g.factor_r, g.r_tiles - first_r)
    pos = bisection(tiles)
    tail = tiles - pos
    first_a = core.index // g.group_r * g.factor_a
    row_length = -(-g.c // CHUNK) * CHUNK
    loads = 0
    stores = 0
    for a_tile in range(first_a, min(first_a + g.factor_a, g.a_tiles)):
        c0 = a_tile * g.a_step
        channels = min(g.a_step, g.c - c0)
        lanes = -(-channels // 8) * 8
        for i in range(pos):
            set_tile(core, a_tile * g.r_tiles + first_r + i)
            ping = loads % g.buffers
            in_a = in_a1 if ping else in_a0
            in_b = in_b1 if ping else in_b0
            if loads >= g.buffers:
                wait_flag(core, V_MTE2, ping)
            valid_b = g.k
            piece_a = piece_of(g, first_r + i)
            piece_b = piece_of(g, first_r + i + pos) if i < tail else piece_a
            if g.tail_r:
                valid_a = load_channels(core, in_a, x, g, c0, channels, piece_a)
                if i < tail:
                    valid_b = load_channels(core, in_b, x, g, c0, channels, piece_b)
            else:
                valid_a = load_rows(core, in_a, x, g, c0, channels, piece_a, lanes)
                if i < tail:
                    valid_b = load_rows(core, in_b, x, g, c0, channels, piece_b, lanes)
            set_flag(core, MTE2_V, ping)
            wait_flag(core, MTE2_V, ping)
            zero_rest(core, in_a, g, channels, lanes, valid_a)
            leaf = in_a
            if i < tail:
                zero_rest(core, in_b, g, channels, lanes, valid_b)
                pipe_barrier(core, PIPE_V)
                add(core, pair_sum, in_a, in_b, (channels if g.tail_r else lanes) * g.k)
                leaf = pair_sum
                set_flag(core, V_MTE2, ping)
            pipe_barrier(core, PIPE_V)
            slots = trailing_ones(i)
            slot = at(cache, 4 * slots * g.slot)
            if g.tail_r:
                sum_channels(core, slot, leaf, channels, g.k)
            else:
                sum_rows(core, slot, leaf, g.k, lanes)
            if i >= tail:
                set_flag(core, V_MTE2, ping)
            loads += 1
            pipe_barrier(core, PIPE_V)
            for j in range(slots):
                add(core, slot, slot, at(cache, 4 * j * g.slot), lanes)
                pipe_barrier(core, PIPE_V)

        pong = stores % 2
        result = result1 if pong else result0
        if stores >= 2:
            wait_flag(core, MTE3_V, pong)
        copy(core, result, at(cache, 4 * trailing_ones(pos - 1) * g.slot), lanes)
        set_flag(core, V_MTE3, pong)
        wait_flag(core, V_MTE3, pong)
        row = CopyParams(1, 4 * channels, 0, 0)
        if g.group_r > 1:
            data_copy_pad_out(core, workspace, group * row_length + c0, result, row)
        else:
            data_copy_pad_out(core, out, c0, result, row)
        set_flag(core, MTE3_V, pong)
        stores += 1
    for k in range(max(loads - g.buffers, 0), loads):
        wait_flag(core, V_MTE2, k % g.buffers)
    for k in range(max(stores - 2, 0), stores):
        wait_flag(core, MTE3_V, k % 2)

    if g.group_r > 1:
        sync_all(core)
        yield SYNC_ALL
        set_tile(core, -1)
        chunks = -(-g.c // CHUNK)
        per_core = -(-chunks // core.blocks)
        for chunk in range(core.index * per_core, min((core.index + 1) * per_core, chunks)):
            c0 = chunk * CHUNK
            width = min(CHUNK, g.c - c0)
            lanes = -(-width // 8) * 8
            copy_rows_in(core, in_a0, workspace, c0, g.group_r, width, row_length, lanes)
            set_flag(core, MTE2_V, 0)
            wait_flag(core, MTE2_V, 0)
            sum_rows(core, result0, in_a0, g.group_r, lanes)
            set_flag(core, V_MTE3, 0)
            wait_flag(core, V_MTE3, 0)
            data_copy_pad_out(core, out, c0, result0, CopyParams(1, 4 * width, 0, 0))


@kernel(buffers=("out",), writes=("out",))
def copy_channels(core: Core, x: GlobalTensor, out: GlobalTensor, step: int, factor_a: int) -> None:
    """Nothing to reduce (pattern A, ReduceTensorMove): ``factor_a`` tiles of ``step`` elements are copied."""
    buf = init_buffer(core, 4 * step)
    for tile in range(core.index * factor_a, (core.index + 1) * factor_a):
        set_tile(core, tile)
        first = tile * step
        count = min(step, x.count - first)
        if count > 0:
            if tile > core.index * factor_a:
                wait_flag(core, MTE3_MTE2, 0)
            data_copy_pad_in(core, buf, x, first, CopyParams(1, 4 * count, 0, 0), NO_PAD)
            set_flag(core, MTE2_MTE3, 0)
            wait_flag(core, MTE2_MTE3, 0)
            data_copy_pad_out(core, out, first, buf, CopyParams(1, 4 * count, 0, 0))
            set_flag(core, MTE3_MTE2, 0)
    wait_flag(core, MTE3_MTE2, 0)
