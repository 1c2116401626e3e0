"""Pictures of rounding error: where it comes from, in which direction, and how much of it there is.

Each ``draw_*`` fills one axes; `figures` makes one Figure of each, and `summary` all of them on one page. Every
picture states product, fidelity, contract and dtype.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from studies.accuracy import Cancellation, Growth
from studies.error_study import BINS, ErrorStudy
from studies.ledger import ErrorLedger, float_of

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Okabe and Ito; hatching tells apart what comes after the eighth."""
MARKERS = "osD^vPX*"
INK, FAINT = "#222222", "#777777"
DPI = 150
MAP_TILES, MAP_CORES = 64, 64
"""Cells an error map shows each way; neighbours are added up beyond."""
BARS = 48
"""Channels of a stacked bar chart; evenly spaced beyond."""


def new_figure(width: float, height: float, title: str, lines: str) -> Figure:
    """An empty figure (inches) with a heading."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.25 / width, 1 - 0.14 / height, title, fontsize=11, fontweight="bold", va="top", color=INK)
    wrapped = "\n".join(textwrap.wrap(lines, int(width * 14)))
    figure.text(0.25 / width, 1 - 0.42 / height, wrapped, fontsize=8.5, va="top", color=FAINT, linespacing=1.3)
    return figure


def _tidy(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)


def _symlog(axes: Any, values: Any, which: str = "x") -> None:
    """Symmetric logarithmic axis that starts below the smallest value, with a tick every few decades."""
    size = np.abs(np.asarray(values, float).ravel())
    size = size[(size > 0) & np.isfinite(size)]
    low, high = (math.floor(math.log10(size.min())), math.ceil(math.log10(size.max()))) if size.size else (-1, 0)
    low = max(low, high - 14)
    getattr(axes, f"set_{which}scale")("symlog", linthresh=10.0**low, linscale=0.6)
    step = max(1, -(-(high - low) // 3))
    powers = [10.0**p for p in range(high, low - 1, -step)]
    axis = getattr(axes, f"{which}axis")
    negative = (np.asarray(values, float) < 0).any()
    positive = (np.asarray(values, float) > 0).any()
    ticks = ([-p for p in powers] if negative else []) + [0.0] + (powers[::-1] if positive else [])
    axis.set_major_locator(ticker.FixedLocator(ticks))
    axis.set_major_formatter(ticker.FuncFormatter(_power))
    axis.set_minor_locator(ticker.NullLocator())
    room = 3.0
    getattr(axes, f"set_{which}lim")(
        -(10.0**high) * room if negative else (-(10.0**low) if which == "x" else 0),
        10.0**high * room if positive else 10.0**low,
    )


def _power(value: float, _: Any) -> str:
    """Tick text of 0 and of signed powers of ten."""
    if value == 0:
        return "0"
    return f"{'−' if value < 0 else ''}$10^{{{round(math.log10(abs(value)))}}}$"


def _empty(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=9, color=FAINT, transform=axes.transAxes, wrap=True)
    axes.set_axis_off()


def draw_waterfall(axes: Any, ledger: ErrorLedger, output: str, channel: int) -> None:
    """Signed contribution of every step to one output of one channel, then the total and the residual."""
    if ledger.residual[output][channel] is None:
        where = next((o.text() for o in ledger.overflows if o.channel == channel), "the value is not finite")
        _empty(axes, "not attributed\n" + "\n".join(textwrap.wrap(where, 50)))
        return
    values = [(s, float_of(ledger.entries[output][s][channel])) for s in ledger.steps]
    shown = [(s, v) for s, v in values if v != 0]
    error = ledger.errors(output)[channel]
    assert error is not None
    rows = [*shown, ("total error", float_of(error))]
    y = np.arange(len(rows))
    colours = [PALETTE[0] if v > 0 else PALETTE[5] for _, v in rows[:-1]] + ["#444444"]
    axes.barh(y, [v for _, v in rows], color=colours, height=0.66)
    axes.set_yticks(y, [s for s, _ in rows])
    axes.invert_yaxis()
    _symlog(axes, [v for _, v in rows] or [1.0])
    axes.axvline(0, color=INK, linewidth=0.8)
    residual = ledger.residual[output][channel]
    zero = sum(v == 0 for _, v in values)
    axes.set_title(
        f"{output}, channel {channel}: residual {'0 exactly' if residual == 0 else residual}; "
        f"{zero} steps are exactly 0", fontsize=9, loc="left", color=INK,
    )  # fmt: skip
    axes.set_xlabel("contribution to output − exact value (symmetric log)", fontsize=8)
    _tidy(axes)


def draw_channels(axes: Any, ledger: ErrorLedger, output: str) -> None:
    """Magnitudes of the steps stacked over channels, as shares of |exact|."""
    good = [c for c in range(ledger.channels) if ledger.residual[output][c] is not None and ledger.exact[output][c]]
    if not good:
        _empty(axes, "no channel can be attributed")
        return
    picked = [good[i] for i in np.unique(np.linspace(0, len(good) - 1, min(len(good), BARS)).astype(int))]
    table = np.abs(ledger.floats(output))
    size = np.array([abs(float_of(ledger.exact[output][c])) for c in picked])
    share = table[:, picked] / size
    share = share / share.sum(axis=0).clip(min=1e-300)
    used = [k for k in range(len(ledger.steps)) if share[k].any()]
    bottom = np.zeros(len(picked))
    for place, k in enumerate(used):
        axes.bar(
            np.arange(len(picked)), share[k], bottom=bottom, width=0.9, color=PALETTE[place % 8],
            hatch="////" if place >= 8 else None, edgecolor="white", linewidth=0.3, label=ledger.steps[k],
        )  # fmt: skip
        bottom += share[k]
    step = max(1, len(picked) // 8)
    axes.set_xticks(range(0, len(picked), step), [str(picked[i]) for i in range(0, len(picked), step)])
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    axes.set_xlabel("channel", fontsize=8)
    axes.set_title(f"{output}: share of each step in the sum of magnitudes", fontsize=9, loc="left", color=INK)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0)
    _tidy(axes)


def _shrunk(grid: Any, rows: int, columns: int) -> Any:
    """Neighbouring rows and columns added up to at most so many."""
    for axis, limit in ((0, rows), (1, columns)):
        group = -(-grid.shape[axis] // limit)
        if group > 1:
            grid = np.add.reduceat(grid, np.arange(0, grid.shape[axis], group), axis=axis)
    return grid


def draw_map(axes: Any, figure: Figure, study: ErrorStudy) -> None:
    """|effect| of local roundings on sumDyXmu by core and tile."""
    grid = study.map.sum(axis=2)
    if not grid.any():
        _empty(axes, "every rounding is exactly 0")
        return
    shown = _shrunk(grid, MAP_CORES, MAP_TILES)
    low, high = shown[shown > 0].min(), shown.max()
    masked = np.ma.masked_less_equal(shown, 0)
    mesh = axes.imshow(
        masked, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest",
        norm=LogNorm(vmin=low if low < high else high / 10, vmax=high),
        extent=(-0.5, grid.shape[1] - 0.5, -0.5, grid.shape[0] - 0.5),
    )  # fmt: skip
    axes.set_facecolor("#eeeeee")
    axes.set_xticks(np.unique(np.linspace(0, grid.shape[1] - 1, min(grid.shape[1], 8)).astype(int)))
    rows = np.unique(np.linspace(0, grid.shape[0] - 1, min(grid.shape[0], 8)).astype(int))
    axes.set_yticks(rows, [str(study.cores[r]) for r in rows])
    axes.set_xlabel("tile of the core (leaf of its cache tree)", fontsize=8)
    axes.set_ylabel("core", fontsize=8)
    axes.set_title("error map: sum |local rounding| seen in sumDyXmu", fontsize=9, loc="left", color=INK)
    axes.tick_params(labelsize=8)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02)
    bar.ax.tick_params(labelsize=7)


def draw_levels(axes: Any, study: ErrorStudy) -> None:
    """z-score of each level: is the rounding random or systematic?"""
    used = [s for s in study.statistics if s.inexact]
    if not used:
        _empty(axes, "every rounding is exactly 0")
        return
    y = np.arange(len(used))
    axes.barh(y - 0.2, [s.z_rms for s in used], height=0.36, color=PALETTE[0], label="rms over channels")
    axes.barh(y + 0.2, [abs(s.z_worst) for s in used], height=0.36, color=PALETTE[1], label="worst channel")
    top = max(6.0, *(abs(s.z_worst) for s in used), *(s.z_rms for s in used))
    axes.set_xscale("log")
    axes.set_xlim(0.1, top * 30)
    for k, s in enumerate(used):
        text = f"{s.inexact:,} of {s.count:,}; |Σ|/Σ|·| {s.ratio:.2g}"
        axes.text(top * 1.3, k, text, fontsize=6.5, va="center", color=FAINT)
    axes.axvline(1, color=PALETTE[2], linewidth=1, linestyle="--")
    axes.axvline(5, color=PALETTE[5], linewidth=1, linestyle=":")
    axes.set_yticks(y, [f"{s.sum}: {s.level}" for s in used])
    axes.invert_yaxis()
    axes.set_xlabel("|z| against independent rounding (dashed 1: random; beyond dotted 5: systematic)", fontsize=8)
    axes.set_title("level statistics (inexact of all additions; signed/absolute)", fontsize=9, loc="left", color=INK)
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    _tidy(axes)


def draw_histogram(axes: Any, study: ErrorStudy) -> None:
    """Local errors of inexact roundings in ulp of their results, by level."""
    levels: dict[str, Any] = {}
    for s in study.statistics:
        if s.inexact:
            levels[s.level] = levels.get(s.level, 0) + np.array(s.ulp_histogram)
    if not levels:
        _empty(axes, "every rounding is exactly 0")
        return
    for k, (level, counts) in enumerate(levels.items()):
        axes.stairs(
            counts / counts.sum() / np.diff(BINS), BINS, color=PALETTE[k % 8], linewidth=1.4,
            linestyle=("-", "--", "-.", ":")[k % 4], label=f"{level} ({counts.sum():,})",
        )  # fmt: skip
    axes.axhline(1, color=FAINT, linewidth=0.8)
    axes.set_xlabel("error of one rounding [ulp of its result]", fontsize=8)
    axes.set_ylabel("density (1: uniform)", fontsize=8)
    axes.set_yscale("log")
    axes.set_title("local errors, inexact roundings only", fontsize=9, loc="left", color=INK)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    _tidy(axes)


def draw_cancellation(axes: Any, study: Cancellation) -> None:
    """Relative error of gradWeight over |mean| / sigma, by contract."""
    x = [p.ratio for p in study.points]
    names = list(study.points[0].error)
    for k, name in enumerate(names):
        y = [p.error[name] for p in study.points]
        axes.plot(x, y, marker=MARKERS[k % 8], markersize=5, color=PALETTE[k % 8], label=name)
    axes.plot(x, [p.condition * study.unit for p in study.points], color=FAINT, linestyle="--", label="κ·u (uncentred)")
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
    axes.set_yscale("log")
    axes.set_xlabel("|mean| / sigma", fontsize=8)
    axes.set_ylabel("relative error of gradWeight (rms)", fontsize=8)
    axes.set_title(
        f"cancellation: {study.dtype} in, fp32 out, n = {study.count:,}, {study.channels} channels",
        fontsize=9, loc="left",
        color=INK,
    )  # fmt: skip
    axes.legend(fontsize=7, frameon=False)
    _tidy(axes)


def draw_growth(axes: Any, study: Growth) -> None:
    """Backward error over n by order, with the bounds of the operator's own order and the recursive one."""
    names = list(dict.fromkeys(p.order for p in study.points))
    for k, name in enumerate(names):
        rows = [p for p in study.points if p.order == name]
        slope = study.slope(name)
        axes.plot(
            [p.n for p in rows], [p.error for p in rows], marker=MARKERS[k % 8], markersize=5, color=PALETTE[k % 8],
            label=f"{name} (n^{slope:.2f})",
        )  # fmt: skip
        if name in ("recursive", "operator"):
            for values, style, text in (
                ([p.a_priori for p in rows], ":", "γ_h"),
                ([p.running for p in rows], "-.", "running bound"),
                ([p.probabilistic for p in rows], "--", "99 % bound"),
            ):
                line = {"color": PALETTE[k % 8], "linestyle": style, "linewidth": 1, "label": f"{name}: {text}"}
                axes.plot([p.n for p in rows], values, **line)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("n", fontsize=8)
    axes.set_ylabel("backward error |error| / Σ|x|", fontsize=8)
    axes.set_title(f"growth: fp32, {study.distribution} data, {study.trials} trials", fontsize=9, loc="left", color=INK)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    _tidy(axes)


