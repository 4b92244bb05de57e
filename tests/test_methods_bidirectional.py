"""Artemis, MCM, Dore, DoubleSqueeze: both directions compressed; and what ADIANA may send down.

Tolerances are those of test_methods.py; what is marked "exact" holds bit for bit.  Round k of a run is the
paper's round k, with the draws of ``Key(seed, k, i, n)`` up and ``Key(seed, k, None, n)`` down.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.compressors import (
    HardThreshold,
    Identity,
    Natural,
    PermK,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    Sparse,
    TopK,
)
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods import ADIANA, DCGD, DIANA, EF14, GD, MCM, Artemis, Dore, DoubleSqueeze
from mpicomp.problems import Logistic
from tests.reference.adiana import adiana, original
from tests.reference.artemis import artemis
from tests.reference.dore import dore
from tests.reference.doublesqueeze import doublesqueeze
from tests.reference.mcm import mcm
from tests.trajectories import (
    EIGHTH,
    EXACT,
    HAND,
    PLACES,
    ROUNDS,
    assert_close,
    assert_equal,
    assert_mean,
    at_optimum,
    codec,
    coin_of,
    gradients,
    integers,
    mean_gradient,
    named_codec,
    resolved,
    rounding,
    server_codec,
    squares,
    start,
    trajectory,
)

WHOLE = Identity("f8")
BOTH = [  # up, down
    (RandK(3, values="f8"), RandK(2, values="f8")),
    (PermK(values="f8"), Natural(values="f8")),
    (Natural(values="f8"), RandK(3, layout="block", values="f8")),
    (RandK(3), Natural()),
]
SQUEEZED = [
    (TopK(2, values="f8"), TopK(3, values="f8")),
    (Sign(values="f8"), Shrunk(RandK(2, values="f8"))),
    (HardThreshold(0.05, values="f8"), TopK(1, values="f8")),
    (TopK(3, values="f8"), HardThreshold(0.02, values="f8")),
    (Shrunk(PermK(values="f8")), WHOLE),
    (QuantizedTopK(3, Natural()), TopK(2)),
]
every_place = pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
every_pair = pytest.mark.parametrize(("Q", "D"), BOTH, ids=repr)
every_squeeze = pytest.mark.parametrize(("C", "D"), SQUEEZED, ids=repr)
unbiased_methods = pytest.mark.parametrize("make", [Artemis, MCM, Dore])


def in_rounds(problem, n):
    """The gradients as the transcriptions ask for them."""
    local = gradients(problem, n)
    return lambda i, k, x: local[i](x)


def batches(problem, n, b, seed):
    """The gradients of the batches that a run with ``batch=b`` draws."""
    local = [problem.objective(i, n) for i in range(n)]
    return lambda i, k, x: local[i].batch_grad(x, b, Key(seed, k, i, n).private("batch"))


def devices(seed, n, p):
    return lambda k: np.flatnonzero(Key(seed, k, None, n).shared("artemis/devices").uniform(n) < p).tolist()


# --- the transcriptions ---


ARTEMIS = [{}, {"alpha": 0, "p": 0.4}, {"alpha_down": None, "p": 0.6}]


@every_place
@every_pair
@pytest.mark.parametrize("options", ARTEMIS, ids=str)
def test_artemis_is_its_transcription(problem, n, Q, D, options):
    """Section 6.4: x, and the downlink's memory H."""
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
    )
    tolerance = max(rounding(Q), rounding(D))
    assert_close(trajectory(loop, ROUNDS), xs, tolerance)
    scale = max(np.abs(xs).max(), np.abs(Hs).max())
    assert np.abs(loop.replica.H - Hs[-1]).max() <= tolerance * scale
    assert loop.replica.H.any() == (m.alpha_down > 0)


@every_place
@every_pair
@pytest.mark.parametrize("alpha_down", [None, 0.15])
def test_mcm_is_its_transcription(problem, n, Q, D, alpha_down):
    """Section 6.4: both w, which the run reports, and x, which the server keeps."""
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
    )
    tolerance = max(rounding(Q), rounding(D))
    assert_close(trajectory(loop, ROUNDS), models, tolerance)
    assert np.abs(loop.server.x - iterates[-1]).max() <= tolerance * np.abs(iterates).max()


