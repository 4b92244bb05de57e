"""Half precision and bfloat16, compiled: made and read on the bits, without branches.

Singles stay in 32 bits, so that as many of them as possible are treated at once.
"""

from __future__ import annotations

import numpy as np

from mpicomp.kernels.compiled.jit import (
    FLOATS,
    bits_of,
    boolean,
    float32,
    float64,
    float_of,
    kernel,
    read,
    single_bits_of,
    single_of,
    uint16,
    uint64,
    void,
    write,
)

_MAGNITUDE = np.uint64(2**63 - 1)
_U14, _U48, _U52 = np.uint64(14), np.uint64(48), np.uint64(52)
_ONE, _SIGN, _INTEGER = np.uint64(1), np.uint64(0x8000), 2.0**52

_MAGNITUDE_32, _ONE_32, _SIGN_32 = np.uint32(2**31 - 1), np.uint32(1), np.uint32(0x8000)
_U10, _U13, _U16, _U23 = np.uint32(10), np.uint32(13), np.uint32(16), np.uint32(23)
_INTEGER_32, _BELOW_HALF = np.float32(2.0**23), np.uint32(0x7FFF)

# In half precision: the least normal number and its exponent, and 2 * 127 and the bits of a fraction.
_LEAST, _LEAST_EXPONENT, _UNITS = np.float32(2.0**-14), np.uint32(113), np.uint32(264)


@kernel(uint64(float64, uint64))
def _short(x, fraction):
    """Exponent and fraction of |x|, rounded to ``fraction`` bits of 15; a larger number where |x| overflows.

    |x| is counted in units of 2^(e - fraction), e being its exponent or the least of normal numbers.  Between
    2^52 and 2^53 the doubles are the integers, so adding 2^52 rounds the count, once and to even.  A count of
    2^(fraction + 1) carries into the exponent by itself.
    """
    magnitude = bits_of(x) & _MAGNITUDE
    least = np.uint64(1025) - (_ONE << (_U14 - fraction))
    exponent = max(magnitude >> _U52, least)
    count = float_of(magnitude) * float_of((np.uint64(2046) + fraction - exponent) << _U52)
    return ((exponent - least) << fraction) + (bits_of(count + _INTEGER) - bits_of(_INTEGER))


@kernel(boolean(read(float64), write(uint16)))
def half_of_double(x, out):
    finite = 0
    for j in range(x.size):
        code = _short(x[j], np.uint64(10))
        finite += code < np.uint64(0x7C00)
        out[j] = ((bits_of(x[j]) >> _U48) & _SIGN) | code
    return finite == x.size


@kernel(boolean(read(float64), write(uint16)))
def bf16_of_double(x, out):
    finite = 0
    for j in range(x.size):
        code = _short(x[j], np.uint64(7))
        finite += code < np.uint64(0x7F80)
        out[j] = ((bits_of(x[j]) >> _U48) & _SIGN) | code
    return finite == x.size


@kernel(boolean(read(float32), write(uint16)))
def half_of_single(x, out):
    """As ``_short``, with 2^23 for 2^52."""
    finite = 0
    for j in range(x.size):
        bits = single_bits_of(x[j])
        magnitude = np.uint32(bits & _MAGNITUDE_32)
        exponent = max(np.uint32(magnitude >> _U23), _LEAST_EXPONENT)
        count = single_of(magnitude) * single_of(np.uint32((_UNITS - exponent) << _U23))
        units = single_bits_of(count + _INTEGER_32) - single_bits_of(_INTEGER_32)
        code = np.uint32(((exponent - _LEAST_EXPONENT) << _U10) + units)
        finite += code < np.uint32(0x7C00)
        out[j] = ((bits >> _U16) & _SIGN_32) | code
    return finite == x.size


@kernel(boolean(read(float32), write(uint16)))
def bf16_of_single(x, out):
    """The upper half, one more where the lower is above 0x8000, or is that and the upper is odd."""
    finite = 0
    for j in range(x.size):
        bits = single_bits_of(x[j])
        magnitude = np.uint32(bits & _MAGNITUDE_32)
        code = np.uint32(np.uint32(magnitude + _BELOW_HALF + ((bits >> _U16) & _ONE_32)) >> _U16)
        finite += code < np.uint32(0x7F80)
        out[j] = ((bits >> _U16) & _SIGN_32) | code
    return finite == x.size


@kernel(float32(uint16))
def _from_half(code):
    """Normal numbers get another bias; a subnormal fraction is added to 2^-14, which is then subtracted."""
    magnitude = np.uint32((code & np.uint16(0x7FFF)) << _U13)
    rebias = np.uint32((224 if magnitude >= np.uint32(31 << 23) else 112) << 23)
    subnormal = single_of(np.uint32(magnitude + single_bits_of(_LEAST))) - _LEAST
    value = subnormal if magnitude < np.uint32(1 << 23) else single_of(np.uint32(magnitude + rebias))
    return -value if code & np.uint16(0x8000) else value


@kernel(float32(uint16))
def _from_bf16(code):
    return single_of(np.uint32(code << _U16))


@kernel(void(read(uint16), write(float32)))
def widen_half(codes, out):
    for j in range(codes.size):
        out[j] = _from_half(codes[j])


@kernel(void(read(uint16), write(float32)))
def widen_bf16(codes, out):
    for j in range(codes.size):
        out[j] = _from_bf16(codes[j])


@kernel(*(void(read(uint16), write(o), float64) for o in FLOATS))
def add_half(codes, out, scale):
    for j in range(codes.size):
        out[j] += scale * _from_half(codes[j])


@kernel(*(void(read(uint16), write(o), float64) for o in FLOATS))
def add_bf16(codes, out, scale):
    for j in range(codes.size):
        out[j] += scale * _from_bf16(codes[j])
