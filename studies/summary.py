"""What one plan or one run did, as plain records: everything a report shows, before it is formatted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from emulator.launch import Run
from emulator.products import Product
from ops.batch_norm_reduce_backward.pipeline import OUTPUTS, BatchNormGrads, BatchNormRun
from ops.exact import Exact, exact_outputs, round_fraction, ulp_error
from ops.operands import Operands
from ops.reduce_sum.geometry import R_SPLIT_N, R_SPLIT_S
from ops.reduce_sum.plan import ReducePlan
from ops.reduce_sum.tiling import CHUNK

PIPES = ("SCALAR", "VECTOR", "MTE2", "MTE3", "SYNC")
"""Pipes instructions are counted by; flags and barriers are SYNC."""
REDUCE_STEP = "ReduceSum"
"""First word of the steps whose cores are those of the plan."""


@dataclass(frozen=True, kw_only=True)
class CoreWork:
    """One core of the ReduceSum kernel. Ranges are half-open."""

    core: int
    channels: tuple[int, int]
    a_tiles: tuple[int, int]
    r_tiles: tuple[int, int]
    elements: int
    """Elements of one operand it reads."""
    instructions: Mapping[str, int]
    """By pipe, over both ReduceSum launches; empty when no instructions were executed."""
    partials: Mapping[str, tuple[float, ...]]
    """sum_dy and sum_dy_x (fp32) of its channels; empty in a plan."""


@dataclass(frozen=True, kw_only=True)
class CombineWork:
    """Channels one core adds up from the workspace in the second stage of a group reduce (reduce_spec 4.5)."""

    core: int
    channels: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """A tiling in the words of a report."""

    product: Product
    shape: tuple[int, ...]
    canonical_shape: tuple[int, ...]
    pattern: str
    channels: int
    elements_per_channel: int
    a_tiles: int
    unit_a: int
    """Channels of an A tile."""
    r_tiles: int
    unit_r: int
    r_split: Literal["none", "N", "spatial"]
    """What the R tiles split; ``unit_r`` counts batch rows or spatial elements of one row."""
    r_tile_elements: int
    """Elements of one channel in a full R tile."""
    factor_a: int
    factor_r: int
    group_r: int
    cores: int
    cores_available: int
    least_elements: int
    most_elements: int
    """Elements of one operand the least and the most loaded core read."""
    ub_buffers: tuple[tuple[str, int], ...]
    ub_used_bytes: int
    ub_bytes: int
    workspace_bytes: int
    system_workspace_bytes: int
    tiling_data: Mapping[str, Any]
    work: tuple[CoreWork, ...]
    combine: tuple[CombineWork, ...]
    """Empty when there is no group reduce."""


@dataclass(frozen=True, kw_only=True)
class InputSummary:
    """The operands. Ratios are |mean| / sigma over the channels where it is finite, with sigma = 1 / invstd."""

    name: str
    path: str | None
    shape: tuple[int, ...]
    dtype: str
    elements: int
    channels: int
    least_ratio: float | None
    largest_ratio: float | None
    largest_ratio_channel: int | None
    notes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LaunchWork:
    """One kernel launch, summed over its blocks."""

    step: str
    kernel: str
    blocks: int
    instructions: Mapping[str, int]
    bytes_in: int
    bytes_out: int
    """Bytes MTE2 moved into UB and MTE3 moved out of it."""
    sync_rounds: int
    ub_used_bytes: int


@dataclass(frozen=True, kw_only=True)
class OutputSummary:
    """One output beside the exact result of its first channels; everything None where it is masked off."""

    name: str
    dtype: str
    values: tuple[float, ...] | None
    exact: tuple[Exact, ...] | None
    rounded: tuple[float, ...] | None
    """The exact values rounded once to ``dtype``."""
    error_ulp: tuple[float, ...] | None
    """Distance of the values from the exact ones, in units in the last place of ``dtype``."""
    largest_error_ulp: float | None
    largest_error_channel: int | None


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run of the operator."""

    product: Product
    engine: str
    algorithm: str
    schedule: str
    notes: tuple[str, ...]
    input: InputSummary
    out_dtype: str
    plan: PlanSummary | None
    """None for empty operands: nothing is launched. Its ``work`` holds what each core did."""
    launches: tuple[LaunchWork, ...]
    outputs: tuple[OutputSummary, ...]
    exact_channels: int
    """Channels compared with exact results, from channel 0 on."""
    seconds: float
    """Of the operator itself."""


def summarize_plan(plan: ReducePlan, run: BatchNormRun | None = None) -> PlanSummary:
    """The plan; with ``run``, also the instructions and partial sums of every core."""
    g, t = plan.geometry, plan.tiling
    work = tuple(_core_work(plan, run))
    split: Literal["none", "N", "spatial"] = "none"
    tile = t.canonical.reduce_count
    if g is not None and g.split == R_SPLIT_N:
        split, tile = "N", g.r_step * g.s
    elif g is not None and g.split == R_SPLIT_S:
        split, tile = "spatial", g.r_step
    buffers = plan.ub_buffers()
    return PlanSummary(
        product=plan.product,
        shape=plan.shape,
        canonical_shape=plan.canonical_shape,
        pattern=plan.pattern,
        channels=plan.channels,
        elements_per_channel=t.canonical.reduce_count,
        a_tiles=t.unit_a.outer,
        unit_a=plan.unit_a,
        r_tiles=t.unit_r.outer,
        unit_r=plan.unit_r,
        r_split=split,
        r_tile_elements=tile,
        factor_a=t.factor_a,
        factor_r=t.factor_r,
        group_r=plan.group_r,
        cores=plan.cores,
        cores_available=plan.product.vector_cores,
        least_elements=min(w.elements for w in work),
        most_elements=max(w.elements for w in work),
        ub_buffers=buffers,
        ub_used_bytes=sum(size for _, size in buffers),
        ub_bytes=plan.product.ub_bytes,
        workspace_bytes=plan.workspace_bytes,
        system_workspace_bytes=plan.product.system_workspace_bytes,
        tiling_data=plan.tiling_data(),
        work=work,
        combine=combine_work(plan.channels, plan.cores) if plan.group_r > 1 else (),
    )


