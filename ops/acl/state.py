"""The runtime: the one object of the process that holds devices, contexts, streams, handles and memory.

C has process-wide state (aclInit, device 0), so there is one `Runtime` in the process, `runtime`, and no other
state in ops.acl. Its lock is held for bookkeeping only, never while an operator runs. Which context is current is
a ContextVar: every thread, and every asyncio task, has its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, get_args

from emulator import products
from emulator.errors import EmulatorError, explain
from emulator.products import Product
from ops.acl.heap import Heap, Leak
from ops.batch_norm_reduce_backward.pipeline import Engine

Checks = Literal["strict", "vendor"]
Saturation = Literal["saturation", "infnan"]

PRODUCT_VARIABLE: Final = "AICORE_PRODUCT"
ENGINE_VARIABLE: Final = "AICORE_ENGINE"
FIRST_HANDLE: Final = 0x1000
HANDLE_STEP: Final = 0x10


class Handle:
    """An object C code knows by an opaque pointer: ``int(object)``, never 0 and never used twice."""

    kind: ClassVar[str] = "object"
    handle: int = 0
    alive: bool = True
    end: str = "destroyed"
    """What ended its life."""

    def __index__(self) -> int:
        return self.handle

    __int__ = __index__


class HandleTable:
    """Objects by handle. Weak entries live as long as the Python object does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = FIRST_HANDLE
        self._strong: dict[int, Handle] = {}
        self._weak: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()

    def add(self, item: Handle, *, weak: bool = False) -> None:
        """Give ``item`` its handle."""
        with self._lock:
            item.handle = self._next
            self._next += HANDLE_STEP
            (self._weak if weak else self._strong)[item.handle] = item

    def find(self, handle: int) -> Handle | None:
        """The live object of that handle."""
        with self._lock:
            return self._strong.get(handle) or self._weak.get(handle)

    def was_used(self, handle: int) -> bool:
        """Whether that handle was ever given out."""
        return FIRST_HANDLE <= handle < self._next and (handle - FIRST_HANDLE) % HANDLE_STEP == 0

    def drop(self, item: Handle, end: str = "destroyed") -> None:
        """End the life of ``item``; a second time does nothing."""
        with self._lock:
            if item.alive:
                item.alive, item.end = False, end
            self._strong.pop(item.handle, None)
            self._weak.pop(item.handle, None)

    def of_type(self, kind: type[Any]) -> list[Any]:
        """All live objects of a class that are held here."""
        with self._lock:
            return [item for item in self._strong.values() if isinstance(item, kind)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a device behaves. ``overflow_mode`` None: as the product does."""

    product: Product
    checks: Checks = "strict"
    engine: Engine = "fast"
    saturation: Saturation | None = None

    def __post_init__(self) -> None:
        for what, allowed in (("checks", Checks), ("engine", Engine)):
            if getattr(self, what) not in get_args(allowed):
                raise EmulatorError(
                    explain(
                        what,
                        got=getattr(self, what),
                        allowed=" or ".join(map(repr, get_args(allowed))),
                        remedy=f"or set {ENGINE_VARIABLE}" if what == "engine" else "'strict' is the default",
                    )
                )
        if self.saturation is not None:
            if self.saturation not in get_args(Saturation):
                raise EmulatorError(
                    explain(
                        "saturation",
                        got=self.saturation,
                        allowed="'saturation', 'infnan' or None (as the product does)",
                        remedy="see aclrtFloatOverflowMode",
                    )
                )
            if self.saturation == "infnan" and not has_inf_nan(self.product):
                raise EmulatorError(
                    explain(
                        "saturation",
                        got=self.saturation,
                        allowed=f"'saturation' or None on {self.product.name}, which has no inf/nan mode",
                        remedy="leave it out",
                    )
                )


def has_inf_nan(product: Product) -> bool:
    """Whether the product has the inf/nan mode (``support_inf_nan`` of the ini; absent on NpuArch 1001)."""
    return product.npu_arch != 1001


def settings(
    product: Product | str | None = None,
    checks: Checks = "strict",
    engine: Engine | None = None,
    saturation: Saturation | None = None,
) -> Settings:
    """Settings with what is None taken from AICORE_PRODUCT, AICORE_ENGINE, then the defaults. Raises EmulatorError."""
    chosen: Any = engine or os.environ.get(ENGINE_VARIABLE) or "fast"
    name = product or os.environ.get(PRODUCT_VARIABLE) or products.DEFAULT_PRODUCT
    return Settings(product=products.get(name), checks=checks, engine=chosen, saturation=saturation)


class DeviceState:
    """One device: its settings and the contexts on it."""

    def __init__(self, index: int, chosen: Settings, *, managed: bool) -> None:
        self.index = index
        self.settings = chosen
        self.managed = managed
        """Opened by ``acl.Device``, which closes it."""
        self.users = 0
        """aclrtSetDevice calls without their aclrtResetDevice."""
        self.sat_mode: Saturation = chosen.saturation or chosen.product.overflow_mode
        self.contexts: list[Context] = []
        self.primary: Context | None = None


class Context(Handle):
    """A context: a device and the streams on it."""

    kind = "context"

    def __init__(self, device: DeviceState) -> None:
        self.device = device
        self.streams: set[Stream] = set()
        self.default_stream = Stream(self)


class Stream(Handle):
    """A queue of work. Work is done when it is put in, so every stream is always empty.

    ``product`` has the overflow mode of the device at the time of creation (ascend_facts 3.3: the mode is
    effective for streams created afterwards).
    """

    kind = "stream"

    def __init__(self, context: Context) -> None:
        self.context = context
        product, mode = context.device.settings.product, context.device.sat_mode
        self.product = product if product.overflow_mode == mode else product.replace(overflow_mode=mode)


class Runtime:
    """Everything the process knows of its devices. Thread-safe; ``lock`` guards all but heap and handles."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.thread = threading.local()
        """``message``: the recent error message."""
        self.heap = Heap()
        self.handles = HandleTable()
        self.devices: dict[int, DeviceState] = {}
        self.explicit_init = False
        """aclInit was called, and aclFinalize was not since."""
        self.finalized = False
        self.leaks: list[Leak] = []
        """What resets and the last finalize found."""
        self.current: ContextVar[Context | None] = ContextVar("current ACL context", default=None)

    @property
    def initialised(self) -> bool:
        """Whether calls are allowed: after aclInit, or while an ``acl.Device`` is open."""
        return self.explicit_init or any(d.managed for d in self.devices.values())

    def open(self, index: int | None, chosen: Settings) -> DeviceState:
        """Open a device with its primary context. ``index`` None: the lowest free one from 1 on (``acl.Device``)."""
        with self.lock:
            number = index
            if number is None:
                number = next(i for i in range(1, len(self.devices) + 2) if i not in self.devices)
            device = DeviceState(number, chosen, managed=index is None)
            self.devices[number] = device
            device.primary = self.add_context(device)
            return device

    def add_context(self, device: DeviceState) -> Context:
        """A context on ``device``, with its default stream."""
        with self.lock:
            context = Context(device)
            self.handles.add(context)
            self.handles.add(context.default_stream)
            device.contexts.append(context)
            return context

    def drop_context(self, context: Context) -> None:
        """Destroy a context and its streams."""
        with self.lock:
            for stream in (*context.streams, context.default_stream):
                self.handles.drop(stream, "destroyed with its context")
            context.streams.clear()
            context.device.contexts.remove(context)
            self.handles.drop(context)
            if self.current.get() is context:
                self.current.set(None)

    def close(self, device: DeviceState) -> tuple[Leak, ...]:
        """Close a device: its contexts die, its memory is freed. Returns, and keeps, what was leaked."""
        with self.lock:
            if self.devices.get(device.index) is not device:
                return ()
            leaks = self.heap.leaks(device.index)
            self.leaks.extend(leaks)
            for item in self.handles.of_type(Handle):
                if item.kind == "executor" and item.context.device is device:
                    self.handles.drop(item, "destroyed with its device")
            for context in list(device.contexts):
                self.drop_context(context)
            for allocation in self.heap.live(device.index):
                self.heap.free(allocation)
            del self.devices[device.index]
            return leaks


runtime: Final = Runtime()
"""The runtime of this process."""
