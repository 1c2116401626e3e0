"""PIPE_V: reductions inside an iteration, always the adjacent-pair tree (asc-devkit, 归约计算 pages; 0 ulp).

((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) ...; lanes the mask switches off count as +0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.core import BLOCK_BYTES, LANES, Core, LocalTensor, Strides, ub_f32
from emulator.events import record
from emulator.isa.operands import check_local, check_repeat, check_strided
from emulator.isa.table import PIPE_V, SPLIT_ARCHS, Pipe, instruction
from emulator.jit import njit

OP_WHOLE_REDUCE_SUM, OP_BLOCK_REDUCE_SUM, OP_PAIR_REDUCE_SUM, OP_REG_REDUCE_SUM = range(9, 13)


@njit
def _gather(
    f32: NDArray[np.float32], lanes: NDArray[np.float32], src: LocalTensor, first_block: int, blk: int, mask: int
) -> None:
    """Fill 64 lanes from the 8 blocks of one iteration, +0 from ``mask`` on."""
    for block in range(8):
        word = (src.address >> 2) + 8 * (first_block + block * blk)
        for i in range(8):
            lane = 8 * block + i
            lanes[lane] = f32[word + i] if lane < mask else np.float32(0)


@njit
def _pairs(lanes: NDArray[np.float32], width: int) -> None:
    """One level of the tree: lanes[i] = lanes[2i] + lanes[2i + 1] for the first ``width`` results."""
    for i in range(width):
        lanes[i] = lanes[2 * i] + lanes[2 * i + 1]


@njit
def _reduce(
    core: Core,
    opcode: int,
    line: int,
    dst: LocalTensor,
    src: LocalTensor,
    mask: int,
    repeat: int,
    dst_rep: int,
    src_blk: int,
    src_rep: int,
    results: int,
    align: int,
) -> None:
    """Shared body: each iteration's 64 lanes become ``results`` values, ``dst_rep * results`` fp32 apart."""
    check_repeat(core, opcode, line, src, mask, LANES, repeat)
    check_strided(core, opcode, line, src, mask, repeat, src_blk, src_rep)
    reach = ((repeat - 1) * dst_rep + 1) * results * 4 if repeat > 0 else 0
    check_local(core, opcode, line, dst, reach, align)
    strides = Strides(1, src_blk, 0, dst_rep, src_rep, 0)
    record(core, opcode, PIPE_V, line, dst.address, src.address, -1, 4 * mask * repeat, repeat, mask, -1, strides)
    f32 = ub_f32(core)
    lanes = np.empty(LANES, np.float32)
    for r in range(repeat):
        _gather(f32, lanes, src, r * src_rep, src_blk, mask)
        width = LANES
        while width > results:
            width //= 2
            _pairs(lanes, width)
        word = (dst.address >> 2) + r * dst_rep * results
        for i in range(results):
            f32[word + i] = lanes[i]


@instruction(OP_WHOLE_REDUCE_SUM, "WholeReduceSum", "vcadd", Pipe.VECTOR)
def whole_reduce_sum(
    core: Core,
    dst: LocalTensor,
    src: LocalTensor,
    mask: int,
    repeat: int,
    dst_rep: int,
    src_blk: int,
    src_rep: int,
    line: int = 0,
) -> None:
    """one sum per iteration; dst_rep in elements"""
    _reduce(core, OP_WHOLE_REDUCE_SUM, line, dst, src, mask, repeat, dst_rep, src_blk, src_rep, 1, 4)


@instruction(OP_BLOCK_REDUCE_SUM, "BlockReduceSum", "vcgadd", Pipe.VECTOR, SPLIT_ARCHS)
def block_reduce_sum(
    core: Core,
    dst: LocalTensor,
    src: LocalTensor,
    mask: int,
    repeat: int,
    dst_rep: int,
    src_blk: int,
    src_rep: int,
    line: int = 0,
) -> None:
    """one sum per 32-byte block, 8 per iteration; dst_rep in groups of 8 elements"""
    _reduce(core, OP_BLOCK_REDUCE_SUM, line, dst, src, mask, repeat, dst_rep, src_blk, src_rep, 8, BLOCK_BYTES)


@instruction(OP_PAIR_REDUCE_SUM, "PairReduceSum", "vcpadd", Pipe.VECTOR, SPLIT_ARCHS)
def pair_reduce_sum(
    core: Core,
    dst: LocalTensor,
    src: LocalTensor,
    mask: int,
    repeat: int,
    dst_rep: int,
    src_blk: int,
    src_rep: int,
    line: int = 0,
) -> None:
    """dst[i] = src[2i] + src[2i + 1], 32 results per iteration; dst_rep in groups of 32 elements"""
    _reduce(core, OP_PAIR_REDUCE_SUM, line, dst, src, mask, repeat, dst_rep, src_blk, src_rep, 32, BLOCK_BYTES)


@instruction(OP_REG_REDUCE_SUM, "Reg::Reduce<ReduceType::SUM>", "vcadd", Pipe.VECTOR, (3510,))
def reg_reduce_sum(core: Core, dst: LocalTensor, src: LocalTensor, mask: int, line: int = 0) -> None:
    """the sum of one 64-lane register's first ``mask`` lanes (950)"""
    _reduce(core, OP_REG_REDUCE_SUM, line, dst, src, mask, 1, 1, 1, 8, 1, 4)
