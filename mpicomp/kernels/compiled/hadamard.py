"""The Walsh-Hadamard transform, compiled: three steps, or six, of adding and subtracting in a pass.

Entries 1, 2 and 4 apart lie in one vector of eight.  Entries further apart lie in the same lane of different
vectors, and eight of these are worked on at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core.types import Type
from numba.extending import intrinsic

from mpicomp.kernels.compiled.jit import float64, int64, kernel, void, write

_EIGHT = ir.VectorType(ir.DoubleType(), 8)
_STEPS = (1, 2, 4)


@intrinsic
def _of_64(typingctx: Any, y: Any, start: Type) -> Any:
    """H of the 64 entries of ``y`` from ``start`` on, in place."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _addresses(context, builder, signature, args[0], args[1], 8)
        _store(builder, _across(builder, [_within(builder, builder.load(j, align=8)) for j in at]), at)
        return context.get_dummy_value()

    return void(y, int64), codegen


@intrinsic
def _of_8(typingctx: Any, y: Any, start: Type, h: Type) -> Any:
    """H of the entries ``start``, ``start`` + h, .., ``start`` + 7 h of ``y``, and of the 7 next to each."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _addresses(context, builder, signature, *args)
        _store(builder, _across(builder, [builder.load(j, align=8) for j in at]), at)
        return context.get_dummy_value()

    return void(y, int64, int64), codegen


def _addresses(context: Any, builder: Any, signature: Any, y: Any, start: Any, h: Any) -> list[Any]:
    """The places of eight vectors: of the entries from ``start``, ``start`` + h, .. on."""
    data = context.make_array(signature.args[0])(context, builder, y).data
    step = start.type(h) if isinstance(h, int) else h
    starts = [builder.add(start, builder.mul(step, start.type(r))) for r in range(8)]
    return [builder.bitcast(builder.gep(data, [j]), _EIGHT.as_pointer()) for j in starts]


def _store(builder: Any, vectors: list[Any], at: list[Any]) -> None:
    for vector, place in zip(vectors, at, strict=True):
        builder.store(vector, place, align=8)


def _within(builder: Any, v: Any) -> Any:
    """H of the eight entries of a vector.  a - b is a + (-b), so that all lanes add."""
    for h in _STEPS:
        first = ir.Constant(ir.VectorType(ir.IntType(32), 8), [j & ~h for j in range(8)])
        second = ir.Constant(ir.VectorType(ir.IntType(32), 8), [j | h for j in range(8)])
        minus = ir.Constant(ir.VectorType(ir.IntType(64), 8), [int(j & h > 0) << 63 for j in range(8)])
        low, high = builder.shuffle_vector(v, v, first), builder.shuffle_vector(v, v, second)
        turned = builder.xor(builder.bitcast(high, minus.type), minus)
        v = builder.fadd(low, builder.bitcast(turned, _EIGHT))
    return v


def _across(builder: Any, v: list[Any]) -> list[Any]:
    """H of eight vectors, lane by lane."""
    for h in _STEPS:
        v = [builder.fsub(v[r - h], v[r]) if r & h else builder.fadd(v[r], v[r + h]) for r in range(8)]
    return v


@kernel(void(write(float64)))
def hadamard(y):
    """H y in place, for 2^k entries: those 1, 2, 4, .. apart are added and subtracted, in this order."""
    n, h = y.size, 1
    if n >= 64:
        for start in range(0, n, 64):
            _of_64(y, start)
        h = 64
        while 8 * h <= n:
            for first in range(0, n, 8 * h):
                for start in range(first, first + h, 8):
                    _of_8(y, start, h)
            h *= 8
    while h < n:
        for start in range(0, n, 2 * h):
            a, b = y[start : start + h], y[start + h : start + 2 * h]
            for j in range(h):
                u, v = a[j], b[j]
                a[j] = u + v
                b[j] = u - v
        h *= 2
