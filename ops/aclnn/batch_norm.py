"""aclnnBatchNormReduceBackward in two phases. See ``ops.acl`` for the calling rule."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.errors import EmulatorError
from emulator.products import Product
from ops.acl.errors import Refusal, Shown, aclnn_call
from ops.acl.executor import AclOpExecutor, run_executor
from ops.acl.handles import current_context, is_null
from ops.acl.state import DeviceState, Stream
from ops.acl.status import AclnnStatus, name_of
from ops.acl.tensor import AclTensor
from ops.acl.types import storage_bytes
from ops.acl.views import MAX_ELEMENTS, is_contiguous, overlaps
from ops.aclnn.checks import Arguments, check_all, is_float32, refuse, take_arguments
from ops.batch_norm_reduce_backward.pipeline import BatchNormGrads, batch_norm_reduce_backward
from ops.reduce_sum.plan import plan_reduce_sum

Array = NDArray[Any]

OPERATOR: Final = "aclnnBatchNormReduceBackward"
EVENTS_VARIABLE: Final = "AICORE_EVENTS"
ALIGN_BYTES: Final = 512
"""Intermediates in the workspace begin at multiples of this (assumed)."""
RUNTIME_ERROR: Final = AclnnStatus.ACLNN_ERR_RUNTIME_ERROR
PRESENT: Final = object()
"""Stands for an out-parameter that is not null."""


@aclnn_call(2)
def aclnnBatchNormReduceBackwardGetWorkspaceSize(
    gradOut: Any,
    input: Any,
    mean: Any,
    invstd: Any,
    weight: Any,
    inputG: Any,
    weightG: Any,
    biasG: Any,
    sumDy: Any,
    sumDyXmu: Any,
    gradWeight: Any,
    gradBias: Any,
    workspaceSize: Any = PRESENT,
    executor: Any = PRESENT,
) -> tuple[int, AclOpExecutor]:
    """First phase: (status, workspaceSize, executor).

    gradOut, input: rank 2 to 8, channel on axis 1, equal dtype (float32, float16, and bfloat16 but on NpuArch 1001);
    mean, invstd: (C,), any of those dtypes each; weight: None or (C,), no effect. inputG, weightG, biasG: truth
    values that select sumDy and sumDyXmu, gradWeight, gradBias: (C,), any of those dtypes each; others are not
    looked at. Views may have any strides of 0 or more; outputs none of 0. workspaceSize and executor: None says that
    C's out-parameter is null.

    workspaceSize covers the contiguous copies, casts, product, sums and the kernels' workspace; 0 for empty inputs.

    Errors, in this order (op_api_rules.json, reduce_spec 1.1): 161001 workspaceSize or executor null, inputs null,
    selected outputs null; 161002 dtypes, formats, ranks, C = 0, output shapes; then views outside their storage
    (161002, assumed), then what only the document demands (161002; with ``checks="vendor"`` 561103 or nothing).
    361001 without a context (assumed), 561002 when the tiling finds no tile.
    """
    device = _context_device()
    for what, value in (("workspaceSize", workspaceSize), ("executor", executor)):
        if is_null(value):
            raise Refusal(
                AclnnStatus.ACLNN_ERR_PARAM_NULLPTR,
                what,
                got=None,
                allowed="an address for the result",
                remedy="pass the address of a variable",
            )
    strict = device.settings.checks == "strict"
    take = functools.partial(
        take_arguments,
        {"gradOut": gradOut, "input": input, "mean": mean, "invstd": invstd},
        weight,
        {"inputG": bool(inputG), "weightG": bool(weightG), "biasG": bool(biasG)},
        {"sumDy": sumDy, "sumDyXmu": sumDyXmu, "gradWeight": gradWeight, "gradBias": gradBias},
        with_weight=strict,
    )
    args = check_all(take, device.settings.product, strict=strict)
    size = _workspace_bytes(args, device.settings.product)
    call = _Call(args, device)
    return size, AclOpExecutor(OPERATOR, size, call.run, current_context())


@aclnn_call()
def aclnnBatchNormReduceBackward(workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> None:
    """Second phase: compute, and write the selected outputs, before returning.

    Only elements of an output's view are written, in the order sumDy, sumDyXmu, gradWeight, gradBias, each rounded
    once to its own dtype in the overflow mode of the stream. All inputs are read before the first write, so outputs
    may alias inputs (they then hold the results), and of outputs that share elements the later one stays. For empty
    inputs Ascend 950 writes zeros, the others write nothing. Nothing is written when the status is not 0.

    Errors: those of ``ops.acl.executor.run_executor``; 161002 a tensor described anew since the first phase;
    361001 a tensor destroyed or its memory gone, smaller than the view, or the host out of memory (assumed).
    With AICORE_EVENTS=path the instruction engine runs and its events are saved there (``save_events``).
    """
    run_executor(OPERATOR, workspace, workspaceSize, executor, stream)


def _context_device() -> DeviceState:
    try:
        return current_context().device
    except Refusal as refusal:
        text = f"{name_of(refusal.status)} ({int(refusal.status)}) {refusal}"
        raise Refusal(
            RUNTIME_ERROR, "context", got=Shown(text), allowed="a current context", remedy="call aclrtSetDevice first"
        ) from None


def _workspace_bytes(args: Arguments, product: Product) -> int:
    """Bytes of all intermediates, none shared, and of the largest kernel workspace (reduce_spec 1.6, 6).

    Raises Refusal: 161002 for more than 2^63 - 1 bytes; EmulatorError when there is no tiling.
    """
    if args.empty:
        return 0
    sizes = []
    per_channel = 4 * args.channels
    weight = {} if args.weight is None else {"weight": args.weight}
    for tensor in {**args.inputs, **weight}.values():
        if not is_contiguous(tensor.view_shape, tensor.strides):
            sizes.append(storage_bytes(tensor.dtype, tensor.elements))
        if not is_float32(tensor):
            sizes.append(4 * tensor.elements)
    if args.weight is None:
        sizes.append(per_channel)  # FillScalar
    sizes.append(4 * args.input.elements)  # gradOut * input
    sizes += [per_channel] * 4  # sumDyX, sumDy, xmu, gw
    sizes += [storage_bytes(t.dtype, t.elements) for t in args.outputs.values() if not is_float32(t)]
    try:
        kernel = plan_reduce_sum(args.input.view_shape, product=product).workspace_bytes
    except EmulatorError as error:
        raise Refusal(
            AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR,
            "input",
            got=Shown(f"shape {list(args.input.view_shape)}"),
            allowed=f"a shape ReduceSum can tile on {product.name}",
            remedy=str(error),
        ) from None
    total = sum(-(-s // ALIGN_BYTES) * ALIGN_BYTES for s in sizes) + kernel
    if total > MAX_ELEMENTS:
        shape = f"shape {list(args.input.view_shape)}, which needs {total} bytes of workspace"
        raise refuse("input", shape, "at most 2^63 - 1 bytes", "use a smaller tensor")
    return total


class _Call:
    """The work of one executor: the tensors, and how they looked in the first phase."""

    def __init__(self, args: Arguments, device: DeviceState) -> None:
        self.args = args
        self.device = device
        self.planned = {name: tensor.view for name, tensor in self._used().items()}

    def _used(self) -> dict[str, AclTensor]:
        return {**self.args.inputs, **self.args.outputs}

    def run(self, stream: Stream) -> None:
        """Read, compute, write. Raises Refusal."""
        args = self.args
        for name, tensor in self._used().items():
            _check_unchanged(name, tensor, self.planned[name])
        targets = {name: t.elements_of(name, RUNTIME_ERROR) for name, t in args.outputs.items()}
        if args.empty:
            if stream.product.empty_tensor == "zeros":
                for target in targets.values():
                    target[:] = 0
            return
        values = {name: _gather(name, t) for name, t in args.inputs.items()}
        events = os.environ.get(EVENTS_VARIABLE)
        grads = batch_norm_reduce_backward(
            values["gradOut"],
            values["input"],
            values["mean"].reshape(-1),
            values["invstd"].reshape(-1),
            out_dtype="float32",
            product=stream.product,
            engine="instruction" if events else self.device.settings.engine,
            events=bool(events),
        )
        if events:
            save_events(events, grads)
        saturate = stream.product.overflow_mode == "saturation"
        results = {
            "sumDy": grads.sum_dy,
            "sumDyXmu": grads.sum_dy_xmu,
            "gradWeight": grads.grad_weight,
            "gradBias": grads.grad_bias,
        }
        for name, target in targets.items():
            result = results[name]
            assert result is not None
            _scatter(args.outputs[name], target, formats.cast(result, target.dtype, saturate=saturate))


def _check_unchanged(name: str, tensor: AclTensor, planned: tuple[Any, ...]) -> None:
    if not tensor.alive:
        raise refuse(
            name, f"{tensor.kind} {tensor.handle:#x}, {tensor.end}", "a live tensor", "destroy it after the call",
            RUNTIME_ERROR,
        )  # fmt: skip
    if tensor.view != planned:
        raise refuse(name, "a tensor described anew", "the one of the first phase", "call the first phase again")


def _gather(name: str, tensor: AclTensor) -> Array:
    """The view's values, contiguous and aligned; a copy only where they are not."""
    return np.require(tensor.elements_of(name, RUNTIME_ERROR), requirements=["C", "A"])


def _scatter(tensor: AclTensor, target: Array, values: Array) -> None:
    """Write the view; where it means one element twice (vendor mode), the last channel stays."""
    target[:] = values[-1] if overlaps(tensor.view_shape, tensor.strides) else values


def save_events(path: str, grads: BatchNormGrads) -> None:
    """Save a run's events as ``.npz``: ``product``, ``shape``, ``steps`` (names) and ``events_<k>`` (dtype EVENT) each.

    Written to a temporary file beside it and renamed, so nobody reads half of one; the last call stays.
    Raises Refusal (361001) when the file cannot be written.
    """
    steps = [step for step, _ in grads.run.launches]
    arrays = {f"events_{k}": run.events for k, (_, run) in enumerate(grads.run.launches) if run.events is not None}
    target = Path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = Path(file.name)
            named: Any = {
                "product": np.array(grads.run.product.name),
                "shape": np.array(grads.run.shape, np.int64),
                "steps": np.array(steps),
                **arrays,
            }
            np.savez(file, **named)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise Refusal(
            RUNTIME_ERROR,
            EVENTS_VARIABLE,
            got=path,
            allowed="a path in a folder that can be written",
            remedy=f"{error}; no output was written",
        ) from None
