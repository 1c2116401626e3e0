"""The instruction set: one short function per instruction, grouped by pipe. The files are the specification.

Every instruction checks its operands (buffer, alignment, repeat limits), appends one event, then acts on the
bytes of the Unified Buffer. Its last parameter, ``line``, is filled in by ``emulator.aicore``.
"""

from emulator.isa.copy import (
    NO_PAD,
    CopyParams,
    NddmaParams,
    PadParams,
    data_copy_in,
    data_copy_out,
    data_copy_pad_in,
    data_copy_pad_out,
    nddma_copy_in,
)
from emulator.isa.reduce import block_reduce_sum, pair_reduce_sum, reg_reduce_sum, whole_reduce_sum
from emulator.isa.scalar import get_value, init_buffer, set_value
from emulator.isa.sync import (
    MTE2_MTE3,
    MTE2_V,
    MTE3_MTE2,
    MTE3_V,
    SYNC_ALL,
    V_MTE2,
    V_MTE3,
    HardEvent,
    pipe_barrier,
    set_flag,
    sync_all,
    wait_flag,
)
from emulator.isa.table import INSTRUCTIONS, PIPE_V, Instruction, Pipe
from emulator.isa.vector import (
    BFLOAT16_TO_FLOAT,
    FLOAT_TO_BFLOAT16,
    FLOAT_TO_HALF,
    HALF_TO_FLOAT,
    add,
    add_repeat,
    adds,
    cast,
    copy,
    duplicate,
    mul,
    muls,
    sub,
)

__all__ = [
    "BFLOAT16_TO_FLOAT",
    "FLOAT_TO_BFLOAT16",
    "FLOAT_TO_HALF",
    "HALF_TO_FLOAT",
    "INSTRUCTIONS",
    "MTE2_MTE3",
    "MTE2_V",
    "MTE3_MTE2",
    "MTE3_V",
    "NO_PAD",
    
    "PIPE_V",
    "SYNC_ALL",
    "V_MTE2",
    "V_MTE3",
    "CopyParams",
    "HardEvent",
    "Instruction",
    "NddmaParams",
    "PadParams",
    "Pipe",
    "add",
    "add_repeat",
    "adds",
    "block_reduce_sum",
    "cast",
    "copy",
    "data_copy_in",
    "data_copy_out",
    "data_copy_pad_in",
    "data_copy_pad_out",
    "duplicate",
    "get_value",
    "init_buffer",
    "mul",
    "muls",
    "nddma_copy_in",
    "pair_reduce_sum",
    "pipe_barrier",
    "reg_reduce_sum",
    "set_flag",
    "set_value",
    "sub",
    "sync_all",
    "wait_flag",
    "whole_reduce_sum",
]
