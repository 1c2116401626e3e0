"""The error ledger: every rounding of a run, and its exact share of every output's error.

    output - exact value = sum of the contributions of the steps

as an identity of rational numbers (numerics 3.3). Conventions: the local errors of sum(dy) enter sumDyXmu with
weight -mean; everything before the last product enters gradWeight with weight invstd; input quantisation is
split symmetrically between dy and x. The exact value (`exact_values`, `ops.exact`) knows no tiles and no trees, so
a residual of 0 is a check and not a definition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.products import Product
from ops.exact import Exact
from ops.reduce_sum.plan import ReducePlan

OUTPUTS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
BEFORE = ("quantise dy", "quantise x", "centring", "term rounding", "product")
AFTER = ("mean * sumDy", "subtraction", "invstd product", "output cast", "saturation")
SHUFFLE = "shuffle rounding"
"""Level of partial sums that are rounded to the IO format on their way between threads."""

ZERO = Fraction(0)


def dyadic_sum(values: Iterable[Fraction]) -> Fraction:
    """Sum of fractions whose denominators are powers of two, with one reduction at the end."""
    used = [v for v in values if v]
    if not used:
        return ZERO
    common = max(v.denominator for v in used)
    return Fraction(sum(v.numerator * (common // v.denominator) for v in used), common)


@dataclass(frozen=True, kw_only=True)
class Overflow:
    """The first value of a channel that is not finite; what follows from it cannot be attributed."""

    output: str
    channel: int
    step: str
    core: int | None
    tile: int | None
    node: int | None
    """Number of the addition in the channel's order (or of the term, for a product); None after the sums."""
    exact: Exact
    """What this step would give without rounding from the same data."""

    def text(self) -> str:
        """One line."""
        place = [f"channel {self.channel}"]
        place += [
            f"{n} {v}" for n, v in (("core", self.core), ("tile", self.tile), ("node", self.node)) if v is not None
        ]
        value = f"exact value there {float_of(self.exact):.6g}"
        return f"{self.output}: not finite first at {self.step} ({', '.join(place)}); {value}"


def float_of(value: Exact) -> float:
    """The nearest float; infinities where float64 ends."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True, kw_only=True)
class SumErrors:
    """Both sums of one channel: computed values and exact sums of local errors by level."""

    sum_dy: float
    second: float
    """Computed sum of dy * x, or of dy * (x - mean) when centred."""
    levels_dy: Mapping[str, Fraction]
    levels_second: Mapping[str, Fraction]
    terms_dy: Fraction = ZERO
    """sum(term - dy): only where an accumulator is narrower than dy."""
    product: Fraction = ZERO
    centring: Fraction = ZERO
    overflow: tuple[Overflow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ErrorLedger:
    """Contributions of every step to every output of a run, exactly."""

    product: Product
    algorithm: str
    dtype: str
    out_dtype: str
    shape: tuple[int, ...]
    plan: ReducePlan | None
    steps: tuple[str, ...]
    """All steps in the order of execution."""
    entries: Mapping[str, Mapping[str, list[Fraction]]]
    """output -> step -> (C,) contributions; 0 for channels that are not attributed."""
    delivered: Mapping[str, NDArray[Any]]
    """output -> (C,) in the output dtype."""
    exact: Mapping[str, list[Exact]]
    residual: Mapping[str, list[Fraction | None]]
    """output - exact - sum of contributions; None where the output or a partial sum is not finite."""
    overflows: tuple[Overflow, ...]
    tiers: Mapping[str, int] = field(default_factory=dict)
    """How many level sums were exact in float64, needed double-double, or integers."""
    source: str = ""

    @property
    def channels(self) -> int:
        """Channels of the run."""
        return self.shape[1]

    @property
    def attributed(self) -> dict[str, int]:
        """Channels with an attribution, by output."""
        return {n: sum(r is not None for r in column) for n, column in self.residual.items()}

    @property
    def residual_is_zero(self) -> bool:
        """True when every attributed channel of every output adds up exactly."""
        return all(r == 0 for column in self.residual.values() for r in column if r is not None)

    def floats(self, output: str) -> NDArray[np.float64]:
        """(steps, C) contributions rounded for display."""
        rows = self.entries[output]
        return np.array([[float_of(v) for v in rows[s]] for s in self.steps])

    def errors(self, output: str) -> list[Fraction | None]:
        """(C,) delivered - exact; None where not finite."""
        pairs = zip(self.delivered[output].astype(np.float64).tolist(), self.exact[output], strict=True)
        return [Fraction(o) - e if math.isfinite(o) and isinstance(e, Fraction) else None for o, e in pairs]

    def step_totals(self, output: str) -> dict[str, dict[str, float]]:
        """Per step: signed sum over channels, sum of magnitudes, root mean square relative to |exact|."""
        result = {}
        for step in self.steps:
            column = self.entries[output][step]
            relative = [
                float(abs(v / e)) ** 2
                for v, e, r in zip(column, self.exact[output], self.residual[output], strict=True)
                if r is not None and isinstance(e, Fraction) and e != 0
            ]
            result[step] = {
                "signed": float_of(sum(column, ZERO)),
                "absolute": float_of(sum(map(abs, column), ZERO)),
                "relative_rms": math.sqrt(sum(relative) / len(relative)) if relative else 0.0,
            }
        return result

    def title(self) -> str:
        """Product, fidelity, contract and dtypes in one line, as figures and reports state them."""
        return (
            f"{self.product.name} (fidelity: {self.product.fidelity}), contract {self.algorithm}, "
            f"{self.dtype} in, {self.out_dtype} out, shape {list(self.shape)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types json.dumps takes: exact numbers as "p/q", computed ones as hex floats."""
        return {
            "product": self.product.name, "fidelity": self.product.fidelity, "algorithm": self.algorithm,
            "dtype": self.dtype, "out_dtype": self.out_dtype, "shape": list(self.shape), "source": self.source,
            "steps": list(self.steps), "residual_is_zero": self.residual_is_zero, "attributed": self.attributed,
            "tiers": dict(self.tiers), "overflows": [{**vars(o), "exact": text_of(o.exact)} for o in self.overflows],
            "outputs": {
                n: {
                    "delivered": [float(v).hex() for v in self.delivered[n].astype(np.float64)],
                    "exact": [text_of(v) for v in self.exact[n]],
                    "residual": [None if r is None else text_of(r) for r in self.residual[n]],
                    "contributions": {s: [text_of(v) for v in self.entries[n][s]] for s in self.steps},
                    "step_totals": self.step_totals(n),
                }
                for n in self.delivered
            },
        }  # fmt: skip


