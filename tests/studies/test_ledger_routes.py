"""The entries by a different route: every value carried as a fraction, one step at a time without its roundings."""

from fractions import Fraction

import numpy as np
import pytest

import ops
from ops.reduce_sum.tree import addition_tree
from studies.attribution import error_ledger

LEVEL = {
    "tile pairing": "tile pairing", "fold to a power of two": "in-tile adds", "groups of 16": "in-tile adds",
    "halving": "in-tile adds", "blocks of 8 in turn": "in-tile adds", "pair tree in a register": "lane tree",
    "cache tree over tiles": "cache tree", "combine across cores": "core combine",
}  # fmt: skip


def along_tree(tree, terms, deltas, without):
    """The root as a fraction when every addition keeps its recorded error, except those of one level."""
    values = {}
    left, right = tree.left.tolist(), tree.right.tolist()
    for stage, first, last in tree.batches:
        for v in range(first, last):
            a, b = (values[c] if c >= 0 else (terms[-2 - c] if c < -1 else Fraction(0)) for c in (left[v], right[v]))
            values[v] = a + b + (0 if LEVEL[stage] == without else deltas[v])
    return values[tree.root]


def recorded(tree, terms):
    """Errors of every addition by plain fp32 arithmetic."""
    values, deltas = {}, {}
    for _, first, last in tree.batches:
        for v in range(first, last):
            a, b = (
                values[c] if c >= 0 else (np.float32(float(terms[-2 - c])) if c < -1 else np.float32(0))
                for c in (tree.left[v], tree.right[v])
            )
            values[v] = np.float32(a + b)
            deltas[v] = Fraction(float(values[v])) - Fraction(float(a)) - Fraction(float(b))
    return values[tree.root], deltas


def result_without(step, tree, kept, dy, x, mean, invstd):
    """gradWeight in fp16 with the roundings of one step taken out and all other local errors kept."""
    exact_dy = [Fraction(float(v)) for v in dy]
    products = [np.float32(a * b) for a, b in zip(dy, x, strict=True)]
    rounded = [Fraction(float(p)) for p in products]
    if not kept:
        kept.extend((recorded(tree, exact_dy), recorded(tree, rounded)))
    (b, deltas_b), (a, deltas_a) = kept
    m = np.float32(mean * b)
    d = np.float32(a - m)
    w = np.float32(d * invstd)
    o = np.float16(w)
    mu, r = Fraction(float(mean)), Fraction(float(invstd))
    f = {k: Fraction(float(v)) for k, v in {"a": a, "b": b, "m": m, "d": d, "w": w, "o": o}.items()}
    local = {
        "mean * sumDy": f["m"] - mu * f["b"], "subtraction": f["d"] - (f["a"] - f["m"]),
        "invstd product": f["w"] - r * f["d"], "output cast": f["o"] - f["w"],
    }  # fmt: skip
    local = {k: 0 if k == step else v for k, v in local.items()}
    if step == "product":
        rounded = [p * Fraction(float(q)) for p, q in zip(exact_dy, x, strict=True)]
    total_a, total_b = (along_tree(tree, t, e, step) for t, e in ((rounded, deltas_a), (exact_dy, deltas_b)))
    m = mu * total_b + local["mean * sumDy"]
    w = r * (total_a - m + local["subtraction"]) + local["invstd product"]
    return w + local["output cast"], f["o"]


@pytest.mark.parametrize(
    ("shape", "cores"),
    [((3, 2, 50), 64), ((40, 2), 64), ((9, 1, 30, 40), 2), pytest.param((4, 1, 60, 60), 1, marks=pytest.mark.slow)],
    ids=str,
)
def test_each_step_taken_out_changes_the_total_by_its_entry(shape, cores):
    rng = np.random.default_rng(5)
    dy, x = (rng.standard_normal(shape).astype(np.float32) + np.float32(k) for k in (0, 2))
    mean = np.full(shape[1], 2.1, np.float32)
    invstd = np.full(shape[1], 0.9, np.float32)
    few = ops.plan_reduce_sum(shape).product.replace(vector_cores=cores, ub_bytes=253952 if cores == 64 else 65536)
    ledger = error_ledger(dy, x, mean, invstd, out_dtype="float16", product=few)
    tree = addition_tree(ledger.plan, 0)
    vectors = [v[:, 0].reshape(-1) for v in (dy, x)]
    moved, kept = 0, []
    for step in ledger.steps:
        total, delivered = result_without(step, tree, kept, *vectors, mean[0], invstd[0])
        assert delivered - total == ledger.entries["grad_weight"][step][0], step
        moved += delivered != total
    assert moved >= 5
    wanted = {2: ("tile pairing", "cache tree", "core combine"), 1: ("tile pairing", "cache tree")}.get(cores, ())
    assert all(ledger.entries["grad_weight"][step][0] for step in wanted)


def test_really_replacing_the_last_steps_by_exact_arithmetic():
    rng = np.random.default_rng(6)
    dy, x = (rng.standard_normal((50, 3, 4)).astype(np.float16) for _ in range(2))
    data = dy, x, np.zeros(3, np.float32), np.float32([0.3, 0.7, 1.1])
    half, single = (error_ledger(*data, out_dtype=d) for d in ("float16", "float32"))
    for c in range(3):  # a wider output: what is left is the total without the cast
        without = half.errors("grad_weight")[c] - half.entries["grad_weight"]["output cast"][c]
        assert single.errors("grad_weight")[c] == without
        one = single.errors("grad_weight")[c] - single.entries["grad_weight"]["invstd product"][c]
        assert one == Fraction(float(data[3][c])) * single.errors("sum_dy_xmu")[c]
