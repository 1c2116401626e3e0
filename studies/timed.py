"""The operator's time on a shape: every kernel launched on empty tensors, its events timed, in bounded memory.

A core that would walk more tiles than `TILES_KEPT` is run on fewer, twice, and the rest is added at the time each
further tile took: tiles are alike, so their times repeat. Such a step says so (`TimedStep.repeated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator import products
from emulator.errors import EmulatorError
from emulator.launch import Run, launch
from emulator.memory import GlobalMemory
from emulator.products import Product
from emulator.timing import Timeline, time_run
from ops.batch_norm_reduce_backward.checks import dtype_name
from ops.batch_norm_reduce_backward.pipeline import FROM_FLOAT, TO_FLOAT
from ops.elementwise import kernels
from ops.elementwise.tiling import ElementwiseTiling, tile_elementwise
from ops.reduce_sum.geometry import R_SPLIT_N, R_SPLIT_S, Geometry, make_geometry
from ops.reduce_sum.kernel import copy_channels, reduce_sum
from ops.reduce_sum.plan import ReducePlan, plan_reduce_sum

TILES_KEPT = 32
"""Tiles per core that are simulated at most."""
PS_PER_US = 1e6


@dataclass(frozen=True, kw_only=True)
class TimedStep:
    """One kernel launch. ``tiles``: per core, of the real run and simulated; equal unless times are repeated."""

    name: str
    timeline: Timeline
    task_us: float
    tiles: int
    simulated: int

    @property
    def repeated(self) -> bool:
        """Whether the time rests on repetition."""
        return self.tiles > self.simulated

    @property
    def scale(self) -> float:
        """Time of the real run over that of the simulated one."""
        return self.task_us / self.timeline.task_us


@dataclass(frozen=True, kw_only=True)
class TimedOperator:
    """All launches of the operator on one shape, one after another."""

    shape: tuple[int, ...]
    product: Product
    plan: ReducePlan
    double_buffer: bool
    steps: tuple[TimedStep, ...]
    notes: tuple[str, ...]

    @property
    def task_us(self) -> float:
        """Sum over the launches (the queue between them is not modelled)."""
        return sum(s.task_us for s in self.steps)


def timed_operator(
    shape: Sequence[int],
    *,
    product: Product | str = products.DEFAULT_PRODUCT,
    dtype: str = "float32",
    double_buffer: bool = True,
    changes: Mapping[str, float] | None = None,
) -> TimedOperator:
    """Time aclnnBatchNormReduceBackward on tensors of ``shape`` (rank 2 to 8, no values needed).

    dtype: of gradOut, input and the outputs, as the product has it; mean and invstd are fp32. 16-bit tensors add
    the Cast launches.

    changes: what-if numbers of the timing model. Tensors start in HBM; what one launch leaves in L2 the next finds
    there when the operator's three large tensors fit together. Raises EmulatorError.
    """
    chip = products.get(product)
    plan = plan_reduce_sum(shape, product=chip)
    count = int(np.prod(plan.shape, dtype=object))
    if count >= 1 << 40:
        raise EmulatorError(f"shape: got {count} elements; allowed: fewer than {1 << 40}; time a smaller tensor")
    warm = 3 * 4 * count <= chip.l2_bytes
    mul = _timed_mul(count, chip, double_buffer, changes, drains=not warm)
    steps = [mul]
    name16 = dtype_name(dtype, "dtype", chip)
    if name16 != "float32":
        casts = [_timed_cast(f"Cast {n}", count, TO_FLOAT[name16], 2, 4, chip, changes) for n in ("gradOut", "input")]
        steps = [*casts, mul]
    for name in ("sum_dy_x", "sum_dy"):
        steps.append(_timed_reduce(f"ReduceSum {name}", plan, double_buffer, changes, warm))
    steps.append(_timed_last(plan.channels, chip, changes))
    if name16 != "float32":
        for n in ("sumDy", "sumDyXmu", "gradWeight", "gradBias"):
            steps.append(_timed_cast(f"Cast {n}", plan.channels, FROM_FLOAT[name16], 4, 2, chip, changes))
    notes = [f"{chip.name}: addition order {chip.fidelity}; times are modelled, not measured"]
    notes.append(f"gradOut and input are {name16}, mean and invstd float32")
    if any(s.repeated for s in steps):
        some = ", ".join(f"{s.name} {s.simulated} of {s.tiles} tiles per core" for s in steps if s.repeated)
        notes.append(f"times come from repetition of identical tiles: {some}")
    if warm:
        notes.append("gradOut, input and their product fit in L2 together: ReduceSum reads from L2")
    if not double_buffer:
        notes.append("double buffering is off")
    return TimedOperator(
        shape=plan.shape, product=chip, plan=plan, double_buffer=double_buffer, steps=tuple(steps), notes=tuple(notes)
    )


def _tensors(**sizes: int) -> tuple[GlobalMemory, list[Any]]:
    gm = GlobalMemory()
    return gm, [gm.bind(name, np.zeros(max(size, 1), np.float32)) for name, size in sizes.items()]


def _extrapolate(
    name: str, tiles: int, kept: int, half: int, make: Any, changes: Mapping[str, float] | None, **options: Any
) -> TimedStep:
    """Time ``make(kept)``; when there are more ``tiles``, ``make(half)`` as well, and add the rest in proportion."""
    run: Run = make(kept)
    timeline = time_run(run, changes=changes, **options)
    task = timeline.task_us
    if tiles > kept:
        other = time_run(make(half), changes=changes, **options)
        task += (tiles - kept) * max(task - other.task_us, 0.0) / (kept - half)
    return TimedStep(name=name, timeline=timeline, task_us=task, tiles=tiles, simulated=min(tiles, kept))


def _timed_mul(
    count: int, chip: Product, double_buffer: bool, changes: Mapping[str, float] | None, drains: bool
) -> TimedStep:
    tiling = tile_elementwise(count, 4, 3, 0, chip)
    if not double_buffer:
        tiling = tiling._replace(buffers=1)
    tiles = -(-tiling.per_core // tiling.tile)

    def make(kept: int) -> Run:
        t = tiling
        if kept < tiles:
            per_core = kept * tiling.tile
            t = ElementwiseTiling(per_core * tiling.cores, tiling.cores, per_core, tiling.tile, tiling.buffers)
        _, (a, b, out) = _tensors(gradOut=t.count, input=t.count, product=t.count)
        return launch(kernels.mul_fp32, t.cores, a, b, out, t, product=chip, events=True)

    kept = min(tiles, TILES_KEPT)
    return _extrapolate("Mul", tiles, kept, kept // 2, make, changes, drains=drains)


def _timed_cast(
    name: str, count: int, pair: int, itemsize: int, out_itemsize: int, chip: Product,
    changes: Mapping[str, float] | None,
) -> TimedStep:  # fmt: skip
    tiling = tile_elementwise(count, 4, 2, 0, chip)
    tiles = -(-tiling.per_core // tiling.tile)

    def make(kept: int) -> Run:
        t = tiling
        if kept < tiles:
            per_core = kept * tiling.tile
            t = ElementwiseTiling(per_core * tiling.cores, tiling.cores, per_core, tiling.tile, tiling.buffers)
        gm = GlobalMemory()
        tensors = [
            gm.bind(n, np.zeros(t.count, np.float32 if size == 4 else np.uint16))
            for n, size in (("x", itemsize), ("out", out_itemsize))
        ]
        return launch(kernels.cast_tensor, t.cores, *tensors, pair, t, product=chip, events=True)

    kept = min(tiles, TILES_KEPT)
    return _extrapolate(name, tiles, kept, kept // 2, make, changes)


def _timed_last(channels: int, chip: Product, changes: Mapping[str, float] | None) -> TimedStep:
    tiling = tile_elementwise(channels, 4, 6, 4, chip)
    names = ("sum_dy", "sum_dy_dx_pad", "mean", "invert_std", "sum_dy_xmu", "y")
    _, tensors = _tensors(**dict.fromkeys(names, channels))
    run = launch(
        kernels.sync_batch_norm_backward_reduce, tiling.cores, *tensors, -1, -1, tiling, product=chip, events=True
    )
    timeline = time_run(run, changes=changes, resident=("sum_dy", "sum_dy_dx_pad"))
    tiles = -(-tiling.per_core // tiling.tile)
    return TimedStep(
        name="SyncBatchNormBackwardReduce", timeline=timeline, task_us=timeline.task_us, tiles=tiles, simulated=tiles
    )


def _timed_reduce(
    name: str, plan: ReducePlan, double_buffer: bool, changes: Mapping[str, float] | None, warm: bool
) -> TimedStep:
    chip = plan.product
    resident = ("x",) if warm else ()
    if plan.geometry is None:
        _, (x, out) = _tensors(x=plan.channels, out=plan.channels)
        run = launch(copy_channels, plan.cores, x, out, plan.unit_a, plan.tiling.factor_a, product=chip, events=True)
        timeline = time_run(run, changes=changes, resident=resident)
        tiles = plan.tiling.factor_a
        return TimedStep(name=name, timeline=timeline, task_us=timeline.task_us, tiles=tiles, simulated=tiles)
    g = make_geometry(plan.tiling, double_buffer=double_buffer)
    tiles = g.factor_a * g.factor_r
    sizes = _sizes(g)

    def make(kept: int) -> Run:
        small = _shrink(g, plan.cores, kept, sizes)
        row = -(-small.c // 64) * 64
        workspace = small.group_r * row if small.group_r > 1 else 1
        _, (x, out, ws) = _tensors(x=small.n * small.c * small.s, out=small.c, workspace=workspace)
        return launch(reduce_sum, plan.cores, x, out, ws, small, product=chip, events=True)

    kept, half = sizes
    return _extrapolate(name, tiles, kept, half, make, changes, resident=resident)


def _sizes(g: Geometry) -> tuple[int, int]:
    """Tiles per core to simulate, and half as many (halved on the axis that was cut)."""
    a, r = _kept(g)
    if a * r == g.factor_a * g.factor_r:
        return a * r, a * r
    return (a * r, a * r // 2) if r > 1 or a > 1 else (1, 1)


def _kept(g: Geometry) -> tuple[int, int]:
    """A tiles and R tiles per core to simulate: powers of two where cut."""
    r = g.factor_r if g.factor_r <= TILES_KEPT else TILES_KEPT
    room = max(2, TILES_KEPT // r)
    a = g.factor_a if g.factor_a <= room else room // 2 * 2
    return a, r


def _shrink(g: Geometry, cores: int, kept: int, sizes: tuple[int, int]) -> Geometry:
    """The same tiles, fewer of them: ``kept`` (one of ``sizes``) per core."""
    a, r = _kept(g)
    if a * r == g.factor_a * g.factor_r:
        return g
    if kept == sizes[1] and sizes[1] < sizes[0]:
        if a < g.factor_a:
            a //= 2
        else:
            r //= 2
    if a < g.factor_a:
        a_tiles = a * (cores // g.group_r)
        g = g._replace(a_tiles=a_tiles, factor_a=a, c=a_tiles * g.a_step)
    if r < g.factor_r:
        wanted = r * g.group_r
        if g.split == R_SPLIT_N:
            g = g._replace(n=wanted * g.r_step, r_tiles=wanted, factor_r=r)
        elif g.split == R_SPLIT_S and g.s_tiles >= wanted:
            g = g._replace(n=1, s=wanted * g.r_step, s_tiles=wanted, r_tiles=wanted, factor_r=r)
        elif g.split == R_SPLIT_S:
            n = -(-wanted // g.s_tiles)
            g = g._replace(n=n, r_tiles=n * g.s_tiles, factor_r=-(-n * g.s_tiles // g.group_r))
    return g
