import numpy as np
import pytest

from emulator import products
from emulator.launch import launch
from emulator.memory import GlobalMemory
from emulator.timing import utilisation
from ops.reduce_sum.geometry import make_geometry
from ops.reduce_sum.kernel import reduce_sum
from ops.reduce_sum.plan import plan_reduce_sum
from studies import timed
from studies.timed import timed_operator

TABLE_7_4 = [
    ((2, 3, 4, 5), 1),
    ((128, 16), 1),
    ((8, 2048, 7, 7), 40),
    ((4096, 256), 62),
    ((256, 256, 14, 14), 64),
    ((1, 3, 1000, 1000), 51),
]


BUNDLED = ((64, 16, 8, 8), 8, "float16")  # the bundled fp16 dump


@pytest.mark.parametrize(("shape", "cores", "dtype"), [*((*row, "float32") for row in TABLE_7_4), BUNDLED])
def test_idle_cores_are_those_the_plan_leaves_out(shape, cores, dtype):
    run = timed_operator(shape, product="950", dtype=dtype)
    casts = ["Cast gradOut", "Cast input", "Cast sumDy", "Cast sumDyXmu", "Cast gradWeight", "Cast gradBias"]
    assert [s.name for s in run.steps if s.name.startswith("Cast")] == (casts if dtype == "float16" else [])
    for step in (s for s in run.steps if s.name.startswith("ReduceSum")):
        u = utilisation(step.timeline)
        assert step.timeline.run.blocks == run.plan.cores == cores
        assert u.idle_cores == tuple(range(cores, 64))
        assert (u.busy(2) > 0).all(), "every core of the plan copies in"
        reads = [share.elements * 4 for share in run.plan.shares()]
        if run.plan.group_r == 1 and not step.repeated:
            assert u.read_bytes.tolist() == reads


def test_double_buffering_buys_time_and_changes_no_value():
    shape = (32, 64, 56, 56)
    on, off = timed_operator(shape), timed_operator(shape, double_buffer=False)
    assert off.steps[1].task_us > 1.04 * on.steps[1].task_us
    assert "double buffering is off" in off.notes
    plan = plan_reduce_sum((8, 16, 28, 28), product="950")
    x = np.random.default_rng(1).standard_normal(8 * 16 * 28 * 28).astype(np.float32)
    outs = []
    for double_buffer in (True, False):
        gm = GlobalMemory()
        tensor, out = gm.bind("x", x), gm.alloc("out", plan.channels)
        workspace = gm.alloc("workspace", plan.group_r * 64)
        g = make_geometry(plan.tiling, double_buffer=double_buffer)
        launch(reduce_sum, plan.cores, tensor, out, workspace, g, product=plan.product)
        outs.append(gm["out"].view(np.uint32).copy())
    assert np.array_equal(*outs)


@pytest.mark.parametrize(
    ("shape", "product"), [((64, 256, 56, 56), "950"), ((64, 250, 20, 20), "Ascend910B1"), ((20000, 512), "950")]
)
def test_repetition_agrees_with_the_whole_run(shape, product, monkeypatch):
    whole = timed_operator(shape, product=product)
    monkeypatch.setattr(timed, "TILES_KEPT", 8)
    short = timed_operator(shape, product=product)
    assert any(step.repeated for step in short.steps)
    assert any("repetition" in note for note in short.notes)
    for a, b in zip(whole.steps, short.steps, strict=True):
        if not a.repeated:
            assert b.task_us == pytest.approx(a.task_us, rel=0.1), a.name


def test_large_runs_stay_small_in_memory():
    run = timed_operator((64, 64, 157, 157), product=products.get("950"))
    assert np.prod(run.shape) > 1e8
    assert sum(len(s.timeline.costs.kind) for s in run.steps) < 1_000_000
    assert all(s.repeated for s in run.steps[:3])
