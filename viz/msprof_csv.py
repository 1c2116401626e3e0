"""CSV files with msprof's names and columns (facts 5.1): what a reader of real profiles expects.

Columns of units that a pure vector operator does not use (``aic_*``) and of counters the model does not have
(instruction cache, scalar dual issue) are left out rather than filled with zeros.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from emulator.isa.table import PIPE_MTE2, PIPE_MTE3, PIPE_S, PIPE_V
from emulator.isa.vector import OP_CAST
from emulator.timing import Timeline, Utilisation, utilisation
from emulator.timing.costs import READ, VECTOR, WRITE
from emulator.timing.utilisation import BARRIERS, DATA, FLAG, QUEUE_FULL, operations

Rows = list[list[object]]


def _us(ps: int) -> str:
    """Picoseconds as microseconds, exactly."""
    return f"{int(ps) // 1_000_000}.{int(ps) % 1_000_000:06d}"


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.6f}" if whole else "0.000000"


def msprof_tables(step: str, timeline: Timeline) -> dict[str, Rows]:
    """File name to rows, the heading first; one row per block, as msprof op writes them."""
    u = utilisation(timeline)
    run = timeline.run
    clock = f"{run.product.clock_mhz:g}"
    basic: Rows = [
        [
            "Op Name", "Op Type", "Task Duration(us)", "Block Dim", "Mix Block Dim", "Device ID", "PID", "Current Freq",
            "Rated Freq",
        ],
        [step, run.kernel, _us(timeline.makespan), run.blocks, "", 0, 0, clock, clock],
    ]  # fmt: skip
    return {
        "OpBasicInfo.csv": basic,
        "PipeUtilization.csv": _pipes(timeline, u),
        "ArithmeticUtilization.csv": _arithmetic(timeline, u),
        "Memory.csv": _memory(timeline, u),
        "ResourceConflictRatio.csv": _conflicts(timeline, u),
    }


def as_csv(rows: Rows) -> str:
    """The text of one file."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _blocks(timeline: Timeline) -> Sequence[tuple[list[object], int]]:
    """(block_id, sub_block_id) and ps of every block."""
    spans = timeline.core_end - timeline.core_start
    sub = 1 if timeline.run.product.npu_arch == 1001 else 2
    return [([c, f"vector{c % sub}"], int(spans[c])) for c in range(timeline.run.blocks)]


def _pipes(timeline: Timeline, u: Utilisation) -> Rows:
    rows: Rows = [
        [
            "block_id", "sub_block_id", "aiv_time(us)", "aiv_total_cycles", "aiv_vec_time(us)", "aiv_vec_ratio",
            "aiv_scalar_time(us)", "aiv_scalar_ratio", "aiv_scalar_wait_time(us)", "aiv_scalar_stall_time(us)",
            "aiv_mte2_time(us)", "aiv_mte2_ratio", "aiv_mte3_time(us)", "aiv_mte3_ratio",
            "aiv_mte2_active_bw(GB/s)", "aiv_mte3_active_bw(GB/s)",
        ]
    ]  # fmt: skip
    busy = [u.busy(p) for p in range(4)]
    for c, (ids, span) in enumerate(_blocks(timeline)):
        cycles = round(span * timeline.run.product.clock_mhz / 1e6)
        wait = u.parts[c, PIPE_S, DATA] + u.parts[c, PIPE_S, FLAG] + u.parts[c, PIPE_S, BARRIERS]
        row: list[object] = [*ids, _us(span), cycles]
        row += [
            _us(busy[PIPE_V][c]),
            _ratio(busy[PIPE_V][c], span),
            _us(busy[PIPE_S][c]),
            _ratio(busy[PIPE_S][c], span),
        ]
        row += [_us(wait), _us(u.parts[c, PIPE_S, QUEUE_FULL])]
        for p in (PIPE_MTE2, PIPE_MTE3):
            row += [_us(busy[p][c]), _ratio(busy[p][c], span)]
        row += [_rate(u.read_bytes[c], busy[PIPE_MTE2][c]), _rate(u.written_bytes[c], busy[PIPE_MTE3][c])]
        rows.append(row)
    return rows


def _rate(size: float, ps: float) -> str:
    """GB/s."""
    return f"{size / ps * 1000:.3f}" if ps else "0.000"


