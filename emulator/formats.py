"""Number formats of the vector unit: fp32, fp16 and bf16 as bit codecs, with the roundings of Cast.

Compiled code has no fp16 or bf16 type, so arrays of these formats enter it as their bits, and the element
type of the array names the format:

======== ===================== ==================
format   NumPy array           in compiled code
======== ===================== ==================
float32  ``float32``           ``float32``
float16  ``float16``           ``uint16``
bfloat16 ``ml_dtypes.bfloat16`` ``int16``
======== ===================== ==================

`to_bits` and `from_bits` change between the columns without copying. `decode`, `store`, `round_to_half` and
`round_to_bfloat16` work on single elements inside kernels, compiled or not; `cast` works on whole arrays.

NaN: the vendor specifies no payload. Rounding to fp16 or bf16 gives the positive quiet NaN with an empty
payload (0x7e00, 0x7fc0); `decode` keeps sign and payload and sets the quiet bit of fp16 NaNs.
"""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

import ml_dtypes
import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, overload

from emulator.errors import EmulatorError, explain
from emulator.jit import njit


class RoundMode(IntEnum):
    """Rounding of the Cast instruction, with the values of CANN's enum (ascend_facts 3.2)."""

    NONE = 0
    """As RINT where the cast loses bits."""
    RINT = 1
    """To nearest, ties to even."""
    FLOOR = 2
    """Towards minus infinity."""
    CEIL = 3
    """Towards plus infinity."""
    ROUND = 4
    """To nearest, ties away from zero."""
    TRUNC = 5
    """Towards zero."""
    ODD = 6
    """Towards zero, then the last bit is set if anything was lost (von Neumann rounding)."""
    HYBRID = 7
    """For hifloat8 targets only; `cast` refuses it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One binary floating-point format.

    Attributes:
        name: NumPy's name of it.
        bits: Width of a number, in bits.
        significand_bits: Width of the significand, the hidden bit included.
        min_exponent: Exponent of the smallest normal number, 2**min_exponent.
        max_exponent: Exponent of the largest power of two.
        dtype: Array type seen by users.
        bits_dtype: Array type in compiled code.
    """

    name: str
    bits: int
    significand_bits: int
    min_exponent: int
    max_exponent: int
    dtype: np.dtype[Any]
    bits_dtype: np.dtype[Any]

    @property
    def max_finite(self) -> float:
        """Largest finite number."""
        return (2.0 - 2.0 ** (1 - self.significand_bits)) * 2.0**self.max_exponent

    @property
    def min_subnormal(self) -> float:
        """Smallest positive number, which is also the spacing of the subnormal ones."""
        return 2.0 ** (self.min_exponent + 1 - self.significand_bits)


FLOAT32 = Format(
    name="float32",
    bits=32,
    significand_bits=24,
    min_exponent=-126,
    max_exponent=127,
    dtype=np.dtype(np.float32),
    bits_dtype=np.dtype(np.float32),
)
FLOAT16 = Format(
    name="float16",
    bits=16,
    significand_bits=11,
    min_exponent=-14,
    max_exponent=15,
    dtype=np.dtype(np.float16),
    bits_dtype=np.dtype(np.uint16),
)
BFLOAT16 = Format(
    name="bfloat16",
    bits=16,
    significand_bits=8,
    min_exponent=-126,
    max_exponent=127,
    dtype=np.dtype(ml_dtypes.bfloat16),
    bits_dtype=np.dtype(np.int16),
)

FORMATS = (FLOAT32, FLOAT16, BFLOAT16)
_BY_NAME = {format.name: format for format in FORMATS} | {
    "fp32": FLOAT32,
    "float": FLOAT32,
    "fp16": FLOAT16,
    "half": FLOAT16,
    "bf16": BFLOAT16,
}
_BY_DTYPE = {format.dtype: format for format in FORMATS}
_BY_BITS_DTYPE = {format.bits_dtype: format for format in FORMATS}


