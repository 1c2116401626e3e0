"""Figures of timelines: cores by time, utilisation by core and pipe, where the time went, before and after."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from emulator.isa.table import PIPE_MTE2, PIPE_MTE3, PIPE_V, Pipe
from emulator.timing import Timeline, Utilisation, utilisation
from emulator.timing.costs import READ, SYNC, VECTOR, WRITE
from emulator.timing.utilisation import PARTS, Part
from studies.timed import TimedOperator

COLOURS = {"VECTOR": "#0072B2", "MTE2": "#E69F00", "MTE3": "#009E73", "SyncAll": "#CC79A7", "SCALAR": "#999999"}
"""Of Okabe and Ito's palette, safe for colour-blind readers."""
PART_COLOURS = (
    "#0072B2", "#56B4E9", "#E69F00", "#F0E442", "#D55E00", "#CC79A7", "#882255", "#999999", "#DDDDDD", "#F2F2F2",
)  # fmt: skip
PART_NAMES = {
    Part.ACTIVE: "active", Part.BANDWIDTH: "busy, slowed by shared bandwidth", Part.DATA: "waiting for data",
    Part.FLAG: "waiting for a flag", Part.BARRIER: "barrier", Part.SYNC_ALL: "SyncAll", Part.QUEUE_FULL: "queue full",
    Part.NOT_ISSUED: "not issued yet", Part.NOT_STARTED: "not started", Part.FINISHED: "finished",
}  # fmt: skip
LANES = (PIPE_MTE2, PIPE_V, PIPE_MTE3)
PS_PER_US = 1e6
MOST_BARS = 60_000
"""Bars of a Gantt chart; beyond it, neighbours of one lane are merged."""

Steps = Sequence[tuple[str, Timeline]]


def _figure(width: float, height: float, title: str, lines: Sequence[str]) -> tuple[Figure, float]:
    """A figure with a heading; returns it and the height the heading takes, as a share."""
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    text = [w for line in lines for w in textwrap.wrap(line, int(width * 13))]
    figure.text(0.1 / width, 1 - 0.08 / height, title, fontsize=11, fontweight="bold", va="top", color="#222222")
    figure.text(
        0.1 / width, 1 - 0.34 / height, "\n".join(text), fontsize=8, va="top", color="#666666", linespacing=1.35
    )
    return figure, (0.5 + 0.155 * len(text)) / height


def _axes(figure: Figure, head: float, left: float = 0.75, right: float = 0.15, bottom: float = 0.5, more: float = 0.0):  # type: ignore[no-untyped-def]
    """Axes below the heading; margins in inches."""
    width, height = figure.get_size_inches()
    low = bottom / height
    axes = figure.add_axes((left / width, low, 1 - (left + right) / width, 1 - head - low - more / height))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return axes


def _merged(start: np.ndarray, end: np.ndarray, gap: float) -> list[tuple[float, float]]:
    """Intervals in order, joined where less than ``gap`` lies between them."""
    out: list[list[float]] = []
    for a, b in zip(start, end, strict=True):
        if out and a - out[-1][1] < gap:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return [(a, b) for a, b in out]


