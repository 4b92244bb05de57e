"""Pixel values coded under mixtures of fixed distributions by asymmetric numeral systems, a mixture a pixel.

A pixel has K = P R + F experts.  Its prediction p = 0 .. P - 1 has a ``centre`` c, and R experts about it; F
experts are the same for all pixels.  ``Tables`` has the sums of each expert's probabilities below every
value, as integers, and the integer weights that stand for exp of a logit.  All arithmetic is on integers, so
every machine gives every value the same slots:

    w_k    = exps[max_j z_j - z_k], 0 beyond the table       z_k: the integer logit of expert k
    S(v)   = sum_k w_k E_k(v)                                E_k(v): the expert's probability below v
    C(v)   = v + floor(S(v) (SLOTS - 256) / S(256))

Value v has the slots C(v) .. C(v + 1) - 1 of ``SLOTS``, at least one.  The coder is that of ``ans``, with
these slots instead of one table for all symbols.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Words
from mpicomp.base.bits import Bytes

SLOT_BITS = 22
SLOTS = 2**SLOT_BITS
SHARED = SLOTS - 256  # the slots that are shared out by probability
START = 2**SLOT_BITS  # the encoder's first state, and the decoder's last

Logits = NDArray[np.int32]
Slots = NDArray[np.uint32]


class Tables(NamedTuple):
    """The experts of all pixels.

    R, F    how many experts there are about a centre, at most 8, and how many that are fixed
    about   [centre, value, expert]: those about a centre, and zeros to fill a row; (256, 257, 8) uint32
    fixed   [value, expert]: the fixed ones, and zeros to fill a row; (257, a multiple of 8) uint32
    exps    the weight of a logit that is 0, 1, .. below the largest, falling, the last one 0; uint32

    Each expert's entry for value v is its probability below v in 2^-16, so it is 0 at 0, and 2^16 at 256.
    """

    R: int
    F: int
    about: NDArray[np.uint32]
    fixed: NDArray[np.uint32]
    exps: NDArray[np.uint32]


class Coded(NamedTuple):
    """Runs that are being decoded: ``states`` of the coder, uint64, and the ``words`` of all runs.

    Run i has the words first[i] .. left[i] - 1; decoding takes the last one, so that left[i] falls.
    """

    states: NDArray[np.uint64]
    words: Words
    first: NDArray[np.int64]
    left: NDArray[np.int64]


def mixture_slots(logits: Logits, centres: Bytes, values: Bytes, tables: Tables) -> tuple[Slots, Slots]:
    """C(v) and C(v + 1) - C(v) of each pixel, whose value is v.

    ``logits`` has shape (pixels, K), ``centres`` (pixels, P), ``values`` (pixels,).
    """
    sums = _sums(logits, centres, tables)
    v, rows = values.astype(np.int64), np.arange(values.size)
    total = sums[:, 256]
    below = v + sums[rows, v] * SHARED // total
    above = v + 1 + sums[rows, v + 1] * SHARED // total
    return below.astype(np.uint32), (above - below).astype(np.uint32)


def slots_encode(below: Slots, counts: Slots) -> Words:
    """The words of one run, of pixels with these slots: from ``below`` on, as many as ``counts``."""
    state, words = START, []
    for c, f in zip(reversed(below.tolist()), reversed(counts.tolist()), strict=True):
        if state >= f << 64 - SLOT_BITS:
            words.append(state & 0xFFFFFFFF)
            state >>= 32
        state = (state // f << SLOT_BITS) + state % f + c
    words += [state & 0xFFFFFFFF, state >> 32] if state >> 32 else [state]
    return np.array(words, dtype=np.uint32)


def mixture_decode(logits: Logits, centres: Bytes, tables: Tables, coded: Coded, a_run: int) -> Bytes:
    """The values of the next pixels of all runs, ``a_run`` pixels of each run but perhaps the last.

    The states and words of ``coded`` move on.  Whatever the words are, no pixel is refused: at the end
    every state is ``START`` and no word is left if the words were the encoder's.
    """
    sums = _sums(logits, centres, tables)
    values = np.empty(len(logits), dtype=np.uint8)
    for i, s in enumerate(sums):
        run = i // a_run
        state = int(coded.states[run])
        slot = state & SLOTS - 1
        C = np.arange(257) + s * SHARED // s[256]
        v = values[i] = int(np.searchsorted(C, slot, side="right")) - 1
        state = int(C[v + 1] - C[v]) * (state >> SLOT_BITS) + slot - int(C[v])
        coded.states[run] = _refilled(state, run, coded)
    return values


def open_runs(words: Words, ends: NDArray[np.int64]) -> Coded:
    """The state before decoding of runs whose words end at ``ends``, one run after the other."""
    first = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    coded = Coded(np.zeros(ends.size, dtype=np.uint64), words, first, ends.astype(np.int64))
    for run in range(ends.size):
        for _ in range(2):
            coded.states[run] = _refilled(int(coded.states[run]), run, coded)
    return coded


def _refilled(state: int, run: int, coded: Coded) -> int:
    if state < 2**32 and coded.left[run] > coded.first[run]:
        coded.left[run] -= 1
        return state << 32 | int(coded.words[coded.left[run]])
    return state


def _sums(logits: Logits, centres: Bytes, tables: Tables) -> NDArray[np.int64]:
    """S(0), .., S(256) of each pixel, shape (pixels, 257)."""
    R, F, about, fixed, exps = tables
    drop = logits.max(axis=1, keepdims=True) - logits
    weights = exps[np.minimum(drop, exps.size - 1)].astype(np.int64)
    sums = weights[:, R * centres.shape[1] :] @ fixed[:, :F].astype(np.int64).T
    for p, c in enumerate(centres.T):
        sums += np.einsum("ir,ivr->iv", weights[:, R * p : R * (p + 1)], about[c, :, :R].astype(np.int64))
    return sums
