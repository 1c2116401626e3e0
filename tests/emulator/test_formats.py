"""Number formats against NumPy, ml_dtypes and a rounder written here with fractions."""

import os
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from emulator import formats
from emulator.errors import EmulatorError
from emulator.formats import RoundMode
from emulator.jit import njit

HALF, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
MODES = [mode for mode in RoundMode if mode is not RoundMode.HYBRID]
PATTERNS = np.arange(1 << 16, dtype=np.uint16)
# (first bits of infinity, bits of the significand without the hidden one, exponent of the smallest number)
LAYOUT = {HALF: (0x7C00, 10, -24), BF16: (0x7F80, 7, -133)}
both = pytest.mark.parametrize("dtype", [HALF, BF16], ids=["float16", "bfloat16"])


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits, or NaN on both sides."""
    bits = np.dtype(f"u{got.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaN
        nan, got_nan = np.isnan(want), np.isnan(got)
    return got.dtype == want.dtype and np.array_equal(got_nan, nan) and np.array_equal(
        got.view(bits)[~nan], want.view(bits)[~nan])


# ---- oracles: numbers one at a time with fractions; arrays with float64, which holds all values used here


def value_of(bits: int, dtype: np.dtype) -> Fraction:
    """Value of a non-negative pattern; that of infinity is the power of two it stands in for."""
    _, width, smallest = LAYOUT[dtype]
    exponent, fraction = bits >> width, bits & ((1 << width) - 1)
    if exponent:
        fraction, exponent = fraction | 1 << width, exponent - 1
    return fraction * Fraction(2) ** (exponent + smallest)


def choose(lower_bits: int, exact: bool, half: int, negative: bool, mode: RoundMode) -> int:
    """Bits of the result: ``lower_bits`` or the next; ``half`` is the sign of x - the middle of the two."""
    if exact or mode == RoundMode.TRUNC:
        return lower_bits
    if mode == RoundMode.ODD:
        return lower_bits | 1
    if mode == RoundMode.FLOOR:
        return lower_bits + negative
    if mode == RoundMode.CEIL:
        return lower_bits + (not negative)
    if mode == RoundMode.ROUND:
        return lower_bits + (half >= 0)
    return lower_bits + (half > 0 or (half == 0 and lower_bits % 2 == 1))


def round_one(x: np.float32, dtype: np.dtype, mode: RoundMode, saturate: bool) -> int:
    infinity, _, _ = LAYOUT[dtype]
    if np.isnan(x):
        return 0 if saturate else (0x7E00 if dtype == HALF else 0x7FC0)
    negative = bool(np.signbit(x))
    if np.isinf(x):
        result = infinity
    else:
        magnitude = abs(Fraction(float(x)))
        low, high = 0, infinity  # the largest pattern that is finite and not above the magnitude
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if value_of(middle, dtype) <= magnitude else (low, middle)
        below, above = value_of(low, dtype), value_of(low + 1, dtype)
        twice = 2 * magnitude - below - above
        result = choose(low, magnitude == below, (twice > 0) - (twice < 0), negative, mode)
    if saturate:
        result = min(result, infinity - 1)
    return result | negative << 15


@cache
def table_of(dtype: np.dtype) -> np.ndarray:
    """The values of `value_of`, in order."""
    return np.array([float(value_of(bits, dtype)) for bits in range(LAYOUT[dtype][0] + 1)])


def round_all(x: np.ndarray, dtype: np.dtype, mode: RoundMode, saturate: bool) -> np.ndarray:
    infinity, table = LAYOUT[dtype][0], table_of(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        negative, magnitude = np.signbit(x), np.abs(x.astype(np.float64))
    low = np.clip(np.searchsorted(table, magnitude, "right") - 1, 0, infinity - 1)
    exact, middle = table[low] == magnitude, (table[low] + table[low + 1]) / 2
    up = {
        RoundMode.NONE: (magnitude > middle) | ((magnitude == middle) & (low % 2 == 1)),
        RoundMode.ODD: low % 2 == 0,
        RoundMode.TRUNC: np.zeros(x.shape, bool),
        RoundMode.FLOOR: negative,
        RoundMode.CEIL: ~negative,
        RoundMode.ROUND: magnitude >= middle,
    }[RoundMode.NONE if mode == RoundMode.RINT else mode]
    result = np.where(np.isinf(x), infinity, low + (up & ~exact))
    if saturate:
        result = np.minimum(result, infinity - 1)
    nan = 0 if saturate else round_one(np.float32(np.nan), dtype, mode, saturate)
    return np.where(np.isnan(x), nan, result | negative.astype(np.int64) << 15).astype(np.uint16)


def neighbours(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.nextafter(x, np.float32(-np.inf)), np.nextafter(x, np.float32(np.inf))])


@cache
def hard_cases(dtype: np.dtype) -> np.ndarray:
    """All values, all midpoints between neighbours, the fp32 numbers next to both, extremes and NaNs."""
    values = table_of(dtype)
    middles = (values[:-1] + values[1:]) / 2
    finite = np.concatenate([values, middles])
    with np.errstate(over="ignore"):
        single = finite.astype(np.float32)
        positive = neighbours(single[np.isfinite(single) & (single == finite)])
    patterns = np.array([0, 1, 2, 0x7FFFFF, 0x800000, 0x33000000, 0x33000001, 0x477FFFFF, 0x47800000,
                         0x47FFFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF],
                        np.uint32)
    random = np.random.default_rng(3).integers(0, 1 << 31, 20000, np.uint32)
    positive = np.concatenate([positive, patterns.view(np.float32), random.view(np.float32)])
    return np.concatenate([positive, -positive])


# ---- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "name"), [
    (["float16", "fp16", "half", np.float16, HALF, formats.FLOAT16], "float16"),
    (["bfloat16", "bf16", ml_dtypes.bfloat16, BF16], "bfloat16"),
    (["float32", "fp32", "float", np.float32, np.dtype("f4")], "float32"),
])
def test_get_names(names, name):
    assert {formats.get(n).name for n in names} == {name}


@pytest.mark.parametrize("name", ["fp8", "float64", np.float64, np.int16, 3, None, np.dtype(">f4"), [1]])
def test_get_refuses(name):
    with pytest.raises(EmulatorError, match=r"number format: got .*float32, float16, bfloat16"):
        formats.get(name)


@pytest.mark.parametrize("format", formats.FORMATS, ids=lambda f: f.name)
def test_records_agree_with_finfo(format):
    info = ml_dtypes.finfo(format.dtype)
    assert format.bits == info.bits == 8 * format.bits_dtype.itemsize
    assert format.significand_bits == info.nmant + 1
    assert (format.min_exponent, format.max_exponent) == (info.minexp, info.maxexp - 1)
    assert format.max_finite == float(info.max)
    assert format.min_subnormal == float(info.smallest_subnormal)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), HALF, BF16])
def test_bits_are_views(dtype):
    array = np.arange(24).reshape(4, 6).astype(dtype)[::2, ::3]
    bits = formats.to_bits(array)
    assert np.shares_memory(bits, array) and bits.dtype == formats.get(dtype).bits_dtype
    back = formats.from_bits(bits)
    assert back.dtype == dtype and np.shares_memory(back, array) and back.shape == array.shape
    with pytest.raises(EmulatorError, match="got dtype"):
        formats.from_bits(np.zeros(3, np.uint32))


# ---- decode -----------------------------------------------------------------------------------------------


@njit
def decode_all(source, target):
    for i in range(source.size):
        target[i] = formats.decode(source[i])


@njit
def decode_without_instruction(source, target):
    for i in range(source.size):
        target[i] = formats.half_to_single(source[i])


@both
def test_decode_all_patterns(dtype):
    array = PATTERNS.view(dtype)
    bits = formats.to_bits(array)
    want = array.astype(np.float32)
    got = np.empty(bits.size, np.float32)
    decode_all(bits, got)
    assert same(got, want)
    plain = np.array([formats.decode(b) for b in bits[::7]])
    assert same(plain, got[::7])
    if dtype == HALF:
        other = np.empty_like(got)
        decode_without_instruction(bits, other)
        assert np.array_equal(other.view(np.uint32), got.view(np.uint32))


def test_decode_of_single_is_the_identity():
    x = np.array([0.0, -0.0, 1e-45, np.inf, -3.5], np.float32)
    got = np.empty_like(x)
    decode_all(x, got)
    assert same(got, x) and formats.decode(x[4]) == np.float32(-3.5)


# ---- rounding ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_rounding(dtype, mode, saturate):
    x = hard_cases(dtype)
    got = formats.cast(x, dtype, mode, saturate)
    want = round_all(x, dtype, mode, saturate)
    wrong = np.flatnonzero(got.view(np.uint16) != want)
    assert wrong.size == 0, (x[wrong[:5]], got[wrong[:5]], want[wrong[:5]].view(dtype))
    for i in range(0, x.size, 1999):
        assert got.view(np.uint16)[i] == round_one(x[i], dtype, mode, saturate), x[i]


@pytest.mark.jitless
@both
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_compiled_and_plain_agree(dtype, mode):
    function = formats.round_to_half if dtype == HALF else formats.round_to_bfloat16
    plain = getattr(function, "py_func", function)
    for x in hard_cases(dtype)[::401]:
        for saturate in (False, True):
            assert plain(x, mode, saturate) == function(x, mode, saturate) == function(x, int(mode), saturate)


@njit
def round_by_constant(source, target):
    for i in range(source.size):
        target[i] = formats.round_to_half(source[i], RoundMode.FLOOR, False)


def test_mode_may_be_a_constant_of_a_kernel():
    x = hard_cases(HALF)
    got = np.empty(x.size, np.uint16)
    round_by_constant(x, got)
    assert np.array_equal(got, round_all(x, HALF, RoundMode.FLOOR, False))


@pytest.mark.jitless
def test_nan_is_canonical_and_signs_are_kept():
    x = np.array([-np.nan, -0.0, -1e-40], np.float32)
    assert formats.cast(x, "half").view(np.uint16).tolist() == [0x7E00, 0x8000, 0x8000]
    assert formats.cast(x, "bf16").view(np.uint16).tolist() == [0x7FC0, 0x8000, 0x8001]
    assert formats.cast(x, "half", saturate=True).view(np.uint16).tolist() == [0, 0x8000, 0x8000]


SCRIPT = """
import sys, zlib, numpy as np
from emulator import formats as f
r = np.random.default_rng(5)
x = r.integers(0, 1 << 32, 300, np.uint32).view(np.float32)
h = r.integers(0, 1 << 16, 300, np.uint16)
out = [f.cast(x, d, m, s) for d in ("half", "bf16") for m in range(7) for s in (False, True)]
out += [f.cast(h.view(np.float16), "float"), f.cast(f.from_bits(h.view(np.int16)), "float")]
f.two_sum_self_test()
print(zlib.crc32(b"".join(a.tobytes() for a in out)))
"""


def test_same_bits_without_the_compiler():
    root = Path(formats.__file__).parents[1]
    crc = [subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], cwd=root, check=True,
                          stdout=subprocess.PIPE, env=os.environ | {"NUMBA_DISABLE_JIT": flag}).stdout
           for flag in ("0", "1")]
    assert crc[0] == crc[1] != b""


# ---- cast -------------------------------------------------------------------------------------------------


@both
def test_cast_to_single_is_exact_and_back(dtype):
    array = PATTERNS.view(dtype).reshape(4, 16, 1024).transpose(2, 0, 1)
    single = formats.cast(array, "float32")
    assert single.shape == array.shape and same(single, array.astype(np.float32))
    assert same(formats.cast(single, dtype), np.ascontiguousarray(array))


def test_half_and_bfloat16_round_once():
    half, bf16 = PATTERNS.view(HALF), PATTERNS.view(BF16)
    for mode in MODES:
        got = formats.cast(half, BF16, mode).view(np.uint16)
        assert np.array_equal(got, round_all(half.astype(np.float32), BF16, mode, False))
        got = formats.cast(bf16, HALF, mode).view(np.uint16)
        assert np.array_equal(got, round_all(bf16.astype(np.float32), HALF, mode, False))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), HALF, BF16])
def test_cast_to_itself_copies_nothing(dtype):
    array = np.ones(3, dtype)
    assert formats.cast(array, dtype) is array


@pytest.mark.jitless
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2)])
def test_cast_of_odd_shapes(shape):
    assert formats.cast(np.ones(shape, np.float32), "half").shape == shape


@pytest.mark.parametrize("mode", [RoundMode.HYBRID, 7, -1, 8, "RINT"])
def test_cast_refuses_modes(mode):
    with pytest.raises(EmulatorError, match=r"rounding of Cast to float16: got .*NONE, RINT, .*ODD;"):
        formats.cast(np.ones(2, np.float32), "half", mode)


def test_cast_refuses_formats():
    with pytest.raises(EmulatorError, match="float64"):
        formats.cast(np.ones(2), "half")


# ---- helpers ----------------------------------------------------------------------------------------------


@pytest.mark.jitless
def test_canonical_nan():
    bits = np.array([0x7F800001, 0xFFC12345, 0x7F800000, 0x80000000], np.uint32)
    x = bits.view(np.float32)
    want = [0x7FC00000, 0x7FC00000, 0x7F800000, 0x80000000]
    assert formats.canonical_nan(x).view(np.uint32).tolist() == want
    assert bits[0] == 0x7F800001
    assert formats.canonical_nan(x, out=x) is x and bits.tolist() == want
    with pytest.raises(EmulatorError, match="canonical_nan"):
        formats.canonical_nan(np.ones(2))


@pytest.mark.jitless
def test_compiled_arithmetic_rounds_every_step(monkeypatch):
    formats.two_sum_self_test()

    def contracted(a, b, c, s, e, r):
        s[:], e[:] = zip(*(formats.two_sum(p, q) for p, q in zip(a, b, strict=True)), strict=True)
        r[:] = a.astype(np.float64) * b + c

    monkeypatch.setattr(formats, "_self_test_loop", contracted)
    with pytest.raises(EmulatorError, match="fuses"):
        formats.two_sum_self_test()

    def reassociated(a, b, c, s, e, r):
        s[:], e[:], r[:] = a + b, 0, 0

    monkeypatch.setattr(formats, "_self_test_loop", reassociated)
    with pytest.raises(EmulatorError, match="reassociates"):
        formats.two_sum_self_test()


# ---- exhaustive -------------------------------------------------------------------------------------------


def numpy_cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``x.astype(dtype)`` of one exponent; NumPy is slow where all of it becomes infinite or 0 in float16."""
    smallest, largest = np.abs(x[[0, -1]])
    if dtype == HALF and np.isfinite(largest) and (smallest >= 2.0**17 or largest < 2.0**-26):
        return np.full(x.size, np.copysign(np.inf if smallest > 1 else 0, x[0]), dtype)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.slow
@both
def test_all_singles(dtype):
    chunk = 1 << 23  # one exponent
    for start in range(0, 1 << 32, chunk):
        x = np.arange(start, start + chunk, dtype=np.uint32).view(np.float32)
        want, got = numpy_cast(x, dtype), formats.cast(x, dtype)
        different = got.view(np.uint16) != want.view(np.uint16)
        assert all(np.isnan(a[different]).all() for a in (x, got, want)), hex(start)


@pytest.mark.slow
@both
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_rounding_with_fractions_only(dtype, mode):
    x = hard_cases(dtype)[::41]
    for saturate in (False, True):
        got = formats.cast(x, dtype, mode, saturate).view(np.uint16)
        assert got.tolist() == [round_one(v, dtype, mode, saturate) for v in x]
