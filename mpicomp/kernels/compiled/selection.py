"""Selecting coordinates by their magnitude, compiled: 64 coordinates are compared at a time.

``top_k`` guesses a threshold from a sample and collects what passes it in one pass; the k largest are found
among those few.  A guess that fails costs time, never a different answer.

Of few numbers, which lie in the processor's cache, ``select`` finds the k-th largest by bisection on the bits
of magnitudes: each pass counts those that reach a bound.  It ends at the first bound that k magnitudes reach.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.kernels.compiled.jit import (
    BITS,
    int64,
    kernel,
    reaching,
    read,
    set_bits,
    trailing_zeros,
    types,
    uint64,
    void,
    write,
)
from mpicomp.kernels.definition.selection import least_bits
from mpicomp.kernels.threads import sliced

Bits = NDArray[np.unsignedinteger]

_SAMPLE = 4096
_SHORT = 1024  # entries up to which numpy's own passes take less time than starting a kernel
SPARE = 68  # a word's indices, and what the last four of them may lack


def nonzero(x: Array) -> Indices:
    """The indices of the entries that are not 0, increasing."""
    return at_least(x, 0.0) if x.size > _SHORT else x.nonzero()[0]


def count_nonzero(x: Array) -> int:
    """The number of entries that are not 0."""
    if x.size <= _SHORT:
        return int(np.count_nonzero(x))
    bits = bits_of(x)
    return sum(sliced(lambda a, b: _count(bits[a:b], 1, mask_of(bits)), bits.size))


def at_least(x: Array, lam: float) -> Indices:
    """The indices of the entries with |x_j| >= lam and x_j != 0, increasing."""
    bits, least = bits_of(x), least_bits(lam, x.dtype)
    few = _collected(bits, least, x.size // 16)
    if few is not None:
        return few
    every = _collected(bits, least, x.size)
    assert every is not None
    return every


def top_k(x: Array, k: int) -> Indices:
    """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
    if k == x.size:
        return np.arange(k)
    bits = bits_of(x)
    if x.size <= _SAMPLE:
        return _largest(bits, k)
    guess, most = _guess(bits, k)
    few = _collected(bits, guess, most)
    if few is None:  # many ties, or a sample that misled
        few = _collected(bits, guess + 1, most)
        if few is not None and few.size < k:
            out = np.empty(k, dtype=np.int64)
            _with_ties(bits, guess, mask_of(bits), few, out)
            return out
    if few is None or few.size < k:
        return _largest(bits, k)
    return few[_largest(bits[few], k)]


def bits_of(x: Array) -> Bits:
    """The numbers as unsigned integers."""
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint64)


def mask_of(bits: Bits) -> int:
    """All bits but the sign."""
    return (1 << (8 * bits.itemsize - 1)) - 1


