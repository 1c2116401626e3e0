"""The operator: the document's example, masks, dtypes, empty tensors, refusals; and its element-wise sibling."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import ops
from emulator import products
from ops.errors import ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR

ROOT = Path(__file__).resolve().parents[2]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BF16}
OUTPUTS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
ENGINES = ("fast", "instruction")
engines = pytest.mark.parametrize("engine", ENGINES)
dtypes = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


def example(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """The example of the operator's document."""
    return {
        "grad_out": np.array([[1, 1], [1, 2], [2, 2], [3, 3]], dtype),
        "input": np.arange(8).reshape(4, 2).astype(dtype),
        "mean": np.ones(2, dtype),
        "invstd": np.ones(2, dtype),
    }


def values(result: ops.BatchNormGrads) -> list[list[float]]:
    return [getattr(result, name).astype(float).tolist() for name in OUTPUTS]


EXAMPLE = [[7, 8], [21, 30], [21, 30], [7, 8]]


def random_arrays(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    channels = shape[1]
    return {
        "grad_out": rng.normal(size=shape).astype(dtype),
        "input": rng.normal(3, 2, size=shape).astype(dtype),
        "mean": rng.normal(3, 1, size=channels).astype(np.float32),
        "invstd": rng.uniform(0.1, 9, channels).astype(np.float32),
    }


def bits_of(result: ops.BatchNormGrads) -> list[bytes]:
    return [getattr(result, name).tobytes() for name in OUTPUTS]


# ---- the document's example


@engines
@pytest.mark.parametrize("name", products.names())
def test_the_documents_example_on_every_product(name, engine):
    for dtype in products.get(name).dtypes:
        got = ops.batch_norm_reduce_backward(**example(DTYPES[dtype]), product=name, engine=engine)
        assert values(got) == EXAMPLE
        assert all(getattr(got, output).dtype == DTYPES[dtype] for output in OUTPUTS)


@pytest.mark.jitless
@engines
def test_the_documents_example(engine):
    got = ops.batch_norm_reduce_backward(**example(), engine=engine)
    assert values(got) == EXAMPLE
    run = got.run
    assert (run.product.name, run.algorithm, run.engine) == ("Ascend950PR_9589", "cann", engine)
    assert (run.shape, run.dtype, run.out_dtype) == ((4, 2), "float32", "float32")
    assert run.plan.canonical_shape == (1, 4, 2)
    assert run.sums["sum_dy"].tolist() == [7, 8] and run.sums["sum_dy_x"].tolist() == [28, 38]
    assert {name: part.tolist() for name, part in run.partials.items()} == {"sum_dy": [[7, 8]], "sum_dy_x": [[28, 38]]}


# ---- masks, output dtype, weight


@engines
@pytest.mark.parametrize("mask", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)], ids=str)
def test_masks(mask, engine):
    input_g, weight_g, bias_g = map(bool, mask)
    got = ops.batch_norm_reduce_backward(**example(), input_g=input_g, weight_g=weight_g, bias_g=bias_g, engine=engine)
    wanted = dict(zip(OUTPUTS, (input_g, input_g, weight_g, bias_g), strict=True))
    for name, want in zip(OUTPUTS, EXAMPLE, strict=True):
        output = getattr(got, name)
        assert (output is not None) == wanted[name]
        assert output is None or output.tolist() == want
    assert set(got.run.sums) == {"sum_dy", "sum_dy_x", "sum_dy_xmu", "grad_weight"}


@engines
@pytest.mark.parametrize(
    "out_dtype", [None, "float32", "float16", "bfloat16", np.float16, BF16, "fp16", "bf16"], ids=str
)
def test_out_dtype(out_dtype, engine):
    arrays = random_arrays((6, 5, 7), np.float16)
    got = ops.batch_norm_reduce_backward(**arrays, out_dtype=out_dtype, engine=engine)
    names = {"fp16": np.dtype(np.float16), "bf16": BF16, None: np.dtype(np.float16), "bfloat16": BF16}
    want = names[out_dtype] if out_dtype in names else np.dtype(out_dtype)
    exact = dict(got.run.sums, grad_bias=got.run.sums["sum_dy"])
    for name in OUTPUTS:
        assert getattr(got, name).tobytes() == exact[name].astype(want).tobytes() and getattr(got, name).dtype == want
    assert got.run.out_dtype == want.name


