"""torch front end (extra ``torch``): ``torch.batch_norm_backward_reduce`` on the emulator, for CPU tensors.

A tensor is read in place when it is contiguous and copied once when it is not (channels_last, say); bf16 is passed
as bits, so nothing is widened.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from emulator import formats, products
from emulator.errors import explain
from emulator.products import Product
from ops.batch_norm_reduce_backward.pipeline import SOURCES, Engine
from ops.batch_norm_reduce_backward.pipeline import batch_norm_reduce_backward as run_operator
from ops.errors import ACLNN_ERR_PARAM_NULLPTR, AclnnError

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
Result = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


def _array(name: str, tensor: torch.Tensor | None) -> NDArray[Any]:
    """A contiguous NumPy view of a CPU tensor."""
    if tensor is None:
        raise AclnnError(f"{name}: got None; allowed: a tensor; pass it", ACLNN_ERR_PARAM_NULLPTR)
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu" or tensor.dtype not in DTYPES:
        got = f"{tensor.dtype} on {tensor.device}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        allowed = "a CPU tensor of float32, float16 or bfloat16"
        raise AclnnError(explain(name, got=got, allowed=allowed, remedy="use tensor.cpu() or tensor.to(dtype)"))
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """The same values as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def batch_norm_backward_reduce(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
    *,
    product: Product | str = products.DEFAULT_PRODUCT,
    engine: Engine = "fast",
) -> Result:
    """torch.batch_norm_backward_reduce: (sum_dy, sum_dy_xmu, grad_weight, grad_bias), each (C,) or None.

    grad_out, input: (N, C, ...) of one dtype; mean, invstd: (C,); weight: (C,) or None. As in torch, sum_dy and
    sum_dy_xmu (input_g) have mean's dtype, grad_weight (weight_g) and grad_bias (bias_g) have weight's, here mean's
    when there is no weight. Raises AclnnError (a ValueError).
    """
    g, x = _array("grad_out", grad_out), _array("input", input)
    mu, inv = _array("mean", mean), _array("invstd", invstd)
    scale = None if weight is None else _array("weight", weight)
    chip = products.get(product)
    result = run_operator(
        g, x, mu, inv, scale, input_g=input_g, weight_g=weight_g, bias_g=bias_g, out_dtype="float32", product=chip,
        engine=engine,
    )  # fmt: skip
    of_mean = DTYPES[mean.dtype]
    of_weight = of_mean if weight is None else DTYPES[weight.dtype]
    dtypes = {"sum_dy": of_mean, "sum_dy_xmu": of_mean, "grad_weight": of_weight, "grad_bias": of_weight}
    outputs: list[torch.Tensor | None] = []
    for name in SOURCES:
        value = getattr(result, name)
        if value is not None:
            cast = formats.cast(value, dtypes[name], saturate=chip.overflow_mode == "saturation")
            outputs.append(_tensor(np.array(cast)))
        else:
            outputs.append(None)
    return outputs[0], outputs[1], outputs[2], outputs[3]


@torch.library.custom_op("aicore::batch_norm_backward_reduce", mutates_args=())
def custom_op(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``torch.ops.aicore.batch_norm_backward_reduce``: all four outputs on the default product."""
    sums = batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, True, True, True)
    assert sums[0] is not None and sums[1] is not None and sums[2] is not None and sums[3] is not None
    return sums[0], sums[1], sums[2], sums[3]


@custom_op.register_fake
def _(grad_out, input, mean, invstd, weight):  # type: ignore[no-untyped-def]
    scale = mean if weight is None else weight
    return torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(scale), torch.empty_like(scale)
