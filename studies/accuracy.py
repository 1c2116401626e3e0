"""Two sweeps: cancellation over |mean| / sigma, and growth of the error over n against its bounds.

Both run the contracts on generated data and compare with exact sums (numerics E3, E4, 6.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emulator import formats, products
from emulator.errors import EmulatorError, explain
from emulator.products import Product
from ops.batch_norm_reduce_backward.pipeline import Algorithm, batch_norm_reduce_backward
from ops.exact import exact_outputs
from ops.reduce_sum import order as orders
from ops.reduce_sum.order import Order
from ops.reduce_sum.plan import plan_reduce_sum
from ops.reduce_sum.tree import addition_tree
from studies.exact_sums import exact_sum
from studies.metrics import relative_error

F64 = NDArray[np.float64]
RATIOS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
ORDERS = ("recursive", "pairwise", "blocked 128", "FAB 128", "operator")


@dataclass(frozen=True, kw_only=True)
class CancellationPoint:
    """At one |mean| / sigma: root mean square over channels of the relative error of gradWeight."""

    ratio: float
    error: dict[str, float]
    """By contract."""
    condition: float
    """Median kappa_u = (sum|dy x| + |mean| sum|dy|) / |exact sumDyXmu|."""


@dataclass(frozen=True, kw_only=True)
class Cancellation:
    """Result of `cancellation_study`."""

    product: Product
    dtype: str
    count: int
    channels: int
    unit: float
    points: tuple[CancellationPoint, ...]


def cancellation_study(
    *,
    count: int = 25_088,
    channels: int = 16,
    ratios: Sequence[float] = RATIOS,
    dtype: Any = "float32",
    product: Product | str = products.DEFAULT_PRODUCT,
    algorithms: Sequence[Algorithm] = ("cann", "centred"),
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Cancellation:
    """x ~ N(ratio, 1), dy ~ N(0, 1) + 0.1 (x - mean), mean and invstd of the data in fp32.

    Outputs are taken in fp32, so that the reduction and not the output cast is seen. Raises EmulatorError.
    """
    form = formats.get(dtype)
    if count < 2 or channels < 1:
        raise EmulatorError(
            explain("count and channels", got=(count, channels), allowed="from 2 and from 1", remedy="raise them")
        )
    points = []
    chip = products.get(product)
    for k, ratio in enumerate(ratios):
        rng = np.random.default_rng([seed, k])
        shape = (1, channels, count)
        x64 = rng.standard_normal(shape) + ratio
        dy64 = rng.standard_normal(shape) + 0.1 * (x64 - ratio)
        dy, x = dy64.astype(form.dtype), x64.astype(form.dtype)
        wide = x.astype(np.float64)
        mean = wide.mean(axis=(0, 2)).astype(np.float32)
        invstd = (1 / np.sqrt(wide.var(axis=(0, 2)) + 1e-5)).astype(np.float32)
        exact = exact_outputs(dy, x, mean, invstd)
        errors = {}
        for name in algorithms:
            result = batch_norm_reduce_backward(
                dy, x, mean, invstd, product=chip, algorithm=name, out_dtype="float32"
            ).grad_weight
            assert result is not None
            relative = relative_error(result, exact["grad_weight"])
            errors[str(name)] = float(np.sqrt(np.nanmean(relative**2)))
        size = np.array([abs(float(v)) for v in exact["sum_dy_xmu"]])
        d = np.abs(dy.astype(np.float64))
        kappa = ((d * np.abs(wide)).sum(axis=(0, 2)) + np.abs(mean) * d.sum(axis=(0, 2))) / size
        points.append(CancellationPoint(ratio=float(ratio), error=errors, condition=float(np.median(kappa))))
        if progress is not None:
            progress(k + 1, len(ratios))
    return Cancellation(
        product=chip, dtype=form.name, count=count, channels=channels, unit=2.0**-24, points=tuple(points)
    )


@dataclass(frozen=True, kw_only=True)
class GrowthPoint:
    """At one n and order: mean backward error, and bounds on it (all divided by sum|x|)."""

    n: int
    order: str
    error: float
    worst: float
    a_priori: float
    """gamma_h = h u / (1 - h u)."""
    running: float
    """Mean of u sum|s_v| / sum|x|; nan for FAB, which is no plain tree."""
    probabilistic: float
    """u sqrt(2 ln(2 / 0.01)) sqrt(sum s_v^2) / sum|x|, 99 percent."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Result of `growth_study`."""

    product: Product
    distribution: str
    trials: int
    points: tuple[GrowthPoint, ...]

    def slope(self, order: str) -> float:
        """Exponent of n on log-log axes by least squares."""
        rows = [(p.n, p.error) for p in self.points if p.order == order and p.error > 0]
        if len(rows) < 2:
            return math.nan
        x, y = np.log10(np.array(rows)).T
        return float(np.polyfit(x, y, 1)[0])


