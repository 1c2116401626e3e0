"""aclInit to aclFinalize: devices, contexts, streams, the overflow mode. See ``ops.acl`` for the calling rule.

The call order is enforced as in the runtime's documents: nothing works before aclInit (100001), what needs a
context fails without one (107002). The real runtime is more lenient before aclInit in places (assumed).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emulator import products
from emulator.errors import EmulatorError
from ops.acl.errors import INT32, Refusal, Shown, acl_call, integer, null_pointer
from ops.acl.handles import current_context, is_null, ready, resolve, stream_of
from ops.acl.heap import Leak
from ops.acl.state import PRODUCT_VARIABLE, Context, DeviceState, Handle, Stream, has_inf_nan, runtime, settings
from ops.acl.status import AclError, RtError
from ops.acl.types import aclrtFloatOverflowMode

ACL_DEVICE = 0
"""aclrtGetRunMode's ACL_DEVICE; ACL_HOST, which the emulator always is, is 1."""
ACL_HOST = 1


@acl_call()
def aclInit(configPath: Any = None) -> None:
    """Initialise the runtime. ``configPath``: None, or a JSON file, which must be readable; its contents are not used.

    Errors: 100002 a second call; 100003 no such file; 100006 not JSON.
    """
    if configPath:
        try:
            json.loads(Path(configPath).read_text(encoding="utf-8"))
        except OSError as error:
            raise Refusal(
                AclError.ACL_ERROR_INVALID_FILE,
                "configPath",
                got=configPath,
                allowed="None or a readable JSON file",
                remedy=str(error),
            ) from None
        except ValueError as error:
            raise Refusal(
                AclError.ACL_ERROR_PARSE_FILE, "configPath", got=configPath, allowed="a JSON file", remedy=str(error)
            ) from None
    with runtime.lock:
        if runtime.explicit_init:
            raise Refusal(
                AclError.ACL_ERROR_REPEAT_INITIALIZE,
                "runtime",
                got=Shown("a second aclInit"),
                allowed="one aclInit until aclFinalize",
                remedy="drop the second call",
            )
        runtime.explicit_init, runtime.finalized = True, False
        runtime.leaks.clear()


@acl_call()
def aclFinalize() -> None:
    """End the runtime: everything still there is freed, and what leaked stands in `leak_report`.

    Errors: 100001 without aclInit; 100037 a second call.
    """
    with runtime.lock:
        if not runtime.explicit_init:
            if runtime.finalized:
                raise Refusal(
                    AclError.ACL_ERROR_REPEAT_FINALIZE,
                    "runtime",
                    got=Shown("a second aclFinalize"),
                    allowed="one aclFinalize for one aclInit",
                    remedy="drop the second call",
                )
            raise Refusal(
                AclError.ACL_ERROR_UNINITIALIZE,
                "runtime",
                got=Shown("aclFinalize before aclInit"),
                allowed="aclFinalize after aclInit",
                remedy="call aclInit first",
            )
        for device in [d for d in runtime.devices.values() if not d.managed]:
            runtime.close(device)
        if not runtime.devices:
            for item in runtime.handles.of_type(Handle):
                runtime.handles.drop(item, "destroyed by aclFinalize")
        host = [a for a in runtime.heap.live() if a.kind == "host"]
        runtime.leaks.extend(leak for leak in runtime.heap.leaks() if leak.kind == "host")
        for allocation in host:
            runtime.heap.free(allocation)
        runtime.explicit_init, runtime.finalized = False, True


def leak_report() -> tuple[Leak, ...]:
    """Memory the program did not free: at each device's reset, at the last aclFinalize, and what is live now.

    After aclFinalize of a program without faults it is empty. Each entry's ``str`` is one line.
    """
    with runtime.lock:
        return (*runtime.leaks, *runtime.heap.leaks())


def _device(index: Any) -> DeviceState | None:
    """The open device of that number; None for device 0 before it is set. Raises Refusal (107001)."""
    try:
        number = index.__index__() if not isinstance(index, bool) else -1
    except AttributeError:
        number = -1
    if number not in runtime.devices and number != 0:
        known = sorted({0, *runtime.devices})
        raise Refusal(
            RtError.ACL_ERROR_RT_INVALID_DEVICEID,
            "deviceId",
            got=index,
            allowed=f"{', '.join(map(str, known))}",
            remedy="aclrtGetDeviceCount says how many there are",
        )
    return runtime.devices.get(number)


