"""Artemis and MCM, which keep a memory of the downlink; and partial participation in Artemis."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.compressors import Lossless, Natural, PermK, RandK
from mpicomp.keys import Key
from mpicomp.methods import DCGD, DIANA, MCM, Artemis
from tests.reference.artemis import artemis
from tests.reference.mcm import mcm
from tests.support.bidirectional import BOTH, devices, every_pair, in_rounds
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    beginning,
    codec,
    every_place,
    integers,
    resolved,
    rounding,
    server_codec,
    start,
    trajectory,
)

# --- the transcriptions ---

# Round k of a run is the paper's round k, with the draws of ``Key(seed, k, i, n)`` up and
# ``Key(seed, k, None, n)`` down.

ARTEMIS = [{}, {"alpha": 0, "p": 0.4}, {"alpha_down": None, "p": 0.6}]


@every_place
@every_pair
@pytest.mark.parametrize("options", ARTEMIS, ids=str)
def test_artemis_is_its_transcription(problem, n, Q, D, options):
    """docs/methods.md, Artemis: x, and the downlink's memory H."""
    loop = start(Artemis(Q, D, gamma="theory*3", **options), problem, n, seed=31)
    m = loop.method
    xs, Hs = artemis(
        in_rounds(problem, n),
        n,
        problem.x0(),
        m.gamma,
        m.alpha,
        m.alpha_down,
        m.p,
        codec(Q, 31, n),
        server_codec(D, 31, n),
        devices(31, n, m.p),
        ROUNDS,
        beginning("gradient" if m.alpha else "zero", Q, 31, n),
    )
    tolerance = max(rounding(Q), rounding(D))
    assert_close(trajectory(loop, ROUNDS), xs, tolerance)
    scale = max(np.abs(xs).max(), np.abs(Hs).max())
    assert np.abs(loop.replica.H - Hs[-1]).max() <= tolerance * scale
    assert loop.replica.H.any() == (m.alpha_down > 0)


@every_place
@every_pair
@pytest.mark.parametrize("alpha_down", [None, 0.05])
def test_mcm_is_its_transcription(problem, n, Q, D, alpha_down):
    """docs/methods.md, MCM: both w, which the run reports, and x, which the server keeps."""
    loop = start(MCM(Q, D, gamma="theory*4", alpha_down=alpha_down), problem, n, seed=32)
    m = loop.method
    models, iterates = mcm(
        in_rounds(problem, n),
        n,
        problem.x0(),
        m.gamma,
        m.alpha,
        m.alpha_down,
        codec(Q, 32, n),
        server_codec(D, 32, n),
        ROUNDS,
        beginning("gradient", Q, 32, n),
    )
    tolerance = max(rounding(Q), rounding(D))
    assert_close(trajectory(loop, ROUNDS), models, tolerance)
    assert np.abs(loop.server.x - iterates[-1]).max() <= tolerance * np.abs(iterates).max()


# --- Artemis ---


@pytest.mark.parametrize("D", [WHOLE, Lossless(), RandK(8, values="f8")], ids=repr)
@pytest.mark.parametrize("alpha_down", [0.0, 0.5])
@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
def test_artemis_with_a_lossless_downlink_is_diana(Q, D, alpha_down):
    """Exact, with and without H, as H + (g - H) = g for integers.  docs/methods.md,
    Artemis and DIANA, alpha alike."""
    problem = integers(4, 8)
    diana = DIANA(Q, gamma=EIGHTH, alpha=0.25, start="gradient")
    wanted = trajectory(start(diana, problem, 4, seed=2), 7)
    method = Artemis(Q, D, gamma=EIGHTH, alpha=0.25, alpha_down=alpha_down)
    assert_equal(trajectory(start(method, problem, 4, seed=2), 7), wanted)


