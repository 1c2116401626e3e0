"""The event log: one record for each instruction a core issued, in program order.

Everything later (timing, sanitizer, utilisation, traces) reads these records; nothing derives them anew.
"""

from __future__ import annotations

import numpy as np

from emulator.core import COUNTS, EVENTS, TILE, Core, Strides, array_at, state_of
from emulator.jit import njit

EVENT = np.dtype(
    [
        ("core", np.int32),
        ("line", np.int32),
        ("opcode", np.uint8),
        ("pipe", np.uint8),
        ("flag", np.int16),
        ("tile", np.int32),
        ("dst", np.int64),
        ("src0", np.int64),
        ("src1", np.int64),
        ("bytes", np.int64),
        ("repeats", np.int32),
        ("mask", np.int32),
        ("blk", np.int16, (3,)),
        ("rep", np.int16, (3,)),
        ("unused", np.int32),
    ],
    align=True,
)
"""core; source line; opcode (``emulator.isa``); pipe; flag (HardEvent * 8 + id, else -1); tile; operand
addresses (UB bytes, or GM addresses of copies; -1: none); bytes read or moved; repeats; lanes per repeat (or
the element count in Counter mode); block and repeat strides of dst, src0, src1 in 32-byte blocks."""


@njit
def record(
    core: Core,
    opcode: int,
    pipe: int,
    line: int,
    dst: int,
    src0: int,
    src1: int,
    nbytes: int,
    repeats: int,
    mask: int,
    flag: int,
    strides: Strides,
) -> None:
    """Count one instruction and, where there is room, write its record."""
    state = state_of(core)
    counts = COUNTS + 3 * opcode
    state[counts] += 1
    state[counts + 1] += repeats
    state[counts + 2] += nbytes
    k = state[EVENTS]
    state[EVENTS] = k + 1
    if k < core.room:
        event = array_at(core.log, core.room, EVENT)[k]
        event["core"] = core.index
        event["line"] = line
        event["opcode"] = opcode
        event["pipe"] = pipe
        event["flag"] = flag
        event["tile"] = state[TILE]
        event["dst"] = dst
        event["src0"] = src0
        event["src1"] = src1
        event["bytes"] = nbytes
        event["repeats"] = repeats
        event["mask"] = mask
        event["blk"][0] = strides.dst_blk
        event["blk"][1] = strides.src0_blk
        event["blk"][2] = strides.src1_blk
        event["rep"][0] = strides.dst_rep
        event["rep"][1] = strides.src0_rep
        event["rep"][2] = strides.src1_rep
