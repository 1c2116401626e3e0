"""Checks every instruction makes before it acts: buffers, alignment, ranges, repeat limits."""

from __future__ import annotations

from emulator.core import (
    BLOCK_BYTES,
    FAULT,
    FAULT_ADDRESS,
    FAULT_BUFFER,
    FAULT_BYTES,
    FAULT_LIMIT,
    FAULT_LINE,
    FAULT_OPCODE,
    Core,
    GlobalTensor,
    InstructionFault,
    LocalTensor,
    state_of,
)
from emulator.jit import njit

# Fault codes (state[FAULT]); emulator.launch words them.
(
    OUT_OF_BUFFER,
    UNALIGNED,
    UB_FULL,
    TOO_MANY_BUFFERS,
    OUT_OF_GM,
    BAD_REPEAT,
    PARTIAL_OVERLAP,
    FLAG_SET_TWICE,
    FLAG_NOT_SET,
    BAD_EVENT_ID,
    BAD_COUNT,
    BAD_CAST,
    BAD_MASK,
    BAD_UNIT,
    BAD_EVENT,
) = range(1, 16)

MAX_REPEAT = 255
MAX_STRIDE = 255
"""repeatTime and the repeat strides are eight bits wide (asc-devkit, vector API constraints)."""


@njit
def fault(core: Core, code: int, opcode: int, line: int, buffer: int, address: int, nbytes: int, limit: int) -> None:
    """Note what was refused and stop the kernel."""
    state = state_of(core)
    state[FAULT] = code
    state[FAULT_OPCODE] = opcode
    state[FAULT_LINE] = line
    state[FAULT_BUFFER] = buffer
    state[FAULT_ADDRESS] = address
    state[FAULT_BYTES] = nbytes
    state[FAULT_LIMIT] = limit
    raise InstructionFault


@njit
def check_local(core: Core, opcode: int, line: int, tensor: LocalTensor, nbytes: int, align: int) -> None:
    """``nbytes`` from ``tensor`` must lie in its buffer and start on a multiple of ``align`` bytes."""
    if nbytes < 0:
        fault(core, BAD_COUNT, opcode, line, tensor.buffer, tensor.address, nbytes, 0)
    if tensor.address < tensor.start or tensor.address + nbytes > tensor.start + tensor.size:
        fault(core, OUT_OF_BUFFER, opcode, line, tensor.buffer, tensor.address, nbytes, tensor.size)
    if tensor.address % align:
        fault(core, UNALIGNED, opcode, line, tensor.buffer, tensor.address, nbytes, align)


@njit
def check_global(core: Core, opcode: int, line: int, tensor: GlobalTensor, first: int, last: int) -> None:
    """Elements ``first`` .. ``last`` (inclusive) must lie in the GM allocation.

    A fault notes the first byte in the buffer's place and the end of the range in the length's.
    """
    if first < 0 or last >= tensor.count:
        size = tensor.itemsize
        fault(core, OUT_OF_GM, opcode, line, first * size, tensor.address, (last + 1) * size, tensor.count * size)


@njit
def check_repeat(core: Core, opcode: int, line: int, tensor: LocalTensor, mask: int, lanes: int, repeat: int) -> None:
    """Limits of a high-dimensional (mask and repeat) form."""
    if repeat < 0 or repeat > MAX_REPEAT:
        fault(core, BAD_REPEAT, opcode, line, tensor.buffer, tensor.address, repeat, MAX_REPEAT)
    if mask < 1 or mask > lanes:
        fault(core, BAD_MASK, opcode, line, tensor.buffer, tensor.address, mask, lanes)


@njit
def check_strided(
    core: Core, opcode: int, line: int, tensor: LocalTensor, mask: int, repeat: int, blk: int, rep: int
) -> None:
    """Reach of ``repeat`` iterations of ``mask`` fp32 lanes with block and repeat strides (32-byte blocks)."""
    for stride in (blk, rep):
        if stride < 0 or stride > MAX_STRIDE:
            fault(core, BAD_REPEAT, opcode, line, tensor.buffer, tensor.address, stride, MAX_STRIDE)
    whole = (mask - 1) // 8
    reach = (max(repeat - 1, 0) * rep + whole * blk) * BLOCK_BYTES + (mask - 8 * whole) * 4
    check_local(core, opcode, line, tensor, reach if repeat > 0 else 0, BLOCK_BYTES)


@njit
def check_overlap(core: Core, opcode: int, line: int, dst: LocalTensor, src: LocalTensor, nbytes: int) -> None:
    """Contiguous dst and src must coincide or not overlap at all (asc-devkit, general constraints)."""
    if dst.address != src.address and dst.address < src.address + nbytes and src.address < dst.address + nbytes:
        fault(core, PARTIAL_OVERLAP, opcode, line, dst.buffer, dst.address, nbytes, src.address)


@njit
def check_overlap_strided(
    core: Core, opcode: int, line: int, dst: LocalTensor, src: LocalTensor, mask: int, dst_blk: int, src_blk: int
) -> None:
    """The same within one iteration of a strided form: its blocks must coincide or be apart."""
    blocks = (mask + 7) // 8
    if dst.address == src.address and dst_blk == src_blk:
        return
    for i in range(blocks):
        for j in range(blocks):
            d = dst.address + i * dst_blk * BLOCK_BYTES
            s = src.address + j * src_blk * BLOCK_BYTES
            if d < s + 4 * min(8, mask - 8 * j) and s < d + 4 * min(8, mask - 8 * i):
                fault(core, PARTIAL_OVERLAP, opcode, line, dst.buffer, dst.address, 4 * mask, src.address)
