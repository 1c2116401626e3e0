"""Would these results pass? The vendor's acceptance formulas, and torch's closeness (numerics 2.4).

The golden value is the exact rational result. ``margin`` is the factor by which every error could grow before
the verdict changes (below 1: failed). Sources of the numbers: hicann/opbase, experimental_standard.md at
adbe441e9254 (mixed) and 60496434718e (MERE/MARE), commercial_standard.md at 3e6296654293 (ratios); the
documentation of torch.testing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.errors import EmulatorError, explain
from ops.exact import Exact, round_fraction, ulp
from studies.ledger import OUTPUTS, ErrorLedger

Array = NDArray[Any]

MIXED = {"float16": (2.0**-9, 2.0**-9, 0.1), "bfloat16": (2.0**-6, 2.0**-6, 1.0), "float32": (2.0**-10, 2.0**-16, 0.01)}
"""rtol, atol, largest absolute error (or 32 ulp of the golden value there, whichever is larger)."""
MIXED_RATIO, MIXED_ULP = 0.99, 32
MERE_MARE = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-13}
"""Threshold T: MERE < T and MARE < 10 T of |a - g| / (|g| + 1e-7)."""
RELATIVE_GUARD = 1e-7
TORCH = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5)}
"""torch.testing.assert_close: rtol, atol."""
COMMERCIAL = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}
"""Largest ratios to a third party of MARE, MERE and RMSE."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One standard applied to one output."""

    standard: str
    output: str
    passed: bool
    margin: float
    """Factor by which all errors could grow; inf when there is none, 0 when a value that must be finite is not."""
    detail: str


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of one output as floats; ``wrong`` counts values that are not finite and should be, or differ."""

    absolute: NDArray[np.float64]
    golden: NDArray[np.float64]
    wrong: int
    worst: Exact


def errors_of(delivered: Array, exact: Sequence[Exact], dtype: Any) -> Errors:
    """Compare (C,) results with exact values. A result equal to the rounded exact infinity or NaN is right."""
    absolute, golden, wrong = [], [], 0
    worst: tuple[Fraction, Exact] = (Fraction(-1), Fraction(0))
    for got, want in zip(delivered.astype(np.float64).tolist(), exact, strict=True):
        if not math.isfinite(got) or not isinstance(want, Fraction):
            nearest = float(round_fraction(want, dtype))
            wrong += not (got == nearest or (math.isnan(got) and math.isnan(nearest)))
            continue
        difference = abs(Fraction(got) - want)
        worst = max(worst, (difference, want), key=lambda p: p[0])
        absolute.append(float(difference))
        golden.append(float(want))
    return Errors(absolute=np.array(absolute), golden=np.array(golden), wrong=wrong, worst=worst[1])


def _factor(limit: float, value: float) -> float:
    return limit / value if value > 0 else math.inf


def judge(delivered: Array, exact: Sequence[Exact], dtype: Any, output: str = "") -> tuple[Verdict, ...]:
    """Every standard that needs no third party on one output. Raises EmulatorError for an unknown dtype."""
    name = formats.get(dtype).name
    e = errors_of(delivered, exact, name)
    size = np.abs(e.golden)
    count = len(delivered)

    def verdict(standard: str, passed: bool, margin: float, detail: str) -> Verdict:
        if e.wrong:
            detail += f"; {e.wrong} of {count} values are wrongly not finite"
        ok = passed and not e.wrong
        return Verdict(standard=standard, output=output, passed=ok, margin=0.0 if e.wrong else margin, detail=detail)

    rtol, atol, limit = MIXED[name]
    ratio = np.sort(e.absolute / (atol + rtol * size))
    matched = float((ratio <= 1).sum() + count - e.wrong - ratio.size) / max(count, 1)
    largest = float(e.absolute.max(initial=0.0))
    limit = max(limit, MIXED_ULP * float(ulp(e.worst, name)))
    needed = ratio[max(math.ceil(MIXED_RATIO * ratio.size) - 1, 0)] if ratio.size else 0.0
    mixed = verdict(
        "CANN mixed tolerance", matched >= MIXED_RATIO and largest <= limit,
        min(_factor(1.0, float(needed)), _factor(limit, largest)),
        f"{matched:.2%} within {atol:.3g} + {rtol:.3g} |g|, largest error {largest:.3g} of {limit:.3g}",
    )  # fmt: skip
    relative = e.absolute / (size + RELATIVE_GUARD)
    mere, mare = (float(relative.mean()), float(relative.max())) if relative.size else (0.0, 0.0)
    t = MERE_MARE[name]
    old = verdict(
        "CANN MERE/MARE", mere < t and mare < 10 * t, min(_factor(t, mere), _factor(10 * t, mare)),
        f"MERE {mere:.3g} of {t:.3g}, MARE {mare:.3g} of {10 * t:.3g}",
    )  # fmt: skip
    rtol, atol = TORCH[name]
    close = e.absolute / (atol + rtol * size)
    worst = float(close.max(initial=0.0))
    torch = verdict(
        "torch assert_close", worst <= 1, _factor(1.0, worst), f"worst |a-g| is {worst:.3g} of {atol:g} + {rtol:g} |g|"
    )
    return mixed, old, torch


def judge_ledger(ledger: ErrorLedger) -> tuple[Verdict, ...]:
    """Every standard on every output of a run."""
    return tuple(v for n in OUTPUTS for v in judge(ledger.delivered[n], ledger.exact[n], ledger.out_dtype, n))


def compare_with(
    delivered: Array, third_party: Array, exact: Sequence[Exact], dtype: Any, level: str = "L1", output: str = ""
) -> Verdict:
    """The two-benchmark rule: ratios of MARE, MERE and RMSE to another implementation's on the same data."""
    if level not in COMMERCIAL:
        raise EmulatorError(explain("level", got=level, allowed=", ".join(COMMERCIAL), remedy="choose one of these"))
    mine, other = (_three(errors_of(a, exact, dtype)) for a in (delivered, third_party))
    ratios = {k: mine[k] / max(other[k], RELATIVE_GUARD) for k in mine}
    limits = dict(zip(mine, COMMERCIAL[level], strict=True))
    margin = min(_factor(limits[k], ratios[k]) for k in ratios)
    detail = ", ".join(f"{k} ratio {ratios[k]:.3g} of {limits[k]:g}" for k in ratios)
    wrong = errors_of(delivered, exact, dtype).wrong > errors_of(third_party, exact, dtype).wrong
    return Verdict(
        standard=f"two-benchmark {level}", output=output, passed=margin >= 1 and not wrong,
        margin=0.0 if wrong else margin, detail=detail,
    )  # fmt: skip


def _three(e: Errors) -> Mapping[str, float]:
    relative = e.absolute / (np.abs(e.golden) + RELATIVE_GUARD)
    if not relative.size:
        return {"MARE": 0.0, "MERE": 0.0, "RMSE": 0.0}
    rmse = float(np.sqrt(np.mean(e.absolute**2)))
    return {"MARE": float(relative.max()), "MERE": float(relative.mean()), "RMSE": rmse}
