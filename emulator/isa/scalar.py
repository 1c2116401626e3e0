"""PIPE_S: handing out the Unified Buffer, and single values read and written by the scalar unit."""

from __future__ import annotations

import numpy as np

from emulator.core import (
    BLOCK_BYTES,
    BUFFER_TABLE,
    BUFFERS,
    MAX_BUFFERS,
    UB_TOP,
    Core,
    LocalTensor,
    Strides,
    state_of,
    ub_f32,
)
from emulator.events import record
from emulator.isa.operands import BAD_COUNT, TOO_MANY_BUFFERS, UB_FULL, check_local, fault
from emulator.isa.table import PIPE_S, Pipe, instruction

OP_INIT_BUFFER, OP_GET_VALUE, OP_SET_VALUE = range(22, 25)
_NONE = Strides(0, 0, 0, 0, 0, 0)


@instruction(OP_INIT_BUFFER, "TPipe::InitBuffer", "init_buffer", Pipe.SCALAR)
def init_buffer(core: Core, nbytes: int, line: int = 0) -> LocalTensor:
    """the next ``nbytes`` of the UB (rounded up to 32) as a buffer; contents are undefined (NaN here)"""
    size = -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES
    state = state_of(core)
    number = state[BUFFERS]
    start = state[UB_TOP]
    if nbytes <= 0:
        fault(core, BAD_COUNT, OP_INIT_BUFFER, line, number, start, nbytes, core.ub_bytes)
    if number >= MAX_BUFFERS:
        fault(core, TOO_MANY_BUFFERS, OP_INIT_BUFFER, line, number, start, size, MAX_BUFFERS)
    if start + size > core.ub_bytes:
        fault(core, UB_FULL, OP_INIT_BUFFER, line, number, start, size, core.ub_bytes)
    state[BUFFER_TABLE + 2 * number] = start
    state[BUFFER_TABLE + 2 * number + 1] = size
    state[BUFFERS] = number + 1
    state[UB_TOP] = start + size
    record(core, OP_INIT_BUFFER, PIPE_S, line, start, -1, -1, size, 0, 0, -1, _NONE)
    return LocalTensor(start, start, size, number)


@instruction(OP_GET_VALUE, "LocalTensor::GetValue", "get_value", Pipe.SCALAR)
def get_value(core: Core, src: LocalTensor, index: int, line: int = 0) -> float:
    """src[index] as fp32"""
    here = LocalTensor(src.address + 4 * index, src.start, src.size, src.buffer)
    check_local(core, OP_GET_VALUE, line, here, 4, 4)
    record(core, OP_GET_VALUE, PIPE_S, line, -1, here.address, -1, 4, 0, 0, -1, _NONE)
    return ub_f32(core)[here.address >> 2]


@instruction(OP_SET_VALUE, "LocalTensor::SetValue", "set_value", Pipe.SCALAR)
def set_value(core: Core, dst: LocalTensor, index: int, value: float, line: int = 0) -> None:
    """dst[index] = value, rounded to fp32"""
    here = LocalTensor(dst.address + 4 * index, dst.start, dst.size, dst.buffer)
    check_local(core, OP_SET_VALUE, line, here, 4, 4)
    record(core, OP_SET_VALUE, PIPE_S, line, here.address, -1, -1, 4, 0, 0, -1, _NONE)
    ub_f32(core)[here.address >> 2] = np.float32(value)
