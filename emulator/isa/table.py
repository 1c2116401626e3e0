"""The table of instructions: opcode, names, pipe, and the architectures that have each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from emulator.core import OPCODES
from emulator.jit import instruction_names, njit

F = TypeVar("F", bound=Callable[..., Any])


class Pipe(IntEnum):
    """Queues of a vector core; values are the ``pipe`` field of events (names as in the vendor's traces)."""

    SCALAR = 0
    VECTOR = 1
    MTE2 = 2
    MTE3 = 3
    ALL = 4


# Plain integers for compiled code.
PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL = (int(p) for p in Pipe)

ALL_ARCHS = (1001, 2201, 3510)
SPLIT_ARCHS = (2201, 3510)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One row of the table."""

    opcode: int
    name: str
    """Function in ``emulator.isa``."""
    ascend_c: str
    mnemonic: str
    pipe: Pipe | None
    """None: the pipe is an operand (flags and barriers)."""
    archs: tuple[int, ...]
    """NpuArch values that have it."""
    doc: str


INSTRUCTIONS: dict[int, Instruction] = {}
"""All instructions by opcode; complete once ``emulator.isa`` is imported."""


def instruction(
    opcode: int, ascend_c: str, mnemonic: str, pipe: Pipe | None, archs: tuple[int, ...] = ALL_ARCHS
) -> Callable[[F], F]:
    """Register and compile one instruction. Its last parameter is ``line``, which ``aicore`` fills in."""

    def register(function: F) -> F:
        if opcode in INSTRUCTIONS or not 0 < opcode < OPCODES:
            raise ValueError(f"opcode {opcode} of {function.__name__} is taken or outside 1..{OPCODES - 1}")
        INSTRUCTIONS[opcode] = Instruction(
            opcode=opcode,
            name=function.__name__,
            ascend_c=ascend_c,
            mnemonic=mnemonic,
            pipe=pipe,
            archs=archs,
            doc=(function.__doc__ or "").strip(),
        )
        instruction_names.add(function.__name__)
        compiled: F = njit(function)
        return compiled

    return register
