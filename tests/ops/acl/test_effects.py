"""What a call does to memory: values, views, dtypes, masks, aliases, empty tensors, overflow, events."""

import itertools
import threading

import ml_dtypes
import numpy as np
import pytest
from acl_calls import MASK_OF, OUTPUTS, PRODUCTS, Call, bits, second_phase
from numpy.lib.stride_tricks import as_strided

import ops
from emulator.events import EVENT
from ops import acl
from ops.acl.state import runtime

SHAPE = (4, 3, 5, 2)
BFLOAT16 = ml_dtypes.bfloat16


def operands(shape=SHAPE, dtype=np.float32, seed=7):
    rng = np.random.default_rng(seed)
    values = {n: rng.standard_normal(shape).astype(dtype) for n in ("gradOut", "input")}
    return values | {n: rng.standard_normal(shape[1]).astype(dtype) for n in ("mean", "invstd", "weight")}


def expected(values, product, out_dtype=None):
    r = ops.batch_norm_reduce_backward(
        values["gradOut"], values["input"], values["mean"], values["invstd"], product=product, out_dtype=out_dtype
    )
    return {"sumDy": r.sum_dy, "sumDyXmu": r.sum_dy_xmu, "gradWeight": r.grad_weight, "gradBias": r.grad_bias}


def make(values, outputs=None):
    """Contiguous tensors of the values; ``outputs`` replaces keywords of the outputs' tensors."""
    call = Call(values["input"].shape, values["input"].dtype)
    for name, array in values.items():
        call.tensors[name] = {"view_shape": array.shape, "dtype": array.dtype, "data": array}
    for name, change in (outputs or {}).items():
        call = call.set(name, **change)
    return call


def check(tensors, want):
    for name, array in want.items():
        assert bits(tensors[name].to_host()) == bits(array), name


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
def test_values_are_those_of_the_operator(product, dtype):
    with acl.Device(product) as device:
        if np.dtype(dtype).name not in device.product.dtypes:
            pytest.skip("not a dtype of this product")
        values = operands(dtype=dtype)
        check(make(values).run(), expected(values, product))


def test_the_document_s_example(ascend950):
    values = {
        "gradOut": np.array([1, 1, 1, 2, 2, 2, 3, 3], np.float32).reshape(4, 2),
        "input": np.arange(8, dtype=np.float32).reshape(4, 2),
        **{n: np.ones(2, np.float32) for n in ("mean", "invstd", "weight")},
    }
    tensors = make(values).run()
    assert [tensors[n].to_host().tolist() for n in OUTPUTS] == [[7, 8], [21, 30], [21, 30], [7, 8]]


def test_every_permutation_of_the_inputs(ascend950):
    values = operands()
    want = expected(values, "950")
    for order in itertools.permutations(range(4)):
        call = make(values)
        for name in ("gradOut", "input"):
            stored = np.ascontiguousarray(values[name].transpose(order))
            strides = [0] * 4
            for axis, stride in zip(order, stored.strides, strict=True):
                strides[axis] = stride // 4
            call = call.set(name, strides=strides, storage_shape=stored.shape, data=stored)
        check(call.run(), want)