@every_place
@every_pair
@pytest.mark.parametrize("options", [{}, {"eta": 0}, {"alpha": 0.2, "beta": 0.4, "eta": 0.3}], ids=str)
def test_dore_is_its_transcription(problem, n, Q, D, options):
    """Section 6.4: both x and the server's error."""
    loop = start(Dore(Q, D, gamma=0.1 / problem.constants(n).L_max, **options), problem, n, seed=33)
    m = loop.method
    iterates, errors = dore(
        in_rounds(problem, n),
        n,
        problem.x0(),
        m.gamma,
        m.alpha,
        m.beta,
        m.eta,
        codec(Q, 33, n),
        server_codec(D, 33, n),
        ROUNDS,
    )
    tolerance = max(rounding(Q), rounding(D))
    assert_close(trajectory(loop, ROUNDS), iterates, tolerance)
    assert np.abs(loop.server.e - errors[-1]).max() <= tolerance * np.abs(iterates).max()


@every_place
@every_squeeze
def test_doublesqueeze_is_its_transcription(problem, n, C, D):
    """Section 6.4."""
    gamma = 0.05 / problem.constants(n).L_max
    loop = start(DoubleSqueeze(C, D, gamma=gamma), problem, n, seed=34)
    wanted = doublesqueeze(
        in_rounds(problem, n), n, problem.x0(), gamma, codec(C, 34, n), server_codec(D, 34, n), ROUNDS
    )
    assert_close(trajectory(loop, ROUNDS), wanted, max(rounding(C), rounding(D)))


CANCER, BATCH = Logistic("breast_cancer", lam=0.1), 7
UP, DOWN = RandK(8, values="f8"), Natural(values="f8")


@pytest.mark.parametrize("batch", [BATCH, 0.05])
def test_with_batches_they_are_the_same_transcriptions(batch):
    """The batch of worker i in round k is that of its key, whether given as a count or as a fraction."""
    n, seed, x0 = 4, 35, CANCER.x0()
    d, b = x0.size, BATCH if batch == BATCH else round(0.05 * CANCER.objective(0, 4).samples)
    assert {round(0.05 * CANCER.objective(i, 4).samples) for i in range(4)} == {7}
    grad, up, down = batches(CANCER, n, b, seed), codec(UP, seed, n), server_codec(DOWN, seed, n)
    alphas = (1 / (2 * (1 + UP.omega(d, n))), 1 / (2 * (1 + DOWN.omega(d, n))))
    squeeze = codec(TopK(5, values="f8"), seed, n), server_codec(TopK(9, values="f8"), seed, n)
    runs = {
        Artemis(UP, DOWN, 0.05, alpha_down=None, p=0.7, batch=batch): artemis(
            grad, n, x0, 0.05, *alphas, 0.7, up, down, devices(seed, n, 0.7), ROUNDS
        )[0],
        MCM(UP, DOWN, 0.05, batch=batch): mcm(grad, n, x0, 0.05, *alphas, up, down, ROUNDS)[0],
        Dore(UP, DOWN, 0.05, alpha=0.2, beta=0.5, eta=0.5, batch=batch): dore(
            grad, n, x0, 0.05, 0.2, 0.5, 0.5, up, down, ROUNDS
        )[0],
        DoubleSqueeze(TopK(5, values="f8"), TopK(9, values="f8"), 0.05, batch=batch): doublesqueeze(
            grad, n, x0, 0.05, *squeeze, ROUNDS
        ),
    }
    for method, wanted in runs.items():
        loop = start(method, CANCER, n, seed)
        assert_close(trajectory(loop, ROUNDS), wanted, 1e-12)
        for i, f in loop.objectives.items():
            asked = sum(i in method.senders(Key(seed, k, None, n)) for k in range(ROUNDS))
            assert f.meter.epochs == pytest.approx(asked * b / f.samples)


# --- Artemis ---


