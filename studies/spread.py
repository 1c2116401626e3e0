"""A property of the leaves of an order of additions carried to every node."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.jit import njit


@njit(nogil=True)
def spread(left: Any, right: Any, of_leaf: Any, out: Any) -> None:
    """out[v] = the largest ``of_leaf`` under node v; 0 where there are only pads."""
    for v in range(left.size):
        best = np.int32(0)
        for child in (left[v], right[v]):
            if child >= 0:
                best = max(best, out[child])
            elif child < -1:
                best = max(best, of_leaf[-2 - child])
        out[v] = best
