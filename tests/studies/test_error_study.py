"""Error map, statistics, bounds, verdicts and the two sweeps."""

from fractions import Fraction

import numpy as np
import pytest

import ops
from emulator.errors import EmulatorError
from studies.accuracy import cancellation_study, growth_study
from studies.attribution import error_ledger
from studies.error_study import error_study, spacing
from studies.events_of import events_of
from studies.metrics import channel_metrics
from studies.verdict import compare_with, judge, judge_ledger


def operands(shape=(2, 3, 200, 200), mean=2.0):
    rng = np.random.default_rng(4)
    dy, x = (rng.standard_normal(shape).astype(np.float32) + np.float32(m) for m in (0, mean))
    return dy, x, np.full(shape[1], mean, np.float32), np.ones(shape[1], np.float32)


def test_the_map_adds_up_to_the_ledger():
    data = operands()
    study = error_study(*data, top=5)
    ledger = error_ledger(*data)
    steps = {"product", "tile pairing", "in-tile adds", "lane tree", "cache tree", "core combine"}
    want = float(sum(sum(ledger.entries["sum_dy_xmu"][s], Fraction(0)) for s in steps))
    assert study.map_signed.sum() == pytest.approx(want, rel=1e-9)
    assert (study.map >= np.abs(study.map_signed)).all()
    assert len(study.cores) == len([s for s in study.plan.shares() if s.elements])
    assert [abs(t.effect) for t in study.top] == sorted((abs(t.effect) for t in study.top), reverse=True)


def test_errors_stay_within_the_bounds():
    study = error_study(*operands())
    for which in ("sum_dy", "sum_dy_x"):
        error = np.abs(study.bounds[f"{which} error"])
        for bound in ("running", "probabilistic", "a_priori"):
            assert (error <= study.bounds[f"{which} {bound}"]).all(), bound
    for s in study.statistics:
        assert abs(s.z_rms) < 4 and sum(s.ulp_histogram) == s.inexact


def test_constant_data_rounds_systematically():
    full = np.full((1, 1, 100_000), 0.1, np.float32)
    study = error_study(full, full * 0, np.zeros(1, np.float32), np.ones(1, np.float32), algorithm="sequential")
    level = next(s for s in study.statistics if s.sum == "sum_dy")
    assert level.systematic and level.z_worst == pytest.approx(-30, abs=3)  # numerics 3.1


def test_a_rounding_is_linked_to_its_instructions():
    shape = (8, 3, 20, 20)
    data = operands(shape)
    study = error_study(*data, top=3)
    run = ops.batch_norm_reduce_backward(*data, engine="instruction", events=True).run
    for item in study.top:
        found = events_of(item, run)
        assert len(found) and (found["core"] == item.core).all() and (found["line"] > 0).all()
    with pytest.raises(EmulatorError, match="without events"):
        events_of(study.top[0], ops.batch_norm_reduce_backward(*data).run)


def test_spacing_is_numpys():
    x = np.float32([0, 1e-45, 1e-38, 0.1, 1, 1.5, 2, 3e38])
    assert (spacing(x, "float32") == np.spacing(x).astype(np.float64)).all()
    assert spacing(np.float32([1.0]), "bfloat16")[0] == 2.0**-7


def test_verdicts():
    golden = [Fraction(1), Fraction(-2), Fraction(100)]
    good = judge(np.float16([1, -2, 100]), golden, "float16")
    assert all(v.passed and v.margin == np.inf for v in good)
    off = judge(np.float16([1, -2, 101]), golden, "float16")
    assert not off[0].passed and off[0].margin == pytest.approx((2**-9 + 100 * 2**-9) / 1)
    nan = judge(np.float16([1, np.nan, 100]), golden, "float16")
    assert not any(v.passed for v in nan) and all(v.margin == 0 for v in nan)
    data = operands((16, 4, 8))
    assert all(v.passed for v in judge_ledger(error_ledger(*data)) if v.standard.startswith("CANN mixed"))
    ratio = compare_with(np.float32([1.5]), np.float32([1.25]), [Fraction(1)], "float32")
    assert ratio.passed is False and "MARE ratio 2" in ratio.detail
    with pytest.raises(EmulatorError, match="level: got 'L9'"):
        compare_with(np.float32([1]), np.float32([1]), [Fraction(1)], "float32", "L9")


def test_metrics_follow_their_definitions():
    data = operands((16, 4, 8))
    ledger = error_ledger(*data)
    m = channel_metrics(ledger, "grad_weight", *data[:3])
    pairs = zip(ledger.errors("grad_weight"), ledger.exact["grad_weight"], strict=True)
    relative = [float(abs(e / x)) for e, x in pairs]
    assert m.relative == pytest.approx(relative)
    assert m.backward * m.condition == pytest.approx(m.relative)
    assert (m.bits <= 24).all()


def test_cancellation_grows_for_cann_only():
    study = cancellation_study(count=2000, channels=4, ratios=(0.0, 1e3))
    flat, steep = study.points
    assert steep.error["cann"] > 50 * steep.error["centred"]
    assert steep.error["cann"] < steep.condition * study.unit
    assert flat.error["cann"] < 1e-6


def test_growth_keeps_the_theory():
    study = growth_study(sizes=(1000, 10_000, 100_000), trials=5)
    assert study.slope("recursive") == pytest.approx(0.5, abs=0.15)
    assert abs(study.slope("pairwise")) < 0.2 and abs(study.slope("operator")) < 0.2
    for p in study.points:
        assert p.worst <= p.a_priori
        assert p.order == "FAB 128" or p.error <= p.running <= p.a_priori * 1.01
    with pytest.raises(EmulatorError, match="allowed: uniform"):
        growth_study(distribution="cauchy")


@pytest.mark.slow
def test_reference_slopes():
    study = growth_study(trials=20)
    assert study.slope("recursive") == pytest.approx(0.5, abs=0.1)
    flat = [p.error for p in study.points if p.order == "pairwise"]
    assert max(flat) < 2 * min(flat)
    assert all(p.error < 128 * 2.0**-24 for p in study.points if p.order == "FAB 128")
    normal = growth_study(distribution="normal", trials=10)
    assert abs(normal.slope("recursive")) < 0.25
