"""The addition tree of a black-box sum, found by mask probing (numerics 1).

Feed units everywhere but x_i = +M and x_j = -M, with M so large that a unit added to it is lost. The units that
survive are those added after +M and -M met, so ``result / unit = n - l_ij`` with l_ij the number of leaves
under the lowest common ancestor of i and j. All l_ij of one i split the leaves into groups that meet i's branch
one after the other; each group is then split in the same way.

Method: Xie et al., "Revealing Floating-Point Accumulation Orders in Software/Hardware Implementations", USENIX
ATC 2025. Blind spots: added +0 (pads), a + b against b + a, compensation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.errors import EmulatorError, explain
from ops.reduce_sum.order import Order, order_sum

Array = NDArray[Any]
BATCH_BYTES = 1 << 24
"""Probes of one call take at most so much memory."""


class RevealError(EmulatorError):
    """The callable cannot be probed: n too large, or it is no binary tree of additions."""


@dataclass(frozen=True, kw_only=True)
class Masks:
    """M, the unit, and the largest n they are good for (numerics 1)."""

    big: float
    unit: float
    limit: int
    reason: str


def _significand(name: str) -> int:
    return 53 if name == "float64" else formats.get(name).significand_bits


def masks_for(dtype: str, accumulator: str, output: str) -> Masks:
    """Masks for operands, accumulators and results of these formats (float64 too)."""
    limits = [(2 ** _significand(accumulator) + 2, f"counts in a {accumulator} accumulator")]
    limits.append((2 ** _significand(output) + 2, f"counts in the {output} result"))
    if "float16" in (dtype, accumulator):
        big, unit = 2.0**15, 2.0**-24
        # (n - 2) units must be lost beside M: at most half an ulp of M in the accumulator.
        lost = 2.0 ** (15 - _significand(accumulator)) / unit
        limits.append((int(lost) + 2, f"units lost beside 2**15 in {accumulator}"))
    else:
        big, unit = (2.0**1023, 1.0) if accumulator == "float64" and dtype == "float64" else (2.0**127, 1.0)
    limit, reason = min(limits)
    return Masks(big=big, unit=unit, limit=limit, reason=reason)


@dataclass(frozen=True, kw_only=True)
class RevealedTree:
    """A binary tree of additions over leaves 0 .. n - 1; children before parents, pads left out."""

    n: int
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    """Children: node number, or -2 - leaf. The child with the smaller first leaf is left."""
    probes: int = 0
    calls: int = 0

    @property
    def root(self) -> int:
        """The last node; leaf 0 when n is 1."""
        return self.n - 2 if self.n > 1 else -2

    @property
    def order(self) -> Order:
        """To evaluate it: `ops.reduce_sum.order.order_sum(tree.order, x)`."""
        return Order(
            leaves=self.n, left=self.left, right=self.right, stage=np.zeros(self.n - 1, np.int8), names=("addition",),
            root=self.root,
        )  # fmt: skip

    def evaluate(self, x: Array) -> np.float32:
        """fp32 sum of (n,) along the tree."""
        return order_sum(self.order, np.asarray(x, np.float32))

    def spans(self) -> tuple[Array, Array, Array]:
        """(first leaf, last leaf, number of leaves) of every node."""
        first, last, size = (np.zeros(self.n - 1, np.int64) for _ in range(3))
        for v, (a, b) in enumerate(zip(self.left.tolist(), self.right.tolist(), strict=True)):
            ends = [(first[c], last[c], size[c]) if c >= 0 else (-2 - c, -2 - c, 1) for c in (a, b)]
            first[v] = min(ends[0][0], ends[1][0])
            last[v] = max(ends[0][1], ends[1][1])
            size[v] = ends[0][2] + ends[1][2]
        return first, last, size

    def height(self) -> int:
        """Additions on the longest path."""
        return self.order.height

    def fingerprint(self) -> str:
        """sha256 of the canonical form: equal for equal trees only."""
        canonical = _canonical(self)
        return hashlib.sha256(f"{self.n};{canonical.tolist()}".encode()).hexdigest()

    def text(self, limit: int = 64) -> str:
        """As one expression; past ``limit`` leaves its shape in words."""
        if self.n > limit:
            return f"{self.n} leaves, height {self.height()}, sha256 {self.fingerprint()[:16]}"
        parts: list[str] = []
        for a, b in zip(self.left.tolist(), self.right.tolist(), strict=True):
            both = " + ".join(parts[c] if c >= 0 else f"x{-2 - c}" for c in (a, b))
            parts.append(f"({both})")
        return parts[-1][1:-1] if parts else "x0"


def _canonical(tree: RevealedTree) -> Array:
    """Nodes in an order that only depends on the tree, as (first leaf, size, size of left)."""
    first, _, size = tree.spans()
    left_size = [int(size[c]) if c >= 0 else 1 for c in tree.left.tolist()]
    rows = np.stack([first, size, np.array(left_size, np.int64)], axis=1) if tree.n > 1 else np.zeros((0, 3), np.int64)
    code, right_first = _codes(tree), [int(first[c]) if c >= 0 else -2 - c for c in tree.right.tolist()]
    table = np.column_stack([rows, np.array(right_first, np.int64).reshape(-1), code.view(np.int64)])
    return table[np.lexsort(table.T[::-1])] if tree.n > 1 else table


def _codes(tree: RevealedTree) -> NDArray[np.uint64]:
    """A number per node that stands for its set of leaves."""
    keys = np.random.default_rng(0x5EED).integers(1, 2**64, tree.n, dtype=np.uint64)
    out = np.zeros(max(tree.n - 1, 0), np.uint64)
    with np.errstate(over="ignore"):
        for v, (a, b) in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
            out[v] = (out[a] if a >= 0 else keys[-2 - a]) + (out[b] if b >= 0 else keys[-2 - b])
    return out


def first_difference(a: RevealedTree, b: RevealedTree) -> str:
    """The word "equal", or where the smallest different part of two trees over the same leaves begins."""
    if a.n != b.n:
        return f"different numbers of leaves: {a.n} and {b.n}"
    if a.n < 3 or a.fingerprint() == b.fingerprint():
        return "equal"
    codes, spans = (_codes(a), _codes(b)), a.spans()
    shape = [_shapes(t) for t in (a, b)]
    v, w = a.root, b.root
    while True:
        pairs = list(zip((a.left[v], a.right[v]), (b.left[w], b.right[w]), strict=True))
        down = None
        for x, y in pairs:
            same = (x < 0 and x == y) or (x >= 0 and y >= 0 and codes[0][x] == codes[1][y])
            if not same:
                down = None
                break
            if x >= 0 and shape[0][x] != shape[1][y] and down is None:
                down = (int(x), int(y))
        if down is None:
            return f"first difference at leaves {spans[0][v]}..{spans[1][v]}"
        v, w = down


def _shapes(tree: RevealedTree) -> list[int]:
    """A number per node that stands for its whole subtree."""
    out: list[int] = []
    for a, b in zip(tree.left.tolist(), tree.right.tolist(), strict=True):
        out.append(hash((out[a] if a >= 0 else a, out[b] if b >= 0 else b)))
    return out


def tree_of_order(order: Order) -> RevealedTree:
    """The tree of an explicit order, without pads and with canonical sides."""
    moved = np.full(len(order.left), -1, np.int64)  # what stands for a node: node, leaf (< -1) or nothing (-1)
    left: list[int] = []
    right: list[int] = []
    firsts: list[int] = []
    for v, (i, j) in enumerate(zip(order.left.tolist(), order.right.tolist(), strict=True)):
        a, b = (int(moved[c]) if c >= 0 else c for c in (i, j))
        if a == -1 or b == -1:
            moved[v] = b if a == -1 else a
            continue
        first_a, first_b = (firsts[c] if c >= 0 else -2 - c for c in (a, b))
        left.append(a if first_a < first_b else b)
        right.append(b if first_a < first_b else a)
        firsts.append(min(first_a, first_b))
        moved[v] = len(left) - 1
    return RevealedTree(n=order.leaves, left=np.array(left, np.int32), right=np.array(right, np.int32))


class _Prober:
    """Runs probes in batches and turns results into l_ij."""

    def __init__(self, function: Callable[[Array], Any], n: int, dtype: Any, masks: Masks, batch: int) -> None:
        self.function, self.n, self.dtype, self.masks, self.batch = function, n, dtype, masks, batch
        self.probes = self.calls = 0

    def measure(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """l_ij of each (i, j) row."""
        step = self.batch if self.batch > 1 else max(1, BATCH_BYTES // (8 * self.n))
        out = np.empty(len(pairs), np.int64)
        for start in range(0, len(pairs), step):
            part = pairs[start : start + step]
            rows = np.full((len(part), self.n), self.masks.unit).astype(self.dtype)
            k = np.arange(len(part))
            rows[k, part[:, 0]], rows[k, part[:, 1]] = self.masks.big, -self.masks.big
            if self.batch > 1:
                self.calls += 1
                results = np.asarray(self.function(rows)).astype(np.float64).reshape(-1)[: len(part)]
            else:
                self.calls += len(part)
                results = np.array([float(self.function(row)) for row in rows])
            self.probes += len(part)
            counts = results / self.masks.unit
            good = (counts == np.rint(counts)) & (counts >= 0) & (counts <= self.n - 2)  # NaN is not good
            if not good.all():
                bad = float(results[int(np.argmin(good))])
                raise _not_a_tree(f"{bad!r} for a mask pair", f"0 to {self.n - 2} units of {self.masks.unit!r}")
            out[start : start + step] = self.n - counts.astype(np.int64)
        return out


def _not_a_tree(got: str, allowed: str) -> RevealError:
    remedy = "it does not add all operands in one fixed binary tree (exact, multiway or changing order?)"
    return RevealError(explain("reveal_tree's callable", got=got, allowed=allowed, remedy=remedy))


def reveal_tree(
    function: Callable[[Array], Any],
    n: int,
    dtype: Any = "float32",
    *,
    accumulator: str | None = None,
    output: str | None = None,
    batch: int = 1,
    checks: int = 256,
    seed: int = 0,
) -> RevealedTree:
    """Recover the addition tree of a sum of ``n`` numbers that is only known as a callable.

    function: takes (n,) of ``dtype`` and returns the sum; with ``batch`` > 1 takes (k, n), k <= batch, and
    returns (k,) sums of independent channels that share one tree. dtype: float32, float64, float16, bfloat16.
    accumulator, output: formats it adds in and returns; default float32 (float64 for float64). checks: random
    pairs measured again at the end, which also finds orders that change from call to call.
    Raises RevealError: n past the exactness limit of these formats, or no fixed binary tree.
    """
    name = "float64" if np.dtype(_numpy(dtype)) == np.float64 else formats.get(dtype).name
    accumulator = accumulator or ("float64" if name == "float64" else "float32")
    masks = masks_for(name, accumulator, output or accumulator)
    if not 1 <= n <= masks.limit:
        raise RevealError(
            explain(
                "reveal_tree's n", got=n, allowed=f"1 to {masks.limit} ({masks.reason})", remedy="probe a smaller sum"
            )
        )
    prober = _Prober(function, n, _numpy(dtype), masks, batch)
    tree = _build(prober, n, np.random.default_rng(seed))
    done = RevealedTree(n=n, left=tree[0], right=tree[1], probes=prober.probes, calls=prober.calls)
    if n > 1:
        _check(prober, done, checks, seed)
    return done


def _numpy(dtype: Any) -> Any:
    return np.float64 if dtype in ("float64", np.float64) else formats.get(dtype).dtype


def _build(prober: _Prober, n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Split sets of leaves, all of one round in one batch, then number the nodes."""
    groups: dict[int, tuple[int, list[int]]] = {}  # set -> (pivot leaf, sets that join its branch, first to last)
    pending: list[tuple[int, NDArray[np.int64]]] = [(0, np.arange(n))]
    members, created = {0: n}, 1
    while pending:
        pivots = [int(random.choice(leaves)) for _, leaves in pending]
        pairs = [
            np.column_stack([np.full(len(leaves) - 1, pivot), leaves[leaves != pivot]])
            for (_, leaves), pivot in zip(pending, pivots, strict=True)
        ]
        measured = prober.measure(np.concatenate(pairs))
        at, following = 0, []
        for (key, leaves), pivot in zip(pending, pivots, strict=True):
            others = leaves[leaves != pivot]
            sizes = measured[at : at + len(others)]
            at += len(others)
            joined, size = [], 1
            for value in np.unique(sizes):
                group = others[sizes == value]
                size += len(group)
                if size != value:
                    raise _not_a_tree(f"{int(value)} leaves under leaf {pivot} and {int(group[0])}", f"{size}")
                joined.append(created)
                members[created] = len(group)
                if len(group) == 1:
                    groups[created] = (int(group[0]), [])
                else:
                    following.append((created, group))
                created += 1
            groups[key] = (pivot, joined)
        pending = following
    return _number(groups, n)


