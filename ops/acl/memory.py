"""aclrtMalloc, aclrtFree, aclrtMemset, aclrtMemcpy and their like. See ``ops.acl`` for the calling rule.

A pointer is an integer address. Host memory may also be given as an object with a buffer (a NumPy array, bytes).
Sizes are checked against the allocation a device pointer points into, so no call writes outside of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.acl import hostmem
from ops.acl.errors import INT32, UINT64, Refusal, Shown, acl_call, integer, null_pointer
from ops.acl.handles import current_context, is_null, ready, stream_of
from ops.acl.heap import Allocation, OutOfMemory
from ops.acl.state import runtime
from ops.acl.status import AclError, RtError
from ops.acl.types import aclrtMemcpyKind, aclrtMemMallocPolicy

Bytes = NDArray[np.uint8]
K = aclrtMemcpyKind
SIDES: dict[int, tuple[str, str]] = {
    K.ACL_MEMCPY_HOST_TO_HOST: ("host", "host"),
    K.ACL_MEMCPY_HOST_TO_DEVICE: ("device", "host"),
    K.ACL_MEMCPY_DEVICE_TO_HOST: ("host", "device"),
    K.ACL_MEMCPY_DEVICE_TO_DEVICE: ("device", "device"),
    K.ACL_MEMCPY_DEFAULT: ("any", "any"),
    K.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: ("device", "host"),
}
"""Kinds aclrtMemcpy takes, with where destination and source are (hicann/runtime, MemcpyKindTranslate)."""
CHUNK_BYTES = 64 * 1024 * 1024
"""Copies between two plain host addresses go through a buffer of this size."""
HUGE_FIRST = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE_FIRST


def positive(what: str, value: Any) -> int:
    """A size_t above 0. Raises Refusal: 100000 for 0 (ACL_REQUIRES_POSITIVE), 107000 for no size_t."""
    number = integer(what, value, *UINT64)
    if number == 0:
        raise Refusal(
            AclError.ACL_ERROR_INVALID_PARAM, what, got=0, allowed="1 or more", remedy="an empty tensor needs no memory"
        )
    return number


def allocate(size: int, what: str, *, owned: bool = False) -> Allocation:
    """Memory on the current device. Raises Refusal: 100001, 107002, 207001."""
    device = current_context().device
    try:
        limit = device.settings.product.hbm_bytes
        return runtime.heap.allocate(size, device=device.index, kind="device", what=what, limit=limit, owned=owned)
    except OutOfMemory as error:
        raise _no_room(size, device.settings.product.name, error) from None


def _no_room(size: int, where: str, error: OutOfMemory) -> Refusal:
    return Refusal(
        RtError.ACL_ERROR_RT_MEMORY_ALLOCATION,
        f"size on {where}",
        got=size,
        allowed=str(error),
        remedy="free memory or ask for less",
    )


def _malloc(size: Any, policy: Any, what: str) -> int:
    current_context()
    integer("policy", policy, *INT32)
    return allocate(positive("size", size), what).pointer


@acl_call(1)
def aclrtMalloc(size: Any, policy: Any = HUGE_FIRST) -> int:
    """(status, device pointer) to ``size`` bytes, 64-byte aligned and filled with 0xFF. The policy has no effect.

    Errors: 100001, 107002, 100000 size 0, 107000 no size_t, 207001 more than the device or the host has.
    """
    return _malloc(size, policy, "aclrtMalloc")


@acl_call(1)
def aclrtMallocAlign32(size: Any, policy: Any = HUGE_FIRST) -> int:
    """The same as aclrtMalloc (the real one leaves out padding)."""
    return _malloc(size, policy, "aclrtMallocAlign32")


@acl_call(1)
def aclrtMallocCached(size: Any, policy: Any = HUGE_FIRST) -> int:
    """The same as aclrtMalloc; there is no cache to flush."""
    return _malloc(size, policy, "aclrtMallocCached")


@acl_call(1)
def aclrtMallocHost(size: Any) -> int:
    """(status, host pointer). Errors: 100001, 100000 size 0, 107000, 207001."""
    ready()
    number = positive("size", size)
    try:
        return runtime.heap.allocate(number, device=-1, kind="host", what="aclrtMallocHost").pointer
    except OutOfMemory as error:
        raise _no_room(number, "the host", error) from None


def _free(pointer: Any, what: str, kind: str) -> None:
    if is_null(pointer):
        raise null_pointer(what, "free only what was allocated")
    address = integer(what, pointer, *UINT64)
    with runtime.lock:
        found = runtime.heap.starting_at(address)
        if found is None or found.kind != kind or found.owned:
            text = runtime.heap.describe(address)
            if found is not None:
                text = f"{address:#x}, memory of {found.what}" + (", which its tensor frees" if found.owned else "")
            call = "aclrtMalloc" if kind == "device" else "aclrtMallocHost"
            raise Refusal(
                RtError.ACL_ERROR_RT_PARAM_INVALID,
                what,
                got=Shown(text),
                allowed=f"a pointer of {call} that is not freed",
                remedy="free each pointer once",
            )
        runtime.heap.free(found)
        if damaged := found.damaged():
            raise Refusal(
                RtError.ACL_ERROR_RT_MEMORY_FREE,
                what,
                got=Shown(f"{address:#x}: the canary {' and '.join(damaged)} its {found.size} bytes is overwritten"),
                allowed="memory nobody wrote outside of",
                remedy="look for an out-of-bounds write; the memory is freed",
            )


@acl_call()
def aclrtFree(devPtr: Any) -> None:
    """Free device memory.

    Errors: 100001, 107002, 100000 null, 107000 a pointer that is freed, foreign or not the start of an allocation;
    207002 freed, but a canary is overwritten (assumed).
    """
    current_context()
    _free(devPtr, "devPtr", "device")


@acl_call()
def aclrtFreeHost(hostPtr: Any) -> None:
    """Free memory of aclrtMallocHost. Errors: 100001, 100000 null, 107000, 207002, as for aclrtFree."""
    ready()
    _free(hostPtr, "hostPtr", "host")


def _device_bytes(what: str, address: int, count: int, allowed: str = "device memory") -> Bytes:
    """``count`` bytes of device memory. Raises Refusal (107000) unless one live allocation holds them all."""
    found = runtime.heap.holding(address)
    if found is None or found.kind != "device":
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            what,
            got=Shown(runtime.heap.describe(address)),
            allowed=allowed,
            remedy="pass a pointer of aclrtMalloc that is not freed",
        )
    start = address - found.pointer
    if count > found.size - start:
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            what,
            got=Shown(f"{count} bytes from {runtime.heap.describe(address)}"),
            allowed=f"at most {found.size - start} bytes there",
            remedy="copy less or allocate more",
        )
    return found.bytes[start : start + count]


def _memset(devPtr: Any, maxCount: Any, value: Any, count: Any) -> None:
    current_context()
    if is_null(devPtr):
        raise null_pointer("devPtr", "pass a pointer of aclrtMalloc")
    address = integer("devPtr", devPtr, *UINT64)
    byte = integer("value", value, *INT32) & 0xFF
    most, number = integer("maxCount", maxCount, *UINT64), integer("count", count, *UINT64)
    _check_count(number, most, "maxCount")
    _device_bytes("devPtr", address, number)[:] = byte


def _check_count(count: int, most: int, what: str) -> None:
    """(hicann/runtime, ApiErrorDecorator::MemCopySync: both above 0, count at most the maximum.)"""
    if not 0 < count <= most:
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            "count",
            got=count,
            allowed=f"1 to {what} = {most}" if most else f"a {what} of 1 or more",
            remedy="leave out the call when there is nothing to do",
        )


@acl_call()
def aclrtMemset(devPtr: Any, maxCount: Any, value: Any, count: Any) -> None:
    """Fill ``count`` bytes of device memory with the low byte of ``value``.

    Errors: 100001, 107002, 100000 null, 107000 count 0 or above maxCount or outside the allocation.
    """
    _memset(devPtr, maxCount, value, count)


@acl_call()
def aclrtMemsetAsync(devPtr: Any, maxCount: Any, value: Any, count: Any, stream: Any) -> None:
    """aclrtMemset on a stream, done at once. Errors: those, and 107000 and 107003 of the stream."""
    stream_of(stream)
    _memset(devPtr, maxCount, value, count)


def _side(what: str, pointer: Any, count: int, side: str, *, writable: bool) -> Bytes | int:
    """Bytes of device memory or of a host buffer, or a host address; ``side`` is host, device or any."""
    if side != "device" and not isinstance(pointer, (int, np.integer)):
        return _buffer(what, pointer, count, writable)
    address = integer(what, pointer, *UINT64)
    inside = runtime.heap.touching(address, count)
    if side == "device" or (side == "any" and inside is not None and inside.kind == "device"):
        return _device_bytes(what, address, count)
    if inside is None:
        return address
    if inside.kind == "device":
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            what,
            got=Shown(f"{runtime.heap.describe(address)}, which is device memory"),
            allowed="host memory",
            remedy="choose the kind that says where the pointers point",
        )
    start = address - inside.pointer
    if start < 0 or count > inside.size - start:
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            what,
            got=Shown(f"{count} bytes from {runtime.heap.describe(address)}"),
            allowed=f"at most {max(inside.size - start, 0)} bytes there",
            remedy="copy less or allocate more",
        )
    return inside.bytes[start : start + count]


def _buffer(what: str, pointer: Any, count: int, writable: bool) -> Bytes:
    """The first ``count`` bytes of a Python object's buffer."""
    try:
        whole = (
            pointer.reshape(-1).view(np.uint8) if isinstance(pointer, np.ndarray) else np.frombuffer(pointer, np.uint8)
        )
        usable = not (isinstance(pointer, np.ndarray) and not pointer.flags.c_contiguous)
    except (TypeError, ValueError, AttributeError):
        whole, usable = np.empty(0, np.uint8), False
    if not usable or whole.size < count or (writable and not whole.flags.writeable):
        got = f"{type(pointer).__name__} of {whole.size} bytes" if usable else type(pointer).__name__
        kind = "writable, contiguous" if writable else "contiguous"
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            what,
            got=Shown(got),
            allowed=f"an address, or a {kind} buffer of at least {count} bytes",
            remedy="pass a NumPy array",
        )
    return whole[:count]


