"""Random descriptors and random arguments: only statuses come back, and nothing outside the views is written."""

import enum
import inspect

import numpy as np
import pytest
from acl_calls import MASK_OF, TENSORS, second_phase
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops import acl, aclnn
from ops.acl.state import runtime

HUGE = [2**31, 2**32 + 1, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -1, -2]
BYTES = 4096


def mostly(good, bad):
    """``good`` three times in four."""
    return st.integers(0, 3).flatmap(lambda k: bad if k == 0 else good)


def integers(low, high):
    return mostly(st.integers(low, high), st.sampled_from(HUGE))


@st.composite
def calls(draw):
    """Descriptors for all nine tensors: many are valid, most have one or two absurd values."""
    rank = draw(mostly(st.integers(2, 4), st.integers(0, 10)))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    common = draw(st.sampled_from(["ACL_FLOAT", "ACL_FLOAT16", "ACL_BF16"]))
    absurd = draw(st.sets(st.sampled_from(TENSORS), max_size=2))
    tensors = {}
    for name in TENSORS:
        full = shape if name in ("gradOut", "input") else shape[1:2]
        strides = None
        if draw(st.booleans()):
            strides = [draw(st.integers(0 if name in TENSORS[:5] else 1, 9)) for _ in full]
        offset, storage, dtype, format, data = draw(st.integers(0, 5)), [BYTES // 4], common, 2, "own"
        if name in absurd:
            full = draw(st.lists(integers(0, 4), max_size=10)) if draw(st.booleans()) else full
            strides = draw(st.none() | st.lists(integers(0, 9), min_size=len(full), max_size=len(full)))
            offset = draw(integers(0, BYTES))
            storage = draw(st.lists(integers(0, BYTES), max_size=4))
            dtype = draw(st.sampled_from([t.name for t in acl.aclDataType]) | st.sampled_from([99, -7]))
            format = draw(st.sampled_from([*map(int, acl.aclFormat), 77, -9]))
            data = draw(st.sampled_from(["own", "end", "freed", "foreign", "null", "odd"]))
        tensors[name] = (tuple(full), dtype, strides, offset, format, tuple(storage), data)
    masks = {m: draw(st.booleans()) or draw(st.booleans()) for m in sorted(set(MASK_OF.values()))}
    return tensors, masks


def written_bytes(tensor):
    """Byte indices of a small one-dimensional view, relative to its storage: the oracle of what may change."""
    size = {0: 4, 1: 2, 27: 2}[int(tensor.dtype)]
    starts = [(tensor.offset + k * tensor.strides[0]) * size for k in range(tensor.view_shape[0])]
    return {s + b for s in starts for b in range(size)}


def run(call, product, checks):
    descriptors, masks = call
    with acl.Device(product, checks=checks):
        freed = acl.aclrtMalloc(BYTES)[1]
        memory, tensors, before = {}, {}, {}
        for name, (shape, dtype, strides, offset, format, storage, data) in descriptors.items():
            memory[name] = acl.aclrtMalloc(BYTES)[1]
            before[name] = runtime.heap.starting_at(memory[name]).bytes
            before[name][:] = np.random.default_rng(len(name)).integers(0, 256, BYTES)
            address = {"own": memory[name], "end": memory[name] + BYTES - 2, "freed": freed, "foreign": 4096,
                       "null": None, "odd": memory[name] + 1}[data]  # fmt: skip
            tensors[name] = acl.aclCreateTensor(
                shape, len(shape), dtype, strides, offset, format, storage, len(storage), address
            )
            assert tensors[name] is not None, acl.get_recent_err_msg()
        before = {name: array.copy() for name, array in before.items()}
        acl.aclrtFree(freed)
        status, size, executor = aclnn.aclnnBatchNormReduceBackwardGetWorkspaceSize(**tensors, **masks)
        assert acl.name_of(status).startswith("ACL")
        assert (status == 0) == (executor is not None)
        if status == 0:
            if size < 2**28:
                status = second_phase(size, executor)
            else:
                status = aclnn.aclnnBatchNormReduceBackward(memory["mean"], size, executor, None)
                assert status == 361001
            assert acl.name_of(status).startswith("ACL")
        assert (status == 0) or acl.get_recent_err_msg()
        for name, pointer in memory.items():
            allocation = runtime.heap.starting_at(pointer)
            assert not allocation.damaged()
            changed = set(np.flatnonzero(allocation.bytes != before[name]).tolist())
            if changed:
                assert status == 0 and masks[MASK_OF[name]]
                start = int(tensors[name].data) - pointer
                assert changed <= {start + b for b in written_bytes(tensors[name])}
        for name, pointer in memory.items():
            assert acl.aclDestroyTensor(tensors[name]) == 0
            assert acl.aclrtFree(pointer) == 0
    assert runtime.heap.live() == []
    return status


modes = st.tuples(st.sampled_from(["910A", "910B1", "950"]), st.sampled_from(["strict", "vendor"]))
quiet = settings(suppress_health_check=list(HealthCheck), deadline=None)


@settings(quiet, max_examples=300)
@given(calls(), modes)
def test_random_descriptors(call, mode):
    run(call, *mode)


@pytest.mark.slow
@settings(quiet, max_examples=20_000)
@given(calls(), modes)
def test_many_random_descriptors(call, mode):
    run(call, *mode)


def test_the_fuzz_reaches_success_and_refusal():
    """The strategy is worth something: both outcomes are common."""
    seen = []

    @settings(quiet, max_examples=120, database=None)
    @given(calls())
    def sample(call):
        seen.append(int(run(call, "910B1", "strict")))

    sample()
    assert seen.count(0) > 10 and seen.count(161002) > 10, seen


class Odd(enum.Enum):
    ONE = 1


SAFE_ADDRESSES = [1, 8, 2**47, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, 2**70]
VALUES = [
    None,
    0,
    *SAFE_ADDRESSES,
    True,
    1.5,
    float("nan"),
    "x",
    "",
    b"",
    b"abcd",
    [],
    [1, 2],
    {},
    (),
    Odd.ONE,
    object(),
]
KEEP = {"aclFinalize", "aclInit"}


@pytest.mark.parametrize("name", [n for n in acl.C_FUNCTIONS if n not in KEEP])
def test_any_arguments(name):
    """No argument makes a function raise; results have the documented form."""
    function = getattr(acl, name)
    arity = len(inspect.signature(function).parameters)
    rng = np.random.default_rng(len(name))
    with acl.Device("910B1") as device:
        tensor, dead = acl.create_tensor((2,), "float32"), acl.create_tensor((2,), "float32")
        acl.aclDestroyTensor(dead)
        pointer, freed = acl.aclrtMalloc(64)[1], acl.aclrtMalloc(64)[1]
        acl.aclrtFree(freed)
        pool = [*VALUES, tensor, dead, int(tensor), device.context, acl.aclrtCreateStream()[1]]
        pool += [pointer, freed, np.ones(3)]
        for _ in range(1 if arity == 0 else 150):
            acl.aclrtSetCurrentContext(device.context)
            result = function(*(pool[rng.integers(len(pool))] for _ in range(arity)))
            status = result[0] if isinstance(result, tuple) else result
            if name in ("aclrtGetSocName", "aclGetRecentErrMsg"):
                assert status is None or isinstance(status, str)
            elif name == "aclCreateTensor":
                assert status is None or isinstance(status, acl.AclTensor)
            elif name != "aclDataTypeSize":
                assert isinstance(status, (acl.AclError, acl.RtError, acl.AclnnStatus))
        assert not any(a.damaged() for a in runtime.heap.live())


def test_any_arguments_of_the_operator():
    rng = np.random.default_rng(5)
    with acl.Device("910B1"):
        tensor = acl.create_tensor((2, 3), "float32")
        pool = [*VALUES, tensor, tensor, tensor, int(tensor), acl.create_tensor((3,), "float32")]
        for _ in range(500):
            picked = [pool[rng.integers(len(pool))] for _ in range(14)]
            status, *_ = aclnn.aclnnBatchNormReduceBackwardGetWorkspaceSize(*picked)
            assert isinstance(status, acl.AclnnStatus)
            status = aclnn.aclnnBatchNormReduceBackward(*picked[:4])
            assert isinstance(status, acl.AclnnStatus)
