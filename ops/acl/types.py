"""Enumerations of ACL: data types, formats, copy kinds, malloc policies, overflow modes.

Values: hicann/runtime@681ef761 include/external/acl/acl_base_rt.h and acl_rt.h (ascend_facts 7).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import ml_dtypes
import numpy as np

from emulator.errors import explain
from ops.errors import AclnnError


class aclDataType(IntEnum):
    """Element types of tensors."""

    ACL_DT_UNDEFINED = -1
    ACL_FLOAT = 0
    ACL_FLOAT16 = 1
    ACL_INT8 = 2
    ACL_INT32 = 3
    ACL_UINT8 = 4
    ACL_INT16 = 6
    ACL_UINT16 = 7
    ACL_UINT32 = 8
    ACL_INT64 = 9
    ACL_UINT64 = 10
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_STRING = 13
    ACL_COMPLEX64 = 16
    ACL_COMPLEX128 = 17
    ACL_BF16 = 27
    ACL_INT4 = 29
    ACL_UINT1 = 30
    ACL_COMPLEX32 = 33
    ACL_HIFLOAT8 = 34
    ACL_FLOAT8_E5M2 = 35
    ACL_FLOAT8_E4M3FN = 36
    ACL_FLOAT8_E8M0 = 37
    ACL_FLOAT6_E3M2 = 38
    ACL_FLOAT6_E2M3 = 39
    ACL_FLOAT4_E2M1 = 40
    ACL_FLOAT4_E1M2 = 41
    ACL_HIFLOAT4 = 42
    ACL_HIFLOAT4_SCALE = 43


class aclFormat(IntEnum):
    """Memory formats of tensors."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FRACTAL_Z_3D = 33
    ACL_FORMAT_NC = 35
    ACL_FORMAT_NCL = 47
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51
    ACL_FORMAT_FRACTAL_NZ_C0_2 = 52
    ACL_FORMAT_FRACTAL_NZ_C0_4 = 53
    ACL_FORMAT_FRACTAL_NZ_C0_8 = 54


class aclrtMemcpyKind(IntEnum):
    """Direction of a copy."""

    ACL_MEMCPY_HOST_TO_HOST = 0
    ACL_MEMCPY_HOST_TO_DEVICE = 1
    ACL_MEMCPY_DEVICE_TO_HOST = 2
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3
    ACL_MEMCPY_DEFAULT = 4
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7


class aclrtMemMallocPolicy(IntEnum):
    """Page policy of aclrtMalloc; without effect here, any value is accepted as the runtime does."""

    ACL_MEM_MALLOC_HUGE_FIRST = 0
    ACL_MEM_MALLOC_HUGE_ONLY = 1
    ACL_MEM_MALLOC_NORMAL_ONLY = 2
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000


class aclrtFloatOverflowMode(IntEnum):
    """What fp16 and bf16 do on overflow (ascend_facts 3.3)."""

    ACL_RT_OVERFLOW_MODE_SATURATION = 0
    ACL_RT_OVERFLOW_MODE_INFNAN = 1
    ACL_RT_OVERFLOW_MODE_UNDEF = 2


PRIVATE_FORMATS: Final = frozenset(
    {
        aclFormat.ACL_FORMAT_NC1HWC0,
        aclFormat.ACL_FORMAT_FRACTAL_Z,
        aclFormat.ACL_FORMAT_NDC1HWC0,
        aclFormat.ACL_FRACTAL_Z_3D,
        aclFormat.ACL_FORMAT_FRACTAL_NZ,
        aclFormat.ACL_FORMAT_NC1HWC0_C04,
        aclFormat.ACL_FORMAT_FRACTAL_NZ_C0_16,
        aclFormat.ACL_FORMAT_FRACTAL_NZ_C0_32,
        aclFormat.ACL_FORMAT_FRACTAL_NZ_C0_2,
        aclFormat.ACL_FORMAT_FRACTAL_NZ_C0_4,
        aclFormat.ACL_FORMAT_FRACTAL_NZ_C0_8,
    }
)
"""Formats only the device knows how to lay out (hicann/opbase@aa3cd74b format_utils.cpp, IsPrivateFormat)."""

