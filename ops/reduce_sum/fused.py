"""The fast engine: both sums of the operator in one pass over the operands, in the order of the tiling.

The same additions in the same order as ``kernel.reduce_sum`` run twice on gradOut and on gradOut * input
(reduce_spec 4), but without Unified Buffers and without storing the product. Threads share the work by
(channels, R group); an R group is what one real core adds up, so no result depends on the number of threads.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ops.reduce_sum.fused_kernels import combine, copy_channels, sum_channels, sum_rows, work_size
from ops.reduce_sum.geometry import Geometry
from ops.reduce_sum.tiling import CHUNK

SHORT_ROW, CHANNELS_TOGETHER = 1024, 16
"""Rows shorter than this are read for that many channels at once: what lies together is read together."""
WORK_ELEMENTS = 131_072
"""Elements of one sum in the work array of [rows, lanes] tiles: wide enough to read long runs of memory."""
PIECE_ELEMENTS = 250_000
"""Least elements of a piece of work for one thread; below that starting it costs more than it gains."""
CPUS = os.cpu_count() or 1

F32 = NDArray[np.float32]


def _quiet() -> contextlib.AbstractContextManager[None]:
    """Compiled code raises no floating-point warnings; plain Python should not either."""
    return np.errstate(all="ignore") if numba.config.DISABLE_JIT else contextlib.nullcontext()


def _step(g: Geometry) -> int:
    """Channels of one item. Channels do not mix, so tiles may be cut and joined if their order is the same."""
    if g.tail_r:
        return 1 if g.s >= SHORT_ROW else min(g.c, CHANNELS_TOGETHER)
    last = g.c - (g.a_tiles - 1) * g.a_step
    if (32 < g.a_step <= 64) != (32 < last <= 64):
        return g.a_step
    return min(g.c, max(g.a_step, WORK_ELEMENTS // g.k // 8 * 8))


def _share(work: Callable[[int, int], None], items: int, pieces: int, threads: int) -> None:
    """``work(begin, end)`` over all items, in pieces that threads take in turn.

    This thread works too and waits for pieces, not for threads: on a busy machine a new thread may start late.
    """
    turns = itertools.count()
    done = threading.Semaphore(0)
    failures: list[BaseException] = []

    def take() -> None:
        while (piece := next(turns)) < pieces:
            try:
                work(items * piece // pieces, items * (piece + 1) // pieces)
            except BaseException as failure:
                failures.append(failure)
            finally:
                done.release()

    for _ in range(threads - 1):
        _thread.start_new_thread(take, ())
    take()
    for _ in range(pieces):
        done.acquire()
    if failures:
        raise failures[0]


def fused_sums(dy: NDArray[Any], x: NDArray[Any], g: Geometry | None, channels: int) -> tuple[F32, F32, F32, F32]:
    """sum dy, sum dy * x and the partial sums of both.

    dy and x are flat device arrays (float32, uint16 for fp16, int16 for bf16); ``g`` is None when there is
    nothing to reduce. Returns (C,), (C,), (group_r, C), (group_r, C) in fp32.
    """
    rows = 1 if g is None else g.group_r
    part_y, part_p = np.empty((rows, channels), np.float32), np.empty((rows, channels), np.float32)
    if g is None:
        with _quiet():
            copy_channels(dy, x, part_y, part_p)
    else:
        body, step = (sum_channels if g.tail_r else sum_rows), _step(g)
        items = -(-g.c // step) * g.group_r

        def work(begin: int, end: int) -> None:
            with _quiet():
                body(begin, end, step, np.empty(work_size(g, step), np.float32), dy, x, g, part_y, part_p)

        pieces = min(items, dy.size // PIECE_ELEMENTS, 8 * CPUS)
        if pieces < 2 or CPUS == 1:
            work(0, items)
        else:
            _share(work, items, pieces, min(pieces, CPUS))
    if rows == 1:
        return part_y[0], part_p[0], part_y, part_p
    sum_y, sum_p = np.empty(channels, np.float32), np.empty(channels, np.float32)
    room = np.zeros(rows * CHUNK, np.float32)
    with _quiet():
        combine(room, part_y, sum_y)
        combine(room, part_p, sum_p)
    return sum_y, sum_p, part_y, part_p
