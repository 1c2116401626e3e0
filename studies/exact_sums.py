"""Exact sums of float64 numbers, in three tiers.

1. float64 with TwoSum: if no addition left a residual, the float64 sum is exact.
2. Otherwise the residuals are added up in a second float64 (double-double); exact if that never left one.
3. Otherwise integers: significands in one bucket per exponent, like `ops.exact`.

The flags are sticky, so a result is never trusted by luck. (numerics 3.4)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.jit import njit

F64 = NDArray[np.float64]
TIERS = ("float64", "double-double", "integers")


@njit
def two_sum64(a, b):  # type: ignore[no-untyped-def]
    """float64 sum and its exact error."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


@njit(nogil=True)
def _tiered(values: F64, labels: Any, high: F64, low: F64, flags: Any) -> None:
    """high[k] + low[k] = sum of values with label k; flags[k] = tier that it takes."""
    for i in range(values.size):
        k = labels[i]
        s, e = two_sum64(high[k], values[i])
        high[k] = s
        if e != 0:
            t, f = two_sum64(low[k], e)
            low[k] = t
            flags[k] = max(flags[k], 1 if f == 0 else 2)


@njit(nogil=True)
def _buckets(values: F64, labels: Any, wanted: int, low: Any, high: Any) -> None:
    """Significands of the values with label ``wanted`` by exponent field, split at bit 32."""
    for i in range(values.size):
        if labels[i] == wanted and values[i] != 0:
            bits = np.float64(values[i]).view(np.int64)
            exponent = (bits >> 52) & 2047
            significand = (bits & ((1 << 52) - 1)) | (min(exponent, 1) << 52)
            b = max(exponent, 1)
            sign = -1 if bits < 0 else 1
            low[b] += sign * (significand & 0xFFFFFFFF)
            high[b] += sign * (significand >> 32)


def bucket_sum(values: F64, labels: Any, wanted: int) -> Fraction:
    """Tier 3: exact whatever the exponents (up to 2**31 finite values)."""
    low, high = np.zeros(2048, np.int64), np.zeros(2048, np.int64)
    _buckets(values, labels, wanted, low, high)
    total = 0
    for b in np.flatnonzero(low | high):
        total += (int(low[b]) + (int(high[b]) << 32)) << int(b)
    return Fraction(total, 1 << 1075)


@dataclass
class TierCount:
    """How many sums each tier settled."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))

    def add(self, tier: int, times: int = 1) -> None:
        """Count sums that a tier settled."""
        self.counts[TIERS[tier]] += times


def exact_sums_by_label(values: F64, labels: Any, count: int, tiers: TierCount | None = None) -> list[Fraction]:
    """Exact sum of the values of each label 0 .. count - 1.

    values: (n,) float64, finite. labels: (n,) integers. Raises nothing; overflow of float64 is caught by tier 3.
    """
    high, low, flags = np.zeros(count), np.zeros(count), np.zeros(count, np.int8)
    _tiered(values, labels, high, low, flags)
    result = []
    for k in range(count):
        tier = int(flags[k])
        if tier == 2 or not np.isfinite(high[k]):
            tier = 2
            result.append(bucket_sum(values, labels, k))
        else:
            result.append(Fraction(float(high[k])) + Fraction(float(low[k])))
        if tiers is not None:
            tiers.add(tier)
    return result


def exact_sum(values: F64, tiers: TierCount | None = None) -> Fraction:
    """Exact sum of finite float64 values."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    return exact_sums_by_label(flat, np.zeros(flat.size, np.int8), 1, tiers)[0]


def exact_dot(a: F64, b: F64) -> Fraction:
    """Exact sum(a * b) of float64 vectors: each product as high + low (Dekker), no scale left out.

    Magnitudes other than 0 must lie within 2**-300 and 2**300, so that no low part underflows.
    """
    product = a * b
    split = 134217729.0
    a1 = split * a - (split * a - a)
    b1 = split * b - (split * b - b)
    a2, b2 = a - a1, b - b1
    low = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    return exact_sum(np.concatenate([product, low]))
