"""Any order of additions as two arrays of children, and one compiled evaluator for all of them.

`AdditionTree` describes the operator's own order with its batches; `Order` is the plain form that every other
order (sequential, NumPy's, a CUDA block's) has too. Nodes stand after their children.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.formats import RoundMode, bfloat16_to_single, half_to_single, round_to_bfloat16, round_to_half
from emulator.jit import njit
from ops.reduce_sum.tree import PAD, AdditionTree

Ids = NDArray[np.int32]
F32 = NDArray[np.float32]

SINGLE, HALF, BFLOAT16 = range(3)
KINDS = {"float32": SINGLE, "float16": HALF, "bfloat16": BFLOAT16}
"""Formats an accumulator can have, as compiled code numbers them."""
WARP, BLOCK_THREADS = 32, 512


@dataclass(frozen=True, kw_only=True)
class Order:
    """All additions of ``leaves`` terms, children before parents.

    left, right: children; a node is its number, term p is -2 - p, a +0 is -1. stage: index into ``names`` of
    each node. narrow: nodes whose right operand is rounded to the IO format first; None when there is none.
    """

    leaves: int
    left: Ids
    right: Ids
    stage: NDArray[np.int8]
    names: tuple[str, ...]
    root: int
    narrow: NDArray[np.bool_] | None = None

    @property
    def height(self) -> int:
        """Additions of data between the deepest term and the sum; adding a +0 is exact and does not count."""
        return int(_height(self.left, self.right, self.root)) if self.root >= 0 else 0


@njit
def _height(left: Ids, right: Ids, root: int) -> int:
    depth = np.full(left.size, -1, np.int64)  # -1: pads only
    for v in range(left.size):
        a = depth[left[v]] if left[v] >= 0 else (0 if left[v] < -1 else -1)
        b = depth[right[v]] if right[v] >= 0 else (0 if right[v] < -1 else -1)
        depth[v] = max(a, b) + (1 if min(a, b) >= 0 else 0)
    return depth[root]


@njit
def rounded(x: np.float32, kind: int) -> np.float32:
    """A fp32 number rounded once to fp16 or bf16 (still as fp32)."""
    if kind == HALF:
        return half_to_single(round_to_half(x, RoundMode.RINT, False))
    if kind == BFLOAT16:
        return bfloat16_to_single(round_to_bfloat16(x, RoundMode.RINT, False))
    return np.float32(x)


@njit(nogil=True)
def evaluate(
    left: Ids, right: Ids, narrow: Any, terms: F32, kind: int, narrow_kind: int, values: F32, delta: Any, lost: Any
) -> int:
    """Every addition of an order: its value and its exact local errors. Returns the first node that is not finite.

    delta[v] = computed - exact sum of the operands; lost[v] = rounding of the right operand of narrow nodes.
    Both are exact in float64: the error of a rounded-to-nearest addition is a number of its format.
    narrow, lost: arrays of one element per node, or empty. Returns -1 when all is finite.
    """
    first = -1
    for v in range(left.size):
        i, j = left[v], right[v]
        a = values[i] if i >= 0 else (terms[-2 - i] if i < -1 else np.float32(0))
        b = values[j] if j >= 0 else (terms[-2 - j] if j < -1 else np.float32(0))
        if narrow.size and narrow[v]:
            n = rounded(b, narrow_kind)
            lost[v] = np.float64(n) - np.float64(b)
            b = n
        s = rounded(np.float32(a + b), kind)
        values[v] = s
        if np.isfinite(s):
            big, small = (a, b) if abs(a) >= abs(b) else (b, a)
            delta[v] = (np.float64(s) - np.float64(big)) - np.float64(small)
        else:
            delta[v] = np.nan
            if first < 0:
                first = v
    return first


@njit(nogil=True)
def total(left: Ids, right: Ids, narrow: Any, terms: F32, kind: int, narrow_kind: int, values: F32) -> np.float32:
    """The last value of `evaluate`, without errors."""
    for v in range(left.size):
        i, j = left[v], right[v]
        a = values[i] if i >= 0 else (terms[-2 - i] if i < -1 else np.float32(0))
        b = values[j] if j >= 0 else (terms[-2 - j] if j < -1 else np.float32(0))
        if narrow.size and narrow[v]:
            b = rounded(b, narrow_kind)
        values[v] = rounded(np.float32(a + b), kind)
    return values[left.size - 1]


def order_sum(order: Order, terms: F32, accumulator: str = "float32", io: str = "float32") -> np.float32:
    """The sum of fp32 ``terms`` in an order, accumulated in a format. (n,) in, fp32 out."""
    if order.root < 0:
        return np.float32(terms[-2 - order.root])
    values = np.empty(len(order.left), np.float32)
    narrow = np.empty(0, np.bool_) if order.narrow is None else order.narrow
    kinds = KINDS[accumulator], KINDS[io]
    total(order.left, order.right, narrow, terms, *kinds, values)
    return np.float32(values[order.root])


# ------------------------------------------------------------------ makers

LEVELS = {
    "tile pairing": "tile pairing",
    "fold to a power of two": "in-tile adds",
    "groups of 16": "in-tile adds",
    "halving": "in-tile adds",
    "blocks of 8 in turn": "in-tile adds",
    "pair tree in a register": "lane tree",
    "cache tree over tiles": "cache tree",
    "combine across cores": "core combine",
}
"""Stages of the operator's tree to the levels errors are reported by."""
PLAN_LEVELS = ("tile pairing", "in-tile adds", "lane tree", "cache tree", "core combine")


