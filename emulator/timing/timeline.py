"""Timing a run: from its events to a `Timeline`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from emulator.errors import EmulatorError
from emulator.launch import Run
from emulator.timing.costs import Costs, Rates, event_costs, rates_of, vector_table
from emulator.timing.parameters import TimingParameters, timing_parameters
from emulator.timing.simulate import Times, simulate
from emulator.timing.streams import Streams, make_streams

PS_PER_US = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """When every event of one run happened. Times are whole picoseconds from the launch of the task."""

    run: Run
    parameters: TimingParameters
    rates: Rates
    costs: Costs
    streams: Streams
    times: Times
    resident: tuple[str, ...]
    """Arguments taken to be in L2 when the kernel starts."""
    drains: bool
    """Whether writes go on to HBM: True when the run's tensors do not all fit in L2."""

    @property
    def core_start(self) -> NDArray[np.int64]:
        """(cores,) ps."""
        return self.times.cores[:, 0]

    @property
    def core_end(self) -> NDArray[np.int64]:
        """(cores,) ps: the last result of each core."""
        return self.times.cores[:, 1]

    @property
    def makespan(self) -> int:
        """Task Duration in ps: dispatch, execution, completion."""
        return int(self.core_end.max()) + self.rates.finish

    @cached_property
    def aiv_time_us(self) -> float:
        """Mean time of a core from its start to its end, in us."""
        return float((self.core_end - self.core_start).mean()) / PS_PER_US

    @property
    def task_us(self) -> float:
        """Task Duration in us."""
        return self.makespan / PS_PER_US


def time_run(
    run: Run,
    *,
    parameters: TimingParameters | None = None,
    changes: Mapping[str, float] | None = None,
    resident: Iterable[str] = (),
    drains: bool | None = None,
) -> Timeline:
    """Start and end of every event of ``run``, which must have been launched with ``events=True``.

    parameters: by default the product's; changes: what-if values by name (``{"hbm_gbps": 1200}``); resident:
    arguments of the kernel that are in L2 at its start; drains: whether writes go on to HBM, by default when the
    run's tensors are together larger than L2. Raises EmulatorError when there are no events, a name is
    unknown, or the events wait for each other for ever.
    """
    if run.events is None:
        raise EmulatorError("events: got a run without events; allowed: a run launched with events=True; launch it so")
    p = parameters or timing_parameters(run.product)
    if changes:
        p = p.replace(changes)
    names = tuple(resident)
    unknown = sorted(set(names) - set(run.gm))
    if unknown:
        raise EmulatorError(f"resident: got {', '.join(unknown)}; allowed: {', '.join(run.gm)}; name arguments")
    r = rates_of(p, run.product.npu_arch, run.blocks)
    ranges = np.array([(run.gm[n][0], sum(run.gm[n])) for n in names], np.int64).reshape(-1, 2)
    if drains is None:
        drains = sum(size for _, size in run.gm.values()) > run.product.l2_bytes
    events = run.events
    costs = event_costs(events, r, vector_table(p), ranges, drains)
    streams = make_streams(events["core"], events["pipe"], events["flag"], costs.kind, run.blocks)
    times, finished = simulate(events["core"], streams, costs, r, run.blocks)
    if not finished:
        raise EmulatorError(
            f"events of {run.kernel}: got flags or meetings that never come; allowed: events of a run that ended; "
            "run the kernel again with events=True"
        )
    return Timeline(
        run=run, parameters=p, rates=r, costs=costs, streams=streams, times=times, resident=names, drains=drains
    )