def text_of(value: Exact) -> str:
    """A rational as "p/q", anything else as Python writes it."""
    return str(value) if isinstance(value, Fraction) else repr(value)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Contributions to the four outputs of one channel."""

    entries: dict[str, dict[str, Fraction]]
    residual: dict[str, Fraction | None]
    overflows: list[Overflow]


def chain(
    sums: SumErrors, channel: int, mean: float, invstd: float, centred: bool, values: Mapping[str, float],
    delivered: Mapping[str, float], exact: Mapping[str, Exact], quantised: Mapping[str, Fraction], out_name: str,
    saturating: bool,
) -> Chain:  # fmt: skip
    """Put the local errors of one channel together (numerics 3.3).

    values: fp32 results before the output cast; delivered: after it; quantised: "dy", "xmu dy", "xmu x" when
    masters were given.
    """
    overflows = list(sums.overflow)
    entries: dict[str, dict[str, Fraction]] = {n: {} for n in OUTPUTS}
    residual: dict[str, Fraction | None] = dict.fromkeys(OUTPUTS)
    if math.isfinite(sums.sum_dy):
        base = {"term rounding": sums.terms_dy, **sums.levels_dy}
        base["quantise dy"] = quantised.get("dy", ZERO)
        for name in ("sum_dy", "grad_bias"):
            entries[name] = dict(base)
    usable = math.isfinite(sums.second) and math.isfinite(mean) and (centred or math.isfinite(sums.sum_dy))
    if usable and math.isfinite(values["sum_dy_xmu"]):
        xmu: dict[str, Fraction] = {"product": sums.product, "centring": sums.centring}
        xmu["quantise dy"], xmu["quantise x"] = quantised.get("xmu dy", ZERO), quantised.get("xmu x", ZERO)
        for level, error in sums.levels_second.items():
            xmu[level] = error
        if not centred:
            mu = Fraction(mean)
            for level, error in {**sums.levels_dy, "term rounding": sums.terms_dy}.items():
                if error:
                    xmu[level] = xmu.get(level, ZERO) - mu * error
            with np.errstate(all="ignore"):
                m = float(np.float32(np.float32(mean) * np.float32(sums.sum_dy)))
            dm = Fraction(m) - mu * Fraction(sums.sum_dy)
            xmu["mean * sumDy"] = -dm
            xmu["subtraction"] = Fraction(values["sum_dy_xmu"]) - (Fraction(sums.second) - Fraction(m))
        entries["sum_dy_xmu"] = xmu
        if math.isfinite(values["grad_weight"]) and math.isfinite(invstd):
            r = Fraction(invstd)
            entries["grad_weight"] = {s: r * v for s, v in xmu.items() if v}
            entries["grad_weight"]["invstd product"] = Fraction(values["grad_weight"]) - r * Fraction(
                values["sum_dy_xmu"]
            )
        elif math.isfinite(invstd):
            overflows.append(
                _after("grad_weight", channel, "invstd product", Fraction(invstd) * Fraction(values["sum_dy_xmu"]))
            )
    elif usable:
        overflows.append(_after("sum_dy_xmu", channel, "mean * sumDy or subtraction", exact["sum_dy_xmu"]))
    top = formats.get(out_name).max_finite
    for name in OUTPUTS:
        if not entries[name]:
            continue
        if name == "grad_bias" and delivered[name] == delivered["sum_dy"]:
            entries[name], residual[name] = entries["sum_dy"], residual["sum_dy"]
            continue
        before, after = values[name], delivered[name]
        if not math.isfinite(after):
            overflows.append(_after(name, channel, "output cast", Fraction(before)))
            entries[name] = {}
            continue
        step = "saturation" if saturating and abs(before) > top else "output cast"
        entries[name][step] = Fraction(after) - Fraction(before)
        value = exact[name]
        if isinstance(value, Fraction):
            residual[name] = dyadic_sum([Fraction(after), -value, *(-v for v in entries[name].values())])
    return Chain(entries=entries, residual=residual, overflows=overflows)


def _after(output: str, channel: int, step: str, exact: Exact) -> Overflow:
    return Overflow(output=output, channel=channel, step=step, core=None, tile=None, node=None, exact=exact)
