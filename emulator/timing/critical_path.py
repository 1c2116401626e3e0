"""Why a run took as long as it did.

The observed path is walked backwards from the last result: each event is blamed on what it waited for. Its
segments tile the makespan. The dependency floor is the time with unlimited cores and bandwidth: every tile alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from emulator.isa.sync import MTE2_MTE3, MTE2_V, V_MTE3
from emulator.isa.table import INSTRUCTIONS, PIPE_S
from emulator.jit import njit
from emulator.timing.costs import BARRIER, READ, SET, SYNC, VECTOR, WAIT, WRITE, Costs, Rates
from emulator.timing.simulate import AT_START, BY_FLAG, BY_MEETING, BY_QUEUE, BY_RESULT, Times
from emulator.timing.streams import Streams
from emulator.timing.timeline import Timeline

KINDS = (
    "launch", "scalar", "VECTOR", "MTE2", "MTE3", "bandwidth", "write drain", "flag", "SyncAll", "wait",
)  # fmt: skip
LAUNCH, ISSUE, VECTOR_WORK, MTE2_WORK, MTE3_WORK, SHARED, DRAIN, FLAGS, MEETING, OTHER = range(len(KINDS))


@dataclass(frozen=True)
class Segment:
    """A piece of the path, ps; ``kind`` is one of KINDS, ``event`` its record (-1: none)."""

    start: int
    end: int
    kind: str
    event: int


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The observed path, first to last; its segments tile 0 .. makespan."""

    segments: tuple[Segment, ...]
    makespan: int
    floor: int
    """Dependency floor, ps."""
    assumed_share: float
    """Share of the path whose length rests on parameters marked assumed."""
    advice: str

    def by_kind(self) -> dict[str, int]:
        """ps of the path by kind, largest first."""
        totals: dict[str, int] = defaultdict(int)
        for s in self.segments:
            totals[s.kind] += s.end - s.start
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


@njit
def _walk(first: int, at: int, s: Streams, k: Costs, t: Times, issue: int):  # type: ignore[no-untyped-def]
    """Rows (start, end, kind, event), last first, from result ``first`` at time ``at`` back to the core's start."""
    room = 4 * len(t.start) + 8
    out = np.zeros((min(room, 1 << 22), 4), np.int64)
    n = 0
    i = first
    stage = 2  # 2: at the result; 1: at the start on the pipe; 0: at the issue
    while i >= 0 and n + 4 < len(out):
        kind = k.kind[i]
        if stage == 2:
            low = t.start[i]
            stage = 1
            if kind in (VECTOR, READ, WRITE):
                if at > t.end[i]:
                    low = t.end[i] if kind == WRITE else t.start[i]
                if kind == WRITE and at > t.end[i]:
                    out[n, :] = (t.end[i], at, DRAIN, i)
                    n += 1
                    at = t.end[i]
                low = t.start[i]
                alone = min(at - low, k.nominal[i])
                if at - low > alone:
                    out[n, :] = (low + alone, at, SHARED, i)
                    n += 1
                work = VECTOR_WORK if kind == VECTOR else (MTE2_WORK if kind == READ else MTE3_WORK)
                out[n, :] = (low, low + alone, work, i)
                n += 1
                at = low
                continue
            what = MEETING if kind == SYNC else (FLAGS if kind in (SET, WAIT, BARRIER) else ISSUE)
            j = t.cause_end[i]
            if t.why_end[i] == BY_MEETING:
                i, stage = j, 2  # the last core at SyncAll has the same end
                continue
            if j >= 0 and (t.why_end[i] == BY_FLAG or t.why_end[i] == BY_RESULT):
                low = t.done[j]
                if at > low:
                    out[n, :] = (low, at, what, i)
                    n += 1
                at, i, stage = low, j, 2
                continue
            if at > low:
                out[n, :] = (low, at, what, i)
                n += 1
            at = low
        elif stage == 1:
            stage = 0
            if s.pipe[i] != PIPE_S and t.cause[i] != i:  # after another event of its pipe
                j = t.cause[i]
                if t.end[j] <= at and t.done[j] >= at:  # at its end, or at the end of its tail
                    if t.done[j] > at or k.kind[j] == WRITE:
                        stage = 3
                    else:
                        stage = 2
                else:
                    stage = 3
                i = j
                continue
            if s.pipe[i] != PIPE_S:
                out[n, :] = (at - issue, at, ISSUE, i)
                n += 1
                at -= issue
        elif stage == 3:  # another started before this one's result was there: blame its time on the pipe up to ``at``
            work = OTHER
            if kind == VECTOR:
                work = VECTOR_WORK
            elif kind == WRITE:
                work = MTE3_WORK
            elif kind == READ:
                work = MTE2_WORK
            elif kind in (SET, WAIT, BARRIER):
                work = FLAGS
            stage = 1
            alone = min(at - t.start[i], k.nominal[i])
            if kind == WRITE and at - t.start[i] > alone:
                out[n, :] = (t.start[i] + alone, at, SHARED, i)
                n += 1
                at = t.start[i] + alone
            j = t.cause_end[i]
            if kind == SET and j >= 0 and t.done[j] < at and t.done[j] > t.start[i]:
                out[n, :] = (t.done[j], at, work, i)
                n += 1
                at, i, stage = t.done[j], j, 2
                continue
            if at > t.start[i]:
                out[n, :] = (t.start[i], at, work, i)
                n += 1
            at = t.start[i]
        else:
            why = t.why_issue[i]
            j = t.cause_issue[i]
            if why == AT_START:
                break
            if why == BY_QUEUE:
                i, stage = j, 1
                continue
            if s.pipe[j] != PIPE_S:
                if at > t.issue[j]:
                    out[n, :] = (t.issue[j], at, ISSUE, j)
                    n += 1
                at, i, stage = t.issue[j], j, 0
            else:
                i, stage = j, 2
    return out[:n], at


