"""Where in the reduction errors are born: by core, tile and level, with statistics and the worst instructions.

Works on the arrays of `ledger_orders` for every channel (or a chosen few). Display numbers are float64; the
exact account is the ledger's.

Weights: an addition of sum(dy * x) enters sumDyXmu as it is, one of sum(dy) with -mean (not at all when
centred), as in the ledger.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats, products
from emulator.errors import EmulatorError, explain
from emulator.products import Product
from ops.batch_norm_reduce_backward import contracts
from ops.batch_norm_reduce_backward.contracts import CONTRACTS, Contract
from ops.batch_norm_reduce_backward.pipeline import Algorithm, batch_norm_reduce_backward
from ops.reduce_sum.order import Order
from ops.reduce_sum.plan import ReducePlan
from studies.ledger_orders import ChannelNodes, Nodes, Places, channel_nodes
from studies.spread import spread

Array = NDArray[Any]
F64 = NDArray[np.float64]

BINS = np.linspace(-0.5, 0.5, 41)
"""Edges of the histogram of local errors in ulp of the result; a rounding to nearest stays within."""
INSTRUCTIONS = {
    "product": "Mul", "tile pairing": "Add", "in-tile adds": "Add", "lane tree": "ReduceSum of a register (vcadd)",
    "cache tree": "Add", "core combine": "Add",
}  # fmt: skip
"""Instruction that makes the rounding of each level of the operator's own tree."""


@dataclass(frozen=True, kw_only=True)
class LocalError:
    """One rounding."""

    channel: int
    sum: str
    """sum_dy or sum_dy_x (sum_dy_xmu when centred)."""
    level: str
    core: int | None
    tile: int | None
    node: int
    instruction: str
    left: float
    right: float
    result: float
    error: float
    """computed - exact of this addition."""
    effect: float
    """Its share of sumDyXmu."""
    ulps: float


@dataclass(frozen=True, kw_only=True)
class LevelStatistics:
    """All roundings of one level of one sum, over the channels studied."""

    sum: str
    level: str
    count: int
    inexact: int
    signed: float
    absolute: float
    largest: float
    z_rms: float
    """Root mean square over channels of (signed sum) / sqrt(sum ulp(s)^2 / 12), over inexact additions."""
    z_worst: float
    worst_channel: int
    ulp_histogram: tuple[int, ...]
    """Inexact roundings by error in ulp of the result, edges BINS."""

    @property
    def ratio(self) -> float:
        """|signed| / absolute: 0 when roundings cancel, 1 when all point one way."""
        return abs(self.signed) / self.absolute if self.absolute else 0.0

    @property
    def systematic(self) -> bool:
        """Rounding in one direction: |z| beyond what independent roundings give (5 sigma)."""
        return abs(self.z_worst) > 5


@dataclass(frozen=True, kw_only=True)
class ErrorStudy:
    """Result of `error_study`."""

    product: Product
    algorithm: str
    dtype: str
    shape: tuple[int, ...]
    plan: ReducePlan
    channels: tuple[int, ...]
    levels: tuple[str, ...]
    cores: tuple[int, ...]
    map: F64
    """(cores, tiles, levels) sum of |effect on sumDyXmu|; combine across cores stands at tile 0 of its core."""
    map_signed: F64
    statistics: tuple[LevelStatistics, ...]
    top: tuple[LocalError, ...]
    skipped: tuple[int, ...]
    """Channels with a value that is not finite."""
    bounds: dict[str, F64] = field(default_factory=dict)
    """(channels,) running, a-priori and probabilistic bounds of sum_dy and of the second sum."""

    def title(self) -> str:
        """As the ledger's."""
        return (
            f"{self.product.name} (fidelity: {self.product.fidelity}), contract {self.algorithm}, "
            f"{self.dtype} in, shape {list(self.shape)}"
        )


