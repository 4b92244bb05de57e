"""Selecting coordinates by their magnitude, compiled: 64 coordinates are compared at a time.

``top_k`` guesses a threshold from a sample and collects what passes it in one pass; the exact threshold
is found among those few.  A guess that fails costs time, never a different answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Float, Indices
from mpicomp.kernels.compiled.jit import (
    BITS,
    int64,
    kernel,
    reaching,
    read,
    set_bits,
    trailing_zeros,
    void,
    write,
)
from mpicomp.kernels.definition.selection import least_bits
from mpicomp.kernels.threads import sliced

Bits = NDArray[np.unsignedinteger]

_SAMPLE = 4096
_SHORT = 1024  # entries up to which numpy's own passes take less time than starting a kernel
_SPARE = 68  # a word's indices, and what the last four of them may lack


def nonzero(x: Float) -> Indices:
    """The indices of the entries that are not 0, increasing."""
    return at_least(x, 0.0) if x.size > _SHORT else x.nonzero()[0]


def count_nonzero(x: Float) -> int:
    """The number of entries that are not 0."""
    if x.size <= _SHORT:
        return int(np.count_nonzero(x))
    bits = bits_of(x)
    return sum(sliced(lambda a, b: _count(bits[a:b], 1, mask_of(bits)), bits.size))


def at_least(x: Float, lam: float) -> Indices:
    """The indices of the entries with |x_j| >= lam and x_j != 0, increasing."""
    bits, least = bits_of(x), least_bits(lam, x.dtype)
    few = _collected(bits, least, x.size // 16)
    if few is not None:
        return few
    every = _collected(bits, least, x.size)
    assert every is not None
    return every


def top_k(x: Float, k: int) -> Indices:
    """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
    if k == x.size:
        return np.arange(k)
    bits = bits_of(x)
    if x.size <= _SAMPLE:
        return _first(bits, _threshold(bits, k), k)
    guess, most = _guess(bits, k)
    few = _collected(bits, guess, most)
    if few is None:  # many ties, or a sample that misled
        few = _collected(bits, guess + 1, most)
        if few is not None and few.size < k:
            return _first(bits, guess, k)
    if few is None or few.size < k:
        return _first(bits, _threshold(bits, k), k)
    chosen = bits[few]
    return few[_first(chosen, _threshold(chosen, k), k)]


def bits_of(x: Float) -> Bits:
    """The numbers as unsigned integers."""
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint64)


def mask_of(bits: Bits) -> int:
    """All bits but the sign."""
    return (1 << (8 * bits.itemsize - 1)) - 1


def _guess(bits: Bits, k: int) -> tuple[int, int]:
    """A threshold that slightly more than k magnitudes should reach, and the most that may be collected."""
    sample = bits[:: -(-bits.size // _SAMPLE)] & bits.dtype.type(mask_of(bits))
    rank = _above(k * sample.size / bits.size)
    most = _above(rank) * bits.size // sample.size
    rank = min(rank, sample.size)
    return _largest(sample, rank), min(most, bits.size)


def _above(count: float) -> int:
    """A bound that a count of this expectation seldom exceeds: four standard deviations more."""
    return int(count + 4 * np.sqrt(count) + 4)


def _threshold(bits: Bits, k: int) -> int:
    """The bits of the k-th largest magnitude."""
    return _largest(bits & bits.dtype.type(mask_of(bits)), k)


def _largest(magnitudes: Bits, k: int) -> int:
    """The k-th largest of ``magnitudes``, as bits."""
    if 2 * np.count_nonzero(magnitudes) < magnitudes.size:  # np.partition is ten times slower on many zeros
        magnitudes = magnitudes[magnitudes != 0]
        if magnitudes.size < k:
            return 0
    return int(np.partition(magnitudes, magnitudes.size - k)[magnitudes.size - k])


def _collected(bits: Bits, least: int, most: int) -> Indices | None:
    """The indices of the magnitudes from ``least`` on; None if there are more than ``most``."""

    def collect(a: int, b: int) -> Indices | None:
        room = min(most, b - a)
        out = np.empty(room + _SPARE, dtype=np.int64)
        count = _collect(bits[a:b], a, least, mask_of(bits), out)
        return out[:count] if count <= room else None

    parts = sliced(collect, bits.size)
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or sum(part.size for part in found) > most:
        return None
    return found[0] if len(found) == 1 else np.concatenate(found)


def _first(bits: Bits, threshold: int, k: int) -> Indices:
    """The k indices with the largest magnitudes, increasing; ``threshold`` is the k-th largest.

    Of magnitudes equal to the threshold, the lowest indices are taken.
    """
    out = np.empty(k + 1, dtype=np.int64)
    _merge(bits, threshold, mask_of(bits), _count(bits, threshold + 1, mask_of(bits)), out)
    return out[:k]


@kernel(*(int64(read(u), int64, u, u, write(int64)) for u in BITS))
def _collect(bits, first, least, mask, out):
    """Fill ``out``, which has _SPARE entries more than may be found, and return how many were found.

    ``bits`` are those of the numbers from index ``first`` on.  Four indices are written at a time, also where
    fewer are found: a branch for each index could not be predicted, and would cost more than the rest.
    """
    count, most = 0, out.size - _SPARE
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
    count = 0
    for j in range(bits.size):
        count += (bits[j] & mask) >= least
    return count


@kernel(*(void(read(u), u, u, int64, write(int64)) for u in BITS))
def _merge(bits, threshold, mask, above, out):
    count, ties = 0, out.size - 1 - above
    for j in range(bits.size):
        magnitude = bits[j] & mask
        tied = magnitude == threshold
        out[count] = j
        count += (magnitude > threshold) | (tied & (ties > 0))
        ties -= tied
