"""Numeric contracts: what is rounded, in which format and in which order.

`cann` is the operator itself and runs in the engines. The others are computed here, channel by channel, along
an explicit `Order`, so that the error ledger can attribute every one of them in the same way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.errors import explain
from ops.elementwise import kernels
from ops.errors import AclnnError
from ops.exact import exact_outputs, round_fraction
from ops.reduce_sum import order as orders
from ops.reduce_sum.order import Order
from ops.reduce_sum.plan import ReducePlan
from ops.reduce_sum.tree import addition_tree

Array = NDArray[Any]
F32 = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One numeric contract.

    centred: terms are dy * fl(x - mean) and gradWeight is one product; otherwise the CANN formula
    sum(dy * x) - mean * sum(dy). order: of the additions. accumulator: format every sum and, if it is not
    float32, every product is rounded to. narrow_terms: terms and shuffled partial sums are rounded to the
    format of the operands.
    """

    name: str
    summary: str
    centred: bool = False
    order: Literal["plan", "sequential", "numpy", "torch", "none"] = "plan"
    accumulator: str = "float32"
    narrow_terms: bool = False


_ALL = (
    Contract(name="cann", summary="sum(dy*x) - mean*sum(dy) in fp32, the product's tiling: the operator"),
    Contract(name="centred", summary="sum(dy*(x-mean)) in fp32, the product's tiling: the formula of the document",
             centred=True),
    Contract(
        name="torch_cuda", centred=True, order="torch", narrow_terms=True,
        summary="PyTorch's CUDA kernel for contiguous tensors: one block per channel, fp32 sums; terms and shuffled "
        "partial sums pass through the input's format (pytorch issue 195701); fused multiply-add is not modelled",
    ),
    Contract(name="sequential", order="sequential", summary="the CANN formula in fp32, one addition after the other"),
    Contract(name="numpy", order="numpy", summary="the CANN formula in fp32, additions as np.add.reduce does them"),
    Contract(name="exact", order="none", summary="the rational result rounded once to the output format"),
    Contract(name="cann_fp16", accumulator="float16",
             summary="what if: products and sums rounded to fp16, the product's tiling; the last three steps in fp32"),
    Contract(name="cann_bf16", accumulator="bfloat16",
             summary="what if: products and sums rounded to bf16, the product's tiling; the last three steps in fp32"),
)  # fmt: skip
CONTRACTS: Mapping[str, Contract] = MappingProxyType({c.name: c for c in _ALL})


def contract(name: str) -> Contract:
    """The contract of that name. Raises AclnnError."""
    if name not in CONTRACTS:
        text = explain("algorithm", got=name, allowed=", ".join(CONTRACTS), remedy="choose one of these")
        raise AclnnError(text)
    return CONTRACTS[name]


def channel_rows(array: Array) -> Array:
    """(N, C, S) view of a contiguous (N, C, ...) array."""
    shape = (array.shape[0], array.shape[1], math.prod(array.shape[2:]))
    return np.ascontiguousarray(array).reshape(shape)


def channel_vector(rows: Array, channel: int) -> F32:
    """The channel's elements as fp32, in the order n * S + s."""
    return np.ascontiguousarray(formats.cast(np.ascontiguousarray(rows[:, channel]), "float32")).reshape(-1)


def orders_of(rule: Contract, plan: ReducePlan) -> list[Order]:
    """The order of each channel; equal ones are one object."""
    n, s = plan.shape[0], math.prod(plan.shape[2:])
    if rule.order == "plan":
        made: dict[tuple[int, int], Order] = {}
        result = []
        for c in range(plan.channels):
            key = _class_of(plan, c)
            if key not in made:
                made[key] = orders.of_tree(addition_tree(plan, c))
            result.append(made[key])
        return result
    one = _simple_order(rule.order, n, s)
    return [one] * plan.channels


