"""Both directions compressed: what holds of Artemis, MCM, Dore and DoubleSqueeze alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Lossless, Natural, PermK, RandK, Shrunk, Sign, TopK
from mpicomp.keys import Key
from mpicomp.methods import ADIANA, GD, MCM, Artemis, Dore, DoubleSqueeze
from mpicomp.problems import Logistic
from tests.reference.artemis import artemis
from tests.reference.dore import dore
from tests.reference.doublesqueeze import doublesqueeze
from tests.reference.mcm import mcm
from tests.support.bidirectional import devices, every_pair
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    HAND,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    assert_mean,
    at_optimum,
    beginning,
    codec,
    gradients,
    integers,
    resolved,
    server_codec,
    squares,
    start,
    trajectory,
)

unbiased_methods = pytest.mark.parametrize("make", [Artemis, MCM, Dore])


# --- the transcriptions, on batches ---


def batches(problem, n, b, seed):
    """The gradients of the batches that a run with ``batch=b`` draws."""
    local = [problem.objective(i, n) for i in range(n)]
    return lambda i, k, x: local[i].batch_grad(x, b, Key(seed, k, i, n).private("batch"))


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
    first = beginning("gradient", UP, seed, n)
    squeeze = codec(TopK(5, values="f8"), seed, n), server_codec(TopK(9, values="f8"), seed, n)
    runs = {
        Artemis(UP, DOWN, 0.05, alpha_down=None, p=0.7, batch=batch): artemis(
            grad, n, x0, 0.05, *alphas, 0.7, up, down, devices(seed, n, 0.7), ROUNDS, first
        )[0],
        MCM(UP, DOWN, 0.05, batch=batch): mcm(grad, n, x0, 0.05, *alphas, up, down, ROUNDS, first)[0],
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


# --- what holds in every round ---


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
    loop = start(replace(method, start="zero"), problem, n, seed)  # the h_i of the first value are these
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


# --- step sizes ---

# up: omega and A by hand, and down: omega', for d = 12, n = 4
UPS = [(RandK(3), 3, 3 / 4), (RandK(3, mask="shared"), 3, 3), (PermK(), 3, 1), (Natural(), 1 / 8, 1 / 32)]
DOWNS = [(RandK(4), 2), (Natural(), 1 / 8), (Lossless(), 0)]


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