def gantt(steps: Steps, *, title: str = "When each core works", notes: Sequence[str] = ()) -> Figure:
    """Cores as rows (1 to 72 and more), three lanes each: copies in, sums, copies out. Launches follow each other."""
    timelines = [t for _, t in steps]
    cores = max(t.run.product.vector_cores if i == 0 else t.run.blocks for i, t in enumerate(timelines))
    cores = max([cores, *(t.run.blocks for t in timelines)])
    row = min(0.4, max(0.1, 6.0 / cores))
    lines = [timelines[0].run.product.label, *notes, *idle_lines(steps)]
    idle = [c for c in range(cores) if all(c in utilisation(t).idle_cores or c >= t.run.blocks for t in timelines)]
    figure, head = _figure(11, 1.75 + row * cores + 0.16 * len(lines), title, lines)
    axes = _axes(figure, head, bottom=0.75)
    total = sum(t.makespan for t in timelines) / PS_PER_US
    many = sum(len(t.costs.kind) for t in timelines) > MOST_BARS
    shapes: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in COLOURS}
    offset = 0.0
    for name, t in steps:
        axes.axvline(offset, color="#BBBBBB", linewidth=0.6, zorder=0)
        span = t.makespan / PS_PER_US
        if span > 0.06 * total:
            label = textwrap.shorten(name, max(8, int(110 * span / total)), placeholder="…")
            axes.text(offset + 0.003 * total, -0.75, label, fontsize=7, color="#666666", va="bottom")
        _bars(t, offset, total / 3000 if many else 0.0, shapes)
        offset += span
    for name, polygons in shapes.items():
        bars = PolyCollection(
            polygons, facecolors=COLOURS[name], edgecolors="none", zorder=1 if name == "SyncAll" else 2
        )
        axes.add_collection(bars)
    for c in idle:
        axes.axhspan(c - 0.5, c + 0.5, color="#F4F4F4", zorder=-1)
    axes.set_xlim(0, total)
    axes.set_ylim(cores - 0.4, -0.8)
    step = max(1, -(-cores // 24))
    axes.set_yticks(range(0, cores, step))
    axes.set_ylabel("core (block)", fontsize=8)
    axes.set_xlabel("time in µs from the first launch", fontsize=8)
    handles = [Patch(color=COLOURS[n], label=n) for n in COLOURS if shapes[n]]
    if handles:
        figure.legend(handles=handles, loc="lower center", ncol=len(handles), fontsize=8, frameon=False)
    return figure


def idle_lines(steps: Steps) -> list[str]:
    """One line on the cores each launch leaves idle; launches that leave the same ones share it."""
    groups: dict[str, list[str]] = {}
    for name, t in steps:
        idle = utilisation(t).idle_cores
        cores = max(t.run.product.vector_cores, t.run.blocks)
        text = f"{len(idle)} of {cores} cores idle: {ranges(idle)}" if idle else f"all {cores} cores at work"
        groups.setdefault(text, []).append(name)
    if len(groups) == 1:
        return list(groups)
    return ["; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())]


def ranges(numbers: Sequence[int]) -> str:
    """``0-3, 7`` for sorted numbers."""
    out: list[list[int]] = []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def _bars(t: Timeline, offset: float, gap: float, shapes: dict[str, list[list[tuple[float, float]]]]) -> None:
    events, kind = t.run.events, t.costs.kind
    assert events is not None
    places = {"MTE2": (0, kind == READ), "VECTOR": (1, kind == VECTOR), "MTE3": (2, kind == WRITE)}
    for c in range(t.run.blocks):
        mine = slice(t.streams.first[c], t.streams.first[c + 1])
        start, end = t.times.start[mine] / PS_PER_US + offset, t.times.end[mine] / PS_PER_US + offset
        for name, (lane, chosen) in places.items():
            low, high = c - 0.42 + 0.28 * lane, c - 0.42 + 0.28 * (lane + 1)
            for a, b in _merged(start[chosen[mine]], end[chosen[mine]], gap):
                shapes[name].append([(a, low), (b, low), (b, high), (a, high)])
        for a, b in zip(start[kind[mine] == SYNC], end[kind[mine] == SYNC], strict=True):
            shapes["SyncAll"].append([(a, c - 0.06), (b, c - 0.06), (b, c + 0.06), (a, c + 0.06)])


def utilisation_heatmap(steps: Steps, *, title: str = "How busy each pipe of each core is") -> Figure:
    """Share of the time from first launch to last end that a pipe is busy: cores across, pipes down."""
    timelines = [t for _, t in steps]
    total = sum(t.makespan for t in timelines)
    cores = max([timelines[0].run.product.vector_cores, *(t.run.blocks for t in timelines)])
    share = np.zeros((4, cores))
    for t in timelines:
        u = utilisation(t)
        for p in range(4):
            share[p, : t.run.blocks] += 100 * u.busy(p) / total
    lines = [
        timelines[0].run.product.label,
        f"{len(timelines)} launches, {total / PS_PER_US:.1f} µs",
        *idle_lines(steps),
    ]
    figure, head = _figure(10, 2.8 + 0.155 * len(lines), title, lines)
    axes = _axes(figure, head, right=0.9)
    top = min(100.0, 10 * np.ceil(share.max() / 10 + 1e-9))
    image = axes.imshow(share, aspect="auto", cmap="cividis", vmin=0, vmax=top, interpolation="nearest")
    axes.set_yticks(range(4), [p.name for p in Pipe if p is not Pipe.ALL])
    axes.set_xlabel("core (block)", fontsize=8)
    if cores <= 8:
        for p in range(4):
            for c in range(cores):
                ink = "black" if share[p, c] > 0.55 * top else "white"
                axes.text(c, p, f"{share[p, c]:.0f}", ha="center", va="center", fontsize=8, color=ink)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.015)
    bar.set_label("% of the time busy", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _shares(steps: Steps) -> np.ndarray:
    """(4 pipes, parts) mean us per core over all launches; cores without a block count as not started."""
    out = np.zeros((4, PARTS))
    for _, t in steps:
        u: Utilisation = utilisation(t)
        cores = max(t.run.product.vector_cores, t.run.blocks)
        out += u.parts.sum(axis=0) / cores / PS_PER_US
        out[:, Part.NOT_STARTED] += (cores - t.run.blocks) / cores * t.makespan / PS_PER_US
    return out


def stall_waterfall(steps: Steps, *, title: str = "Where the time went") -> Figure:
    """For each pipe the whole time, split into busy time and stalls by reason; mean over all cores."""
    shares = _shares(steps)
    total = shares[0].sum()
    lines = [steps[0][1].run.product.label, f"mean over all cores; each bar is the whole time, {total:.1f} µs"]
    figure, head = _figure(10, 4.3, title, lines)
    axes = _axes(figure, head, bottom=1.25)
    for p in range(4):
        left = 0.0
        for part in Part:
            value = shares[p, part]
            axes.barh(p, value, left=left, color=PART_COLOURS[part], edgecolor="white", linewidth=0.4, height=0.72)
            if value > 0.045 * total:
                ink = "white" if part in (Part.ACTIVE, Part.BARRIER, Part.QUEUE_FULL) else "black"
                text = f"{100 * value / total:.0f} %"
                axes.text(left + value / 2, p, text, ha="center", va="center", fontsize=8, color=ink)
            left += value
    axes.set_yticks(range(4), [Pipe(p).name for p in range(4)])
    axes.invert_yaxis()
    axes.set_xlim(0, total)
    axes.set_xlabel("µs", fontsize=8)
    used = [part for part in Part if shares[:, part].sum() > 0]
    handles = [Patch(facecolor=PART_COLOURS[p], edgecolor="#999999", linewidth=0.4, label=PART_NAMES[p]) for p in used]
    figure.legend(handles=handles, loc="lower center", ncol=5, fontsize=8, frameon=False)
    return figure


def comparison(before: TimedOperator, after: TimedOperator, names: tuple[str, str]) -> Figure:
    """Two runs side by side: time by launch, and mean busy share of each pipe."""
    lines = [f"{names[0]}: {before.product.label}", f"{names[1]}: {after.product.label}"]
    ratio = before.task_us / after.task_us
    verdict = f"{names[1]} takes {after.task_us:.1f} µs, {names[0]} {before.task_us:.1f} µs: ratio {ratio:.2f}"
    figure, head = _figure(11, 4.6, "Before and after", [*lines, verdict])
    width = figure.get_size_inches()[0]
    axes = _axes(figure, head, right=width / 2 + 0.1, bottom=0.9)
    colours = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
    for y, run in enumerate((before, after)):
        left = 0.0
        for k, step in enumerate(run.steps):
            axes.barh(y, step.task_us, left=left, color=colours[k % 5], edgecolor="white", height=0.6)
            left += step.task_us
        axes.text(left, y, f" {left:.1f}", va="center", fontsize=8)
    axes.set_yticks((0, 1), [textwrap.fill(n, 10) for n in names])
    axes.invert_yaxis()
    axes.set_xlim(0, max(before.task_us, after.task_us) * 1.12)
    axes.set_xlabel("µs", fontsize=8)
    handles = [Patch(color=colours[k % 5], label=s.name) for k, s in enumerate(before.steps)]
    figure.legend(handles=handles, loc="lower left", ncol=2, fontsize=7, frameon=False)
    axes = _axes(figure, head, left=width / 2 + 0.7, bottom=0.9)
    for y, run in enumerate((before, after)):
        shares = _shares([(s.name, s.timeline) for s in run.steps])
        busy = 100 * (shares[:, Part.ACTIVE] + shares[:, Part.BANDWIDTH]) / shares[0].sum()
        bars = axes.bar(np.arange(4) + 0.4 * y - 0.2, busy, 0.38, color=("#56B4E9", "#D55E00")[y], label=names[y])
        axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set_xticks(range(4), [Pipe(p).name for p in range(4)])
    axes.set_ylabel("% of the time busy (mean of all cores)", fontsize=8)
    axes.legend(fontsize=8, frameon=False)
    return figure
