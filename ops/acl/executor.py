"""aclOpExecutor: the work of one operator call, between its two phases. See ``ops.acl`` for the calling rule.

An executor serves one second phase, which ends it whether it succeeds or not, unless aclSetAclOpExecutorRepeatable
came before; then aclDestroyAclOpExecutor ends it (hicann/opbase, CommonOpExecutorRun).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.acl.errors import Refusal, Shown, aclnn_call, integer
from ops.acl.handles import is_null, resolve, stream_of
from ops.acl.state import Context, Handle, Stream, runtime
from ops.acl.status import AclnnStatus, name_of
from ops.acl.tensor import set_address, tensor_of

INNER_NULLPTR = AclnnStatus.ACLNN_ERR_INNER_NULLPTR
RUNTIME_ERROR = AclnnStatus.ACLNN_ERR_RUNTIME_ERROR


class AclOpExecutor(Handle):
    """The planned work of one call.

    Attributes:
        operator: name of the operator, for messages.
        workspace_size: bytes of workspace the second phase needs.
        run: does the work on a stream; raises Refusal.
        repeatable: whether it survives the second phase.
    """

    kind = "executor"

    def __init__(self, operator: str, workspace_size: int, run: Callable[[Stream], None], context: Context) -> None:
        self.operator = operator
        self.workspace_size = workspace_size
        self.run = run
        self.context = context
        self.repeatable = False
        runtime.handles.add(self)


def executor_of(value: Any, null: AclnnStatus = INNER_NULLPTR) -> AclOpExecutor:
    """The live executor. Raises Refusal: ``null``, or 561000 for one that is used up, destroyed or foreign.

    561000 is what the vendor's library returns for an executor it does not know; for a used one it is assumed.
    """
    if is_null(value):
        raise Refusal(null, "executor", got=None, allowed="an aclOpExecutor", remedy="call the first phase")
    return resolve(AclOpExecutor, value, "executor", bad=AclnnStatus.ACLNN_ERR_INNER)


@aclnn_call()
def aclSetAclOpExecutorRepeatable(executor: Any) -> None:
    """Let an executor serve any number of second phases. Errors: 561103 null, 561000 no live executor."""
    executor_of(executor).repeatable = True


@aclnn_call()
def aclDestroyAclOpExecutor(executor: Any) -> None:
    """Destroy an executor. Errors: 561103 null, 561000 no live executor."""
    runtime.handles.drop(executor_of(executor))


def _set_address(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    found = tensor_of(tensor, null=INNER_NULLPTR)
    integer("index", index, 0, 2**64 - 1)
    executor_of(executor)
    set_address(found, addr)


@aclnn_call()
def aclSetInputTensorAddr(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    """Give ``tensor``, an input of a repeatable executor, another storage; ``index`` has no effect, as in the vendor's.

    Errors: 561103 null, 161002 no live tensor, 561000 no live executor.
    """
    _set_address(executor, index, tensor, addr)


@aclnn_call()
def aclSetOutputTensorAddr(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    """The same for an output."""
    _set_address(executor, index, tensor, addr)


@aclnn_call()
def aclSetTensorAddr(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    """The same for any tensor."""
    _set_address(executor, index, tensor, addr)


AclSetInputTensorAddr = aclSetInputTensorAddr
AclSetOutputTensorAddr = aclSetOutputTensorAddr
AclSetTensorAddr = aclSetTensorAddr


def run_executor(operator: str, workspace: Any, workspace_size: Any, executor: Any, stream: Any) -> None:
    """The second phase of ``operator`` (CommonOpExecutorRun). Raises Refusal.

    In this order: executor null 161001, unknown 561000; workspace null with a size above 0 161001; an executor of
    another operator 561000; stream 361001; workspace too small 161002; workspace memory gone 361001; then the work.
    The first three are the vendor's, the rest is assumed. From the null workspace on, the executor is used up.
    """
    found = executor_of(executor, AclnnStatus.ACLNN_ERR_PARAM_NULLPTR)
    try:
        size = integer("workspaceSize", workspace_size, 0, 2**64 - 1)
        if size > 0 and is_null(workspace):
            raise Refusal(
                AclnnStatus.ACLNN_ERR_PARAM_NULLPTR,
                "workspace",
                got=None,
                allowed=f"{size} bytes of device memory",
                remedy="allocate workspaceSize bytes with aclrtMalloc",
            )
        if found.operator != operator:
            raise Refusal(
                AclnnStatus.ACLNN_ERR_INNER,
                "executor",
                got=Shown(f"an executor of {found.operator}"),
                allowed=f"one of {operator}",
                remedy="call the second phase of the same operator",
            )
        target = _stream(stream, found)
        _check_workspace(workspace, size, found.workspace_size)
        found.run(target)
    finally:
        if not found.repeatable:
            runtime.handles.drop(found, "used up by its second phase (aclSetAclOpExecutorRepeatable lets it be reused)")


def _stream(stream: Any, executor: AclOpExecutor) -> Stream:
    try:
        found = stream_of(stream)
    except Refusal as refusal:
        text = f"{name_of(refusal.status)} ({int(refusal.status)}) {refusal}"
        raise Refusal(
            RUNTIME_ERROR,
            "stream",
            got=Shown(text),
            allowed="a stream of the current context",
            remedy="see the message",
        ) from None
    if found.context.device is not executor.context.device:
        raise Refusal(
            RUNTIME_ERROR,
            "stream",
            got=Shown(f"a stream of device {found.context.device.index}"),
            allowed=f"one of device {executor.context.device.index}, where the first phase was called",
            remedy="call both phases in one context",
        )
    return found


def _check_workspace(workspace: Any, size: int, need: int) -> None:
    if size < need:
        raise Refusal(
            AclnnStatus.ACLNN_ERR_PARAM_INVALID,
            "workspaceSize",
            got=size,
            allowed=f"at least {need}, as the first phase said",
            remedy="pass the size of the first phase",
        )
    if need == 0:
        return
    address = integer("workspace", workspace, 0, 2**64 - 1)
    found = runtime.heap.holding(address)
    if found is None or found.kind != "device" or found.pointer + found.size - address < need:
        raise Refusal(
            RUNTIME_ERROR,
            "workspace",
            got=Shown(runtime.heap.describe(address)),
            allowed=f"{need} bytes of live device memory",
            remedy="allocate it with aclrtMalloc and free it after the work is done",
        )
