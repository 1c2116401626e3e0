"""From a rounding to the instruction that made it: events of an instruction-engine run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import EmulatorError, explain
from emulator.isa import INSTRUCTIONS
from ops.batch_norm_reduce_backward.pipeline import BatchNormRun
from studies.error_study import LocalError

SUMMING = ("Add", "Reg::Reduce", "PairReduceSum", "BlockReduceSum", "WholeReduceSum")
"""Starts of the Ascend C names of instructions that add."""


def events_of(item: LocalError, run: BatchNormRun) -> NDArray[Any]:
    """Records of the adding instructions of the core and tile in which a rounding happened, in program order.

    run: of ``engine="instruction", events=True`` on the same operands and product. An event covers 64 lanes, so
    the rounding is one lane of one of these records. Dtype `emulator.events.EVENT`; ``line`` names the source.
    Raises EmulatorError when the run holds no events or the rounding has no core.
    """
    wanted = f"ReduceSum {item.sum}"
    launches = [launch for step, launch in run.launches if step == wanted]
    if not launches or launches[0].events is None or item.core is None or run.plan is None:
        raise EmulatorError(
            explain(
                "events", got=f"{run.engine} engine without events" if item.core is not None else "another contract",
                allowed='engine="instruction", events=True of cann', remedy="run it so",
            )
        )  # fmt: skip
    events = launches[0].events
    adding = [op for op, row in INSTRUCTIONS.items() if row.ascend_c.startswith(SUMMING)]
    tile = -1
    g = run.plan.geometry
    if item.tile is not None and g is not None:
        group = item.core % g.group_r
        tile = item.channel // g.a_step * g.r_tiles + group * g.factor_r + item.tile
    here = (events["core"] == item.core) & (events["tile"] == tile) & np.isin(events["opcode"], adding)
    return events[here]
