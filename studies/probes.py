"""The operator as a black-box sum, ready for `reveal_tree`: one mask pair in each channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emulator import products
from emulator.products import Product
from ops.batch_norm_reduce_backward.pipeline import Algorithm, Engine, batch_norm_reduce_backward

Array = NDArray[Any]


def operator_sum(
    rows: int,
    columns: int,
    channels: int,
    *,
    which: Literal["sum_dy", "sum_dy_x"] = "sum_dy",
    product: Product | str = products.DEFAULT_PRODUCT,
    algorithm: Algorithm = "cann",
    engine: Engine = "fast",
) -> Callable[[Array], Array]:
    """A callable for ``reveal_tree(..., n=rows * columns, batch=channels)``.

    It takes (k, n), k <= channels, puts row c into channel c of a (rows, channels, columns) gradOut and returns
    the fp32 sums. x = 1 and mean = 0, so that sum_dy_x sees the same masks.
    """  # fmt: skip
    shape = (rows, channels, columns)

    def call(masks: Array) -> Array:
        dy = np.zeros((channels, rows * columns), masks.dtype)
        dy[: len(masks)] = masks
        dy[len(masks) :] = masks[:1]
        grad_out = np.ascontiguousarray(dy.reshape(channels, rows, columns).transpose(1, 0, 2))
        one, zero = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        result = batch_norm_reduce_backward(
            grad_out, np.ones(shape, masks.dtype), zero, one, product=product, algorithm=algorithm, engine=engine,
            out_dtype="float32",
        )  # fmt: skip
        sums = result.sum_dy if which == "sum_dy" else result.sum_dy_xmu
        assert sums is not None
        return sums[: len(masks)]

    return call
