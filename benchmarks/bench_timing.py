"""How long it takes to time a million events: ``python benchmarks/bench_timing.py``. Compiling is left out."""

from __future__ import annotations

import sys
import time

from emulator import products
from emulator.timing import critical_path, time_run, utilisation
from emulator.timing.vendor_add import PUBLISHED, add_run
from studies import timed

LIMIT_SECONDS = 3.0


def runs():
    """(name, run): a reduction, and the Add example, whose cores all wait for the same memory."""
    timed.TILES_KEPT = 512
    reduction = timed.timed_operator((1536, 256, 14, 14), product="950").steps[1].timeline.run
    yield "ReduceSum, 64 cores", reduction
    case = PUBLISHED[2]
    yield (
        "Add, 48 cores",
        add_run(products.get("Ascend910B1"), cores=case.cores, copy_bytes=case.copy_bytes, buffers=case.buffers),
    )


def main() -> int:
    worst = 0.0
    for name, run in runs():
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            timeline = time_run(run)
            seconds.append(time.perf_counter() - start)
        best, events = min(seconds[1:]), len(run.events)
        per_million = best * 1e6 / events
        worst = max(worst, per_million)
        start = time.perf_counter()
        utilisation(timeline)
        critical_path(timeline)
        rest = time.perf_counter() - start
        sys.stdout.write(
            f"{name}: {events} events in {best:.3f} s, {per_million:.2f} s per million; "
            f"utilisation and critical path {rest:.2f} s\n"
        )
    return 0 if worst < LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
