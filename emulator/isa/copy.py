"""PIPE_MTE2 (GM to UB) and PIPE_MTE3 (UB to GM): copies.

Parameters as in Ascend C: ``block_count`` rows of ``block_len`` bytes; gaps run from the end of a row to the
start of the next, in bytes on the GM side and in 32-byte blocks on the UB side. Limits: asc-devkit,
DataCopy and DataCopyPad pages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.core import (
    BLOCK_BYTES,
    Core,
    GlobalTensor,
    LocalTensor,
    Strides,
    array_at,
    gm_bytes,
    ub_bytes_of,
    ub_f32,
    ub_half,
)
from emulator.events import record
from emulator.isa.operands import BAD_COUNT, BAD_REPEAT, check_global, check_local, fault
from emulator.isa.table import PIPE_MTE2, PIPE_MTE3, SPLIT_ARCHS, Pipe, instruction
from emulator.jit import njit

OP_COPY_IN, OP_COPY_OUT, OP_COPY_PAD_IN, OP_COPY_PAD_OUT, OP_NDDMA_IN = range(13, 18)

MAX_BLOCK_COUNT = 4095
MAX_BLOCK_BYTES = 2097151
MAX_COPY_BLOCKS = 65535


class CopyParams(NamedTuple):
    """DataCopyExtParams: rows, bytes per row, gap between rows (source, destination)."""

    block_count: int
    block_len: int
    src_stride: int
    dst_stride: int


class PadParams(NamedTuple):
    """DataCopyPadExtParams: elements added left and right of each row, and their value.

    With ``is_pad`` 0 nothing is asked for; the filler up to 32 bytes is then the row's first element. For
    2-byte elements the value is the bit pattern.
    """

    is_pad: int
    left: int
    right: int
    value: float


NO_PAD = PadParams(0, 0, 0, 0.0)


@njit
def move(dst: NDArray[np.uint8], d: int, src: NDArray[np.uint8], s: int, nbytes: int) -> None:
    """Copy bytes between memories that do not overlap."""
    to, of = dst[d : d + nbytes], src[s : s + nbytes]
    for i in range(nbytes):
        to[i] = of[i]


@njit
def _fill(core: Core, src: GlobalTensor, row: int, pad: PadParams, first: int, last: int) -> None:
    """Set UB elements first .. last - 1 to the pad value, or to the row's first element."""
    if src.itemsize == 4:
        wide = ub_f32(core)
        wide_value = np.float32(pad.value) if pad.is_pad else array_at(src.host, src.count, np.float32)[row]
        for i in range(first, last):
            wide[i] = wide_value
    else:
        narrow = ub_half(core)
        narrow_value = np.uint16(pad.value) if pad.is_pad else array_at(src.host, src.count, np.uint16)[row]
        for i in range(first, last):
            narrow[i] = narrow_value


@njit
def _check_rows(core: Core, opcode: int, line: int, buffer: int, params: CopyParams, itemsize: int) -> None:
    if params.block_count < 0 or params.block_count > MAX_BLOCK_COUNT:
        fault(core, BAD_REPEAT, opcode, line, buffer, -1, params.block_count, MAX_BLOCK_COUNT)
    if params.block_len < 0 or params.block_len > MAX_BLOCK_BYTES or params.block_len % itemsize:
        fault(core, BAD_REPEAT, opcode, line, buffer, -1, params.block_len, MAX_BLOCK_BYTES)
    if params.src_stride < 0 or params.dst_stride < 0:
        fault(core, BAD_REPEAT, opcode, line, buffer, -1, min(params.src_stride, params.dst_stride), 0)


@njit
def _whole_blocks(core: Core, opcode: int, line: int, buffer: int, nbytes: int) -> None:
    if nbytes % BLOCK_BYTES or nbytes // BLOCK_BYTES > MAX_COPY_BLOCKS:
        fault(core, BAD_COUNT, opcode, line, buffer, -1, nbytes, MAX_COPY_BLOCKS * BLOCK_BYTES)