def of_tree(tree: AdditionTree) -> Order:
    """The operator's own tree, stages merged into PLAN_LEVELS."""
    stage = np.zeros(len(tree.left), np.int8)
    for name, first, last in tree.batches:
        stage[first:last] = PLAN_LEVELS.index(LEVELS[name])
    return Order(
        leaves=tree.leaves,
        left=tree.left.astype(np.int32),
        right=tree.right.astype(np.int32),
        stage=stage,
        names=PLAN_LEVELS,
        root=tree.root,
    )


class Maker:
    """Collects nodes; `add` takes and gives arrays of node numbers."""

    def __init__(self) -> None:
        self.left: list[Any] = []
        self.right: list[Any] = []
        self.stage: list[Any] = []
        self.narrow: list[Any] = []
        self.count = 0

    def add(self, stage: int, a: Any, b: Any, narrow: bool = False) -> Any:
        """Nodes a[i] + b[i]; ``narrow``: b is rounded to the IO format first."""
        a, b = np.atleast_1d(np.asarray(a, np.int32)), np.atleast_1d(np.asarray(b, np.int32))
        self.left.append(a)
        self.right.append(b)
        self.stage.append(np.full(a.size, stage, np.int8))
        self.narrow.append(np.full(a.size, narrow))
        self.count += a.size
        return np.arange(self.count - a.size, self.count, dtype=np.int32)

    def order(self, leaves: int, root: int, names: tuple[str, ...]) -> Order:
        """What was collected."""

        def joined(parts: list[Any], dtype: Any) -> Any:
            return np.concatenate([*parts, np.empty(0, dtype)]).astype(dtype)

        narrow = joined(self.narrow, np.bool_)
        return Order(
            leaves=leaves, left=joined(self.left, np.int32), right=joined(self.right, np.int32),
            stage=joined(self.stage, np.int8), names=names, root=root, narrow=narrow if narrow.any() else None,
        )  # fmt: skip


def sequential(n: int) -> Order:
    """((x0 + x1) + x2) + ..."""
    k = np.arange(max(n - 1, 0), dtype=np.int32)
    left = k - 1
    if n > 1:
        left[0] = -2
    stage = np.zeros(len(k), np.int8)
    return Order(
        leaves=n, left=left, right=(-3 - k).astype(np.int32), stage=stage, names=("in turn",),
        root=n - 2 if n > 1 else -2,
    )  # fmt: skip


NUMPY_LEVELS = ("8 lanes in turn", "lane tree", "rest in turn", "pairwise halves")


def numpy_pairwise(n: int) -> Order:
    """The order of ``np.add.reduce`` over a contiguous vector (numerics 6.5)."""
    make = Maker()

    def block(first: int, count: int) -> int:
        if count < 8:
            node, rest = -2 - first, range(first + 1, first + count)
        else:
            full = count - count % 8
            lanes = -2 - np.arange(first, first + 8)
            for i in range(8, full, 8):
                lanes = make.add(0, lanes, -2 - np.arange(first + i, first + i + 8))
            while len(lanes) > 1:
                lanes = make.add(1, lanes[0::2], lanes[1::2])
            node, rest = int(lanes[0]), range(first + full, first + count)
        for p in rest:
            node = int(make.add(2, node, -2 - p)[0])
        return node

    def part(first: int, count: int) -> int:
        if count <= 128:
            return block(first, count)
        half = count // 2
        half -= half % 8
        left = part(first, half)
        return int(make.add(3, left, part(first + half, count - half))[0])

    return make.order(n, part(0, n), NUMPY_LEVELS)


TORCH_LEVELS = ("thread in turn", "warp tree", "block tree")


def torch_block(rows: int, columns: int) -> Order:
    """One CUDA block of PyTorch's batch_norm_backward_reduce over a channel of ``rows`` x ``columns``.

    block_y = min(power of two <= rows, 16) threads walk the rows, block_x the columns (32 to 512 / block_y);
    then shuffle-down by 16, 8, 4, 2, 1 in each warp and over the warps' sums. Every shuffled operand is made a
    new Float2 from the IO format, which rounds it (pytorch issue 195701).
    """
    block_y = min(1 << (rows.bit_length() - 1), BLOCK_THREADS // WARP)
    wide = next((t for t in (32, 64, 128, 256) if columns <= t), BLOCK_THREADS)
    block_x = min(wide, BLOCK_THREADS // block_y)
    tx, ty = np.tile(np.arange(block_x), block_y), np.repeat(np.arange(block_y), block_x)
    make = Maker()
    current = np.full(block_x * block_y, PAD, np.int32)
    for row in range(0, rows, block_y):
        for column in range(0, columns, block_x):
            there = (row + ty < rows) & (column + tx < columns)
            leaf = -2 - ((row + ty) * columns + column + tx)
            current[there] = make.add(0, current[there], leaf[there])
    lanes = current.reshape(-1, WARP).T
    lanes = _shuffled(make, 1, lanes)
    warps = np.full((WARP, 1), PAD, np.int32)
    warps[: lanes.size, 0] = lanes
    return make.order(rows * columns, int(_shuffled(make, 2, warps)[0]), TORCH_LEVELS)


def _shuffled(make: Maker, stage: int, lanes: Any) -> Any:
    """Lane 0 of (32, warps) lanes after shuffle-down."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        shape = lanes[:half].shape
        lanes = make.add(stage, lanes[:half].reshape(-1), lanes[half:].reshape(-1), narrow=True).reshape(shape)
    return lanes[0]
