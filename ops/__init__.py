"""The operator aclnnBatchNormReduceBackward and what it is made of.

``from ops import acl, aclnn`` gives the vendor's API on top of it: devices, memory, tensors and the two-phase call.
They are loaded when they are asked for.
"""

from emulator.errors import EmulatorError
from ops.batch_norm_reduce_backward.pipeline import (
    BatchNormGrads,
    BatchNormRun,
    batch_norm_reduce_backward,
    sync_batch_norm_backward_reduce,
)
from ops.errors import AclnnError
from ops.operands import Operands, bundled, bundled_names, load
from ops.reduce_sum.plan import ReducePlan, plan_reduce_sum
from ops.reduce_sum.tiling import TilingError

__all__ = [
    "AclnnError",
    "BatchNormGrads",
    "BatchNormRun",
    "EmulatorError",
    "Operands",
    "ReducePlan",
    "TilingError",
    "batch_norm_reduce_backward",
    "bundled",
    "bundled_names",
    "load",
    "plan_reduce_sum",
    "sync_batch_norm_backward_reduce",
]
