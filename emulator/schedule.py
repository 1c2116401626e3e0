"""Arrival orders: in which order the cores of a launch are resumed between two meeting points."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from emulator.errors import EmulatorError

EXHAUSTIVE_LIMIT = 8


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A reproducible arrival order.

    Without ``seed`` and ``order``: ascending block index, as the vendor's launcher dispatches. With ``seed``:
    a new permutation of NumPy's PCG64 for each round between meeting points. With ``order``: that
    permutation in every round.
    """

    seed: int | None = None
    order: tuple[int, ...] | None = None

    @property
    def label(self) -> str:
        """Text for reports."""
        if self.order is not None:
            return f"listed {','.join(map(str, self.order))}"
        return "vendor (ascending block index)" if self.seed is None else f"seed {self.seed}"

    def rounds(self, blocks: int) -> Iterator[list[int]]:
        """Permutations of 0 .. blocks - 1, one for each round.

        Raises EmulatorError when ``order`` is not a permutation of that range.
        """
        if self.order is not None and sorted(self.order) != list(range(blocks)):
            raise EmulatorError(f"order: got {self.order}; allowed: every block index 0 to {blocks - 1} exactly once")
        rng = np.random.default_rng(self.seed)
        while True:
            if self.order is not None:
                yield list(self.order)
            elif self.seed is None:
                yield list(range(blocks))
            else:
                yield [int(i) for i in rng.permutation(blocks)]


VENDOR = Schedule()


def exhaustive(blocks: int) -> Iterator[Schedule]:
    """All arrival orders of ``blocks`` cores (at most 8: 40 320 orders)."""
    if not 1 <= blocks <= EXHAUSTIVE_LIMIT:
        raise EmulatorError(
            f"blocks: got {blocks}; allowed: 1 to {EXHAUSTIVE_LIMIT} for all orders; more cores: seeded schedules"
        )
    for order in itertools.permutations(range(blocks)):
        yield Schedule(order=order)