@pytest.mark.parametrize("steps", [(1, 1, 2, 1), (2, 1, 1, 3), (1, 4, 1, 1), (3, 2, 2, 2)])
@pytest.mark.parametrize("offset", [0, 1, 7])
def test_slices_with_steps(ascend950, steps, offset):
    values = operands(dtype=np.float16)
    call = make(values)
    for name in ("gradOut", "input", "mean", "invstd"):
        array = values[name]
        used = steps[: array.ndim] if array.ndim > 1 else steps[1:2]
        shape = tuple(d * s for d, s in zip(array.shape, used, strict=True))
        storage = np.full(int(np.prod(shape)) + offset, np.nan, array.dtype)
        whole = storage[offset:].reshape(shape)
        cut = whole[tuple(slice(None, None, s) for s in used)]
        cut[...] = array
        call = call.set(
            name, strides=[s // 2 for s in cut.strides], offset=offset, storage_shape=storage.shape, data=storage
        )
    check(call.run(), expected(values, "950"))


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("offset", [0, 1, 30])
def test_every_output_stride_writes_the_view_only(a2, stride, offset):
    values = operands()
    length = offset + 2 * stride + 1 + 9
    marks = np.arange(length, dtype=np.float32) - 1000
    layout = {"strides": (stride,), "offset": offset, "storage_shape": (length,), "data": marks}
    tensors = make(values, dict.fromkeys(OUTPUTS, layout)).run()
    want = expected(values, "910B1")
    check(tensors, want)
    for name in OUTPUTS:
        held = tensors[name].owned.bytes.view(np.float32)
        copy = marks.copy()
        copy[offset : offset + 3 * stride : stride] = want[name]
        assert bits(held) == bits(copy), name


def test_broadcast_inputs(ascend950):
    values = operands()
    call = make(values)
    one = np.float32([0.1])
    for name in ("gradOut", "mean"):
        values[name] = np.broadcast_to(one, values[name].shape).copy()
        call = call.set(name, strides=(0,) * values[name].ndim, storage_shape=(1,), data=one)
    row = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)
    values["input"] = np.broadcast_to(row, SHAPE).copy()
    call = call.set("input", strides=(0, 1, 0, 0), storage_shape=(3,), data=row.reshape(-1))
    check(call.run(), expected(values, "950"))


def test_each_output_in_its_own_dtype(ascend950):
    values = operands()
    dtypes = dict(zip(OUTPUTS, ("bfloat16", "float16", "float32", "float16"), strict=True))
    tensors = make(values, {n: {"dtype": d} for n, d in dtypes.items()}).run()
    check(tensors, {n: expected(values, "950", d)[n] for n, d in dtypes.items()})
    for mixed in (("mean", "float16"), ("invstd", "bfloat16")):
        values[mixed[0]] = values[mixed[0]].astype(ml_dtypes.bfloat16 if mixed[1] == "bfloat16" else mixed[1])
    check(make(values).set(OUTPUTS, dtype="float32").run(), expected(values, "950"))


@pytest.mark.parametrize("masks", list(itertools.product([False, True], repeat=3)))
def test_masks(a2, masks):
    values = operands()
    call = make(values).mask(**dict(zip(("inputG", "weightG", "biasG"), masks, strict=True)))
    call = call.set(OUTPUTS, data=np.full(3, 9.0))
    tensors, want = call.run(), expected(values, "910B1")
    for name in OUTPUTS:
        written = call.masks[MASK_OF[name]]
        assert bits(tensors[name].to_host()) == bits(want[name] if written else np.full(3, 9, np.float32))


@pytest.mark.parametrize("weight", [None, np.zeros(3), np.full(3, np.nan), np.full(3, np.inf)])
def test_weight_has_no_effect(ascend950, weight):
    values = operands()
    change = {"null": True} if weight is None else {"data": weight}
    check(make(values).set("weight", **change).run(), expected(values, "950"))


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("shape", [(0, 3), (4, 3, 0), (0, 3, 0, 2)])
def test_empty_inputs(product, shape):
    with acl.Device(product):
        call = Call(shape).set(OUTPUTS, data=np.full(3, 9.0)).set("gradWeight", dtype="float16")
        status, size, _ = call.first_phase()
        assert (status, size) == (0, 0)
        tensors = call.run()
        for name in OUTPUTS:
            assert tensors[name].to_host().tolist() == [0 if product.startswith("Ascend950") else 9] * 3
        off = call.mask(weightG=False).run()
        assert off["gradWeight"].to_host().tolist() == [9] * 3


