"""Chrome trace JSON of timelines, in the form MindStudio Insight and Perfetto import (facts 5.2).

One process per core (``core0.veccore0``), one thread per pipe with the vendor's track names, WAIT_FLAG and
PipeBarrier as slices, SetFlag to WaitFlag as flow arrows, bandwidth as counters. Times are cut to whole
nanoseconds, so slices of a lane never overlap. The same timeline gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np

from emulator.isa.sync import HardEvent
from emulator.isa.table import INSTRUCTIONS, Pipe
from emulator.timing import Timeline
from emulator.timing.costs import BARRIER, READ, SCALAR, SET, SYNC, VECTOR, WAIT, WRITE

LANES = (Pipe.SCALAR, Pipe.VECTOR, Pipe.MTE2, Pipe.MTE3)
CNAMES = {"MTE2": "thread_state_iowait", "MTE3": "rail_response", "SCALAR": "startup", "VECTOR": "thread_state_running"}
COUNTER_PID = 1_000_000
COUNTER_BINS = 400
SLICES = (SCALAR, VECTOR, READ, WRITE, WAIT, BARRIER, SYNC)


def core_name(npu_arch: int, block: int) -> str:
    """The vendor's name of the core block ``block`` runs on: two vector cores per AI core on split chips."""
    return f"core{block}" if npu_arch == 1001 else f"core{block // 2}.veccore{block % 2}"


def pid_of(core: int) -> int:
    """Process number of a core; 0 means something else to Perfetto."""
    return core + 1


def tid_of(core: int, lane: int) -> int:
    """Thread number of a pipe: different on every core, and no process number of the same core."""
    return 10 * pid_of(core) + lane