def _opened(index: Any) -> DeviceState:
    """The device, opened with the settings of the environment if it is not yet."""
    device = _device(index)
    if device is None:
        try:
            device = runtime.open(0, settings())
        except EmulatorError as error:
            raise Refusal(
                RtError.ACL_ERROR_RT_SOC_VERSION,
                "device 0",
                got=Shown(str(error)),
                allowed="settings the emulator knows",
                remedy=f"set {PRODUCT_VARIABLE} to a SoC name such as {products.DEFAULT_PRODUCT}",
            ) from None
    return device


@acl_call()
def aclrtSetDevice(deviceId: Any) -> None:
    """Open a device if it is not yet, and make its primary context the current one of this thread.

    Device 0 is the product AICORE_PRODUCT names (read when it is opened). Each call needs an aclrtResetDevice.
    Errors: 100001, 107001 no such device, 507008 an unknown product in the environment (assumed).
    """
    ready()
    with runtime.lock:
        device = _opened(deviceId)
        device.users += 1
        runtime.current.set(device.primary)


@acl_call()
def aclrtResetDevice(deviceId: Any) -> None:
    """Take one aclrtSetDevice back; the last one closes the device: contexts and streams die, memory is freed.

    Errors: 100001, 107001 no such device, 107002 a device that is not set (assumed).
    """
    ready()
    with runtime.lock:
        device = _device(deviceId)
        if device is None or device.users == 0:
            raise Refusal(
                RtError.ACL_ERROR_RT_CONTEXT_NULL,
                "deviceId",
                got=Shown(f"{deviceId}, a device that is not set"),
                allowed="a device after aclrtSetDevice",
                remedy="call it once for each aclrtSetDevice",
            )
        device.users -= 1
        if device.users == 0 and not device.managed:
            runtime.close(device)


@acl_call(1)
def aclrtGetDevice() -> int:
    """(status, device of the current context). Errors: 100001, 107002."""
    return current_context().device.index


@acl_call(1)
def aclrtGetDeviceCount() -> int:
    """(status, number of devices): device 0 and one for each open ``acl.Device``. Errors: 100001."""
    with ready().lock:
        return len({0, *runtime.devices})


@acl_call(1)
def aclrtCreateContext(deviceId: Any) -> Context:
    """(status, context): a new context on a device, and the current one of this thread. Errors: 100001, 107001."""
    ready()
    with runtime.lock:
        context = runtime.add_context(_opened(deviceId))
        runtime.current.set(context)
        return context


@acl_call()
def aclrtDestroyContext(context: Any) -> None:
    """Destroy a context of aclrtCreateContext with its streams.

    Errors: 100001, 100000 null, 107000 no live context, or a device's primary one, which only its reset ends.
    """
    ready()
    if is_null(context):
        raise null_pointer("context", "pass a context of aclrtCreateContext")
    with runtime.lock:
        found = resolve(Context, context, "context", bad=RtError.ACL_ERROR_RT_PARAM_INVALID)
        if found is found.device.primary:
            raise Refusal(
                RtError.ACL_ERROR_RT_PARAM_INVALID,
                "context",
                got=Shown(f"the primary context of device {found.device.index}"),
                allowed="a context of aclrtCreateContext",
                remedy="aclrtResetDevice ends it",
            )
        runtime.drop_context(found)


@acl_call()
def aclrtSetCurrentContext(context: Any) -> None:
    """Make a context the current one of this thread. Errors: 100001, 100000 null, 107000 no live context."""
    ready()
    if is_null(context):
        raise null_pointer("context", "pass a context of aclrtCreateContext or aclrtGetCurrentContext")
    runtime.current.set(resolve(Context, context, "context", bad=RtError.ACL_ERROR_RT_PARAM_INVALID))


@acl_call(1)
def aclrtGetCurrentContext() -> Context:
    """(status, the current context of this thread). Errors: 100001, 107002."""
    return current_context()


def _create_stream() -> Stream:
    context = current_context()
    with runtime.lock:
        stream = Stream(context)
        runtime.handles.add(stream)
        context.streams.add(stream)
        return stream