_D = aclDataType
_NUMPY: Final[dict[aclDataType, np.dtype[Any]]] = {
    _D.ACL_FLOAT: np.dtype(np.float32),
    _D.ACL_FLOAT16: np.dtype(np.float16),
    _D.ACL_INT8: np.dtype(np.int8),
    _D.ACL_INT32: np.dtype(np.int32),
    _D.ACL_UINT8: np.dtype(np.uint8),
    _D.ACL_INT16: np.dtype(np.int16),
    _D.ACL_UINT16: np.dtype(np.uint16),
    _D.ACL_UINT32: np.dtype(np.uint32),
    _D.ACL_INT64: np.dtype(np.int64),
    _D.ACL_UINT64: np.dtype(np.uint64),
    _D.ACL_DOUBLE: np.dtype(np.float64),
    _D.ACL_BOOL: np.dtype(np.bool_),
    _D.ACL_COMPLEX64: np.dtype(np.complex64),
    _D.ACL_COMPLEX128: np.dtype(np.complex128),
    _D.ACL_BF16: np.dtype(ml_dtypes.bfloat16),
    _D.ACL_FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
    _D.ACL_FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
}
_BITS: Final[dict[aclDataType, int]] = {
    **{t: 8 * d.itemsize for t, d in _NUMPY.items()},
    _D.ACL_STRING: 128,  # a pointer and a length (assumed)
    _D.ACL_COMPLEX32: 32,
    _D.ACL_HIFLOAT8: 8,
    _D.ACL_FLOAT8_E8M0: 8,
    _D.ACL_FLOAT6_E3M2: 6,
    _D.ACL_FLOAT6_E2M3: 6,
    _D.ACL_INT4: 4,
    _D.ACL_FLOAT4_E2M1: 4,
    _D.ACL_FLOAT4_E1M2: 4,
    _D.ACL_HIFLOAT4: 4,
    _D.ACL_HIFLOAT4_SCALE: 8,  # assumed
    _D.ACL_UINT1: 1,
}
_NAMES: Final[dict[aclDataType, str]] = {
    **{t: d.name for t, d in _NUMPY.items()},
    _D.ACL_DT_UNDEFINED: "undefined",
}
_SPELLINGS: Final[dict[str, aclDataType]] = {
    **{t.name: t for t in aclDataType},
    **{t.name.removeprefix("ACL_"): t for t in aclDataType},
    **{name.upper(): t for t, name in _NAMES.items()},
    "FP32": _D.ACL_FLOAT,
    "FLOAT32": _D.ACL_FLOAT,
    "FP16": _D.ACL_FLOAT16,
    "HALF": _D.ACL_FLOAT16,
    "BFLOAT16": _D.ACL_BF16,
}


def data_type(value: Any) -> aclDataType | int:
    """An aclDataType from its number, a name in upper or lower case ("float16", "ACL_FLOAT16", "BF16", "half")
    or a NumPy dtype. A number no enumerator has is returned as it is: C accepts it, operators refuse it.

    Raises:
        AclnnError: (161002) a name or object that is none of these.
    """  # fmt: skip
    if isinstance(value, str):
        found = _SPELLINGS.get(value.upper())
        if found is not None:
            return found
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
        return aclDataType(number) if number in aclDataType._value2member_map_ else number
    elif isinstance(value, (type, np.dtype)):
        for kind, candidate in _NUMPY.items():
            if candidate == value:
                return kind
    allowed = "an aclDataType, a name such as 'float32', 'ACL_FLOAT16' or 'BF16', or a NumPy dtype"
    raise AclnnError(explain("dtype", got=value, allowed=allowed, remedy="see ops.acl.aclDataType"))


def data_type_name(value: aclDataType | int) -> str:
    """NumPy's name where it has one ("float16", "bfloat16"), else the vendor's without ACL_, else the number."""
    if not isinstance(value, aclDataType):
        return f"unknown data type {int(value)}"
    return _NAMES.get(value, value.name.removeprefix("ACL_"))


def data_type_bits(value: aclDataType | int) -> int:
    """Bits of one element; 0 for undefined and unknown types."""
    return _BITS.get(value, 0) if isinstance(value, aclDataType) else 0


def numpy_dtype(value: aclDataType | int) -> np.dtype[Any] | None:
    """The NumPy dtype of the same layout, or None."""
    return _NUMPY.get(value) if isinstance(value, aclDataType) else None


def storage_bytes(value: aclDataType | int, elements: int) -> int:
    """Bytes of a storage of ``elements`` (types below 8 bits are packed)."""
    return -(-elements * data_type_bits(value) // 8)


def format_of(value: Any) -> aclFormat | int:
    """An aclFormat from its number or name ("ND", "nchw", "ACL_FORMAT_ND", "FRACTAL_Z_3D"); unknown numbers stay.

    Raises:
        AclnnError: (161002) an unknown name, or neither a number nor a name.
    """
    if isinstance(value, str):
        name = value.upper().removeprefix("ACL_").removeprefix("FORMAT_")
        for member in aclFormat:
            if member.name.removeprefix("ACL_").removeprefix("FORMAT_") == name:
                return member
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
        return aclFormat(number) if number in aclFormat._value2member_map_ else number
    names = ", ".join(format_name(f) for f in aclFormat)
    raise AclnnError(explain("format", got=value, allowed=f"an aclFormat or one of {names}", remedy="use 'ND'"))


def format_name(value: aclFormat | int) -> str:
    """The vendor's name without ACL_FORMAT_; "unknown format <n>" for other numbers."""
    if not isinstance(value, aclFormat):
        return f"unknown format {int(value)}"
    return value.name.removeprefix("ACL_").removeprefix("FORMAT_")


def is_private(value: aclFormat | int) -> bool:
    """Whether the format is one of PRIVATE_FORMATS."""
    return value in PRIVATE_FORMATS


def aclDataTypeSize(dataType: Any) -> int:
    """Bytes of one element; 0 for undefined or unknown types and those below 8 bits (assumed)."""
    try:
        return data_type_bits(data_type(dataType)) // 8
    except AclnnError:
        return 0