def test_outputs_that_alias_inputs(ascend950):
    values = operands()
    want = expected(values, "950")
    tensors = make(values).make()
    for output, source in (("sumDy", "mean"), ("gradWeight", "invstd"), ("sumDyXmu", "gradOut"), ("gradBias", "input")):
        acl.aclSetRawTensorAddr(tensors[output], tensors[source].data)
    make(values).run(tensors)
    check(tensors, want)
    assert bits(tensors["gradOut"].to_host().reshape(-1)[3:]) == bits(values["gradOut"].reshape(-1)[3:])


def test_of_outputs_that_share_memory_the_later_stays(ascend950):
    values = operands()
    tensors = make(values).make()
    for name in OUTPUTS[:3]:
        acl.aclSetRawTensorAddr(tensors[name], tensors["gradBias"].data)
    make(values).run(tensors)
    assert bits(tensors["sumDyXmu"].to_host()) == bits(expected(values, "950")["gradBias"])


def test_vendor_mode_writes_a_shared_element_last():
    values = operands()
    values["mean"] = values["mean"].reshape(1, 3)
    call = make(values, {"sumDy": {"strides": (0,), "storage_shape": (1,)}})
    call = call.set("weight", dtype="int32", data=np.arange(3, dtype=np.int32))
    with acl.Device("950", checks="vendor"):
        tensors = call.run()
        values["mean"] = values["mean"].reshape(3)
        want = expected(values, "950")
        assert (tensors["sumDy"].to_host() == want["sumDy"][-1]).all()
        check(tensors, {n: want[n] for n in OUTPUTS[1:]})


def overflow():
    """Two channels whose sums leave fp16: 80000 and NaN."""
    one = np.ones((2, 2), np.float16)
    grad = np.array([[40000, np.inf], [40000, -np.inf]], np.float16)
    ones = np.ones(2, np.float16)
    return {"gradOut": grad, "input": one, "mean": ones, "invstd": ones, "weight": ones}


@pytest.mark.parametrize(
    ("product", "saturation", "saturated"),
    [("910B1", None, False), ("910B1", "saturation", True), ("910A", None, True), ("950", "infnan", False)],
)
def test_overflow_mode_of_the_device(product, saturation, saturated):
    with acl.Device(product, saturation=saturation):
        got = make(overflow()).run()["sumDy"].to_host().astype(float)
        assert got[0] == (65504 if saturated else np.inf)
        assert got[1] == 0 if saturated else np.isnan(got[1])


def test_overflow_mode_is_that_of_the_stream(a2):
    call = make(overflow())
    old = acl.aclrtCreateStream()[1]
    assert acl.aclrtGetDeviceSatMode() == (0, 1)
    assert acl.aclrtSetDeviceSatMode(0) == 0 and acl.aclrtGetDeviceSatMode() == (0, 0)
    new = acl.aclrtCreateStream()[1]
    assert call.run(stream=old)["sumDy"].to_host()[0] == np.inf
    assert call.run(stream=new)["sumDy"].to_host()[0] == 65504
    assert acl.aclrtSetDeviceSatMode(2) == 107000 == acl.aclrtSetDeviceSatMode("x")
    with acl.Device("910A"):
        assert acl.aclrtSetDeviceSatMode(1) == 207000
        assert acl.aclrtGetDeviceSatMode() == (0, 0)


def test_unaligned_and_shared_storage(a2):
    """All inputs in one allocation, at odd addresses; canaries and the bytes between stay as they were."""
    values = operands(dtype=np.float16)
    size = sum(v.nbytes + 3 for v in values.values()) + 64
    pointer = acl.aclrtMalloc(size)[1]
    tensors, at = make(values).make(), pointer + 1
    for name, array in values.items():
        assert acl.aclrtMemcpy(at, array.nbytes, array, array.nbytes, 1) == 0
        acl.aclSetRawTensorAddr(tensors[name], at)
        at += array.nbytes + 3
    before = runtime.heap.starting_at(pointer).bytes.copy()
    check(make(values).run(tensors), expected(values, "910B1"))
    assert (runtime.heap.starting_at(pointer).bytes == before).all()
    assert not any(a.damaged() for a in runtime.heap.live())
    acl.aclrtFree(pointer)