def get(name: Any) -> Format:
    """The format called ``name``: a `Format`, a name ("float16", "fp16", "half", ...) or a NumPy dtype.

    Raises:
        EmulatorError: the vector unit's float formats do not include it.
    """
    if isinstance(name, Format):
        return name
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        with contextlib.suppress(TypeError):
            found = _BY_DTYPE.get(np.dtype(name))
    if found is None:
        raise EmulatorError(
            explain(
                "number format",
                got=name,
                allowed="float32, float16, bfloat16",
                remedy="give a name (also fp32, float, fp16, half, bf16) or NumPy dtype",
            )
        )
    return found


def to_bits(array: np.ndarray) -> np.ndarray:
    """View for compiled code of a float32, float16 or bfloat16 array (any shape and strides, no copy).

    Raises:
        EmulatorError: another dtype.
    """
    return array.view(get(array.dtype).bits_dtype)


def from_bits(array: np.ndarray) -> np.ndarray:
    """Inverse of `to_bits`: float32, uint16 or int16 in; float32, float16 or bfloat16 out, no copy.

    Raises:
        EmulatorError: another dtype.
    """
    format = _BY_BITS_DTYPE.get(array.dtype)
    if format is None:
        raise EmulatorError(
            explain(
                "array of a number format's bits",
                got=array.dtype,
                allowed="float32, uint16 (of float16), int16 (of bfloat16)",
                remedy="view the array as one of these",
            )
        )
    return array.view(format.dtype)


i32 = np.int32
"""Cuts every integer step to 32 bits: Numba widens them to 64, which halves the vector width."""


# ---- to fp32: exact ---------------------------------------------------------------------------------------


@njit
def half_to_single(h):  # type: ignore[no-untyped-def]
    """fp16 bits (uint16) as float32 by integer arithmetic, for CPUs without a conversion instruction."""
    magnitude = np.int32(h) & np.int32(0x7FFF)
    if magnitude < 0x0400:
        value = np.float32(magnitude) * np.float32(2.0**-24)
    else:
        rebias = 0x38000000 if magnitude < 0x7C00 else 0x70000000
        quiet = 0x00400000 if magnitude > 0x7C00 else 0
        value = np.int32((magnitude << 13) + rebias | quiet).view(np.float32)
    return np.float32(-value) if h >= 0x8000 else value


@njit
def bfloat16_to_single(b):  # type: ignore[no-untyped-def]
    """bf16 bits (int16) as float32."""
    return np.int32(np.int32(b) << 16).view(np.float32)


@intrinsic
def _half_to_single_native(typing_context, h):  # type: ignore[no-untyped-def]
    """The same with the CPU's instruction; LLVM makes it a vector one in loops."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


def _cpu_converts_half() -> bool:
    """Whether compiled code may use the instruction (without it LLVM calls a function that is not there)."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    config: Any = numba.config
    features = config.CPU_FEATURES
    if features is None:
        features = get_host_cpu_features()
    return {"+f16c", "+avx"} <= set(features.split(","))


def decode(v: Any) -> Any:
    """One element of an array in compiled form as float32, exactly.

    Args:
        v: float32 (returned as it is), uint16 (fp16 bits) or int16 (bf16 bits).
    """
    if isinstance(v, np.uint16):
        v = half_to_single(v)
    elif isinstance(v, np.int16):
        v = bfloat16_to_single(v)
    return np.float32(v)


@overload(decode)
def _decode(v):  # type: ignore[no-untyped-def]
    if v == types.uint16:
        if _cpu_converts_half():
            return lambda v: _half_to_single_native(v)
        return lambda v: half_to_single(v)
    if v == types.int16:
        return lambda v: bfloat16_to_single(v)
    return (lambda v: v) if v == types.float32 else None


# ---- from fp32: one rounding ------------------------------------------------------------------------------


