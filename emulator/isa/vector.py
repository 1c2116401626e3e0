"""PIPE_V: element-wise vector instructions on fp32, and Cast between formats.

Two forms, as in Ascend C: *first n elements* (Counter mode, contiguous, ``count`` elements) and
*mask and repeat* (names ending in ``_repeat``: ``repeat`` iterations of ``mask`` <= 64 lanes with strides).
Every operation is one IEEE fp32 operation, rounded to nearest even, subnormals kept (asc-devkit, precision
appendix of the Reg interfaces: 0 ulp for Add, Sub, Mul).
"""

from __future__ import annotations

import numpy as np

from emulator.core import (
    BLOCK_BYTES,
    CONTIGUOUS,
    LANES,
    SATURATE,
    Core,
    LocalTensor,
    Strides,
    state_of,
    ub_bfloat16,
    ub_f32,
    ub_half,
)
from emulator.events import record
from emulator.formats import decode, round_to_bfloat16, round_to_half
from emulator.isa.operands import BAD_CAST, check_local, check_overlap, check_repeat, check_strided, fault
from emulator.isa.table import PIPE_V, Pipe, instruction
from emulator.jit import njit

OP_ADD, OP_SUB, OP_MUL, OP_ADDS, OP_MULS, OP_DUPLICATE, OP_COPY, OP_CAST = range(1, 9)
OP_ADD_REPEAT = 25

# Pairs of Cast.
HALF_TO_FLOAT, BFLOAT16_TO_FLOAT, FLOAT_TO_HALF, FLOAT_TO_BFLOAT16 = range(4)


@njit
def _binary(core: Core, opcode: int, line: int, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: int):  # type: ignore[no-untyped-def]
    """Check and record a contiguous binary instruction; returns the three fp32 slices."""
    nbytes = 4 * count
    check_local(core, opcode, line, dst, nbytes, BLOCK_BYTES)
    check_local(core, opcode, line, src0, nbytes, BLOCK_BYTES)
    check_local(core, opcode, line, src1, nbytes, BLOCK_BYTES)
    check_overlap(core, opcode, line, dst, src0, nbytes)
    check_overlap(core, opcode, line, dst, src1, nbytes)
    repeats = (count + LANES - 1) // LANES
    record(core, opcode, PIPE_V, line, dst.address, src0.address, src1.address, nbytes, repeats, count, -1, CONTIGUOUS)
    d, a, b = dst.address >> 2, src0.address >> 2, src1.address >> 2
    f32 = ub_f32(core)
    return f32[d : d + count], f32[a : a + count], f32[b : b + count]


@njit
def _unary(core: Core, opcode: int, line: int, dst: LocalTensor, src: LocalTensor, count: int):  # type: ignore[no-untyped-def]
    """Check and record a contiguous unary instruction; returns the two fp32 slices."""
    nbytes = 4 * count
    check_local(core, opcode, line, dst, nbytes, BLOCK_BYTES)
    check_local(core, opcode, line, src, nbytes, BLOCK_BYTES)
    check_overlap(core, opcode, line, dst, src, nbytes)
    repeats = (count + LANES - 1) // LANES
    record(core, opcode, PIPE_V, line, dst.address, src.address, -1, nbytes, repeats, count, -1, CONTIGUOUS)
    d, a = dst.address >> 2, src.address >> 2
    f32 = ub_f32(core)
    return f32[d : d + count], f32[a : a + count]


@instruction(OP_ADD, "Add", "vadd", Pipe.VECTOR)
def add(core: Core, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: int, line: int = 0) -> None:
    """dst[i] = src0[i] + src1[i]"""
    d, a, b = _binary(core, OP_ADD, line, dst, src0, src1, count)
    for i in range(count):
        d[i] = a[i] + b[i]


@instruction(OP_SUB, "Sub", "vsub", Pipe.VECTOR)
def sub(core: Core, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: int, line: int = 0) -> None:
    """dst[i] = src0[i] - src1[i]"""
    d, a, b = _binary(core, OP_SUB, line, dst, src0, src1, count)
    for i in range(count):
        d[i] = a[i] - b[i]


@instruction(OP_MUL, "Mul", "vmul", Pipe.VECTOR)
def mul(core: Core, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: int, line: int = 0) -> None:
    """dst[i] = src0[i] * src1[i]"""
    d, a, b = _binary(core, OP_MUL, line, dst, src0, src1, count)
    for i in range(count):
        d[i] = a[i] * b[i]


@instruction(OP_ADDS, "Adds", "vadds", Pipe.VECTOR)
def adds(core: Core, dst: LocalTensor, src: LocalTensor, scalar: float, count: int, line: int = 0) -> None:
    """dst[i] = src[i] + scalar"""
    d, a = _unary(core, OP_ADDS, line, dst, src, count)
    s = np.float32(scalar)
    for i in range(count):
        d[i] = a[i] + s


@instruction(OP_MULS, "Muls", "vmuls", Pipe.VECTOR)
def muls(core: Core, dst: LocalTensor, src: LocalTensor, scalar: float, count: int, line: int = 0) -> None:
    """dst[i] = src[i] * scalar"""
    d, a = _unary(core, OP_MULS, line, dst, src, count)
    s = np.float32(scalar)
    for i in range(count):
        d[i] = a[i] * s