@engines
def test_weight_has_no_effect(engine):
    arrays = random_arrays((6, 5, 7))
    plain = ops.batch_norm_reduce_backward(**arrays, engine=engine)
    for weight in (np.zeros(5, np.float32), np.full(5, np.nan, np.float16), np.arange(5).astype(BF16)):
        assert bits_of(ops.batch_norm_reduce_backward(**arrays, weight=weight, engine=engine)) == bits_of(plain)


@engines
@pytest.mark.parametrize("mean", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("invstd", DTYPES.values(), ids=DTYPES)
def test_mean_and_invstd_of_other_dtypes(mean, invstd, engine):
    arrays = random_arrays((6, 5, 7), np.float16)
    arrays["mean"], arrays["invstd"] = arrays["mean"].astype(mean), arrays["invstd"].astype(invstd)
    got = ops.batch_norm_reduce_backward(**arrays, engine=engine)
    wide = {name: a.astype(np.float32) for name, a in arrays.items()}
    want = naive.batch_norm_reduce_backward(*wide.values(), 64, 253952)
    for name in ("sum_dy", "sum_dy_x", "sum_dy_xmu", "grad_weight"):
        assert got.run.sums[name].tobytes() == want[name].tobytes()


# ---- empty tensors, products without a dtype, overflow


def check_empty(shape: tuple[int, ...], name: str, engine: str, dtype: Any) -> None:
    empty, three = np.zeros(shape, dtype), np.ones(3, dtype)
    got = ops.batch_norm_reduce_backward(empty, empty, three, three, product=name, engine=engine, weight_g=False)
    zeros = products.get(name).npu_arch == 3510
    for output in (got.sum_dy, got.sum_dy_xmu, got.grad_bias):
        assert output.shape == (3,) and output.dtype == dtype
        assert (output == 0).all() and not np.signbit(output).any() if zeros else np.isnan(output).all()
    assert got.grad_weight is None
    assert got.run.plan is None and not got.run.launches
    assert ("zeros" if zeros else "writes nothing") in got.run.notes[0] and name in got.run.notes[0]


@engines
@pytest.mark.parametrize("name", products.names())
@pytest.mark.parametrize("shape", [(0, 3), (4, 3, 0), (0, 3, 0, 2)], ids=str)
def test_empty_tensors(shape, name, engine):
    """reduce_spec 1.2: 950 writes zeros; on other products the outputs keep what they held, shown as NaN."""
    check_empty(shape, name, engine, np.float32)
    if products.get(name).overflow_mode == "infnan":
        check_empty(shape, name, engine, np.float16)


@engines
def test_empty_fp16_tensors_on_a_saturating_product(engine):
    check_empty((0, 3), "Ascend910A", engine, np.float16)


@engines
@pytest.mark.parametrize("argument", ["grad_out", "input", "mean", "invstd", "weight", "out_dtype"])
def test_bfloat16_is_refused_on_910a(argument, engine):
    arrays: dict[str, Any] = example()
    if argument == "out_dtype":
        arrays["out_dtype"] = "bfloat16"
    else:
        arrays[argument] = arrays.get(argument, np.ones(2)).astype(BF16)
    with pytest.raises(ops.AclnnError) as info:
        ops.batch_norm_reduce_backward(**arrays, product="Ascend910A", engine=engine)
    want = f"{argument}: got dtype bfloat16; allowed on Ascend910A: float32, float16; convert it first"
    assert str(info.value) == want and info.value.status == ACLNN_ERR_PARAM_INVALID


@engines
@pytest.mark.parametrize(("name", "big"), [("950", np.inf), ("A2", np.inf), ("A3", np.inf), ("Ascend910A", 65504)])
def test_fp16_overflow(name, big, engine):
    """Infinity where the product keeps it, the largest finite value where it saturates."""
    arrays = {
        "grad_out": np.full((4, 2), 40000, np.float16) * np.array([1, -1], np.float16),
        "input": np.full((4, 2), 2, np.float16),
        "mean": np.zeros(2, np.float16),
        "invstd": np.ones(2, np.float16),
    }
    got = ops.batch_norm_reduce_backward(**arrays, product=name, engine=engine)
    assert got.sum_dy.tolist() == got.grad_bias.tolist() == [big, -big]
    assert got.sum_dy_xmu.tolist() == got.grad_weight.tolist() == [big, -big]
    assert got.run.sums["sum_dy"].tolist() == [160000, -160000]
    assert any("saturates" in note for note in got.run.notes) == (big == 65504)


@engines
def test_nan_saturates_to_zero_on_910a(engine):
    """ascend_facts 3.3: with saturation NaN becomes 0 in half-width casts; fp32 never saturates."""
    arrays = random_arrays((4, 2), np.float16)
    arrays["grad_out"][0, 0] = np.nan
    got = ops.batch_norm_reduce_backward(**arrays, product="Ascend910A", engine=engine)
    assert got.sum_dy[0] == 0 and np.isnan(got.run.sums["sum_dy"][0]) and np.isfinite(got.sum_dy[1])
    wide = ops.batch_norm_reduce_backward(**arrays, product="Ascend910A", engine=engine, out_dtype="float32")
    assert np.isnan(wide.sum_dy[0])


# ---- refusals


def wrong(**changes: Any) -> dict[str, Any]:
    return {**example(), **changes}


ONES = np.ones
LONG = np.ones((1, 2, 1, 1, 1, 1, 1, 1, 1), np.float32)
ON_910A = "allowed on Ascend910A: float32, float16; convert it first"
ON_950 = "allowed on Ascend950PR_9589: float32, float16, bfloat16; convert it first"
INVALID = [
    ("not an array", wrong(input=[[1.0]]), "input: got list; allowed: a plain NumPy array; use np.asarray"),
    ("weight no array", wrong(weight=1.0), "weight: got float; allowed: a plain NumPy array; use np.asarray"),
    ("float64", wrong(grad_out=ONES((4, 2))), "grad_out: got dtype float64; " + ON_950),
    ("int mean", wrong(mean=ONES(2, np.int32)), "mean: got dtype int32; " + ON_950),
    ("complex", wrong(invstd=ONES(2, complex)), "invstd: got dtype complex128; " + ON_950),
    ("object", wrong(invstd=ONES(2, object)), "invstd: got dtype object; " + ON_950),
    ("float64 weight", wrong(weight=ONES(2)), "weight: got dtype float64; " + ON_950),
    (
        "two dtypes",
        wrong(input=ONES((4, 2), np.float16)),
        "grad_out and input: got dtypes float32 and float16; allowed: equal dtypes; convert one of them",
    ),
    (
        "rank 1",
        wrong(grad_out=ONES(4, np.float32)),
        "grad_out: got rank 1 [4]; allowed: rank 2 to 8; axis 1 is the channel",
    ),
    (
        "rank 0",
        wrong(input=np.array(1, np.float32)),
        "input: got rank 0 []; allowed: rank 2 to 8; axis 1 is the channel",
    ),
    (
        "rank 9",
        wrong(grad_out=LONG, input=LONG),
        "grad_out: got rank 9 [1, 2, 1, 1, 1, 1, 1, 1, 1]; allowed: rank 2 to 8; axis 1 is the channel",
    ),
    (
        "no channel",
        wrong(grad_out=ONES((4, 0), np.float32), input=ONES((4, 0), np.float32)),
        "input: got [4, 0] with 0 channels; allowed: at least 1 on axis 1",
    ),
    (
        "two shapes",
        wrong(grad_out=ONES((2, 4), np.float32)),
        "grad_out and input: got shapes [2, 4] and [4, 2]; allowed: equal shapes",
    ),
    (
        "long mean",
        wrong(mean=ONES(3, np.float32)),
        "mean: got shape [3]; allowed: [2], one value per channel of input [4, 2]",
    ),
    (
        "flat invstd",
        wrong(invstd=ONES((1, 2), np.float32)),
        "invstd: got shape [1, 2]; allowed: [2], one value per channel of input [4, 2]",
    ),
    (
        "short weight",
        wrong(weight=ONES(1, np.float32)),
        "weight: got shape [1]; allowed: [2], one value per channel of input [4, 2]",
    ),
    ("engine", wrong(engine="slow"), "engine: got 'slow'; allowed: 'fast', 'instruction'; choose one of these"),
    ("algorithm", wrong(algorithm="magic"), "algorithm: got 'magic'; allowed: "),
    (
        "events",
        wrong(events=True),
        "events: got True with the fast engine; allowed: engine='instruction', which has events",
    ),
    ("out_dtype", wrong(out_dtype="float64"), "out_dtype: got dtype float64; " + ON_950),
    ("out_dtype text", wrong(out_dtype="half a byte"), "out_dtype: got dtype half a byte; " + ON_950),
]


@pytest.mark.jitless
@pytest.mark.parametrize(("name", "arguments", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_invalid_arguments(name, arguments, message):
    with pytest.raises(ops.AclnnError) as info:
        ops.batch_norm_reduce_backward(**arguments)
    text = str(info.value)
    # The list of algorithms grows; every other text is compared whole.
    assert text.startswith(message) if name == "algorithm" else text == message
    assert info.value.status == ACLNN_ERR_PARAM_INVALID == 161002
    assert isinstance(info.value, ValueError) and "\n" not in text


@pytest.mark.parametrize("name", ["grad_out", "input", "mean", "invstd"])
def test_missing_arguments(name):
    with pytest.raises(ops.AclnnError) as info:
        ops.batch_norm_reduce_backward(**wrong(**{name: None}))
    assert str(info.value) == f"{name}: got None; allowed: an array; pass the tensor"
    assert info.value.status == ACLNN_ERR_PARAM_NULLPTR == 161001


def test_checks_come_in_the_vendors_order():
    """Null pointers before dtypes before ranks before shapes (reduce_spec 1.1)."""
    arguments = wrong(grad_out=np.ones(4), input=None, mean=np.ones((3, 3), np.int8), invstd=np.ones(7, np.float32))
    texts = []
    for repair in (
        {},
        {"input": np.ones((4, 2), np.float32)},
        {"grad_out": np.ones(4, np.float32)},
        {"mean": np.ones((3, 3), np.float32)},
        {"grad_out": np.ones((3, 2), np.float32)},
        {"grad_out": np.ones((4, 2), np.float32)},
        {"mean": np.ones(2, np.float32)},
    ):
        arguments.update(repair)
        with pytest.raises(ops.AclnnError) as info:
            ops.batch_norm_reduce_backward(**arguments)
        texts.append(str(info.value).split(";")[0])
    assert texts == [
        "input: got None",
        "grad_out: got dtype float64",
        "mean: got dtype int8",
        "grad_out: got rank 1 [4]",
        "grad_out and input: got shapes [3, 2] and [4, 2]",
        "mean: got shape [3, 3]",
        "invstd: got shape [7]",
    ]


@pytest.mark.parametrize("name", ["310P1", "Ascend310B1", "910B", "nonsense", 950])
def test_products_that_cannot_run_it(name):
    with pytest.raises(ops.EmulatorError, match="product: got "):
        ops.batch_norm_reduce_backward(**example(), product=name)


# ---- layouts


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same values with other strides."""
    padded = np.full((array.shape[0], array.shape[1] + 3, *array.shape[2:]), 77, array.dtype)
    padded[:, 1:-2] = array
    spread = np.full((*array.shape[:-1], 2 * array.shape[-1]), 55, array.dtype)
    spread[..., ::2] = array
    read_only = array.copy()
    read_only.setflags(write=False)
    return {
        "fortran": np.asfortranarray(array),
        "transposed": np.ascontiguousarray(array.T).T,
        "slice": padded[:, 1:-2],
        "every second": spread[..., ::2],
        "reversed": np.ascontiguousarray(array[::-1])[::-1],
        "channels last": np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1),
        "read only": read_only,
    }


@engines
@dtypes
def test_layouts_give_the_same_bits(dtype, engine):
    arrays = random_arrays((5, 6, 4, 3), dtype)
    want = bits_of(ops.batch_norm_reduce_backward(**arrays, engine=engine))
    for name in layouts(arrays["input"]):
        other = {key: layouts(arrays[key])[name] for key in ("grad_out", "input")}
        before = {key: array.copy() for key, array in other.items()}
        strided = {key: np.repeat(arrays[key], 2)[::2] for key in ("mean", "invstd")}
        assert bits_of(ops.batch_norm_reduce_backward(**other, **strided, engine=engine)) == want, name
        assert all((before[key] == other[key]).all() for key in other), "an input was changed"


@engines
def test_broadcast_inputs(engine):
    arrays = random_arrays((5, 6, 4, 3))
    arrays["grad_out"] = np.broadcast_to(arrays["grad_out"][:1], (5, 6, 4, 3))
    want = bits_of(ops.batch_norm_reduce_backward(**{n: a.copy() for n, a in arrays.items()}, engine=engine))
    assert bits_of(ops.batch_norm_reduce_backward(**arrays, engine=engine)) == want


@engines
def test_big_endian_arrays_are_refused_or_right(engine):
    """Values of the other byte order must not be taken for native ones."""
    arrays = {name: a.astype(a.dtype.newbyteorder(">")) for name, a in example().items()}
    try:
        got = ops.batch_norm_reduce_backward(**arrays, engine=engine)
    except ops.AclnnError as error:
        assert "grad_out: got dtype" in str(error)
    else:
        assert values(got) == EXAMPLE


@engines
def test_outputs_own_their_memory(engine):
    arrays = example()
    got = ops.batch_norm_reduce_backward(**arrays, engine=engine)
    got.sum_dy[:] = 0
    assert got.grad_bias.tolist() == [7, 8] and got.run.sums["sum_dy"].tolist() == [7, 8]
    arrays["grad_out"][:] = 9
    assert got.sum_dy_xmu.tolist() == [21, 30]


# ---- values


@engines
@pytest.mark.parametrize(
    "shape", [(4, 2), (1, 3), (7, 5, 9), (1, 4, 1000), (3000, 3), (2, 3, 4, 5, 2, 1, 1, 2)], ids=str
)
@pytest.mark.parametrize("name", ["950", "A2", "Ascend910A"])
def test_ones_count_the_elements(shape, name, engine):
    ones, c = np.ones(shape, np.float32), shape[1]
    got = ops.batch_norm_reduce_backward(
        ones, ones, np.zeros(c, np.float32), np.ones(c, np.float32), product=name, engine=engine
    )
    count = ones.size // c
    assert all((getattr(got, output) == count).all() for output in OUTPUTS)
    assert got.run.partials["sum_dy"].shape == (got.run.plan.group_r, c)
    assert (got.run.partials["sum_dy"].sum(axis=0) == count).all()


@settings(max_examples=60)
@given(n=st.integers(1, 40), c=st.integers(1, 20), s=st.integers(1, 20), seed=st.integers(0, 99))
def test_whole_numbers_are_exact(n, c, s, seed):
    rng = np.random.default_rng(seed)
    g, x = (rng.integers(-8, 9, (n, c, s)).astype(np.float32) for _ in range(2))
    mean, invstd = rng.integers(-4, 5, c).astype(np.float32), 2.0 ** rng.integers(-3, 4, c).astype(np.float32)
    got = ops.batch_norm_reduce_backward(g, x, mean, invstd)
    want = naive.exact(g, x, mean, invstd)
    for name in OUTPUTS:
        assert [Fraction(float(v)) for v in getattr(got, name)] == want[name]


# ---- engines and what a run holds


def test_only_the_instruction_engine_has_launches_and_events():
    fast = ops.batch_norm_reduce_backward(**example()).run
    assert fast.launches == ()
    run = ops.batch_norm_reduce_backward(**example(np.float16), engine="instruction", events=True).run
    assert [step for step, _ in run.launches] == [
        "Cast gradOut", "Cast input", "Cast mean", "Cast invstd", "Mul gradOut input", "ReduceSum sum_dy_x",
        "ReduceSum sum_dy", "SyncBatchNormBackwardReduce", "Cast sumDy", "Cast sumDyXmu", "Cast gradWeight",
        "Cast gradBias",
    ]  # fmt: skip
    for _, launched in run.launches:
        assert len(launched.events) == launched.counts[:, :, 0].sum() > 0
        assert launched.product == run.product
    quiet = ops.batch_norm_reduce_backward(**example(), engine="instruction").run
    assert all(launched.events is None for _, launched in quiet.launches)
    assert next(step for step, _ in quiet.launches) == "Mul gradOut input"


def test_model_products_say_what_they_lack():
    run = ops.batch_norm_reduce_backward(**example(), product="Ascend910A", engine="instruction").run
    assert any("not on NpuArch 1001" in note for note in run.notes)
    assert run.plan.fidelity == "model" and run.product.fidelity == "model"
    assert not ops.batch_norm_reduce_backward(**example(), engine="instruction").run.notes


def test_progress_names_every_kernel():
    told: list[tuple[str, int, int]] = []
    ops.batch_norm_reduce_backward(**example(), engine="instruction", progress=lambda *a: told.append(a))
    assert [name for name, done, of in told if done == of] == [
        "mul_fp32", "reduce_sum", "reduce_sum", "sync_batch_norm_backward_reduce",
    ]  # fmt: skip


# ---- SyncBatchNormBackwardReduce


def three_steps(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """t = mean * sumDy; xmu = sumDyX - t; y = xmu * invstd: three fp32 roundings, then one to the dtype."""
    sum_dy, sum_dy_x, mean, invstd = (a.astype(np.float32) for a in arrays)
    with np.errstate(all="ignore"):
        xmu = sum_dy_x - mean * sum_dy
        return [v.astype(arrays[0].dtype) for v in (xmu, xmu * invstd)]


def four(shape: tuple[int, ...], dtype: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        return [(rng.normal(size=shape) * 2.0 ** rng.integers(-12, 12, shape)).astype(dtype) for _ in range(4)]


def same(got: np.ndarray, want: np.ndarray) -> bool:
    nan = np.isnan(want.astype(np.float32))
    bits = f"u{want.itemsize}"
    return got.dtype == want.dtype and got.shape == want.shape and bool(
        (np.isnan(got.astype(np.float32)) == nan).all() and (got.view(bits)[~nan] == want.view(bits)[~nan]).all()
    )  # fmt: skip


@engines
@dtypes
@pytest.mark.parametrize("shape", [(1,), (2,), (63,), (64,), (1000,), (3, 5), (40000,)], ids=str)
def test_sibling_equals_three_rounded_steps(shape, dtype, engine):
    arrays = four(shape, dtype, 1)
    got = ops.sync_batch_norm_backward_reduce(*arrays, engine=engine)
    assert all(same(g, w) for g, w in zip(got, three_steps(arrays), strict=True))


@settings(max_examples=40)
@given(count=st.integers(1, 3000), seed=st.integers(0, 99), dtype=st.sampled_from(sorted(DTYPES)))
def test_sibling_engines_agree(count, seed, dtype):
    arrays = four((count,), DTYPES[dtype], seed)
    arrays[1][:: 1 + seed] = [np.inf, -np.inf, -0.0, 1e-8][seed % 4]
    want = three_steps(arrays)
    for engine in ENGINES:
        got = ops.sync_batch_norm_backward_reduce(*arrays, product="A2", engine=engine)
        assert all(same(g, w) for g, w in zip(got, want, strict=True)), engine


def test_three_roundings_are_not_two():
    """A fused multiply-add would give another result here."""
    big = np.float32(1 + 2**-12)
    arrays = [np.full(1, v, np.float32) for v in (big, big * big, big, 1)]
    fused = float(Fraction(float(big * big)) - Fraction(float(big)) ** 2)
    for engine in ENGINES:
        xmu, _ = ops.sync_batch_norm_backward_reduce(*arrays, engine=engine)
        assert xmu[0] == 0 != fused


@engines
@pytest.mark.parametrize(("name", "big"), [("950", np.inf), ("A2", np.inf), ("Ascend910A", 65504)])
def test_sibling_overflow(name, big, engine):
    arrays = [np.array([v, -v], np.float16) for v in (200, 0, 3000, 1)]
    got = ops.sync_batch_norm_backward_reduce(*arrays, product=name, engine=engine)
    assert got[0].tolist() == [-big, -big] and got[1].tolist() == [-big, big]


@engines
def test_sibling_of_strided_and_empty_arrays(engine):
    arrays = four((100,), np.float32, 5)
    want = three_steps([a[::3] for a in arrays])
    got = ops.sync_batch_norm_backward_reduce(*(a[::3] for a in arrays), engine=engine)
    assert all(same(g, w) for g, w in zip(got, want, strict=True))
    xmu, y = ops.sync_batch_norm_backward_reduce(*(a[:0] for a in arrays), engine=engine)
    assert xmu.shape == y.shape == (0,) and xmu.dtype == y.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sum_dy": None}, "sum_dy: got NoneType; allowed: a plain NumPy array; use np.asarray"),
        ({"mean": 1.0}, "mean: got float; allowed: a plain NumPy array; use np.asarray"),
        ({"mean": np.ones(3, np.float32)}, "mean: got float32 [3]; allowed: float32 [2] as sum_dy"),
        ({"invert_std": np.ones(2, np.float16)}, "invert_std: got float16 [2]; allowed: float32 [2] as sum_dy"),
        ({"sum_dy": np.ones(2)}, "sum_dy: got dtype float64; " + ON_910A),
        ({"sum_dy": np.ones(2, BF16)}, "sum_dy: got dtype bfloat16; " + ON_910A),
        ({"engine": "slow"}, "engine: got 'slow'; allowed: 'fast', 'instruction'; choose one of these"),
    ],
)  # fmt: skip
def test_sibling_refusals(changes, message):
    names = ("sum_dy", "sum_dy_dx_pad", "mean", "invert_std")
    arguments = {name: np.ones(2, np.float32) for name in names} | {"engine": "fast"} | changes
    with pytest.raises(ops.AclnnError) as info:
        ops.sync_batch_norm_backward_reduce(**arguments, product="Ascend910A")
    assert str(info.value) == message and info.value.status == ACLNN_ERR_PARAM_INVALID


# ---- memory


PEAK = """
import json, resource, sys
import numpy as np, ops

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()

shape = tuple(json.loads(sys.argv[1]))
tiny = np.ones((4, *shape[1:2], *([2] * (len(shape) - 2))), np.float32)
c = np.ones(shape[1], np.float32)
ops.batch_norm_reduce_backward(tiny, tiny, c, c)  # loads or compiles
g, x = np.ones(shape, np.float32), np.ones(shape, np.float32)
before = resident()
inputs = g.nbytes + x.nbytes
result = ops.batch_norm_reduce_backward(g, x, 0 * c, c)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
assert (result.sum_dy == g.size // shape[1]).all() or g.size // shape[1] > 2**24
print(json.dumps({"inputs": inputs, "before": before, "peak": peak}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads ru_maxrss and /proc as Linux has them")
@pytest.mark.parametrize("shape", [[100, 100, 100, 100], [1_000_000, 100], [1, 10, 10_000_000]], ids=str)
def test_peak_memory_of_1e8_elements(shape, tmp_path):
    """No more than the inputs and 300 MB: the product is never stored."""
    import json

    done = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(shape)],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = json.loads(done.stdout)
    assert sizes["inputs"] == 8 * 10**8 <= sizes["before"]
    assert sizes["peak"] - sizes["inputs"] <= 300e6, sizes


@pytest.mark.parametrize("value", ["bogus", -1, None, [1]])
def test_schedules_and_flags_have_their_types(value):
    with pytest.raises(ops.AclnnError, match=r"schedule: got .*allowed: an emulator.Schedule"):
        ops.batch_norm_reduce_backward(**example(), schedule=value)
    with pytest.raises(ops.AclnnError, match=r"weight_g: got .*allowed: True or False"):
        ops.batch_norm_reduce_backward(**example(), weight_g=value)


def test_masks_and_byte_order_are_not_lost():
    arrays = example()
    masked = np.ma.masked_array(arrays["input"], arrays["input"] > 3)
    with pytest.raises(ops.AclnnError, match=r"input: got MaskedArray; allowed: a plain NumPy array"):
        ops.batch_norm_reduce_backward(**{**arrays, "input": masked})
    foreign = arrays["mean"].astype(arrays["mean"].dtype.newbyteorder())
    with pytest.raises(ops.AclnnError, match=r"mean: got dtype .* in foreign byte order"):
        ops.batch_norm_reduce_backward(**{**arrays, "mean": foreign})


@pytest.mark.jitless
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_instruction_engine_casts_its_outputs_in_kernels(dtype):
    run = ops.batch_norm_reduce_backward(**example(), out_dtype=dtype, engine="instruction", bias_g=False).run
    assert [step for step, _ in run.launches][-3:] == ["Cast sumDy", "Cast sumDyXmu", "Cast gradWeight"]
