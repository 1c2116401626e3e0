"""What the first phase of aclnnBatchNormReduceBackward refuses, in the vendor's order (reduce_spec 1.1).

`vendor_checks` are the vendor's. `safety_checks` keep the emulator inside the memory of a tensor. `document_checks`
are what the operator's document demands but the vendor's code lets through; in strict mode they refuse with 161002,
in vendor mode `inner_checks` stand in for the inner operators, whose answer is not published.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from emulator import formats
from emulator.products import Product
from ops.acl.errors import Refusal, Shown
from ops.acl.handles import is_null
from ops.acl.status import AclnnStatus
from ops.acl.tensor import AclTensor, tensor_of
from ops.acl.types import aclDataType, data_type_name, format_name, is_private, numpy_dtype
from ops.acl.views import overlaps, view_problem
from ops.reduce_sum.plan import MAX_RANK, MIN_RANK

INVALID: Final = AclnnStatus.ACLNN_ERR_PARAM_INVALID
NULLPTR: Final = AclnnStatus.ACLNN_ERR_PARAM_NULLPTR
INNER_NULLPTR: Final = AclnnStatus.ACLNN_ERR_INNER_NULLPTR

INPUTS: Final = ("gradOut", "input", "mean", "invstd")
OUTPUTS: Final = {"sumDy": "inputG", "sumDyXmu": "inputG", "gradWeight": "weightG", "gradBias": "biasG"}
"""Outputs in the order they are checked and written, each with its mask."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The tensors of one call. ``outputs`` has the selected ones only."""

    inputs: dict[str, AclTensor]
    weight: AclTensor | None
    outputs: dict[str, AclTensor]

    @property
    def grad_out(self) -> AclTensor:
        """gradOut."""
        return self.inputs["gradOut"]

    @property
    def input(self) -> AclTensor:
        """The batch norm's input."""
        return self.inputs["input"]

    @property
    def channels(self) -> int:
        """C."""
        return self.input.view_shape[1]

    @property
    def empty(self) -> bool:
        """Whether an input (not weight) has no elements."""
        return any(t.elements == 0 for t in self.inputs.values())


def refuse(what: str, got: str, allowed: str, remedy: str, status: AclnnStatus = INVALID) -> Refusal:
    """A refusal of an argument; ``got`` is shown as it is."""
    return Refusal(status, what, got=Shown(got), allowed=allowed, remedy=remedy)


def take_arguments(
    given: dict[str, Any], weight: Any, masks: dict[str, bool], outputs: dict[str, Any], *, with_weight: bool
) -> Arguments:
    """Null checks: inputs, then selected outputs; their order is that of INPUTS and OUTPUTS.

    Raises Refusal: 161001 a null pointer, 161002 a tensor that is destroyed or none (assumed). Outputs whose mask
    is off may be anything. weight is optional; without ``with_weight`` (vendor mode) it is not looked at.
    """
    inputs = {name: tensor_of(given[name], name) for name in INPUTS}
    selected = {}
    for name, mask in OUTPUTS.items():
        if masks[mask]:
            if is_null(outputs[name]):
                raise Refusal(
                    NULLPTR,
                    name,
                    got=None,
                    allowed=f"an aclTensor, since {mask} is true",
                    remedy=f"pass a tensor, or {mask} = false",
                )
            selected[name] = tensor_of(outputs[name], name)
    optional = tensor_of(weight, "weight") if with_weight and not is_null(weight) else None
    return Arguments(inputs=inputs, weight=optional, outputs=selected)


def _supported(name: str, tensor: AclTensor, product: Product) -> None:
    """The dtype is one the product's operator takes (the vendor's list for its architecture)."""
    dtype = numpy_dtype(tensor.dtype)
    known = {formats.get(d).dtype for d in product.dtypes}
    if dtype not in known:
        raise refuse(
            name,
            f"dtype {data_type_name(tensor.dtype)}",
            f"{', '.join(product.dtypes)} on {product.name}",
            "cast the tensor first",
        )


def _public(name: str, tensor: AclTensor) -> None:
    if is_private(tensor.format):
        raise refuse(
            name,
            f"format {format_name(tensor.format)}, a private format",
            "public formats (ND, NCHW, NHWC, HWCN, NDHWC, NCDHW, NC, NCL)",
            "convert the tensor to ND",
        )