@pytest.mark.parametrize("D", [WHOLE, Sparse(), RandK(8, values="f8")], ids=repr)
@pytest.mark.parametrize("alpha_down", [0.0, 0.5])
@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
def test_artemis_with_a_lossless_downlink_is_diana(Q, D, alpha_down):
    """Exact, with and without H, as H + (g - H) = g for integers.  Section 6.4 and 2.2, alpha alike."""
    problem = integers(4, 8)
    wanted = trajectory(start(DIANA(Q, gamma=EIGHTH, alpha=0.25), problem, 4, seed=2), 7)
    method = Artemis(Q, D, gamma=EIGHTH, alpha=0.25, alpha_down=alpha_down)
    assert_equal(trajectory(start(method, problem, 4, seed=2), 7), wanted)


def test_artemis_without_memory_and_with_a_lossless_downlink_is_dcgd():
    """Exact.  Section 2.1: alpha = 0, Bi-QSGD."""
    problem, Q = integers(4, 8), RandK(4, values="f8")
    wanted = trajectory(start(DCGD(Q, gamma=EIGHTH), problem, 4, seed=3), 7)
    assert_equal(trajectory(start(Artemis(Q, WHOLE, EIGHTH, alpha=0), problem, 4, seed=3), 7), wanted)


@pytest.mark.parametrize("alpha_down", [0.0, 0.5])
def test_without_compression_they_are_gd(alpha_down):
    """Exact."""
    problem = integers(4, 8)
    wanted = trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT)
    for method in (
        Artemis(WHOLE, WHOLE, EIGHTH, alpha_down=alpha_down),
        MCM(WHOLE, WHOLE, EIGHTH, alpha_down=alpha_down or None),
        Dore(WHOLE, WHOLE, EIGHTH, eta=alpha_down),
        Dore(WHOLE, WHOLE, 2 * EIGHTH, beta=0.5),
        DoubleSqueeze(WHOLE, WHOLE, EIGHTH),
        DoubleSqueeze(TopK(8, values="f8"), HardThreshold(0.0, values="f8"), EIGHTH),
    ):
        assert_equal(trajectory(start(method, problem, 4), EXACT), wanted)


@every_pair
@unbiased_methods
def test_h_is_the_mean_of_h_i(make, Q, D):
    problem, n = PLACES[0]
    loop = start(make(Q, D), problem, n)
    for k in range(30):
        loop.step(k)
        assert_mean(loop.server.h, loop, "h")
    assert loop.server.h.any()


def test_artemis_keeps_h_the_mean_of_h_i_whoever_takes_part():
    """Exact: those who are absent keep theirs."""
    problem = integers(4, 8)
    loop = start(Artemis(RandK(4, values="f8"), Sparse(), EIGHTH, alpha=0.5, p=0.5), problem, 4, seed=1)
    for k in range(7):
        before = {i: w.h.copy() for i, w in loop.workers.items()}
        loop.step(k)
        assert np.array_equal(loop.server.h, np.mean([w.h for w in loop.workers.values()], axis=0))
        for i in set(range(4)) - set(loop.method.senders(Key(1, k, None, 4))):
            assert np.array_equal(loop.workers[i].h, before[i])


def test_artemis_divides_by_p_n_and_not_by_the_number_present():
    """Exact.  Section 6.4: without memory x^{k+1} = x^k - gamma/(p n) sum_S grad f_i(x^k); S may be empty."""
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
    loop = start(Artemis(RandK(3), Natural(), p=0.3), problem, n, seed)
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
    n, N, method = 9, 2000, Artemis(RandK(2), Sparse(), p=p)
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
        assert list(Artemis(RandK(2), Sparse()).senders(Key(0, k, None, 7))) == list(range(7))


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


# --- at the optimum, and on the way there ---


@every_pair
@pytest.mark.parametrize(
    "make", [Artemis, MCM, Dore, lambda Q, D: Artemis(Q, D, p=0.5, alpha_down=None)], ids=range(4)
)
def test_they_stay_at_the_optimum(make, Q, D):
    """Exact, for ever: x = x*, h_i = grad f_i(x*), so that all messages are C(0) = 0."""
    problem = at_optimum()
    loop = start(make(Q, D), problem, 4)
    for i, w in loop.workers.items():
        w.h[:] = problem.objective(i, 4).grad(problem.start)
        assert w.h.any()
    for x in trajectory(loop, 20):
        assert np.array_equal(x, problem.start)


