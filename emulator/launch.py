"""Launching a kernel on a grid of simulated cores.

A kernel is a function of a ``Core`` and its arguments. It yields only where real cores meet (``SyncAll``);
between two meetings each core runs alone, so any arrival order can be asked for and every run can be repeated
exactly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import faults
from emulator.core import (
    BUFFER_TABLE,
    COUNTS,
    EVENT_IDS,
    EVENTS,
    MAX_BUFFERS,
    OPCODES,
    SATURATE,
    STATE_SIZE,
    TILE,
    Core,
    GlobalTensor,
    InstructionFault,
    array_at,
)
from emulator.errors import EmulatorError
from emulator.events import EVENT
from emulator.isa.sync import SYNC_ALL
from emulator.isa.table import INSTRUCTIONS, Instruction, Pipe
from emulator.jit import aicore
from emulator.memory import UB_POISON, unified_buffer
from emulator.products import Product
from emulator.schedule import VENDOR, Schedule

MAX_BLOCKS = 65535
"""numBlocks is at most 65535 (asc-devkit, GetBlockIdx)."""
FIRST_LOG = 1024
"""Events per core there is room for at first; a longer run is repeated with the exact room."""

Progress = Callable[[str, int, int], None]
"""Called with what is running, the cores done and the cores there are."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A compiled kernel: its function, the names of its UB buffers, the arguments it writes."""

    name: str
    function: Callable[..., Any]
    buffers: tuple[str, ...]
    writes: tuple[str, ...]
    arguments: tuple[str, ...]
    path: str
    meets: bool
    """Whether it is a generator, that is, may wait for other cores."""


def kernel(*, buffers: tuple[str, ...], writes: tuple[str, ...]) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a module-level function ``f(core, *arguments)``; a generator when it meets other cores.

    buffers: names for the buffers in the order ``init_buffer`` hands them out; writes: the arguments in
    global memory it writes. Plain function bodies are compiled by ``emulator.aicore``.
    """

    def wrap(function: Callable[..., Any]) -> Kernel:
        arguments = tuple(inspect.signature(function).parameters)[1:]
        unknown = set(writes) - set(arguments)
        if unknown:
            raise TypeError(f"kernel {function.__name__}: writes names no argument: {sorted(unknown)}")
        return Kernel(
            name=function.__name__,
            function=aicore(function),
            buffers=buffers,
            writes=writes,
            arguments=arguments,
            path=inspect.getfile(function),
            meets=inspect.isgeneratorfunction(function),
        )

    return wrap


@dataclass(frozen=True)
class Buffer:
    """One UB buffer of a kernel."""

    name: str
    address: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one launch did. Arrays are indexed by block first."""

    kernel: str
    path: str
    product: Product
    blocks: int
    schedule: str
    counts: NDArray[np.int64]
    """(blocks, OPCODES, 3): instructions, repeats, bytes, by opcode."""
    buffers: tuple[Buffer, ...]
    """UB buffers; the kernel gives every core the same."""
    sync_rounds: int
    """How often all cores met."""
    gm: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Device address and size in bytes of each argument in global memory."""
    events: NDArray[Any] | None = None
    """All events, core by core in program order (dtype ``emulator.events.EVENT``), when asked for."""

    def instructions_by_pipe(self) -> dict[str, NDArray[np.int64]]:
        """Instructions of each core by pipe (SCALAR, VECTOR, MTE2, MTE3) and flags and barriers as SYNC."""
        totals = {p.name: np.zeros(self.blocks, np.int64) for p in Pipe if p is not Pipe.ALL}
        totals["SYNC"] = np.zeros(self.blocks, np.int64)
        for opcode, row in INSTRUCTIONS.items():
            totals["SYNC" if row.pipe is None else row.pipe.name] += self.counts[:, opcode, 0]
        return totals

    def bytes_by_pipe(self) -> dict[str, NDArray[np.int64]]:
        """Bytes each core moved on MTE2 and MTE3."""
        totals = {p.name: np.zeros(self.blocks, np.int64) for p in (Pipe.MTE2, Pipe.MTE3)}
        for opcode, row in INSTRUCTIONS.items():
            if row.pipe in (Pipe.MTE2, Pipe.MTE3):
                totals[row.pipe.name] += self.counts[:, opcode, 2]
        return totals

    @property
    def ub_used_bytes(self) -> int:
        """Bytes of UB the kernel took."""
        return sum(b.bytes for b in self.buffers)

    @property
    def missing_instructions(self) -> tuple[Instruction, ...]:
        """Instructions this run used that the product's NpuArch does not have (model products only)."""
        used = self.counts[:, :, 0].sum(axis=0) > 0
        return tuple(row for op, row in INSTRUCTIONS.items() if used[op] and self.product.npu_arch not in row.archs)