@lru_cache(maxsize=4)
def _simple_order(kind: str, n: int, s: int) -> Order:
    if kind == "torch":
        return orders.torch_block(n, s)
    return orders.numpy_pairwise(n * s) if kind == "numpy" else orders.sequential(n * s)


def _class_of(plan: ReducePlan, channel: int) -> tuple[int, int]:
    """Channels with an equal value have equal trees: width of the A tile, width of the second stage's chunk."""
    g = plan.geometry
    if g is None:
        return 0, 0
    return min(g.a_step, g.c - channel // g.a_step * g.a_step), min(64, g.c - channel // 64 * 64)


def terms_of(rule: Contract, dy: F32, x: F32, mean: np.float32, io: str) -> tuple[F32, F32, F32]:
    """(terms of sum dy, fp32 factor of dy, terms of the product sum) of one channel."""
    with np.errstate(all="ignore"):
        factor = (x - mean).astype(np.float32) if rule.centred else x
        product = dy * factor
        if rule.narrow_terms and io != "float32":
            product = formats.cast(formats.cast(product, io), "float32")
        if rule.accumulator == "float32":
            return dy, factor, product
        first = formats.cast(formats.cast(dy, rule.accumulator), "float32")
        return first, factor, formats.cast(formats.cast(product, rule.accumulator), "float32")


def finish(rule: Contract, sum_dy: F32, second: F32, mean: F32, invstd: F32) -> tuple[F32, F32]:
    """(sum_dy_xmu, grad_weight) in fp32 from the two sums."""
    xmu, weight = np.empty_like(sum_dy), np.empty_like(sum_dy)
    with np.errstate(all="ignore"):
        if rule.centred:
            return second.copy(), (second * invstd).astype(np.float32)
        kernels.three_steps(sum_dy, second, mean, invstd, xmu, weight)
    return xmu, weight


class ContractEngine:
    """Runs a contract other than cann; the same attributes as the engines of the pipeline."""

    def __init__(self, rule: Contract) -> None:
        self.rule = rule
        self.sums: dict[str, F32] = {}
        self.partials: dict[str, F32] = {}
        self.launches: list[Any] = []
        self.notes = [f"numeric contract {rule.name}: {rule.summary}"]

    def run(self, plan: ReducePlan, grad_out: Array, input: Array, mean: Array, invstd: Array) -> None:
        """Fill ``sums`` (fp32, before the output cast)."""
        rule, io = self.rule, formats.get(input.dtype).name
        rows_dy, rows_x = channel_rows(grad_out), channel_rows(input)
        mean32 = np.ascontiguousarray(formats.cast(mean, "float32"))
        invstd32 = np.ascontiguousarray(formats.cast(invstd, "float32"))
        sums = np.empty((2, plan.channels), np.float32)
        along = orders_of(rule, plan)

        def channel(c: int) -> None:
            dy, _, product = terms_of(rule, channel_vector(rows_dy, c), channel_vector(rows_x, c), mean32[c], io)
            sums[0, c] = orders.order_sum(along[c], dy, rule.accumulator, io)
            sums[1, c] = orders.order_sum(along[c], product, rule.accumulator, io)

        with ThreadPoolExecutor(min(os.cpu_count() or 1, plan.channels)) as pool:
            list(pool.map(channel, range(plan.channels)))
        xmu, weight = finish(rule, sums[0], sums[1], mean32, invstd32)
        named = {"sum_dy": sums[0], "sum_dy_xmu": xmu, "grad_weight": weight}
        if not rule.centred:
            named["sum_dy_x"] = sums[1]
        self.sums = {n: formats.canonical_nan(a) for n, a in named.items()}


def exact_rounded(grad_out: Array, input: Array, mean: Array, invstd: Array, out_name: str) -> dict[str, Array]:
    """Outputs of the contract ``exact``: each rational result rounded once to the output format."""
    dtype = formats.get(out_name).dtype
    values = exact_outputs(grad_out, input, mean, invstd)
    return {n: np.array([round_fraction(v, out_name) for v in column], dtype) for n, column in values.items()}
