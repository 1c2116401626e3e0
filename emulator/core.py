"""What a kernel sees of its core: plain tuples of integers that compiled code and Python read alike.

A *buffer* is a piece of the core's Unified Buffer handed out by ``InitBuffer``; a ``LocalTensor`` is a view
into one buffer, a ``GlobalTensor`` an allocation in global memory (GM). UB addresses are bytes from the start
of the UB; offsets into tensors are elements. Memory is named by host address rather than passed as arrays:
that keeps the calls between instructions small (passing arrays made the kernels compile ten times slower).
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numba import carray, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from emulator.jit import njit

BLOCK_BYTES = 32
"""One UB data block, and the alignment of UB addresses (asc-devkit, data-copy constraints)."""
REPEAT_BYTES = 256
"""Bytes one iteration of a vector instruction handles: 8 data blocks (asc-devkit, NPU architecture pages)."""
LANES = REPEAT_BYTES // 4
"""fp32 elements of one iteration."""
MAX_BUFFERS = 64
"""Buffers a kernel may hold (asc-devkit InitBuffer, QBUF_MAX_LEN)."""
HARD_EVENTS = 16
"""Rows of the flag table: one for each HardEvent of ``emulator.isa.sync``."""

OPCODES = 64
"""Room for opcodes in the counts."""
EVENT_ROWS = 8
"""Flags per HardEvent."""

# Layout of the core's state, one int64 array.
EVENTS, UB_TOP, BUFFERS, TILE, SATURATE, EVENT_IDS = range(6)
FAULT, FAULT_OPCODE, FAULT_LINE, FAULT_BUFFER, FAULT_ADDRESS, FAULT_BYTES, FAULT_LIMIT = range(8, 15)
COUNTS = 16
"""(OPCODES, 3): instructions, repeats, bytes."""
BUFFER_TABLE = COUNTS + 3 * OPCODES
"""(MAX_BUFFERS, 2): address and size of each buffer."""
FLAGS = BUFFER_TABLE + 2 * MAX_BUFFERS
"""(HARD_EVENTS, EVENT_ROWS): the flag bits between pipes."""
STATE_SIZE = FLAGS + HARD_EVENTS * EVENT_ROWS


class Core(NamedTuple):
    """One simulated vector core, as its kernel sees it."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    """GetBlockIdx: 0 .. blocks - 1."""
    blocks: int
    """GetBlockNum."""
    ub: int
    """Host address of the UB."""
    ub_bytes: int
    log: int
    """Host address of the event records (``emulator.events``)."""
    room: int
    """Records there is room for; ``state[EVENTS]`` counts on past it."""
    state: int
    """Host address of the state."""


class LocalTensor(NamedTuple):
    """A view into one buffer of the UB, starting at ``address``."""

    address: int
    start: int
    size: int
    buffer: int


class GlobalTensor(NamedTuple):
    """An allocation in GM of ``count`` elements of ``itemsize`` bytes."""

    host: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    itemsize: int
    address: int
    """Device address."""


class Strides(NamedTuple):
    """Block and repeat strides of a vector instruction, in 32-byte blocks (BinaryRepeatParams)."""

    dst_blk: int
    src0_blk: int
    src1_blk: int
    dst_rep: int
    src0_rep: int
    src1_rep: int


CONTIGUOUS = Strides(1, 1, 1, 8, 8, 8)


class InstructionFault(Exception):
    """Raised in compiled code when an instruction is refused; the core's state holds the details."""


@intrinsic
def _pointer(typingctx, address):  # type: ignore[no-untyped-def]
    """The integer ``address`` as a pointer."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), codegen


def array_at(address: int, count: int, dtype: Any) -> NDArray[Any]:
    """``count`` elements of ``dtype`` at a host address; whoever owns the memory must keep it alive."""
    nbytes = count * np.dtype(dtype).itemsize
    if nbytes == 0:
        return np.empty(0, dtype)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).view(dtype)


@overload(array_at)
def _array_at(address, count, dtype):  # type: ignore[no-untyped-def]  # Numba wants bare parameters
    return lambda address, count, dtype: carray(_pointer(address), count, dtype)


@njit
def state_of(core: Core) -> NDArray[np.int64]:
    """The core's state; see the layout above."""
    return array_at(core.state, STATE_SIZE, np.int64)


@njit
def ub_f32(core: Core) -> NDArray[np.float32]:
    """The whole UB as fp32."""
    return array_at(core.ub, core.ub_bytes // 4, np.float32)


@njit
def ub_half(core: Core) -> NDArray[np.uint16]:
    """The whole UB as fp16 bits."""
    return array_at(core.ub, core.ub_bytes // 2, np.uint16)


@njit
def ub_bfloat16(core: Core) -> NDArray[np.int16]:
    """The whole UB as bf16 bits."""
    return array_at(core.ub, core.ub_bytes // 2, np.int16)


@njit
def ub_bytes_of(core: Core) -> NDArray[np.uint8]:
    """The whole UB as bytes."""
    return array_at(core.ub, core.ub_bytes, np.uint8)


@njit
def gm_bytes(tensor: GlobalTensor) -> NDArray[np.uint8]:
    """A GM allocation as bytes."""
    return array_at(tensor.host, tensor.count * tensor.itemsize, np.uint8)


@njit
def at(tensor: LocalTensor, offset_bytes: int) -> LocalTensor:
    """The same buffer seen from ``offset_bytes`` further on."""
    return LocalTensor(tensor.address + offset_bytes, tensor.start, tensor.size, tensor.buffer)


@njit
def set_tile(core: Core, tile: int) -> None:
    """Mark the events that follow with a tile number (-1: none)."""
    state_of(core)[TILE] = tile
