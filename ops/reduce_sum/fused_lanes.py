"""Eight fp32 lanes (one 32-byte block of the device) as one value of compiled code, and bare pointers.

Numba has no vector type, and its arrays are counted references of seven words; in code that moves 49 elements
at a time both cost more than the additions. A value of type ``Lanes`` is an LLVM ``<8 x float>``: ``+`` and
``*`` round every lane once, as the scalar operations do. ``pointer(array)`` is one word; whoever owns the
array must keep it alive. Without the JIT a pointer is the array itself and lanes are a NumPy array of 8.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from emulator.formats import cpu_converts_half, decode

WIDTH = 8
I32, F32 = ir.IntType(32), ir.FloatType()
VECTOR = ir.VectorType(F32, WIDTH)


class Lanes(types.Type):
    """Numba's type of the value."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, VECTOR)


LANES = Lanes()


@infer_global(operator.add)
class _Add(ConcreteTemplate):  # type: ignore[misc]
    cases = (signature(LANES, LANES, LANES),)


@infer_global(operator.mul)
class _Mul(ConcreteTemplate):  # type: ignore[misc]
    cases = (signature(LANES, LANES, LANES),)


@lower_builtin(operator.add, LANES, LANES)
def _add(context, builder, sig, args):  # type: ignore[no-untyped-def]
    return builder.fadd(*args)


@lower_builtin(operator.mul, LANES, LANES)
def _mul(context, builder, sig, args):  # type: ignore[no-untyped-def]
    return builder.fmul(*args)


def _python(plain: Callable[..., Any]) -> Callable[[Any], Any]:
    """Use ``plain`` instead when the JIT is off."""
    return lambda compiled: plain if numba.config.DISABLE_JIT else compiled


def _constant(*values: int) -> Any:
    return ir.Constant(ir.VectorType(I32, len(values)), list(values))


def _at(builder: Any, pointer: Any, index: Any) -> Any:
    """Elements ``index`` .. ``index + 7`` from a pointer, as a pointer to a vector."""
    one = builder.gep(pointer, [index])
    return builder.bitcast(one, ir.VectorType(pointer.type.pointee, WIDTH).as_pointer())


def _widen(context: Any, builder: Any, bits: Any, element: Any) -> Any:
    """8 elements in compiled form as fp32 (``decode`` of each)."""
    if element == types.float32:
        return bits
    if element == types.int16:
        wide = builder.zext(bits, ir.VectorType(I32, WIDTH))
        return builder.bitcast(builder.shl(wide, _constant(*[16] * WIDTH)), VECTOR)
    if cpu_converts_half():
        return builder.fpext(builder.bitcast(bits, ir.VectorType(ir.HalfType(), WIDTH)), VECTOR)
    result = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(WIDTH):
        one = builder.extract_element(bits, I32(lane))
        single = context.compile_internal(builder, lambda v: decode(v), types.float32(element), [one])
        result = builder.insert_element(result, single, I32(lane))
    return result


@_python(lambda array: array)
@intrinsic
def pointer(typingctx, array):  # type: ignore[no-untyped-def]
    """The first element of a 1-D contiguous array of float32, uint16 (fp16) or int16 (bf16)."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return context.make_array(array)(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate  # type: ignore[attr-defined]


@_python(lambda a, i: decode(a[i]))
@intrinsic
def get(typingctx, a, i):  # type: ignore[no-untyped-def]
    """a[i] as fp32."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        value = builder.load(builder.gep(args[0], [args[1]]))
        return context.compile_internal(builder, lambda v: decode(v), types.float32(a.dtype), [value])

    return types.float32(a, types.intp), generate


def _plain_put(a: Any, i: int, v: Any) -> None:
    a[i] = v


@_python(_plain_put)
@intrinsic
def put(typingctx, a, i, v):  # type: ignore[no-untyped-def]
    """a[i] = v; ``a`` is float32."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(a, types.intp, types.float32), generate


@_python(lambda a, i: np.array([decode(v) for v in a[i : i + WIDTH]], np.float32))
@intrinsic
def load(typingctx, a, i):  # type: ignore[no-untyped-def]
    """a[i] .. a[i + 7] as fp32."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        bits = builder.load(_at(builder, *args))
        bits.align = a.dtype.bitwidth // 8
        return _widen(context, builder, bits, a.dtype)

    return LANES(a, types.intp), generate


def _plain_store(a: Any, i: int, v: Any) -> None:
    a[i : i + WIDTH] = v


@_python(_plain_store)
@intrinsic
def store(typingctx, a, i, v):  # type: ignore[no-untyped-def]
    """a[i] .. a[i + 7] = v; ``a`` is float32."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        builder.store(args[2], _at(builder, *args[:2]), align=4)
        return context.get_dummy_value()

    return types.void(a, types.intp, LANES), generate


@_python(lambda: np.zeros(WIDTH, np.float32))
@intrinsic
def zeros(typingctx):  # type: ignore[no-untyped-def]
    """Eight times +0."""
    return LANES(), lambda context, builder, sig, args: ir.Constant(VECTOR, [0.0] * WIDTH)


@_python(lambda v, count: np.where(np.arange(WIDTH) < count, v, np.float32(0)))
@intrinsic
def first(typingctx, v, count):  # type: ignore[no-untyped-def]
    """The first ``count`` lanes of ``v``, +0 in the others."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        number = builder.trunc(args[1], I32)
        numbers = builder.insert_element(ir.Constant(ir.VectorType(I32, WIDTH), ir.Undefined), number, I32(0))
        numbers = builder.shuffle_vector(numbers, numbers, _constant(*[0] * WIDTH))
        keep = builder.icmp_signed("<", _constant(*range(WIDTH)), numbers)
        return builder.select(keep, args[0], ir.Constant(VECTOR, [0.0] * WIDTH))

    return LANES(LANES, types.intp), generate


@_python(lambda v, w: np.concatenate((v, w))[0::2] + np.concatenate((v, w))[1::2])
@intrinsic
def pairs(typingctx, v, w):  # type: ignore[no-untyped-def]
    """The 8 sums of adjacent lanes: v0 + v1, v2 + v3, ..., w6 + w7."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        even = builder.shuffle_vector(*args, _constant(*range(0, 2 * WIDTH, 2)))
        odd = builder.shuffle_vector(*args, _constant(*range(1, 2 * WIDTH, 2)))
        return builder.fadd(even, odd)

    return LANES(LANES, LANES), generate


@_python(lambda v, i, x: np.where(np.arange(WIDTH) == i, x, v))
@intrinsic
def with_lane(typingctx, v, i, x):  # type: ignore[no-untyped-def]
    """``v`` with lane ``i`` replaced by ``x``."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.insert_element(args[0], args[2], builder.trunc(args[1], I32))

    return LANES(LANES, types.intp, types.float32), generate


@_python(lambda v: v[0])
@intrinsic
def lane0(typingctx, v):  # type: ignore[no-untyped-def]
    """The first lane."""
    return types.float32(LANES), lambda context, builder, sig, args: builder.extract_element(args[0], I32(0))