def _number(groups: dict[int, tuple[int, list[int]]], n: int) -> tuple[Array, Array]:
    left: list[int] = []
    right: list[int] = []
    value: dict[int, tuple[int, int]] = {}  # set -> (node, first leaf)
    for key in sorted(groups, reverse=True):  # later sets lie inside earlier ones
        pivot, joined = groups[key]
        node, first = -2 - pivot, pivot
        for other in joined:
            there, its_first = value[other]
            left.append(node if first < its_first else there)
            right.append(there if first < its_first else node)
            node, first = len(left) - 1, min(first, its_first)
        value[key] = (node, first)
    return np.array(left, np.int32), np.array(right, np.int32)


def _check(prober: _Prober, tree: RevealedTree, checks: int, seed: int) -> None:
    """Measure random pairs again and compare with the tree."""
    random = np.random.default_rng(seed + 1)
    every = tree.n * (tree.n - 1) // 2
    if every <= checks:
        pairs = np.array([(i, j) for i in range(tree.n) for j in range(i + 1, tree.n)], np.int64)
    else:
        i = random.integers(0, tree.n, checks)
        pairs = np.column_stack([i, (i + random.integers(1, tree.n, checks)) % tree.n])
    parent = np.full(2 * tree.n, -1, np.int64)  # nodes first, then leaves from n on
    for v, kids in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        for c in kids:
            parent[c if c >= 0 else tree.n - 2 - c] = v
    size = tree.spans()[2]
    measured = prober.measure(pairs)
    for (i, j), found in zip(pairs.tolist(), measured.tolist(), strict=True):
        a, b = parent[tree.n + i], parent[tree.n + j]
        while a != b:
            if a < b:
                a = parent[a]
            else:
                b = parent[b]
        if size[a] != found:
            raise _not_a_tree(f"{found} leaves under {i} and {j}, before {int(size[a])}", "the same on every call")
