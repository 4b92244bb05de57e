"""MARINA and EF21 under the Polyak-Łojasiewicz condition: the linear rate of their theorems."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.compressors import Identity, PermK, RandK, Shrunk, Sign, TopK
from mpicomp.methods import EF21, MARINA
from mpicomp.problems import Quadratics
from tests.support.trajectories import objective_value, start, trajectory

# f is strongly convex, hence PŁ with the same mu; some f_i of the first two are not convex.
PROBLEMS = [(Quadratics(d=12, noise=0.8, lam=0.01, seed=2), 4), (Quadratics(d=4, noise=0.5, lam=0.01), 9)]
PROBLEMS += [(Quadratics(d=12, noise=0.0, lam=5.0), 4)]  # so well conditioned that p/(2 mu) binds for MARINA
every_problem = pytest.mark.parametrize(("problem", "n"), PROBLEMS, ids=["d12", "d4", "p/(2mu)"])


@every_problem
@pytest.mark.parametrize("Q", [RandK(3, values="f8"), PermK(values="f8")], ids=repr)
def test_marina_converges_linearly_under_pl(problem, n, Q):
    """E f(x^k) - f* <= (1 - gamma mu)^k (f(x^0) - f*): the mean of 6 seeds, at every 10th round, no slack."""
    c, gaps = problem.constants(n), []
    for seed in range(6):
        loop = start(MARINA(Q, p=0.2, mu="theory", sync=Identity("f8")), problem, n, seed)
        gaps.append([objective_value(problem, n, x) - c.f_star for x in trajectory(loop, 60)[::10]])
    rate = 1 - loop.method.gamma * c.mu
    assert loop.method.gamma <= 0.2 / (2 * c.mu)
    assert (problem.lam == 5.0) == (loop.method.gamma == 0.2 / (2 * c.mu))
    mean = np.mean(gaps, axis=0)
    assert mean[-1] < mean[0] / 2 and c.convex == (problem.noise == 0)
    assert all(gap <= rate ** (10 * k) * mean[0] + 1e-14 for k, gap in enumerate(mean))


@every_problem
@pytest.mark.parametrize("C", [TopK(2, values="f8"), Sign(values="f8"), Shrunk(PermK(values="f8"))], ids=repr)
def test_ef21_converges_linearly_under_pl(problem, n, C):
    """Psi^k <= (1 - gamma mu)^k Psi^0, Psi = E f(x^k) - f* + (gamma/theta) D_k², with
    D_k = mean √E|g_i^k - ∇f_i(x^k)|², and the mean of 6 seeds for E, as PermK is random."""
    c, theta = problem.constants(n), 1 - np.sqrt(1 - C.alpha(problem.d, n))
    gaps, errors = [], []
    for seed in range(6):
        loop = start(EF21(C, mu="theory"), problem, n, seed)
        gamma = loop.method.gamma
        assert gamma <= theta / (2 * c.mu)
        for k in range(61):
            gaps.append(objective_value(problem, n, loop.x) - c.f_star)
            loop.step(k)
            errors.append([np.sum(w.e**2) for w in loop.workers.values()])
    D = np.sqrt(np.reshape(errors, (6, 61, n)).mean(axis=0)).mean(axis=1)
    mean = np.reshape(gaps, (6, 61)).mean(axis=0) + gamma / theta * D**2
    assert mean[-1] < mean[0]
    assert all(psi <= (1 - gamma * c.mu) ** k * mean[0] + 1e-14 for k, psi in enumerate(mean))