def launch(
    kernel: Kernel,
    blocks: int,
    *args: Any,
    product: Product,
    schedule: Schedule = VENDOR,
    events: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Run ``kernel`` on ``blocks`` cores of ``product``.

    Arguments after ``blocks`` go to the kernel (``GlobalTensor``, NamedTuples and numbers). Raises
    ``KernelFault`` for a refused instruction, ``HangError`` when cores wait for others that never come,
    EmulatorError for a block count out of range. With ``events`` every instruction's record is kept.
    """
    if not 1 <= blocks <= MAX_BLOCKS:
        raise EmulatorError(f"blocks: got {blocks}; allowed: 1 to {MAX_BLOCKS}")
    gm = {n: a for n, a in zip(kernel.arguments, args, strict=True) if isinstance(a, GlobalTensor)}
    written = {n: array_at(gm[n].host, gm[n].count * gm[n].itemsize, np.uint8) for n in kernel.writes}
    before = {n: a.copy() for n, a in written.items()} if events else {}
    cores = [_SimulatedCore(i, blocks, product, FIRST_LOG if events else 0) for i in range(blocks)]
    rounds = _run_cores(kernel, cores, args, product, schedule, progress)
    if events and any(c.state[EVENTS] > len(c.log) for c in cores):
        for name, data in before.items():
            written[name][:] = data
        cores = [_SimulatedCore(c.index, blocks, product, int(c.state[EVENTS])) for c in cores]
        rounds = _run_cores(kernel, cores, args, product, schedule, progress)
    table = cores[0].state[BUFFER_TABLE : BUFFER_TABLE + 2 * MAX_BUFFERS].reshape(-1, 2)
    return Run(
        kernel=kernel.name,
        path=kernel.path,
        product=product,
        blocks=blocks,
        schedule=schedule.label,
        counts=np.stack([c.state[COUNTS : COUNTS + 3 * OPCODES].reshape(OPCODES, 3) for c in cores]),
        buffers=tuple(
            Buffer(faults.buffer_name(kernel, i), int(start), int(size))
            for i, (start, size) in enumerate(table)
            if size
        ),
        sync_rounds=rounds,
        gm={n: (t.address, t.count * t.itemsize) for n, t in gm.items()},
        events=np.concatenate([c.log[: c.state[EVENTS]] for c in cores]) if events else None,
    )


class _SimulatedCore:
    """The memory of one core, and its kernel once started. The UB comes and goes with the kernel."""

    def __init__(self, index: int, blocks: int, product: Product, room: int) -> None:
        self.index, self.blocks = index, blocks
        self.log = np.zeros(room, EVENT)
        self.state = np.zeros(STATE_SIZE, np.int64)
        self.state[TILE] = -1
        self.state[EVENT_IDS] = product.event_ids
        self.state[SATURATE] = product.overflow_mode == "saturation"
        self.ub: NDArray[np.uint8] | None = None
        self.body: Iterator[int] | None = None

    def start(self, kernel: Kernel, args: tuple[Any, ...], ub: NDArray[np.uint8]) -> None:
        """Give the core its UB and begin the kernel."""
        self.ub = ub
        core = Core(
            self.index,
            self.blocks,
            ub.ctypes.data,
            ub.size,
            self.log.ctypes.data,
            len(self.log),
            self.state.ctypes.data,
        )
        self.body = kernel.function(core, *args) if kernel.meets else _alone(kernel.function, core, *args)


def _alone(function: Callable[..., Any], *args: Any) -> Iterator[int]:
    """A kernel that meets no other core, as a generator."""
    function(*args)
    yield from ()


def _run_cores(
    kernel: Kernel,
    cores: list[_SimulatedCore],
    args: tuple[Any, ...],
    product: Product,
    schedule: Schedule,
    progress: Progress | None,
) -> int:
    """Resume every core, round by round, until all have finished; returns how often they met."""
    blocks = len(cores)
    finished: set[int] = set()
    spare: list[NDArray[np.uint8]] = []
    rounds = 0
    with np.errstate(all="ignore"):  # compiled code raises no floating-point warnings; plain Python should not
        for order in schedule.rounds(blocks):
            for core in (cores[i] for i in order):
                if core.body is None:
                    core.start(kernel, args, spare.pop() if spare else unified_buffer(product.ub_bytes))
                assert core.body is not None and core.ub is not None
                try:
                    reason = next(core.body, None)
                except InstructionFault:
                    raise faults.kernel_fault(kernel, core.index, core.state, args, product) from None
                if reason is None:
                    faults.check_flags(kernel, core.index, core.state)
                    finished.add(core.index)
                    core.ub[:] = UB_POISON
                    spare.append(core.ub)
                    core.ub = None
                elif reason != SYNC_ALL:
                    raise TypeError(f"kernel {kernel.name} yielded {reason}; a kernel yields SYNC_ALL only")
                if progress:
                    progress(kernel.name, len(finished), blocks)
            if len(finished) == blocks:
                return rounds
            rounds += 1
            faults.check_meeting(kernel, blocks, finished, product)
    raise AssertionError("schedules never end")
