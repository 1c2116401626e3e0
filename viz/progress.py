"""What runs for long says so: a line on stderr, after two seconds, when a terminal is watching."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

DELAY_SECONDS = 2.0


class LateProgress:
    """A progress line that comes late or not at all.

    ``with LateProgress() as progress``: call ``progress.step(text)`` when a step begins, and pass
    ``progress.report`` as the ``progress=`` callback of the operator.
    """

    def __init__(self, delay_seconds: float = DELAY_SECONDS) -> None:
        self._delay = delay_seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._display: Any = None
        self._task: Any = None
        self._now: tuple[str, int | None, int | None] = ("", None, None)
        self._closed = False

    def __enter__(self) -> LateProgress:
        if sys.stderr.isatty():
            self._timer = threading.Timer(self._delay, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._display is not None:
                self._display.stop()

    def step(self, text: str) -> None:
        """A step of unknown length begins."""
        self._update(text, None, None)

    def report(self, kernel: str, done: int, total: int) -> None:
        """``done`` of the ``total`` cores of a kernel have finished."""
        self._update(kernel, done, total)

    def _update(self, text: str, done: int | None, total: int | None) -> None:
        self._now = (text, done, total)
        if self._display is not None:
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        text, done, total = self._now
        self._display.update(self._task, description=text, total=total, completed=done or 0)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._closed:
                return
            self._display = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._display.add_task("", total=None)
            self._draw()
            self._display.start()


class Stopwatch:
    """Seconds since it was made, and how many of them Numba spent compiling."""

    def __init__(self) -> None:
        from numba.core import event

        self._start = time.perf_counter()
        self._listener = event.TimingListener()
        event.register("numba:compile", self._listener)

    def stop(self) -> tuple[float, float]:
        """(all seconds, seconds of compiling)."""
        from numba.core import event

        event.unregister("numba:compile", self._listener)
        compiling = self._listener.duration if self._listener.done else 0.0
        return time.perf_counter() - self._start, compiling