@instruction(OP_COPY_IN, "DataCopy", "copy_gm_to_ubuf", Pipe.MTE2)
def data_copy_in(core: Core, dst: LocalTensor, src: GlobalTensor, offset: int, count: int, line: int = 0) -> None:
    """UB dst[i] = GM src[offset + i]; count elements make whole 32-byte blocks"""
    size = src.itemsize
    _whole_blocks(core, OP_COPY_IN, line, dst.buffer, count * size)
    check_local(core, OP_COPY_IN, line, dst, count * size, BLOCK_BYTES)
    check_global(core, OP_COPY_IN, line, src, offset, offset + count - 1)
    address = src.address + offset * size
    strides = Strides(0, 0, 0, 0, 0, 0)
    record(core, OP_COPY_IN, PIPE_MTE2, line, dst.address, address, -1, count * size, 1, count * size, -1, strides)
    move(ub_bytes_of(core), dst.address, gm_bytes(src), offset * size, count * size)


@instruction(OP_COPY_OUT, "DataCopy", "copy_ubuf_to_gm", Pipe.MTE3)
def data_copy_out(core: Core, dst: GlobalTensor, offset: int, src: LocalTensor, count: int, line: int = 0) -> None:
    """GM dst[offset + i] = UB src[i]; count elements make whole 32-byte blocks"""
    size = dst.itemsize
    _whole_blocks(core, OP_COPY_OUT, line, src.buffer, count * size)
    check_local(core, OP_COPY_OUT, line, src, count * size, BLOCK_BYTES)
    check_global(core, OP_COPY_OUT, line, dst, offset, offset + count - 1)
    address = dst.address + offset * size
    strides = Strides(0, 0, 0, 0, 0, 0)
    record(core, OP_COPY_OUT, PIPE_MTE3, line, address, src.address, -1, count * size, 1, count * size, -1, strides)
    move(gm_bytes(dst), offset * size, ub_bytes_of(core), src.address, count * size)


