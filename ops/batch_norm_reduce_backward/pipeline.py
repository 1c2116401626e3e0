"""The operator: Contiguous, Cast, Mul, ReduceSum twice, SyncBatchNormBackwardReduce, Cast (reduce_spec 1.4)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from emulator import formats, products
from emulator.errors import explain
from emulator.isa import BFLOAT16_TO_FLOAT, FLOAT_TO_BFLOAT16, FLOAT_TO_HALF, HALF_TO_FLOAT
from emulator.launch import Progress, Run, launch
from emulator.memory import GlobalMemory
from emulator.products import Product
from emulator.schedule import VENDOR, Schedule
from ops.batch_norm_reduce_backward import contracts
from ops.batch_norm_reduce_backward.checks import check_arguments, dtype_name, plain_array
from ops.elementwise import kernels
from ops.elementwise.tiling import tile_elementwise
from ops.errors import AclnnError
from ops.reduce_sum.fused import fused_sums
from ops.reduce_sum.kernel import copy_channels, reduce_sum
from ops.reduce_sum.plan import ReducePlan, plan_reduce_sum

Engine = Literal["fast", "instruction"]
Algorithm = Literal["cann", "centred", "torch_cuda", "sequential", "numpy", "exact", "cann_fp16", "cann_bf16"]
Array = NDArray[Any]
F32 = NDArray[np.float32]

TO_FLOAT = {"float16": HALF_TO_FLOAT, "bfloat16": BFLOAT16_TO_FLOAT}
FROM_FLOAT = {"float16": FLOAT_TO_HALF, "bfloat16": FLOAT_TO_BFLOAT16}
OUTPUTS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
SOURCES = {"sum_dy": "sum_dy", "sum_dy_xmu": "sum_dy_xmu", "grad_weight": "grad_weight", "grad_bias": "sum_dy"}
"""The fp32 sum each output is cast from."""
VENDOR_NAMES = {"sum_dy": "sumDy", "sum_dy_xmu": "sumDyXmu", "grad_weight": "gradWeight", "grad_bias": "gradBias"}


@dataclass(frozen=True, kw_only=True)
class BatchNormRun:
    """The work behind one result."""

    product: Product
    algorithm: str
    engine: str
    schedule: str
    shape: tuple[int, ...]
    dtype: str
    out_dtype: str
    plan: ReducePlan | None
    """None for empty tensors: nothing is launched."""
    sums: dict[str, F32] = field(default_factory=dict)
    """fp32 (C,) before the output cast: sum_dy, sum_dy_x, sum_dy_xmu, grad_weight."""
    partials: dict[str, F32] = field(default_factory=dict)
    """(group_r, C) per-core partial sums of sum_dy and sum_dy_x. Row r of channel c comes from core
    (A tile of c) // factor_a * group_r + r; with group_r 1 the one row is the sum itself."""
    launches: tuple[tuple[str, Run], ...] = ()
    """(step, Run) of every kernel launch, in order (instruction engine)."""
    notes: tuple[str, ...] = ()
    """What a reader of the result should know."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BatchNormGrads:
    """(C,) outputs in the output dtype; None where masked off."""

    sum_dy: Array | None
    sum_dy_xmu: Array | None
    grad_weight: Array | None
    grad_bias: Array | None
    run: BatchNormRun


def choice(value: Any, allowed: Any, what: str) -> None:
    """Refuse a value outside a Literal."""
    if value not in get_args(allowed):
        names = ", ".join(map(repr, get_args(allowed)))
        raise AclnnError(explain(what, got=value, allowed=names, remedy="choose one of these"))


def batch_norm_reduce_backward(
    grad_out: Array,
    input: Array,
    mean: Array,
    invstd: Array,
    weight: Array | None = None,
    *,
    input_g: bool = True,
    weight_g: bool = True,
    bias_g: bool = True,
    out_dtype: Any = None,
    product: Product | str = products.DEFAULT_PRODUCT,
    algorithm: Algorithm = "cann",
    engine: Engine = "fast",
    events: bool = False,
    schedule: Schedule = VENDOR,
    progress: Progress | None = None,
) -> BatchNormGrads:
    """aclnnBatchNormReduceBackward on NumPy arrays.

    grad_out, input: (N, C, ...), rank 2 to 8, equal shape and dtype (float32, float16, ml_dtypes.bfloat16 as
    the product has them); mean, invstd: (C,), any of those dtypes; weight: (C,) or None, without effect.
    out_dtype: of all outputs, by default grad_out's. Returns sumDy, sumDyXmu (input_g), gradWeight (weight_g),
    gradBias (bias_g), each (C,) or None.

    engine "instruction" executes every instruction on simulated cores (with ``events`` each is recorded);
    "fast" gives the same bits in one fused pass. ``algorithm`` is the numeric contract (`contracts.CONTRACTS`);
    all but "cann" need the fast engine. ``schedule`` is the arrival order of the cores.
    Raises AclnnError (a ValueError with ``status``) for arguments the operator refuses. (reduce_spec 1)
    """
    chip = products.get(product)
    choice(engine, Engine, "engine")
    choice(algorithm, Algorithm, "algorithm")
    flags = {"input_g": input_g, "weight_g": weight_g, "bias_g": bias_g, "events": events}
    for flag, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise AclnnError(explain(flag, got=value, allowed="True or False", remedy="pass a bool"))
    arrival: Any = schedule
    if not isinstance(arrival, Schedule):
        remedy = "use emulator.VENDOR or emulator.Schedule(seed=1)"
        raise AclnnError(explain("schedule", got=schedule, allowed="an emulator.Schedule", remedy=remedy))
    if algorithm != "cann" and engine != "fast":
        raise AclnnError(f"engine: got {engine!r} with algorithm {algorithm!r}; allowed: 'fast'; only cann has kernels")
    if events and engine != "instruction":
        raise AclnnError("events: got True with the fast engine; allowed: engine='instruction', which has events")
    check_arguments(chip, grad_out, input, mean, invstd, weight)
    out_name = dtype_name(grad_out.dtype if out_dtype is None else out_dtype, "out_dtype", chip)
    start = time.perf_counter()
    common: dict[str, Any] = {
        "product": chip, "algorithm": algorithm, "engine": engine, "schedule": schedule.label,
        "shape": input.shape, "dtype": formats.get(input.dtype).name, "out_dtype": out_name,
    }  # fmt: skip
    wanted = {"sum_dy": input_g, "sum_dy_xmu": input_g, "grad_weight": weight_g, "grad_bias": bias_g}
    if input.size == 0:
        run = _empty_run(chip, common, start)
        held = np.full(input.shape[1], 0.0 if chip.empty_tensor == "zeros" else np.nan)
        held = held.astype(formats.get(out_name).dtype)
        return BatchNormGrads(**{n: held.copy() if wanted[n] else None for n in OUTPUTS}, run=run)
    worker: _FastEngine | _InstructionEngine | contracts.ContractEngine = _FastEngine(chip)
    if engine == "instruction":
        worker = _InstructionEngine(chip, schedule, events, progress)
    elif algorithm != "cann":
        worker = contracts.ContractEngine(contracts.contract(algorithm))
    plan = plan_reduce_sum(input.shape, product=chip)
    if algorithm != "exact":
        worker.run(plan, grad_out, input, mean, invstd)
    saturate = chip.overflow_mode == "saturation"
    exact = contracts.exact_rounded(grad_out, input, mean, invstd, out_name) if algorithm == "exact" else {}
    outputs: dict[str, Array | None] = dict.fromkeys(OUTPUTS)
    for name in (n for n in OUTPUTS if wanted[n]):
        if algorithm == "exact":
            outputs[name] = exact[name]
        elif isinstance(worker, _InstructionEngine):
            outputs[name] = worker.output(name, out_name)
        else:
            outputs[name] = formats.cast(worker.sums[SOURCES[name]], out_name, saturate=saturate).copy()
    if saturate and out_name != "float32":
        worker.notes.append(f"the output cast saturates on {chip.name}: overflow gives the largest finite value")
    run = BatchNormRun(
        **common,
        plan=plan,
        sums=worker.sums,
        partials=worker.partials,
        launches=tuple(worker.launches),
        notes=tuple(worker.notes),
        seconds=time.perf_counter() - start,
    )
    return BatchNormGrads(**outputs, run=run)


def _empty_run(chip: Product, common: dict[str, Any], start: float) -> BatchNormRun:
    note = (
        f"empty input: {chip.name} fills the outputs with zeros"
        if chip.empty_tensor == "zeros"
        else f"empty input: {chip.name} writes nothing; NaN stands for what the output memory held"
    )
    return BatchNormRun(**common, plan=None, notes=(note,), seconds=time.perf_counter() - start)


def _flat(array: Array) -> Array:
    """Contiguous device form: 1-D float32, uint16 (fp16) or int16 (bf16), writable to the compiler."""
    flat = formats.to_bits(np.ascontiguousarray(array)).reshape(-1)
    return flat if flat.flags.writeable else np.asarray(_Writable(flat))


class _Writable:
    """A read-only array (a memory map, say) under a writable type: Numba would compile everything a second time
    for the read-only one. No kernel writes to its inputs.
    """

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.owner = array


class _FastEngine:
    """One fused pass for both sums, then the element-wise step."""

    def __init__(self, chip: Product) -> None:
        self.chip = chip
        self.sums: dict[str, F32] = {}
        self.partials: dict[str, F32] = {}
        self.launches: list[tuple[str, Run]] = []
        self.notes: list[str] = []

    def run(self, plan: ReducePlan, grad_out: Array, input: Array, mean: Array, invstd: Array) -> None:
        y, p, part_y, part_p = fused_sums(_flat(grad_out), _flat(input), plan.geometry, plan.channels)
        self.finish(y, p, part_y, part_p, mean, invstd)

    def finish(self, y: F32, p: F32, part_y: F32, part_p: F32, mean: Array, invstd: Array) -> None:
        xmu, grad_weight = np.empty_like(y), np.empty_like(y)
        mean32, invstd32 = formats.cast(mean, "float32"), formats.cast(invstd, "float32")
        with np.errstate(all="ignore"):
            kernels.three_steps(y, p, np.ascontiguousarray(mean32), np.ascontiguousarray(invstd32), xmu, grad_weight)
        named = {"sum_dy": y, "sum_dy_x": p, "sum_dy_xmu": xmu, "grad_weight": grad_weight}
        self.sums = {n: formats.canonical_nan(a) for n, a in named.items()}
        self.partials = {"sum_dy": formats.canonical_nan(part_y), "sum_dy_x": formats.canonical_nan(part_p)}


class _InstructionEngine:
    """Every step as a kernel launched on simulated cores."""

    def __init__(self, chip: Product, schedule: Schedule, events: bool, progress: Progress | None) -> None:
        self.chip, self.schedule, self.events, self.progress = chip, schedule, events, progress
        self.gm = GlobalMemory()
        self.tensors: dict[str, Any] = {}
        self.sums: dict[str, F32] = {}
        self.partials: dict[str, F32] = {}
        self.launches: list[tuple[str, Run]] = []
        self.notes: list[str] = []

    def launch(self, step: str, kernel: Any, blocks: int, *args: Any) -> None:
        run = launch(
            kernel,
            blocks,
            *args,
            product=self.chip,
            schedule=self.schedule if self.schedule.order is None or step.startswith("ReduceSum") else VENDOR,
            events=self.events,
            progress=self.progress,
        )
        self.launches.append((step, run))

    def to_float(self, name: str, array: Array) -> Any:
        """The tensor in GM as fp32; a Cast kernel runs when it is not."""
        tensor = self.gm.bind(name, _flat(array))
        if array.dtype == np.float32:
            return tensor
        out = self.gm.alloc(f"{name}32", array.size)
        tiling = tile_elementwise(array.size, 4, 2, 0, self.chip)
        pair = TO_FLOAT[formats.get(array.dtype).name]
        self.launch(f"Cast {name}", kernels.cast_tensor, tiling.cores, tensor, out, pair, tiling)
        return out

    def output(self, name: str, dtype: str) -> Array:
        """An output in its dtype; a Cast kernel runs when that is not fp32."""
        source = SOURCES[name]
        if dtype == "float32":
            return self.sums[source].copy()
        sums = self.sums[source]
        out = self.gm.alloc(f"{name} output", sums.size, np.uint16 if dtype == "float16" else np.int16)
        tiling = tile_elementwise(sums.size, 4, 2, 0, self.chip)
        step = f"Cast {VENDOR_NAMES[name]}"
        self.launch(step, kernels.cast_tensor, tiling.cores, self.tensors[source], out, FROM_FLOAT[dtype], tiling)
        return formats.from_bits(self.gm[f"{name} output"]).copy()

    def reduce(self, name: str, tensor: Any, plan: ReducePlan) -> Any:
        """ReduceSum of an fp32 tensor; keeps the partial sums."""
        out = self.gm.alloc(name, plan.channels)
        if plan.geometry is None:
            self.launch(f"ReduceSum {name}", copy_channels, plan.cores, tensor, out, plan.unit_a, plan.tiling.factor_a)
            self.partials[name] = self.gm[name].reshape(1, -1).copy()
            return out
        row = -(-plan.channels // 64) * 64
        workspace = self.gm.alloc(f"workspace {name}", plan.group_r * row if plan.group_r > 1 else 1)
        self.launch(f"ReduceSum {name}", reduce_sum, plan.cores, tensor, out, workspace, plan.geometry)
        part = self.gm[f"workspace {name}"].reshape(plan.group_r, -1)[:, : plan.channels] if plan.group_r > 1 else None
        self.partials[name] = (self.gm[name].reshape(1, -1) if part is None else part).copy()
        return out

    def run(self, plan: ReducePlan, grad_out: Array, input: Array, mean: Array, invstd: Array) -> None:
        chip = self.chip
        copied = [n for n, a in (("gradOut", grad_out), ("input", input)) if not a.flags.c_contiguous]
        if copied:
            self.notes.append(f"Contiguous: {' and '.join(copied)} copied on the host, not timed as a kernel")
        g, x = self.to_float("gradOut", grad_out), self.to_float("input", input)
        m, s = self.to_float("mean", mean), self.to_float("invstd", invstd)
        product = self.gm.alloc("gradOut * input", input.size)
        tiling = tile_elementwise(input.size, 4, 3, 0, chip)
        self.launch("Mul gradOut input", kernels.mul_fp32, tiling.cores, g, x, product, tiling)
        sum_dy_x = self.reduce("sum_dy_x", product, plan)
        sum_dy = self.reduce("sum_dy", g, plan)
        xmu, grad_weight = self.gm.alloc("sum_dy_xmu", plan.channels), self.gm.alloc("grad_weight", plan.channels)
        tiling = tile_elementwise(plan.channels, 4, 6, 4, chip)
        self.launch(
            "SyncBatchNormBackwardReduce", kernels.sync_batch_norm_backward_reduce, tiling.cores,
            sum_dy, sum_dy_x, m, s, xmu, grad_weight, -1, -1, tiling,
        )  # fmt: skip
        names = ("sum_dy", "sum_dy_x", "sum_dy_xmu", "grad_weight")
        self.tensors = dict(zip(names, (sum_dy, sum_dy_x, xmu, grad_weight), strict=True))
        self.sums = {n: formats.canonical_nan(self.gm[n]) for n in names}
        self.partials = {n: formats.canonical_nan(self.partials[n]) for n in ("sum_dy", "sum_dy_x")}
        for row in {r.name: r for _, run in self.launches for r in run.missing_instructions}.values():
            self.notes.append(
                f"{row.ascend_c} ({row.name}): not on NpuArch {chip.npu_arch}; the model runs the 950 template as it is"
            )


def sync_batch_norm_backward_reduce(
    sum_dy: Array,
    sum_dy_dx_pad: Array,
    mean: Array,
    invert_std: Array,
    *,
    product: Product | str = products.DEFAULT_PRODUCT,
    engine: Engine = "fast",
) -> tuple[Array, Array]:
    """SyncBatchNormBackwardReduce: (sum_dy_dx_pad - mean * sum_dy, that times invert_std).

    Four arrays of one shape and dtype the product has; returns two of the same. fp32 inside, three roundings,
    then one rounding to the dtype. Raises AclnnError. (reduce_spec 1.4)
    """
    chip = products.get(product)
    choice(engine, Engine, "engine")
    given = {"sum_dy": sum_dy, "sum_dy_dx_pad": sum_dy_dx_pad, "mean": mean, "invert_std": invert_std}
    for name, array in given.items():
        plain_array(array, name)
        dtype_name(array.dtype, name, chip)
        if array.shape != sum_dy.shape or array.dtype != sum_dy.dtype:
            raise AclnnError(
                f"{name}: got {array.dtype} {list(array.shape)}; allowed: {sum_dy.dtype} {list(sum_dy.shape)} as sum_dy"
            )
    name = formats.get(sum_dy.dtype).name
    saturate = chip.overflow_mode == "saturation"
    if sum_dy.size == 0:
        return sum_dy.copy(), sum_dy.copy()
    if engine == "fast":
        a, b, c, d = (formats.cast(np.ascontiguousarray(v).reshape(-1), "float32") for v in given.values())
        xmu, y = np.empty_like(a), np.empty_like(a)
        with np.errstate(all="ignore"):
            kernels.three_steps(a, b, c, d, xmu, y)
        results = [formats.cast(v, name, saturate=saturate) for v in (xmu, y)]
        return results[0].reshape(sum_dy.shape), results[1].reshape(sum_dy.shape)
    gm = GlobalMemory()
    tensors = [gm.bind(n, _flat(v)) for n, v in given.items()]
    outs = [gm.alloc(n, sum_dy.size, _flat(sum_dy).dtype) for n in ("sum_dy_xmu", "y")]
    tiling = tile_elementwise(sum_dy.size, sum_dy.itemsize, 6, 4, chip)
    launch(
        kernels.sync_batch_norm_backward_reduce, tiling.cores, *tensors, *outs, TO_FLOAT.get(name, -1),
        FROM_FLOAT.get(name, -1), tiling, product=chip,
    )  # fmt: skip
    return tuple(formats.from_bits(gm[n]).reshape(sum_dy.shape) for n in ("sum_dy_xmu", "y"))  # type: ignore[return-value]
