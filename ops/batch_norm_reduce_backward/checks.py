"""Argument checks of the operator on arrays, in the vendor's order (reduce_spec 1.1).

What the operator's document demands but the vendor's check lets through (equal shapes of gradOut and input,
the length of mean, invstd and weight) is refused here as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.errors import EmulatorError
from emulator.products import Product
from ops.errors import ACLNN_ERR_PARAM_NULLPTR, AclnnError
from ops.reduce_sum.plan import MAX_RANK, MIN_RANK

Array = NDArray[Any]


def dtype_name(dtype: Any, what: str, product: Product) -> str:
    """Name of a dtype the product's operator takes. Raises AclnnError (161002)."""
    try:
        name = formats.get(dtype).name
    except EmulatorError:
        name = str(dtype)
    if name not in product.dtypes:
        raise AclnnError(
            f"{what}: got dtype {name}; allowed on {product.name}: {', '.join(product.dtypes)}; convert it first"
        )
    return name


def plain_array(array: Any, name: str) -> None:
    """Refuse what is no array, a masked array (its mask would be lost) and foreign byte order."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise AclnnError(f"{name}: got {type(array).__name__}; allowed: a plain NumPy array; use np.asarray")
    if not array.dtype.isnative:
        raise AclnnError(f"{name}: got dtype {array.dtype.str} in foreign byte order; allowed: native; use astype")


def check_arguments(
    product: Product, grad_out: Array | None, input: Array | None, mean: Array | None, invstd: Array | None,
    weight: Array | None,
) -> None:  # fmt: skip
    """Raise AclnnError for the first argument the operator refuses on ``product``."""
    given = {"grad_out": grad_out, "input": input, "mean": mean, "invstd": invstd}
    arrays: dict[str, Array] = {}
    for name, array in given.items():
        if array is None:
            raise AclnnError(f"{name}: got None; allowed: an array; pass the tensor", ACLNN_ERR_PARAM_NULLPTR)
        arrays[name] = array
    for name, array in {**arrays, **({} if weight is None else {"weight": weight})}.items():
        plain_array(array, name)
        dtype_name(array.dtype, name, product)
    g, x = arrays["grad_out"], arrays["input"]
    if g.dtype != x.dtype:
        raise AclnnError(
            f"grad_out and input: got dtypes {g.dtype} and {x.dtype}; allowed: equal dtypes; convert one of them"
        )
    for name in ("grad_out", "input"):
        rank = arrays[name].ndim
        if not MIN_RANK <= rank <= MAX_RANK:
            raise AclnnError(
                f"{name}: got rank {rank} {list(arrays[name].shape)}; allowed: rank {MIN_RANK} to {MAX_RANK}; "
                f"axis 1 is the channel"
            )
    if x.shape[1] == 0:
        raise AclnnError(f"input: got {list(x.shape)} with 0 channels; allowed: at least 1 on axis 1")
    if g.shape != x.shape:
        raise AclnnError(f"grad_out and input: got shapes {list(g.shape)} and {list(x.shape)}; allowed: equal shapes")
    per_channel = {"mean": arrays["mean"], "invstd": arrays["invstd"]}
    if weight is not None:
        per_channel["weight"] = weight
    for name, array in per_channel.items():
        if array.shape != (x.shape[1],):
            raise AclnnError(
                f"{name}: got shape {list(array.shape)}; allowed: [{x.shape[1]}], one value per channel of input "
                f"{list(x.shape)}"
            )
