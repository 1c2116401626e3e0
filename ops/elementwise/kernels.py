"""Element-wise kernels in Ascend instructions: Mul, Cast, SyncBatchNormBackwardReduce.

Each core walks its elements tile by tile: copy in, compute, copy out; with two buffers the copies of one tile
overlap the sums of the other.
"""

from __future__ import annotations

from emulator.core import Core, GlobalTensor, LocalTensor, set_tile
from emulator.isa import (
    MTE2_V,
    MTE3_V,
    NO_PAD,
    PIPE_V,
    V_MTE2,
    V_MTE3,
    CopyParams,
    cast,
    data_copy_pad_in,
    data_copy_pad_out,
    init_buffer,
    mul,
    pipe_barrier,
    set_flag,
    sub,
    wait_flag,
)
from emulator.jit import aicore, njit
from emulator.launch import kernel
from ops.elementwise.tiling import ElementwiseTiling

RINT = 1
"""Cast mode of every narrowing cast (reduce_spec 1.5)."""


@njit
def share(core: Core, t: ElementwiseTiling) -> tuple[int, int]:
    """First element and the one past the last of this core."""
    first = core.index * t.per_core
    return first, t.count if core.index == core.blocks - 1 else first + t.per_core


@aicore
def copy_in(core: Core, dst: LocalTensor, src: GlobalTensor, offset: int, count: int) -> None:
    """``count`` elements of GM to UB."""
    data_copy_pad_in(core, dst, src, offset, CopyParams(1, count * src.itemsize, 0, 0), NO_PAD)


@aicore
def copy_out(core: Core, dst: GlobalTensor, offset: int, src: LocalTensor, count: int) -> None:
    """``count`` elements of UB to GM."""
    data_copy_pad_out(core, dst, offset, src, CopyParams(1, count * dst.itemsize, 0, 0))


@aicore
def begin(core: Core, tile: int, buffers: int) -> None:
    """Before tile ``tile`` is copied in: the vector unit is done with the buffers."""
    set_tile(core, tile)
    if tile >= buffers:
        wait_flag(core, V_MTE2, tile % buffers)


@aicore
def loaded(core: Core, tile: int, buffers: int) -> None:
    """Before tile ``tile`` is computed: it has arrived, and the output buffers are free."""
    set_flag(core, MTE2_V, tile % buffers)
    wait_flag(core, MTE2_V, tile % buffers)
    if tile >= buffers:
        wait_flag(core, MTE3_V, tile % buffers)


@aicore
def computed(core: Core, tile: int, buffers: int) -> None:
    """Before tile ``tile`` is copied out."""
    set_flag(core, V_MTE2, tile % buffers)
    set_flag(core, V_MTE3, tile % buffers)
    wait_flag(core, V_MTE3, tile % buffers)


@aicore
def finish(core: Core, tiles: int, buffers: int) -> None:
    """After the last tile: clear the flags still set."""
    for tile in range(max(tiles - buffers, 0), tiles):
        wait_flag(core, V_MTE2, tile % buffers)
        wait_flag(core, MTE3_V, tile % buffers)


@kernel(buffers=("a0", "b0", "out0", "a1", "b1", "out1"), writes=("out",))
def mul_fp32(core: Core, a: GlobalTensor, b: GlobalTensor, out: GlobalTensor, t: ElementwiseTiling) -> None:
    """out[i] = a[i] * b[i], one rounding."""
    a0, b0, out0 = init_buffer(core, 4 * t.tile), init_buffer(core, 4 * t.tile), init_buffer(core, 4 * t.tile)
    a1, b1, out1 = a0, b0, out0
    if t.buffers == 2:
        a1, b1, out1 = init_buffer(core, 4 * t.tile), init_buffer(core, 4 * t.tile), init_buffer(core, 4 * t.tile)
    first, last = share(core, t)
    tile = 0
    for offset in range(first, last, t.tile):
        count = min(t.tile, last - offset)
        one = tile % 2 == 1
        src0, src1, dst = (a1, b1, out1) if one else (a0, b0, out0)
        begin(core, tile, t.buffers)
        copy_in(core, src0, a, offset, count)
        copy_in(core, src1, b, offset, count)
        loaded(core, tile, t.buffers)
        mul(core, dst, src0, src1, count)
        computed(core, tile, t.buffers)
        copy_out(core, out, offset, dst, count)
        set_flag(core, MTE3_V, tile % t.buffers)
        tile += 1
    finish(core, tile, t.buffers)


