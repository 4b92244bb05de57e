"""Dore and DoubleSqueeze, whose server keeps an error."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Natural, PermK, QuantizedTopK, RandK, Shrunk, Sign, TopK
from mpicomp.methods import DIANA, EF14, Dore, DoubleSqueeze
from tests.reference.dore import dore
from tests.reference.doublesqueeze import doublesqueeze
from tests.support.bidirectional import every_pair, in_rounds
from tests.support.trajectories import (
    EIGHTH,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    codec,
    every_place,
    integers,
    mean_gradient,
    resolved,
    rounding,
    server_codec,
    start,
    trajectory,
)

SQUEEZED = [
    (TopK(2, values="f8"), TopK(3, values="f8")),
    (Sign(values="f8"), Shrunk(RandK(2, values="f8"))),
    (HardThreshold(0.05, values="f8"), TopK(1, values="f8")),
    (TopK(3, values="f8"), HardThreshold(0.02, values="f8")),
    (Shrunk(PermK(values="f8")), WHOLE),
    (QuantizedTopK(3, Natural()), TopK(2)),
]

every_squeeze = pytest.mark.parametrize(("C", "D"), SQUEEZED, ids=repr)


# --- the transcriptions ---

# Round k of a run is the paper's round k, with the draws of ``Key(seed, k, i, n)`` up and
# ``Key(seed, k, None, n)`` down.


@every_place
@every_pair
@pytest.mark.parametrize("options", [{}, {"eta": 0}, {"alpha": 0.2, "beta": 0.4, "eta": 0.3}], ids=str)
def test_dore_is_its_transcription(problem, n, Q, D, options):
    """docs/methods.md, Dore: both x and the server's error."""
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
    """docs/methods.md, DoubleSqueeze."""
    gamma = 0.05 / problem.constants(n).L_max
    loop = start(DoubleSqueeze(C, D, gamma=gamma), problem, n, seed=34)
    wanted = doublesqueeze(
        in_rounds(problem, n), n, problem.x0(), gamma, codec(C, 34, n), server_codec(D, 34, n), ROUNDS
    )
    assert_close(trajectory(loop, ROUNDS), wanted, max(rounding(C), rounding(D)))


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


def test_dore_has_a_step_for_little_feedback_alone():
    assert resolved(Dore(RandK(3), RandK(4), eta=0.6), 12, 4).gamma > 0
    with pytest.raises(ConfigError, match=r"eta=0\.7.*0\.667.*gamma"):
        resolved(Dore(RandK(3), RandK(4), eta=0.7), 12, 4)
    assert resolved(Dore(RandK(3), RandK(4), gamma=0.1, eta=1.0), 12, 4).gamma == 0.1


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
    """Exact.  docs/methods.md, DoubleSqueeze: x - gamma (mean delta_i + delta) =
    x_0 - gamma sum_{s<t} grad f(x_s)."""
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
    """Exact.  docs/methods.md, EFSGD, on both sides, payloads being f8."""
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


def test_doublesqueeze_steps():
    method = resolved(DoubleSqueeze(TopK(3), Sign()), 12, 4)
    assert method.gamma == pytest.approx(1 / 4 / 12 / (40 * sqrt(15)))
    for C, D in [(HardThreshold(0.1), TopK(2)), (TopK(2), HardThreshold(0.1))]:
        with pytest.raises(ConfigError, match=r"HardThreshold\(lam=0\.1.*gamma"):
            resolved(DoubleSqueeze(C, D), 12, 4)
        assert resolved(DoubleSqueeze(C, D, gamma=0.2), 12, 4).gamma == 0.2


@pytest.mark.parametrize("C", [RandK(2), PermK(), Natural(), "topk", None], ids=repr)
def test_doublesqueeze_refuses_unbiased_compressors(C):
    remedy = rf"Shrunk\({type(C).__name__}.*TopK" if hasattr(C, "omega") else "TopK"
    for name, both in (("C", (C, TopK(2))), ("down", (TopK(2), C))):
        with pytest.raises(ConfigError, match=rf"needs {name} to be contractive or absolute.*{remedy}"):
            DoubleSqueeze(*both)