def test_workspace_covers_the_intermediates(ascend950):
    n, system = 4 * 3 * 5 * 2, 16 * 2**20
    plain = Call(SHAPE).first_phase()[1]
    assert plain >= system + 4 * n + 4 * 4 * 3
    half = Call(SHAPE, "float16").first_phase()[1]
    assert half >= plain + 2 * 4 * n
    strided = Call(SHAPE).set(("gradOut", "input"), strides=(1, 4, 12, 60), storage_shape=SHAPE).first_phase()[1]
    assert strided >= plain + 2 * 4 * n
    plan = ops.plan_reduce_sum((64, 8, 64, 64), product="950")
    assert Call((64, 8, 64, 64)).first_phase()[1] >= plan.workspace_bytes + 4 * 64 * 8 * 64 * 64


def test_eight_threads(ascend950):
    inputs = [operands(seed=k) for k in range(8)]
    wants = [expected(v, "950") for v in inputs]
    faults, start = [], threading.Barrier(8)

    def work(k):
        try:
            assert acl.aclrtSetDevice(ascend950.index) == 0
            status, stream = acl.aclrtCreateStream()
            assert status == 0
            start.wait(30)
            for _ in range(6):
                check(make(inputs[k]).run(stream=stream), wants[k])
                assert acl.aclrtSynchronizeStream(stream) == 0
                assert (
                    acl.aclrtDestroyStream(k) == 107000 and f"stream: got handle {k:#x}" in acl.get_recent_err_msg()
                ) or k == 0
            assert acl.aclrtDestroyStream(stream) == 0
        except BaseException as error:
            faults.append((k, error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not faults
    assert not any(a.damaged() for a in runtime.heap.live())


def test_events_are_saved(ascend950, tmp_path, monkeypatch):
    values = operands((4, 2))
    path = tmp_path / "events.npz"
    monkeypatch.setenv("AICORE_EVENTS", str(path))
    check(make(values).run(), expected(values, "950"))
    with np.load(path) as saved:
        steps = saved["steps"].tolist()
        assert steps == [
            "Mul gradOut input", "ReduceSum sum_dy_x", "ReduceSum sum_dy", "SyncBatchNormBackwardReduce",
        ]  # fmt: skip
        assert saved["product"] == "Ascend950PR_9589" and saved["shape"].tolist() == [4, 2]
        for k in range(len(steps)):
            assert saved[f"events_{k}"].dtype == EVENT and len(saved[f"events_{k}"])
    assert [p.name for p in tmp_path.iterdir()] == ["events.npz"]
    monkeypatch.setenv("AICORE_EVENTS", str(tmp_path / "no" / "events.npz"))
    call = make(values).set(OUTPUTS, data=np.full(2, 9.0))
    tensors = call.make()
    _, size, executor = call.first_phase(tensors)
    assert second_phase(size, executor) == 361001
    assert "AICORE_EVENTS" in acl.get_recent_err_msg()
    assert tensors["sumDy"].to_host().tolist() == [9, 9]


def test_the_engine_of_the_environment(monkeypatch):
    monkeypatch.setenv("AICORE_ENGINE", "instruction")
    values = operands((4, 2))
    with acl.Device() as device:
        assert device.state.settings.engine == "instruction"
        check(make(values).run(), expected(values, "950"))


def test_strided_oracle_agrees(a2):
    """to_host is NumPy's own strided view of the same bytes."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        shape = tuple(int(d) for d in rng.integers(1, 4, rng.integers(1, 5)))
        strides = tuple(int(s) for s in rng.integers(0, 6, len(shape)))
        storage = rng.standard_normal(200).astype(np.float32)
        t = acl.create_tensor(shape, "float32", strides=strides, offset=11, storage_shape=(200,), data=storage)
        want = as_strided(storage[11:], shape, [4 * s for s in strides])
        assert bits(t.to_host()) == bits(want)