def lyapunov(method, problem, n, rounds, seed):
    """The history of the Lyapunov function by which the theory step of ``method`` is derived, at every 10th
    round, and the factor by which its expectation shrinks a round at least."""
    loop = start(method, problem, n, seed)
    m, c, x_star = loop.method, problem.constants(n), problem.x_star
    omega, (A, _) = m.down.omega(problem.dimension(), n), m.Q.ab(problem.dimension(), n)
    limits = [g(x_star) for g in gradients(problem, n)]
    memory, seen, step, rates = 0.0, m.alpha, m.gamma, []
    if isinstance(m, Artemis):
        seen = m.alpha * m.p  # the rate of h_i: it moves when its worker takes part
        A = A + (1 - m.p) * (1 + m.Q.omega(problem.dimension(), n)) / (m.p * n)
        spread = 1 + omega
        if m.alpha_down:
            spread, memory, rates = 1 + 6 * omega, 4 * omega * step**2 / m.alpha_down, [1 - m.alpha_down / 2]
    elif isinstance(m, MCM):
        spread = 1 + 10 * step * c.L * omega / m.alpha_down**2
        memory, rates = 4 * step * c.L * omega / m.alpha_down, [1 - m.alpha_down / 2]
    else:
        step, spread = m.beta * m.gamma, (1 + omega) * 2 / (2 - m.eta * (1 + omega))
    history, H = [], problem.x0()  # MCM: H as it was before the round that made x
    for k in range(rounds + 1):
        if k % 10 == 0:
            x = loop.server.x if isinstance(m, MCM) else loop.x
            off = x - H if isinstance(m, MCM) else getattr(loop.replica, "H", 0 * x)
            shifts = np.mean([np.sum((w.h - limits[i]) ** 2) for i, w in loop.workers.items()])
            value = np.sum((x - x_star) ** 2) + 4 * spread * A / seen * step**2 * shifts
            history.append(value + memory * np.sum(off**2))
        H = getattr(loop.replica, "H", H).copy()
        loop.step(k)
    return history, max(1 - step * c.mu, 1 - seen / 2, *rates)


PROVED = [
    Artemis(RandK(2), RandK(2)),
    Artemis(PermK(), Natural(), alpha_down=None),
    Artemis(RandK(4), RandK(4), p=0.5),
    Artemis(Natural(), RandK(4), p=0.5, alpha_down=None),
    MCM(RandK(4), RandK(4)),
    MCM(PermK(), Natural()),
    MCM(Natural(), RandK(2)),
    MCM(RandK(4), Natural(), alpha_down=0.1),
    Dore(RandK(2), RandK(2)),
    Dore(PermK(), Natural()),
    Dore(RandK(4), RandK(4), eta=0),
    Dore(Natural(), RandK(4), eta=0.75, beta=1.0),
]


@pytest.mark.parametrize("method", PROVED, ids=repr)
def test_theory_steps_contract_linearly(method):
    """The expectation of the Lyapunov function in the proof of the step shrinks by its factor every round.
    The mean over 6 seeds, no slack: runs lie well below the bound."""
    problem, n = squares(4, 8, seed=21), 4
    runs = [lyapunov(method, problem, n, 70, seed) for seed in range(6)]
    mean, rate = np.mean([history for history, _ in runs], axis=0), runs[0][1]
    assert all(v <= rate ** (10 * j) * mean[0] for j, v in enumerate(mean))
    assert mean[-1] < 0.9 * mean[0]


@pytest.mark.parametrize(
    "make", [Artemis, MCM, Dore, lambda Q, D, **o: Artemis(Q, D, p=0.5, **o)], ids=range(4)
)
def test_they_reach_the_optimum(make):
    """Differences to learned shifts vanish, in both directions: no neighbourhood is left."""
    problem = squares(4, 8, seed=31)
    x = trajectory(start(make(RandK(4), RandK(6), gamma="theory*4"), problem, 4, seed=1), 1000)[-1]
    assert np.abs(x - problem.x_star).max() < 1e-8