def spacing(values: Array, format_name: str) -> F64:
    """ulp of each number of a format (float64); the subnormal spacing at 0."""
    form = formats.get(format_name)
    _, exponent = np.frexp(np.abs(values).astype(np.float64))
    exponent = np.where(values == 0, form.min_exponent + 1, exponent)
    return np.ldexp(1.0, np.maximum(exponent - 1, form.min_exponent) + 1 - form.significand_bits)


def unit_roundoff(format_name: str) -> float:
    """u: 2**-24, 2**-11 or 2**-8."""
    return 2.0 ** -formats.get(format_name).significand_bits


class _Level:
    def __init__(self) -> None:
        self.count = self.inexact = 0
        self.signed = self.absolute = self.largest = 0.0
        self.z: list[tuple[int, float]] = []
        self.histogram = np.zeros(len(BINS) - 1, np.int64)

    def add(self, channel: int, delta: F64, ulp: F64) -> None:
        there = delta != 0
        self.count += delta.size
        self.inexact += int(there.sum())
        if not there.any():
            return
        d, u = delta[there], ulp[there]
        signed = float(d.sum())
        self.signed += signed
        self.absolute += float(np.abs(d).sum())
        self.largest = max(self.largest, float(np.abs(d).max()))
        self.z.append((channel, signed / float(np.sqrt((u * u).sum() / 12))))
        self.histogram += np.histogram(np.clip(d / u, -0.5, 0.5), BINS)[0]

    def done(self, which: str, level: str) -> LevelStatistics:
        worst = max(self.z, key=lambda p: abs(p[1]), default=(0, 0.0))
        rms = float(np.sqrt(np.mean([z * z for _, z in self.z]))) if self.z else 0.0
        return LevelStatistics(
            sum=which, level=level, count=self.count, inexact=self.inexact, signed=self.signed,
            absolute=self.absolute, largest=self.largest, z_rms=rms, z_worst=worst[1], worst_channel=worst[0],
            ulp_histogram=tuple(int(v) for v in self.histogram),
        )  # fmt: skip


def error_study(
    grad_out: Array,
    input: Array,
    mean: Array,
    invstd: Array,
    *,
    product: Product | str = products.DEFAULT_PRODUCT,
    algorithm: Algorithm = "cann",
    channels: Sequence[int] | None = None,
    top: int = 10,
    confidence: float = 0.99,
    progress: Callable[[int, int], None] | None = None,
) -> ErrorStudy:
    """Local errors of a run by core, tile and level, their statistics, and the ``top`` largest.

    Operands, product, algorithm: as `error_ledger`; not "exact". channels: which to study, by default all.
    confidence: of the probabilistic bound. Raises EmulatorError, AclnnError.
    """
    rule = CONTRACTS.get(algorithm)
    if rule is None or rule.order == "none":
        allowed = ", ".join(n for n, c in CONTRACTS.items() if c.order != "none")
        raise EmulatorError(explain("algorithm", got=algorithm, allowed=allowed, remedy="choose one that adds"))
    run = batch_norm_reduce_backward(grad_out, input, mean, invstd, product=product, algorithm=algorithm).run
    plan = run.plan
    if plan is None:
        raise EmulatorError(
            explain("input", got=input.shape, allowed="at least one element", remedy="nothing to study")
        )
    chosen = tuple(range(plan.channels)) if channels is None else tuple(channels)
    if not chosen or min(chosen) < 0 or max(chosen) >= plan.channels:
        allowed = f"some of 0 to {plan.channels - 1}"
        raise EmulatorError(explain("channels", got=chosen, allowed=allowed, remedy="choose channels of axis 1"))
    along = contracts.orders_of(rule, plan)
    rows = contracts.channel_rows(grad_out), contracts.channel_rows(input)
    mean32 = formats.cast(mean, "float32")
    levels = ("product", *along[0].names)
    collect = _Collect(rule, plan, levels, top, confidence, run.dtype)
    for done, c in enumerate(chosen):
        dy, x = (contracts.channel_vector(r, c) for r in rows)
        collect.channel(c, channel_nodes(rule, along[c], dy, x, mean32[c], run.dtype))
        if progress is not None:
            progress(done + 1, len(chosen))
    return collect.study(run.product, algorithm, run.dtype, chosen)