@njit
def _shift_right(m, shift, sign, mode):  # type: ignore[no-untyped-def]
    """The magnitude ``m / 2**shift`` of a number, rounded to an integer; ``sign`` is 0 or (negative) -1."""
    lost = i32(i32(1 << shift) - 1)
    kept = i32(m >> shift)
    if mode == RoundMode.ODD:
        return i32(kept | i32(i32(i32(m & lost) + lost) >> shift))
    if mode == RoundMode.TRUNC:
        up = i32(0)
    elif mode == RoundMode.ROUND:
        up = i32(i32(lost >> 1) + 1)
    elif mode == RoundMode.FLOOR:
        up = i32(lost & sign)
    elif mode == RoundMode.CEIL:
        up = i32(lost & ~sign)
    else:  # NONE, RINT
        up = i32(i32(lost >> 1) + i32(kept & 1))
    return i32(i32(m + up) >> shift)


@njit
def round_to_half(x, mode, saturate):  # type: ignore[no-untyped-def]
    """float32 rounded once to fp16 (uint16 bits), as Cast does; subnormals are kept.

    Args:
        x: float32.
        mode: A `RoundMode` other than HYBRID (not checked here).
        saturate: False keeps infinities and NaN and overflows as IEEE 754 says for the mode (to +-65504 when
            rounding towards zero, and for ODD); True gives no infinities, and 0 for NaN (ascend_facts 3.3).
    """
    bits = np.float32(x).view(np.int32)
    sign = i32(bits >> 31)
    magnitude = i32(bits & 0x7FFFFFFF)
    below = min(magnitude, i32(0x477FFFFF))  # largest fp32 below 2**16: rounds as everything above it
    exponent = i32(below >> 23)
    shift = min(max(i32(126 - exponent), i32(13)), i32(25))
    significand = i32(i32(below & 0x7FFFFF) | i32(min(exponent, i32(1)) << 23))
    offset = i32(max(i32(exponent - 113), i32(0)) << 10)
    result = i32(_shift_right(significand, shift, sign, mode) + offset)
    if magnitude == 0x7F800000:
        result = i32(0x7C00)
    if saturate:
        result = min(result, i32(0x7BFF))
    result = i32(result | i32(sign & 0x8000))
    if magnitude > 0x7F800000:
        result = i32(0) if saturate else i32(0x7E00)
    return np.uint16(result)


@njit
def round_to_bfloat16(x, mode, saturate):  # type: ignore[no-untyped-def]
    """float32 rounded once to bf16 (int16 bits); arguments as for `round_to_half`."""
    bits = np.float32(x).view(np.int32)
    sign = i32(bits >> 31)
    magnitude = i32(bits & 0x7FFFFFFF)
    result = _shift_right(min(magnitude, i32(0x7F800000)), i32(16), sign, mode)
    if saturate:
        result = min(result, i32(0x7F7F))
    result = i32(result | i32(sign << 15))
    if magnitude > 0x7F800000:
        result = i32(0) if saturate else i32(0x7FC0)
    return np.int16(result)


def store(array: Any, index: Any, x: Any, mode: Any, saturate: Any) -> None:
    """``array[index] = x`` rounded to the format of the array (in compiled form); the rest as above."""
    if array.dtype == np.uint16:
        array[index] = round_to_half(x, mode, saturate)
    elif array.dtype == np.int16:
        array[index] = round_to_bfloat16(x, mode, saturate)
    else:
        array[index] = x


@overload(store)
def _store(array, index, x, mode, saturate):  # type: ignore[no-untyped-def]
    def to_half(array, index, x, mode, saturate):  # type: ignore[no-untyped-def]
        array[index] = round_to_half(x, mode, saturate)

    def to_bfloat16(array, index, x, mode, saturate):  # type: ignore[no-untyped-def]
        array[index] = round_to_bfloat16(x, mode, saturate)

    def to_single(array, index, x, mode, saturate):  # type: ignore[no-untyped-def]
        array[index] = x

    return {types.uint16: to_half, types.int16: to_bfloat16, types.float32: to_single}.get(array.dtype)


