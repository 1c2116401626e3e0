"""What each event costs by itself, before anything is shared: one pass over the records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.isa.copy import OP_COPY_IN, OP_COPY_OUT, OP_COPY_PAD_IN, OP_COPY_PAD_OUT, OP_NDDMA_IN
from emulator.isa.reduce import OP_BLOCK_REDUCE_SUM, OP_REG_REDUCE_SUM, OP_WHOLE_REDUCE_SUM
from emulator.isa.scalar import OP_INIT_BUFFER
from emulator.isa.sync import OP_PIPE_BARRIER, OP_SET_FLAG, OP_SYNC_ALL, OP_WAIT_FLAG
from emulator.isa.table import INSTRUCTIONS, PIPE_ALL, PIPE_V
from emulator.isa.vector import OP_ADD_REPEAT
from emulator.jit import njit
from emulator.timing.banks import beats_per_repeat
from emulator.timing.parameters import TimingParameters

VECTOR, READ, WRITE, SET, WAIT, BARRIER, SYNC, SCALAR = range(8)
"""Kinds of events."""

ROWS_LOOKED_AT = 16
"""Rows of a strided copy whose packets are counted; the others are taken to be like them."""


class Rates(NamedTuple):
    """The parameters as compiled code reads them; times in ps, sizes in bytes, rates in bytes per ps."""

    arch: int
    cycle: float
    issue: int
    flag: int
    pipe_all: int
    scalar_access: int
    init_buffer: int
    core_init: int
    sync_all: int
    launch: int
    skew: int
    finish: int
    read_fixed: int
    read_l2_fixed: int
    write_fixed: int
    row: int
    read_rate: float
    read_l2_rate: float
    write_rate: float
    packet: int
    align: int
    unaligned: float
    depth: int
    hbm: float
    l2: float
    overhead: float
    write_weight: float
    forced_share: float
    write_buffer: float


class Costs(NamedTuple):
    """Per event: kind; ps alone (``nominal``); ps until the next may start (``occupied``); beats per repeat;
    bytes the memory handles (packets); work on the shared memory; 1 when L2 serves it.
    """

    kind: NDArray[np.int8]
    nominal: NDArray[np.int64]
    occupied: NDArray[np.int64]
    beats: NDArray[np.float64]
    moved: NDArray[np.int64]
    work: NDArray[np.float64]
    in_l2: NDArray[np.int8]


def rates_of(p: TimingParameters, arch: int, cores: int) -> Rates:
    """Parameters in picoseconds and bytes per picosecond."""
    cycle = 1e6 / p["clock_mhz"]

    def cycles(name: str) -> int:
        return round(p[name] * cycle)

    def us(name: str) -> int:
        return round(p[name] * 1e6)

    skew = round(p["start_skew_ns"] * 1e3)
    return Rates(
        arch=arch,
        cycle=cycle,
        issue=cycles("issue_cycles"),
        flag=cycles("flag_cycles"),
        pipe_all=round(p["pipe_all_ns"] * 1e3),
        scalar_access=cycles("scalar_access_cycles"),
        init_buffer=cycles("init_buffer_cycles"),
        core_init=us("core_init_us"),
        sync_all=us("sync_all_us"),
        launch=us("launch_us"),
        skew=skew,
        finish=max(us("launch_us_per_core") - skew, 0) * (cores - 1),
        read_fixed=cycles("mte2_fixed_cycles"),
        read_l2_fixed=cycles("mte2_l2_fixed_cycles"),
        write_fixed=cycles("mte3_fixed_cycles"),
        row=cycles("row_cycles"),
        read_rate=p["ddr_bytes_per_cycle"] / cycle,
        read_l2_rate=p["l2_read_bytes_per_cycle"] / cycle,
        write_rate=p["mte3_bytes_per_cycle"] / cycle,
        packet=int(p["packet_bytes"]),
        align=int(p["align_bytes"]),
        unaligned=p["unaligned_efficiency"],
        depth=int(p["queue_depth"]),
        hbm=p["hbm_gbps"] * p["hbm_efficiency"] / 1e3,
        l2=p["l2_gbps"] / 1e3,
        overhead=p["hbm_copy_overhead_bytes"],
        write_weight=p["hbm_write_weight"],
        forced_share=p["hbm_forced_write_share"],
        write_buffer=p["write_buffer_kib"] * 1024,
    )


def vector_table(p: TimingParameters) -> NDArray[np.float64]:
    """(opcodes, 2): fixed cycles and cycles per repeat of every vector instruction."""
    table = np.zeros((max(INSTRUCTIONS) + 1, 2))
    for opcode, row in INSTRUCTIONS.items():
        name = "add" if opcode == OP_ADD_REPEAT else row.name
        if row.pipe == PIPE_V:
            table[opcode] = p[f"{name}_fixed_cycles"], p[f"{name}_slope_cycles"]
    return table


@njit
def packets(address: int, rows: int, length: int, pitch: int, packet: int) -> int:
    """Bytes of all packets that ``rows`` pieces of ``length`` bytes, ``pitch`` apart, touch."""
    if rows <= 0 or length <= 0:
        return 0
    if pitch == length:
        length, rows = length * rows, 1
    looked = min(rows, ROWS_LOOKED_AT)
    total = 0
    for r in range(looked):
        first = address + r * pitch
        total += ((first + length - 1) // packet - first // packet + 1) * packet
    return total * rows // looked


@njit
def _vector(e, r: Rates, table: NDArray[np.float64]):  # type: ignore[no-untyped-def]  # a record
    """(nominal, occupied, beats) of a vector instruction."""
    opcode, lanes = e["opcode"], e["mask"]
    blocks = min(8, (lanes + 7) // 8)
    if lanes > 64:
        blocks = 8
    written = blocks
    if opcode in (OP_WHOLE_REDUCE_SUM, OP_REG_REDUCE_SUM, OP_BLOCK_REDUCE_SUM):
        written = 1
    beats = beats_per_repeat(r.arch, e["dst"], e["src0"], e["src1"], e["blk"], e["rep"], blocks, written)
    work = e["repeats"] * max(table[opcode, 1], beats) * r.cycle
    return round(table[opcode, 0] * r.cycle + work), round(work), beats


@njit
def _copy(e, r: Rates, read: bool, hit: bool):  # type: ignore[no-untyped-def]
    """(nominal, packet bytes) of a copy that shares nothing."""
    address = e["src0"] if read else e["dst"]
    rows, length, pitch = e["repeats"], e["mask"], e["mask"] + e["src1"]
    if e["opcode"] == OP_COPY_IN or e["opcode"] == OP_COPY_OUT:
        pitch = length
    elif e["opcode"] == OP_NDDMA_IN:
        pitch = max(e["src1"], length)
    size = packets(address, rows, length, pitch, r.packet)
    rate = (r.read_l2_rate if hit else r.read_rate) if read else r.write_rate
    if address % r.align or (rows > 1 and pitch != length and pitch % r.align):
        rate *= r.unaligned
    fixed = (r.read_l2_fixed if hit else r.read_fixed) if read else r.write_fixed
    extra = r.row * (rows - 1) if pitch != length else 0
    return round(fixed + extra + size / rate), size


@njit
def event_costs(events, r: Rates, table, resident, drains: bool) -> Costs:  # type: ignore[no-untyped-def]
    """Costs of all records; resident: (k, 2) GM ranges that L2 holds; drains: writes go on to HBM."""
    n = len(events)
    kind, in_l2 = np.zeros(n, np.int8), np.zeros(n, np.int8)
    nominal, occupied, moved = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    beats, work = np.zeros(n), np.zeros(n)
    for i in range(n):
        e = events[i]
        op = e["opcode"]
        if op in (OP_SET_FLAG, OP_WAIT_FLAG):
            kind[i] = SET if op == OP_SET_FLAG else WAIT
            nominal[i] = r.flag
        elif op == OP_PIPE_BARRIER:
            kind[i] = BARRIER
            nominal[i] = r.pipe_all if e["pipe"] == PIPE_ALL else r.flag
        elif op == OP_SYNC_ALL:
            kind[i] = SYNC
            nominal[i] = r.sync_all
        elif e["pipe"] == PIPE_V:
            kind[i] = VECTOR
            nominal[i], occupied[i], beats[i] = _vector(e, r, table)
        elif e["pipe"] == 0:
            kind[i] = SCALAR
            nominal[i] = r.init_buffer if op == OP_INIT_BUFFER else r.scalar_access
        else:
            read = op in (OP_COPY_IN, OP_COPY_PAD_IN, OP_NDDMA_IN)
            kind[i] = READ if read else WRITE
            address = e["src0"] if read else e["dst"]
            hit = False
            for k in range(len(resident)):
                hit = hit or (resident[k, 0] <= address < resident[k, 1])
            nominal[i], moved[i] = _copy(e, r, read, hit)
            if hit or (not read and not drains):
                in_l2[i] = 1
                work[i] = moved[i]
            else:
                work[i] = (moved[i] + r.overhead) * (1.0 if read else r.write_weight)
            work[i] = max(work[i], 1.0)
            nominal[i] = max(nominal[i], 1)
    return Costs(kind, nominal, occupied, beats, moved, work, in_l2)


COPY_OPCODES = (OP_COPY_IN, OP_COPY_OUT, OP_COPY_PAD_IN, OP_COPY_PAD_OUT, OP_NDDMA_IN)
