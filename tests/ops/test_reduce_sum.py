"""Tiling of ReduceSum: the published numbers, the oracle's tiling on any shape, and what cores really do with it."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import naive
import ops
from emulator import EmulatorError, products
from emulator.products import Product
from ops.reduce_sum.canonical import canonicalise

MACHINE = products.get("950")
A2 = products.get("A2")

# reduce_spec 7.4: shape, canonical, unitA and unitR (idx, step, outer), fA, fR, groupR, cores, workspace
TABLE = [
    ((2, 3, 4, 5), (1, 2, 3, 20), (0, 1, 1), (-1, 1, 1), 1, 1, 1, 1, 16777216),
    ((128, 16), (1, 128, 16), (0, 1, 1), (-1, 1, 1), 1, 1, 1, 1, 16777216),
    ((8, 2048, 7, 7), (1, 8, 2048, 49), (2, 26, 79), (-1, 1, 1), 2, 1, 1, 40, 16777216),
    ((4096, 256), (1, 4096, 256), (2, 128, 2), (1, 67, 62), 1, 2, 31, 62, 16842752),
    ((256, 256, 14, 14), (1, 256, 256, 196), (2, 1, 256), (1, 58, 5), 4, 5, 1, 64, 16777216),
    ((1, 3, 1000, 1000), (3, 1000000), (0, 1, 3), (1, 11776, 85), 1, 5, 17, 51, 16793600),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: str(row[0]))
def test_published_tilings(row):
    shape, canonical, unit_a, unit_r, factor_a, factor_r, group_r, cores, workspace = row
    assert (MACHINE.vector_cores, MACHINE.ub_bytes) == (64, 253952)
    plan = ops.plan_reduce_sum(shape, product=MACHINE)
    t = plan.tiling
    assert plan.canonical_shape == canonical
    assert (t.unit_a.idx, t.unit_a.step, t.unit_a.outer) == unit_a
    assert (t.unit_r.idx, t.unit_r.step, t.unit_r.outer) == unit_r
    assert (t.factor_a, t.factor_r, plan.group_r, plan.cores) == (factor_a, factor_r, group_r, cores)
    assert plan.workspace_bytes == workspace
    assert plan.fidelity == "source"


@pytest.mark.parametrize(
    ("machine", "basic", "result"),
    [(MACHINE, 43008, 10752), (MACHINE.replace(vector_cores=48, ub_bytes=196608), 32768, 8192), (A2, 32768, 8192)],
    ids=["950", "48 cores", "A2"],
)
def test_four_by_two(machine, basic, result):
    """reduce_spec 7.1."""
    plan = ops.plan_reduce_sum((4, 2), product=machine)
    t = plan.tiling
    assert plan.canonical_shape == (1, 4, 2) and plan.pattern == "ARA"
    assert (t.basic_block, t.result_block) == (basic, result)
    assert (t.cl_axis, t.a_size, t.r_size) == (0, 8, 4)
    assert (t.unit_a.idx, t.unit_a.step, t.unit_a.outer) == (0, 1, 1)
    assert (t.unit_r.idx, plan.group_r, plan.cores) == (-1, 1, 1)
    assert t.use_nddma and plan.workspace_bytes == 16777216
    assert (plan.unit_a, plan.unit_r) == (2, 4)


def test_resnet_layer_on_950():
    """reduce_spec 7.2."""
    plan = ops.plan_reduce_sum((32, 64, 56, 56), product=MACHINE)
    t = plan.tiling
    assert plan.canonical_shape == (1, 32, 64, 3136) and plan.pattern == "ARAR"
    assert (t.basic_block, t.result_block, t.cl_axis, t.cl_step) == (47104, 512, 3, 64)
    assert (t.unit_a.idx, t.unit_a.step, t.unit_a.outer) == (2, 1, 64)
    assert (t.unit_r.idx, t.unit_r.step, t.unit_r.inner, t.unit_r.outer) == (1, 3, 9408, 11)
    assert (t.factor_a, t.factor_r, plan.group_r, plan.cores) == (1, 11, 1, 64)
    assert plan.workspace_bytes == 16777216 and not t.use_nddma
    assert plan.geometry.k == 9408
    assert [s.channels for s in plan.shares()] == [(c, c + 1) for c in range(64)]


def test_resnet_layer_on_48_cores():
    """reduce_spec 7.3."""
    plan = ops.plan_reduce_sum((32, 64, 56, 56), product=A2)
    t = plan.tiling
    assert (A2.vector_cores, A2.ub_bytes) == (48, 196608)
    assert (t.basic_block, t.unit_a.idx, t.unit_a.step, t.unit_a.outer) == (35840, 2, 11, 6)
    assert (t.unit_r.idx, t.unit_r.step, t.unit_r.outer) == (3, 808, 128)
    assert (t.factor_a, t.factor_r, plan.group_r, plan.cores) == (1, 16, 8, 48)
    assert plan.workspace_bytes == 16789504
    assert plan.fidelity == "model"
    assert {s.elements for s in plan.shares()} == {11 * 4 * 3136, 9 * 4 * 3136}


@pytest.mark.parametrize(
    ("shape", "canonical", "pattern"),
    [
        ((4, 2), (1, 4, 2), "ARA"),
        ((32, 64, 56, 56), (1, 32, 64, 3136), "ARAR"),
        ((1, 5, 3, 7), (5, 21), "AR"),
        ((6, 1, 3, 7), (1, 126), "AR"),
        ((1, 1, 9), (1, 9), "AR"),
        ((1, 5), (5,), "A"),
        ((1, 5, 1, 1), (5,), "A"),
        ((1, 1), (1,), "A"),
        ((6, 5, 1, 1), (1, 6, 5), "ARA"),
        ((2, 3, 1, 5, 1, 7, 1, 1), (1, 2, 3, 35), "ARAR"),
        ((6, 1), (1, 6), "AR"),
    ],
)
def test_canonical_shapes(shape, canonical, pattern):
    """reduce_spec 2.1."""
    got = canonicalise(shape)
    assert (got.shape, got.pattern) == (canonical, pattern)
    assert got.out_size == shape[1] and got.out_size * got.reduce_count == np.prod(shape)
    assert got.tail_r == pattern.endswith("R")
    assert ops.plan_reduce_sum(shape).canonical_shape == canonical


# ---- any shape, any machine, against the oracle


@st.composite
def reductions(draw) -> tuple[tuple[int, ...], Product]:
    rank = draw(st.sampled_from([2, 2, 3, 4, 4, 8]))
    lengths = st.sampled_from(
        [1, 2, 3, 5, 7, 8, 16, 31, 32, 49, 61, 64, 127, 196, 256, 1000, 3136, 4096]
    ) | st.integers(1, 5000)
    shape = tuple(draw(lengths) for _ in range(rank))
    machine = products.get(draw(st.sampled_from(["950", "950DT", "A2", "910B3", "Ascend910A"])))
    if draw(st.booleans()):
        ub_bytes = 1024 * draw(st.integers(16, 256))
        machine = machine.replace(vector_cores=draw(st.integers(1, 100)), ub_bytes=ub_bytes)
    return shape, machine


def oracle(shape: tuple[int, ...], machine: Product) -> dict[str, Any] | None:
    try:
        return naive.tiling(shape, machine.vector_cores, machine.ub_bytes)
    except ValueError:
        return None


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(reductions())
def test_tiling_is_the_oracles(case):
    shape, machine = case
    want = oracle(shape, machine)
    if len(naive.canonical(shape)) == 1:
        assume(want is not None)
    if want is None:
        with pytest.raises(ops.TilingError):
            ops.plan_reduce_sum(shape, product=machine)
        return
    plan = ops.plan_reduce_sum(shape, product=machine)
    t = plan.tiling
    assert (list(plan.canonical_shape), plan.pattern) == (want["canonical"], want["pattern"])
    assert (t.basic_block, t.result_block) == (want["basic_block"], want["result_block"])
    assert (plan.group_r, plan.workspace_bytes, t.canonical.out_size) == (
        want["group_r"], want["workspace"], want["out_size"],
    )  # fmt: skip
    if plan.pattern == "A":  # what cores get of it is one reading of the specification
        return
    for name, unit in (("unit_a", t.unit_a), ("unit_r", t.unit_r)):
        got = {"idx": unit.idx, "step": unit.step, "inner": unit.inner, "outer": unit.outer}
        assert got == want[name], name
    for name in ("cl_axis", "cl_step", "a_size", "r_size", "factor_a", "factor_r", "cores", "use_nddma"):
        assert getattr(t, name) == want[name], name


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(reductions())
def test_shares_cover_every_element_once(case):
    shape, machine = case
    try:
        plan = ops.plan_reduce_sum(shape, product=machine)
    except ops.TilingError:
        return
    shares = plan.shares()
    assert [s.core for s in shares] == list(range(plan.cores)) and plan.cores <= machine.vector_cores
    assert sum(s.elements for s in shares) == np.prod(shape, dtype=object)
    assert all(s.elements > 0 for s in shares), "a core without work"
    owners: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for s in shares:
        assert s.channels[0] < s.channels[1] <= shape[1]
        owners.setdefault(s.channels, []).append(s.r_tiles)
    # The channel ranges follow each other, and within each the R tiles do.
    ranges = sorted(owners)
    assert ranges[0][0] == 0 and ranges[-1][1] == shape[1]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    for tiles in owners.values():
        assert len(tiles) == plan.group_r
        assert tiles[0][0] == 0 and tiles[-1][1] == plan.tiling.unit_r.outer
        assert all(a[1] == b[0] and a[0] < a[1] for a, b in itertools.pairwise(tiles))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(reductions())
def test_buffers_fit_the_ub(case):
    shape, machine = case
    try:
        plan = ops.plan_reduce_sum(shape, product=machine)
    except ops.TilingError:
        return
    assert sum(-(-size // 32) * 32 for _, size in plan.ub_buffers()) <= machine.ub_bytes


# ---- what the kernel really does


RUNS = [
    ((4, 2), MACHINE),
    ((2, 3, 4, 5), MACHINE),
    ((40, 9), MACHINE.replace(vector_cores=3, ub_bytes=24576)),
    ((3, 70, 5), products.get("Ascend910A")),
    ((300, 40), A2.replace(vector_cores=30, ub_bytes=65536)),
    ((1, 64), MACHINE),
]


@pytest.mark.parametrize(("shape", "machine"), RUNS, ids=lambda v: str(v) if isinstance(v, tuple) else "")
def test_the_kernel_does_what_the_plan_says(shape, machine):
    data = np.ones(shape, np.float32)
    one = np.ones(shape[1], np.float32)
    got = ops.batch_norm_reduce_backward(data, data, one, one, product=machine, engine="instruction", events=True)
    plan = ops.plan_reduce_sum(shape, product=machine)
    assert got.run.plan == plan
    for step, run in got.run.launches:
        if not step.startswith("ReduceSum"):
            continue
        assert [(b.name, b.bytes) for b in run.buffers] == list(plan.ub_buffers())
        assert run.ub_used_bytes <= machine.ub_bytes
        assert run.blocks == plan.cores
        assert run.sync_rounds == (plan.group_r > 1)
        moved_in, moved_out = (run.bytes_by_pipe()[pipe] for pipe in ("MTE2", "MTE3"))
        for share in plan.shares():
            stage_one = run.events[(run.events["core"] == share.core) & (run.events["tile"] >= 0)]
            read = stage_one["bytes"][stage_one["pipe"] == 2].sum()
            assert read == 4 * share.elements, "a core reads other elements than its share"
        if plan.group_r == 1:
            assert moved_in.sum() == 4 * data.size and moved_out.sum() == 4 * shape[1]


def test_buffers_of_a_copy_are_whole_blocks():
    test_the_kernel_does_what_the_plan_says((1, 5), MACHINE)


# ---- tiling data


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(reductions())
def test_tiling_data(case):
    shape, machine = case
    try:
        plan = ops.plan_reduce_sum(shape, product=machine)
    except ops.TilingError:
        return
    data, t = plan.tiling_data(), plan.tiling
    assert set(data) == {
        "factorACntPerCore", "factorATotalCnt", "ubFactorA", "factorRCntPerCore", "factorRTotalCnt", "ubFactorR",
        "groupR", "outSize", "basicBlock", "resultBlock", "coreNum", "realCoreNum", "useNddma", "meanVar",
        "shape", "stride",
    }  # fmt: skip
    assert data["factorACntPerCore"] == t.factor_a and data["factorATotalCnt"] == t.unit_a.outer
    assert data["factorRCntPerCore"] == t.factor_r and data["factorRTotalCnt"] == t.unit_r.outer
    assert (data["ubFactorA"], data["ubFactorR"]) == (t.unit_a.step, t.unit_r.step)
    assert (data["groupR"], data["outSize"]) == (plan.group_r, shape[1])
    assert (data["basicBlock"], data["resultBlock"]) == (t.basic_block, t.result_block)
    assert (data["coreNum"], data["realCoreNum"]) == (machine.vector_cores, plan.cores)
    assert data["meanVar"] * (np.prod(shape, dtype=float) / shape[1]) == pytest.approx(1)
    assert data["useNddma"] in (0, 1) and isinstance(data["useNddma"], int)
    assert data["shape"] == list(plan.canonical_shape)
    strides = [int(np.prod(data["shape"][i + 1 :], dtype=object)) for i in range(len(data["shape"]))]
    assert data["stride"] == strides


def test_tiling_data_of_the_table():
    data = ops.plan_reduce_sum((4096, 256), product=MACHINE).tiling_data()
    assert (data["groupR"], data["realCoreNum"], data["ubFactorA"], data["ubFactorR"]) == (31, 62, 128, 67)
    assert data["shape"] == [1, 4096, 256] and data["stride"] == [1048576, 256, 1]


# ---- refusals

COMBINE = "the combine of 3 partial sums needs 768 B, the input buffer holds 512 B"


@pytest.mark.parametrize(
    ("shape", "machine", "reason"),
    [
        ((4, 4), {"ub_bytes": 16384}, "0 B remain beside the 16384 B cache"),
        ((1, 4), {"ub_bytes": 16384}, "0 B remain beside the 16384 B cache"),
        ((40, 9), {"ub_bytes": 20480, "vector_cores": 3}, COMBINE),
        ((3, 4096, 60), {"ub_bytes": 19456}, "a tile needs 512 B, the input buffer holds 256 B"),
    ],
)  # fmt: skip
def test_a_ub_too_small_for_one_tile(shape, machine, reason):
    machine = MACHINE.replace(**machine)
    with pytest.raises(ops.TilingError, match=reason) as info:
        ops.plan_reduce_sum(shape, product=machine)
    text = str(info.value)
    assert isinstance(info.value, EmulatorError) and isinstance(info.value, ValueError)
    assert text.startswith(f"ub_bytes: Ascend950PR_9589 has {machine.ub_bytes} B of UB, too small for one tile of [")
    remedy = "use fewer vector cores or a larger UB" if "combine" in reason else "give the machine a larger UB"
    assert text.endswith(f"; {remedy} or choose a real product") and "\n" not in text


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4,), "shape: got rank 1 [4]; allowed: rank 2 to 8; axis 1 is the channel"),
        ((1,) * 9, "shape: got rank 9 [1, 1, 1, 1, 1, 1, 1, 1, 1]; allowed: rank 2 to 8; axis 1 is the channel"),
        ((), "shape: got rank 0 []; allowed: rank 2 to 8; axis 1 is the channel"),
        ((4, 0), "shape: got [4, 0]; allowed: positive whole numbers; give every dim at least 1"),
        ((4, -2), "shape: got [4, -2]; allowed: positive whole numbers; give every dim at least 1"),
        ((4, 2.0), "shape: got [4, 2.0]; allowed: positive whole numbers; give every dim at least 1"),
        ((4, float("nan")), "shape: got [4, nan]; allowed: positive whole numbers; give every dim at least 1"),
        ((4, True), "shape: got [4, True]; allowed: positive whole numbers; give every dim at least 1"),
        ((4, "2"), "shape: got [4, '2']; allowed: positive whole numbers; give every dim at least 1"),
    ],
)  # fmt: skip
def test_bad_shapes(shape, message):
    with pytest.raises(EmulatorError) as info:
        ops.plan_reduce_sum(shape)
    assert str(info.value) == message


def test_shapes_of_numpy_integers_are_fine():
    plan = ops.plan_reduce_sum(np.array([4, 2]))
    assert plan.shape == (4, 2) and all(type(d) is int for d in plan.shape)
    assert ops.plan_reduce_sum([np.int32(4), np.uint8(2)]) == plan


def test_unknown_products_are_refused():
    with pytest.raises(EmulatorError, match="product: got 'Ascend999'"):
        ops.plan_reduce_sum((4, 2), product="Ascend999")
