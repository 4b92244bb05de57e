"""Slots of values under mixtures, and their coder: exact sums, alike by both backends, back to the values."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.images.tables import tables
from mpicomp.kernels import definition
from mpicomp.kernels.definition.mixtures import SLOTS, START, Tables, open_runs
from mpicomp.kernels.loading import load_compiled

P, K = 10, 79
BACKENDS = [definition, load_compiled()]


def a_front(pixels: int, spread: int, seed: int = 0):
    """Logits, centres and values of some pixels, values from the likely to the impossible."""
    draw = np.random.default_rng(seed)
    logits = draw.integers(-spread, spread + 1, (pixels, K)).astype(np.int32)
    centres = draw.integers(0, 256, (pixels, P)).astype(np.uint8)
    values = np.where(draw.random(pixels) < 0.7, centres[:, 0], draw.integers(0, 256, pixels))
    return logits, centres, values.astype(np.uint8)


def by_definition(logits: list[int], centres: list[int], t: Tables) -> list[int]:
    """C(0), .., C(256) of one pixel, in Python's integers."""
    drops = [max(logits) - z for z in logits]
    weights = [int(t.exps[drop]) if drop < len(t.exps) else 0 for drop in drops]
    sums = []
    for v in range(257):
        below = [int(t.about[c, v, r]) for c in centres for r in range(t.R)] + t.fixed[v, : t.F].tolist()
        sums.append(sum(w * e for w, e in zip(weights, below, strict=True)))
    return [v + s * (SLOTS - 256) // sums[256] for v, s in enumerate(sums)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spread", [0, 300, 3000, 10**6])
def test_the_slots_are_those_of_the_definition(backend, spread):
    logits, centres, _ = a_front(7, spread)
    for i in range(len(logits)):
        C = by_definition(logits[i].tolist(), centres[i].tolist(), tables())
        assert C[0] == 0 and C[256] == SLOTS and min(np.diff(C)) >= 1
        all_values = np.arange(256, dtype=np.uint8)
        rows = [np.repeat(a[i : i + 1], 256, axis=0) for a in (logits, centres)]
        below, counts = backend.mixture_slots(*rows, all_values, tables())
        assert below.tolist() == C[:256] and (below + counts).tolist() == C[1:]


@pytest.mark.parametrize("spread", [0, 300, 3000, 10**6])
def test_both_backends_give_the_same_words_and_read_each_other(spread):
    """Two runs of 60 and one of 17 pixels, in three fronts."""
    fronts = [a_front(137, spread, seed) for seed in range(3)]
    words, ends = [], []
    for run in range(3):
        part = slice(60 * run, 60 * run + 60)
        slots = [BACKENDS[0].mixture_slots(z[part], c[part], v[part], tables()) for z, c, v in fronts]
        again = [BACKENDS[1].mixture_slots(z[part], c[part], v[part], tables()) for z, c, v in fronts]
        below, counts = (np.concatenate(s) for s in zip(*slots, strict=True))
        coded = [backend.slots_encode(below, counts) for backend in BACKENDS]
        assert all(
            np.array_equal(a, b)
            for one, two in zip(slots, again, strict=True)
            for a, b in zip(one, two, strict=True)
        )
        assert np.array_equal(*coded)
        words.append(coded[0])
        ends.append(sum(map(len, words)))
        bits = np.log2(SLOTS / counts).sum()
        assert bits - 1 <= 32 * coded[0].size <= bits + 22 + 32
    for backend in BACKENDS:
        state = open_runs(np.concatenate(words), np.array(ends))
        for z, c, v in fronts:
            assert np.array_equal(backend.mixture_decode(z, c, tables(), state, 60), v)
        assert (state.states == START).all() and (state.left == state.first).all()


@pytest.mark.parametrize("words", [0, 1, 2, 50])
def test_any_words_decode_alike_to_something(words):
    draw = np.random.default_rng(words)
    z, c, _ = a_front(64, 500)
    some = draw.integers(0, 2**32, words, dtype=np.uint32)
    found = []
    for backend in BACKENDS:
        state = open_runs(some, np.array([words // 2, words]))
        values = [backend.mixture_decode(z, c, tables(), state, 32) for _ in range(3)]
        found.append((np.concatenate(values).tolist(), state.states.tolist(), state.left.tolist()))
    assert found[0] == found[1]


def test_the_tables_are_sums_of_the_experts_and_powers_of_e():
    from mpicomp.images.experts import about_a_prediction, fixed

    t = tables()
    assert np.array_equal(np.diff(t.about[:, :, : t.R].astype(np.int64), axis=1), about_a_prediction())
    assert np.array_equal(np.diff(t.fixed[:, : t.F].astype(np.int64), axis=0), fixed())
    assert not t.about[:, 0].any() and not t.about[:, :, t.R :].any() and not t.fixed[:, t.F :].any()
    exact = 2.0**16 * np.exp(-np.arange(t.exps.size) / 256)
    assert (t.exps == np.rint(exact)).all()  # no power is near a half: both roundings agree
    assert t.exps[-1] == 0 < t.exps[-2]