def _us(ns: int) -> str:
    """Nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def trace_lines(steps: Sequence[tuple[str, Timeline]]) -> Iterator[str]:
    """Trace events as JSON objects: names first, then in the order of their times. Launches follow each other."""
    cores = max(t.run.blocks for _, t in steps)
    arch = steps[0][1].run.product.npu_arch
    for core in range(cores):
        pid = pid_of(core)
        yield _meta("process_name", pid, 0, name=core_name(arch, core))
        yield _meta("process_sort_index", pid, 0, sort_index=core)
        for lane in LANES:
            yield _meta("thread_name", pid, tid_of(core, lane), name=lane.name)
            yield _meta("thread_sort_index", pid, tid_of(core, lane), sort_index=int(lane))
    yield _meta("process_name", COUNTER_PID, 0, name="MTE Throughput")
    rows: list[tuple[int, int, int, str]] = []
    offset = flow = 0
    for name, timeline in steps:
        flow = _slices(name, timeline, offset, flow, rows)
        _counters(timeline, offset, rows)
        offset += -(-timeline.makespan // 1000)
    rows.sort(key=lambda row: row[:3])
    yield from (row[3] for row in rows)


def trace_json(steps: Sequence[tuple[str, Timeline]]) -> str:
    """The whole trace. steps: (name, timeline) of launches one after another."""
    body = ",\n".join(trace_lines(steps))
    other = json.dumps(
        {"product": steps[0][1].run.product.label, "parameters_set": list(steps[0][1].parameters.changes)}
    )
    return f'{{"displayTimeUnit":"ns","otherData":{other},"traceEvents":[\n{body}\n]}}\n'


def _meta(kind: str, pid: int, tid: int, **args: object) -> str:
    return json.dumps({"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}, separators=(",", ":"))


def _slices(step: str, timeline: Timeline, offset: int, flow: int, rows: list[tuple[int, int, int, str]]) -> int:
    """Add the slices and flow arrows of one launch; returns the last flow id."""
    events, times, costs, streams = timeline.run.events, timeline.times, timeline.costs, timeline.streams
    assert events is not None
    start = np.where(streams.pipe == 0, times.issue, times.start) // 1000 + offset
    end = times.end // 1000 + offset
    kernel, file = timeline.run.kernel, PurePath(timeline.run.path).name
    waited = {int(s): i for i, s in enumerate(streams.match) if s >= 0}
    for i, e in enumerate(events):
        kind, lane, core = int(costs.kind[i]), int(streams.pipe[i]), int(e["core"])
        row = INSTRUCTIONS[int(e["opcode"])]
        where = f'"pid":{pid_of(core)},"tid":{tid_of(core, lane)}'
        at = int(start[i])
        if kind in SLICES:
            name = {WAIT: "WAIT_FLAG", BARRIER: "BAR", SYNC: "SyncAll"}.get(kind, row.ascend_c)
            args: dict[str, object] = {"kernel": kernel, "step": step, "code": f"{file}:{e['line']}"}
            if e["tile"] >= 0:
                args["tile"] = int(e["tile"])
            if kind in (READ, WRITE):
                args |= {"process_bytes": int(e["bytes"]), "alone_ns": int(costs.nominal[i]) // 1000}
            if kind == VECTOR:
                args |= {"detail": row.mnemonic, "repeats": int(e["repeats"]), "beats_per_repeat": costs.beats[i]}
            if kind == WAIT:
                args["detail"] = f"{HardEvent(int(e['flag']) // 8).name} id {int(e['flag']) % 8}"
            text = json.dumps(args, separators=(",", ":"))
            cname = CNAMES[LANES[lane].name]
            rows.append(
                (
                    at, core, lane,
                    f'{{"name":"{name}","cname":"{cname}","ph":"X","ts":{_us(at)},"dur":{_us(int(end[i]) - at)},'
                    f'{where},"args":{text}}}',
                )
            )  # fmt: skip
        elif kind == SET and i in waited:
            flow += 1
            wait = waited[i]
            there = int(events["core"][wait])
            other = f'"pid":{pid_of(there)},"tid":{tid_of(there, int(streams.pipe[wait]))}'
            flag = HardEvent(int(e["flag"]) // 8).name
            base = f'"name":"{flag}","cat":"SET_FLAG","id":{flow}'
            fired = int(times.done[i]) // 1000 + offset
            arrives = max(int(end[wait]), fired)
            rows.append((fired, core, lane, f'{{{base},"ph":"s","ts":{_us(fired)},{where}}}'))
            rows.append((arrives, core, lane, f'{{{base},"ph":"f","bp":"e","ts":{_us(arrives)},{other}}}'))
    return flow


def bandwidth(timeline: Timeline, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bins + 1,) edges in ps, and (bins,) bytes per second read and written, each copy spread over its time."""
    edges = np.linspace(0, timeline.makespan, bins + 1)
    out = []
    for kind in (READ, WRITE):
        chosen = timeline.costs.kind == kind
        start, end = timeline.times.start[chosen], timeline.times.end[chosen]
        events = timeline.run.events
        assert events is not None
        size = events["bytes"][chosen].astype(float)
        rate = size / np.maximum(end - start, 1)
        # bytes moved until each edge: every copy is a ramp
        order_s, order_e = np.argsort(start, kind="stable"), np.argsort(end, kind="stable")
        slope_s, slope_e = np.cumsum(rate[order_s]), np.cumsum(rate[order_e])
        moment_s, moment_e = np.cumsum((rate * start)[order_s]), np.cumsum((rate * end)[order_e])
        a = np.searchsorted(start[order_s], edges, side="right")
        b = np.searchsorted(end[order_e], edges, side="right")
        zero = np.zeros(1)
        slope_s, moment_s = np.concatenate([zero, slope_s]), np.concatenate([zero, moment_s])
        slope_e, moment_e = np.concatenate([zero, slope_e]), np.concatenate([zero, moment_e])
        moved = slope_s[a] * edges - moment_s[a] - (slope_e[b] * edges - moment_e[b])
        out.append(np.maximum(np.diff(moved), 0) / np.diff(edges) * 1e12)
    return edges, out[0], out[1]


def _counters(timeline: Timeline, offset: int, rows: list[tuple[int, int, int, str]]) -> None:
    edges, read, written = bandwidth(timeline, COUNTER_BINS)
    for name, rates in (("GM to UB (GB/s)", read), ("UB to GM (GB/s)", written)):
        for at, rate in zip([*edges[:-1], edges[-1]], [*rates, 0.0], strict=True):
            ns = int(at) // 1000 + offset
            text = (
                f'{{"name":"{name}","ph":"C","ts":{_us(ns)},"pid":{COUNTER_PID},"tid":0,'
                f'"args":{{"GB/s":{rate / 1e9:.3f}}}}}'
            )
            rows.append((ns, COUNTER_PID, 0, text))
