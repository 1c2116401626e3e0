"""One number per channel for how good a result is (numerics 2.2). Exact where a definition allows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from ops.batch_norm_reduce_backward.contracts import channel_rows
from ops.exact import Exact, ulp_error
from studies.ledger import ErrorLedger, float_of

Array = NDArray[Any]
F64 = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ChannelMetrics:
    """(C,) each, for one output.

    ulp: |result - exact| in ulps of the exact value, format of the output. relative: |result - exact| / |exact|.
    bits: -log2 of that, at most the significand's. backward: |result - exact| / sum|terms|, the smallest
    relative change of the terms that explains the result. condition: sum|terms| / |exact|. Terms of sumDyXmu
    and gradWeight are those of the contract: dy * (x - mean) centred, else dy * x and mean * dy.
    """

    ulp: F64
    relative: F64
    bits: F64
    backward: F64
    condition: F64


def channel_metrics(ledger: ErrorLedger, output: str, grad_out: Array, input: Array, mean: Array) -> ChannelMetrics:
    """Metrics of one output of a ledger's run."""
    exact = ledger.exact[output]
    errors = [None if e is None else float_of(abs(e)) for e in ledger.errors(output)]
    absolute = np.array([math.nan if e is None else e for e in errors])
    size = np.array([abs(float_of(e)) for e in exact])
    terms = term_sums(ledger, output, grad_out, input, mean)
    with np.errstate(all="ignore"):
        relative = np.where(absolute == 0, 0.0, absolute / size)
        bits = np.minimum(-np.log2(relative), formats.get(ledger.out_dtype).significand_bits)
        scale = np.array([_invstd(ledger, c) for c in range(ledger.channels)]) if output == "grad_weight" else 1.0
        weighted = terms * scale
        backward = np.where(absolute == 0, 0.0, absolute / weighted)
        condition = weighted / size
    return ChannelMetrics(
        ulp=ulp_error(ledger.delivered[output], exact, ledger.out_dtype), relative=relative, bits=bits,
        backward=backward, condition=condition,
    )  # fmt: skip


def _invstd(ledger: ErrorLedger, channel: int) -> float:
    xmu, weight = ledger.exact["sum_dy_xmu"][channel], ledger.exact["grad_weight"][channel]
    if isinstance(xmu, Fraction) and isinstance(weight, Fraction) and xmu:
        return abs(float(weight / xmu))
    return math.nan


def term_sums(ledger: ErrorLedger, output: str, grad_out: Array, input: Array, mean: Array) -> F64:
    """(C,) float64 sums of the magnitudes of an output's terms."""
    rows = [channel_rows(a).astype(np.float64) for a in (grad_out, input)]
    mu = mean.astype(np.float64)
    with np.errstate(all="ignore"):
        plain = np.abs(rows[0]).sum(axis=(0, 2))
        if output in ("sum_dy", "grad_bias"):
            return plain
        if ledger.algorithm in ("centred", "torch_cuda", "exact"):
            return np.abs(rows[0] * (rows[1] - mu[None, :, None])).sum(axis=(0, 2))
        return np.abs(rows[0] * rows[1]).sum(axis=(0, 2)) + np.abs(mu) * plain


def relative_error(delivered: Array, exact: list[Exact]) -> F64:
    """(C,) |result - exact| / |exact|; nan where not finite."""
    out = []
    for got, want in zip(delivered.astype(np.float64).tolist(), exact, strict=True):
        if math.isfinite(got) and isinstance(want, Fraction) and want != 0:
            out.append(float_of(abs(Fraction(got) - want) / abs(want)))
        else:
            out.append(math.nan)
    return np.array(out)