@instruction(OP_COPY_PAD_IN, "DataCopyPad", "copy_gm_to_ubuf_align", Pipe.MTE2, SPLIT_ARCHS)
def data_copy_pad_in(
    core: Core,
    dst: LocalTensor,
    src: GlobalTensor,
    offset: int,
    params: CopyParams,
    pad: PadParams,
    line: int = 0,
) -> None:
    """rows of any length from GM, each padded in UB to whole 32-byte blocks"""
    size = src.itemsize
    _check_rows(core, OP_COPY_PAD_IN, line, dst.buffer, params, size)
    if min(pad.left, pad.right) < 0 or max(pad.left, pad.right) * size > BLOCK_BYTES:
        fault(core, BAD_REPEAT, OP_COPY_PAD_IN, line, dst.buffer, dst.address, max(pad.left, pad.right), BLOCK_BYTES)
    count = params.block_len // size
    rows = params.block_count
    width = -(-((count + pad.left + pad.right) * size) // BLOCK_BYTES) * BLOCK_BYTES // size
    pitch = width + params.dst_stride * BLOCK_BYTES // size
    step = count + params.src_stride // size
    if rows > 0 and count > 0:
        check_local(core, OP_COPY_PAD_IN, line, dst, ((rows - 1) * pitch + width) * size, BLOCK_BYTES)
        check_global(core, OP_COPY_PAD_IN, line, src, offset, offset + (rows - 1) * step + count - 1)
    moved = rows * count * size
    strides = Strides(0, 0, 0, params.dst_stride & 0x7FFF, 0, 0)
    record(
        core,
        OP_COPY_PAD_IN,
        PIPE_MTE2,
        line,
        dst.address,
        src.address + offset * size,
        params.src_stride,
        moved,
        rows,
        params.block_len,
        -1,
        strides,
    )
    if count == 0:
        return
    ub, gm = ub_bytes_of(core), gm_bytes(src)
    for r in range(rows):
        d = dst.address // size + r * pitch
        s = offset + r * step
        move(ub, (d + pad.left) * size, gm, s * size, count * size)
        if pad.left > 0 or pad.left + count < width:
            _fill(core, src, s, pad, d, d + pad.left)
            _fill(core, src, s, pad, d + pad.left + count, d + width)


@instruction(OP_COPY_PAD_OUT, "DataCopyPad", "copy_ubuf_to_gm_align", Pipe.MTE3, SPLIT_ARCHS)
def data_copy_pad_out(
    core: Core, dst: GlobalTensor, offset: int, src: LocalTensor, params: CopyParams, line: int = 0
) -> None:
    """rows of any length to GM; each starts on a 32-byte block in UB and exactly block_len bytes arrive"""
    size = dst.itemsize
    _check_rows(core, OP_COPY_PAD_OUT, line, src.buffer, params, size)
    count = params.block_len // size
    rows = params.block_count
    width = -(-params.block_len // BLOCK_BYTES) * BLOCK_BYTES // size
    pitch = width + params.src_stride * BLOCK_BYTES // size
    step = count + params.dst_stride // size
    if rows > 0 and count > 0:
        check_local(core, OP_COPY_PAD_OUT, line, src, ((rows - 1) * pitch + width) * size, BLOCK_BYTES)
        check_global(core, OP_COPY_PAD_OUT, line, dst, offset, offset + (rows - 1) * step + count - 1)
    moved = rows * count * size
    strides = Strides(0, 0, 0, 0, params.src_stride & 0x7FFF, 0)
    record(
        core,
        OP_COPY_PAD_OUT,
        PIPE_MTE3,
        line,
        dst.address + offset * size,
        src.address,
        params.dst_stride,
        moved,
        rows,
        params.block_len,
        -1,
        strides,
    )
    ub, gm = ub_bytes_of(core), gm_bytes(dst)
    for r in range(rows):
        move(gm, (offset + r * step) * size, ub, src.address + r * pitch * size, count * size)


class NddmaParams(NamedTuple):
    """A two-level loop of an NDDMA copy; strides are between starts, in elements."""

    outer: int
    outer_src: int
    outer_dst: int
    inner: int
    inner_src: int
    inner_dst: int
    length: int
    """Contiguous elements of the innermost dimension."""


@instruction(OP_NDDMA_IN, "DataCopy (NDDMA)", "nddma_out_to_ub", Pipe.MTE2, (3510,))
def nddma_copy_in(
    core: Core,
    dst: LocalTensor,
    src: GlobalTensor,
    offset: int,
    params: NddmaParams,
    line: int = 0,
) -> None:
    """nested rows packed without padding; what is left of each outer row (outer_dst elements) is set to 0"""
    size = src.itemsize
    nbytes = params.outer * params.outer_dst * size
    check_local(core, OP_NDDMA_IN, line, dst, nbytes, BLOCK_BYTES)
    last = offset + (params.outer - 1) * params.outer_src + (params.inner - 1) * params.inner_src + params.length - 1
    check_global(core, OP_NDDMA_IN, line, src, offset, last)
    if params.inner * params.inner_dst > params.outer_dst or params.length > params.inner_dst:
        fault(core, BAD_COUNT, OP_NDDMA_IN, line, dst.buffer, dst.address, params.inner_dst, params.outer_dst)
    moved = params.outer * params.inner * params.length * size
    strides = Strides(0, 0, 0, 0, 0, 0)
    record(
        core,
        OP_NDDMA_IN,
        PIPE_MTE2,
        line,
        dst.address,
        src.address + offset * size,
        params.inner_src * size,
        moved,
        params.outer * params.inner,
        params.length * size,
        -1,
        strides,
    )
    ub, gm = ub_bytes_of(core), gm_bytes(src)
    for o in range(params.outer):
        row = dst.address + o * params.outer_dst * size
        ub[row : row + params.outer_dst * size] = 0
        for j in range(params.inner):
            s = offset + o * params.outer_src + j * params.inner_src
            move(ub, row + j * params.inner_dst * size, gm, s * size, params.length * size)