def worst_channel(ledger: ErrorLedger, output: str) -> int:
    """The attributed channel with the largest relative error; the first when there is none."""
    best, found = -1.0, 0
    for c, (error, exact) in enumerate(zip(ledger.errors(output), ledger.exact[output], strict=True)):
        if error is not None and ledger.residual[output][c] is not None and exact:
            size = float_of(abs(error)) / abs(float_of(exact))
            if size > best:
                best, found = size, c
    return found


def figures(
    ledger: ErrorLedger, study: ErrorStudy | None, cancellation: Cancellation, growth: Growth, *,
    output: str = "grad_weight", channel: int | None = None,
) -> dict[str, Figure]:  # fmt: skip
    """One figure per question, by file name without ending. study: None when nothing is added (``exact``)."""
    c = worst_channel(ledger, output) if channel is None else channel
    title = ledger.title()
    out: dict[str, Figure] = {}

    def one(
        name: str, heading: str, height: float = 4.2, right: float = 0.96, left: float = 0.12, lines: str = title
    ) -> tuple[Figure, Any]:
        out[name] = new_figure(8.0, height, heading, lines)
        return out[name], out[name].add_axes((left, 0.8 / height, right - left, 1 - 1.85 / height))

    _, axes = one("waterfall", "Error by step", 4.6, left=0.2)
    draw_waterfall(axes, ledger, output, c)
    _, axes = one("channels", "Error by channel", right=0.76)
    draw_channels(axes, ledger, output)
    if study is not None:
        figure, axes = one("error_map", "Where rounding happens")
        draw_map(axes, figure, study)
        _, axes = one("levels", "Random or systematic?", 4.8, left=0.26)
        draw_levels(axes, study)
        _, axes = one("histogram", "Local errors", right=0.70)
        draw_histogram(axes, study)
    both = f"{ledger.product.name} (fidelity: {ledger.product.fidelity}), generated data"
    contracts = ", ".join(cancellation.points[0].error)
    _, axes = one("cancellation", "Cancellation", lines=f"{both}, contracts {contracts}, {cancellation.dtype} in")
    draw_cancellation(axes, cancellation)
    _, axes = one("growth", "Growth over n", right=0.70, lines=f"{both}, float32 sums, operator: contract cann")
    draw_growth(axes, growth)
    out["summary"] = summary(ledger, study, cancellation, growth, output=output, channel=c)
    return out


