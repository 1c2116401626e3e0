"""The friendly layer: a device as a context manager, and tensors that bring their own memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator import formats
from emulator.errors import EmulatorError, explain
from emulator.products import Product
from ops.acl.errors import Refusal
from ops.acl.handles import current_context
from ops.acl.heap import Leak
from ops.acl.memory import allocate
from ops.acl.state import Checks, Context, DeviceState, Saturation, runtime, settings
from ops.acl.tensor import MAX_DIMS, AclTensor
from ops.acl.types import data_type, data_type_bits, data_type_name, format_of, numpy_dtype, storage_bytes
from ops.acl.views import MAX_ELEMENTS, contiguous_strides, last_element
from ops.batch_norm_reduce_backward.pipeline import Engine
from ops.errors import AclnnError

Array = NDArray[Any]


class Device:
    """A device of its own, current in this thread (or task) inside ``with``.

    Args:
        product: SoC name or Product; None: AICORE_PRODUCT, else the emulator's default.
        checks: ``"strict"`` also refuses what the operator's document forbids but the vendor's first phase lets
            through; ``"vendor"`` is as lenient as the vendor (see ``ops.aclnn``).
        engine: ``"fast"`` or ``"instruction"``; None: AICORE_ENGINE, else fast.
        saturation: Overflow mode of fp16 and bf16: ``"saturation"``, ``"infnan"``, or None as the product does.

    Entering initialises the runtime if nobody did; leaving ends all contexts, streams and memory of this device.
    Another thread joins with ``aclrtSetDevice(device.index)``.

    Raises:
        EmulatorError: an unknown product or a value that is none of these.
    """

    def __init__(
        self,
        product: Product | str | None = None,
        checks: Checks = "strict",
        engine: Engine | None = None,
        saturation: Saturation | None = None,
    ) -> None:
        self._settings = settings(product, checks, engine, saturation)
        self._state: DeviceState | None = None
        self._before: Context | None = None
        self.leaks: tuple[Leak, ...] = ()
        """Memory of aclrtMalloc that was not freed when the device was left."""

    @property
    def product(self) -> Product:
        """The product."""
        return self._settings.product

    @property
    def state(self) -> DeviceState:
        """The open device. Raises EmulatorError outside ``with``."""
        if self._state is None:
            raise EmulatorError(
                explain("device", got="a device that is not entered", allowed="use inside 'with'", remedy="enter it")
            )
        return self._state

    @property
    def index(self) -> int:
        """The device's number, for aclrtSetDevice."""
        return self.state.index

    @property
    def context(self) -> Context:
        """The primary context, for aclrtSetCurrentContext."""
        primary = self.state.primary
        assert primary is not None
        return primary

    def __enter__(self) -> Device:
        if self._state is not None:
            raise EmulatorError(
                explain("device", got="a device that is entered", allowed="one 'with' at a time", remedy="make another")
            )
        self._state = runtime.open(None, self._settings)
        self._before = runtime.current.get()
        runtime.current.set(self._state.primary)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, self._state = self._state, None
        if state is not None:
            with runtime.lock:
                kept = len(runtime.leaks)
                self.leaks = runtime.close(state)
                del runtime.leaks[kept:]
                if not runtime.initialised:  # devices that were set under a runtime nobody but us initialised
                    for other in list(runtime.devices.values()):
                        runtime.close(other)
        runtime.current.set(self._before)
        self._before = None


