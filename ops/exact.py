"""The operator without rounding: the rational numbers that every numeric contract approximates.

With channel = axis 1 and sums over all other axes (ascend_facts 0, aclnnBatchNormReduceBackward):

    sum_dy      = sum(dy)
    sum_dy_xmu  = sum(dy * (x - mean)) = sum(dy * x) - mean * sum(dy)
    grad_weight = invstd * sum_dy_xmu
    grad_bias   = sum_dy

Sums are kept as integers: a finite float is ``significand * 2**exponent``, so each channel has one int64
bucket per exponent that the significands (24 bits, 48 for a product) are added to, and the buckets are put
together at the end. Nothing is ever rounded, in any order and at any size.

A channel with infinities or NaN has no rational sum; its sums are then floats, what IEEE arithmetic makes of
the expanded formula above: inf, -inf or nan.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np

from emulator import formats
from emulator.errors import EmulatorError, explain
from emulator.formats import decode
from emulator.jit import njit

Exact = Fraction | float
"""A rational number, or a float that is not finite."""

_FLUSH = 1 << 15  # (2**24 - 1)**2 * 2**15 + 2**32 < 2**63: as many products fit an int64 bucket
_PRODUCT_BUCKETS = 512  # sum of two exponent fields, each 1 to 254
_LIMBS = 20  # of 32 bits: 2**-300 to 2**256, times 2**63 terms
_SINGLE_UNIT, _PRODUCT_UNIT = 150, 300  # bucket b counts units of 2**(b - unit)


@njit
def _split(value):  # type: ignore[no-untyped-def]
    """float32 as ``significand * 2**(bucket - 150)``; infinities and NaN have bucket 255."""
    bits = np.int64(np.float32(value).view(np.int32))
    exponent = (bits >> 23) & 255
    significand = (bits & 0x7FFFFF) | (min(exponent, 1) << 23)
    return (-significand if bits < 0 else significand), max(exponent, 1)


@njit
def _collect(low, high, limbs):  # type: ignore[no-untyped-def]
    """``limbs`` = sum((low[b] + (high[b] << 32)) << b); limbs are uint32, low end first, two's complement."""
    mask = (1 << 32) - 1
    wide = np.zeros(limbs.size + 3, np.int64)
    for b in range(low.size):
        k, shift = b >> 5, b & 31
        for value in (low[b], high[b]):
            lower, upper = (value & mask) << shift, (value >> 32) << shift
            # The shift of a 32-bit number may reach bit 62, never the sign.
            wide[k] += lower & mask
            wide[k + 1] += (lower >> 32) + (upper & mask)
            wide[k + 2] += upper >> 32
            k += 1
    for k in range(limbs.size):
        limbs[k] = wide[k] & mask
        wide[k + 1] += wide[k] >> 32


@njit
def _flush(low, high):  # type: ignore[no-untyped-def]
    """Move all but the last 32 bits of each bucket to ``high``."""
    for b in range(low.size):
        high[b] += low[b] >> 32
        low[b] &= (1 << 32) - 1


@njit(nogil=True)
def _accumulate(dy, x, first, limbs, special):  # type: ignore[no-untyped-def]
    """Sums of dy and dy*x of channel ``first + c``, in ``limbs[c]`` (2, LIMBS) and ``special[c]`` (2,).

    dy and x are (N, C, S) in the storage form of `emulator.formats`; ``special`` adds up the terms that are
    not finite and stays 0 without them.
    """
    channels, inner = limbs.shape[0], dy.shape[2]
    singles = np.zeros((channels, 256), np.int64)
    products = np.zeros((channels, 2, _PRODUCT_BUCKETS), np.int64)
    filled = 0
    for n in range(dy.shape[0]):
        for start in range(0, inner, _FLUSH):
            stop = min(inner, start + _FLUSH)
            if filled + stop - start > _FLUSH:
                for c in range(channels):
                    _flush(products[c, 0], products[c, 1])
                filled = 0  # what is left is too small to count
            filled += stop - start
            for c in range(channels):
                for s in range(start, stop):
                    a, b = decode(dy[n, first + c, s]), decode(x[n, first + c, s])
                    significand_a, bucket_a = _split(a)
                    significand_b, bucket_b = _split(b)
                    if bucket_a == 255 or bucket_b == 255:
                        special[c, 1] += np.float64(a) * np.float64(b)
                    else:
                        products[c, 0, bucket_a + bucket_b] += significand_a * significand_b
                    if bucket_a == 255:
                        special[c, 0] += np.float64(a)
                    else:
                        singles[c, bucket_a] += significand_a
    nothing = np.zeros(256, np.int64)
    for c in range(channels):
        _collect(singles[c], nothing, limbs[c, 0])
        _collect(products[c, 0], products[c, 1], limbs[c, 1])


