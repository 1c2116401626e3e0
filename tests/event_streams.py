"""Random but valid event streams, written record by record and without the code under test."""

import numpy as np

from emulator import products
from emulator.core import OPCODES
from emulator.events import EVENT
from emulator.launch import Run
from emulator.memory import GM_BASE

COPY_IN, COPY_OUT, ADD, SET, WAIT, BAR, SYNC, INIT, CADD = 13, 14, 1, 18, 19, 20, 21, 22, 9
S, V, MTE2, MTE3, ALL = range(5)
MTE2_V, V_MTE2, V_MTE3, MTE3_V = range(4)


def row(core, op, pipe, tile=0, flag=-1, dst=-1, src0=-1, src1=-1, nbytes=0, repeats=0, mask=0, blk=(1, 1, 1)):
    e = np.zeros(1, EVENT)
    e["core"], e["opcode"], e["pipe"], e["tile"], e["flag"] = core, op, pipe, tile, flag
    e["dst"], e["src0"], e["src1"], e["bytes"], e["repeats"], e["mask"] = dst, src0, src1, nbytes, repeats, mask
    e["blk"], e["rep"] = blk, (8, 8, 8)
    return e


def make_run(rows, blocks, product="Ascend910B1", gm_bytes=1 << 30):
    events = np.concatenate(rows) if rows else np.zeros(0, EVENT)
    counts = np.zeros((blocks, OPCODES, 3), np.int64)
    for e in events:
        counts[e["core"], e["opcode"]] += 1, e["repeats"], e["bytes"]
    return Run(
        kernel="test",
        path="test.py",
        product=products.get(product),
        blocks=blocks,
        schedule="test",
        counts=counts,
        buffers=(),
        sync_rounds=0,
        gm={"x": (GM_BASE, gm_bytes), "y": (GM_BASE + gm_bytes, gm_bytes)},
        events=events,
    )


def tile_rows(core, tile, buffers, first, last, size, repeats, reduce=False, barrier=False, gm_bytes=1 << 30):
    """Copy in, one vector instruction, copy out, with the flags of TQue; ``first`` and ``last`` of its buffer."""
    b = tile % buffers
    at = GM_BASE + (tile * size) % (gm_bytes - size)
    out = []
    if not first:
        out += [row(core, WAIT, MTE2, tile, 8 * V_MTE2 + b)]
    out += [row(core, COPY_IN, MTE2, tile, dst=0, src0=at, nbytes=size, repeats=1, mask=size)]
    out += [row(core, SET, MTE2, tile, 8 * MTE2_V + b), row(core, WAIT, V, tile, 8 * MTE2_V + b)]
    if not first:
        out += [row(core, WAIT, V, tile, 8 * MTE3_V + b)]
    op = CADD if reduce else ADD
    out += [row(core, op, V, tile, dst=65536, src0=0, src1=-1 if reduce else 512, repeats=repeats, mask=64)]
    if barrier:
        out += [row(core, BAR, V, tile), row(core, ADD, V, tile, dst=65536, src0=0, src1=0, repeats=1, mask=64)]
    out += [row(core, SET, V, tile, 8 * V_MTE2 + b), row(core, SET, V, tile, 8 * V_MTE3 + b)]
    out += [row(core, WAIT, MTE3, tile, 8 * V_MTE3 + b)]
    out += [row(core, COPY_OUT, MTE3, tile, dst=at + gm_bytes, src0=65536, nbytes=size, repeats=1, mask=size)]
    out += [row(core, SET, MTE3, tile, 8 * MTE3_V + b)]
    if last:
        out += [row(core, WAIT, MTE2, tile, 8 * V_MTE2 + b), row(core, WAIT, V, tile, 8 * MTE3_V + b)]
    return out
