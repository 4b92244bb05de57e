"""Magnitudes rounded to powers of two, compiled: on the bits of double precision."""

from __future__ import annotations

import numpy as np

from mpicomp.kernels.compiled.jit import bits_of, float64, int64, kernel, read, uint16, uint32, void, write

_FRACTION = np.uint64(2**52 - 1)
_UNIT = np.uint64(2**20 - 1)  # a fraction of 52 bits, rounded up to 32, is what a word is compared with


@kernel(void(read(float64), read(uint32), int64, int64, write(uint16)))
def powers(magnitude, draws, bias, most, codes):
    """Codes 0 for 0, else exponent + bias, at most ``most``; bias is 1023 or less than 900.

    For an exponent e and a fraction f of the significand, e + 1 is taken where the word is below
    f 2^32; below 2^(1 - bias), code 1 where it is below magnitude / 2^(1 - bias) 2^32.
    """
    shift = 1023 - bias
    lift = 2.0 ** (bias + 31) if shift else 0.0
    least = 1 if shift else 0
    for j in range(magnitude.size):
        bits = bits_of(magnitude[j])
        fraction = ((bits & _FRACTION) + _UNIT) >> np.uint64(20)
        low = np.int64(bits >> np.uint64(52)) - shift
        code = low + np.int64(np.uint64(draws[j]) < fraction)
        tiny = np.int64(np.float64(draws[j]) < magnitude[j] * lift)
        codes[j] = min(code if low >= least else tiny, most)
