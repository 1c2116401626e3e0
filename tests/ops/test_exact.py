"""Exact sums, roundings and ulps against plain fractions, one element at a time."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from emulator.errors import EmulatorError
from ops import exact

SINGLE, HALF, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
DTYPES = [SINGLE, HALF, BF16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def channel(array: np.ndarray, c: int) -> list[float]:
    with np.errstate(invalid="ignore"):
        return [float(v) for v in array[:, c].astype(np.float64).ravel()]


def sums(dy: np.ndarray, x: np.ndarray, c: int) -> tuple[Fraction, Fraction]:
    a, b = ([Fraction(v) for v in channel(t, c)] for t in (dy, x))
    return sum(a, Fraction(0)), sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0))


def random_bits(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    """Finite numbers of every magnitude, subnormal ones included: random bit patterns."""
    bits = np.random.default_rng(seed).integers(0, 1 << 8 * dtype.itemsize, shape, np.uint64)
    array = bits.astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):
        array[~np.isfinite(array)] = dtype.type(0.75)
    return array


def check(dy: np.ndarray, x: np.ndarray) -> None:
    got = exact.exact_sums(dy, x)
    want = [sums(dy, x, c) for c in range(dy.shape[1])]
    assert list(zip(*got, strict=True)) == want
    assert all(type(v) is Fraction for v in got[0] + got[1])


# ---- sums -------------------------------------------------------------------------------------------------


@each_dtype
@pytest.mark.parametrize("shape", [(300, 5), (1, 1), (7, 3, 40), (3, 2, 200), (4, 33, 3, 5), (2, 3, 4, 5, 3)])
def test_sums_of_all_magnitudes(dtype, shape):
    check(random_bits(shape, dtype, 1), random_bits(shape, dtype, 2))


@pytest.mark.jitless
@pytest.mark.parametrize("dy_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("x_dtype", DTYPES, ids=str)
def test_dtypes_may_differ(dy_dtype, x_dtype):
    check(random_bits((6, 3, 5), dy_dtype, 3), random_bits((6, 3, 5), x_dtype, 4))


@each_dtype
def test_extremes(dtype):
    info = ml_dtypes.finfo(dtype)
    big, tiny, normal = float(info.max), float(info.smallest_subnormal), float(info.smallest_normal)
    values = np.array([big, -big, tiny, -tiny, normal, -normal, 0.0, -0.0, 1.0, normal - tiny]).astype(dtype)
    dy, x = (t.reshape(-1, 1).repeat(2, axis=1) for t in np.meshgrid(values, values))
    check(dy, x)
    check(dy[:11], x[:11])


@pytest.mark.jitless
def test_what_floating_point_loses():
    dy = np.array([[2.0**24], [1.0], [-(2.0**24)], [1.0]], np.float32)
    assert dy.sum(dtype=np.float32) != 2
    got = exact.exact_sums(dy, dy[::-1].copy())
    assert got == ([Fraction(2)], [Fraction(2**24 - 2**24 - 2**24 + 2**24)])
    x = np.array([[2.0**100], [2.0**-149], [2.0**100], [0.0]], np.float32)
    assert exact.exact_sums(dy, x)[1] == [Fraction(1, 2**149)]


@pytest.mark.parametrize("shape", [(70000, 2), (2, 2, 40000), (3, 1, 65536), (3000, 18, 4)])
@pytest.mark.parametrize("sign", [1, -1])
def test_many_equal_terms(shape, sign):
    """More terms than a bucket holds, with the largest significand; large enough for several threads."""
    count = math.prod(shape) // shape[1]
    value = Fraction(2**24 - 1)
    dy, x = np.full(shape, float(value), np.float32), np.full(shape, float(sign * value), np.float32)
    assert exact.exact_sums(dy, x) == ([count * value] * shape[1], [sign * count * value**2] * shape[1])
    huge = np.full(shape, sign * np.finfo(np.float32).max)
    top = Fraction(float(np.finfo(np.float32).max))
    assert exact.exact_sums(huge, huge) == ([sign * count * top] * shape[1], [count * top**2] * shape[1])


def test_large_sums_do_not_depend_on_layout():
    dy, x = random_bits((8, 12, 37, 40), SINGLE, 5), random_bits((8, 12, 37, 40), SINGLE, 6)
    want = exact.exact_sums(dy, x)
    assert want[0][7] == sums(dy, x, 7)[0] and want[1][11] == sums(dy, x, 11)[1]
    last = [np.moveaxis(np.ascontiguousarray(np.moveaxis(t, 1, 3)), 3, 1) for t in (dy, x)]
    assert not last[0].flags.c_contiguous and exact.exact_sums(*last) == want
    flat = [np.ascontiguousarray(np.moveaxis(t, 1, 3)).reshape(-1, 12) for t in (dy, x)]
    flat[0].flags.writeable = False
    assert exact.exact_sums(*flat) == want
    assert exact.exact_sums(dy[::-1, :, ::-1], x[::-1, :, ::-1]) == want


@pytest.mark.jitless
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3, 0), (0, 0, 5)])
def test_nothing_to_sum(shape):
    empty = np.empty(shape, np.float32)
    assert exact.exact_sums(empty, empty) == ([Fraction(0)] * shape[1], [Fraction(0)] * shape[1])


# ---- outputs ----------------------------------------------------------------------------------------------


@pytest.mark.jitless
@each_dtype
def test_outputs(dtype):
    dy, x = random_bits((9, 4, 6), dtype, 7), random_bits((9, 4, 6), dtype, 8)
    mean, invstd = random_bits((4,), SINGLE, 9), np.abs(random_bits((4,), dtype, 10))
    got = exact.exact_outputs(dy, x, mean, invstd)
    assert list(got) == ["sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias"]
    for c in range(4):
        mu, inv = Fraction(float(mean[c])), Fraction(float(invstd[c]))
        centred = sum(
            (Fraction(a) * (Fraction(b) - mu) for a, b in zip(channel(dy, c), channel(x, c), strict=True)), Fraction(0)
        )
        assert got["sum_dy_xmu"][c] == centred and got["grad_weight"][c] == inv * centred
        assert got["sum_dy"][c] == got["grad_bias"][c] == sums(dy, x, c)[0]


@pytest.mark.jitless
def test_non_finite_channels():
    inf, nan = math.inf, math.nan
    columns = [  # dy, x, and what the sums of dy and of dy * x must be; None is a rational number
        ([1, inf], [1, 1], inf, inf),
        ([1, -inf], [1, 2], -inf, -inf),
        ([inf, -inf], [1, 1], nan, nan),
        ([inf, -inf], [1, -1], nan, inf),
        ([1, 2], [inf, 3], None, inf),
        ([1, 0], [1, -inf], None, nan),
        ([1, nan], [1, 1], nan, nan),
        ([1, 2], [nan, 1], None, nan),
        ([1, 2], [3, 4], None, None),
        ([inf, 1], [0, 1], inf, nan),
    ]
    dy, x = (np.array([c[i] for c in columns], np.float32).T.copy() for i in (0, 1))
    for dtype in DTYPES:
        got = exact.exact_sums(dy.astype(dtype), x.astype(dtype))
        for c, column in enumerate(columns):
            for values, want, rational in zip(got, column[2:], sums(dy[:, 8:9], x[:, 8:9], 0), strict=True):
                if want is None:
                    assert type(values[c]) is Fraction
                    assert c != 8 or values[c] == rational
                else:
                    assert repr(values[c]) == repr(want), (dtype, column)
    mean, invstd = np.full(10, 0.5, np.float32), np.full(10, 2.0, np.float32)
    mean[8] = inf
    out = exact.exact_outputs(dy, x, mean, invstd)
    # inf - mean*inf is nan, inf - mean*finite is inf
    assert [repr(v) for v in out["sum_dy_xmu"]] == [
        "nan",
        "nan",
        "nan",
        "nan",
        "inf",
        "nan",
        "nan",
        "nan",
        "-inf",
        "nan",
    ]
    assert repr(out["grad_weight"][4]) == "inf"
    signalling = np.array([[0x7F800001]], np.uint32).view(np.float32)
    assert math.isnan(exact.exact_sums(signalling, signalling)[0][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": np.ones((2, 4), np.float32)}, r"shape of input: got \(2, 4\); allowed: \(2, 3\)"),
        ({"grad_out": np.ones(3, np.float32), "input": np.ones(3, np.float32)}, r"shape of grad_out: got \(3,\)"),
        ({"mean": np.ones((1, 3), np.float32)}, r"shape of mean: got \(1, 3\); allowed: \(3,\)"),
        ({"invstd": np.ones(2, np.float32)}, r"shape of invstd: got \(2,\)"),
        ({"input": np.ones((2, 3))}, "number format: got dtype.*float64"),
        ({"mean": np.ones(3, np.int32)}, "number format: got dtype.*int32"),
    ],
)
def test_refused(change, message):
    operands = {
        "grad_out": np.ones((2, 3), np.float32),
        "input": np.ones((2, 3), np.float32),
        "mean": np.ones(3, np.float32),
        "invstd": np.ones(3, np.float32),
    }
    with pytest.raises(EmulatorError, match=message):
        exact.exact_outputs(**operands | change)


# ---- roundings and ulps -----------------------------------------------------------------------------------


@each_dtype
def test_round_fraction_keeps_every_number(dtype):
    for value in random_bits((400,), dtype, 11):
        got = exact.round_fraction(Fraction(float(value)), dtype)
        assert got.dtype == dtype and float(got) == float(value)


@each_dtype
def test_round_fraction_between_neighbours(dtype):
    integer = np.dtype(f"u{dtype.itemsize}")
    low = np.abs(random_bits((300,), dtype, 12))
    high = (low.view(integer) + integer.type(1)).view(dtype)
    for a, b in zip(low, high, strict=True):
        if not np.isfinite(b):
            continue
        below, above = Fraction(float(a)), Fraction(float(b))
        even = b if int(a.view(integer)) & 1 else a
        nudge = (above - below) / 10**30
        for value, want in [
            ((below + above) / 2, even),
            ((below + above) / 2 - nudge, a),
            ((below + above) / 2 + nudge, b),
            ((2 * below + above) / 3, a),
        ]:
            assert exact.round_fraction(value, dtype).tobytes() == want.tobytes()
            assert exact.round_fraction(-value, dtype).tobytes() == (-want).tobytes()
        assert exact.ulp((below + above) / 2, dtype) == exact.ulp(below, dtype) == above - below


@each_dtype
def test_round_fraction_at_the_ends(dtype):
    info = ml_dtypes.finfo(dtype)
    top, tiny = Fraction(float(info.max)), Fraction(float(info.smallest_subnormal))
    limit = top + exact.ulp(top, dtype) / 2
    assert float(exact.round_fraction(limit, dtype)) == math.inf
    assert float(exact.round_fraction(-limit, dtype)) == -math.inf
    assert float(exact.round_fraction(Fraction(10) ** 400, dtype)) == math.inf
    assert Fraction(float(exact.round_fraction(limit - tiny, dtype))) == top
    assert repr(float(exact.round_fraction(-tiny / 2, dtype))) == "-0.0"
    assert Fraction(float(exact.round_fraction(tiny * Fraction(51, 100), dtype))) == tiny
    for value in (0.0, -0.0, math.inf, -math.inf, math.nan):
        assert repr(float(exact.round_fraction(value, dtype))) == repr(value)
    assert float(exact.round_fraction(Fraction(0), dtype)) == 0
    assert float(exact.round_fraction(0.5, dtype)) == 0.5
    assert exact.ulp(Fraction(0), dtype) == exact.ulp(tiny / 3, dtype) == tiny
    below = Fraction(float(np.nextafter(info.max, dtype.type(0))))
    assert exact.ulp(top * 1000, dtype) == exact.ulp(-top, dtype) == top - below
    with pytest.raises(EmulatorError, match="ulp's value: got inf"):
        exact.ulp(math.inf, dtype)


def test_ulp_error():
    inf, nan = math.inf, math.nan
    result = np.array([1.0, 1.0, 1.0, inf, nan, inf, nan, 1.0, inf, inf, 0.0], np.float32)
    values = [
        Fraction(1),
        1 + Fraction(1, 2**24),
        1 - Fraction(1, 2**25),
        inf,
        nan,
        -inf,
        Fraction(1),
        nan,
        Fraction(2) ** 200,
        Fraction(1),
        Fraction(1, 2**150),
    ]
    got = exact.ulp_error(result, values, "float32")
    assert got.dtype == np.float64
    assert got.tolist() == [0, 0.5, 0.5, 0, 0, inf, inf, inf, 0, inf, 0.5]
    assert exact.ulp_error(np.array([1.0], BF16), [Fraction(129, 128)], "bf16").tolist() == [1.0]
    assert exact.ulp_error(np.array([1.0], np.float32), [Fraction(3, 2)], "half").tolist() == [512.0]
    with pytest.raises(EmulatorError, match="shape of result"):
        exact.ulp_error(result, values[1:], "float32")
