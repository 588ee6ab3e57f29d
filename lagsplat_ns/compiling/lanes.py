"""Eight numbers that kernels treat as one: a vector register of float64, whatever LLVM makes of it on this machine.

In kernels `Lanes` support +, -, *, / among themselves and with scalars, and unary minus. Arrays of lanes are flat
float64 arrays: row r occupies the elements 8 r to 8 r + 7. Every lane is computed alone and in the written order, so
that its result does not depend on its neighbors.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from lagsplat_ns.compiling.kernels import device_function

__all__ = ["LANES", "add_row", "cos_sin", "floor", "load", "splat", "sqrt", "store"]

LANES = 8
_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_FLAGS = ("contract",)  # a b + c may be fused; nothing may be reordered
intrinsic: Any = extending.intrinsic
_typing_of: Any = infer_global


class LanesType(types.Type):
    """Numba's type of eight float64."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes{LANES}")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [builder.mul(row, ir.Constant(_INDEX, LANES))]), _VECTOR.as_pointer())


@intrinsic
def load(typing_context, array, row):
    """A row of a flat array."""

    def generate(context, builder, signature, arguments):
        return builder.load(_row(context, builder, signature.args[0], *arguments), align=8)

    return lanes(array, types.int64), generate


@intrinsic
def store(typing_context, array, row, value):
    """Writes a row of a flat array."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[2], _row(context, builder, signature.args[0], *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), generate


@intrinsic
def splat(typing_context, value):
    """The same number in all lanes."""

    def generate(context, builder, signature, arguments):
        return _splat(builder, arguments[0])

    return lanes(types.float64), generate


def _unary(name: str) -> Any:
    @intrinsic
    def function(typing_context, value):
        def generate(context, builder, signature, arguments):
            kind = ir.FunctionType(_VECTOR, [_VECTOR])
            callee = cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LANES}f64")
            return builder.call(callee, arguments)

        return lanes(lanes), generate

    return function


sqrt = _unary("llvm.sqrt")
floor = _unary("llvm.floor")


class _Binary(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and lanes in args and all(arg == lanes or arg == types.float64 for arg in args):
            return signature(lanes, *args)
        return None


class _Unary(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(lanes, lanes) if args == (lanes,) else None


def _lower(operation: Any, name: str) -> None:
    _typing_of(operation)(type(f"_{name}", (_Binary,), {"key": operation}))
    for kinds in ((lanes, lanes), (lanes, types.float64), (types.float64, lanes)):

        @lower_builtin(operation, *kinds)
        def implementation(context, builder, signature, arguments):
            values = [v if k == lanes else _splat(builder, v) for k, v in zip(signature.args, arguments)]
            return getattr(builder, name)(*values, flags=_FLAGS)


_lower(operator.add, "fadd")
_lower(operator.sub, "fsub")
_lower(operator.mul, "fmul")
_lower(operator.truediv, "fdiv")
_typing_of(operator.neg)(type("_neg", (_Unary,), {"key": operator.neg}))


@lower_builtin(operator.neg, lanes)
def _negative(context, builder, signature, arguments):
    return builder.fneg(arguments[0])


@device_function
def add_row(array, row, value):
    """array[row] += value."""
    store(array, row, load(array, row) + value)


# Cody and Waite's reduction by pi / 2 in two pieces, exact for |x| < 10^6; polynomials of Cephes (sincos, double).
_PER_QUARTER = 0.6366197723675814
_QUARTER, _QUARTER_REST = 1.57079632673412561417, 6.07710050650619224932e-11
_S1, _S2, _S3 = -1.66666666666666307295e-1, 8.33333333332211858878e-3, -1.98412698295895385996e-4
_S4, _S5, _S6 = 2.75573136213857245213e-6, -2.50507477628578072866e-8, 1.58962301576546568060e-10
_C1, _C2, _C3 = 4.16666666666665929218e-2, -1.38888888888730564116e-3, 2.48015872888517045348e-5
_C4, _C5, _C6 = -2.75573141792967388112e-7, 2.08757008419747316778e-9, -1.13585365213876817300e-11


@device_function
def cos_sin(x):
    """Cosine and sine in all lanes, to about 1e-16 for |x| < 10^6."""
    turns = floor(x * _PER_QUARTER + 0.5)
    r = (x - turns * _QUARTER) - turns * _QUARTER_REST
    z = r * r
    sine = r + r * z * (((((_S6 * z + _S5) * z + _S4) * z + _S3) * z + _S2) * z + _S1)
    cosine = (1.0 - 0.5 * z) + z * z * (((((_C6 * z + _C5) * z + _C4) * z + _C3) * z + _C2) * z + _C1)
    quadrant = turns - 4.0 * floor(turns * 0.25)
    is_odd = quadrant - 2.0 * floor(quadrant * 0.5)
    up = 1.0 - 2.0 * floor(quadrant * 0.5)  # the sign of the sine
    half = floor((quadrant + 1.0) * 0.5)
    right = 1.0 - 2.0 * (half - 2.0 * floor(half * 0.5))  # the sign of the cosine
    even = 1.0 - is_odd
    return right * (even * cosine + is_odd * sine), up * (even * sine + is_odd * cosine)