@njit
def _floor(core, tile, flag, s: Streams, k: Costs, r: Rates, cores: int) -> int:  # type: ignore[no-untyped-def]
    """The longest chain of a tile: copies, sums and data flags only; SyncAll ends one round and begins the next."""
    base = 0
    longest = 0
    place = s.first[:-1].copy()
    again = True
    while again:
        again = False
        longest = base
        for c in range(cores):
            ready = np.full(4, base)
            current = -2
            met = False
            for i in range(place[c], s.first[c + 1]):
                kind = k.kind[i]
                if kind == SYNC:
                    place[c] = i + 1
                    again = met = True
                    break
                if tile[i] != current and tile[i] >= 0:
                    current = tile[i]
                    ready[:] = base
                p = s.pipe[i]
                if kind == WAIT:
                    event = flag[i] // 8
                    if event in (MTE2_V, MTE2_MTE3, V_MTE3):
                        source = 1 if event == V_MTE3 else 2
                        ready[p] = max(ready[p], ready[source])
                elif kind in (VECTOR, READ, WRITE):
                    ready[p] += k.nominal[i]
                    longest = max(longest, ready[p])
            if not met:
                place[c] = s.first[c + 1]
        if again:
            base = longest + r.sync_all
    return longest


def dependency_floor_ps(timeline: Timeline) -> int:
    """Time with unlimited cores and bandwidth, launch left out: the longest tile, and SyncAll where there is one.

    It leaves out the order in which tiles are merged, so a real machine cannot reach it.
    """
    events = timeline.run.events
    assert events is not None
    t = timeline
    return int(_floor(events["core"], events["tile"], events["flag"], t.streams, t.costs, t.rates, t.run.blocks))


