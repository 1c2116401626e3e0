"""Make the error ledger of a run: `error_ledger`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emulator import formats, products
from emulator.errors import EmulatorError, explain
from emulator.products import Product
from ops.batch_norm_reduce_backward import contracts
from ops.batch_norm_reduce_backward.contracts import CONTRACTS, Contract
from ops.batch_norm_reduce_backward.pipeline import Algorithm, BatchNormRun, batch_norm_reduce_backward
from ops.exact import Exact
from ops.reduce_sum.order import PLAN_LEVELS
from ops.reduce_sum.plan import ReducePlan
from studies.exact_sums import TierCount, exact_dot, exact_sum
from studies.exact_values import exact_values
from studies.ledger import AFTER, BEFORE, OUTPUTS, SHUFFLE, ZERO, Chain, ErrorLedger, SumErrors, chain
from studies.ledger_fast import fast_errors
from studies.ledger_orders import channel_nodes, sum_errors

Array = NDArray[Any]
Method = Literal["auto", "fast", "orders"]


def error_ledger(
    grad_out: Array,
    input: Array,
    mean: Array,
    invstd: Array,
    *,
    product: Product | str = products.DEFAULT_PRODUCT,
    algorithm: Algorithm = "cann",
    out_dtype: Any = None,
    master: Mapping[str, Array] | None = None,
    method: Method = "auto",
    progress: Callable[[int, int], None] | None = None,
    source: str = "",
) -> ErrorLedger:
    """Run the operator and attribute the error of every output of every channel exactly.

    grad_out, input, mean, invstd, product, algorithm, out_dtype: as `ops.batch_norm_reduce_backward`.
    master: float64 (or float32) "grad_out" and "input" of the same shape, before they were rounded to the IO
    format; the exact value is then theirs, and the rounding becomes the steps "quantise dy" and "quantise x".
    method: "fast" follows the tiling without storing nodes (cann only), "orders" evaluates explicit orders of
    additions; "auto" takes the first where it can. Both give the same rational numbers.
    Raises AclnnError or EmulatorError (bad operands, masters or method).
    """
    result = batch_norm_reduce_backward(
        grad_out, input, mean, invstd, product=product, algorithm=algorithm, out_dtype=out_dtype
    )
    run = result.run
    rule = CONTRACTS[algorithm]
    if method not in ("auto", "fast", "orders") or (method == "fast" and algorithm != "cann"):
        allowed = "auto, orders; fast for cann"
        raise EmulatorError(explain("method", got=method, allowed=allowed, remedy="choose one of these"))
    if run.plan is None:
        raise EmulatorError(
            explain("input", got=input.shape, allowed="at least one element", remedy="nothing is rounded without any")
        )
    masters = _masters(master, input.shape)
    delivered: dict[str, Array] = {n: getattr(result, n) for n in OUTPUTS}
    exact = exact_values(grad_out, input, mean, invstd)
    quantised: list[dict[str, Fraction]] = [{}] * run.plan.channels
    if masters is not None:
        quantised, exact = _quantisation(grad_out, input, mean, invstd, masters, exact)
    tiers = TierCount()
    levels: list[str] = []
    if rule.order == "none":
        chains = _exact_chains(delivered, exact, quantised)
    else:
        use_fast = algorithm == "cann" and method != "orders" and run.plan.geometry is not None
        make = _fast if use_fast else _orders
        errors, levels = make(rule, run, grad_out, input, mean, tiers, progress)
        chains = _chains(rule, run, errors, mean, invstd, delivered, exact, quantised)
    steps = (*BEFORE, *levels, *AFTER)
    return ErrorLedger(
        product=run.product, algorithm=algorithm, dtype=run.dtype, out_dtype=run.out_dtype, shape=run.shape,
        plan=run.plan, steps=steps, delivered=delivered, exact=exact, tiers=tiers.counts, source=source,
        entries={n: {s: [c.entries[n].get(s, ZERO) for c in chains] for s in steps} for n in OUTPUTS},
        residual={n: [c.residual[n] for c in chains] for n in OUTPUTS},
        overflows=tuple(o for c in chains for o in c.overflows),
    )  # fmt: skip


def _fast(
    rule: Contract, run: BatchNormRun, grad_out: Array, input: Array, mean: Array, tiers: TierCount, progress: Any
) -> tuple[list[SumErrors], list[str]]:
    """Channels the fast pass cannot settle (overflow) go through the orders."""
    assert run.plan is not None
    errors: list[SumErrors | None] = list(fast_errors(run.plan, grad_out, input, tiers))
    missing = [c for c, e in enumerate(errors) if e is None]
    if missing:
        for c, e in zip(missing, _channels(rule, run, grad_out, input, mean, tiers, missing, progress), strict=True):
            errors[c] = e
    return [e for e in errors if e is not None], list(PLAN_LEVELS)


def _orders(
    rule: Contract, run: BatchNormRun, grad_out: Array, input: Array, mean: Array, tiers: TierCount, progress: Any
) -> tuple[list[SumErrors], list[str]]:
    assert run.plan is not None
    every = list(range(run.plan.channels))
    errors = _channels(rule, run, grad_out, input, mean, tiers, every, progress)
    one = contracts.orders_of(rule, run.plan)[0]
    return errors, [*one.names, *([SHUFFLE] if rule.narrow_terms else [])]


def _channels(
    rule: Contract, run: BatchNormRun, grad_out: Array, input: Array, mean: Array, tiers: TierCount,
    wanted: list[int], progress: Any,
) -> list[SumErrors]:  # fmt: skip
    plan: ReducePlan = run.plan  # type: ignore[assignment]
    rows_dy, rows_x = contracts.channel_rows(grad_out), contracts.channel_rows(input)
    mean32 = formats.cast(mean, "float32")
    along = contracts.orders_of(rule, plan)
    done = 0

    def one(c: int) -> tuple[SumErrors, TierCount]:
        nonlocal done
        dy, x = contracts.channel_vector(rows_dy, c), contracts.channel_vector(rows_x, c)
        own = TierCount()
        errors = sum_errors(rule, channel_nodes(rule, along[c], dy, x, mean32[c], run.dtype), c, plan, own)
        done += 1
        if progress is not None:
            progress(done, len(wanted))
        return errors, own

    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(wanted))) as pool:
        found = list(pool.map(one, wanted))
    for _, own in found:
        for tier, count in enumerate(own.counts.values()):
            tiers.add(tier, count)
    return [e for e, _ in found]


def _chains(
    rule: Contract, run: BatchNormRun, errors: list[SumErrors], mean: Array, invstd: Array,
    delivered: Mapping[str, Array], exact: Mapping[str, list[Exact]], quantised: list[dict[str, Fraction]],
) -> list[Chain]:  # fmt: skip
    means, invstds = (formats.cast(a, "float32").astype(np.float64).tolist() for a in (mean, invstd))
    fp32 = {n: run.sums["sum_dy" if n == "grad_bias" else n].astype(np.float64).tolist() for n in OUTPUTS}
    out = {n: delivered[n].astype(np.float64).tolist() for n in OUTPUTS}
    saturating = run.product.overflow_mode == "saturation" and run.out_dtype != "float32"
    return [
        chain(
            e, c, means[c], invstds[c], rule.centred, {n: fp32[n][c] for n in OUTPUTS},
            {n: out[n][c] for n in OUTPUTS}, {n: exact[n][c] for n in OUTPUTS}, quantised[c], run.out_dtype, saturating,
        )
        for c, e in enumerate(errors)
    ]  # fmt: skip


def _exact_chains(
    delivered: Mapping[str, Array], exact: Mapping[str, list[Exact]], quantised: list[dict[str, Fraction]]
) -> list[Chain]:
    """Of the contract ``exact``: one rounding, and what the masters lost."""
    chains = []
    for c, lost in enumerate(quantised):
        entries: dict[str, dict[str, Fraction]] = {}
        residual: dict[str, Fraction | None] = {}
        for n in OUTPUTS:
            value, out = exact[n][c], float(delivered[n][c])
            if isinstance(value, float) or not math.isfinite(out):
                entries[n], residual[n] = {}, None
                continue
            own = _share(n, lost)
            entries[n] = {**own, "output cast": Fraction(out) - value - sum(own.values(), ZERO)}
            residual[n] = ZERO
        chains.append(Chain(entries=entries, residual=residual, overflows=[]))
    return chains


def _share(output: str, lost: Mapping[str, Fraction]) -> dict[str, Fraction]:
    if not lost:
        return {}
    if output in ("sum_dy", "grad_bias"):
        return {"quantise dy": lost["dy"]}
    r = lost["invstd"] if output == "grad_weight" else Fraction(1)
    return {"quantise dy": r * lost["xmu dy"], "quantise x": r * lost["xmu x"]}


def _masters(master: Mapping[str, Array] | None, shape: tuple[int, ...]) -> tuple[Array, Array] | None:
    """float64 masters of grad_out and input. Raises EmulatorError."""
    if master is None:
        return None
    arrays = []
    for name in ("grad_out", "input"):
        array = master.get(name)
        if array is None or array.shape != shape or array.dtype not in (np.float32, np.float64):
            got = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
            raise EmulatorError(
                explain(f"master {name}", got=got, allowed=f"float64 or float32 {list(shape)}", remedy="give both")
            )
        wide = array.astype(np.float64)
        size = np.abs(wide[wide != 0])
        if size.size and not (size.min() >= 2.0**-300 and size.max() <= 2.0**300):
            raise EmulatorError(
                explain(
                    f"master {name}", got=f"{size.min()} to {size.max()}", allowed="0 and 2**-300 to 2**300",
                    remedy="masters outside have no fp32 counterpart",
                )
            )  # fmt: skip
        arrays.append(wide)
    return arrays[0], arrays[1]


def _quantisation(
    grad_out: Array, input: Array, mean: Array, invstd: Array, masters: tuple[Array, Array],
    of_data: Mapping[str, list[Exact]],
) -> tuple[list[dict[str, Fraction]], dict[str, list[Exact]]]:  # fmt: skip
    """Exact shares of rounding dy and x to the IO format (symmetric split), and the masters' exact outputs."""
    rows = [contracts.channel_rows(a) for a in (grad_out, input, *masters)]
    means, invstds = (formats.cast(a, "float32").astype(np.float64) for a in (mean, invstd))
    shares: list[dict[str, Fraction]] = []
    exact: dict[str, list[Exact]] = {n: [] for n in OUTPUTS}
    for c in range(input.shape[1]):
        dy, x, dy0, x0 = (r[:, c].astype(np.float64).reshape(-1) for r in rows)
        finite = all(np.isfinite(v).all() for v in (dy, x, means[c], invstds[c]))
        if not finite:
            shares.append({"dy": ZERO, "xmu dy": ZERO, "xmu x": ZERO, "invstd": ZERO})
            for n in OUTPUTS:
                exact[n].append(of_data[n][c] if isinstance(of_data[n][c], float) else math.nan)
            continue
        mu, r = Fraction(float(means[c])), Fraction(float(invstds[c]))
        s, s0 = exact_sum(dy), exact_sum(dy0)
        both, old, dy_new, x_new = exact_dot(dy, x), exact_dot(dy0, x0), exact_dot(dy, x0), exact_dot(dy0, x)
        shares.append(
            {
                "dy": s - s0,
                "xmu dy": (both + dy_new - x_new - old) / 2 - mu * (s - s0),
                "xmu x": (both + x_new - dy_new - old) / 2,
                "invstd": r,
            }
        )
        xmu = old - mu * s0
        for n, v in zip(OUTPUTS, (s0, xmu, r * xmu, s0), strict=True):
            exact[n].append(v)
    return shares, exact