def _canonical(name: str, array: np.ndarray) -> np.ndarray:
    """The array as (N, C, S) in storage form; a contiguous one is not copied."""
    if array.ndim < 2:
        raise EmulatorError(
            explain(f"shape of {name}", got=array.shape, allowed="2 or more axes", remedy="put the channels on axis 1")
        )
    shape = (array.shape[0], array.shape[1], math.prod(array.shape[2:]))
    return np.ascontiguousarray(formats.to_bits(array)).reshape(shape)


def exact_sums(grad_out: np.ndarray, input: np.ndarray) -> tuple[list[Exact], list[Exact]]:
    """Exact sum(dy) and sum(dy * x) of each channel.

    Args:
        grad_out: dy, (N, C, ...) of float32, float16 or bfloat16.
        input: x, the same shape; its dtype may differ.

    Returns:
        Two lists of C values, each a Fraction or, if a term is not finite, inf, -inf or nan.

    Raises:
        EmulatorError: shapes differ or have fewer than two axes, or a dtype is none of the three.
    """
    if grad_out.shape != input.shape:
        raise EmulatorError(
            explain(
                "shape of input", got=input.shape, allowed=str(grad_out.shape), remedy="give it the shape of grad_out"
            )
        )
    dy, x = _canonical("grad_out", grad_out), _canonical("input", input)
    channels = dy.shape[1]
    limbs = np.zeros((channels, 2, _LIMBS), np.uint32)
    special = np.zeros((channels, 2))
    short = dy.shape[2] < 64
    block = 16 if short else 1

    def run(first: int) -> None:
        last = min(first + block, channels)
        operands = (dy, x, first)
        if short:  # make the channels' rows long
            a, b = (np.ascontiguousarray(t[:, first:last].transpose(1, 0, 2)) for t in (dy, x))
            operands = (a.reshape(1, last - first, -1), b.reshape(1, last - first, -1), 0)
        with np.errstate(invalid="ignore"):
            _accumulate(*operands, limbs[first:last], special[first:last])

    if dy.size < 1 << 16:
        for first in range(0, channels, block):
            run(first)
    else:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, channels)) as pool:
            list(pool.map(run, range(0, channels, block)))
    limbs = limbs.astype("<u4")
    sums: list[list[Exact]] = [
        [
            Fraction(int.from_bytes(limbs[c, k].tobytes(), "little", signed=True), 1 << unit)
            if special[c, k] == 0
            else float(special[c, k])
            for c in range(channels)
        ]
        for k, unit in enumerate((_SINGLE_UNIT, _PRODUCT_UNIT))
    ]
    return sums[0], sums[1]


def exact_outputs(
    grad_out: np.ndarray, input: np.ndarray, mean: np.ndarray, invstd: np.ndarray
) -> dict[str, list[Exact]]:
    """All outputs of the operator, exactly.

    Args:
        grad_out: As for `exact_sums`.
        input: As for `exact_sums`.
        mean: (C,) of float32, float16 or bfloat16.
        invstd: As mean.

    Returns:
        Lists of C values (see `exact_sums`) named sum_dy, sum_dy_xmu, grad_weight and grad_bias.

    Raises:
        EmulatorError: as `exact_sums`, or mean or invstd has another shape or dtype.
    """
    sum_dy, sum_dy_x = exact_sums(grad_out, input)
    means, invstds = _per_channel("mean", mean, len(sum_dy)), _per_channel("invstd", invstd, len(sum_dy))
    sum_dy_xmu = [_combine(s, -m, d) for s, m, d in zip(sum_dy_x, means, sum_dy, strict=True)]
    grad_weight = [_combine(Fraction(0), i, s) for i, s in zip(invstds, sum_dy_xmu, strict=True)]
    return {"sum_dy": sum_dy, "sum_dy_xmu": sum_dy_xmu, "grad_weight": grad_weight, "grad_bias": list(sum_dy)}