def _memcpy(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> None:
    ready()
    for what, pointer in (("dst", dst), ("src", src)):
        if is_null(pointer):
            raise null_pointer(what, "pass both pointers")
    if isinstance(kind, bool) or not isinstance(kind, (int, np.integer)) or int(kind) not in SIDES:
        raise Refusal(
            AclError.ACL_ERROR_INVALID_PARAM,
            "kind",
            got=kind,
            allowed=", ".join(f"{int(k)} ({K(k).name})" for k in SIDES),
            remedy="see aclrtMemcpyKind",
        )
    current_context()
    number, most = integer("count", count, *UINT64), integer("destMax", destMax, *UINT64)
    _check_count(number, most, "destMax")
    to, of = SIDES[int(kind)]
    target = _side("dst", dst, number, to, writable=True)
    source = _side("src", src, number, of, writable=False)
    try:
        if isinstance(source, int) and isinstance(target, int):
            _host_to_host(target, source, number)
        elif isinstance(source, int):
            assert not isinstance(target, int)
            hostmem.read(source, target)
        elif isinstance(target, int):
            hostmem.write(target, source)
        else:
            target[:] = source
    except hostmem.BadAddress as error:
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            "src" if isinstance(source, int) and not isinstance(target, int) else "dst or src",
            got=Shown(str(error)),
            allowed=f"{number} bytes of memory of this process",
            remedy="pass an address of live memory",
        ) from None


