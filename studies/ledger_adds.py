"""Additions that log their errors: the building blocks of `ledger_fast`.

An accumulator (3, lanes) holds, lane by lane, the float64 sum of the local errors, the residuals of that sum, and
a flag that is 0 while both are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.formats import decode
from emulator.jit import njit
from studies.exact_sums import two_sum64

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
HIGH, LOW, BAD = range(3)
"""Planes of an accumulator (3, lanes): the sum, its residuals, and a flag that is 0 while both are exact."""
WIDE, EXACT_PRODUCT = 1, 2
"""Bits of ``mode``: accumulate in double-double; dy * x fits fp32 (fp16 operands: 11 + 11 bits)."""


@njit(nogil=True)
def log(acc: F64, i: int, d: float, mode: int) -> None:
    """Add one local error to lane i."""
    t, r = two_sum64(acc[HIGH, i], d)
    acc[HIGH, i] = t
    if mode & WIDE:
        t, r = two_sum64(acc[LOW, i], r)
        acc[LOW, i] = t
    acc[BAD, i] += abs(r)


@njit(nogil=True)
def add(a: F32, b: F32, acc: F64, mode: int) -> None:
    """a[i] = a[i] + b[i] for every i of b; errors to lane i."""
    u, high, low, bad = a[: b.size], acc[HIGH, : b.size], acc[LOW, : b.size], acc[BAD, : b.size]
    if mode & WIDE:
        for i in range(b.size):
            x, y = u[i], b[i]
            s = x + y
            z = s - x
            u[i] = s
            t, r = two_sum64(high[i], -np.float64((x - (s - z)) + (y - z)))
            high[i] = t
            t, r = two_sum64(low[i], r)
            low[i] = t
            bad[i] += abs(r)
    else:
        for i in range(b.size):
            x, y = u[i], b[i]
            s = x + y
            z = s - x
            u[i] = s
            d = -np.float64((x - (s - z)) + (y - z))
            h = high[i]
            t = h + d
            w = t - h
            high[i] = t
            bad[i] += abs((h - (t - w)) + (d - w))


@njit(nogil=True)
def add_rows(a: F32, b: F32, count: int, width: int, acc: F64, mode: int) -> None:
    """The same for ``count`` elements in rows of ``width`` lanes."""
    for start in range(0, count, width):
        end = min(start + width, count)
        add(a[start:end], b[start:end], acc, mode)


@njit(nogil=True)
def halve(v: F32, rows: int, width: int, acc: F64, mode: int) -> None:
    """Stride-halving over ``rows`` (a power of two) rows; the sum ends in row 0."""
    while rows > 1:
        rows //= 2
        add_rows(v, v[rows * width : 2 * rows * width], rows * width, width, acc, mode)


@njit(nogil=True)
def grouped(v: F32, rows: int, width: int, acc: F64, mode: int) -> None:
    """Passes over 16 consecutive rows while there are 16, then halving."""
    while rows >= 16:
        for group in range(rows // 16):
            block = v[16 * group * width : 16 * (group + 1) * width]
            halve(block, 16, width, acc, mode)
            v[group * width : (group + 1) * width] = block[:width]
        rows //= 16
    halve(v, rows, width, acc, mode)


@njit(nogil=True)
def one(a: np.float32, b: np.float32, acc: F64, lane: int, mode: int) -> np.float32:
    """a + b; the error to one lane."""
    s = np.float32(a + b)
    z = np.float32(s - a)
    log(acc, lane, -np.float64(np.float32(a - np.float32(s - z)) + np.float32(b - z)), mode)
    return s


@njit(nogil=True)
def pair_tree(v: F32, lanes: int, acc: F64, mode: int) -> np.float32:
    """Adjacent-pair tree over ``lanes`` (a power of two) elements, in place."""
    while lanes > 1:
        lanes //= 2
        for i in range(lanes):
            v[i] = one(v[2 * i], v[2 * i + 1], acc, i, mode)
    return v[0]


@njit(nogil=True)
def load(y: F32, p: F32, dy: Any, x: Any, src: int, valid: int, acc: F64, mode: int) -> None:
    """y = dy, p = dy * x and +0 after ``valid``; errors of the products to the lanes of acc in turn."""
    a, b = dy[src : src + valid], x[src : src + valid]
    for i in range(valid):
        v = decode(a[i])
        y[i] = v
        p[i] = v * decode(b[i])
    if not mode & EXACT_PRODUCT:
        width = acc.shape[1]
        high, low, bad = acc[HIGH], acc[LOW], acc[BAD]
        for start in range(0, valid, width):
            u, v32, w32 = p[start : start + width], a[start : start + width], b[start : start + width]
            for i in range(v32.size):
                d = np.float64(u[i]) - np.float64(decode(v32[i])) * np.float64(decode(w32[i]))
                t, r = two_sum64(high[i], d)
                high[i] = t
                if mode & WIDE:
                    t, r = two_sum64(low[i], r)
                    low[i] = t
                bad[i] += abs(r)
    for i in range(valid, y.size):
        y[i] = np.float32(0)
        p[i] = np.float32(0)
