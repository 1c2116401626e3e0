"""The torch front end; runs where the torch extra is installed (.ci/run installs it for this file)."""

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own import
    torch = pytest.importorskip("torch")

import ops
from ops import torch_api


def tensors(shape=(3, 4, 5, 6), dtype=torch.float32):
    make = torch.Generator().manual_seed(1)
    g, x = (torch.randn(shape, generator=make).to(dtype) for _ in range(2))
    return g, x, torch.randn(shape[1], generator=make), torch.rand(shape[1], generator=make) + 0.5


def bits(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32).numpy().tobytes()


def test_the_example():
    g = torch.tensor([[1.0, 1], [1, 2], [2, 2], [3, 3]])
    one = torch.ones(2)
    result = torch_api.batch_norm_backward_reduce(g, torch.arange(8.0).reshape(4, 2), one, one, one, True, True, True)
    assert [t.tolist() for t in result] == [[7, 8], [21, 30], [21, 30], [7, 8]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_channels_last_gives_the_same_bits_as_arrays(dtype):
    g, x, mean, invstd = tensors(dtype=dtype)
    last = [t.to(memory_format=torch.channels_last) for t in (g, x)]
    want = torch_api.batch_norm_backward_reduce(g, x, mean, invstd, None, True, True, True)
    got = torch_api.batch_norm_backward_reduce(*last, mean, invstd, None, True, True, True)
    assert [bits(t) for t in got] == [bits(t) for t in want]
    if dtype is torch.float32:
        r = ops.batch_norm_reduce_backward(g.numpy(), x.numpy(), mean.numpy(), invstd.numpy())
        assert bits(want[0]) == r.sum_dy.tobytes() and bits(want[2]) == r.grad_weight.tobytes()


def test_dtypes_and_none_are_torchs():
    g, x, mean, invstd = tensors(dtype=torch.float16)
    weight = torch.ones(4, dtype=torch.float16)
    result = torch_api.batch_norm_backward_reduce(g, x, mean, invstd, weight, True, True, True)
    assert [t.dtype for t in result] == [torch.float32, torch.float32, torch.float16, torch.float16]
    only = torch_api.batch_norm_backward_reduce(g, x, mean, invstd, weight, False, True, False)
    assert only[0] is only[1] is only[3] is None and bits(only[2]) == bits(result[2])


def test_what_is_refused():
    g, x, mean, invstd = tensors()
    with pytest.raises(ops.AclnnError, match=r"grad_out: got .*float64 on cpu.*allowed: a CPU tensor"):
        torch_api.batch_norm_backward_reduce(g.double(), x, mean, invstd, None, True, True, True)
    with pytest.raises(ops.AclnnError, match=r"mean: got None"):
        torch_api.batch_norm_backward_reduce(g, x, None, invstd, None, True, True, True)
    with pytest.raises(ops.AclnnError, match=r"mean: got shape \[3\]"):
        torch_api.batch_norm_backward_reduce(g, x, mean[:3], invstd, None, True, True, True)


def test_the_custom_operator():
    g, x, mean, invstd = tensors()
    got = torch.ops.aicore.batch_norm_backward_reduce(g, x, mean, invstd, None)
    want = torch_api.batch_norm_backward_reduce(g, x, mean, invstd, None, True, True, True)
    assert [bits(t) for t in got] == [bits(t) for t in want]
    exact = (g.double() * (x.double() - mean.double()[:, None, None])).sum((0, 2, 3))
    assert np.allclose(got[1].numpy(), exact.numpy(), rtol=1e-5, atol=1e-4)
