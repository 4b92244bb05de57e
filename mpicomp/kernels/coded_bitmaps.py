"""A bitmap of d bits of which k are set, in close to log2 C(d, k) bits wherever they lie.

Its bytes are coded by ``definition.ans`` under the model that each bit is set with probability p = k/d, apart
from the others.  Both ends know d and k, so no model is sent.  A byte with c bits set takes
c log2(1/p) + (8 - c) log2(1/(1-p)) bits; all bytes take d times the entropy of p, whichever k bits are
set, and so every set fits into the same number of bytes.

Frequencies and sizes are computed with integers alone: every machine has the same.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from mpicomp.base.arrays import Frequencies
from mpicomp.kernels.definition.ans import RUN, TOTAL, table_nbytes

_ONE = 2**32  # a bit, in sizes
_ONES = np.bitwise_count(np.arange(256))  # the bits that each byte sets


@lru_cache(maxsize=16)
def frequencies(d: int, k: int) -> Frequencies:
    """The frequency of each byte, 0 < k <= d/2: its probability in units of 1/``TOTAL``, rounded up.

    The byte of eight zeros, the most frequent one, has what remains.
    """
    of = [-(-TOTAL * k**c * (d - k) ** (8 - c) // d**8) for c in range(9)]
    of[0] = TOTAL - sum(comb(8, c) * of[c] for c in range(1, 9))
    table = np.array(of, dtype=np.uint32)[_ONES]
    table.setflags(write=False)
    return table


@lru_cache(maxsize=16)
def nbytes(d: int, k: int) -> int:
    """Bytes that are enough for every bitmap of d bits with k set, 0 < k <= d/2.

    A byte with c > 0 bits set takes no more than a zero byte and c log2((d-k)/k) bits, since its frequency
    is rounded up.  18 bits are the start and the end of a run, 2^-15 a byte its rounding; of several runs
    each has whole words, up to 32 bits more: two for its last state if that is 2^32 or more, else one.
    """
    zero = _log2(TOTAL, int(frequencies(d, k)[0]))
    count = -(-d // 8)
    runs = -(-count // RUN)
    bits = count * (zero + _ONE // 2**15) + k * _log2(d - k, k) + runs * 18 * _ONE
    if runs == 1:
        return -(-bits // (8 * _ONE))
    return table_nbytes(count) + 4 * (bits // (32 * _ONE) + runs)


def _log2(a: int, b: int) -> int:
    """log2(a/b) for a >= b > 0 in units of 2^-32, rounded up a little."""
    whole = (a // b).bit_length() - 1
    x = -(-(a << 64) // (b << whole))  # the fraction, from 1 to 2, in units of 2^-64
    log = whole
    for _ in range(32):  # a bit of the logarithm for each squaring
        x = (x * x + 2**64 - 1) >> 64
        log <<= 1
        if x >= 2**65:
            x = (x + 1) >> 1
            log += 1
    return log + 1