@njit(nogil=True)
def _cast_all(source, target, mode, saturate):  # type: ignore[no-untyped-def]
    for i in range(source.size):
        store(target, i, decode(source[i]), mode, saturate)


def cast(array: np.ndarray, dtype: Any, mode: int = RoundMode.RINT, saturate: bool = False) -> np.ndarray:
    """``array`` in another format, rounded once.

    Args:
        array: float32, float16 or bfloat16, any shape.
        dtype: Target, anything `get` takes. The array itself is returned when it has that format already.
        mode: Rounding; all but HYBRID.
        saturate: Overflow mode of fp16 and bf16 targets, see `round_to_half`.

    Raises:
        EmulatorError: unknown format or rounding.
    """
    target = get(dtype)
    if mode not in tuple(RoundMode) or mode == RoundMode.HYBRID:
        allowed = ", ".join(m.name for m in RoundMode if m != RoundMode.HYBRID)
        raise EmulatorError(
            explain(f"rounding of Cast to {target.name}", got=mode, allowed=allowed, remedy="give a RoundMode")
        )
    bits = to_bits(np.asarray(array))
    if bits.dtype == target.bits_dtype:
        return array
    result = np.empty(bits.size, target.bits_dtype)
    _cast_all(bits.reshape(-1), result, int(mode), bool(saturate))
    return from_bits(result).reshape(bits.shape)


# ---- helpers for comparisons and self-checks --------------------------------------------------------------


def canonical_nan(array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The float32 array with every NaN replaced by 0x7fc00000, so that results can be compared bit for bit.

    Args:
        array: float32, any shape.
        out: Where to write; ``out=array`` works in place. None makes a copy.

    Raises:
        EmulatorError: not float32.
    """
    if array.dtype != np.float32 or (out is not None and out.dtype != np.float32):
        raise EmulatorError(
            explain("canonical_nan's arrays", got=array.dtype, allowed="float32", remedy="cast them first")
        )
    if out is None:
        out = np.empty_like(array)
    if out is not array:
        out[...] = array
    np.putmask(out.view(np.uint32), np.isnan(out), np.uint32(0x7FC00000))
    return out


@njit
def two_sum(a, b):  # type: ignore[no-untyped-def]
    """float32 sum and its rounding error: ``s + e == a + b`` exactly, barring overflow (Knuth's TwoSum)."""
    s = np.float32(a + b)
    b_part = np.float32(s - a)
    a_part = np.float32(s - b_part)
    return s, np.float32(np.float32(a - a_part) + np.float32(b - b_part))


@njit
def _self_test_loop(a, b, c, s, e, r):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        s[i], e[i] = two_sum(a[i], b[i])
        r[i] = np.float32(np.float32(a[i] * b[i]) + c[i])


def two_sum_self_test() -> None:
    """Check on 1000 fixed pairs that compiled fp32 arithmetic rounds every single operation.

    Reassociation would lose the TwoSum errors; a fused multiply-add would leave the error of ``a*b`` in
    ``a*b - fl(a*b)``, which must be 0.

    Raises:
        EmulatorError: the compiler changed the arithmetic.
    """
    k = np.arange(1, 1001, dtype=np.int64)
    a = ((k * 7919**2) % 16777213 - 8388606).astype(np.float32)
    b = (((k * 104729**2) % 16777199 - 8388599) * 2.0 ** -(k % 23)).astype(np.float32)
    s, e, r = (np.empty_like(a) for _ in range(3))
    _self_test_loop(a, b, -(a * b), s, e, r)
    exact = all(
        Fraction(float(p)) + Fraction(float(q)) == Fraction(float(t)) + Fraction(float(u))
        for p, q, t, u in zip(a, b, s, e, strict=True)
    )
    if not (exact and e.any()):
        raise EmulatorError("compiled code reassociates fp32 additions: its results are not the device's")
    if r.any():
        raise EmulatorError("compiled code fuses fp32 multiply and add: its results are not the device's")