def test_artemis_without_memory_and_with_a_lossless_downlink_is_dcgd():
    """Exact.  docs/methods.md, Artemis: alpha = 0, Bi-QSGD."""
    problem, Q = integers(4, 8), RandK(4, values="f8")
    wanted = trajectory(start(DCGD(Q, gamma=EIGHTH), problem, 4, seed=3), 7)
    assert_equal(trajectory(start(Artemis(Q, WHOLE, EIGHTH, alpha=0), problem, 4, seed=3), 7), wanted)


def test_the_defaults_stand_for_none():
    method = resolved(Artemis(RandK(3), RandK(4), alpha_down=None), 12, 4)
    assert (method.alpha, method.alpha_down) == (1 / 8, 1 / 6)


# --- partial participation ---


def test_artemis_keeps_h_the_mean_of_h_i_whoever_takes_part():
    """Exact: absent workers keep their h_i."""
    problem = integers(4, 8)
    loop = start(Artemis(RandK(4, values="f8"), Lossless(), EIGHTH, alpha=0.5, p=0.5), problem, 4, seed=1)
    for k in range(7):
        before = {i: w.h.copy() for i, w in loop.workers.items()}
        loop.step(k)
        assert np.array_equal(loop.server.h, np.mean([w.h for w in loop.workers.values()], axis=0))
        for i in set(range(4)) - set(loop.method.senders(Key(1, k, None, 4))):
            assert np.array_equal(loop.workers[i].h, before[i])


def test_artemis_divides_by_p_n_and_not_by_the_number_present():
    """Exact.  docs/methods.md, Artemis: without memory x^{k+1} = x^k - gamma/(p n)
    sum_S grad f_i(x^k); S may be empty."""
    problem, seed = integers(4, 8), 7
    loop = start(Artemis(WHOLE, WHOLE, EIGHTH, alpha=0, p=0.5), problem, 4, seed)
    sizes = set()
    for k in range(EXACT):
        present, x = loop.method.senders(Key(seed, k, None, 4)), loop.replica.x.copy()
        loop.step(k)
        total = sum((problem.objective(i, 4).grad(x) for i in present), np.zeros(8))
        assert np.array_equal(loop.replica.x, x - EIGHTH * total / 2)
        sizes.add(len(present))
    assert {0, 1, 2, 3, 4} == sizes


def test_artemis_lets_those_who_are_absent_send_and_compute_nothing():
    problem, n, seed = *PLACES[1], 4
    loop = start(Artemis(RandK(3), Natural(), p=0.3, start="zero"), problem, n, seed)
    absent = 0
    for k in range(40):
        up, down = loop.ledger.up.copy(), loop.ledger.down.copy()
        asked = [f.meter.epochs for f in loop.objectives.values()]
        loop.step(k)
        present = loop.method.senders(Key(seed, k, None, n))
        for i, f in loop.objectives.items():
            assert loop.ledger.up[i] - up[i] == (12 if i in present else 0)
            assert f.meter.epochs - asked[i] == (i in present)
        assert np.all(loop.ledger.down > down)  # every broadcast is charged to everyone
        absent += n - len(present)
    assert absent > 100


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_artemis_draws_each_worker_with_probability_p(p):
    """Over 2000 rounds each of 9 workers, and each of 36 pairs, as often as independent coins say to 5
    standard deviations: the chance of a failure, were they so, is below 1e-4.  Alike on every rank."""
    n, N, method = 9, 2000, Artemis(RandK(2), Lossless(), p=p)
    drawn = np.zeros((N, n))
    for k in range(N):
        key = Key(5, k, None, n)
        drawn[k, method.senders(key)] = 1
        assert method.senders(key) == method.senders(key.of(3))
    together = drawn.T @ drawn / N
    for i in range(n):
        for j in range(n):
            wanted = p if i == j else p * p
            assert abs(together[i, j] - wanted) < 5 * sqrt(wanted * (1 - wanted) / N)


def test_everyone_takes_part_for_p_1():
    for k in range(50):
        assert list(Artemis(RandK(2), Lossless()).senders(Key(0, k, None, 7))) == list(range(7))


