"""ADIANA for convex f: one round in exact expectation, over all draws; and its rate."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, PermK, RandK
from mpicomp.methods import ADIANA
from mpicomp.methods.adiana import PARAMETERS
from mpicomp.problems import Constants, LeastSquares
from tests.reference.adiana import convex
from tests.support.trajectories import HAND, resolved, rng, start, top, trajectory

D, N = 2, 2  # RandK(1) then has ω = 1


class Parabolas:
    """f_i(x) = (x - s_i)'A_i (x - s_i)/2, A_i >= 0 of rank 1 or 2; f is constant along a line if ``flat``."""

    def __init__(self, seed: int, flat: bool) -> None:
        draw = rng(seed)
        roots = draw.normal(size=(N, D, D)) * 10 ** draw.uniform(-1, 1, size=(N, 1, 1))
        if flat:
            roots[:, :, 1] = 0
        self.A, self.s = roots.swapaxes(1, 2) @ roots, draw.normal(size=(N, D))
        mean, linear = self.A.mean(axis=0), np.einsum("ikl,il->k", self.A, self.s) / N
        self.x_star = np.linalg.pinv(mean) @ linear
        self.c = Constants(
            L=top(mean), L_i=tuple(map(top, self.A)), L_plus=top(mean), L_pm=0.0, mu=0.0, convex=True
        )

    def excess(self, x):
        """f(x) - f*."""
        y = x - self.x_star
        return float(y @ self.A.mean(axis=0) @ y) / 2

    def grads(self, x):
        return np.einsum("ikl,il->ik", self.A, x - self.s)


KEPT = {
    "independent": [D * np.eye(D)[[i, j]] for i, j in product(range(D), repeat=2)],
    "shared": [D * np.eye(D)[[i, i]] for i in range(D)],
    "permk": [D * np.eye(D)[[i, 1 - i]] for i in range(D)],
}
UPLINKS = {"independent": RandK(1), "shared": RandK(1, mask="shared"), "permk": PermK()}


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("p", [None, 0.05, 1.0])
@pytest.mark.parametrize("name", KEPT)
def test_the_potential_does_not_grow(name, p, flat):
    """E Φ^{k+1} <= Φ^k of ``support.adiana_convex``, at any y, z, w and h_i, for the step that it gives."""
    Q, draw = UPLINKS[name], rng(5)
    omega, A = Q.omega(D, N), Q.ab(D, N)[0]
    for seed in range(4):
        f = Parabolas(seed, flat)
        m = resolved(ADIANA(Q, p=p, parameters="convex"), D, N, f.c)
        eta, alpha, p_ = m.eta, m.alpha, m.p

        def phi(y, z, w, h, k, f=f, eta=eta, alpha=alpha, p_=p_):
            theta1 = convex(eta, p_, omega, k - 1)[0]
            lam = eta / theta1**2
            H = np.mean(np.sum((f.grads(w) - h) ** 2, axis=1))
            known = f.excess(y) + (1 + theta1) / (2 * p_) * f.excess(w) + 10 * eta * A / (3 * alpha) * H
            return lam * known + np.sum((z - f.x_star) ** 2)

        for k, _ in product([0, 1, 30, 10**4], range(12)):
            y, z, w = 10 ** draw.uniform(-2, 1, size=(3, 1)) * draw.normal(size=(3, D)) + f.x_star
            h = f.grads(w) + 10 ** draw.uniform(-3, 2) * draw.normal(size=(N, D))
            theta1, theta2, gamma, beta = m.weights(N, D, k)
            x = theta1 * z + theta2 * w + (1 - theta1 - theta2) * y
            ends, chances = [], []
            for kept, for_shift in product(KEPT[name], repeat=2):
                g = (h + kept * (f.grads(x) - h)).mean(axis=0)
                after = h + alpha * for_shift * (f.grads(w) - h)
                new_y = x - eta * g
                new_z = beta * z + (1 - beta) * x + gamma / eta * (new_y - x)
                for moved, chance in ((y, p_), (w, 1 - p_)):
                    ends.append(phi(new_y, new_z, moved, after, k + 1))
                    chances.append(chance)
            before = phi(y, z, w, h, k)
            assert np.average(ends, weights=chances) <= before + 1e-9 * before


