"""The simulation: cores run ahead by themselves until a copy needs the shared memory or cores meet.

The scalar unit issues every instruction in program order into the queue of its pipe and stalls when that is
full. A queue starts its instructions in order. A vector instruction lets the next one start before its own
result is there; SetFlag, WaitFlag and PipeBarrier on VECTOR wait for all results (PTO: "tail flush"). A write is
at its end when the UB is read, and done when memory has it. Times are whole picoseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.isa.table import PIPE_MTE2, PIPE_MTE3, PIPE_S, PIPE_V
from emulator.jit import njit
from emulator.timing.costs import BARRIER, READ, SET, SYNC, VECTOR, WAIT, WRITE, Costs, Rates
from emulator.timing.memory import (
    EPS,
    FREE,
    HBM_READ,
    HBM_WRITE,
    L2_COPY,
    MOVING,
    NEVER,
    PENDING,
    Fluid,
    flow,
    new_fluid,
    set_rates,
    start_due,
)
from emulator.timing.streams import PIPES, Streams

AT_START, BY_ISSUE, BY_PIPE, BY_FLAG, BY_QUEUE, BY_RESULT, BY_MEETING = range(7)
"""Why an event began (or ended) when it did: the core started; the scalar unit issued it just then; the event
before it on its pipe; a flag; room in the queue; an earlier result; the last core at SyncAll."""


class Times(NamedTuple):
    """Per event, ps: issue (scalar unit), start, end (on the pipe), done (result there). ``why``/``cause``: of its
    start; ``why_end``/``cause_end``: of its end where that waited; ``why_issue``/``cause_issue``: of its issue.
    ``cores``: (cores, 2) start and end of each core.
    """

    issue: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    done: NDArray[np.int64]
    why: NDArray[np.int8]
    cause: NDArray[np.int64]
    why_end: NDArray[np.int8]
    cause_end: NDArray[np.int64]
    why_issue: NDArray[np.int8]
    cause_issue: NDArray[np.int64]
    cores: NDArray[np.int64]


# Columns of the per-core state: next event to issue and when the scalar unit is free; arrival at SyncAll; then
# one row of four (by pipe) each: place in the stream, issued so far, free from, results by, event of that result,
# last event started.
IP, NOW, ARRIVED, MET = range(4)
POS, ISSUED, FREE_AT, DONE_AT, LAST, PREVIOUS = (8 + PIPES * k for k in range(6))
STATE = 8 + PIPES * 6


@njit
def _new_times(n: int, cores: int) -> Times:
    return Times(
        np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int64),
        np.zeros(n, np.int8), np.full(n, -1, np.int64), np.zeros(n, np.int8), np.full(n, -1, np.int64),
        np.zeros(n, np.int8), np.full(n, -1, np.int64), np.zeros((cores, 2), np.int64),
    )  # fmt: skip


@njit(forceinline=True)
def _finish(st, t: Times, i: int, p: int, end: int, done: int) -> None:  # type: ignore[no-untyped-def]
    """Event i of pipe p has its end and result."""
    t.end[i], t.done[i] = end, done
    if done >= st[DONE_AT + p]:
        st[DONE_AT + p], st[LAST + p] = done, i


@njit(forceinline=True)
def _idle(c: int, st, f: Fluid, s: Streams, t: Times) -> bool:  # type: ignore[no-untyped-def]
    """Whether all that core c issued has its result."""
    for p in range(PIPE_V, PIPES):
        if st[POS + p] < st[ISSUED + p]:
            return False
        last = st[PREVIOUS + p]
        if last >= 0 and t.done[last] < 0:
            return False
    return f.state[2 * c] == FREE and f.state[2 * c + 1] == FREE


@njit(forceinline=True)
def _scalar(c: int, st, f: Fluid, s: Streams, k: Costs, r: Rates, t: Times) -> bool:  # type: ignore[no-untyped-def]
    """Issue what can be issued; returns whether anything was."""
    moved = False
    while st[IP] < s.first[c + 1]:
        i = st[IP]
        p = s.pipe[i]
        now = st[NOW]
        t.why_issue[i], t.cause_issue[i] = BY_ISSUE if i > s.first[c] else AT_START, i - 1
        if p != PIPE_S:
            if s.slot[i] >= r.depth:
                j = s.items[s.base[c, p] + s.slot[i] - r.depth]
                if t.start[j] < 0:
                    return moved
                if t.start[j] > now:
                    now = t.start[j]
                    t.why_issue[i], t.cause_issue[i] = BY_QUEUE, j
            t.issue[i] = now
            st[NOW] = now + r.issue
            st[ISSUED + p] += 1
        else:
            t.issue[i] = t.start[i] = now
            t.why[i], t.cause[i] = t.why_issue[i], t.cause_issue[i]
            end = now + k.nominal[i]
            if k.kind[i] == WAIT:
                j = s.match[i]
                if j >= 0 and t.done[j] < 0:
                    return moved
                if j >= 0 and t.done[j] > now:
                    end = t.done[j] + k.nominal[i]
                    t.why_end[i], t.cause_end[i] = BY_FLAG, j
            elif k.kind[i] == BARRIER or k.kind[i] == SYNC:
                if not _idle(c, st, f, s, t):
                    return moved
                at = now
                for q in range(PIPE_V, PIPES):
                    if st[DONE_AT + q] > at:
                        at = st[DONE_AT + q]
                        t.why_end[i], t.cause_end[i] = BY_RESULT, st[LAST + q]
                end = at + k.nominal[i]
                if k.kind[i] == SYNC:
                    if st[MET] == 0:
                        st[ARRIVED], st[MET] = at, 1
                        return moved
                    if st[MET] == 1:
                        return moved
                    end, st[MET] = st[ARRIVED], 0
            st[NOW] = end
            t.end[i] = t.done[i] = end
        st[IP] += 1
        moved = True
    return moved


@njit(forceinline=True)
def _begin(c: int, st, i: int, p: int, at: int, f: Fluid, k: Costs, t: Times) -> None:  # type: ignore[no-untyped-def]
    """Start event i on its pipe at ``at``."""
    t.start[i] = at
    st[POS + p] += 1
    last = st[PREVIOUS + p]
    st[PREVIOUS + p] = i
    if k.kind[i] == VECTOR:
        if last >= 0 and t.end[last] > at:
            t.end[last] = at
        _finish(st, t, i, p, at + k.nominal[i], at + k.nominal[i])
        st[FREE_AT + p] = at + k.occupied[i]
    else:
        port = 2 * c + (p - PIPE_MTE2)
        f.state[port], f.start[port], f.event[port] = PENDING, at, i
        f.kind[port] = L2_COPY if k.in_l2[i] else (HBM_READ if k.kind[i] == READ else HBM_WRITE)
        f.left[port] = k.work[i]
        f.cap[port] = k.work[i] / k.nominal[i]


@njit(forceinline=True)
def _synchronise(st, i: int, p: int, at: int, s: Streams, k: Costs, t: Times) -> bool:  # type: ignore[no-untyped-def]
    """A flag or barrier at the head of pipe p; returns False when it cannot be decided yet."""
    last = st[LAST + p]
    flush = p == PIPE_V or k.kind[i] == BARRIER
    end = at
    if k.kind[i] == WAIT:
        j = s.match[i]
        if j >= 0 and t.done[j] < 0:
            return False
        if j >= 0 and t.done[j] > at:
            end = t.done[j]
            t.why_end[i], t.cause_end[i] = BY_FLAG, j
    elif flush or p != PIPE_MTE3:
        previous = st[PREVIOUS + p]
        if previous >= 0 and t.done[previous] < 0:
            return False
        if st[DONE_AT + p] > at:
            end = st[DONE_AT + p]
            t.why_end[i], t.cause_end[i] = BY_RESULT, last
    end += k.nominal[i]
    t.start[i], t.end[i] = at, end
    t.done[i] = end
    if k.kind[i] == SET and p == PIPE_MTE3 and last >= 0:  # fires when memory has the writes before it
        copy = st[PREVIOUS + p]
        if t.done[copy] < 0:
            t.done[i] = -1
        elif t.done[copy] > end:
            t.done[i] = t.done[copy]
            t.why_end[i], t.cause_end[i] = BY_RESULT, copy
    st[FREE_AT + p] = end
    st[POS + p] += 1
    return True


@njit(forceinline=True)
def _pipe(c: int, p: int, st, f: Fluid, s: Streams, k: Costs, r: Rates, t: Times) -> bool:  # type: ignore[no-untyped-def]
    """Start what pipe p can start; returns whether anything was."""
    moved = False
    while st[POS + p] < st[ISSUED + p]:
        if p != PIPE_V and f.state[2 * c + (p - PIPE_MTE2)] != FREE:
            return moved
        place = s.base[c, p] + st[POS + p]
        i = s.items[place]
        at = t.issue[i] + r.issue
        t.why[i], t.cause[i] = BY_ISSUE, i
        if st[FREE_AT + p] > at:
            at = st[FREE_AT + p]
            t.why[i], t.cause[i] = BY_PIPE, s.items[place - 1]
        if k.kind[i] == VECTOR or k.kind[i] == READ or k.kind[i] == WRITE:
            _begin(c, st, i, p, at, f, k, t)
        else:
            if p == PIPE_V and st[DONE_AT + p] > at:  # the tail of the instruction before is still running
                at = st[DONE_AT + p]
                t.why[i], t.cause[i] = BY_PIPE, st[LAST + p]
            if not _synchronise(st, i, p, at, s, k, t):
                return moved
        moved = True
    return moved


@njit
def _advance(c: int, st, f: Fluid, s: Streams, k: Costs, r: Rates, t: Times) -> None:  # type: ignore[no-untyped-def]
    """Take core c as far as it gets without the shared memory."""
    moved = True
    while moved:
        moved = _scalar(c, st, f, s, k, r, t)
        for p in range(PIPE_V, PIPES):
            moved = _pipe(c, p, st, f, s, k, r, t) or moved


@njit(forceinline=True)
def _meet(st, cores: int, s: Streams, r: Rates, t: Times) -> bool:  # type: ignore[no-untyped-def]
    """Let all cores go on when all are at SyncAll."""
    latest = 0
    for c in range(cores):
        if st[c, MET] != 1:
            return False
        if st[c, ARRIVED] > st[latest, ARRIVED]:
            latest = c
    release = st[latest, ARRIVED] + r.sync_all
    last = st[latest, IP]
    for c in range(cores):
        i = st[c, IP]
        if c != latest:
            t.why_end[i], t.cause_end[i] = BY_MEETING, last
        st[c, ARRIVED], st[c, MET] = release, 2
    return True


@njit(forceinline=True)
def _acknowledge(c: int, st, i: int, now: int, s: Streams, t: Times) -> None:  # type: ignore[no-untyped-def]
    """Memory has write i: it is done, and so are the flags right behind it."""
    t.done[i] = now
    p = s.pipe[i]
    if now >= st[DONE_AT + p]:
        st[DONE_AT + p], st[LAST + p] = now, i
    for q in range(s.base[c, p] + s.slot[i] + 1, s.base[c, p] + st[POS + p]):
        j = s.items[q]
        if t.done[j] >= 0 or t.end[j] < 0:
            break
        t.done[j] = max(now, t.end[j])
        t.why_end[j], t.cause_end[j] = BY_RESULT, i


@njit
def _memory(now: int, st, dirty, f: Fluid, s: Streams, k: Costs, t: Times) -> None:  # type: ignore[no-untyped-def]
    """Copies that end or are acknowledged at ``now``; marks their cores."""
    for port in range(len(f.state)):
        c, p = port // 2, PIPE_MTE2 + port % 2
        i = f.event[port]
        if f.state[port] == MOVING and f.left[port] <= EPS:
            f.state[port] = FREE
            dirty[c] = 1
            st[c, FREE_AT + p] = now
            if f.kind[port] == HBM_WRITE:
                t.end[i] = now
                f.queue[f.tail[c]], f.position[f.tail[c]] = i, f.posted[c]
                f.tail[c] += 1
                st[c, LAST + p] = i
            else:
                _finish(st[c], t, i, p, now, now)
    for c in range(len(f.posted)):
        while f.head[c] < f.tail[c] and f.position[f.head[c]] <= f.drained[c] + EPS:
            i = f.queue[f.head[c]]
            f.head[c] += 1
            dirty[c] = 1
            _acknowledge(c, st[c], i, now, s, t)


@njit
def simulate(core, s: Streams, k: Costs, r: Rates, cores: int):  # type: ignore[no-untyped-def]
    """Times of all events, and True; False when cores wait for what never comes."""
    t = _new_times(len(core), cores)
    writes = np.zeros(cores, np.int64)
    for i in range(len(core)):
        if k.kind[i] == WRITE:
            writes[core[i]] += 1
    f = new_fluid(writes)
    st = np.zeros((cores, STATE), np.int64)
    st[:, LAST : LAST + PIPES] = -1
    st[:, PREVIOUS : PREVIOUS + PIPES] = -1
    for c in range(cores):
        st[c, IP] = s.first[c]
        t.cores[c, 0] = r.launch + c * r.skew
        st[c, NOW] = t.cores[c, 0] + r.core_init
        st[c, FREE_AT : FREE_AT + PIPES] = t.cores[c, 0]
    dirty = np.ones(cores, np.uint8)
    now = 0
    while True:
        for c in range(cores):
            if dirty[c]:
                dirty[c] = 0
                _advance(c, st[c], f, s, k, r, t)
        if _meet(st, cores, s, r, t):
            dirty[:] = 1
            continue
        start_due(f, now)
        then = set_rates(f, r, now)
        if then >= NEVER:
            break
        flow(f, then - now)
        now = then
        _memory(now, st, dirty, f, s, k, t)
    finished = True
    for c in range(cores):
        finished = finished and st[c, IP] == s.first[c + 1]
        end = st[c, NOW]
        for p in range(PIPE_V, PIPES):
            end = max(end, st[c, DONE_AT + p], st[c, FREE_AT + p])
            finished = finished and st[c, POS + p] == st[c, ISSUED + p]
        t.cores[c, 1] = end
    return t, finished
