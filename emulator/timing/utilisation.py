"""What each pipe of each core did with its time: busy, or stalled and why. The parts tile the makespan exactly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.isa.sync import MTE2_MTE3, MTE2_S, MTE2_V
from emulator.isa.table import PIPE_MTE2, PIPE_S, PIPE_V, Pipe
from emulator.jit import njit
from emulator.timing.costs import BARRIER, READ, SET, SYNC, VECTOR, WAIT, WRITE, Costs
from emulator.timing.simulate import BY_QUEUE, Times
from emulator.timing.streams import PIPES, Streams
from emulator.timing.timeline import Timeline


class Part(IntEnum):
    """Parts of a pipe's time."""

    ACTIVE = 0
    """doing what it would take alone"""
    BANDWIDTH = 1
    """busy, but slower than alone: shared memory"""
    DATA = 2
    """waiting for data (a flag from MTE2)"""
    FLAG = 3
    """waiting for another flag, and setting flags"""
    BARRIER = 4
    """PipeBarrier"""
    SYNC_ALL = 5
    """the core is at SyncAll"""
    QUEUE_FULL = 6
    """the scalar unit waits for room in a queue"""
    NOT_ISSUED = 7
    """the scalar unit has not issued the next instruction yet"""
    NOT_STARTED = 8
    """before the core starts"""
    FINISHED = 9
    """after the pipe's last instruction"""


(
    ACTIVE, BANDWIDTH, DATA, FLAG, BARRIERS, SYNC_ALL, QUEUE_FULL, NOT_ISSUED, NOT_STARTED, FINISHED,
) = (int(p) for p in Part)  # fmt: skip
PARTS = len(Part)


@njit
def _gap(out, a: int, b: int, syncs, count: int, otherwise: int) -> None:  # type: ignore[no-untyped-def]
    """Book the idle time a .. b: at SyncAll where the core is there, else ``otherwise``."""
    met = 0
    for k in range(count):
        met += max(0, min(b, syncs[k, 1]) - max(a, syncs[k, 0]))
    out[SYNC_ALL] += met
    out[otherwise] += b - a - met


