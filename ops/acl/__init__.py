"""ACL as a host program sees it: runtime, devices, streams, memory, tensors, executors, status codes.

Two layers on the same objects. In Python, enter a `Device` and make tensors with `create_tensor`::

    from ops import acl, aclnn

    with acl.Device("Ascend910B1"):
        x = acl.create_tensor((4, 2), "float16", data=values)

Or call the functions of C under their own names. The rule for every one of them:

* Arguments come in C's order. Out-parameters are left out of them and are returned, in C's order, behind the
  status: ``status = aclrtFree(p)``, ``status, p = aclrtMalloc(size, policy)``. After an error they are None.
  A null out-parameter cannot be said here; the C layer refuses it (100000, 161001).
* `aclCreateTensor` returns the tensor or None, as C's returns a pointer; `aclrtGetSocName` and
  `aclGetRecentErrMsg` return a string or None; `aclDataTypeSize` a number.
* A null pointer is None or 0. Memory is an integer address (host memory also any object with a buffer).
* Contexts, streams, tensors and executors are Python objects; ``int(object)`` is the opaque pointer for C. Every
  function takes the object or that integer. Integers are never used twice, so a destroyed object is recognised.
  The runtime keeps what C created until C destroys it; tensors of `create_tensor` live as long as Python holds them.
* None of them raises, whatever a caller passes: errors are statuses (`name_of` names them), and
  `get_recent_err_msg` says which argument it was, what was got and what is allowed.

The status of a case the vendor publishes nothing about is marked "assumed" in the docstring of its function.
"""

import inspect

from ops.acl.device import Device, create_tensor
from ops.acl.errors import aclGetRecentErrMsg, get_recent_err_msg
from ops.acl.executor import (
    AclOpExecutor,
    AclSetInputTensorAddr,
    AclSetOutputTensorAddr,
    AclSetTensorAddr,
    aclDestroyAclOpExecutor,
    aclSetAclOpExecutorRepeatable,
    aclSetInputTensorAddr,
    aclSetOutputTensorAddr,
    aclSetTensorAddr,
)
from ops.acl.heap import Leak
from ops.acl.memory import (
    aclrtFree,
    aclrtFreeHost,
    aclrtGetMemInfo,
    aclrtMalloc,
    aclrtMallocAlign32,
    aclrtMallocCached,
    aclrtMallocHost,
    aclrtMemcpy,
    aclrtMemcpyAsync,
    aclrtMemset,
    aclrtMemsetAsync,
)
from ops.acl.runtime import (
    aclFinalize,
    aclInit,
    aclrtCreateContext,
    aclrtCreateStream,
    aclrtCreateStreamWithConfig,
    aclrtDestroyContext,
    aclrtDestroyStream,
    aclrtDestroyStreamForce,
    aclrtGetCurrentContext,
    aclrtGetDevice,
    aclrtGetDeviceCount,
    aclrtGetDeviceSatMode,
    aclrtGetRunMode,
    aclrtGetSocName,
    aclrtResetDevice,
    aclrtSetCurrentContext,
    aclrtSetDevice,
    aclrtSetDeviceSatMode,
    aclrtSynchronizeDevice,
    aclrtSynchronizeStream,
    aclrtSynchronizeStreamWithTimeout,
    leak_report,
)
from ops.acl.state import Context, Stream
from ops.acl.status import AclError, AclnnStatus, RtError, name_of
from ops.acl.tensor import (
    AclTensor,
    aclCreateTensor,
    aclDestroyTensor,
    aclGetDataType,
    aclGetFormat,
    aclGetRawTensorAddr,
    aclGetStorageShape,
    aclGetViewOffset,
    aclGetViewShape,
    aclGetViewStrides,
    aclInitTensor,
    aclSetRawTensorAddr,
)
from ops.acl.types import (
    aclDataType,
    aclDataTypeSize,
    aclFormat,
    aclrtFloatOverflowMode,
    aclrtMemcpyKind,
    aclrtMemMallocPolicy,
)
from ops.errors import AclnnError

__all__ = [
    "C_FUNCTIONS",
    "AclError",
    "AclOpExecutor",
    "AclSetInputTensorAddr",
    "AclSetOutputTensorAddr",
    "AclSetTensorAddr",
    "AclTensor",
    "AclnnError",
    "AclnnStatus",
    "Context",
    "Device",
    "Leak",
    "RtError",
    "Stream",
    "aclCreateTensor",
    "aclDataType",
    "aclDataTypeSize",
    "aclDestroyAclOpExecutor",
    "aclDestroyTensor",
    "aclFinalize",
    "aclFormat",
    "aclGetDataType",
    "aclGetFormat",
    "aclGetRawTensorAddr",
    "aclGetRecentErrMsg",
    "aclGetStorageShape",
    "aclGetViewOffset",
    "aclGetViewShape",
    "aclGetViewStrides",
    "aclInit",
    "aclInitTensor",
    "aclSetAclOpExecutorRepeatable",
    "aclSetInputTensorAddr",
    "aclSetOutputTensorAddr",
    "aclSetRawTensorAddr",
    "aclSetTensorAddr",
    "aclrtCreateContext",
    "aclrtCreateStream",
    "aclrtCreateStreamWithConfig",
    "aclrtDestroyContext",
    "aclrtDestroyStream",
    "aclrtDestroyStreamForce",
    "aclrtFloatOverflowMode",
    "aclrtFree",
    "aclrtFreeHost",
    "aclrtGetCurrentContext",
    "aclrtGetDevice",
    "aclrtGetDeviceCount",
    "aclrtGetDeviceSatMode",
    "aclrtGetMemInfo",
    "aclrtGetRunMode",
    "aclrtGetSocName",
    "aclrtMalloc",
    "aclrtMallocAlign32",
    "aclrtMallocCached",
    "aclrtMallocHost",
    "aclrtMemMallocPolicy",
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtMemcpyKind",
    "aclrtMemset",
    "aclrtMemsetAsync",
    "aclrtResetDevice",
    "aclrtSetCurrentContext",
    "aclrtSetDevice",
    "aclrtSetDeviceSatMode",
    "aclrtSynchronizeDevice",
    "aclrtSynchronizeStream",
    "aclrtSynchronizeStreamWithTimeout",
    "create_tensor",
    "get_recent_err_msg",
    "leak_report",
    "name_of",
]

C_FUNCTIONS = tuple(name for name in __all__ if name[:3].lower() == "acl" and inspect.isfunction(globals()[name]))
"""Names of the functions that are C's own."""