def test_without_memory_or_shifts_they_do_not():
    """Bi-QSGD (alpha = 0) and DoubleSqueeze plateau where the local gradients do not vanish."""
    problem = squares(4, 8, seed=31)
    for method in (
        Artemis(RandK(4), RandK(6), gamma="theory*4", alpha=0),
        DoubleSqueeze(TopK(4), TopK(6), gamma="theory*4"),
    ):
        errors = [
            np.abs(x - problem.x_star).max() for x in trajectory(start(method, problem, 4, seed=1), 1500)
        ]
        assert 1e-3 < np.mean(errors[-100:]) < 0.3 * errors[0]


# --- MCM ---


@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
@pytest.mark.parametrize("alpha_down", [0.25, 1.0])
def test_mcm_with_a_lossless_downlink_is_diana(Q, alpha_down):
    """Exact.  Section 6.4: C_dwn = I => w = x, DIANA's, whatever H is; data and factors being dyadic."""
    problem = integers(4, 8)
    loop = start(MCM(Q, WHOLE, EIGHTH, alpha=0.25, alpha_down=alpha_down), problem, 4, seed=2)
    wanted = trajectory(start(DIANA(Q, gamma=EIGHTH, alpha=0.25), problem, 4, seed=2), 7)
    assert_equal(trajectory(loop, 7), wanted)
    assert np.array_equal(loop.server.x, loop.replica.w)


@pytest.mark.parametrize("Q", [q for q, _ in BOTH[:3]], ids=repr)
def test_mcm_with_a_lossless_downlink_is_diana_to_rounding(Q):
    problem, n = PLACES[0]
    loop = start(MCM(Q, WHOLE, alpha=0.1), problem, n, seed=2)
    wanted = start(DIANA(Q, alpha=0.1), problem, n, seed=2)
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


# --- Dore ---


@pytest.mark.parametrize("eta", [0, 0.5])
def test_dore_with_a_lossless_downlink_is_diana(eta):
    """Exact: e = 0, and beta gamma is the step."""
    problem, Q = integers(4, 8), RandK(4, values="f8")
    loop = start(Dore(Q, WHOLE, gamma=2 * EIGHTH, alpha=0.25, beta=0.5, eta=eta), problem, 4, seed=2)
    wanted = trajectory(start(DIANA(Q, gamma=EIGHTH, alpha=0.25), problem, 4, seed=2), 7)
    assert_equal(trajectory(loop, 7), wanted)
    assert not loop.server.e.any()


def test_dore_virtual_iterate():
    """Exact, for eta = 1: x^k + beta e^k = x^0 - beta gamma sum_{s<k} g^s, as C(q) + e = q."""
    problem = integers(4, 8)
    loop = start(Dore(WHOLE, RandK(4, values="f8"), gamma=EIGHTH, beta=0.5, eta=1.0), problem, 4)
    virtual = problem.x0()
    for k in range(6):
        virtual -= 0.5 * EIGHTH * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        assert np.array_equal(loop.replica.x + 0.5 * loop.server.e, virtual)
        assert loop.server.e.any()


# --- DoubleSqueeze ---


@pytest.mark.parametrize(
    ("C", "D"),
    [
        (TopK(3, values="f8"), TopK(2, values="f8")),
        (TopK(1, values="f8"), HardThreshold(12.0, values="f8")),
        (HardThreshold(3.0, values="f8"), TopK(1, values="f8")),
    ],
    ids=repr,
)
def test_doublesqueeze_virtual_iterate(C, D):
    """Exact.  Section 6.4: x - gamma (mean delta_i + delta) = x_0 - gamma sum_{s<t} grad f(x_s)."""
    problem = integers(4, 8)
    loop = start(DoubleSqueeze(C, D, gamma=EIGHTH), problem, 4)
    virtual = problem.x0()
    for k in range(7):
        virtual -= EIGHTH * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        errors = np.array([w.e for w in loop.workers.values()])
        assert np.array_equal(loop.replica.x - EIGHTH * (errors.mean(axis=0) + loop.server.e), virtual)
        assert errors.any() and loop.server.e.any()


