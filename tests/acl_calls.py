"""Helpers of the ACL tests: a call of the operator as data, and what must hold around it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ops import acl, aclnn

INPUTS = ("gradOut", "input", "mean", "invstd")
OUTPUTS = ("sumDy", "sumDyXmu", "gradWeight", "gradBias")
MASK_OF = {"sumDy": "inputG", "sumDyXmu": "inputG", "gradWeight": "weightG", "gradBias": "biasG"}
TENSORS = (*INPUTS, "weight", *OUTPUTS)
PRODUCTS = ("Ascend910A", "Ascend910B1", "Ascend910_9391", "Ascend950PR_9589")


class Call:
    """Arguments of one call, as data: for each tensor the keywords of ``acl.create_tensor``, or None."""

    def __init__(self, shape=(2, 3, 1, 4), dtype="float32", **masks: bool):
        channel = {"view_shape": (shape[1],), "dtype": dtype, "format": "ND"}
        full = {"view_shape": tuple(shape), "dtype": dtype, "format": "ND"}
        self.tensors: dict[str, Any] = {n: dict(full if n in ("gradOut", "input") else channel) for n in TENSORS}
        self.masks = {"inputG": True, "weightG": True, "biasG": True} | masks

    def copy(self) -> Call:
        return copy.deepcopy(self)

    def set(self, names, **changes) -> Call:
        """A copy with other keywords for some tensors; ``null=True`` passes a null pointer."""
        new = self.copy()
        for name in (names,) if isinstance(names, str) else names:
            new.tensors[name] = None if changes.get("null") else {**new.tensors[name], **changes}
        return new

    def mask(self, **masks: bool) -> Call:
        new = self.copy()
        new.masks |= masks
        return new

    def fill(self, seed=0) -> Call:
        """A copy with values in every tensor."""
        rng, new = np.random.default_rng(seed), self.copy()
        for spec in new.tensors.values():
            if spec is not None and "data" not in spec:
                storage = spec.get("storage_shape") or spec["view_shape"]
                spec["data"] = rng.standard_normal(storage).astype(np.float32)
        return new

    def make(self):
        """The tensors, on the current device."""
        return {n: None if s is None else acl.create_tensor(**s) for n, s in self.tensors.items()}

    def first_phase(self, tensors=None):
        """(status, workspace size, executor)."""
        return aclnn.aclnnBatchNormReduceBackwardGetWorkspaceSize(
            **(self.make() if tensors is None else tensors), **self.masks
        )

    def run(self, tensors=None, stream=None) -> dict[str, Any]:
        """Both phases; returns the tensors. Fails the test if a status is not 0."""
        tensors = self.make() if tensors is None else tensors
        status, size, executor = self.first_phase(tensors)
        assert status == 0, acl.get_recent_err_msg()
        status = second_phase(size, executor, stream)
        assert status == 0, acl.get_recent_err_msg()
        return tensors


def second_phase(size, executor, stream=None):
    """The second phase with a workspace of its own."""
    workspace = None
    if size:
        status, workspace = acl.aclrtMalloc(size)
        assert status == 0, acl.get_recent_err_msg()
    status = aclnn.aclnnBatchNormReduceBackward(workspace, size, executor, stream)
    if size:
        assert acl.aclrtFree(workspace) == 0, acl.get_recent_err_msg()
    return status


def bits(array):
    """The array's bits, for comparison."""
    return np.ascontiguousarray(array).view(np.uint8).tobytes()
