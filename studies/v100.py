"""100 sums of 10^6 float64 numbers measured on an NVIDIA V100, as a check of the reduction machinery.

Order: 7813 blocks of 64 threads; thread t of block b adds g[128 b + t] and g[128 b + 64 + t]; stride-halving 32
to 1 in the block; block sums in turn with Neumaier's compensation. Source: fpna-robustness (BSD-3-Clause,
arXiv 2408.05148); it is an NVIDIA tree, so it checks the machinery, not the Ascend order. (numerics 6.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emulator.jit import njit

F64 = NDArray[np.float64]
SEED, COUNT = 0x1237698, 1_000_000


@dataclass(frozen=True, kw_only=True)
class BlockSum:
    """A two-stage sum. The defaults are the V100's."""

    threads: int = 64
    tree: Literal["halving", "adjacent"] = "halving"
    combine: Literal["neumaier", "sequential"] = "neumaier"

    def __call__(self, x: F64) -> float:
        """Sum of (n,) float64; the tail is padded with zeros."""
        size = 2 * self.threads
        padded = np.zeros(-(-x.size // size) * size)
        padded[: x.size] = x
        return float(_block_sum(padded, self.threads, self.tree == "adjacent", self.combine == "sequential"))


@njit(nogil=True)
def _block_sum(x: F64, threads: int, adjacent: bool, sequential: bool) -> float:
    v = np.empty(threads)
    total, lost = 0.0, 0.0
    for start in range(0, x.size, 2 * threads):
        for t in range(threads):
            i, j = (2 * t, 2 * t + 1) if adjacent else (t, t + threads)
            v[t] = 0.0 + x[start + i] + x[start + j]
        width = threads
        while width > 1:
            width //= 2
            for t in range(width):
                v[t] = v[2 * t] + v[2 * t + 1] if adjacent else v[t] + v[t + width]
        s = total + v[0]
        if not sequential:
            if abs(total) >= abs(v[0]):
                lost += (total - s) + v[0]
            else:
                lost += (v[0] - s) + total
        total = s
    return total + lost


def samples(count: int = 100) -> Iterator[F64]:
    """The inputs: uniform on [-5, 5), one stream of the Mersenne twister."""
    stream = np.random.RandomState(SEED)
    for _ in range(count):
        pairs = np.frombuffer(stream.bytes(8 * COUNT), "<u4").reshape(-1, 2)
        yield (pairs[:, 0] + pairs[:, 1] * 2.0**32) / 2.0**64 * 10 - 5