@every_squeeze
def test_doublesqueeze_virtual_iterate_for_every_compressor(C, D):
    """The same to rounding, for 50 rounds of any C in any format.  The bound: a few ulp a round."""
    problem, n = PLACES[0]
    gamma = 0.05 / problem.constants(n).L_max
    loop = start(DoubleSqueeze(C, D, gamma=gamma), problem, n)
    virtual, scale = problem.x0(), np.abs(problem.x0()).max()
    for k in range(ROUNDS):
        virtual -= gamma * mean_gradient(problem, n, loop.replica.x)
        loop.step(k)
        errors = np.array([w.e for w in loop.workers.values()])
        owed = gamma * (errors.mean(axis=0) + loop.server.e)
        scale = max(scale, np.abs(loop.replica.x).max(), gamma * np.abs(errors).max(), np.abs(owed).max())
        assert np.abs(loop.replica.x - owed - virtual).max() <= 1e-15 * (k + 10) * scale


@pytest.mark.parametrize("C", [TopK(2, values="f8"), Shrunk(RandK(4, values="f8"))], ids=repr)
def test_doublesqueeze_with_a_lossless_downlink_is_ef14(C):
    """Exact: C(gamma v) = gamma C(v) for these C and a power of two gamma, so EF14's e_i is gamma delta_i."""
    problem = integers(4, 8)
    wanted = trajectory(start(EF14(C, gamma=EIGHTH), problem, 4, seed=2), 7)
    assert_equal(trajectory(start(DoubleSqueeze(C, WHOLE, EIGHTH), problem, 4, seed=2), 7), wanted)


@pytest.mark.parametrize("lam", [0.01, 0.3])
def test_doublesqueeze_errors_stay_below_the_hard_thresholds(lam):
    """Exact.  Section 5.4 on both sides, payloads being f8."""
    problem, n = PLACES[0]
    C = HardThreshold(lam, values="f8")
    loop = start(DoubleSqueeze(C, C, gamma=0.1), problem, n)
    for k in range(40):
        loop.step(k)
        assert all((np.abs(e) < lam).all() for e in (loop.server.e, *(w.e for w in loop.workers.values())))


def test_the_total_error_of_doublesqueeze_is_that_of_its_workers():
    problem, n = PLACES[0]
    method = DoubleSqueeze(TopK(3), TopK(2), gamma=0.1)
    loop, total = start(method, problem, n), 0.0
    for k in range(20):
        loop.step(k)
        total += np.mean([np.sum(w.e**2) for w in loop.workers.values()])
    run = mpicomp.run(method, problem, workers=n, rounds=20, every=20)
    assert run.rows[-1].error == pytest.approx(total, rel=1e-12) and total > 0


# --- ADIANA, sending its gradient estimate ---