def _floats(array: np.ndarray) -> list[float]:
    with np.errstate(invalid="ignore"):  # signalling NaN
        floats: list[float] = array.astype(np.float64).tolist()
    return floats


def _per_channel(name: str, array: np.ndarray, channels: int) -> list[Exact]:
    if array.shape != (channels,):
        raise EmulatorError(
            explain(f"shape of {name}", got=array.shape, allowed=f"({channels},)", remedy="pass one value per channel")
        )
    formats.get(array.dtype)
    return [Fraction(v) if math.isfinite(v) else v for v in _floats(array)]


def _combine(a: Exact, b: Exact, c: Exact) -> Exact:
    """``a + b * c``; in float64 if one is not finite, which cannot overflow or underflow here."""
    if isinstance(a, Fraction) and isinstance(b, Fraction) and isinstance(c, Fraction):
        return a + b * c
    return float(a) + float(b) * float(c)


# ---- exact numbers and formats ----------------------------------------------------------------------------


def _is_finite(value: Exact) -> bool:
    return isinstance(value, Fraction) or math.isfinite(value)


def _exponent(value: Fraction) -> int:
    """Floor of log2 of the magnitude of a number other than 0."""
    n, d = abs(value.numerator), value.denominator
    exponent = n.bit_length() - d.bit_length()
    return exponent if n << max(-exponent, 0) >= d << max(exponent, 0) else exponent - 1


def _spacing_exponent(value: Fraction, format: formats.Format) -> int:
    exponent = format.min_exponent if value == 0 else max(_exponent(value), format.min_exponent)
    return exponent + 1 - format.significand_bits


def round_fraction(value: Exact, dtype: Any) -> Any:
    """An exact number rounded once to the nearest number of a format, ties to even, as a NumPy scalar.

    Too large numbers become infinities, small ones subnormal; an underflow to 0 keeps its sign. Infinities,
    NaN and signed zeros given as float are kept.

    Raises:
        EmulatorError: unknown format.
    """
    format = formats.get(dtype)
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return format.dtype.type(value)
    value = Fraction(value)
    magnitude = math.inf
    if value == 0 or _exponent(value) <= format.max_exponent:
        unit = _spacing_exponent(value, format)
        magnitude = math.ldexp(round(abs(value) / Fraction(2) ** unit), unit)
    if magnitude > format.max_finite:
        magnitude = math.inf
    return format.dtype.type(-magnitude if value < 0 else magnitude)


def ulp(value: Exact, dtype: Any) -> Fraction:
    """Spacing of a format's numbers at a finite exact value (the convention of glibc's error tables).

    It is the gap between neighbours in the value's binade; the subnormal spacing below, at 0 too; the largest
    binade's spacing above.

    Raises:
        EmulatorError: unknown format, or a value that is not finite.
    """
    format = formats.get(dtype)
    if not _is_finite(value):
        raise EmulatorError(explain("ulp's value", got=value, allowed="finite", remedy="test it first"))
    largest = format.max_exponent + 1 - format.significand_bits
    return Fraction(2) ** min(_spacing_exponent(Fraction(value), format), largest)


def ulp_error(result: np.ndarray, exact: Sequence[Exact], dtype: Any) -> np.ndarray:
    """Distance of each result from the exact value, in ulps of the exact value in ``dtype``.

    Args:
        result: (C,) of float32, float16 or bfloat16.
        exact: C values as `exact_outputs` gives them.
        dtype: Format whose ulp is the unit.

    Returns:
        float64 (C,), not negative. 0 where both are the same infinity or both NaN, also where the exact value
        is so large that it rounds to the infinity; inf where only one of the two is finite.

    Raises:
        EmulatorError: unknown format or different lengths.
    """
    if result.shape != (len(exact),):
        raise EmulatorError(
            explain(
                "shape of result",
                got=result.shape,
                allowed=f"({len(exact)},)",
                remedy="pass one result per exact value",
            )
        )
    pairs = zip(_floats(result), exact, strict=True)
    return np.array([_one_ulp_error(r, e, dtype) for r, e in pairs], np.float64)


def _one_ulp_error(result: float, exact: Exact, dtype: Any) -> float:
    if math.isfinite(result) and _is_finite(exact):
        return float(abs(Fraction(result) - Fraction(exact)) / ulp(exact, dtype))
    nearest = float(round_fraction(exact, dtype))
    return 0.0 if result == nearest or (math.isnan(result) and math.isnan(nearest)) else math.inf