def blocked(n: int, width: int = 128) -> Order:
    """Blocks added one after the other, their sums likewise."""
    make = orders.Maker()
    first = np.arange(0, n, width)
    current = -2 - first
    for i in range(1, width):
        there = first + i < n
        added = make.add(0, current[there], -2 - (first[there] + i))
        current = current.copy()
        current[there] = added
    total = int(current[0])
    for block in current[1:].tolist():
        total = int(make.add(1, total, block)[0])
    return make.order(n, total, ("in blocks", "blocks in turn"))


def _order(name: str, n: int, product: Product) -> Order:
    if name == "recursive":
        return orders.sequential(n)
    if name == "pairwise":
        return orders.numpy_pairwise(n)
    if name == "operator":
        return orders.of_tree(addition_tree(plan_reduce_sum((1, 1, n), product=product), 0))
    return blocked(n)


def _fab(x: NDArray[np.float32], width: int = 128) -> np.float32:
    """FABsum: blocks in fp32, one after the other; their sums in float64 and rounded once."""
    rows = np.zeros(-(-x.size // width) * width, np.float32)
    rows[: x.size] = x
    table = rows.reshape(-1, width)
    sums = table[:, 0].copy()
    for i in range(1, width):
        sums += table[:, i]
    return np.float32(math.fsum(sums.tolist()))


def _numbers(distribution: str, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    if distribution == "constant":
        return np.full(n, 0.1, np.float32)
    made = rng.random(n) if distribution == "uniform" else rng.standard_normal(n)
    return made.astype(np.float32)


def growth_study(
    *,
    distribution: Literal["uniform", "normal", "constant"] = "uniform",
    sizes: Sequence[int] = SIZES,
    names: Sequence[str] = ORDERS,
    trials: int = 20,
    product: Product | str = products.DEFAULT_PRODUCT,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Growth:
    """fp32 backward error of sums of n numbers: U(0, 1), N(0, 1) or the constant 0.1f (numerics 6.2)."""
    if distribution not in ("uniform", "normal", "constant") or not set(names) <= set(ORDERS) or min(sizes) < 2:
        raise EmulatorError(
            explain(
                "growth_study", got=(distribution, tuple(names)),
                allowed=f"uniform, normal, constant; {', '.join(ORDERS)}; sizes from 2", remedy="choose among them",
            )
        )  # fmt: skip
    chip, points, u = products.get(product), [], 2.0**-24
    for k, n in enumerate(sizes):
        data = []
        for t in range(trials):
            rng = np.random.default_rng([seed, n, t])
            x = _numbers(distribution, n, rng)
            data.append((x, exact_sum(x.astype(np.float64)), float(np.abs(x.astype(np.float64)).sum())))
        for name in names:
            points.append(_growth_point(name, n, data, chip, u))
        if progress is not None:
            progress(k + 1, len(sizes))
    return Growth(product=chip, distribution=distribution, trials=trials, points=tuple(points))


def _growth_point(
    name: str, n: int, data: list[tuple[NDArray[np.float32], Fraction, float]], chip: Product, u: float
) -> GrowthPoint:
    found, running, likely = [], [], []
    order = None if name == "FAB 128" else _order(name, n, chip)
    height = 127 if order is None else order.height
    for x, exact, size in data:
        if order is None:
            value = _fab(x)
        else:
            values = np.empty(len(order.left), np.float32)
            orders.total(order.left, order.right, np.empty(0, np.bool_), x, orders.SINGLE, orders.SINGLE, values)
            value = values[order.root]
            s = np.abs(values.astype(np.float64))
            running.append(u * float(s.sum()) / size)
            likely.append(u * math.sqrt(2 * math.log(200)) * math.sqrt(float((s * s).sum())) / size)
        found.append(abs(float(Fraction(float(value)) - exact)) / size)
    return GrowthPoint(
        n=n, order=name, error=float(np.mean(found)), worst=float(np.max(found)),
        a_priori=height * u / (1 - height * u) if height * u < 1 else math.inf,
        running=float(np.mean(running)) if running else math.nan,
        probabilistic=float(np.mean(likely)) if likely else math.nan,
    )  # fmt: skip
