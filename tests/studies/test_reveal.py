"""Trees found from outside equal the trees that were put in."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import ops
from ops.batch_norm_reduce_backward.contracts import CONTRACTS, orders_of
from ops.reduce_sum import order as orders
from ops.reduce_sum.tree import addition_tree
from studies.probes import operator_sum
from studies.reveal import RevealError, first_difference, masks_for, reveal_tree, tree_of_order
from studies.v100 import BlockSum, samples

DATA = Path(__file__).parents[1] / "data" / "v100_tree_sums.json"


def random_order(n, seed):
    rng = np.random.default_rng(seed)
    nodes, left, right = [-2 - i for i in range(n)], [], []
    while len(nodes) > 1:
        a, b = (nodes.pop(int(rng.integers(len(nodes)))) for _ in range(2))
        left.append(a)
        right.append(b)
        nodes.append(len(left) - 1)
    stage = np.zeros(n - 1, np.int8)
    return orders.Order(
        leaves=n, left=np.array(left, np.int32), right=np.array(right, np.int32), stage=stage, names=("a",), root=n - 2
    )


def test_numpys_order_is_pairwise():
    for n in (1, 2, 5, 8, 11, 127, 128, 129, 200, 1000):
        tree = reveal_tree(lambda x: np.add.reduce(x), n)
        assert first_difference(tree, tree_of_order(orders.numpy_pairwise(n))) == "equal"
    small = reveal_tree(lambda x: np.add.reduce(x), 10)
    assert small.text() == "((((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7))) + x8) + x9"


@pytest.mark.parametrize("seed", range(3))
def test_a_random_tree_it_has_not_seen(seed):
    secret = random_order(300 + seed, seed)
    tree = reveal_tree(lambda x: orders.order_sum(secret, x), secret.leaves, seed=seed + 7)
    assert first_difference(tree, tree_of_order(secret)) == "equal"
    x = np.random.default_rng(seed).standard_normal(secret.leaves).astype(np.float32)
    assert tree.evaluate(x) == orders.order_sum(secret, x)


@pytest.mark.parametrize("product", ["Ascend950PR_9589", "Ascend910B1"])
@pytest.mark.parametrize("which", ["sum_dy", "sum_dy_x"])
def test_the_operators_own_tree(product, which):
    for rows, columns, channels in ((7, 30, 16), (300, 1, 40), (1, 500, 64)):
        plan = ops.plan_reduce_sum((rows, channels, columns), product=product)
        call = operator_sum(rows, columns, channels, product=product, which=which)
        tree = reveal_tree(call, rows * columns, batch=channels)
        assert first_difference(tree, tree_of_order(orders.of_tree(addition_tree(plan, 0)))) == "equal"
        assert tree.calls < tree.probes


def test_fp16_and_bf16_operands_with_fp32_accumulators():
    for dtype in ("float16", "bfloat16"):
        call = operator_sum(1, 200, 8)
        wide = reveal_tree(call, 200, batch=8)
        assert first_difference(reveal_tree(call, 200, dtype, batch=8), wide) == "equal"


def test_first_difference_names_the_leaves():
    a = tree_of_order(orders.numpy_pairwise(512))
    parts = orders.numpy_pairwise(512)
    left = parts.left.copy()
    right = parts.right.copy()
    spans = a.spans()
    v = next(i for i in range(511) if spans[0][i] == 256 and spans[1][i] == 383 and spans[2][i] == 128)
    assert (left[v], right[v]) != (0, 0)
    other = orders.Order(
        leaves=512, left=left, right=right, stage=parts.stage, names=parts.names, root=parts.root
    )  # two leaves of neighbouring lanes of the third block change places
    one, two = -2 - 256, -2 - 265
    for side in (left, right):
        swap = np.where(side == one, two, np.where(side == two, one, side))
        side[:] = np.where((side == one) | (side == two), swap, side)
    assert first_difference(a, tree_of_order(other)) == "first difference at leaves 256..377"
    assert first_difference(a, a) == "equal"
    assert first_difference(a, tree_of_order(orders.sequential(511))).startswith("different numbers")


def test_limits_are_refused():
    assert masks_for("float16", "float16", "float16").limit == 2050
    assert masks_for("float16", "float32", "float32").limit == 2**15 + 2
    assert masks_for("bfloat16", "bfloat16", "bfloat16").limit == 258
    assert masks_for("float32", "float32", "float32").limit == 2**24 + 2
    assert masks_for("bfloat16", "float32", "float16").limit == 2050
    with pytest.raises(RevealError, match="got 259; allowed: 1 to 258"):
        reveal_tree(np.sum, 259, "bfloat16", accumulator="bfloat16")


def test_what_is_no_tree_is_refused():
    with pytest.raises(RevealError, match="binary tree"):
        reveal_tree(math.fsum, 20)  # exact: a star
    rng = np.random.default_rng(0)
    with pytest.raises(RevealError, match="binary tree"):
        reveal_tree(lambda x: orders.order_sum(random_order(30, int(rng.integers(99))), x), 30)
    with pytest.raises(RevealError, match="binary tree"):
        reveal_tree(lambda x: float(x[0]), 20)


def test_numpy_preset_is_numpy_bit_for_bit():
    rng = np.random.default_rng(0)
    sizes = [*range(1, 400), 1000, 4096, 8191, 8192, 8193]
    cases = 0
    for n in sizes:
        order = orders.numpy_pairwise(n)
        for _ in range(5):
            x = rng.standard_normal(n).astype(np.float32)
            assert orders.order_sum(order, x).view(np.uint32) == np.add.reduce(x).view(np.uint32)
            cases += 1
    assert cases >= 2000


def test_the_first_v100_sums():
    wanted = [int(t, 16) for t in json.loads(DATA.read_text())["bits_hex"]]
    for x, bits in zip(samples(2), wanted, strict=False):
        assert np.float64(BlockSum()(x)).view(np.uint64) == bits


@pytest.mark.slow
def test_all_v100_sums_and_the_controls():
    record = json.loads(DATA.read_text())
    rules = {
        "Neumaier combine (right)": BlockSum(),
        "sequential combine": BlockSum(combine="sequential"),
        "adjacent-pair tree": BlockSum(tree="adjacent"),
        "32-thread blocks": BlockSum(threads=32),
        "128-thread blocks": BlockSum(threads=128),
    }
    found = dict.fromkeys(rules, 0)
    for x, text in zip(samples(), record["bits_hex"], strict=True):
        for name, rule in rules.items():
            found[name] += int(np.float64(rule(x)).view(np.uint64)) == int(text, 16)
    assert found == record["controls"]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(64, 64, 64), (4096, 64, 1), (1, 64, 4096)], ids=str)
def test_trees_of_4096_leaves(shape):
    rows, channels, columns = shape
    tree = reveal_tree(operator_sum(rows, columns, channels), 4096, batch=channels)
    own = orders_of(CONTRACTS["cann"], ops.plan_reduce_sum(shape))[0]
    assert first_difference(tree, tree_of_order(own)) == "equal"
    assert (
        first_difference(reveal_tree(lambda x: np.add.reduce(x), 4096), tree_of_order(orders.numpy_pairwise(4096)))
        == "equal"
    )
    secret = random_order(4096, 11)
    assert first_difference(reveal_tree(lambda x: orders.order_sum(secret, x), 4096), tree_of_order(secret)) == "equal"