def _guess(bits: Bits, k: int) -> tuple[int, int]:
    """A threshold that slightly more than k magnitudes should reach, and the most that may be collected."""
    sample = bits[:: -(-bits.size // _SAMPLE)].copy()
    rank = _above(k * sample.size / bits.size)
    most = _above(rank) * bits.size // sample.size
    return int(_bound(sample, min(rank, sample.size), mask_of(bits))[0]), min(most, bits.size)


def _above(count: float) -> int:
    """A bound that a count of this expectation seldom exceeds: four standard deviations more."""
    return int(count + 4 * np.sqrt(count) + 4)


def _largest(bits: Bits, k: int) -> Indices:
    out = np.empty(k + SPARE, dtype=np.int64)
    select(bits, k, mask_of(bits), out)
    return out[:k]


def _collected(bits: Bits, least: int, most: int) -> Indices | None:
    """The indices of the magnitudes from ``least`` on; None if there are more than ``most``."""

    def collect(a: int, b: int) -> Indices | None:
        room = min(most, b - a)
        out = np.empty(room + SPARE, dtype=np.int64)
        count = _collect(bits[a:b], a, least, mask_of(bits), out)
        return out[:count] if count <= room else None

    parts = sliced(collect, bits.size)
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or sum(part.size for part in found) > most:
        return None
    return found[0] if len(found) == 1 else np.concatenate(found)


@kernel(*(int64(read(u), int64, u, u, write(int64)) for u in BITS))
def _collect(bits, first, least, mask, out):
    """Fill ``out``, which has SPARE entries more than may be found, and return how many were found.

    ``bits`` are those of the numbers from index ``first`` on.  Four indices are written at a time, also where
    fewer are found: a branch for each index could not be predicted, and would cost more than the rest.
    """
    count, most = 0, out.size - SPARE
    for start in range(0, bits.size, 64):
        passed = np.uint64(0)
        if start + 64 <= bits.size:
            passed = reaching(bits, start, mask, least)
        else:
            for j in range(start, bits.size):
                passed |= np.uint64((bits[j] & mask) >= least) << np.uint64(j - start)
        found = np.int64(set_bits(passed))
        for four in range(0, max(found, 1), 4):
            for j in range(4):
                out[count + four + j] = first + start + np.int64(trailing_zeros(passed))
                passed &= passed - np.uint64(1)
        count += found
        if count > most:
            return count
    return count


@kernel(*(int64(read(u), u, u) for u in BITS))
def _count(bits, least, mask):
    """How many magnitudes are ``least`` or more."""
    count, whole = 0, bits.size // 64 * 64
    for start in range(0, whole, 64):
        count += np.int64(set_bits(reaching(bits, start, mask, least)))
    for j in range(whole, bits.size):
        count += (bits[j] & mask) >= least
    return count


@kernel(*(void(read(u), u, u, read(int64), write(int64)) for u in BITS))
def _with_ties(bits, threshold, mask, larger, out):
    """Fill ``out`` with the indices in ``larger``, where numbers are above the threshold, and the first ties.

    Both increase.
    """
    at, ties, j = 0, out.size - larger.size, 0
    for i in range(larger.size + 1):
        stop = larger[i] if i < larger.size else bits.size
        while ties > 0 and j < stop:
            tied = bits[j] & mask == threshold
            out[at] = j  # also where it is not: a branch could not be predicted
            at += tied
            ties -= tied
            j += 1
        j = stop + 1
        if i < larger.size:
            out[at] = stop
            at += 1


@kernel(*(types.UniTuple(uint64, 2)(read(u), uint64, uint64, u) for u in BITS))
def _ends(bits, low, high, mask):
    """The least of the magnitudes from ``low`` to below ``high``, and one more than the largest."""
    least, largest = high, low
    for j in range(bits.size):
        magnitude = np.uint64(bits[j] & mask)
        if low <= magnitude < high:
            least, largest = min(least, magnitude), max(largest, magnitude)
    return least, largest + np.uint64(1)


@kernel(*(types.Tuple((u, int64))(read(u), int64, u) for u in BITS))
def _bound(bits, k, mask):
    """(a bound that k magnitudes reach, k); or (the k-th largest, how many are above it) if more reach that.

    The search goes down from the largest magnitude by 1, 2, 4, .. octaves, and then bisects.  Where a bound
    in the middle parts nothing, as with ties, the ends move to the nearest magnitudes.
    """
    one, high = np.uint64(1), np.uint64(0)
    for j in range(bits.size):
        high = max(high, np.uint64(bits[j] & mask))
    high, step, above = high + one, np.uint64(1 << (23 if mask >> 31 == 0 else 52)), 0
    low = high - min(step, high)
    count = _count(bits, low, mask)
    while count < k:
        above, high, step = count, low, step + step
        low = high - min(step, high)
        count = _count(bits, low, mask)
    while count > k and high - low > one:
        middle = low + ((high - low) >> one)
        reached = _count(bits, middle, mask)
        if reached in (count, above):
            low, high = _ends(bits, low, high, mask)
        elif reached < k:
            high, above = middle, reached
        else:
            low, count = middle, reached
    return low, above if count > k else k


@kernel(*(void(read(u), int64, u, write(int64)) for u in BITS))
def select(bits, k, mask, out):
    """Write the indices of the k largest magnitudes, increasing, to ``out``, which has k + SPARE entries."""
    bound, above = _bound(bits, k, mask)
    if above == k:
        _collect(bits, 0, bound, mask, out)
    else:
        larger = np.empty(above + SPARE, np.int64)
        _collect(bits, 0, bound + 1, mask, larger)
        _with_ties(bits, bound, mask, larger[:above], out[:k])