def _arithmetic(timeline: Timeline, u: Utilisation) -> Rows:
    rows: Rows = [
        ["block_id", "sub_block_id", "aiv_vec_fp32_ratio", "aiv_vec_fp16_ratio", "aiv_vec_misc_ratio", "aiv_vec_fops"]
    ]
    run, costs, times = timeline.run, timeline.costs, timeline.times
    events = run.events
    assert events is not None
    half = run.kernel.endswith("_half")
    spans = np.where(costs.kind == VECTOR, times.end - times.start, 0)
    misc = np.bincount(events["core"], spans * (events["opcode"] == OP_CAST), run.blocks)
    rest = np.bincount(events["core"], spans * (events["opcode"] != OP_CAST), run.blocks)
    for c, (ids, span) in enumerate(_blocks(timeline)):
        mine = slice(timeline.streams.first[c], timeline.streams.first[c + 1])
        fp32, fp16 = (0.0, rest[c]) if half else (rest[c], 0.0)
        fops = operations(events[mine], costs.kind[mine])
        rows.append([*ids, _ratio(fp32, span), _ratio(fp16, span), _ratio(misc[c], span), fops])
    return rows


def _memory(timeline: Timeline, u: Utilisation) -> Rows:
    rows: Rows = [
        [
            "block_id", "sub_block_id", "aiv_ub_to_gm_bw(GB/s)", "aiv_gm_to_ub_bw(GB/s)", "aiv_main_mem_read_bw(GB/s)",
            "aiv_main_mem_write_bw(GB/s)", "aiv_mte2_instructions", "aiv_mte3_instructions",
            "read_main_memory_datas(KB)", "write_main_memory_datas(KB)", "GM_to_UB_datas(KB)", "UB_to_GM_datas(KB)",
            "GM_to_UB_bw_usage_rate(%)", "UB_to_GM_bw_usage_rate(%)",
        ]
    ]  # fmt: skip
    events, kind, moved = timeline.run.events, timeline.costs.kind, timeline.costs.moved
    assert events is not None
    n = timeline.run.blocks
    in_l2 = timeline.costs.in_l2 == 1
    counts = [np.bincount(events["core"], kind == k, n) for k in (READ, WRITE)]
    main = [np.bincount(events["core"], moved * ((kind == k) & ~in_l2), n) for k in (READ, WRITE)]
    r = timeline.rates
    for c, (ids, span) in enumerate(_blocks(timeline)):
        read, written = int(u.read_bytes[c]), int(u.written_bytes[c])
        rows.append(
            [
                *ids, _rate(written, span), _rate(read, span), _rate(main[0][c], span), _rate(main[1][c], span),
                int(counts[0][c]), int(counts[1][c]), f"{main[0][c] / 1024:.3f}", f"{main[1][c] / 1024:.3f}",
                f"{read / 1024:.3f}", f"{written / 1024:.3f}",
                f"{100 * read / max(span * r.read_rate, 1):.3f}", f"{100 * written / max(span * r.write_rate, 1):.3f}",
            ]
        )  # fmt: skip
    return rows


def _conflicts(timeline: Timeline, u: Utilisation) -> Rows:
    """Bank conflicts as the share of the core's time spent on beats beyond the first of each repeat."""
    rows: Rows = [
        ["block_id", "sub_block_id", "aiv_vec_total_cflt_ratio", "aiv_vec_bankgroup_cflt_ratio", "aiv_vec_wait_ratio",
         "aiv_mte2_wait_ratio", "aiv_mte3_wait_ratio"]
    ]  # fmt: skip
    events = timeline.run.events
    assert events is not None
    lost = conflict_ps(timeline)
    for c, (ids, span) in enumerate(_blocks(timeline)):
        waits = [int(u.parts[c, p, DATA : FLAG + 1].sum()) for p in (PIPE_V, PIPE_MTE2, PIPE_MTE3)]
        rows.append([*ids, _ratio(lost[c], span), _ratio(lost[c], span), *(_ratio(w, span) for w in waits)])
    return rows


def conflict_ps(timeline: Timeline) -> np.ndarray:
    """(cores,) ps that bank conflicts cost: beats of a repeat beyond what the instruction needs anyway."""
    from emulator.timing.costs import vector_table

    events, costs = timeline.run.events, timeline.costs
    assert events is not None
    slope = vector_table(timeline.parameters)[:, 1][events["opcode"]]
    extra = np.maximum(costs.beats - np.maximum(slope, 1.0), 0) * events["repeats"] * timeline.rates.cycle
    return np.bincount(events["core"], np.where(costs.kind == VECTOR, extra, 0), timeline.run.blocks)