def create_tensor(
    view_shape: Sequence[int],
    dtype: Any,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    format: Any = "ND",
    storage_shape: Sequence[int] | None = None,
    data: Any = None,
) -> AclTensor:
    """A tensor with memory of its own on the current device, freed with the tensor.

    view_shape, strides, offset: the view, in elements; strides None: contiguous. dtype: "float16", "ACL_FLOAT16",
    "BF16", a NumPy dtype or an aclDataType; format: "ND", "NCHW" or an aclFormat. storage_shape: None is the shape
    of ``data``, else of the view if that fills its storage, else [elements up to the view's last]. data: fills
    the whole storage, rounded to dtype; None: every byte is 0xFF, which is NaN in float types.

    Views an operator refuses (rank 1 or 9, zero lengths, negative strides, elements outside the storage) are made.
    Raises AclnnError for what cannot be: no device (107002), lengths below 0, unknown names, a size or a
    ``data`` that does not fit (161002), memory that is not there (207001).
    """
    kind, layout = data_type(dtype), format_of(format)
    shape = _integers("view_shape", view_shape, low=0)
    steps = None if strides is None else _integers("strides", strides)
    if steps is not None and len(steps) != len(shape):
        raise _refuse("strides", list(steps), f"{len(shape)} strides, as view_shape {list(shape)}", "one for each axis")
    (place,) = _integers("offset", (offset,))
    values = None if data is None else np.asarray(data)
    storage = _storage_shape(shape, steps, place, storage_shape, values)
    size = storage_bytes(kind, math.prod(storage))
    tensor = AclTensor()
    tensor.describe(shape, kind, steps, place, layout, storage, 0)
    if data_type_bits(kind) == 0 and values is not None:
        raise _refuse("data", data_type_name(kind), "None for a dtype without a size", "leave data out")
    try:
        current_context()
        if size:
            tensor.owned = allocate(size, "create_tensor", owned=True)
            tensor.data = tensor.owned.pointer
    except Refusal as refusal:
        raise AclnnError(str(refusal), int(refusal.status)) from None
    runtime.handles.add(tensor, weak=True)
    if values is not None and tensor.owned is not None:
        tensor.owned.bytes[:] = _converted(values, kind, storage).reshape(-1).view(np.uint8)
    return tensor


def _storage_shape(
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    offset: int,
    given: Sequence[int] | None,
    values: Array | None,
) -> tuple[int, ...]:
    if given is not None:
        storage = _integers("storage_shape", given, low=0)
        if values is not None and values.size != math.prod(storage):
            allowed = f"{math.prod(storage)} values, as storage_shape {list(storage)} has"
            raise _refuse("data", f"{values.size} values", allowed, "fill the whole storage")
    elif values is not None:
        storage = tuple(values.shape)
    elif (strides is None or strides == contiguous_strides(shape)) and offset == 0:
        storage = shape
    else:
        used = contiguous_strides(shape) if strides is None else strides
        storage = (max(last_element(shape, tuple(max(s, 0) for s in used), max(offset, 0)) + 1, 0),)
    if math.prod(storage) > MAX_ELEMENTS:
        raise _refuse("storage_shape", list(storage), "at most 2^63 - 1 elements", "make it smaller")
    return storage


def _converted(values: Array, kind: Any, storage: tuple[int, ...]) -> Array:
    """``data`` in the tensor's dtype, rounded to nearest even."""
    target = numpy_dtype(kind)
    if target is None:
        raise _refuse("data", data_type_name(kind), "None for a dtype NumPy does not have", "use aclrtMemcpy")
    values = np.ascontiguousarray(values)
    if values.dtype == target:
        return values
    floats = {f.dtype for f in formats.FORMATS}
    try:
        if values.dtype in floats and target in floats:
            return formats.cast(values, target)
        with np.errstate(all="ignore"):
            return values.astype(target)
    except (TypeError, ValueError) as error:
        raise _refuse("data", str(values.dtype), f"values of {target}", str(error)) from None


def _integers(what: str, values: Iterable[Any], low: int = -(2**63)) -> tuple[int, ...]:
    """int64 values in range. Raises AclnnError (161002)."""
    try:
        numbers = tuple(int(v.__index__()) for v in values)
    except (TypeError, AttributeError):
        raise _refuse(what, values, "whole numbers", "pass a tuple of int") from None
    if any(not low <= n < 2**63 for n in numbers):
        raise _refuse(what, list(numbers), f"{low} to 2^63 - 1", "use lengths C can hold")
    if len(numbers) > MAX_DIMS:
        raise _refuse(what, f"rank {len(numbers)}", f"rank 0 to {MAX_DIMS}", "drop axes")
    return numbers


def _refuse(what: str, got: object, allowed: str, remedy: str) -> AclnnError:
    return AclnnError(explain(what, got=got, allowed=allowed, remedy=remedy))