@every_place
@pytest.mark.parametrize(
    "Q", [RandK(3, values="f8"), PermK(values="f8"), Natural(values="f8"), WHOLE, RandK(3)], ids=repr
)
def test_adiana_that_sends_the_gradient_is_the_same_method(problem, n, Q):
    """Section 2.4: y^{k+1} follows from g.  The server keeps h, and it is the mean of the h_i."""
    p, eta, mu = 0.2, 0.2 / problem.constants(n).L_max, problem.constants(n).mu
    loop = start(ADIANA(Q, eta=eta, p=p, sends="gradient"), problem, n, seed=21)
    compress, coin = named_codec(Q, 21, n, {"m": 0, "c": 0}), coin_of("adiana/coin", 21, n, p)
    alpha, weights = loop.method.alpha, original(eta, mu, p)
    wanted = adiana(gradients(problem, n), problem.x0(), eta, alpha, weights, compress, coin, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
    assert_mean(loop.server.h, loop, "h")
    assert loop.server.h.any() and not loop.replica.h.any()


def test_adiana_downlink_bytes():
    """A dense g costs 8 d bytes, 4 d in f4, and two or three of layout and length; the two means of n = 9
    messages of one entry of d = 40 less than half of it, those of all entries twice as much."""
    problem, n, d = squares(9, 40, seed=3), 9, 40

    def down(Q, **options):
        loop = start(ADIANA(Q, eta=1e-3, **options), problem, n)
        trajectory(loop, 30)  # h has filled up
        before = loop.ledger.down[0]
        loop.step(30)
        return loop.ledger.down[0] - before

    for Q in (RandK(1), Identity()):
        assert 8 * d + 1 <= down(Q, sends="gradient") <= 8 * d + 3
        assert 4 * d + 1 <= down(Q, sends="gradient", down=Sparse("f4")) <= 4 * d + 3
    assert down(RandK(1)) < 4 * d < 16 * d < down(Identity())


def test_adiana_rounds_its_gradient_without_harm():
    """In f4 the rounding of g vanishes with g; that of mean c_i, which enters h but no h_i, stays in h."""
    problem = squares(4, 8, seed=31)

    def error(sends):
        method = ADIANA(RandK(4), eta="theory*8", sends=sends, down=Sparse("f4"))
        return np.abs(trajectory(start(method, problem, 4, seed=1), 650)[-1] - problem.x_star).max()

    assert error("gradient") < 1e-12 < 1e-8 < error("means")


# --- step sizes ---

# up: omega and A by hand, and down: omega', for d = 12, n = 4
UPS = [(RandK(3), 3, 3 / 4), (RandK(3, mask="shared"), 3, 3), (PermK(), 3, 1), (Natural(), 1 / 8, 1 / 32)]
DOWNS = [(RandK(4), 2), (Natural(), 1 / 8), (Sparse(), 0)]


@pytest.mark.parametrize(("Q", "omega", "A"), UPS, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
@pytest.mark.parametrize(("D", "omega_down"), DOWNS, ids=lambda v: repr(v) if hasattr(v, "omega") else "")
def test_steps(Q, omega, A, D, omega_down):
    """As the docstrings say, for L = 3, L_max = 5."""
    K = (1 + 6 * A) * 5
    method = resolved(Artemis(Q, D), 12, 4)
    assert method.gamma == pytest.approx(1 / ((1 + omega_down) * K))
    assert (method.alpha, method.alpha_down) == (pytest.approx(1 / (2 * (1 + omega))), 0)
    method = resolved(Artemis(Q, D, alpha_down=None, p=0.25), 12, 4)
    B = A + 0.75 * (1 + omega) / (0.25 * 4)
    assert method.gamma == pytest.approx(1 / ((1 + 6 * omega_down) * (1 + 6 * B) * 5))
    assert method.alpha_down == pytest.approx(1 / (2 * (1 + omega_down)))

    method = resolved(MCM(Q, D), 12, 4)
    gamma = method.gamma  # the root of gamma K (1 + 40 gamma L omega' (1 + omega')^2) = 1
    assert gamma * K * (1 + 40 * gamma * 3 * omega_down * (1 + omega_down) ** 2) == pytest.approx(1)
    assert method.alpha == pytest.approx(1 / (2 * (1 + omega)))
    assert method.alpha_down == pytest.approx(1 / (2 * (1 + omega_down)))

    method = resolved(Dore(Q, D), 12, 4)
    assert (method.alpha, method.beta) == (
        pytest.approx(1 / (1 + omega)),
        pytest.approx(1 / (1 + omega_down)),
    )
    assert method.eta == method.beta and method.gamma == pytest.approx(1 / (2 * K))
    assert resolved(Dore(Q, D, beta=0.5, eta=0), 12, 4).gamma == pytest.approx(2 / ((1 + omega_down) * K))


def test_independent_absence_is_a_compression():
    """For independent compressors the step for p is that of omega_p = (1 + omega)/p - 1 and p = 1."""
    absent = resolved(Artemis(RandK(6), Sparse(), p=0.5), 12, 4)
    assert absent.gamma == pytest.approx(resolved(Artemis(RandK(3), Sparse()), 12, 4).gamma)


def test_dore_has_a_step_for_little_feedback_alone():
    assert resolved(Dore(RandK(3), RandK(4), eta=0.6), 12, 4).gamma > 0
    with pytest.raises(ConfigError, match=r"eta=0\.7.*0\.667.*gamma"):
        resolved(Dore(RandK(3), RandK(4), eta=0.7), 12, 4)
    assert resolved(Dore(RandK(3), RandK(4), gamma=0.1, eta=1.0), 12, 4).gamma == 0.1


def test_doublesqueeze_steps():
    method = resolved(DoubleSqueeze(TopK(3), Sign()), 12, 4)
    assert method.gamma == pytest.approx(1 / 4 / 12 / 30)
    for C, D in [(HardThreshold(0.1), TopK(2)), (TopK(2), HardThreshold(0.1))]:
        with pytest.raises(ConfigError, match=r"HardThreshold\(lam=0\.1.*gamma"):
            resolved(DoubleSqueeze(C, D), 12, 4)
        assert resolved(DoubleSqueeze(C, D, gamma=0.2), 12, 4).gamma == 0.2


def test_numbers_need_no_constants():
    def refuse():
        raise AssertionError("asked")

    for make in (Artemis, MCM, Dore):
        assert make(RandK(3), RandK(3), 0.1).resolve(refuse, 12, 4).alpha > 0
    assert HAND.mu


# --- what is refused ---


@pytest.mark.parametrize(
    "C", [TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1), "randk", None], ids=repr
)
@unbiased_methods
def test_biased_compressors_are_refused(make, C):
    for name, both in (("Q", (C, RandK(2))), ("down", (RandK(2), C))):
        with pytest.raises(ConfigError, match=rf"needs {name} to be unbiased.*RandK\(k=0\.01\)"):
            make(*both)


@pytest.mark.parametrize("C", [RandK(2), PermK(), Natural(), "topk", None], ids=repr)
def test_doublesqueeze_refuses_unbiased_compressors(C):
    remedy = rf"Shrunk\({type(C).__name__}.*TopK" if hasattr(C, "omega") else "TopK"
    for name, both in (("C", (C, TopK(2))), ("down", (TopK(2), C))):
        with pytest.raises(ConfigError, match=rf"needs {name} to be contractive or absolute.*{remedy}"):
            DoubleSqueeze(*both)


@pytest.mark.parametrize(
    "method",
    [make(RandK(2), PermK(), 0.1) for make in (Artemis, MCM, Dore)]
    + [DoubleSqueeze(TopK(2), Shrunk(PermK()), 0.1)],
    ids=repr,
)
def test_a_joint_compressor_cannot_serve_the_server(method):
    problem, n = PLACES[0]
    with pytest.raises(ConfigError, match="PermK"):
        trajectory(start(method, problem, n), 2)


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        (Artemis(RandK(2), RandK(2)), "alpha", [-0.5, 1.5, "theory", float("nan")]),
        (Artemis(RandK(2), RandK(2)), "alpha_down", [-0.5, 1.5, "theory"]),
        (Artemis(RandK(2), RandK(2)), "p", [0, 1.5, float("nan")]),
        (Artemis(RandK(2), RandK(2)), "batch", [0, -1, 1.5, True]),
        (MCM(RandK(2), RandK(2)), "alpha_down", [0, 1.5]),
        (MCM(RandK(2), RandK(2)), "batch", [0]),
        (Dore(RandK(2), RandK(2)), "beta", [0, 1.5]),
        (Dore(RandK(2), RandK(2)), "eta", [-0.1, 1.5]),
        (Dore(RandK(2), RandK(2)), "batch", [0]),
        (DoubleSqueeze(TopK(2), TopK(2)), "batch", [0]),
        (ADIANA(RandK(2)), "sends", ["model", None, 3]),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "paper") else str(v),
)
def test_other_parameters_are_checked_too(method, name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            replace(method, **{name: value})


def test_the_defaults_stand_for_none():
    method = resolved(Artemis(RandK(3), RandK(4), alpha_down=None, p=None), 12, 4)
    assert (method.p, method.batch) == (1.0, None)
