"""How kernels are compiled: for the types that are listed, when the module is imported, kept on disk.

Arithmetic is IEEE's, one operation at a time and in the order that is written: no fast-math, and LLVM
contracts no multiplication with an addition unless it is told to.  Nothing is compiled at a call: a
type that is not listed is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import alloca_once_value, for_range_slice
from numba.core.types import Type
from numba.extending import intrinsic

boolean, uint8, uint16, uint32, uint64 = types.boolean, types.uint8, types.uint16, types.uint32, types.uint64
int8, int32, int64 = types.int8, types.int32, types.int64
float32, float64, void = types.float32, types.float64, types.void
FLOATS = (float32, float64)
BITS = (uint32, uint64)
STREAM = types.UniTuple(int64, 5)  # its key and the upper lanes of its counter, each of 32 bits


def read(element: Type) -> Type:
    """A contiguous vector that is only read: it may be read-only, and at any address."""
    return types.Array(element, 1, "C", readonly=True, aligned=False)


def write(element: Type) -> Type:
    """A contiguous vector that is changed."""
    return types.Array(element, 1, "C")


def kernel(*signatures: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for these signatures, or load it from the folder of an earlier process.

    Indices are checked where NUMBA_BOUNDSCHECK=1 asks for it, as fuzzing does, but for those of ``reaching``,
    ``dot_of_8``, ``dot_in_8_lanes`` and the Walsh-Hadamard transform.
    """
    return njit(list(signatures), cache=True, nogil=True, error_model="numpy", fastmath=False)


@intrinsic
def trailing_zeros(typingctx: Any, word: Type) -> Any:
    """The number of zero bits below the lowest set bit of a uint64, 64 if there is none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(boolean, False))

    return uint64(uint64), codegen


@intrinsic
def reaching(typingctx: Any, bits: Any, start: Type, mask: Type, least: Type) -> Any:
    """Bit j of a uint64 for each of 64 numbers: is ``bits[start + j] & mask`` at least ``least``?

    One comparison of vectors, whose answer is the word: of a loop over the bits the compiler makes
    shifts of 64 words.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        number = context.get_value_type(signature.args[0].dtype)
        vector = ir.VectorType(number, 64)

        def each(x: Any) -> Any:
            first = builder.insert_element(vector(ir.Undefined), x, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
            return builder.shuffle_vector(first, vector(ir.Undefined), zeros)

        at = builder.bitcast(builder.gep(array.data, [args[1]]), vector.as_pointer())
        masked = builder.and_(builder.load(at, align=1), each(args[2]))
        return builder.bitcast(builder.icmp_unsigned(">=", masked, each(args[3])), ir.IntType(64))

    return uint64(bits, int64, bits.dtype, bits.dtype), codegen


@intrinsic
def dot_of_8(typingctx: Any, a: Any, i: Type, b: Any, j: Type) -> Any:
    """The sum of ``a[i + r] * b[j + r]`` for r = 0 .. 7, of uint32, as uint64.

    One product of vectors: of a loop the compiler makes eight multiplications.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        narrow, wide = (ir.VectorType(ir.IntType(bits), 8) for bits in (32, 64))

        def load(array: Any, start: Any) -> Any:
            data = context.make_array(signature.args[array])(context, builder, args[array]).data
            at = builder.bitcast(builder.gep(data, [args[start]]), narrow.as_pointer())
            return builder.zext(builder.load(at, align=1), wide)

        def part(vector: Any, lanes: range) -> Any:
            mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
            return builder.shuffle_vector(vector, vector, mask)

        sums = builder.mul(load(0, 1), load(2, 3))
        for half in (4, 2, 1):
            sums = builder.add(part(sums, range(half)), part(sums, range(half, 2 * half)))
        return builder.extract_element(sums, ir.IntType(32)(0))

    return uint64(a, int64, b, int64), codegen


@intrinsic
def dot_in_8_lanes(typingctx: Any, a: Any, i: Type, b: Any, j: Type, n: Type) -> Any:
    """The sum of ``a[i + r] * b[j + r]`` for r = 0 .. n - 1, in doubles; n is a multiple of 8.

    Lane l sums the r with r mod 8 = l, and the lanes are summed in pairs, as numpy does.  One product and one
    sum of vectors for 8 entries: of a loop over an array of lanes the compiler makes stores and loads.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide, count, bits = ir.VectorType(ir.DoubleType(), 8), args[4].type, ir.IntType(32)

        def load(array: int, start: int, r: Any) -> Any:
            number = context.get_value_type(signature.args[array].dtype)
            data = context.make_array(signature.args[array])(context, builder, args[array]).data
            at = builder.gep(data, [builder.add(args[start], r)])
            entries = builder.load(builder.bitcast(at, ir.VectorType(number, 8).as_pointer()), align=1)
            return entries if number == ir.DoubleType() else builder.fpext(entries, wide)

        lanes = alloca_once_value(builder, ir.Constant(wide, [0.0] * 8))
        with for_range_slice(builder, count(0), args[4], count(8), count) as (r, _):
            products = builder.fmul(load(0, 1, r), load(2, 3, r))
            builder.store(builder.fadd(builder.load(lanes), products), lanes)
        sums = [builder.extract_element(builder.load(lanes), bits(lane)) for lane in range(8)]
        while len(sums) > 1:
            sums = [builder.fadd(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
        return sums[0]

    return float64(a, int64, b, int64, int64), codegen


@intrinsic
def set_bits(typingctx: Any, word: Type) -> Any:
    """The number of bits of a uint64 that are set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return uint64(uint64), codegen


@intrinsic
def float_of(typingctx: Any, word: Type) -> Any:
    """The double with the bits of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(float64))

    return float64(uint64), codegen


@intrinsic
def bits_of(typingctx: Any, number: Type) -> Any:
    """The bits of a double as a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(uint64))

    return uint64(float64), codegen


@intrinsic
def single_bits_of(typingctx: Any, number: Type) -> Any:
    """The bits of a single as a uint32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(uint32))

    return uint32(float32), codegen


@intrinsic
def single_of(typingctx: Any, word: Type) -> Any:
    """The single with the bits of a uint32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(float32))

    return float32(uint32), codegen