@kernel(buffers=("in0", "out0", "in1", "out1"), writes=("out",))
def cast_tensor(core: Core, x: GlobalTensor, out: GlobalTensor, pair: int, t: ElementwiseTiling) -> None:
    """out[i] = x[i] in another format; ``pair`` as the Cast instruction has it."""
    in0, out0 = init_buffer(core, x.itemsize * t.tile), init_buffer(core, out.itemsize * t.tile)
    in1, out1 = in0, out0
    if t.buffers == 2:
        in1, out1 = init_buffer(core, x.itemsize * t.tile), init_buffer(core, out.itemsize * t.tile)
    first, last = share(core, t)
    tile = 0
    for offset in range(first, last, t.tile):
        count = min(t.tile, last - offset)
        src, dst = (in1, out1) if tile % 2 == 1 else (in0, out0)
        begin(core, tile, t.buffers)
        copy_in(core, src, x, offset, count)
        loaded(core, tile, t.buffers)
        cast(core, dst, src, pair, RINT, count)
        computed(core, tile, t.buffers)
        copy_out(core, out, offset, dst, count)
        set_flag(core, MTE3_V, tile % t.buffers)
        tile += 1
    finish(core, tile, t.buffers)


@kernel(
    buffers=(
        "sumDyF", "sumDyXF", "meanF", "invstdF", "sumDy0", "sumDyX0", "mean0", "invstd0", "xmu0", "y0",
        "sumDy1", "sumDyX1", "mean1", "invstd1", "xmu1", "y1",
    ),
    writes=("sum_dy_xmu", "y"),
)  # fmt: skip
def sync_batch_norm_backward_reduce(
    core: Core,
    sum_dy: GlobalTensor,
    sum_dy_dx_pad: GlobalTensor,
    mean: GlobalTensor,
    invert_std: GlobalTensor,
    sum_dy_xmu: GlobalTensor,
    y: GlobalTensor,
    to_float: int,
    from_float: int,
    t: ElementwiseTiling,
) -> None:
    """t = mean * sumDy; sumDyXmu = sumDyX - t; y = sumDyXmu * invertStd: three fp32 roundings, then the cast.

    to_float, from_float: Cast pairs for 16-bit tensors, -1 for fp32. (reduce_spec 1.4)
    """
    f0, f1 = init_buffer(core, 4 * t.tile), init_buffer(core, 4 * t.tile)
    f2, f3 = init_buffer(core, 4 * t.tile), init_buffer(core, 4 * t.tile)
    size = sum_dy.itemsize * t.tile
    a0, b0, c0 = init_buffer(core, size), init_buffer(core, size), init_buffer(core, size)
    d0, e0, g0 = init_buffer(core, size), init_buffer(core, size), init_buffer(core, size)
    a1, b1, c1, d1, e1, g1 = a0, b0, c0, d0, e0, g0
    if t.buffers == 2:
        a1, b1, c1 = init_buffer(core, size), init_buffer(core, size), init_buffer(core, size)
        d1, e1, g1 = init_buffer(core, size), init_buffer(core, size), init_buffer(core, size)
    first, last = share(core, t)
    tile = 0
    for offset in range(first, last, t.tile):
        count = min(t.tile, last - offset)
        one = tile % 2 == 1
        a, b, c, d = (a1, b1, c1, d1) if one else (a0, b0, c0, d0)
        xmu_out, y_out = (e1, g1) if one else (e0, g0)
        begin(core, tile, t.buffers)
        copy_in(core, a, sum_dy, offset, count)
        copy_in(core, b, sum_dy_dx_pad, offset, count)
        copy_in(core, c, mean, offset, count)
        copy_in(core, d, invert_std, offset, count)
        loaded(core, tile, t.buffers)
        if to_float >= 0:
            cast(core, f0, a, to_float, 0, count)
            cast(core, f1, b, to_float, 0, count)
            cast(core, f2, c, to_float, 0, count)
            cast(core, f3, d, to_float, 0, count)
            pipe_barrier(core, PIPE_V)
            mul(core, f0, f2, f0, count)
            pipe_barrier(core, PIPE_V)
            sub(core, f1, f1, f0, count)
            pipe_barrier(core, PIPE_V)
            mul(core, f3, f1, f3, count)
            pipe_barrier(core, PIPE_V)
            cast(core, xmu_out, f1, from_float, RINT, count)
            cast(core, y_out, f3, from_float, RINT, count)
        else:
            mul(core, f0, c, a, count)
            pipe_barrier(core, PIPE_V)
            sub(core, xmu_out, b, f0, count)
            pipe_barrier(core, PIPE_V)
            mul(core, y_out, xmu_out, d, count)
        computed(core, tile, t.buffers)
        copy_out(core, sum_dy_xmu, offset, xmu_out, count)
        copy_out(core, y, offset, y_out, count)
        set_flag(core, MTE3_V, tile % t.buffers)
        tile += 1
    finish(core, tile, t.buffers)


@njit(nogil=True)
def three_steps(sum_dy, sum_dy_x, mean, invstd, xmu, y):  # type: ignore[no-untyped-def]
    """The same three fp32 roundings on (n,) fp32 arrays, for the fast engine."""
    for i in range(xmu.size):
        t = mean[i] * sum_dy[i]
        xmu[i] = sum_dy_x[i] - t
        y[i] = xmu[i] * invstd[i]
