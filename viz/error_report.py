"""The error report as text and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from studies.accuracy import Cancellation, Growth
from studies.error_study import ErrorStudy
from studies.ledger import ErrorLedger, float_of, text_of
from studies.metrics import ChannelMetrics
from studies.verdict import Verdict

WIDTH = 118


def ledger_lines(ledger: ErrorLedger, output: str, channels: Sequence[int]) -> list[str]:
    """The ledger of one output: steps by channels, and the account's last lines."""
    names = [f"ch {c}" for c in channels]
    totals = ledger.step_totals(output)
    lines = [f"{'step':<18}" + "".join(f"{n:>12}" for n in names) + f"{'rms/|exact|':>14}{'signed sum':>12}"]
    for step in ledger.steps:
        column, t = ledger.entries[output][step], totals[step]
        if t["absolute"] == 0:
            lines.append(f"{step:<18}{'0 exactly, in every channel':>30}")
            continue
        cells = "".join(
            f"{'not attr.':>12}" if ledger.residual[output][c] is None else _cell(column[c]) for c in channels
        )
        lines.append(f"{step:<18}{cells}{t['relative_rms']:>14.2e}{t['signed']:>12.2e}")
    errors = ledger.errors(output)
    lines.append(
        f"{'output - exact':<18}" + "".join(f"{'-':>12}" if errors[c] is None else _cell(errors[c]) for c in channels)
    )
    residual = [
        "-" if r is None else ("0 exactly" if r == 0 else f"{float_of(r):.1e}") for r in ledger.residual[output]
    ]
    lines.append(f"{'residual':<18}" + "".join(f"{residual[c]:>12}" for c in channels))
    return lines


def _cell(value: Fraction | None) -> str:
    return f"{'0':>12}" if not value else f"{float_of(value):>12.3e}"


def report_lines(
    ledger: ErrorLedger, study: ErrorStudy | None, verdicts: Sequence[Verdict], metrics: ChannelMetrics, output: str,
    channels: Sequence[int],
) -> list[str]:  # fmt: skip
    """The report for people."""
    lines = [
        f"error ledger: {ledger.source or 'operands'}",
        f"  {ledger.title()}",
        f"  {ledger.product.fidelity_note}",
        "",
    ]
    lines += [
        f"{output} = exact value + contributions:",
        *(f"  {t}" for t in ledger_lines(ledger, output, channels)),
        "",
    ]
    checked = ", ".join(f"{n} {count}/{ledger.channels}" for n, count in ledger.attributed.items())
    state = "0 exactly, as rational numbers" if ledger.residual_is_zero else "NOT 0: this is a bug, please report it"
    lines += [f"residual over all channels: {state} (attributed: {checked})"]
    tiers = ", ".join(f"{n} {c}" for n, c in ledger.tiers.items() if c) or "none needed"
    lines += [f"exactness of level sums: {tiers}"]
    for o in ledger.overflows[:5]:
        lines.append(f"not finite: {o.text()}")
    if len(ledger.overflows) > 5:
        lines.append(f"not finite: {len(ledger.overflows) - 5} more; --json lists all")
    worst = {n: _worst(getattr(metrics, n)) for n in ("ulp", "relative", "backward", "condition")}
    bits = metrics.bits[np.isfinite(metrics.bits)]
    lines += [
        "",
        f"{output}, worst channel: {worst['ulp']} ulp of {ledger.out_dtype}, relative {worst['relative']}, "
        f"backward error {worst['backward']}, condition {worst['condition']}, "
        f"significant bits {bits.min() if bits.size else math.nan:.1f}",
    ]
    if study is not None:
        lines += ["", "levels (sum, level, inexact of all, |signed|/absolute, z rms, z worst):"]
        for s in study.statistics:
            mark = "  systematic" if s.systematic else ""
            lines.append(
                f"  {s.sum:<11}{s.level:<18}{s.inexact:>12,} of {s.count:>13,}"
                f"{s.ratio:>9.3f}{s.z_rms:>9.2f}{s.z_worst:>9.2f}{mark}"
            )
        lines += ["", "largest single roundings, by effect on sumDyXmu:"]
        for t in study.top:
            place = f"core {t.core}, tile {t.tile}" if t.core is not None else "one block"
            lines.append(
                f"  {t.effect:>11.3e}  channel {t.channel}, {place}, {t.sum} {t.level}, node {t.node}, "
                f"{t.instruction}: {t.left:.9g} + {t.right:.9g} = {t.result:.9g} ({t.ulps:+.2f} ulp)"
            )
    lines += ["", "verdicts (margin: factor by which every error could grow):"]
    for v in verdicts:
        lines.append(
            f"  {'pass' if v.passed else 'FAIL'}  {v.output:<12}{v.standard:<21}margin {v.margin:<9.3g}{v.detail}"
        )
    return lines


def _worst(values: Any) -> str:
    good = values[np.isfinite(values)]
    return f"{good.max():.3g}" if good.size else "-"


def as_json(
    ledger: ErrorLedger, study: ErrorStudy | None, verdicts: Sequence[Verdict], metrics: dict[str, ChannelMetrics],
    cancellation: Cancellation, growth: Growth,
) -> dict[str, Any]:  # fmt: skip
    """Everything; exact numbers as fractions, computed ones of the ledger as hex floats, no NaN or infinity."""
    record: dict[str, Any] = {
        "ledger": ledger.as_dict(),
        "verdicts": [dataclasses.asdict(v) for v in verdicts],
        "metrics": {n: {k: v.tolist() for k, v in vars(m).items()} for n, m in metrics.items()},
        "cancellation": _plain(cancellation),
        "growth": {
            **_plain(growth),
            "slopes": {n: growth.slope(n) for n in dict.fromkeys(p.order for p in growth.points)},
        },
    }
    if study is not None:
        record["study"] = {
            "channels": list(study.channels), "levels": list(study.levels), "cores": list(study.cores),
            "map": study.map.tolist(), "map_signed": study.map_signed.tolist(), "skipped": list(study.skipped),
            "statistics": [
                {**dataclasses.asdict(s), "ratio": s.ratio, "systematic": s.systematic} for s in study.statistics
            ],
            "top": [
                {**dataclasses.asdict(t), **{k: getattr(t, k).hex() for k in ("left", "right", "result", "error")}}
                for t in study.top
            ],
            "bounds": {k: v.tolist() for k, v in study.bounds.items()},
        }  # fmt: skip
    clean: dict[str, Any] = _strict(record)
    return clean


def _plain(study: Cancellation | Growth) -> dict[str, Any]:
    out = {k: v for k, v in vars(study).items() if k not in ("product", "points")}
    return {**out, "product": study.product.name, "points": [dataclasses.asdict(p) for p in study.points]}


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinities: they become texts."""
    if isinstance(value, dict):
        return {k: _strict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(v) for v in value]
    if isinstance(value, Fraction):
        return text_of(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
