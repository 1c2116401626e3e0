"""The boundary between Python and a C caller: an exception becomes a status and a message.

Every vendor-named function is wrapped by `boundary`. Inside, a function raises `Refusal` with the vendor's code;
outside only statuses are seen. The message goes to the calling thread, as the runtime keeps it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from emulator.errors import EmulatorError, explain
from ops.acl.state import runtime
from ops.acl.status import AclError, AclnnStatus, RtError, Status, name_of
from ops.errors import AclnnError

P = ParamSpec("P")
_TABLES = (AclError, AclnnStatus, RtError)


class Refusal(Exception):
    """A call the emulator refuses, with the status it returns. Never leaves `boundary`."""

    def __init__(self, status: Status, what: str, *, got: object, allowed: str, remedy: str) -> None:
        self.status = status
        super().__init__(explain(what, got=got, allowed=allowed, remedy=remedy))


class Shown(str):
    """Text that `explain` shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def set_err_msg(function: str, status: Status, text: str) -> None:
    """Keep ``text`` as the recent message of this thread."""
    runtime.thread.message = f"{function}: {name_of(status)} ({int(status)}): {text}"


def get_recent_err_msg() -> str:
    """The message of the last call of this thread that failed: which argument, what was got, what is allowed.

    An empty string when none failed. The message stays; ``aclGetRecentErrMsg`` takes it away.
    """
    return str(getattr(runtime.thread, "message", ""))


def aclGetRecentErrMsg() -> str | None:
    """The same as `get_recent_err_msg`, and forget it; None when there is none.

    (hicann/runtime docs: "gets and clears" the message of the calling thread.)
    """
    message = get_recent_err_msg()
    runtime.thread.message = ""
    return message or None


def boundary(success: Status, failure: Status, outs: int = 0) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """Make ``f`` return ``success`` (and its ``outs`` results) or, whatever goes wrong inside, a status.

    ``f`` returns None, one result, or a tuple of ``outs`` results, in the order of the C out-parameters. On
    failure the results are None. ``failure`` is the status of an error nobody foresaw.
    """

    def wrap(f: Callable[P, Any]) -> Callable[P, Any]:
        @functools.wraps(f)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            status: Status
            try:
                result = f(*args, **kwargs)
            except Refusal as refusal:
                status, text = refusal.status, str(refusal)
            except AclnnError as error:
                table = next((t for t in _TABLES if error.status in t._value2member_map_), AclnnStatus)
                status, text = table(error.status), str(error)
            except EmulatorError as error:
                status, text = failure, str(error)
            except MemoryError as error:
                status, text = RtError.ACL_ERROR_RT_MEMORY_ALLOCATION, f"the host is out of memory: {error}"
            except Exception as error:
                status, text = failure, f"{type(error).__name__}: {error}"
            else:
                if outs == 0:
                    return success
                return (success, *(result if outs > 1 else (result,)))
            if isinstance(failure, AclnnStatus) and not isinstance(status, AclnnStatus):
                invalid = status == RtError.ACL_ERROR_RT_PARAM_INVALID
                status = AclnnStatus.ACLNN_ERR_PARAM_INVALID if invalid else AclnnStatus.ACLNN_ERR_RUNTIME_ERROR
            set_err_msg(f.__name__, status, text)
            return status if outs == 0 else (status, *(None,) * outs)

        return call

    return wrap


acl_call = functools.partial(boundary, AclError.ACL_SUCCESS, RtError.ACL_ERROR_RT_INTERNAL_ERROR)
"""`boundary` of acl and aclrt functions: 507000 for what nobody foresaw."""

aclnn_call = functools.partial(boundary, AclnnStatus.ACLNN_SUCCESS, AclnnStatus.ACLNN_ERR_INNER)
"""`boundary` of aclnn functions: 561000 for what nobody foresaw."""


def null_pointer(what: str, remedy: str) -> Refusal:
    """An acl function got a null pointer (ACL_REQUIRES_NOT_NULL gives 100000)."""
    return Refusal(AclError.ACL_ERROR_INVALID_PARAM, what, got=None, allowed="not a null pointer", remedy=remedy)


def integer(what: str, value: Any, low: int, high: int) -> int:
    """``value`` as the C integer type with that range. Raises Refusal (107000)."""
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        number = None
    if number is None or not low <= number <= high:
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            what,
            got=value,
            allowed=f"an integer from {low} to {high}",
            remedy="pass a value of the C type",
        )
    return number


INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
UINT64 = (0, 2**64 - 1)
