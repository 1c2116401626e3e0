"""Views: which elements of a storage a tensor with a shape, strides and an offset means.

All numbers are Python integers, so sizes near 2^63 do not wrap.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_ELEMENTS: Final = 2**63 - 1
"""Elements a C program can count (int64_t)."""


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements lie one after the other (axes of length 1 may have any stride)."""
    expected = contiguous_strides(shape)
    return 0 in shape or all(d == 1 or s == e for d, s, e in zip(shape, strides, expected, strict=True))


def last_element(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> int:
    """Index in the storage of the farthest element of a view without negative dims and strides; -1 if it is empty."""
    if 0 in shape:
        return -1
    return offset + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a one-dimensional view means one element twice."""
    return len(shape) == 1 and shape[0] > 1 and strides[0] == 0


def view_problem(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, storage: tuple[int, ...]
) -> tuple[str, str, str] | None:
    """Why a view cannot be used, as (what, got, allowed), or None.

    Refused: negative dims, strides or offset, more than 2^63 - 1 elements, and elements outside the storage.
    Broadcasts (stride 0) are fine.
    """
    for what, values in (("viewDims", shape), ("storageDims", storage)):
        if any(d < 0 for d in values):
            return what, f"{list(values)}", "lengths of 0 or more"
    if math.prod(shape) > MAX_ELEMENTS or math.prod(storage) > MAX_ELEMENTS:
        return "viewDims and storageDims", f"{list(shape)} and {list(storage)}", "at most 2^63 - 1 elements"
    if any(s < 0 for s in strides):
        return "strides", f"{list(strides)}", "strides of 0 or more"
    if offset < 0:
        return "offset", f"{offset}", "0 or more"
    last, held = last_element(shape, strides, offset), math.prod(storage)
    if last >= held:
        got = f"shape {list(shape)}, strides {list(strides)}, offset {offset}, which reaches element {last}"
        return "view", got, f"elements 0 to {held - 1} of its storage {list(storage)}" if held else "an empty view"
    return None


def strided(storage: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """The view as a NumPy array that shares the memory of the one-dimensional ``storage``.

    The caller has checked the view; this asserts once more that it stays inside.
    """
    if 0 in shape:
        return np.empty(shape, storage.dtype)
    assert all(d > 0 for d in shape) and min(strides, default=0) >= 0 <= offset
    assert last_element(shape, strides, offset) < storage.size
    used = tuple(0 if d == 1 else s * storage.itemsize for d, s in zip(shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, used)