def test_a_round_without_anyone_is_a_step_along_h():
    problem, n = PLACES[0]
    loop = start(Artemis(WHOLE, WHOLE, p=0.05), problem, n, seed=2)
    empty = [k for k in range(60) if not loop.method.senders(Key(2, k, None, n))]
    for k in range(60):
        x, h = loop.replica.x.copy(), loop.server.h.copy()
        loop.step(k)
        if k in empty:
            assert np.allclose(loop.replica.x, x - loop.method.gamma * h, rtol=1e-14, atol=0)
            assert np.array_equal(loop.server.h, h)
    assert loop.server.h.any() and 10 < len(empty) < 59


def test_partial_participation_resumes_bit_for_bit(tmp_path):
    problem, n = PLACES[1]
    method = Artemis(RandK(3), RandK(4), p=0.4, alpha_down=None)
    whole = mpicomp.run(method, problem, workers=n, rounds=40, seed=3)
    mpicomp.run(method, problem, workers=n, rounds=17, seed=3, out=tmp_path / "r", checkpoint_every=17)
    last = mpicomp.run(method, problem, workers=n, rounds=40, seed=3, out=tmp_path / "r", resume=True)
    assert last.iterates_sha256 == whole.iterates_sha256
    assert (last.ledger.up == whole.ledger.up).all() and whole.ledger.up.max() < 40 * 12


def test_independent_absence_is_a_compression():
    """For independent compressors the step for p is that of omega_p = (1 + omega)/p - 1 and p = 1."""
    absent = resolved(Artemis(RandK(6), Lossless(), p=0.5), 12, 4)
    assert absent.gamma == pytest.approx(resolved(Artemis(RandK(3), Lossless()), 12, 4).gamma)


# --- MCM ---


@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
@pytest.mark.parametrize("alpha_down", [0.25, 1.0])
def test_mcm_with_a_lossless_downlink_is_diana(Q, alpha_down):
    """Exact.  docs/methods.md, MCM: C_dwn = I => w = x, DIANA's, whatever H is;
    data and factors being dyadic."""
    problem = integers(4, 8)
    loop = start(MCM(Q, WHOLE, EIGHTH, alpha=0.25, alpha_down=alpha_down), problem, 4, seed=2)
    diana = DIANA(Q, gamma=EIGHTH, alpha=0.25, start="gradient")
    wanted = trajectory(start(diana, problem, 4, seed=2), 7)
    assert_equal(trajectory(loop, 7), wanted)
    assert np.array_equal(loop.server.x, loop.replica.w)


@pytest.mark.parametrize("Q", [q for q, _ in BOTH[:3]], ids=repr)
def test_mcm_with_a_lossless_downlink_is_diana_to_rounding(Q):
    problem, n = PLACES[0]
    loop = start(MCM(Q, WHOLE, alpha=0.1), problem, n, seed=2)
    wanted = start(DIANA(Q, alpha=0.1, start="gradient"), problem, n, seed=2)
    assert loop.method.gamma == pytest.approx(wanted.method.gamma)
    assert_close(trajectory(loop, ROUNDS), trajectory(wanted, ROUNDS), 1e-12)


def test_mcm_leaves_the_servers_model_exact():
    """E w = x over the draws of the downlink: the mean of 3000 within 5 standard errors in each of 12
    coordinates (chance of failure 1e-5), with E|w - x|^2 = omega' |x - H|^2 for RandK, to 10 %."""
    problem, n = PLACES[0]
    loop = start(MCM(RandK(3), RandK(4, values="f8"), gamma=0.1), problem, n)
    for k in range(5):
        loop.step(k)
    x, H, D = loop.server.x, loop.replica.H, loop.method.down
    draws = []
    for k in range(3000):
        key = Key(9, k, None, n)
        w = H.copy()
        D.decompress_add(D.compress(x - H, key), w, key)
        draws.append(w - x)
    off = np.mean(draws, axis=0)
    assert np.all(np.abs(off) < 5 * np.std(draws, axis=0) / sqrt(3000))
    assert np.mean(np.sum(np.square(draws), axis=1)) == pytest.approx(2 * np.sum((x - H) ** 2), rel=0.1)
