"""Local errors along an explicit order of additions: any contract, one channel at a time.

The generic way: every node's value and error is an array, so everything else (levels, cores, tiles, worst
instructions, statistics) is a question to these arrays. `ledger_fast` does the sums of the operator's own
contract without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.batch_norm_reduce_backward import contracts
from ops.batch_norm_reduce_backward.contracts import Contract
from ops.reduce_sum.geometry import bisection
from ops.reduce_sum.order import KINDS, Order, evaluate
from ops.reduce_sum.plan import ReducePlan
from studies.exact_sums import TierCount, exact_sum, exact_sums_by_label
from studies.ledger import SHUFFLE, ZERO, Overflow, SumErrors

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
NOTHING_BOOL, NOTHING = np.empty(0, np.bool_), np.empty(0)


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Every addition of one sum of one channel."""

    order: Order
    terms: F32
    values: F32
    delta: F64
    lost: F64
    """Rounding of right operands on their way; empty where the order has none."""
    first_bad: int
    """First node that is not finite, -1 when there is none."""

    @property
    def value(self) -> float:
        """The computed sum."""
        root = self.order.root
        return float(self.values[root] if root >= 0 else self.terms[-2 - root])


def nodes_of(order: Order, terms: F32, accumulator: str, io: str) -> Nodes:
    """Evaluate an order with errors."""
    count = len(order.left)
    values, delta = np.empty(count, np.float32), np.empty(count)
    narrow = NOTHING_BOOL if order.narrow is None else order.narrow
    lost = np.zeros(narrow.size)
    with np.errstate(all="ignore"):
        bad = evaluate(order.left, order.right, narrow, terms, KINDS[accumulator], KINDS[io], values, delta, lost)
    return Nodes(order=order, terms=terms, values=values, delta=delta, lost=lost, first_bad=bad)


@dataclass(frozen=True, kw_only=True)
class ChannelNodes:
    """One channel: operands, terms, and the additions of both sums."""

    dy: F32
    x: F32
    factor: F32
    mean: np.float32
    first: Nodes
    second: Nodes
    product_error: F64
    """(n,) rounding of each product (and of a term to a narrower format)."""
    centring_error: F64
    """(n,) rounding of x - mean; empty when not centred."""


def channel_nodes(rule: Contract, order: Order, dy: F32, x: F32, mean: np.float32, io: str) -> ChannelNodes:
    """All local errors of one channel. dy, x: (n,) fp32 in the order n * S + s."""
    first, factor, product = contracts.terms_of(rule, dy, x, mean, io)
    with np.errstate(all="ignore"):
        product_error = product.astype(np.float64) - dy.astype(np.float64) * factor.astype(np.float64)
        centring = NOTHING
        if rule.centred:  # TwoSum of x and -mean
            b = -mean
            part = factor - x
            centring = -((x - (factor - part)) + (b - part)).astype(np.float64)
    return ChannelNodes(
        dy=dy, x=x, factor=factor, mean=mean, product_error=product_error, centring_error=centring,
        first=nodes_of(order, first, rule.accumulator, io), second=nodes_of(order, product, rule.accumulator, io),
    )  # fmt: skip


def sum_errors(
    rule: Contract, nodes: ChannelNodes, channel: int, plan: ReducePlan, tiers: TierCount | None = None
) -> SumErrors:
    """Exact level sums of one channel."""
    overflows = []
    levels: list[dict[str, Fraction]] = []
    for which, sums in (("sum_dy", nodes.first), ("sum_dy_xmu", nodes.second)):
        bad = find_overflow(rule, nodes, sums, which, channel, plan)
        if bad is not None:
            overflows.append(bad)
            levels.append({})
            continue
        names = sums.order.names
        found = dict(zip(names, exact_sums_by_label(sums.delta, sums.order.stage, len(names), tiers), strict=True))
        if sums.lost.size:
            found[SHUFFLE] = exact_sum(sums.lost, tiers)
        levels.append(found)
    second_bad = any(o.output == "sum_dy_xmu" for o in overflows)
    terms_dy = ZERO
    if rule.accumulator != "float32" and not any(o.output == "sum_dy" for o in overflows):
        terms_dy = exact_sum(nodes.first.terms.astype(np.float64) - nodes.dy.astype(np.float64), tiers)
    centring = ZERO
    if rule.centred and not second_bad:
        centring = exact_sum(nodes.dy.astype(np.float64) * nodes.centring_error, tiers)
    return SumErrors(
        sum_dy=nodes.first.value if levels[0] or not overflows else math.nan,
        second=math.nan if second_bad else nodes.second.value,
        levels_dy=levels[0],
        levels_second=levels[1],
        terms_dy=terms_dy,
        product=ZERO if second_bad else exact_sum(nodes.product_error, tiers),
        centring=centring,
        overflow=tuple(overflows),
    )


