"""The two-phase operator API, with the vendor's names; see ``ops.acl`` for how to call it.

    status, size, executor = aclnn.aclnnBatchNormReduceBackwardGetWorkspaceSize(
        gradOut, input, mean, invstd, weight, True, True, True, sumDy, sumDyXmu, gradWeight, gradBias)
    status, workspace = acl.aclrtMalloc(size)
    status = aclnn.aclnnBatchNormReduceBackward(workspace, size, executor, stream)

The header is named after the file in the vendor's repository, aclnn_batch_norm_backward_reduce.h, but it declares
no function of that spelling; there is one name only.

``checks`` of the device says how lenient the first phase is:

================================== ==================== ==========================================
argument                            "strict" (default)   "vendor"
================================== ==================== ==========================================
gradOut, input of different shapes  161002               561103 (assumed)
mean, invstd without C elements     161002               561103 (assumed)
mean, invstd of another rank        161002               success
weight of any dtype, shape, format  161002               not looked at
output with stride 0                161002               success, the last channel stays (assumed)
view outside its storage            161002               161002 (assumed)
================================== ==================== ==========================================
"""

from typing import Any

from ops.acl.errors import aclnn_call
from ops.aclnn.batch_norm import (
    PRESENT,
    aclnnBatchNormReduceBackward,
    aclnnBatchNormReduceBackwardGetWorkspaceSize,
    save_events,
)

__all__ = [
    "PRESENT",
    "aclnnBatchNormReduceBackward",
    "aclnnBatchNormReduceBackwardGetWorkspaceSize",
    "aclnnFinalize",
    "aclnnInit",
    "save_events",
]


@aclnn_call()
def aclnnInit(configPath: Any = None) -> None:
    """Optional set-up of the operator library; without effect (``configPath`` is not read)."""


@aclnn_call()
def aclnnFinalize() -> None:
    """Its counterpart; without effect."""