@pytest.mark.parametrize("Q", [RandK(0.2, values="f8"), PermK(values="f8"), Identity("f8")], ids=repr)
def test_the_rate_is_the_theorems(Q):
    """The mean of f - f* over seeds is below the bound in rounds 100 and 1000, and falls faster than 1/K."""
    rows = np.repeat(np.eye(10)[:5], 4, axis=0)  # 5 of 10 coordinates do not matter
    labels = rng(1).normal(size=20)
    problem, n = LeastSquares(data=(rows, labels), lam=0.0), 4
    c = problem.constants(n)
    assert c.mu == 0
    found = []
    for seed in range(5):
        loop = start(ADIANA(Q, parameters="convex"), problem, n, seed=seed)
        fs = [problem.objective(i, n) for i in range(n)]
        ys = trajectory(loop, 1000)
        found.append([np.mean([f.value(ys[k]) for f in fs]) for k in (0, 100, 1000)])
    m, d = loop.method, problem.dimension()
    assert m.mu == 0
    x_star = np.linalg.lstsq(rows, labels, rcond=None)[0]
    best = np.mean([f.value(x_star) for f in fs])
    excess = np.mean(found, axis=0) - best

    theta1 = m.weights(n, d, -1)[0]
    lam, A = m.eta / theta1**2, Q.ab(d, n)[0]
    H = np.mean([np.sum(f.grad(ys[0]) ** 2) for f in fs])
    known = (1 + (1 + theta1) / (2 * m.p)) * excess[0] + 10 * m.eta * A / (3 * m.alpha) * H
    phi = lam * known + np.sum((ys[0] - x_star) ** 2)
    for K, value in zip((100, 1000), excess[1:], strict=True):
        assert value <= phi * m.weights(n, d, K - 1)[0] ** 2 / m.eta
    assert excess[2] <= excess[1] / 10


def test_mu_and_the_set_of_parameters_go_together():
    with pytest.raises(ConfigError, match=r"mu=0 with parameters='original'; allowed: mu=0 with 'convex'"):
        ADIANA(RandK(3), mu=0)
    with pytest.raises(ConfigError, match=r"mu=0\.1 with parameters='convex'"):
        ADIANA(RandK(3), mu=0.1, parameters="convex")
    assert resolved(ADIANA(RandK(3), parameters="convex"), 12, 4, HAND).mu == 0
    assert set(PARAMETERS) == {"original", "refined", "convex"}


@pytest.mark.parametrize(("p", "twice_q"), [(0.25, 40), (0.125, 40 / 3), (1.0, 480)])
def test_the_step_is_the_smaller_of_its_two_bounds(p, twice_q):
    """ω = 3, so that α = 1/4; A = 3/n, and 2q = (40/3) (p/α) (1 + 2p/α)."""
    for n in (1, 10, 10**4):
        crowded = 1 / (4 * (3 / n) * 5 * (1 + twice_q))
        assert PARAMETERS["convex"](3.0, 3.0, n).eta(HAND, p) == pytest.approx(min(1 / 6, crowded))
    assert PARAMETERS["convex"](0.0, 0.0, 4).eta(HAND, p) == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("omega", "p", "theta1"), [(0.1, 1.0, 4 / 19), (0.1, 0.25, 10 / 43), (9.0, 0.25, 10 / 103)]
)
def test_the_weights_of_a_round(omega, p, theta1):
    """k = 3, and k_0 is 16, 10/p or 10 (1 + ω): θ1 = max{4, 5/(2p)}/(k + k_0), θ2 = 1/2, γ = η/(2 θ1)."""
    weights = PARAMETERS["convex"](omega, omega, 4).weights(0.2, 0.0, p, 3)
    assert weights == pytest.approx((theta1, 1 / 2, 0.1 / theta1, 1.0))


@pytest.mark.parametrize("omega", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("n", [1, 10, 1000, 10**6])
def test_p_is_as_large_as_the_smoothness_of_f_alone_allows(omega, n):
    """Where p is above α and below 1, the two bounds on η are equal for L_max = L; p is never below α."""
    found = PARAMETERS["convex"](omega, omega, n)
    p, alpha = found.p(), 1 / (1 + omega)
    r = p / alpha
    crowded = 1 / (4 * omega / n * (1 + 40 / 3 * r * (1 + 2 * r)))
    assert alpha <= p <= 1
    if alpha < p < 1:
        assert crowded == pytest.approx(1 / 2)
    elif p == 1:
        assert crowded >= 1 / 2 - 1e-12
    else:
        assert crowded <= 1 / 2 + 1e-12