def critical_path(timeline: Timeline) -> CriticalPath:
    """The observed path of a timeline, its floor, and what to change first."""
    t = timeline
    last_core = int(t.core_end.argmax())
    end = int(t.core_end[last_core])
    lo, hi = t.streams.first[last_core], t.streams.first[last_core + 1]
    segments: list[Segment] = []
    at = end
    if hi > lo:
        first = int(lo + np.flatnonzero(t.times.done[lo:hi] == t.times.done[lo:hi].max())[-1])
        if int(t.times.done[first]) < end:
            segments.append(Segment(int(t.times.done[first]), end, "scalar", first))
            at = int(t.times.done[first])
        rows, at = _walk(first, at, t.streams, t.costs, t.times, t.rates.issue)
        segments += [Segment(int(a), int(b), KINDS[kind], int(e)) for a, b, kind, e in rows if b > a]
    if at > 0:
        segments.append(Segment(0, int(at), "launch", -1))
    segments.reverse()
    if t.makespan > end:
        segments.append(Segment(end, t.makespan, "launch", -1))
    path = CriticalPath(
        segments=tuple(segments),
        makespan=t.makespan,
        floor=dependency_floor_ps(t),
        assumed_share=_assumed_share(t, segments),
        advice="",
    )
    return CriticalPath(**{**path.__dict__, "advice": _advice(t, path)})


RESTS_ON = {
    "launch": ("launch_us", "core_init_us"),
    "scalar": ("issue_cycles",),
    "MTE2": ("mte2_fixed_cycles", "ddr_bytes_per_cycle"),
    "MTE2 from L2": ("mte2_l2_fixed_cycles", "l2_read_bytes_per_cycle"),
    "MTE3": ("mte3_fixed_cycles", "mte3_bytes_per_cycle"),
    "bandwidth": ("hbm_gbps", "hbm_efficiency", "hbm_copy_overhead_bytes", "hbm_write_weight"),
    "write drain": ("hbm_gbps", "hbm_efficiency", "hbm_copy_overhead_bytes", "hbm_write_weight"),
    "flag": ("flag_cycles",),
    "SyncAll": ("sync_all_us",),
    "wait": ("issue_cycles",),
}
"""Numbers the length of a segment rests on; one assumed among them makes it assumed."""


def _assumed_share(timeline: Timeline, segments: list[Segment]) -> float:
    events, p = timeline.run.events, timeline.parameters
    assert events is not None
    assumed = 0
    for s in segments:
        names = RESTS_ON.get(s.kind, ())
        if s.kind == "VECTOR":
            row = INSTRUCTIONS[int(events["opcode"][s.event])]
            op = "add" if row.name == "add_repeat" else row.name
            names = (f"{op}_fixed_cycles", f"{op}_slope_cycles")
        elif s.kind == "MTE2" and timeline.costs.in_l2[s.event]:
            names = RESTS_ON["MTE2 from L2"]
        assumed += (s.end - s.start) * any(p.kind(name) == "assumed" for name in names)
    return assumed / max(timeline.makespan, 1)


REMEDIES = {
    "launch": "the launch dominates: use fewer cores or fuse kernels",
    "scalar": "issue fewer, larger instructions",
    "VECTOR": "fewer or cheaper vector instructions",
    "MTE2": "larger copies, or more cores to copy in parallel",
    "MTE3": "larger copies out",
    "bandwidth": "HBM is shared out: move fewer bytes or keep them in L2",
    "write drain": "HBM is shared out and reads go first: move fewer bytes or keep them in L2",
    "flag": "fewer flags and barriers",
    "SyncAll": "avoid the meeting: fewer cores per channel",
    "wait": "look at the path",
}


def _advice(timeline: Timeline, path: CriticalPath) -> str:
    """One sentence."""
    by_kind = path.by_kind()
    if not by_kind:
        return "nothing ran"
    groups = {"MTE2": ("MTE2",), "HBM": ("bandwidth", "write drain")}
    name, kind = max(
        ((g, k) for g, members in groups.items() for k in members), key=lambda pair: by_kind.get(pair[1], 0)
    )
    length = sum(by_kind.get(k, 0) for k in (*groups["MTE2"], *groups["HBM"]))
    first = next(iter(by_kind))
    if first not in (*groups["MTE2"], *groups["HBM"]):
        name, kind, length = first, first, by_kind[first]
    cores, used = timeline.run.product.vector_cores, timeline.run.blocks
    idle = f"; {cores - used} of {cores} cores idle" if used < cores else ""
    return f"{name}-bound: {100 * length / path.makespan:.0f} % of the path{idle}; first: {REMEDIES[kind]}"
