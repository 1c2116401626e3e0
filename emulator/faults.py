"""Wording of what a kernel did wrong: what, where, got, limit, remedy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.core import (
    BUFFER_TABLE,
    EVENT_ROWS,
    FAULT,
    FAULT_ADDRESS,
    FAULT_BUFFER,
    FAULT_BYTES,
    FAULT_LIMIT,
    FAULT_LINE,
    FAULT_OPCODE,
    FLAGS,
    HARD_EVENTS,
    MAX_BUFFERS,
    GlobalTensor,
)
from emulator.errors import EmulatorError
from emulator.isa import operands
from emulator.isa.sync import HardEvent
from emulator.isa.table import INSTRUCTIONS
from emulator.products import Product

if TYPE_CHECKING:
    from emulator.launch import Kernel


class KernelFault(EmulatorError):
    """An instruction was refused. The message names instruction, kernel, source line, core, buffer and limits."""


class HangError(EmulatorError):
    """Cores wait at a meeting point that others never reach."""


def buffer_name(kernel: Kernel, number: int) -> str:
    """Name of the buffer ``init_buffer`` handed out as number ``number``."""
    return kernel.buffers[number] if 0 <= number < len(kernel.buffers) else f"buffer{number}"


def _global_name(kernel: Kernel, args: tuple[Any, ...], address: int) -> str:
    for name, argument in zip(kernel.arguments, args, strict=True):
        if isinstance(argument, GlobalTensor) and argument.address == address:
            return name
    return f"GM 0x{address:x}"


def kernel_fault(
    kernel: Kernel, index: int, state: NDArray[np.int64], args: tuple[Any, ...], product: Product
) -> KernelFault:
    """The error for the fault noted in the state of core ``index``."""
    buffers = state[BUFFER_TABLE : BUFFER_TABLE + 2 * MAX_BUFFERS].reshape(-1, 2)
    code, opcode, line, number, address, nbytes, limit = (
        int(state[i]) for i in (FAULT, FAULT_OPCODE, FAULT_LINE, FAULT_BUFFER, FAULT_ADDRESS, FAULT_BYTES, FAULT_LIMIT)
    )
    row = INSTRUCTIONS[opcode]
    where = f"{row.ascend_c} ({row.name}) in kernel {kernel.name}, {os.path.basename(kernel.path)}:{line}, core {index}"
    name = buffer_name(kernel, number)
    used = int(buffers[:, 1].sum())
    if code == operands.OUT_OF_BUFFER:
        start = int(buffers[number, 0])
        what = (
            f"bytes {address}..{address + nbytes - 1} of the UB lie outside buffer {name} "
            f"({start}..{start + limit - 1}, {limit} B, UB capacity {product.ub_bytes} B); size {nbytes} B; "
            f"shorten the access or give {name} more room"
        )
    elif code == operands.UNALIGNED:
        what = (
            f"UB address {address} in buffer {name} is not a multiple of {limit} (size {nbytes} B, UB capacity "
            f"{product.ub_bytes} B); start the access on a {limit}-byte boundary"
        )
    elif code == operands.UB_FULL:
        live = ", ".join(
            f"{buffer_name(kernel, i)} {int(size)} B at {int(start)}" for i, (start, size) in enumerate(buffers) if size
        )
        what = (
            f"buffer {name} asks for {nbytes} B at UB address {address}, but {used} B of {limit} B are taken "
            f"({live or 'nothing'}); make the tile smaller"
        )
    elif code == operands.TOO_MANY_BUFFERS:
        what = (
            f"buffer {name} at UB address {address}, {nbytes} B, would be number {number + 1}; allowed: {limit} buffers"
        )
    elif code == operands.OUT_OF_GM:
        what = (
            f"bytes {number}..{nbytes - 1} of {_global_name(kernel, args, address)} in global memory are outside "
            f"its {limit} B; check the offset and the row count"
        )
    elif code == operands.BAD_REPEAT:
        what = (
            f"got {nbytes} for a repeat count, mask, stride, row count or row length (buffer {name}, UB address "
            f"{address}); allowed: at most {limit}"
        )
    elif code == operands.PARTIAL_OVERLAP:
        what = (
            f"dst (buffer {name}, UB {address}..{address + nbytes - 1}) overlaps a source at UB {limit} partly; "
            f"operands must coincide or be apart"
        )
    elif code in (operands.FLAG_SET_TWICE, operands.FLAG_NOT_SET):
        event = f"HardEvent {HardEvent(address).name} id {nbytes}"
        what = (
            f"{event} is set already and nothing waited for it: pair every SetFlag with one WaitFlag"
            if code == operands.FLAG_SET_TWICE
            else f"{event} was never set: the wait would hang; set it first"
        )
    elif code == operands.BAD_EVENT_ID:
        what = f"event id {nbytes} of HardEvent {HardEvent(address).name}; allowed: 0 to {limit - 1} on {product.name}"
    elif code == operands.BAD_CAST:
        what = f"rounding mode {nbytes} for pair {limit}; allowed: modes 0 to 6 (CAST_NONE to CAST_ODD), pairs 0 to 3"
    else:
        what = (
            f"a count of {nbytes} B at UB address {address} of buffer {name}; allowed: 0 to {limit} B, in whole "
            f"32-byte blocks where the instruction asks for them"
        )
    return KernelFault(f"{where}: {what}")


def check_flags(kernel: Kernel, index: int, state: NDArray[np.int64]) -> None:
    """A flag still set at the end of a kernel leaks into the next one (asc-devkit, SetFlag/WaitFlag)."""
    for event, event_id in np.argwhere(state[FLAGS : FLAGS + HARD_EVENTS * EVENT_ROWS].reshape(-1, EVENT_ROWS)):
        raise KernelFault(
            f"kernel {kernel.name}, core {index}: HardEvent {HardEvent(event).name} id {event_id} is still set "
            f"at the end and would leak into the next kernel; add the WaitFlag that belongs to it"
        )


def check_meeting(kernel: Kernel, blocks: int, finished: set[int], product: Product) -> None:
    """SyncAll needs every core, and all of them on the chip at once."""
    if finished:
        waiting = [i for i in range(blocks) if i not in finished]
        raise HangError(
            f"kernel {kernel.name}: cores {waiting[:8]} wait at SyncAll for cores {sorted(finished)[:8]}, which have "
            f"ended; every core must reach SyncAll equally often"
        )
    if blocks > product.vector_cores:
        raise HangError(
            f"kernel {kernel.name}: SyncAll with {blocks} blocks; {product.name} runs {product.vector_cores} at once, "
            f"so the rest never start; launch at most {product.vector_cores} blocks"
        )