def combine_work(channels: int, cores: int) -> tuple[CombineWork, ...]:
    """Who adds which channels in the second stage: chunks of 64 outputs, dealt out in runs of equal length."""
    chunks = -(-channels // CHUNK)
    per_core = -(-chunks // cores)
    step = per_core * CHUNK
    return tuple(
        CombineWork(core=core, channels=(first, min(first + step, channels)))
        for core, first in enumerate(range(0, channels, step))
    )


def _core_work(plan: ReducePlan, run: BatchNormRun | None) -> list[CoreWork]:
    launches = [] if run is None else [r for step, r in run.launches if step.startswith(REDUCE_STEP)]
    counts = [launch.instructions_by_pipe() for launch in launches]
    partials = {} if run is None else run.partials
    return [
        CoreWork(
            core=share.core,
            channels=share.channels,
            a_tiles=share.a_tiles,
            r_tiles=share.r_tiles,
            elements=share.elements,
            instructions={p: sum(int(c[p][share.core]) for c in counts) for p in PIPES} if counts else {},
            partials={
                name: tuple(rows[share.core % plan.group_r, slice(*share.channels)].tolist())
                for name, rows in partials.items()
            },
        )
        for share in plan.shares()
    ]


def summarize_input(operands: Operands) -> InputSummary:
    """Shape, dtype and the range of |mean| / sigma, on which the error of the uncentred formula depends."""
    with np.errstate(all="ignore"):
        ratios = np.abs(operands.mean.astype(np.float64) * operands.invstd.astype(np.float64))
    finite = np.flatnonzero(np.isfinite(ratios))
    peak = int(finite[np.argmax(ratios[finite])]) if finite.size else None
    return InputSummary(
        name=operands.name,
        path=None if operands.path is None else str(operands.path),
        shape=operands.input.shape,
        dtype=str(operands.input.dtype),
        elements=operands.input.size,
        channels=operands.input.shape[1],
        least_ratio=float(ratios[finite].min()) if finite.size else None,
        largest_ratio=None if peak is None else float(ratios[peak]),
        largest_ratio_channel=peak,
        notes=dict(operands.notes),
    )


def summarize_launch(step: str, run: Run) -> LaunchWork:
    """One launch, summed over its blocks."""
    moved = run.bytes_by_pipe()
    return LaunchWork(
        step=step,
        kernel=run.kernel,
        blocks=run.blocks,
        instructions={pipe: int(n.sum()) for pipe, n in run.instructions_by_pipe().items()},
        bytes_in=int(moved["MTE2"].sum()),
        bytes_out=int(moved["MTE3"].sum()),
        sync_rounds=run.sync_rounds,
        ub_used_bytes=run.ub_used_bytes,
    )


def summarize_outputs(operands: Operands, grads: BatchNormGrads, channels: int) -> tuple[OutputSummary, ...]:
    """The four outputs, the first ``channels`` of them beside the exact results."""
    exact = exact_outputs(
        operands.grad_out[:, :channels],
        operands.input[:, :channels],
        operands.mean[:channels],
        operands.invstd[:channels],
    )
    return tuple(_output(name, grads.run.out_dtype, getattr(grads, name), exact[name]) for name in OUTPUTS)


def _output(name: str, dtype: str, values: Any, exact: list[Exact]) -> OutputSummary:
    if values is None:
        return OutputSummary(
            name=name,
            dtype=dtype,
            values=None,
            exact=None,
            rounded=None,
            error_ulp=None,
            largest_error_ulp=None,
            largest_error_channel=None,
        )
    errors = ulp_error(values[: len(exact)], exact, dtype)
    with np.errstate(invalid="ignore"):
        plain = values.astype(np.float64).tolist()
    return OutputSummary(
        name=name,
        dtype=dtype,
        values=tuple(plain),
        exact=tuple(exact),
        rounded=tuple(float(round_fraction(value, dtype)) for value in exact),
        error_ulp=tuple(errors.tolist()),
        largest_error_ulp=float(errors.max()),
        largest_error_channel=int(errors.argmax()),
    )


def summarize_run(operands: Operands, grads: BatchNormGrads, *, exact_channels: int | None = None) -> RunSummary:
    """All of a run. ``exact_channels``: how many channels to compare with exact results, by default all."""
    run = grads.run
    total = operands.input.shape[1]
    compared = total if exact_channels is None else max(1, min(exact_channels, total))
    return RunSummary(
        product=run.product,
        engine=run.engine,
        algorithm=run.algorithm,
        schedule=run.schedule,
        notes=run.notes,
        input=summarize_input(operands),
        out_dtype=run.out_dtype,
        plan=None if run.plan is None else summarize_plan(run.plan, run),
        launches=tuple(summarize_launch(step, launch) for step, launch in run.launches),
        outputs=summarize_outputs(operands, grads, compared),
        exact_channels=compared,
        seconds=run.seconds,
    )