@njit
def _scalar_parts(out, c: int, makespan: int, s: Streams, k: Costs, t: Times, flag, issue: int) -> None:  # type: ignore[no-untyped-def]
    """The scalar unit's time: it touches every event of the core."""
    now = t.cores[c, 0]
    out[NOT_STARTED] += now
    for i in range(s.first[c], s.first[c + 1]):
        if i == s.first[c]:
            out[ACTIVE] += t.issue[i] - now  # set-up of the core
        else:
            out[QUEUE_FULL if t.why_issue[i] == BY_QUEUE else NOT_ISSUED] += t.issue[i] - now
        if s.pipe[i] != PIPE_S:
            out[ACTIVE] += issue
            now = t.issue[i] + issue
            continue
        span = t.end[i] - t.issue[i]
        if k.kind[i] == WAIT:
            out[DATA if flag[i] // 8 == MTE2_S else FLAG] += span
        elif k.kind[i] == BARRIER:
            out[BARRIERS] += span
        elif k.kind[i] == SYNC:
            out[SYNC_ALL] += span
        elif k.kind[i] == SET:
            out[FLAG] += span
        else:
            out[ACTIVE] += span
        now = t.end[i]
    out[FINISHED] += makespan - now


@njit
def pipe_parts(makespan: int, s: Streams, k: Costs, t: Times, flag, issue: int):  # type: ignore[no-untyped-def]
    """(cores, pipes, parts) ps."""
    cores = len(t.cores)
    out = np.zeros((cores, PIPES, PARTS), np.int64)
    for c in range(cores):
        _scalar_parts(out[c, PIPE_S], c, makespan, s, k, t, flag, issue)
        syncs = np.zeros((s.first[c + 1] - s.first[c] + 1, 2), np.int64)
        count = 0
        for i in range(s.first[c], s.first[c + 1]):
            if k.kind[i] == SYNC:
                syncs[count, 0], syncs[count, 1] = t.start[i], t.end[i]
                count += 1
        for p in range(PIPE_V, PIPES):
            row = out[c, p]
            now = t.cores[c, 0]
            row[NOT_STARTED] += now
            for q in range(s.base[c, p], s.base[c, p + 1]):
                i = s.items[q]
                if t.start[i] > now:
                    _gap(row, now, t.start[i], syncs, count, NOT_ISSUED)
                span = t.end[i] - t.start[i]
                if k.kind[i] == VECTOR or k.kind[i] == READ or k.kind[i] == WRITE:
                    alone = min(span, k.nominal[i])
                    row[ACTIVE] += alone
                    row[BANDWIDTH] += span - alone
                elif k.kind[i] == WAIT and (flag[i] // 8 == MTE2_V or flag[i] // 8 == MTE2_MTE3):
                    row[DATA] += span
                elif k.kind[i] == BARRIER:
                    row[BARRIERS] += span
                else:
                    row[FLAG] += span
                now = t.end[i]
            _gap(row, now, makespan, syncs, count, FINISHED)
    return out


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """Times in ps unless a name says otherwise."""

    makespan: int
    parts: NDArray[np.int64]
    """(cores, pipes SCALAR VECTOR MTE2 MTE3, `Part`)."""
    read_bytes: NDArray[np.int64]
    """(cores,) from GM."""
    written_bytes: NDArray[np.int64]
    minimum_bytes: int
    """Bytes of all tensors of the kernel that were touched: each read or written once."""
    balance: float
    """Busiest core's busy time over the mean: 1 is even."""
    idle_cores: tuple[int, ...]
    """Cores of the product that got no work (no block, or no copy and no vector instruction)."""
    flops: int
    """fp32 operations of all vector instructions."""
    peak_flops_per_s: float
    memory_bytes_per_s: float
    """Of HBM and L2 together, each by its share of the bytes moved."""

    def busy(self, pipe: int) -> NDArray[np.int64]:
        """(cores,) ps a pipe was busy: msprof's ``*_time``."""
        busy: NDArray[np.int64] = self.parts[:, pipe, ACTIVE] + self.parts[:, pipe, BANDWIDTH]
        return busy

    def stalls(self) -> dict[str, int]:
        """ps by part, over all cores and pipes."""
        totals = self.parts.sum(axis=(0, 1))
        return {part.name: int(totals[part]) for part in Part}

    @property
    def intensity(self) -> float:
        """Operations per byte moved: the roofline's horizontal axis."""
        return self.flops / max(int(self.read_bytes.sum() + self.written_bytes.sum()), 1)

    @property
    def attained_flops_per_s(self) -> float:
        """The roofline's vertical axis."""
        return self.flops / (self.makespan * 1e-12)

    @property
    def roof_flops_per_s(self) -> float:
        """What the machine could reach at this intensity."""
        return min(self.peak_flops_per_s, self.intensity * self.memory_bytes_per_s)


def operations(events: NDArray[Any], kind: NDArray[np.int8]) -> int:
    """fp32 operations of the vector instructions: one per lane and repeat."""
    vector = events[kind == VECTOR]
    lanes = np.where(vector["mask"] > 64, vector["mask"], vector["mask"].astype(np.int64) * vector["repeats"])
    counter = vector["mask"] > 128  # Counter mode: the mask is the element count
    return int(np.where(counter, vector["mask"], np.minimum(lanes, 128 * vector["repeats"].astype(np.int64))).sum())


def utilisation(timeline: Timeline) -> Utilisation:
    """The account of a timeline."""
    run, costs, events = timeline.run, timeline.costs, timeline.run.events
    assert events is not None
    parts = pipe_parts(timeline.makespan, timeline.streams, costs, timeline.times, events["flag"], timeline.rates.issue)
    moved = run.bytes_by_pipe()
    work = np.zeros(run.blocks, np.int64)
    np.add.at(work, events["core"], (costs.kind == VECTOR) | (costs.kind == READ) | (costs.kind == WRITE))
    cores = max(run.product.vector_cores, run.blocks)
    idle = [c for c in range(cores) if c >= run.blocks or work[c] == 0]
    busy = parts[:, PIPE_V:, : BANDWIDTH + 1].sum(axis=(1, 2))
    p = timeline.parameters
    copies = np.isin(costs.kind, (READ, WRITE))
    share = float(events["bytes"][copies & (costs.in_l2 == 1)].sum()) / max(float(events["bytes"][copies].sum()), 1.0)
    addresses = np.where(events["pipe"] == PIPE_MTE2, events["src0"], events["dst"])[copies]
    touched = {n: size for n, (at, size) in run.gm.items() if ((addresses >= at) & (addresses < at + size)).any()}
    return Utilisation(
        makespan=timeline.makespan,
        parts=parts,
        read_bytes=moved["MTE2"],
        written_bytes=moved["MTE3"],
        minimum_bytes=sum(touched.values()),
        balance=float(busy.max() / max(busy.mean(), 1.0)),
        idle_cores=tuple(idle),
        flops=operations(events, costs.kind),
        peak_flops_per_s=run.product.vector_cores * 64 * p["clock_mhz"] * 1e6,
        memory_bytes_per_s=1e9 / (share / p["l2_gbps"] + (1 - share) / p["hbm_gbps"]),
    )


PIPE_ROWS = (Pipe.SCALAR, Pipe.VECTOR, Pipe.MTE2, Pipe.MTE3)