@acl_call(1)
def aclrtCreateStream() -> Stream:
    """(status, stream): a new stream in the current context. Errors: 100001, 107002."""
    return _create_stream()


@acl_call(1)
def aclrtCreateStreamWithConfig(priority: Any = 0, flag: Any = 0) -> Stream:
    """The same; priority and flag have no effect. Errors: 100001, 107002, 107000 not uint32_t."""
    for what, value in (("priority", priority), ("flag", flag)):
        integer(what, value, 0, 2**32 - 1)
    return _create_stream()


def _destroy_stream(stream: Any) -> None:
    current_context()
    if is_null(stream):
        raise null_pointer("stream", "the default stream goes with its context")
    found = stream_of(stream)
    with runtime.lock:
        if found not in found.context.streams:
            raise Refusal(
                RtError.ACL_ERROR_RT_PARAM_INVALID,
                "stream",
                got=Shown(f"stream {found.handle:#x}, the default stream of its context"),
                allowed="a stream of aclrtCreateStream",
                remedy="the default stream goes with its context",
            )
        found.context.streams.discard(found)
        runtime.handles.drop(found)


@acl_call()
def aclrtDestroyStream(stream: Any) -> None:
    """Destroy a stream. Errors: 100001, 107002, 100000 null, 107000 no live stream, 107003 another context's."""
    _destroy_stream(stream)


@acl_call()
def aclrtDestroyStreamForce(stream: Any) -> None:
    """The same as aclrtDestroyStream: there is never work left to drop."""
    _destroy_stream(stream)


@acl_call()
def aclrtSynchronizeStream(stream: Any) -> None:
    """Wait for a stream (null: the default one); work is done already. Errors: 100001, 107002, 107000, 107003."""
    stream_of(stream)


@acl_call()
def aclrtSynchronizeStreamWithTimeout(stream: Any, timeout: Any) -> None:
    """The same with a timeout in ms, -1 for none. Errors: those, and 100000 a timeout below -1 (assumed)."""
    stream_of(stream)
    if integer("timeout", timeout, *INT32) < -1:
        raise Refusal(
            AclError.ACL_ERROR_INVALID_PARAM,
            "timeout",
            got=timeout,
            allowed="-1 or more, in ms",
            remedy="use -1 to wait",
        )


@acl_call()
def aclrtSynchronizeDevice() -> None:
    """Wait for the device of the current context; work is done already. Errors: 100001, 107002."""
    current_context()


@acl_call()
def aclrtSetDeviceSatMode(mode: Any) -> None:
    """Set the overflow mode (aclrtFloatOverflowMode 0 or 1) of the current device for streams created from now on.

    Errors: 100001, 107002, 107000 another mode, 207000 inf/nan mode on NpuArch 1001, which has none (assumed).
    """
    device = current_context().device
    modes = {aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_SATURATION, aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_INFNAN}
    number = integer("mode", mode, *INT32)
    if number not in modes:
        raise Refusal(
            RtError.ACL_ERROR_RT_PARAM_INVALID,
            "mode",
            got=mode,
            allowed="0 (saturation) or 1 (inf/nan)",
            remedy="see aclrtFloatOverflowMode",
        )
    if number == 1 and not has_inf_nan(device.settings.product):
        raise Refusal(
            RtError.ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "mode",
            got=mode,
            allowed=f"0 (saturation) on {device.settings.product.name}",
            remedy="choose another product",
        )
    device.sat_mode = "infnan" if number == 1 else "saturation"


@acl_call(1)
def aclrtGetDeviceSatMode() -> aclrtFloatOverflowMode:
    """(status, overflow mode new streams of the current device get). Errors: 100001, 107002."""
    names = {
        "saturation": aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_SATURATION,
        "infnan": aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_INFNAN,
    }
    return names[current_context().device.sat_mode]


@acl_call(1)
def aclrtGetRunMode() -> int:
    """(status, 1): the program runs on the host (ACL_HOST). Errors: 100001."""
    ready()
    return ACL_HOST


def aclrtGetSocName() -> str | None:
    """Name of the product: of the current device, else the one device 0 will be; None if the environment names none."""
    context = runtime.current.get()
    try:
        product = context.device.settings.product if context is not None and context.alive else settings().product
    except EmulatorError:
        return None
    return product.name
