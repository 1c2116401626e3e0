"""Errors of the operator, with the vendor's status codes."""

from __future__ import annotations

from emulator.errors import EmulatorError

ACLNN_ERR_PARAM_NULLPTR = 161001
ACLNN_ERR_PARAM_INVALID = 161002
"""aclnnStatus values (ops-nn docs/zh/context/aclnn_return_code.md)."""


class AclnnError(EmulatorError):
    """An argument the operator refuses. ``status`` is the aclnnStatus the vendor's first phase returns."""

    def __init__(self, message: str, status: int = ACLNN_ERR_PARAM_INVALID) -> None:
        super().__init__(message)
        self.status = status
