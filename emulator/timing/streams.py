"""Events as streams: for each core the order of all, and the order on each pipe; which SetFlag a WaitFlag waits for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.core import EVENT_ROWS, HARD_EVENTS
from emulator.jit import njit
from emulator.timing.costs import SET, WAIT

PIPES = 4
"""SCALAR, VECTOR, MTE2, MTE3; events of PIPE_ALL run on SCALAR."""


class Streams(NamedTuple):
    """``first[c] .. first[c + 1]``: events of core c. ``items[base[c, p] : base[c, p + 1]]``: those of its pipe p,
    in program order; ``slot``: an event's place there; ``match``: the SetFlag of a WaitFlag (-1: none).
    """

    first: NDArray[np.int64]
    base: NDArray[np.int64]
    items: NDArray[np.int64]
    slot: NDArray[np.int64]
    match: NDArray[np.int64]
    pipe: NDArray[np.int8]


@njit
def make_streams(core, pipe, flag, kind, cores: int) -> Streams:  # type: ignore[no-untyped-def]  # field arrays
    """Streams of events that stand core by core in program order."""
    n = len(core)
    first = np.zeros(cores + 1, np.int64)
    base = np.zeros((cores, PIPES + 1), np.int64)
    lane = np.zeros(n, np.int8)
    for i in range(n):
        lane[i] = pipe[i] if pipe[i] < PIPES else 0
        first[core[i] + 1] += 1
        base[core[i], lane[i] + 1] += 1
    for c in range(cores):
        first[c + 1] += first[c]
        base[c, 0] = first[c]
        for p in range(PIPES):
            base[c, p + 1] += base[c, p]
    items, slot, match = np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64)
    for c in range(cores):
        fill = np.zeros(PIPES, np.int64)
        last_set = np.full(HARD_EVENTS * EVENT_ROWS, -1, np.int64)
        for i in range(first[c], first[c + 1]):
            p = lane[i]
            slot[i] = fill[p]
            items[base[c, p] + fill[p]] = i
            fill[p] += 1
            if kind[i] == SET:
                last_set[flag[i]] = i
            elif kind[i] == WAIT:
                match[i] = last_set[flag[i]]
    return Streams(first, base, items, slot, match, lane)
