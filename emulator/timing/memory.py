"""Shared memory as a fluid: at any moment every copy in flight has a rate, and the rates change at events only.

Reads from HBM share its rate equally, none above what its own core can take. A write is handed over to L2 at its
core's rate and is done when L2 has passed it on to HBM, each core's writes in order, the cores alike. Reads go
first; when more than ``write_buffer`` bytes wait, writes take ``forced_share`` of HBM as long as any is being
handed over. Copies that L2 serves share the L2 rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.jit import njit
from emulator.timing.costs import Rates

FREE, PENDING, MOVING = range(3)
HBM_READ, L2_COPY, HBM_WRITE = range(3)
NEVER = 1 << 62
EPS = 1e-3
"""Bytes that count as none."""
CAUGHT_UP = 1.0
"""Bytes a core may be behind and still count as passing its write on as it arrives."""


class Fluid(NamedTuple):
    """Two ports per core (MTE2, MTE3): state, class, event, start of a pending copy, work left, cap and rate in
    work per ps. Per core: work handed over and passed on so far, the rate of that, and the queue of handed-over
    writes: ``queue[base + head .. base + tail]`` with the work handed over when each was, ``position``.
    """

    state: NDArray[np.int64]
    kind: NDArray[np.int64]
    event: NDArray[np.int64]
    start: NDArray[np.int64]
    left: NDArray[np.float64]
    cap: NDArray[np.float64]
    rate: NDArray[np.float64]
    posted: NDArray[np.float64]
    drained: NDArray[np.float64]
    drain: NDArray[np.float64]
    base: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    queue: NDArray[np.int64]
    position: NDArray[np.float64]


@njit
def new_fluid(writes: NDArray[np.int64]) -> Fluid:
    """No copy in flight; writes: how many each core will hand over."""
    cores = len(writes)
    n, total = 2 * cores, writes.sum()
    base = np.cumsum(writes) - writes
    return Fluid(
        np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64),
        np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(cores), np.zeros(cores), np.zeros(cores),
        base, base.copy(), base.copy(), np.zeros(total, np.int64), np.zeros(total),
    )  # fmt: skip


@njit(forceinline=True)
def _level(f: Fluid, kind: int, total: float, count: int, lowest: float) -> float:
    """The rate above which no copy of the class goes, so that together they take ``total`` at most."""
    if count == 0 or lowest * count >= total:
        return total / max(count, 1)
    level = total / count
    while True:
        used, open_count = 0.0, 0
        for k in range(len(f.state)):
            if f.state[k] == MOVING and f.kind[k] == kind:
                if f.cap[k] <= level:
                    used += f.cap[k]
                else:
                    open_count += 1
        if open_count == 0:
            return level
        higher = (total - used) / open_count
        if higher <= level * (1 + 1e-12):
            return level
        level = higher


@njit
def set_rates(f: Fluid, r: Rates, now: int) -> int:
    """Set the rates from ``now`` on; returns when they change next, or NEVER."""
    reads, hits, writes = 0, 0, 0
    least_read, least_hit, least_write = 1e300, 1e300, 1e300
    wanted_reads, wanted_writes = 0.0, 0.0
    soonest = float(NEVER)
    for k in range(len(f.state)):
        if f.state[k] == MOVING:
            cap = f.cap[k]
            if f.kind[k] == HBM_READ:
                reads += 1
                least_read = min(least_read, cap)
                wanted_reads += cap
            elif f.kind[k] == HBM_WRITE:
                writes += 1
                least_write = min(least_write, cap)
                wanted_writes += cap
            else:
                hits += 1
                least_hit = min(least_hit, cap)
        elif f.state[k] == PENDING:
            soonest = min(soonest, float(f.start[k] - now))
    backlog = 0.0
    for c in range(len(f.posted)):
        backlog += f.posted[c] - f.drained[c]
    full = r.write_buffer * r.write_weight
    forced = writes > 0 and backlog >= full - 1.0
    for_writes = min(r.forced_share * r.hbm, wanted_writes) if forced else 0.0
    for_reads = r.hbm - for_writes
    hit_level = _level(f, L2_COPY, r.l2, hits, least_hit)
    read_level, write_level = 1e300, 1e300
    used = wanted_reads
    if wanted_reads > for_reads:
        read_level = _level(f, HBM_READ, for_reads, reads, least_read)
        used = for_reads
    drain = r.hbm - used
    if drain < 1e-9 * r.hbm:
        drain = 0.0
    if forced:
        write_level = _level(f, HBM_WRITE, drain, writes, least_write)
    for k in range(len(f.state)):
        if f.state[k] == MOVING:
            kind = f.kind[k]
            level = read_level if kind == HBM_READ else (write_level if kind == HBM_WRITE else hit_level)
            f.rate[k] = min(f.cap[k], level)
            if f.rate[k] > 0:
                soonest = min(soonest, f.left[k] / f.rate[k])
    return _set_drains(f, drain, backlog, full, now, soonest)


@njit(forceinline=True)
def _set_drains(f: Fluid, drain: float, backlog: float, full: float, now: int, soonest: float) -> int:
    """Share ``drain`` among the cores whose writes wait or arrive; the rest of `set_rates`."""
    sharers = 0
    for c in range(len(f.posted)):
        port = 2 * c + 1
        if f.posted[c] - f.drained[c] > EPS or (f.state[port] == MOVING and f.kind[port] == HBM_WRITE):
            sharers += 1
    share = drain / max(sharers, 1)
    inflow, outflow = 0.0, 0.0
    for c in range(len(f.posted)):
        port = 2 * c + 1
        arriving = f.rate[port] if f.state[port] == MOVING and f.kind[port] == HBM_WRITE else 0.0
        inflow += arriving
        waits = f.posted[c] - f.drained[c]
        f.drain[c] = 0.0
        if arriving > 0 and waits <= CAUGHT_UP:
            f.drain[c] = min(arriving, share)
        elif waits > EPS and share > 0:
            f.drain[c] = share
            if share > arriving:
                soonest = min(soonest, waits / (share - arriving))
            if f.head[c] < f.tail[c]:
                soonest = min(soonest, max(f.position[f.head[c]] - f.drained[c], 0.0) / share)
        outflow += f.drain[c]
    if inflow > outflow * (1 + 1e-9) and backlog < full - 1.0:
        soonest = min(soonest, (full - backlog) / (inflow - outflow))
    return NEVER if soonest >= float(NEVER) else now + int(np.ceil(soonest))


@njit(forceinline=True)
def flow(f: Fluid, span: int) -> None:
    """Let ``span`` ps pass."""
    for k in range(len(f.state)):
        if f.state[k] == MOVING:
            step = min(f.rate[k] * span, f.left[k])
            f.left[k] -= step
            if f.kind[k] == HBM_WRITE:
                f.posted[k // 2] += step
    for c in range(len(f.posted)):
        f.drained[c] = min(f.drained[c] + f.drain[c] * span, f.posted[c])


@njit(forceinline=True)
def start_due(f: Fluid, now: int) -> None:
    """Copies whose start has come begin to move."""
    for k in range(len(f.state)):
        if f.state[k] == PENDING and f.start[k] <= now:
            f.state[k] = MOVING