def _host_to_host(target: int, source: int, count: int) -> None:
    """Copy between two host addresses; overlapping ranges come out right."""
    size = min(count, CHUNK_BYTES)
    starts = range(0, count, size)
    for start in reversed(starts) if source < target else starts:
        part = np.empty(min(size, count - start), np.uint8)
        hostmem.read(source + start, part)
        hostmem.write(target + start, part)


@acl_call()
def aclrtMemcpy(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> None:
    """Copy ``count`` bytes. Overlapping ranges come out right.

    Errors: 100001, 107002, 100000 null or an unknown kind, 107000 count 0 or above destMax, a range outside its
    allocation, freed memory, a pointer on the other side than ``kind`` says (assumed), unmapped host memory.
    """
    _memcpy(dst, destMax, src, count, kind)


@acl_call()
def aclrtMemcpyAsync(dst: Any, destMax: Any, src: Any, count: Any, kind: Any, stream: Any) -> None:
    """aclrtMemcpy on a stream, done at once. Errors: those, and 107000 and 107003 of the stream."""
    stream_of(stream)
    _memcpy(dst, destMax, src, count, kind)


@acl_call(2)
def aclrtGetMemInfo(attr: Any = 1) -> tuple[int, int]:
    """(status, free, total) bytes of device memory; 64 GiB in total where the product's is not published (assumed).

    ``attr`` (aclrtMemAttr) has no effect. Errors: 100001, 107002, 107000 no int32_t.
    """
    integer("attr", attr, *INT32)
    device = current_context().device
    total = device.settings.product.hbm_bytes or 64 * 2**30
    return max(total - runtime.heap.used_bytes(device.index), 0), total
