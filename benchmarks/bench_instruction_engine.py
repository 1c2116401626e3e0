"""How fast the instruction engine is: whole runs of the operator, with and without events.

One thread, as the engine has only one. "repeats" is the mean number of 256-byte iterations per instruction: the
fewer, the more of the time goes into the instructions themselves rather than into additions.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from typing import Any

import numba
import numpy as np

import ops

SHAPES = {
    "short rows": (64, 256, 4),
    "rows of 784": (8, 64, 28, 28),
    "rows of 12544": (8, 32, 112, 112),
    "[rows, lanes] tiles": (4096, 256),
}


def measure(shape: tuple[int, ...], events: bool, rounds: int) -> dict[str, Any]:
    """Best time of one operator call; the first, which compiles, is not counted."""
    rng = np.random.default_rng(0)
    dy, x = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    mean, invstd = np.zeros(shape[1], np.float32), np.ones(shape[1], np.float32)

    def run() -> Any:
        return ops.batch_norm_reduce_backward(dy, x, mean, invstd, engine="instruction", events=events).run

    done = run()
    best = math.inf
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    counts = sum(launch.counts.sum(axis=(0, 1)) for _, launch in done.launches)
    return {
        "shape": shape,
        "events": events,
        "instructions": int(counts[0]),
        "repeats": round(float(counts[1] / counts[0]), 1),
        "million_instructions_per_s": round(float(counts[0]) / best / 1e6, 2),
        "ns_per_element": round(best / dy.size * 1e9, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 rounds instead of 7")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    facts = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }
    rows = []
    if not options.json:
        print(", ".join(f"{name} {value}" for name, value in facts.items()))
        print("| what | shape | events | instructions | repeats | M instructions/s | ns/element |")
        print("|---|---|---|---|---|---|---|")
    for what, shape in SHAPES.items():
        for events in (False, True):
            row = {"what": what, **measure(shape, events, 2 if options.quick else 7)}
            rows.append(row)
            if not options.json:
                print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)
    if options.json:
        print(json.dumps({"facts": facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
