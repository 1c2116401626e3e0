"""UB bank conflicts of one vector instruction, from its addresses and strides (facts 1.4).

NpuArch 2201: address = [BANK 2 | DEPTH 7 | GROUP 4 | WIDTH 5]. In one beat a group serves one read row and one
written row, and a bank either. NpuArch 3510: [DEPTH 9 | BANK 1 | GROUP 3 | WIDTH 5]; a group has two ports: two
reads, or a read and a write. NpuArch 1001 has the ini's 64 banks of 4 KiB in 16 groups: the 2201 map with one
more bank per group.
"""

from __future__ import annotations

import numpy as np

from emulator.jit import njit

BLOCKS = 8
"""Data blocks of one repeat."""


@njit
def beats_per_repeat(
    arch: int, dst: int, src0: int, src1: int, blk: np.ndarray, rep: np.ndarray, blocks: int, dst_blocks: int
) -> float:
    """Beats one repeat takes, at least 1; halves occur where two repeats share a beat.

    dst, src0, src1: UB byte addresses, -1 for none; blk, rep: (3,) block and repeat strides of dst, src0, src1
    in 32-byte blocks; blocks: data blocks read per repeat; dst_blocks: written. The first two repeats stand for all.
    """
    groups = 8 if arch == 3510 else 16
    reads = np.zeros((2, 16), np.int64)
    writes = np.zeros((2, 16), np.int64)
    used = np.zeros((16, 4), np.int64)
    seen = np.empty(2 * BLOCKS, np.int64)
    for r in range(2):
        count = 0
        for operand in range(3):
            base = (dst, src0, src1)[operand]
            if base < 0:
                continue
            for b in range(dst_blocks if operand == 0 else blocks):
                row = (base >> 5) + r * rep[operand] + b * blk[operand]
                group = row % groups
                if operand == 0:
                    writes[r, group] += 1
                else:
                    twice = False
                    for k in range(count):
                        if seen[k] == row:
                            twice = True
                    if twice:
                        continue  # one row read once serves both operands
                    seen[count] = row
                    count += 1
                    reads[r, group] += 1
                used[group, (row >> 11) & 3] += 1
    most = 1.0
    for group in range(groups):
        if arch == 3510:
            both = reads[0, group] + writes[0, group] + reads[1, group] + writes[1, group]
            most = max(most, both / 4.0, (writes[0, group] + writes[1, group]) / 2.0)
        else:
            for r in range(2):
                most = max(most, float(reads[r, group]), float(writes[r, group]))
            for bank in range(4):
                most = max(most, used[group, bank] / 2.0)
    return most
