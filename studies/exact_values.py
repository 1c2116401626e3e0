"""Exact sums of dy and dy * x for the check of a ledger: no tiles, no trees, no rounding.

Lanes of double-double with a sticky flag; a channel whose flag is set, or that is not finite, is left to
`ops.exact`, which needs no luck. Both give the same rational numbers (tested).
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.formats import decode
from emulator.jit import njit
from ops.exact import Exact, exact_outputs
from studies.exact_sums import two_sum64

Array = NDArray[Any]
LANES = 64
SHORT = 32
"""Rows shorter than this go to `ops.exact` at once."""


@njit(nogil=True)
def _sums(dy: Any, x: Any, first: int, last: int, out: Any) -> None:
    """out[c] = (2, 3): high, low and flag of both sums of channels first .. last - 1 of (N, C, S)."""
    acc = np.empty((2, 3, LANES))
    for c in range(first, last):
        acc[:] = 0
        h0, l0, b0 = acc[0, 0], acc[0, 1], acc[0, 2]
        h1, l1, b1 = acc[1, 0], acc[1, 1], acc[1, 2]
        for n in range(dy.shape[0]):
            for start in range(0, dy.shape[2], LANES):
                u, v = dy[n, c, start : start + LANES], x[n, c, start : start + LANES]
                for i in range(u.size):
                    a = np.float64(decode(u[i]))
                    h, r = two_sum64(h0[i], a)
                    h0[i] = h
                    h, r = two_sum64(l0[i], r)
                    l0[i] = h
                    b0[i] += abs(r)
                    h, r = two_sum64(h1[i], a * np.float64(decode(v[i])))
                    h1[i] = h
                    h, r = two_sum64(l1[i], r)
                    l1[i] = h
                    b1[i] += abs(r)
        for k in range(2):
            high, low, bad = 0.0, 0.0, 0.0
            for i in range(LANES):
                high, r = two_sum64(high, acc[k, 0, i])
                low, e = two_sum64(low, r)
                low, f = two_sum64(low, acc[k, 1, i])
                bad += abs(e) + abs(f) + acc[k, 2, i]
            out[c, k, 0], out[c, k, 1], out[c, k, 2] = high, low, bad


def exact_values(grad_out: Array, input: Array, mean: Array, invstd: Array) -> dict[str, list[Exact]]:
    """As `ops.exact.exact_outputs`, faster on long rows. Raises EmulatorError likewise."""
    shape = (input.shape[0], input.shape[1], math.prod(input.shape[2:]))
    if shape[2] < SHORT or not (np.isfinite(mean).all() and np.isfinite(invstd).all()):
        return exact_outputs(grad_out, input, mean, invstd)
    dy, x = (np.ascontiguousarray(formats.to_bits(a)).reshape(shape) for a in (grad_out, input))
    out = np.zeros((shape[1], 2, 3))
    with np.errstate(all="ignore"), ThreadPoolExecutor(min(os.cpu_count() or 1, shape[1])) as pool:
        list(pool.map(lambda c: _sums(dy, x, c, c + 1, out), range(shape[1])))
    flagged = ~np.isfinite(out).all(axis=(1, 2)) | (out[:, :, 2] != 0).any(axis=1)
    result: dict[str, list[Exact]] = {"sum_dy": [], "sum_dy_xmu": [], "grad_weight": []}
    means, invstds = (a.astype(np.float64).tolist() for a in (mean, invstd))
    for c in range(shape[1]):
        if flagged[c]:
            one = slice(c, c + 1)
            found = exact_outputs(grad_out[:, one], input[:, one], mean[one], invstd[one])
            for name, column in result.items():
                column.append(found[name][0])
            continue
        s, p = (Fraction(float(v[0])) + Fraction(float(v[1])) for v in out[c])
        xmu = p - Fraction(means[c]) * s
        for name, value in zip(result, (s, xmu, Fraction(invstds[c]) * xmu), strict=True):
            result[name].append(value)
    return {**result, "grad_bias": list(result["sum_dy"])}