def find_overflow(
    rule: Contract, nodes: ChannelNodes, sums: Nodes, output: str, channel: int, plan: ReducePlan
) -> Overflow | None:
    """The first term or addition of a sum that is not finite."""
    bad_terms = np.flatnonzero(~np.isfinite(sums.terms))
    bad_lost = np.flatnonzero(~np.isfinite(sums.lost)) if sums.lost.size else bad_terms[:0]
    if not bad_terms.size and not bad_lost.size and sums.first_bad < 0:
        return None
    places = Places.of(plan) if rule.order == "plan" else None
    if bad_terms.size:
        p = int(bad_terms[0])
        given = np.isfinite(nodes.dy[p]) and np.isfinite(nodes.x[p]) and np.isfinite(nodes.mean)
        step = ("product" if output == "sum_dy_xmu" else "term rounding") if given else "input"
        core, tile = places.leaf(channel, p) if places else (None, None)
        exact = _exact_terms(rule, nodes, output, [p])
        return Overflow(output=output, channel=channel, step=step, core=core, tile=tile, node=p, exact=exact)
    node = int(sums.first_bad if sums.first_bad >= 0 else bad_lost[0])
    step = sums.order.names[sums.order.stage[node]]
    leaves = leaves_under(sums.order, node)
    core, tile = places.node(channel, sums.order, node, leaves) if places else (None, None)
    exact = _exact_terms(rule, nodes, output, leaves)
    return Overflow(output=output, channel=channel, step=step, core=core, tile=tile, node=node, exact=exact)


def _exact_terms(rule: Contract, nodes: ChannelNodes, output: str, leaves: list[int]) -> Any:
    """Exact sum of the unrounded terms at ``leaves``."""
    dy, x, mean = nodes.dy[leaves], nodes.x[leaves], float(nodes.mean)
    if not (np.isfinite(dy).all() and np.isfinite(x).all() and math.isfinite(mean)):
        return math.nan
    d = dy.astype(np.float64)
    if output == "sum_dy":
        return exact_sum(d)
    with np.errstate(all="ignore"):
        value = exact_sum(d * x.astype(np.float64))
        return value - Fraction(mean) * exact_sum(d) if rule.centred else value


def leaves_under(order: Order, node: int) -> list[int]:
    """Terms under a node, in no particular order."""
    todo, found = [node], []
    while todo:
        v = todo.pop()
        if v >= 0:
            todo += [int(order.left[v]), int(order.right[v])]
        elif v < -1:
            found.append(-2 - v)
    return found


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the additions of the operator's own order happen."""

    plan: ReducePlan
    tile_of_leaf: NDArray[np.int32]
    """(n,) leaf of the core's cache tree an element belongs to; tile i and i + pos share one."""
    group_of_leaf: NDArray[np.int32]

    @classmethod
    def of(cls, plan: ReducePlan) -> Places:
        """Of a plan; everything is at tile 0 when there is nothing to reduce."""
        g = plan.geometry
        if g is None:
            nothing = np.zeros(1, np.int32)
            return cls(plan=plan, tile_of_leaf=nothing, group_of_leaf=nothing)
        n, s = np.divmod(np.arange(g.n * g.s), g.s)
        if g.s_tiles > 1 or g.split == 1:
            tile = n * g.s_tiles + s // g.r_step
        else:
            tile = n // g.r_step if g.split == 2 else np.zeros_like(n)
        group = tile // g.factor_r
        local = tile - group * g.factor_r
        pos = np.array([bisection(min(g.factor_r, g.r_tiles - k * g.factor_r)) for k in range(g.group_r)])
        local = np.where(local >= pos[group], local - pos[group], local)
        return cls(plan=plan, tile_of_leaf=local.astype(np.int32), group_of_leaf=group.astype(np.int32))

    def core(self, channel: int, group: int) -> int:
        """Core that reduces an R group of a channel."""
        g = self.plan.geometry
        if g is None:
            return channel // self.plan.unit_a // self.plan.tiling.factor_a
        return channel // g.a_step // g.factor_a * g.group_r + group

    def leaf(self, channel: int, p: int) -> tuple[int, int]:
        """(core, tile) that reads element p of a channel."""
        return self.core(channel, int(self.group_of_leaf[p])), int(self.tile_of_leaf[p])

    def node(self, channel: int, order: Order, node: int, leaves: list[int]) -> tuple[int, int | None]:
        """(core, tile) of an addition; tile None for the combine across cores."""
        if order.names[order.stage[node]] == "core combine":
            chunks = -(-self.plan.channels // 64)
            per_core = -(-chunks // self.plan.cores)
            return channel // 64 // per_core, None
        group = int(self.group_of_leaf[leaves[0]]) if leaves else 0
        return self.core(channel, group), int(self.tile_of_leaf[leaves].max()) if leaves else 0
