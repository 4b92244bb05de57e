"""The steps of DIANA and VR-DIANA for nonconvex f: one round in exact expectation, over all draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import PermK, RandK
from mpicomp.methods import DIANA, VRDIANA
from mpicomp.problems import Constants
from tests.support.trajectories import HAND, resolved, rng, top

D = 2  # of x; RandK(1) then has ω = 1


@dataclass(frozen=True)
class Samples:
    """f_ij(x) = x'A_ij x/2 + s_ij cos(a_ij'x), A of shape (n, m, d, d): nonconvex, gradients unbounded."""

    A: np.ndarray
    s: np.ndarray
    a: np.ndarray

    def value(self, x):
        return float(np.mean(np.einsum("ijkl,k,l->ij", self.A, x, x) / 2 + self.s * np.cos(self.a @ x)))

    def grads(self, x):
        """Of every sample, shape (n, m, d)."""
        return self.A @ x - (self.s * np.sin(self.a @ x))[..., None] * self.a

    def constants(self):
        """The exact constants of the quadratics, plus those of the waves, whose Hessians |s| |a|² bounds."""
        waves = np.abs(self.s) * np.sum(self.a**2, axis=-1)
        mean, f_i = self.A.mean(axis=(0, 1)), self.A.mean(axis=1)
        spread = (self.A @ self.A).mean(axis=(0, 1)) - (f_i @ f_i).mean(axis=0)
        L_plus = sqrt(top((f_i @ f_i).mean(axis=0))) + sqrt(np.mean(waves.mean(axis=1) ** 2))
        return Constants(
            L=np.abs(np.linalg.eigvalsh(mean)).max() + waves.mean(),
            L_i=tuple(np.abs(np.linalg.eigvalsh(f_i)).max(axis=1) + waves.mean(axis=1)),
            L_plus=L_plus,
            L_pm=L_plus,
            L_sigma=sqrt(max(0.0, top(spread))) + sqrt(np.mean(waves**2)),
            samples=self.A.shape[1],
            convex=False,
        )


def samples(n: int, m: int, waves: float, seed: int) -> Samples:
    draw = rng(seed)
    A = draw.normal(size=(n, m, D, D))
    return Samples(A + A.swapaxes(-1, -2), waves * draw.normal(size=(n, m)), draw.normal(size=(n, m, D)))


# --- the draws of two workers, each as likely: what C_i keeps of each coordinate, shape (2, d) ---

KEPT = {"independent": [], "shared": [], "permk": []}
for i, j in product(range(D), repeat=2):
    KEPT["independent"].append(D * np.eye(D)[[i, j]])
    if i == j:
        KEPT["shared"].append(D * np.eye(D)[[i, j]])
    else:
        KEPT["permk"].append(D * np.eye(D)[[i, j]])
UPLINKS = {"independent": RandK(1), "shared": RandK(1, mask="shared"), "permk": PermK()}


def points(problem: Samples, seed: int, count: int = 60):
    """x, w and h_i: everywhere, with shifts that are nearly right and quite wrong."""
    draw = rng(seed)
    for _ in range(count):
        x, y = 10 ** draw.uniform(-2, 1, size=(2, 1)) * draw.normal(size=(2, D))
        far = 10 ** draw.uniform(-3, 2) * draw.normal(size=(2, D))
        yield x, x + y, problem.grads(x).mean(axis=1) + far


@pytest.mark.parametrize("waves", [0.0, 1.0])
@pytest.mark.parametrize("name", KEPT)
def test_dianas_lyapunov_function_decreases(name, waves):
    """E Φ+ <= Φ - (γ/2) |∇f|², Φ = f + √A/(2 L_+) mean |∇f_i - h_i|², for the step that DIANA gives."""
    for seed in range(6):
        problem = samples(2, 1, waves, seed)
        c, Q = problem.constants(), UPLINKS[name]
        for alpha in (None, 0.2, 0.7):
            method = resolved(DIANA(Q, alpha=alpha), D, 2, c)
            gamma, alpha, weight = method.gamma, method.alpha, sqrt(Q.ab(D, 2)[0]) / (2 * c.L_plus)

            def phi(x, h, weight=weight, problem=problem):
                far = problem.grads(x).mean(axis=1) - h
                return problem.value(x) + weight * np.mean(np.sum(far**2, axis=1))

            for x, _, h in points(problem, seed):
                local = problem.grads(x).mean(axis=1)
                ends = []
                for kept in KEPT[name]:
                    m = kept * (local - h)
                    ends.append(phi(x - gamma * (h + m).mean(axis=0), h + alpha * m))
                before, square = phi(x, h), np.sum(local.mean(axis=0) ** 2)
                assert np.mean(ends) <= before - gamma / 2 * square + 1e-10 * abs(before)


@pytest.mark.parametrize("waves", [0.0, 1.0])
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("p", [0.5, 0.1])
def test_vrdianas_lyapunov_function_decreases(name, waves, p):
    """E Φ+ <= Φ - (γ/2) |∇f|², Φ = f + c mean |∇f_i - h_i|² + e |x - w|², c and e as in the proof."""
    n, m = 2, 3
    for seed in range(4):
        problem = samples(n, m, waves, seed)
        c, Q = problem.constants(), UPLINKS[name]
        method = resolved(VRDIANA(Q, 1, p=p), D, n, c)
        gamma, alpha, A = method.gamma, method.alpha, Q.ab(D, n)[0]
        first = 2 * c.L * gamma**2 * A / alpha
        second = 2 * c.L * gamma**2 * (4 * A + 1 / n) * c.L_sigma**2 / p

        def phi(x, w, h, first=first, second=second, problem=problem):
            far = problem.grads(x).mean(axis=1) - h
            return problem.value(x) + first * np.mean(np.sum(far**2, axis=1)) + second * np.sum((x - w) ** 2)

        for x, w, h in points(problem, seed, 15):
            at_x, at_w = problem.grads(x), problem.grads(w)
            after = 0.0
            for kept, batch in product(KEPT[name], product(range(m), repeat=n)):
                own = (range(n), batch)
                message = kept * (at_x[own] - at_w[own] + at_w.mean(axis=1) - h)
                new, shifts = x - gamma * (h + message).mean(axis=0), h + alpha * message
                after += (p * phi(new, x, shifts) + (1 - p) * phi(new, w, shifts)) / len(KEPT[name]) / m**n
            before, square = phi(x, w, h), np.sum(at_x.mean(axis=(0, 1)) ** 2)
            assert after <= before - gamma / 2 * square + 1e-10 * abs(before)


def test_the_step_is_within_a_small_factor_of_one_that_fails():
    """The inequality is no empty one: at a few times γ some point violates it."""
    problem, failed = samples(2, 1, 0.0, 0), False
    c = problem.constants()
    gamma, weight = 8 * resolved(DIANA(RandK(1)), D, 2, c).gamma, sqrt(0.5) / (2 * c.L_plus)
    for x, _, h in points(problem, 0):
        local = problem.grads(x).mean(axis=1)
        after = 0.0
        for kept in KEPT["independent"]:
            m = kept * (local - h)
            new = x - gamma * (h + m).mean(axis=0)
            far = problem.grads(new).mean(axis=1) - h - m / 2
            after += (problem.value(new) + weight * np.mean(np.sum(far**2, axis=1))) / 4
        before = problem.value(x) + weight * np.mean(np.sum((local - h) ** 2, axis=1))
        failed |= after > before - gamma / 2 * np.sum(local.mean(axis=0) ** 2)
    assert failed


def test_shifts_that_need_not_converge_have_no_step():
    nonconvex = replace(HAND, mu=None)
    with pytest.raises(ConfigError, match=r"alpha=0.5.*alpha < 2/\(1 \+ ω\) = 0.5 alone"):
        resolved(DIANA(RandK(3), alpha=0.5), 12, 4, nonconvex)
    best = resolved(DIANA(RandK(3)), 12, 4, nonconvex).gamma
    for alpha in (0.05, 0.2, 0.3, 0.45):
        assert resolved(DIANA(RandK(3), alpha=alpha), 12, 4, nonconvex).gamma < best