def vendor_checks(args: Arguments, product: Product) -> None:
    """The vendor's checks after those for null: dtypes, formats, shapes. Raises Refusal (161002)."""
    for name, tensor in args.inputs.items():
        _supported(name, tensor, product)
    g, x = args.grad_out, args.input
    if g.dtype != x.dtype:
        raise refuse(
            "gradOut",
            f"dtype {data_type_name(g.dtype)}",
            f"the dtype of input, {data_type_name(x.dtype)}",
            "cast one of them",
        )
    for name, tensor in args.outputs.items():
        _supported(name, tensor, product)
    if g.format != x.format:
        raise refuse(
            "gradOut",
            f"format {format_name(g.format)}",
            f"the format of input, {format_name(x.format)}",
            "use one format",
        )
    for name, tensor in {**args.inputs, **args.outputs}.items():
        _public(name, tensor)
    for name in ("gradOut", "input"):
        shape = args.inputs[name].view_shape
        if not MIN_RANK <= len(shape) <= MAX_RANK:
            raise refuse(
                name, f"rank {len(shape)} {list(shape)}", f"rank {MIN_RANK} to {MAX_RANK}", "axis 1 is the channel"
            )
    if args.channels == 0:
        raise refuse("input", f"shape {list(x.view_shape)}", "a channel axis (axis 1) of at least 1", "drop the call")
    for name, tensor in args.outputs.items():
        if tensor.view_shape != (args.channels,):
            raise refuse(
                name,
                f"shape {list(tensor.view_shape)}",
                f"[{args.channels}], one value per channel of input {list(x.view_shape)}",
                "allocate that shape",
            )


def safety_checks(args: Arguments, *, strict: bool) -> None:
    """Views stay inside their storages. Raises Refusal (161002), assumed: the vendor would read or write past them.

    In strict mode also: no output means one element twice (stride 0); in vendor mode the last channel stays there.
    """
    weight = {} if args.weight is None else {"weight": args.weight}
    for name, tensor in {**args.inputs, **weight, **args.outputs}.items():
        problem = view_problem(tensor.view_shape, tensor.strides, tensor.offset, tensor.storage_shape)
        if problem:
            raise refuse(f"{name}: {problem[0]}", problem[1], problem[2], "describe a view inside the storage")
    for name, tensor in args.outputs.items():
        if strict and overlaps(tensor.view_shape, tensor.strides):
            raise refuse(
                name,
                f"stride 0 for {args.channels} channels",
                "an output without shared elements",
                "use stride 1 or more",
            )


def document_checks(args: Arguments, product: Product) -> None:
    """What the operator's document demands besides (strict mode). Raises Refusal (161002)."""
    g, x = args.grad_out, args.input
    if g.view_shape != x.view_shape:
        raise refuse(
            "gradOut", f"shape {list(g.view_shape)}", f"the shape of input, {list(x.view_shape)}", "use equal shapes"
        )
    if args.weight is not None:
        _supported("weight", args.weight, product)
        _public("weight", args.weight)
    per_channel = {"mean": args.inputs["mean"], "invstd": args.inputs["invstd"], "weight": args.weight}
    for name, tensor in per_channel.items():
        if tensor is not None and tensor.view_shape != (args.channels,):
            raise refuse(
                name,
                f"shape {list(tensor.view_shape)}",
                f"[{args.channels}], one value per channel of input {list(x.view_shape)}",
                "use the channel axis of input",
            )


def inner_checks(args: Arguments) -> None:
    """Vendor mode: shapes the inner operators would get (assumed). Raises Refusal (561103).

    561103 is what the operator returns when an inner operator fails. Mul would broadcast gradOut and input of
    different shapes, but what the operator makes of that is not published, so every difference fails here; so do
    mean and invstd that have not C elements. Their rank is free.
    """
    g, x = args.grad_out, args.input
    if g.view_shape != x.view_shape:
        raise refuse(
            "gradOut",
            f"shape {list(g.view_shape)}",
            f"the shape of input, {list(x.view_shape)} (Mul of different shapes is not published)",
            "use equal shapes",
            INNER_NULLPTR,
        )
    for name in ("mean", "invstd"):
        shape = args.inputs[name].view_shape
        if math.prod(shape) != args.channels:
            raise refuse(
                name,
                f"shape {list(shape)}",
                f"{args.channels} elements (SyncBatchNormBackwardReduce of different shapes is not published)",
                "use one value per channel",
                INNER_NULLPTR,
            )


def check_all(take: Callable[[], Arguments], product: Product, *, strict: bool) -> Arguments:
    """All checks in order; ``take`` makes the arguments (and checks for null). Raises Refusal.

    Empty tensors leave early after the checks for safety: inner operators never see them.
    """
    args = take()
    vendor_checks(args, product)
    safety_checks(args, strict=strict)
    if strict:
        document_checks(args, product)
    elif not args.empty:
        inner_checks(args)
    return args


def is_float32(tensor: AclTensor) -> bool:
    """Whether no Cast is needed."""
    return tensor.dtype == aclDataType.ACL_FLOAT
