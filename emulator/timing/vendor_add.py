"""The Add example of the vendor's performance guide as an event stream: z = x + y on 8192 x 8192 halves.

asc-devkit examples/01_simd_cpp_api/00_vector_compute/add_high_performance/README.md (facts 4.3). Its measured
times are what the memory parameters of NpuArch 2201 were fitted to. The instruction set here has no fp16 Add, so
the records are made directly: 128 elements per repeat, 2 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.core import OPCODES
from emulator.events import EVENT
from emulator.isa.copy import OP_COPY_IN, OP_COPY_OUT
from emulator.isa.scalar import OP_INIT_BUFFER
from emulator.isa.sync import MTE2_V, MTE3_V, OP_SET_FLAG, OP_WAIT_FLAG, V_MTE2, V_MTE3
from emulator.isa.table import PIPE_MTE2, PIPE_MTE3, PIPE_S, PIPE_V
from emulator.isa.vector import OP_ADD
from emulator.launch import Run
from emulator.memory import GM_BASE
from emulator.products import Product

ELEMENTS = 8192 * 8192
HALF = 2


@dataclass(frozen=True, kw_only=True)
class AddCase:
    """One row of the published table; times in us."""

    cores: int
    copy_bytes: int
    buffers: int
    task: float
    aiv: float
    vec: float
    mte2: float
    mte3: float


PUBLISHED = {
    1: AddCase(cores=1, copy_bytes=8192, buffers=1, task=6909.6, aiv=6909.14, vec=761.65, mte2=6208.76, mte3=2613.2),
    2: AddCase(cores=48, copy_bytes=8192, buffers=1, task=306.58, aiv=297.14, vec=15.885, mte2=215.485, mte3=54.33),
    3: AddCase(cores=48, copy_bytes=32768, buffers=1, task=268.5, aiv=261.5, vec=12.845, mte2=184.369, mte3=57.354),
    4: AddCase(cores=48, copy_bytes=32768, buffers=2, task=264.02, aiv=257.56, vec=12.846, mte2=250.528, mte3=84.988),
}


def add_run(product: Product, *, cores: int, copy_bytes: int, buffers: int) -> Run:
    """The events of Add on ``cores`` cores with copies of ``copy_bytes`` and 1 or 2 buffers per operand.

    Buffers lie one after another as InitBuffer hands them out: x, y, z, each with its second one behind it.
    """
    tile = copy_bytes // HALF
    tiles = ELEMENTS // tile
    rows: list[NDArray[Any]] = []
    counts = np.zeros((cores, OPCODES, 3), np.int64)
    for core in range(cores):
        first, last = tiles * core // cores, tiles * (core + 1) // cores
        stream = _core_stream(core, first, last, copy_bytes, buffers)
        for op in np.unique(stream["opcode"]):
            of = stream[stream["opcode"] == op]
            counts[core, op] = len(of), of["repeats"].sum(), of["bytes"].sum()
        rows.append(stream)
    size = ELEMENTS * HALF
    return Run(
        kernel="add_half",
        path=__file__,
        product=product,
        blocks=cores,
        schedule="synthetic",
        counts=counts,
        buffers=(),
        sync_rounds=0,
        gm={"x": (GM_BASE, size), "y": (GM_BASE + size, size), "z": (GM_BASE + 2 * size, size)},
        events=np.concatenate(rows),
    )


def _core_stream(core: int, first: int, last: int, copy_bytes: int, buffers: int) -> NDArray[Any]:
    """Copy in twice, add, copy out, tile after tile; flags as TQue sets them."""
    tile = np.zeros(last - first, [("n", np.int64), ("id", np.int64)])
    tile["n"] = np.arange(first, last)
    tile["id"] = np.arange(last - first) % buffers
    again = np.arange(last - first) >= buffers
    step = buffers * copy_bytes
    ub = tile["id"] * copy_bytes
    gm = GM_BASE + tile["n"] * copy_bytes
    size = ELEMENTS * HALF
    repeats = copy_bytes // 256

    def rows(op: int, pipe: int, line: int, **fields: Any) -> NDArray[Any]:
        out = np.zeros(len(tile), EVENT)
        out["core"], out["opcode"], out["pipe"], out["line"], out["tile"] = core, op, pipe, line, tile["n"]
        out["flag"] = out["dst"] = out["src0"] = out["src1"] = -1
        for name, value in fields.items():
            out[name] = value
        return out

    def flag(op: int, pipe: int, event: int, line: int) -> NDArray[Any]:
        return rows(op, pipe, line, flag=8 * event + tile["id"])

    moved = {"bytes": copy_bytes, "repeats": 1, "mask": copy_bytes}
    columns = [
        (flag(OP_WAIT_FLAG, PIPE_MTE2, V_MTE2, 1), again),
        (rows(OP_COPY_IN, PIPE_MTE2, 2, dst=ub, src0=gm, **moved), None),
        (rows(OP_COPY_IN, PIPE_MTE2, 3, dst=step + ub, src0=gm + size, **moved), None),
        (flag(OP_SET_FLAG, PIPE_MTE2, MTE2_V, 4), None),
        (flag(OP_WAIT_FLAG, PIPE_V, MTE2_V, 5), None),
        (flag(OP_WAIT_FLAG, PIPE_V, MTE3_V, 6), again),
        (
            rows(
                OP_ADD, PIPE_V, 7, dst=2 * step + ub, src0=ub, src1=step + ub, bytes=copy_bytes, repeats=repeats,
                mask=128, blk=1, rep=8,
            ),
            None,
        ),
        (flag(OP_SET_FLAG, PIPE_V, V_MTE2, 8), None),
        (flag(OP_SET_FLAG, PIPE_V, V_MTE3, 9), None),
        (flag(OP_WAIT_FLAG, PIPE_MTE3, V_MTE3, 10), None),
        (rows(OP_COPY_OUT, PIPE_MTE3, 11, dst=gm + 2 * size, src0=2 * step + ub, **moved), None),
        (flag(OP_SET_FLAG, PIPE_MTE3, MTE3_V, 12), None),
    ]  # fmt: skip
    keep = np.stack([np.ones(len(tile), bool) if mask is None else mask for _, mask in columns], axis=1)
    body = np.stack([column for column, _ in columns], axis=1)[keep]
    setup = np.zeros(3, EVENT)
    setup["core"], setup["opcode"], setup["pipe"], setup["tile"] = core, OP_INIT_BUFFER, PIPE_S, -1
    setup["flag"] = setup["src0"] = setup["src1"] = -1
    setup["dst"], setup["bytes"] = np.arange(3) * step, step
    return np.concatenate([setup, body])
