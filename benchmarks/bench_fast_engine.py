"""How fast the fast engine is, against the memory of this machine and against its peers.

Every round times all of them one after another, so that they share whatever else the machine is doing; the best
round counts. "stream" is a read-only sum of two 256 MiB arrays with as many threads as there are CPUs; a ratio
above 1 means that the operands sat in a cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numba
import numpy as np

from emulator.formats import to_bits
from ops.reduce_sum.fused import fused_sums
from ops.reduce_sum.plan import plan_reduce_sum

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SHAPES = [
    (2, 3, 1, 4),
    (128, 512),
    (16, 24, 28, 28),
    (8, 2048, 7, 7),
    (4096, 256),
    (32, 256, 14, 14),
    (4, 64, 32, 32, 8),
    (1, 3, 1024, 1024),
    (32, 64, 56, 56),
    (128, 1024, 14, 14),
    (256, 2048, 7, 7),
    (1, 3, 4096, 4096),
    (64, 256, 56, 56),
    (131072, 512),
]
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
STREAM_BYTES = 256 << 20
QUICK_ELEMENTS = 7_000_000
CPUS = os.cpu_count() or 1


@numba.njit(nogil=True)
def _read(a: Any) -> Any:
    """Xor of all elements: reads memory and does next to nothing else."""
    total = np.uint64(0)
    for i in range(a.size):
        total ^= a[i]
    return total


class Stream:
    """The read-only sum of two arrays."""

    def __init__(self) -> None:
        arrays = [np.ones(STREAM_BYTES // 8, np.uint64) for _ in range(2)]
        self.pieces = [piece for a in arrays for piece in np.array_split(a, CPUS)]
        self.pool = ThreadPoolExecutor(CPUS)
        _read(self.pieces[0])

    def seconds_per_byte(self) -> float:
        """One pass over both."""
        start = time.perf_counter()
        list(self.pool.map(_read, self.pieces))
        return (time.perf_counter() - start) / (2 * STREAM_BYTES)


def operands(shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """Two tensors of random numbers, which repeat after a million."""
    count = math.prod(shape)
    some = np.random.default_rng(0).standard_normal(min(count, 1 << 20), dtype=np.float32).astype(DTYPES[dtype])
    return np.resize(some, count).reshape(shape), np.resize(some[::-1], count).reshape(shape)


def numpy_lines(dy: Any, x: Any) -> Callable[[], Any]:
    axes = tuple(i for i in range(dy.ndim) if i != 1)

    def run() -> Any:
        return dy.sum(axis=axes, dtype=np.float32), (dy * x).sum(axis=axes, dtype=np.float32)

    return run


def torch_native(dy: Any, x: Any) -> Callable[[], Any] | None:
    """native_batch_norm_backward asked for the gradients of weight and bias only: the same two sums."""
    if torch is None:
        return None
    kind = {2: torch.int16, 4: torch.float32}[dy.itemsize]
    if kind is torch.int16:
        name = torch.float16 if dy.dtype == np.float16 else torch.bfloat16
        a, b = (torch.from_numpy(v.view(np.int16)).view(name) for v in (dy, x))
    else:
        a, b = torch.from_numpy(dy), torch.from_numpy(x)
    c = dy.shape[1]
    weight, mean, invstd = torch.ones(c), torch.zeros(c), torch.ones(c)

    def run() -> Any:
        return torch.ops.aten.native_batch_norm_backward(
            a, b, weight, None, None, mean, invstd, True, 1e-5, [False, True, True]
        )

    return run


def time_of(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call; one call before it is not counted, so that small operands are in a cache."""
    function()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def measure(shape: tuple[int, ...], dtype: str, stream: Stream, rounds: int) -> dict[str, Any]:
    """Best times of one shape and the ratios to each peer."""
    dy, x = operands(shape, dtype)
    plan = plan_reduce_sum(shape)
    flat_dy, flat_x = to_bits(dy).reshape(-1), to_bits(x).reshape(-1)
    peers: dict[str, Callable[[], Any] | None] = {
        "ours": lambda: fused_sums(flat_dy, flat_x, plan.geometry, plan.channels),
        "numpy": numpy_lines(dy, x),
        "torch": torch_native(dy, x),
    }
    best = {name: math.inf for name in (*peers, "stream")}
    repeats = min(max(3_000_000 // dy.size, 1), 2000)
    for _ in range(rounds):
        best["stream"] = min(best["stream"], stream.seconds_per_byte() * 2 * dy.nbytes)
        for name, peer in peers.items():
            if peer is not None and not (name == "numpy" and dy.size > QUICK_ELEMENTS and best["numpy"] < math.inf):
                best[name] = min(best[name], time_of(peer, repeats))

    def ratio(name: str) -> float | None:
        return None if math.isinf(best[name]) else round(best[name] / best["ours"], 2)

    return {
        "shape": shape,
        "dtype": dtype,
        "us": round(best["ours"] * 1e6, 1),
        "ns_per_element": round(best["ours"] / dy.size * 1e9, 3),
        "stream_over_ours": ratio("stream"),
        "numpy_over_ours": ratio("numpy"),
        "torch_over_ours": ratio("torch"),
    }


def facts() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpus": CPUS,
        "machine": platform.machine(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "torch": None if torch is None else torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small shapes, few rounds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--dtypes", default="fp32,fp16,bf16", help="which of fp32, fp16, bf16 (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds; the best counts (default 7, quick 3)")
    options = parser.parse_args()
    unknown = set(options.dtypes.split(",")) - set(DTYPES)
    if unknown:
        parser.error(f"--dtypes: got {', '.join(sorted(unknown))}; allowed: {', '.join(DTYPES)}")
    shapes = [s for s in SHAPES if not options.quick or math.prod(s) <= QUICK_ELEMENTS]
    rounds = options.rounds or (3 if options.quick else 7)
    stream = Stream()
    if not options.json:
        print(", ".join(f"{name} {value}" for name, value in facts().items()))
        print("| shape | dtype | us | ns/element | stream / ours | NumPy / ours | torch native / ours |")
        print("|---|---|---|---|---|---|---|")
    rows = []
    for dtype in options.dtypes.split(","):
        for shape in shapes:
            row = measure(shape, dtype, stream, rounds)
            rows.append(row)
            if not options.json:
                values = ("" if v is None else str(v) for v in row.values())
                print("| " + " | ".join(values) + " |", flush=True)
    if options.json:
        print(json.dumps({"facts": facts(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
