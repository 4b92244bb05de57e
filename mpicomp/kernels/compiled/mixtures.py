"""The coder of ``kernels.definition.mixtures``, compiled.

The decoder looks at a word only while some are left, and every slot has a value, so no words make it read or
write outside.  Rows of the tables have multiples of 8 entries: a product with a row is 8 sums side by side.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Words
from mpicomp.base.bits import Bytes
from mpicomp.kernels.compiled.jit import (
    dot_of_8,
    int32,
    int64,
    kernel,
    read,
    uint8,
    uint32,
    uint64,
    void,
    write,
)
from mpicomp.kernels.definition.mixtures import SHARED, SLOT_BITS, SLOTS, START, Coded, Logits, Slots, Tables

_START, _BITS, _MASK, _SHARED = map(np.uint64, (START, SLOT_BITS, SLOTS - 1, SHARED))
_TOP, _U16, _U32, _LOW32 = map(np.uint64, (64 - SLOT_BITS, 16, 32, 0xFFFFFFFF))

_TABLES = int64, int64, read(uint32), read(uint32), read(uint32)


def mixture_slots(logits: Logits, centres: Bytes, values: Bytes, tables: Tables) -> tuple[Slots, Slots]:
    """C(v) and C(v + 1) - C(v) of each pixel, whose value is v."""
    below, counts = np.empty((2, values.size), dtype=np.uint32)
    _slots(logits.ravel(), centres.ravel(), centres.shape[1], values, *_flat(tables), below, counts)
    return below, counts


def slots_encode(below: Slots, counts: Slots) -> Words:
    """The words of one run, of pixels with these slots: from ``below`` on, as many as ``counts``."""
    words = np.empty(below.size + 2, dtype=np.uint32)  # a pixel takes at most 22 bits
    return words[: _encode(below, counts, words)].copy()


def mixture_decode(logits: Logits, centres: Bytes, tables: Tables, coded: Coded, a_run: int) -> Bytes:
    """The values of the next pixels of all runs, ``a_run`` pixels of each run but perhaps the last."""
    values = np.empty(len(logits), dtype=np.uint8)
    _decode(logits.ravel(), centres.ravel(), centres.shape[1], *_flat(tables), *coded, a_run, values)
    return values


def _flat(tables: Tables) -> tuple[int, int, Slots, Slots, Slots]:
    return tables.R, tables.F, tables.about.ravel(), tables.fixed.ravel(), tables.exps


@kernel(uint64(read(int32), int64, int64, int64, int64, read(uint32), write(uint32)))
def _weigh(logits, i, P, R, F, exps, weights):
    """Set the weights of pixel i, in rows of 8 as the tables have them, and return their sum."""
    K = P * R + F
    pixel = logits[i * K : (i + 1) * K]
    top, last = pixel[0], np.uint32(exps.size - 1)
    for k in range(1, K):
        top = max(top, pixel[k])
    total = np.uint64(0)
    for p in range(P):
        for r in range(R):
            w = exps[min(np.uint32(top - pixel[p * R + r]), last)]
            weights[8 * p + r] = w
            total += np.uint64(w)
    for f in range(F):
        w = exps[min(np.uint32(top - pixel[P * R + f]), last)]
        weights[8 * P + f] = w
        total += np.uint64(w)
    return total


@kernel(uint64(read(uint32), read(uint8), int64, int64, int64, read(uint32), read(uint32)))
def _sum(weights, centres, i, P, v, about, fixed):
    """S(v) of pixel i."""
    total, rows = np.uint64(0), weights.size // 8
    for p in range(P):
        total += dot_of_8(weights, 8 * p, about, (np.int64(centres[i * P + p]) * 257 + v) * 8)
    for p in range(P, rows):
        total += dot_of_8(weights, 8 * p, fixed, (v * (rows - P) + p - P) * 8)
    return total


@kernel(
    void(read(int32), read(uint8), int64, read(uint8), *_TABLES, write(uint32), write(uint32)),
)
def _slots(logits, centres, P, values, R, F, about, fixed, exps, below, counts):
    weights = np.zeros(8 * P + fixed.size // 257, dtype=np.uint32)
    for i in range(values.size):
        total = _weigh(logits, i, P, R, F, exps, weights) << _U16
        v = np.int64(values[i])
        low = _sum(weights, centres, i, P, v, about, fixed) * _SHARED // total
        high = _sum(weights, centres, i, P, v + 1, about, fixed) * _SHARED // total
        below[i] = np.uint64(v) + low
        counts[i] = high + np.uint64(1) - low


@kernel(int64(read(uint32), read(uint32), write(uint32)))
def _encode(below, counts, words):
    """Fill the front of ``words`` and return how many words there are."""
    state, end = _START, 0
    for n in range(below.size):
        i = below.size - 1 - n
        f = np.uint64(counts[i])
        if state >= f << _TOP:
            words[end] = state & _LOW32
            end += 1
            state >>= _U32
        quotient = state // f
        state = (quotient << _BITS) + (state - quotient * f) + np.uint64(below[i])
    words[end] = state & _LOW32
    if state <= _LOW32:
        return end + 1
    words[end + 1] = state >> _U32
    return end + 2


@kernel(
    void(
        *(read(int32), read(uint8), int64, *_TABLES),
        *(write(uint64), read(uint32), read(int64), write(int64), int64, write(uint8)),
    )
)
def _decode(logits, centres, P, R, F, about, fixed, exps, states, words, first, left, a_run, values):
    weights = np.zeros(8 * P + fixed.size // 257, dtype=np.uint32)
    for i in range(values.size):
        total = _weigh(logits, i, P, R, F, exps, weights) << _U16
        run = i // a_run
        state = states[run]
        slot = state & _MASK
        v, step = 0, 128
        low, high = np.uint64(0), total  # S(v) and S(v + 2 step)
        while step:
            # u + floor(S(u) SHARED / total) <= slot, without a division
            u = v + step
            S = _sum(weights, centres, i, P, u, about, fixed)
            if np.uint64(u) <= slot and S * _SHARED < (slot + np.uint64(1) - np.uint64(u)) * total:
                v, low = u, S
            else:
                high = S
            step >>= 1
        below = low * _SHARED // total
        f = high * _SHARED // total + np.uint64(1) - below
        state = f * (state >> _BITS) + slot - (below + np.uint64(v))
        if state <= _LOW32 and left[run] > first[run]:
            left[run] -= 1
            state = (state << _U32) | np.uint64(words[left[run]])
        states[run] = state
        values[i] = v
