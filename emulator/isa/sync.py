"""Flags and barriers between the pipes of a core, and SyncAll between cores."""

from __future__ import annotations

from enum import IntEnum

from emulator.core import EVENT_IDS, EVENT_ROWS, FLAGS, Core, Strides, state_of
from emulator.events import record
from emulator.isa.operands import BAD_EVENT, BAD_EVENT_ID, FLAG_NOT_SET, FLAG_SET_TWICE, fault
from emulator.isa.table import PIPE_ALL, PIPE_MTE2, PIPE_MTE3, PIPE_S, PIPE_V, instruction
from emulator.jit import njit

OP_SET_FLAG, OP_WAIT_FLAG, OP_PIPE_BARRIER, OP_SYNC_ALL = range(18, 22)

SYNC_ALL = 1
"""What a kernel yields after ``sync_all``: this core waits until every core is here."""


class HardEvent(IntEnum):
    """Source and destination pipe of a flag (Ascend C HardEvent)."""

    MTE2_V = 0
    V_MTE2 = 1
    V_MTE3 = 2
    MTE3_V = 3
    MTE2_MTE3 = 4
    MTE3_MTE2 = 5
    V_S = 6
    S_V = 7
    MTE2_S = 8
    S_MTE2 = 9
    MTE3_S = 10
    S_MTE3 = 11


MTE2_V, V_MTE2, V_MTE3, MTE3_V, MTE2_MTE3, MTE3_MTE2, V_S, S_V, MTE2_S, S_MTE2, MTE3_S, S_MTE3 = (
    int(e) for e in HardEvent
)
_SOURCE = (
    PIPE_MTE2, PIPE_V, PIPE_V, PIPE_MTE3, PIPE_MTE2, PIPE_MTE3, PIPE_V, PIPE_S, PIPE_MTE2, PIPE_S, PIPE_MTE3, PIPE_S,
)  # fmt: skip
_DESTINATION = (
    PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_V, PIPE_MTE3, PIPE_MTE2, PIPE_S, PIPE_V, PIPE_S, PIPE_MTE2, PIPE_S, PIPE_MTE3,
)  # fmt: skip
_NONE = Strides(0, 0, 0, 0, 0, 0)


@njit
def _flag_of(core: Core, opcode: int, line: int, event: int, event_id: int) -> int:
    """Place of a flag bit in the core's state."""
    ids = state_of(core)[EVENT_IDS]
    if event < 0 or event >= len(_SOURCE):
        fault(core, BAD_EVENT, opcode, line, -1, event, event_id, len(_SOURCE))
    if event_id < 0 or event_id >= ids:
        fault(core, BAD_EVENT_ID, opcode, line, -1, event, event_id, ids)
    return FLAGS + EVENT_ROWS * event + event_id


@instruction(OP_SET_FLAG, "SetFlag", "set_flag", None)
def set_flag(core: Core, event: int, event_id: int, line: int = 0) -> None:
    """set the flag once every earlier instruction of the source pipe is done"""
    state = state_of(core)
    flag = _flag_of(core, OP_SET_FLAG, line, event, event_id)
    if state[flag]:
        fault(core, FLAG_SET_TWICE, OP_SET_FLAG, line, -1, event, event_id, 0)
    state[flag] = 1
    record(core, OP_SET_FLAG, _SOURCE[event], line, -1, -1, -1, 0, 0, 0, 8 * event + event_id, _NONE)


@instruction(OP_WAIT_FLAG, "WaitFlag", "wait_flag", None)
def wait_flag(core: Core, event: int, event_id: int, line: int = 0) -> None:
    """the destination pipe waits for the flag and clears it"""
    state = state_of(core)
    flag = _flag_of(core, OP_WAIT_FLAG, line, event, event_id)
    if not state[flag]:
        fault(core, FLAG_NOT_SET, OP_WAIT_FLAG, line, -1, event, event_id, 0)
    state[flag] = 0
    record(core, OP_WAIT_FLAG, _DESTINATION[event], line, -1, -1, -1, 0, 0, 0, 8 * event + event_id, _NONE)


@instruction(OP_PIPE_BARRIER, "PipeBarrier", "pipe_barrier", None)
def pipe_barrier(core: Core, pipe: int, line: int = 0) -> None:
    """earlier instructions of the pipe are done before later ones start"""
    record(core, OP_PIPE_BARRIER, pipe, line, -1, -1, -1, 0, 0, 0, -1, _NONE)


@instruction(OP_SYNC_ALL, "SyncAll", "sync_all", None)
def sync_all(core: Core, line: int = 0) -> None:
    """all cores meet; the kernel yields SYNC_ALL on the next line"""
    record(core, OP_SYNC_ALL, PIPE_ALL, line, -1, -1, -1, 0, 0, 0, -1, _NONE)