def summary(
    ledger: ErrorLedger, study: ErrorStudy | None, cancellation: Cancellation, growth: Growth, *,
    output: str, channel: int,
) -> Figure:  # fmt: skip
    """Everything on one page."""
    zero = "residual 0 exactly" if ledger.residual_is_zero else "RESIDUAL NOT 0"
    count = ledger.attributed[output]
    note = f"; {zero} for {count} of {ledger.channels} channels of {output}"
    figure = new_figure(16, 15, "Where rounding error comes from", ledger.title() + note)
    boxes = [(0.09, 0.725), (0.545, 0.725), (0.09, 0.41), (0.60, 0.41), (0.06, 0.075), (0.385, 0.075), (0.69, 0.075)]
    sizes = [(0.38, 0.19), (0.34, 0.19), (0.38, 0.22), (0.36, 0.22), (0.20, 0.22), (0.24, 0.22), (0.18, 0.22)]
    made = [figure.add_axes((*box, *size)) for box, size in zip(boxes, sizes, strict=True)]
    draw_waterfall(made[0], ledger, output, channel)
    draw_channels(made[1], ledger, output)
    if study is None:
        for axes in (made[2], made[3], made[4]):
            _empty(axes, "the contract exact adds nothing")
    else:
        draw_map(made[2], figure, study)
        draw_levels(made[3], study)
        draw_histogram(made[4], study)
    draw_cancellation(made[5], cancellation)
    draw_growth(made[6], growth)
    return figure
