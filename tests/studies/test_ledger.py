"""The ledger adds up exactly, by both methods, on every kind of data."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ops
from emulator import formats
from emulator.errors import EmulatorError
from ops.batch_norm_reduce_backward.contracts import CONTRACTS
from ops.exact import exact_outputs
from studies import ledger_fast
from studies.attribution import error_ledger
from studies.exact_sums import bucket_sum, exact_dot, exact_sums_by_label
from studies.exact_values import exact_values
from studies.ledger import OUTPUTS

DTYPES = ("float32", "float16", "bfloat16")
PRODUCTS = ("Ascend950PR_9589", "Ascend910B1", "Ascend910A")


def operands(shape, dtype, seed=0, spread=0, mean=0.0):
    rng = np.random.default_rng(seed)
    kind = formats.get(dtype).dtype
    scale = 2.0 ** rng.integers(-spread, spread + 1, shape)
    dy, x = ((rng.standard_normal(shape) * scale + m).astype(kind) for m in (0.0, mean))
    c = shape[1]
    return dy, x, rng.standard_normal(c).astype(np.float32) + np.float32(mean), rng.random(c).astype(np.float32) + 1


def holds(ledger, everywhere=True):
    """The identity, added up here from nothing but fractions."""
    for n in OUTPUTS:
        for c in range(ledger.channels):
            if ledger.residual[n][c] is None:
                assert not everywhere or not np.isfinite(float(ledger.delivered[n][c]))
                continue
            parts = sum((ledger.entries[n][s][c] for s in ledger.steps), Fraction(0))
            assert Fraction(float(ledger.delivered[n][c])) - ledger.exact[n][c] == parts
            assert ledger.residual[n][c] == 0
    assert ledger.residual_is_zero


@pytest.mark.parametrize("algorithm", CONTRACTS)
@pytest.mark.parametrize("name", ops.bundled_names())
def test_residual_is_zero_on_the_bundled_dumps(name, algorithm):
    o = ops.bundled(name)
    ledger = error_ledger(o.grad_out, o.input, o.mean, o.invstd, algorithm=algorithm)
    holds(ledger)
    assert set(ledger.attributed.values()) == {ledger.channels}
    assert ledger.exact == exact_outputs(o.grad_out, o.input, o.mean, o.invstd)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("algorithm", CONTRACTS)
def test_every_contract_product_and_dtype(product, algorithm):
    for dtype in DTYPES:
        if product == "Ascend910A" and dtype == "bfloat16":
            continue
        for shape in ((1, 3), (9, 5), (40, 70), (3, 4, 5, 6), (2, 3, 130)):
            holds(error_ledger(*operands(shape, dtype, spread=5, mean=2), product=product, algorithm=algorithm))


SHAPES = ((7, 3), (300, 40), (1000, 7), (2, 3, 5), (8, 4, 10, 10), (2, 3, 70, 70), (5, 300, 3), (1, 4, 5000), (3000, 2))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fast_pass_has_the_bits_of_the_engine_and_the_errors_of_the_orders(shape):
    for product in PRODUCTS:
        for dtype in DTYPES[: 2 if product == "Ascend910A" else 3]:
            data = operands(shape, dtype, spread=6, mean=3)
            run = ops.batch_norm_reduce_backward(*data, product=product).run
            flat = [formats.to_bits(a).reshape(-1) for a in data[:2]]
            for wide in (False, True):
                wanted = np.ones(shape[1], bool)
                parts, sums, _ = ledger_fast.traverse(*flat, run.plan.geometry, wanted, wide)
                for k, name in enumerate(("sum_dy", "sum_dy_x")):
                    assert (parts[k].view(np.uint32) == run.partials[name].view(np.uint32)).all()
                    assert (sums[k].view(np.uint32) == run.sums[name].view(np.uint32)).all()
            fast = error_ledger(*data, product=product, method="fast")
            slow = error_ledger(*data, product=product, method="orders")
            assert fast.entries == slow.entries
            holds(fast)


def test_a_group_reduce_over_many_cores_has_a_combine_level():
    data = operands((2, 3, 200, 200), "float32", mean=1)
    ledger = error_ledger(*data)
    assert ledger.plan.group_r > 1
    assert any(ledger.entries["sum_dy"]["core combine"])
    holds(ledger)


def numbers(dtype):
    form = formats.get(dtype)
    top = 2.0**4 if dtype == "float16" else 2.0**25
    tiny = form.min_subnormal
    return st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, tiny, -tiny, 3 * tiny, top, -top, 1 + 2.0**-10, 2.0**-30]),
        st.floats(-top, top, width=32),
        st.floats(-1, 1, width=32),
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_residual_is_zero_on_any_data(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    algorithm = data.draw(st.sampled_from(list(CONTRACTS)))
    product = data.draw(st.sampled_from(PRODUCTS[: 2 if dtype == "bfloat16" else 3]))
    shape = data.draw(st.sampled_from(((1, 1), (2, 2), (9, 1), (33, 2), (3, 2, 11), (2, 1, 70))))
    size = int(np.prod(shape))
    kind = formats.get(dtype).dtype
    pool = [data.draw(st.lists(numbers(dtype), min_size=1, max_size=12)) for _ in range(2)]
    pick = np.random.default_rng(data.draw(st.integers(0, 999)))
    dy, x = (pick.choice(np.array(p), size).reshape(shape).astype(kind) for p in pool)
    each = st.lists(numbers(dtype), min_size=shape[1], max_size=shape[1])
    mean, invstd = (np.array(data.draw(each), np.float32) for _ in range(2))
    holds(error_ledger(dy, x, mean, invstd, algorithm=algorithm, product=product), everywhere=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_constants_subnormals_and_huge_ranges(dtype):
    form = formats.get(dtype)
    ulp = 2.0 ** (1 - form.significand_bits)
    for fill in (0.1, form.min_subnormal, 1 + ulp):
        full = np.full((64, 2, 9), fill).astype(form.dtype)
        holds(error_ledger(full, full, np.float32([fill, 0]), np.float32([1, 3])))
    huge = operands((64, 3, 9), dtype, spread=10 if dtype == "float16" else 60)
    holds(error_ledger(*huge))
    ties = np.where(np.arange(64 * 2 * 4) % 2, 1.0, 2.0**-24).reshape(64, 2, 4).astype(form.dtype)
    holds(error_ledger(ties, ties, np.float32([1, 0]), np.float32([1, 1])))


def test_tiers_go_up_to_integers_and_stay_exact():
    values = np.array([1e300, 1.0, 1e-300, -1e300, 2.0**-1074, 1e16, 1.0])
    labels = np.zeros(7, np.int8)
    want = sum(map(Fraction, values.tolist()), Fraction(0))
    assert exact_sums_by_label(values, labels, 1) == [want]
    assert bucket_sum(values, labels, 0) == want
    a, b = np.random.default_rng(0).standard_normal((2, 50))
    assert exact_dot(a, b) == sum(Fraction(p) * Fraction(q) for p, q in zip(a.tolist(), b.tolist(), strict=True))


def test_spread_so_wide_that_float64_does_not_suffice():
    rng = np.random.default_rng(3)
    dy = (rng.standard_normal((64, 2, 40)) * 2.0 ** rng.integers(-60, 60, (64, 2, 40))).astype(np.float32)
    ledger = error_ledger(dy, dy, np.float32([0.3, 0]), np.float32([1, 1]))
    assert ledger.tiers["double-double"] + ledger.tiers["integers"] > 0
    holds(ledger)


def test_masters_attribute_input_quantisation():
    rng = np.random.default_rng(1)
    wide = {k: rng.standard_normal((8, 3, 16)) + m for k, m in (("grad_out", 0), ("input", 2))}
    dy, x = (wide[k].astype(np.float16) for k in ("grad_out", "input"))
    mean, invstd = np.float32([2, 1, 0]), np.float32([1, 0.7, 3])
    for algorithm in ("cann", "exact", "torch_cuda"):
        ledger = error_ledger(dy, x, mean, invstd, master=wide, algorithm=algorithm)
        holds(ledger)
        for c in range(3):
            d, v = (wide[k][:, c].ravel().tolist() for k in ("grad_out", "input"))
            mu, r = Fraction(float(mean[c])), Fraction(float(invstd[c]))
            want = r * sum(Fraction(p) * (Fraction(q) - mu) for p, q in zip(d, v, strict=True))
            assert ledger.exact["grad_weight"][c] == want
            assert ledger.entries["grad_weight"]["quantise x"][c] != 0
            ones = zip(d, dy[:, c].ravel().tolist(), v, x[:, c].ravel().tolist(), strict=True)
            share = sum((Fraction(b) - Fraction(a)) * (Fraction(p) + Fraction(q) - 2 * mu) / 2 for a, b, p, q in ones)
            assert ledger.entries["sum_dy_xmu"]["quantise dy"][c] == share


def test_overflow_is_located_and_not_attributed():
    dy = np.full((4, 2, 100), 60000, np.float16)
    x = np.ones((4, 2, 100), np.float16)
    x[:, 1] = 0
    ledger = error_ledger(dy, x, np.zeros(2, np.float32), np.ones(2, np.float32))
    first = ledger.overflows[0]
    assert (first.step, first.exact) == ("output cast", 400 * 60000)
    assert ledger.residual["sum_dy"] == [None, None] and ledger.residual["grad_weight"] == [None, 0]
    saturating = error_ledger(dy, x, np.zeros(2, np.float32), np.ones(2, np.float32), product="Ascend910A")
    holds(saturating)
    assert saturating.entries["sum_dy"]["saturation"][0] == 65504 - 400 * 60000
    big = np.full((2, 1, 3000), 3e38, np.float32)
    ledger = error_ledger(big, big * 0 + 1, np.zeros(1, np.float32), np.ones(1, np.float32))
    first = next(o for o in ledger.overflows if o.output == "sum_dy")
    assert first.step in ("tile pairing", "in-tile adds") and first.core is not None and first.node is not None
    assert first.exact == 2 * Fraction(float(np.float32(3e38)))


def test_fp16_products_are_exact_and_the_cast_dominates():
    ledger = error_ledger(*operands((16, 4, 64), "float16", mean=1))
    totals = ledger.step_totals("grad_weight")
    assert totals["product"]["absolute"] == 0
    assert totals["output cast"]["relative_rms"] > 100 * totals["in-tile adds"]["relative_rms"]


def test_exact_values_by_both_routes():
    for dtype in DTYPES:
        data = operands((3, 5, 70), dtype, spread=20 if dtype != "float16" else 5)
        assert exact_values(*data) == exact_outputs(*data)
    data[0][0, 0, 0] = np.inf
    assert str(exact_values(*data)) == str(exact_outputs(*data))


def test_bad_requests_say_what_is_wrong():
    data = operands((4, 2), "float16")
    with pytest.raises(EmulatorError, match="method: got 'quick'"):
        error_ledger(*data, method="quick")
    with pytest.raises(EmulatorError, match="master input: got 'nothing'"):
        error_ledger(*data, master={"grad_out": np.zeros((4, 2))})
    with pytest.raises(EmulatorError, match="at least one element"):
        error_ledger(*operands((0, 2), "float16"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_real_size(dtype):
    ledger = error_ledger(*operands((32, 64, 56, 56), dtype, mean=0.3))
    holds(ledger)
