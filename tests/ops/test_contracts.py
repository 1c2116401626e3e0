"""Every numeric contract against plain arithmetic written out here."""

import numpy as np
import pytest

import ops
from ops.batch_norm_reduce_backward.contracts import CONTRACTS
from ops.exact import exact_outputs, round_fraction
from ops.reduce_sum import order as orders
from ops.reduce_sum.tree import addition_tree


def operands(dtype=np.float16, shape=(5, 3, 40)):
    rng = np.random.default_rng(2)
    dy, x = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    return dy, x, np.float32([0.2, -1, 3]), np.float32([1, 0.5, 2])


def run(algorithm, data, **options):
    return ops.batch_norm_reduce_backward(*data, algorithm=algorithm, out_dtype="float32", **options)


def vector(array, c):
    return array[:, c].reshape(-1).astype(np.float32)


def test_every_contract_is_accepted_and_says_what_it_is():
    data = operands()
    exact = [float(v) for v in exact_outputs(*data)["grad_weight"]]
    for name in CONTRACTS:
        r = run(name, data)
        wide = name in ("torch_cuda", "cann_fp16", "cann_bf16")
        assert r.grad_weight == pytest.approx(exact, rel=0.5 if wide else 1e-4, abs=1.0 if wide else 1e-5)
        assert r.run.algorithm == name
        assert (r.grad_bias == r.sum_dy).all()


def test_sequential_and_numpy_orders():
    dy, x, mean, invstd = data = operands()
    for name, add in (("sequential", lambda v: np.add.accumulate(v)[-1]), ("numpy", np.add.reduce)):
        r = run(name, data)
        for c in range(3):
            b, a = add(vector(dy, c)), add(vector(dy, c) * vector(x, c))
            d = np.float32(a - np.float32(mean[c] * b))
            assert (r.sum_dy[c], r.sum_dy_xmu[c], r.grad_weight[c]) == (b, d, np.float32(d * invstd[c]))


def test_centred_has_the_products_tree():
    dy, x, mean, invstd = data = operands()
    r = run("centred", data)
    plan = r.run.plan
    centred = (dy.astype(np.float32) * (x.astype(np.float32) - mean[None, :, None])).astype(np.float32)
    for c in range(3):
        assert r.sum_dy_xmu[c] == addition_tree(plan, c).evaluate(centred)
        assert r.grad_weight[c] == np.float32(r.sum_dy_xmu[c] * invstd[c])


def test_exact_is_rounded_once():
    data = operands()
    for dtype in ("float16", "float32"):
        r = ops.batch_norm_reduce_backward(*data, algorithm="exact", out_dtype=dtype)
        want = [round_fraction(v, dtype) for v in exact_outputs(*data)["grad_weight"]]
        assert (r.grad_weight == np.array(want)).all()


def plain_torch_block(terms, rows, columns, io):
    """PyTorch's kernel written out thread by thread."""
    block_y = min(1 << (rows.bit_length() - 1), 16)
    block_x = min(next((t for t in (32, 64, 128, 256) if columns <= t), 512), 512 // block_y)
    grid = terms.reshape(rows, columns)
    threads = np.zeros(block_x * block_y, np.float32)
    for ty in range(block_y):
        for tx in range(block_x):
            s = np.float32(0)
            for row in range(ty, rows, block_y):
                for column in range(tx, columns, block_x):
                    s = np.float32(s + grid[row, column])
            threads[ty * block_x + tx] = s

    def warp(v):
        v = list(v)
        for offset in (16, 8, 4, 2, 1):
            v = [np.float32(v[i] + np.float32(io(v[i + offset]))) for i in range(offset)]
        return v[0]

    warps = [warp(threads[k : k + 32]) for k in range(0, threads.size, 32)]
    return warp(warps + [np.float32(0)] * (32 - len(warps)))


@pytest.mark.parametrize("shape", [(5, 3, 40), (40, 3), (2, 3, 700)], ids=str)
def test_torch_cuda(shape):
    dy, x, mean, _ = data = operands(shape=shape)
    r = run("torch_cuda", data)
    rows, columns = shape[0], int(np.prod(shape[2:]))
    for c in range(3):
        g = vector(dy, c)
        product = (g * (vector(x, c) - mean[c])).astype(np.float16).astype(np.float32)
        assert r.sum_dy[c] == plain_torch_block(g, rows, columns, np.float16)
        assert r.sum_dy_xmu[c] == plain_torch_block(product, rows, columns, np.float16)


def test_fp16_accumulators():
    dy, x, *_ = data = operands()
    r = run("cann_fp16", data)
    order = orders.of_tree(addition_tree(r.run.plan, 1))
    values = {}

    def value(c, terms):
        return values[c] if c >= 0 else (terms[-2 - c] if c < -1 else np.float16(0))

    terms = (dy[:, 1].reshape(-1) * x[:, 1].reshape(-1)).astype(np.float16)
    for v, (a, b) in enumerate(zip(order.left.tolist(), order.right.tolist(), strict=True)):
        values[v] = np.float16(value(a, terms) + value(b, terms))
    assert np.float32(values[order.root]) == orders.order_sum(order, terms.astype(np.float32), "float16")
    assert r.sum_dy[1] == np.float32(np.float16(r.sum_dy[1]))


def test_only_cann_has_kernels():
    with pytest.raises(ops.AclnnError, match="engine: got 'instruction' with algorithm 'numpy'"):
        run("numpy", operands(), engine="instruction")
    with pytest.raises(ops.AclnnError, match="algorithm: got 'kahan'"):
        run("kahan", operands())
