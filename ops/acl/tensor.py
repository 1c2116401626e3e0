"""aclTensor: a view (shape, strides, offset) of a storage in device memory. See ``ops.acl`` for the calling rule.

Creating a tensor checks next to nothing, as in the vendor's library (hicann/opbase, acl_op_api.cpp): operators
check. A tensor holds an address, not memory; that address is looked up each time elements are touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from emulator.errors import explain
from ops.acl import hostmem
from ops.acl.errors import INT64, UINT64, Refusal, Shown, aclnn_call, integer
from ops.acl.handles import is_null, resolve
from ops.acl.heap import Allocation
from ops.acl.state import Handle, runtime
from ops.acl.status import AclnnStatus
from ops.acl.types import (
    aclDataType,
    aclFormat,
    data_type,
    data_type_name,
    format_name,
    format_of,
    numpy_dtype,
)
from ops.acl.views import contiguous_strides, last_element, strided, view_problem
from ops.errors import AclnnError

Array = NDArray[Any]

MAX_DIMS: Final = 64
"""Dims a tensor can be created with (assumed; the vendor's shape class holds 25). Operators take up to 8."""
INVALID = AclnnStatus.ACLNN_ERR_PARAM_INVALID
NULLPTR = AclnnStatus.ACLNN_ERR_PARAM_NULLPTR


class AclTensor(Handle):
    """An aclTensor.

    Attributes:
        view_shape, strides, offset: the view, in elements.
        storage_shape: lengths of the storage the view lies in; how many elements it has is what counts.
        dtype, format: an aclDataType and aclFormat, or an unknown number.
        data: device address of the storage; 0 for none.
    """

    kind = "tensor"

    def __init__(self) -> None:
        self.view_shape: tuple[int, ...] = ()
        self.strides: tuple[int, ...] = ()
        self.offset = 0
        self.storage_shape: tuple[int, ...] = ()
        self.dtype: aclDataType | int = aclDataType.ACL_DT_UNDEFINED
        self.format: aclFormat | int = aclFormat.ACL_FORMAT_UNDEFINED
        self.data = 0
        self.owned: Allocation | None = None

    def describe(self, shape, dtype, strides, offset, format, storage, data) -> None:  # type: ignore[no-untyped-def]
        """Set everything at once."""
        self.view_shape, self.dtype, self.offset, self.format = shape, dtype, offset, format
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.storage_shape, self.data = storage, data

    @property
    def view(self) -> tuple[Any, ...]:
        """What an operator planned with: all but the address."""
        return self.view_shape, self.strides, self.offset, self.storage_shape, self.dtype, self.format

    @property
    def elements(self) -> int:
        """Elements of the view."""
        return math.prod(self.view_shape)

    def __repr__(self) -> str:
        return (
            f"<aclTensor {self.handle:#x} {data_type_name(self.dtype)} {list(self.view_shape)} strides "
            f"{list(self.strides)} offset {self.offset} {format_name(self.format)} storage {list(self.storage_shape)}"
            f" at {self.data:#x}{'' if self.alive else ' ' + self.end}>"
        )

    def __del__(self) -> None:
        if self.owned is not None:
            runtime.heap.free(self.owned)

    def elements_of(self, what: str, status: AclnnStatus) -> Array:
        """The view as a NumPy array on the device's memory (shared, possibly unaligned).

        Raises Refusal with ``status`` when the memory is gone or smaller than the view; with 161002 when the view
        or the dtype allows no access at all.
        """
        dtype = numpy_dtype(self.dtype)
        if dtype is None:
            raise Refusal(
                INVALID,
                what,
                got=Shown(f"dtype {data_type_name(self.dtype)}"),
                allowed="a dtype NumPy has",
                remedy="copy the bytes with aclrtMemcpy",
            )
        problem = view_problem(self.view_shape, self.strides, self.offset, self.storage_shape)
        if problem:
            raise Refusal(
                INVALID,
                f"{what}: {problem[0]}",
                got=Shown(problem[1]),
                allowed=problem[2],
                remedy="give the tensor a view inside its storage",
            )
        count = last_element(self.view_shape, self.strides, self.offset) + 1
        if count == 0:
            return np.empty(self.view_shape, dtype)
        found = runtime.heap.holding(self.data)
        start = 0 if found is None else self.data - found.pointer
        if found is None or found.kind != "device" or found.size - start < count * dtype.itemsize:
            need = f"{count * dtype.itemsize} bytes of device memory"
            got = "a null pointer" if self.data == 0 else runtime.heap.describe(self.data)
            raise Refusal(
                status, f"{what}: data", got=Shown(got), allowed=need, remedy="keep the memory until the work is done"
            )
        raw = found.bytes[start : start + count * dtype.itemsize]
        return strided(raw.view(dtype), self.view_shape, self.strides, self.offset)

    def to_host(self) -> Array:
        """The view's values as a new array of the view's shape, in the tensor's dtype.

        Raises:
            AclnnError: (361001) the memory is gone; (161002) the view leaves its storage, or NumPy has no such dtype.
        """
        try:
            return np.array(self.elements_of("tensor", AclnnStatus.ACLNN_ERR_RUNTIME_ERROR), order="C")
        except Refusal as refusal:
            raise AclnnError(str(refusal), int(refusal.status)) from None
        except ValueError as error:
            got = f"a view of {self.elements} elements"
            raise AclnnError(explain("tensor", got=got, allowed="what NumPy can hold", remedy=str(error))) from None


def dims(what: str, values: Any, count: Any, low: int = INT64[0]) -> tuple[int, ...]:
    """``count`` int64_t from a sequence, or from a host address. Raises Refusal (161002)."""
    number = integer(f"{what}Num", count, *UINT64)
    if number > MAX_DIMS:
        raise Refusal(INVALID, f"{what}Num", got=number, allowed=f"at most {MAX_DIMS}", remedy="pass the rank")
    if number == 0:
        return ()
    if isinstance(values, int) and not isinstance(values, bool):
        array = np.empty(8 * number, np.uint8)
        try:
            hostmem.read(integer(what, values, *UINT64), array)
        except hostmem.BadAddress as error:
            raise Refusal(
                INVALID, what, got=Shown(str(error)), allowed=f"{number} int64_t", remedy="pass a live array"
            ) from None
        return tuple(int(v) for v in array.view(np.int64))
    if not isinstance(values, (Sequence, np.ndarray)) or len(values) < number:
        raise Refusal(
            INVALID, what, got=values, allowed=f"a sequence of {number} int64_t, or its address", remedy="pass a list"
        )
    return tuple(integer(f"{what}[{i}]", values[i], *INT64) for i in range(number))


def _described(  # the arguments of aclCreateTensor, checked as far as C types go
    tensor: AclTensor,
    viewDims: Any,
    viewDimsNum: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    storageDimsNum: Any,
    tensorData: Any,
) -> AclTensor:
    for what, values, count in (("viewDims", viewDims, viewDimsNum), ("storageDims", storageDims, storageDimsNum)):
        if is_null(values) and count != 0:
            raise Refusal(NULLPTR, what, got=None, allowed=f"{count} int64_t", remedy=f"pass {what}, or {what}Num = 0")
    shape = dims("viewDims", viewDims, viewDimsNum)
    strides = None if is_null(stride) else dims("stride", stride, viewDimsNum)
    storage = dims("storageDims", storageDims, storageDimsNum)
    place = integer("offset", offset, *INT64)
    data = 0 if is_null(tensorData) else integer("tensorData", tensorData, *UINT64)
    tensor.describe(shape, data_type(dataType), strides, place, format_of(format), storage, data)
    return tensor


@aclnn_call(1)
def _create(*args: Any) -> AclTensor:
    tensor = _described(AclTensor(), *args)
    runtime.handles.add(tensor)
    return tensor


def aclCreateTensor(
    viewDims: Any,
    viewDimsNum: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    storageDimsNum: Any,
    tensorData: Any,
) -> AclTensor | None:
    """A tensor on memory the caller keeps; None (a null pointer) when it cannot be made. It returns no status.

    viewDims, stride, storageDims: sequences of int64_t, or addresses of such arrays; stride null: contiguous.
    Null viewDims or storageDims with a Num above 0 give None. Lengths, strides, dtype and format are not checked.
    """
    args = (viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorData)
    tensor: AclTensor | None = _create(*args)[1]
    return tensor


@aclnn_call()
def aclInitTensor(
    tensor: Any,
    viewDims: Any,
    viewDimsNum: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    storageDimsNum: Any,
    tensorDataAddr: Any,
) -> None:
    """Describe an existing tensor anew. Errors: 161001 null, 161002 no live tensor."""
    args = (viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorDataAddr)
    _described(tensor_of(tensor), *args)


def tensor_of(value: Any, what: str = "tensor", null: AclnnStatus = NULLPTR) -> AclTensor:
    """The live tensor. Raises Refusal: ``null`` for a null pointer, 161002 for a destroyed or foreign one."""
    if is_null(value):
        raise Refusal(null, what, got=None, allowed="an aclTensor", remedy="create it with aclCreateTensor")
    return resolve(AclTensor, value, what, bad=INVALID)


@aclnn_call()
def aclDestroyTensor(tensor: Any) -> None:
    """Destroy a tensor; its memory stays the caller's (of ``create_tensor``: is freed). A null pointer is fine.

    Errors: 161002 no live tensor (the vendor's library would crash).
    """
    if is_null(tensor):
        return
    found = tensor_of(tensor)
    runtime.handles.drop(found)
    if found.owned is not None:
        runtime.heap.free(found.owned)


@aclnn_call(2)
def aclGetViewShape(tensor: Any) -> tuple[tuple[int, ...], int]:
    """(status, viewDims, viewDimsNum). Errors: 161001 null, 161002 no live tensor; so all that follow."""
    found = tensor_of(tensor)
    return found.view_shape, len(found.view_shape)


@aclnn_call(2)
def aclGetViewStrides(tensor: Any) -> tuple[tuple[int, ...], int]:
    """(status, stridesValue, stridesNum), in elements."""
    found = tensor_of(tensor)
    return found.strides, len(found.strides)


@aclnn_call(2)
def aclGetStorageShape(tensor: Any) -> tuple[tuple[int, ...], int]:
    """(status, storageDims, storageDimsNum)."""
    found = tensor_of(tensor)
    return found.storage_shape, len(found.storage_shape)


@aclnn_call(1)
def aclGetViewOffset(tensor: Any) -> int:
    """(status, offset), in elements."""
    return tensor_of(tensor).offset


@aclnn_call(1)
def aclGetFormat(tensor: Any) -> aclFormat | int:
    """(status, format)."""
    return tensor_of(tensor).format


@aclnn_call(1)
def aclGetDataType(tensor: Any) -> aclDataType | int:
    """(status, dataType)."""
    return tensor_of(tensor).dtype


@aclnn_call(1)
def aclGetRawTensorAddr(tensor: Any) -> int:
    """(status, address of the storage; 0 for none)."""
    return tensor_of(tensor).data


@aclnn_call()
def aclSetRawTensorAddr(tensor: Any, addr: Any) -> None:
    """Give a tensor another storage. Whether it is device memory is checked when an operator runs."""
    set_address(tensor_of(tensor), addr)


def set_address(tensor: AclTensor, addr: Any) -> None:
    """Point a tensor to another storage; a storage it owned is freed."""
    address = 0 if is_null(addr) else integer("addr", addr, *UINT64)
    if tensor.owned is not None and address != tensor.data:
        runtime.heap.free(tensor.owned)
        tensor.owned = None
    tensor.data = address
