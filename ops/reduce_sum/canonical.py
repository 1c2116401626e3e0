"""Axis canonicalisation of a reduction (reduce_spec 2.1: EliminateOne, MergeAxis, PadDimOne).

The result always starts with a kept (A) axis, and A and R axes alternate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Canonical:
    """A canonical shape: dims alternate A, R, A, ... from the left."""

    shape: tuple[int, ...]

    @property
    def pattern(self) -> str:
        """Kinds of the axes: "A", "AR", "ARA", "ARAR", ... from the left."""
        return "".join("AR"[i % 2] for i in range(len(self.shape)))

    @property
    def tail_r(self) -> bool:
        """Whether the innermost axis is reduced."""
        return len(self.shape) % 2 == 0

    @property
    def reduce_count(self) -> int:
        """Elements summed into one output."""
        return math.prod(self.shape[1::2])

    @property
    def out_size(self) -> int:
        """Outputs."""
        return math.prod(self.shape[0::2])


def canonicalise(shape: tuple[int, ...], kept_axis: int = 1) -> Canonical:
    """Canonical shape of the sum over every axis but ``kept_axis`` (dims all at least 1).

    (N, C) -> [1, N, C]; (N, C, spatial) -> [1, N, C, S]; N = 1 -> [C, S]; C = 1 -> [1, N * S]. An output of
    one element reduces all axes, which gives the same.
    """
    merged: list[int] = [1]
    reduced = False
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        if (axis != kept_axis) == reduced:
            merged[-1] *= length
        else:
            merged.append(length)
            reduced = not reduced
    if len(merged) in (5, 6, 7):
        merged = [1] * ((9 if len(merged) % 2 else 8) - len(merged)) + merged
    return Canonical(tuple(merged))
