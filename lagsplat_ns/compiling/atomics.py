"""Operations on memory that several threads share."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types

__all__ = ["atomic_load", "draw_ticket"]

intrinsic: Any = extending.intrinsic


@intrinsic
def draw_ticket(typing_context, counter):
    """The value of counter[0], which is increased by one: an atomic fetch-and-add."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate


@intrinsic
def atomic_load(typing_context, flags, index):
    """flags[index] as other threads last wrote it."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load_atomic(builder.gep(array.data, [arguments[1]]), "acquire", 8)

    return types.int64(flags, types.int64), generate
