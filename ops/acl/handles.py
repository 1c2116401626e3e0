"""From what a caller passes for an opaque pointer to the object it means."""

from __future__ import annotations

from typing import Any, TypeVar

from ops.acl.errors import Refusal, Shown
from ops.acl.state import Context, Handle, Runtime, Stream, runtime
from ops.acl.status import AclError, RtError, Status

H = TypeVar("H", bound=Handle)


def is_null(value: Any) -> bool:
    """None and the integer 0 are null pointers."""
    return value is None or (not isinstance(value, (Handle, bool)) and isinstance(value, int) and value == 0)


def resolve(kind: type[H], value: Any, what: str, *, bad: Status) -> H:
    """The live object that ``value`` (the object itself, or its handle) stands for; not for null pointers.

    Raises Refusal with the status ``bad`` for a destroyed object, another kind of object, or no handle at all.
    """
    found: Any = value
    if isinstance(value, int) and not isinstance(value, bool):
        found = runtime.handles.find(value)
        if found is None:
            known = runtime.handles.was_used(value)
            text = f"handle {value:#x}, " + ("used up or destroyed" if known else "which the runtime never gave out")
            raise _refused(kind, text, what, bad)
    if not isinstance(found, kind):
        text = f"{found.kind} {found.handle:#x}" if isinstance(found, Handle) else type(value).__name__
        raise _refused(kind, text, what, bad)
    if not found.alive:
        raise _refused(kind, f"{found.kind} {found.handle:#x}, {found.end}", what, bad)
    return found


def _refused(kind: type[Handle], got: str, what: str, bad: Status) -> Refusal:
    article = "an" if kind.kind[0] in "aeiou" else "a"
    return Refusal(
        bad, what, got=Shown(got), allowed=f"{article} {kind.kind} that is alive", remedy=f"create the {kind.kind} anew"
    )


def ready() -> Runtime:
    """The runtime, if it is initialised. Raises Refusal (100001)."""
    if not runtime.initialised:
        raise Refusal(
            AclError.ACL_ERROR_UNINITIALIZE,
            "runtime",
            got=Shown("a call before aclInit" if not runtime.finalized else "a call after aclFinalize"),
            allowed="calls between aclInit and aclFinalize",
            remedy="call aclInit first (or, in Python, enter acl.Device())",
        )
    return runtime


def current_context() -> Context:
    """The context of this thread. Raises Refusal: 100001 before aclInit, 107002 without a live context."""
    context = ready().current.get()
    if context is None or not context.alive:
        raise Refusal(
            RtError.ACL_ERROR_RT_CONTEXT_NULL,
            "current context",
            got=Shown("none in this thread" if context is None else f"context {context.handle:#x}, {context.end}"),
            allowed="a live context of this thread",
            remedy="call aclrtSetDevice or aclrtSetCurrentContext in this thread first",
        )
    return context


def stream_of(value: Any, what: str = "stream") -> Stream:
    """The stream; null is the default stream of the current context.

    Raises Refusal: 107000 for what is not a live stream, 107003 for a stream of another context.
    """
    context = current_context()
    if is_null(value):
        return context.default_stream
    stream = resolve(Stream, value, what, bad=RtError.ACL_ERROR_RT_PARAM_INVALID)
    if stream.context is not context:
        raise Refusal(
            RtError.ACL_ERROR_RT_STREAM_CONTEXT,
            what,
            got=Shown(f"a stream of context {stream.context.handle:#x} on device {stream.context.device.index}"),
            allowed=f"a stream of the current context {context.handle:#x}",
            remedy="call aclrtSetCurrentContext with the stream's context",
        )
    return stream