@instruction(OP_DUPLICATE, "Duplicate", "vector_dup", Pipe.VECTOR)
def duplicate(core: Core, dst: LocalTensor, scalar: float, count: int, line: int = 0) -> None:
    """dst[i] = scalar"""
    check_local(core, OP_DUPLICATE, line, dst, 4 * count, BLOCK_BYTES)
    repeats = (count + LANES - 1) // LANES
    record(core, OP_DUPLICATE, PIPE_V, line, dst.address, -1, -1, 4 * count, repeats, count, -1, CONTIGUOUS)
    d = dst.address >> 2
    ub_f32(core)[d : d + count] = np.float32(scalar)


@instruction(OP_COPY, "Copy", "vcopy", Pipe.VECTOR)
def copy(core: Core, dst: LocalTensor, src: LocalTensor, count: int, line: int = 0) -> None:
    """dst[i] = src[i], from UB to UB"""
    d, a = _unary(core, OP_COPY, line, dst, src, count)
    for i in range(count):
        d[i] = a[i]


@instruction(OP_CAST, "Cast", "vconv", Pipe.VECTOR)
def cast(core: Core, dst: LocalTensor, src: LocalTensor, pair: int, mode: int, count: int, line: int = 0) -> None:
    """dst[i] = src[i] in another format; overflow as the core's saturation bit (CTRL[48]) says"""
    wide = 4 * count
    narrow = 2 * count
    to_float = pair in (HALF_TO_FLOAT, BFLOAT16_TO_FLOAT)
    check_local(core, OP_CAST, line, dst, wide if to_float else narrow, BLOCK_BYTES)
    check_local(core, OP_CAST, line, src, narrow if to_float else wide, BLOCK_BYTES)
    if mode < 0 or mode > 6 or pair < 0 or pair > FLOAT_TO_BFLOAT16:
        fault(core, BAD_CAST, OP_CAST, line, src.buffer, src.address, mode, pair)
    repeats = (count + LANES - 1) // LANES
    record(core, OP_CAST, PIPE_V, line, dst.address, src.address, -1, wide, repeats, count, -1, CONTIGUOUS)
    saturate = state_of(core)[SATURATE] != 0
    f32, u16, i16 = ub_f32(core), ub_half(core), ub_bfloat16(core)
    if pair == HALF_TO_FLOAT:
        d, s = dst.address >> 2, src.address >> 1
        for i in range(count):
            f32[d + i] = decode(u16[s + i])
    elif pair == BFLOAT16_TO_FLOAT:
        d, s = dst.address >> 2, src.address >> 1
        for i in range(count):
            f32[d + i] = decode(i16[s + i])
    elif pair == FLOAT_TO_HALF:
        d, s = dst.address >> 1, src.address >> 2
        for i in range(count):
            u16[d + i] = round_to_half(f32[s + i], mode, saturate)
    else:
        d, s = dst.address >> 1, src.address >> 2
        for i in range(count):
            i16[d + i] = round_to_bfloat16(f32[s + i], mode, saturate)


@instruction(OP_ADD_REPEAT, "Add", "vadd", Pipe.VECTOR)
def add_repeat(
    core: Core,
    dst: LocalTensor,
    src0: LocalTensor,
    src1: LocalTensor,
    mask: int,
    repeat: int,
    strides: Strides,
    line: int = 0,
) -> None:
    """dst = src0 + src1 on ``mask`` lanes of ``repeat`` iterations"""
    opcode = OP_ADD_REPEAT
    check_repeat(core, opcode, line, dst, mask, LANES, repeat)
    check_strided(core, opcode, line, dst, mask, repeat, strides.dst_blk, strides.dst_rep)
    check_strided(core, opcode, line, src0, mask, repeat, strides.src0_blk, strides.src0_rep)
    check_strided(core, opcode, line, src1, mask, repeat, strides.src1_blk, strides.src1_rep)
    nbytes = 4 * mask * repeat
    record(core, opcode, PIPE_V, line, dst.address, src0.address, src1.address, nbytes, repeat, mask, -1, strides)
    f32 = ub_f32(core)
    for r in range(repeat):
        d = (dst.address >> 2) + 8 * r * strides.dst_rep
        a = (src0.address >> 2) + 8 * r * strides.src0_rep
        b = (src1.address >> 2) + 8 * r * strides.src1_rep
        if strides.dst_blk == 1 and strides.src0_blk == 1 and strides.src1_blk == 1:
            x, y, z = f32[d : d + mask], f32[a : a + mask], f32[b : b + mask]
            for i in range(mask):
                x[i] = y[i] + z[i]
        else:
            for block in range((mask + 7) // 8):
                for i in range(min(8, mask - 8 * block)):
                    total = f32[a + 8 * block * strides.src0_blk + i] + f32[b + 8 * block * strides.src1_blk + i]
                    f32[d + 8 * block * strides.dst_blk + i] = total