class _Collect:
    """Gathers channel by channel."""

    def __init__(
        self, rule: Contract, plan: ReducePlan, levels: tuple[str, ...], top: int, confidence: float, io: str
    ) -> None:
        self.io = io
        self.rule, self.plan, self.levels, self.top, self.confidence = rule, plan, levels, top, confidence
        self.second = "sum_dy_xmu" if rule.centred else "sum_dy_x"
        self.stats = {(w, level): _Level() for w in ("sum_dy", self.second) for level in levels}
        self.heap: list[tuple[float, int, LocalError]] = []
        self.places = Places.of(plan) if rule.order == "plan" else None
        self.cells: dict[int, dict[tuple[int, int], list[float]]] = {}
        self.skipped: list[int] = []
        self.ticket = itertools.count(0, -1)  # of equal errors the first stays
        self.bounds: dict[str, list[float]] = {}
        self.tiles: dict[int, tuple[Any, Any]] = {}

    def channel(self, c: int, nodes: ChannelNodes) -> None:
        bad = nodes.first.first_bad >= 0 or nodes.second.first_bad >= 0
        if bad or not np.isfinite(nodes.product_error).all():
            self.skipped.append(c)
            return
        weights = {"sum_dy": 0.0 if self.rule.centred else -float(nodes.mean), self.second: 1.0}
        for which, sums in (("sum_dy", nodes.first), (self.second, nodes.second)):
            self._sum(c, which, sums, weights[which])
            self._bounds(which, sums)
        ulp = spacing(nodes.second.terms, self.io if self.rule.narrow_terms else self.rule.accumulator)
        self.stats[self.second, "product"].add(c, nodes.product_error, ulp)
        if self.places is not None:
            groups, tiles = self.places.group_of_leaf, self.places.tile_of_leaf
            if groups.size == 1:
                groups, tiles = (np.zeros(nodes.dy.size, np.int32),) * 2
            self._cells(c, 0, groups, tiles, nodes.product_error)
        else:
            self._cells(c, 0, np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([nodes.product_error.sum()]))

    def _node_places(self, order: Order) -> tuple[Any, Any]:
        """(group, tile) of every node: those of its data, the latest tile where there are several."""
        key = id(order)
        if key not in self.tiles:
            if self.places is None or self.places.tile_of_leaf.size == 1:
                self.tiles[key] = (np.zeros(len(order.left), np.int32),) * 2
            else:
                found = []
                for of_leaf in (self.places.group_of_leaf, self.places.tile_of_leaf):
                    out = np.zeros(len(order.left), np.int32)
                    spread(order.left, order.right, of_leaf, out)
                    found.append(out)
                self.tiles[key] = (found[0], found[1])
        return self.tiles[key]

    def _sum(self, c: int, which: str, sums: Nodes, weight: float) -> None:
        order = sums.order
        ulp = spacing(sums.values, self.rule.accumulator)
        groups, tiles = self._node_places(order)
        for k, name in enumerate(order.names):
            here = order.stage == k
            if here.any():
                self.stats[which, name].add(c, sums.delta[here], ulp[here])
                if weight:
                    combine = name == "core combine"
                    group = np.zeros(int(here.sum()), np.int32) if combine else groups[here]
                    tile = np.zeros(int(here.sum()), np.int32) if combine else tiles[here]
                    self._cells(c, k + 1, group, tile, weight * sums.delta[here])
        effect = np.abs(weight * sums.delta)
        if not effect.size or not weight:
            return
        for v in np.argpartition(effect, -min(self.top, effect.size))[-min(self.top, effect.size) :]:
            if effect[v] > 0 and (len(self.heap) < self.top or effect[v] > self.heap[0][0]):
                item = self._local(c, which, sums, int(v), weight, float(ulp[v]), int(groups[v]), int(tiles[v]))
                heapq.heappush(self.heap, (float(effect[v]), next(self.ticket), item))
                if len(self.heap) > self.top:
                    heapq.heappop(self.heap)

    def _local(
        self, c: int, which: str, sums: Nodes, v: int, weight: float, ulp: float, group: int, tile: int
    ) -> LocalError:
        order = sums.order
        level = order.names[order.stage[v]]

        def value(child: int) -> float:
            if child >= 0:
                return float(sums.values[child])
            return float(sums.terms[-2 - child]) if child < -1 else 0.0

        mine = self.places is not None
        combine = level == "core combine"
        core = None
        if self.places is not None:
            core = self.places.node(c, order, v, [])[0] if combine else self.places.core(c, group)
        return LocalError(
            channel=c, sum=which, level=level, core=core, tile=tile if mine and not combine else None, node=v,
            instruction=INSTRUCTIONS.get(level, "add") if mine else "add", left=value(int(order.left[v])),
            right=value(int(order.right[v])), result=float(sums.values[v]), error=float(sums.delta[v]),
            effect=float(weight * sums.delta[v]), ulps=float(sums.delta[v]) / ulp,
        )  # fmt: skip

    def _cells(self, c: int, level: int, groups: Any, tiles: Any, effect: F64) -> None:
        width = int(tiles.max()) + 1 if tiles.size else 1
        key = groups.astype(np.int64) * width + tiles
        signed = np.bincount(key, effect)
        absolute = np.bincount(key, np.abs(effect))
        for k in np.flatnonzero(absolute):
            group, tile = divmod(int(k), width)
            core = self.places.core(c, group) if self.places is not None else 0
            cell = self.cells.setdefault(core, {}).setdefault((tile, level), [0.0, 0.0])
            cell[0] += float(signed[k])
            cell[1] += float(absolute[k])

    def _bounds(self, which: str, sums: Nodes) -> None:
        u = unit_roundoff(self.rule.accumulator)
        s = np.abs(sums.values.astype(np.float64))
        terms = float(np.abs(sums.terms.astype(np.float64)).sum())
        h = sums.order.height
        real = sums.delta[np.isfinite(sums.delta)]
        found = {
            "error": float(real.sum()),
            "running": u * float(s.sum()),
            "a_priori": h * u / (1 - h * u) * terms if h * u < 1 else np.inf,
            "probabilistic": u * np.sqrt(2 * np.log(2 / (1 - self.confidence))) * float(np.sqrt((s * s).sum())),
            "terms": terms,
        }
        for name, value in found.items():
            self.bounds.setdefault(f"{which} {name}", []).append(float(value))

    def study(self, product: Product, algorithm: str, dtype: str, chosen: tuple[int, ...]) -> ErrorStudy:
        cores = tuple(sorted(self.cells))
        tiles = max((t + 1 for cells in self.cells.values() for t, _ in cells), default=1)
        grid = np.zeros((2, max(len(cores), 1), tiles, len(self.levels)))
        for row, core in enumerate(cores):
            for (tile, level), cell in self.cells[core].items():
                grid[:, row, tile, level] = cell
        used = [(k, s) for k, s in self.stats.items() if s.count]
        return ErrorStudy(
            product=product, algorithm=algorithm, dtype=dtype, shape=self.plan.shape, plan=self.plan, channels=chosen,
            levels=self.levels, cores=cores, map=grid[1], map_signed=grid[0],
            statistics=tuple(s.done(*k) for k, s in used),
            top=tuple(item for _, _, item in sorted(self.heap, key=lambda t: -t[0])),
            skipped=tuple(self.skipped), bounds={k: np.array(v) for k, v in self.bounds.items()},
        )  # fmt: skip
