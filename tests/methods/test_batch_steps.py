"""Step sizes of theory on batches, and of error feedback: their bounds, and where they are refused."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Identity, Natural, RandK, TopK
from mpicomp.methods import (
    DASHAMVR,
    DCGD,
    DIANA,
    EF14,
    EF21,
    EF21SGD2M,
    EF21SGDM,
    EFSGD,
    MCM,
    VRMARINA,
    ARCTopK,
    Artemis,
    Dore,
    DoubleSqueeze,
    EControl,
)
from mpicomp.problems import LeastSquares, Logistic, NonconvexGLM, Softmax
from mpicomp.problems.scalars import LOGISTIC, SIGMOID_SQUARED
from tests.support.finite_sums import SAMPLED
from tests.support.trajectories import HAND, Squares, grad_norm_sq, resolved, start, trajectory

UNBOUNDED = replace(SAMPLED, sigma=None)  # L 3, L_max 5, L_ij 7
GROWING = [  # methods with a step where the variance grows with the distance from x*
    DCGD(RandK(3), batch=5),
    DIANA(RandK(3), batch=5),
    Artemis(RandK(3), Natural(), batch=5),
    Artemis(RandK(3), Natural(), alpha_down=None, p=0.5, batch=5),
    Dore(RandK(3), Natural(), batch=5),
    MCM(RandK(3), Natural(), batch=5),
    EF14(TopK(3), batch=5),
    EFSGD(TopK(3), batch=5),
    EFSGD(HardThreshold(0.1), batch=5),
    DoubleSqueeze(TopK(3), TopK(6), batch=5),
]
BOUNDED = [  # methods without one
    EF21(TopK(3), batch=5),
    EF21(TopK(3), batch=5, mu=0.1),
    EF21SGDM(TopK(3), batch=5),
    EF21SGD2M(TopK(3), batch=5),
    EControl(TopK(3), batch=5),
    ARCTopK(2, r=1, width=3, batch=5),
    DASHAMVR(RandK(3), 5, b=0.5),
    VRMARINA(RandK(3), 5, sync_batch=5),
]


def test_steps_on_batches():
    """docs/methods.md#on-batches, by hand: d = 12, n = 4, S = 7/5, ω is 3 and 1/8, A 3/4, α 1/4 and 1/2."""
    S, w = 7 / 5, 1 / 8
    K = 5.5 * 5 + 2 * (15 / 4 + 1 / 4) * S
    B = 3 / 4 + 0.5 * 4 / (0.5 * 4)
    mean, beta = sqrt(3 * (5 + S)), 1 / (1 + w)
    wanted = [
        1 / (3 + 7.5 + 2 * S),
        1 / K,
        1 / ((1 + w) * K),
        1 / ((1 + 6 * w) * ((1 + 6 * B) * 5 + 2 * (5 * B + 1 / 4) * S)),
        (1 - 1 / 2) / (beta * (1 + w) * K),
        2 / (K + sqrt(K**2 + 40 * w * 3 * K * (2 * (1 + w)) ** 2)),
        1 / (40 * mean),
        1 / (40 * mean),
        1 / (2 * 3 + S),
        1 / (8 * 40 * mean),
    ]
    found = [resolved(method, 12, 4, UNBOUNDED).step for method in GROWING]
    assert found == pytest.approx(wanted)
    many = replace(UNBOUNDED, L_ij=7000.0)
    for method in GROWING[6:8]:
        assert resolved(replace(method, C=Identity()), 12, 4, many).gamma == pytest.approx(4 / (24 * 1400))


def test_a_bounded_variance_leaves_the_step_of_full_gradients():
    """It adds a constant to each inequality of the proofs."""
    for method in GROWING + BOUNDED[:-2]:
        whole = resolved(replace(method, batch=None), 12, 4, UNBOUNDED).step
        assert resolved(method, 12, 4, SAMPLED).step == whole
        assert resolved(replace(method, batch=None), 12, 4, HAND).step == whole
    nonconvex = replace(SAMPLED, mu=None, convex=False)
    for method in (DIANA(RandK(3), batch=5), DCGD(Identity(), batch=5)):
        assert resolved(method, 12, 4, nonconvex) == replace(
            resolved(replace(method, batch=None), 12, 4, nonconvex), batch=5
        )


def test_batches_without_a_theorem_are_refused():
    """In one line, with the method, the batch and what would do; a number always goes."""
    unknown = replace(UNBOUNDED, L_ij=None)
    cases = [(m, unknown, "convex samples with a known L_ij, or samples of bounded") for m in GROWING]
    cases += [(m, c, "for samples of bounded variance") for m in BOUNDED for c in (UNBOUNDED, unknown)]
    nonconvex = replace(UNBOUNDED, convex=None)
    cases += [(m, nonconvex, "convex samples with a known") for m in (GROWING[1], *GROWING[6:])]
    for method, c, said in cases:
        name = "sync_batch" if isinstance(method, VRMARINA) else "batch"
        with pytest.raises(ConfigError) as refusal:
            resolved(replace(method, p=0.5) if name == "sync_batch" else method, 12, 4, c)
        text = str(refusal.value)
        assert text.startswith(f"{type(method).__name__} with {name}=5 has a theory step size "), text
        assert said in text and f"Give gamma as a number, or {name}=None" in text and "\n" not in text, text
        assert resolved(replace(method.with_step(0.1), **{name: 5}), 12, 4, SAMPLED).step == 0.1


# --- least squares, where the variance of a sample grows with the distance from x* ---


def least_squares(kind: str) -> LeastSquares:
    """One coordinate a sample; a Gaussian matrix; sparse rows of zeros and ones, most of them short."""
    draw = np.random.default_rng(5)
    if kind == "coordinates":
        X = np.tile(np.eye(40), (2, 1))
    elif kind == "gaussian":
        X = draw.normal(size=(400, 20))
    else:
        X = (draw.random((400, 40)) < 0.04) + np.eye(400, 40)
    return LeastSquares(data=(X, draw.normal(size=len(X))), lam=0.01, split="contiguous")


class Optimum:
    """x* and, there, ζ*² = mean |∇f_i|² and σ*², the mean variance of a sample's gradient; n = 2."""

    def __init__(self, problem: LeastSquares) -> None:
        fs = [problem.objective(i, 2) for i in range(2)]
        X, y = np.vstack([f.X.toarray() for f in fs]), np.concatenate([f.y for f in fs])
        H = X.T @ X / len(y) + 0.01 * np.eye(X.shape[1])
        self.x = np.linalg.solve(H, X.T @ y / len(y))
        samples = [f.X.toarray() * (f.X @ self.x - f.y)[:, None] for f in fs]
        self.zeta = float(np.mean([np.sum(f.grad(self.x) ** 2) for f in fs]))
        self.sigma = float(np.mean([np.sum(np.var(g, axis=0)) for g in samples]))
        self.gap = lambda x: (x - self.x) @ H @ (x - self.x) / 2


KINDS = pytest.mark.parametrize("kind", ["coordinates", "gaussian", "sparse"])


@KINDS
def test_dcgd_and_diana_reach_the_neighbourhoods_of_their_theorems(kind):
    """docs/methods.md, DCGD and DIANA, batch 1.  The bound for the mean of 3 seeds, no slack; Φ for |x - x*|²
    is larger.  With the step of full gradients the last of them diverges."""
    problem, n, T = least_squares(kind), 2, 300
    at, mu, d = Optimum(problem), 0.01, problem.dimension()
    for method in (DCGD(RandK(d // 4), batch=1), DIANA(RandK(d // 4), batch=1), DIANA(Identity(), batch=1)):
        A, xs = method.Q.ab(d, n)[0], []
        for seed in range(3):
            loop = start(method, problem, n, seed)
            xs.append(trajectory(loop, T)[-1])
        gamma = loop.method.gamma
        first, rate = np.sum(at.x**2), 1 - gamma * mu
        if isinstance(method, DCGD):
            limit = 2 * gamma * (A * at.zeta + (A + 1 / n) * at.sigma) / mu
        else:
            alpha = loop.method.alpha
            first += 4 * A / alpha * gamma**2 * at.zeta
            rate = max(rate, 1 - alpha / 2)
            limit = gamma**2 * 2 * (5 * A + 1 / n) * at.sigma / (1 - rate)
        assert np.mean([np.sum((x - at.x) ** 2) for x in xs]) <= rate**T * first + limit
        if method == DIANA(Identity(), batch=1):
            whole = start(replace(method, batch=None), problem, n).method.gamma
            x = trajectory(start(method.with_step(whole), problem, n), 100)[-1]
            assert np.sum((x - at.x) ** 2) > 100 * (first + limit), kind


@KINDS
def test_methods_of_both_directions_stay_in_a_neighbourhood(kind):
    """Where the step of full gradients diverges, f - f* stays below its start plus σ*², in the mean of the
    last 150 rounds."""
    problem = least_squares(kind)
    at, d = Optimum(problem), problem.dimension()
    for method in (
        Artemis(RandK(d // 4), Natural(), batch=1),
        Artemis(RandK(d // 4), Natural(), alpha_down=None, p=0.5, batch=1),
        Dore(RandK(d // 4), Natural(), batch=1),
        MCM(RandK(d // 4), Natural(), batch=1),
    ):
        xs = trajectory(start(method, problem, 2), 300)[150:]
        assert np.mean([at.gap(x) for x in xs]) <= at.gap(np.zeros(d)) + at.sigma, (kind, method)


@KINDS
def test_error_feedback_has_the_bound_of_its_proof(kind):
    """``support.feedback`` on batches of 1, and ``EFSGD``'s for a hard threshold."""
    problem, n, T, lam = least_squares(kind), 2, 300, 0.05
    at, c, d = Optimum(problem), problem.constants(2), problem.dimension()
    up, down = TopK(d // 2), TopK(d - 1)
    methods = [EF14(up, batch=1), EFSGD(up, batch=1), EFSGD(Identity(), batch=1)]
    methods += [EFSGD(HardThreshold(lam), batch=1), DoubleSqueeze(up, down, batch=1)]
    for method in methods:
        loop = start(method, problem, n)
        gamma, found = loop.method.gamma, np.mean([at.gap(x) for x in trajectory(loop, T)[:-1]])
        bound = 2 * np.sum(at.x**2) / (gamma * T) + 4 * gamma * at.sigma / n
        if isinstance(method.C, HardThreshold):
            bound = bound / 2 + 2 * gamma**2 * c.L * d * lam**2
        else:
            q = [
                sqrt(1 - C.alpha(d, n))
                for C in (method.C, getattr(method, "down", None))
                if isinstance(C, TopK)
            ]
            Q = (np.prod([(1 + r) / (1 - r) for r in q]) - 1) / 2
            bound += 8 * c.L * gamma**2 * Q**2 * (at.zeta + at.sigma)
        assert found <= bound, (kind, method)


def test_a_step_with_L_alone_diverges_where_the_samples_have_a_far_larger_L_ij():
    """EF14 and EFSGD took α/(10 L), and 1/(2 L) for a hard threshold."""
    d, n = 400, 2
    problem = LeastSquares(data=(np.tile(np.eye(d), (n, 1)), np.ones(n * d)), lam=0.0, split="contiguous")
    L = problem.constants(n).L
    for method, old in (
        (EF14(Identity(), batch=1), 1 / (10 * L)),
        (EFSGD(Identity(), batch=1), 1 / (10 * L)),
        (EFSGD(HardThreshold(1e-3), batch=1), 1 / (2 * L)),
    ):
        far, near = (trajectory(start(m, problem, n, 1), 400)[-1] for m in (method.with_step(old), method))
        assert np.sum((far - 1) ** 2) > 1e6 * d > d > np.sum((near - 1) ** 2), method


def test_the_sample_constant_is_necessary_up_to_a_factor_of_four_and_a_little():
    """One coordinate a sample, n workers, no noise at x*: each coordinate is multiplied by 1 - γξ, ξ the
    share of workers that drew it.  E(1 - γξ)² < 1 if and only if γ < 2/(1/n + (1 - 1/n)/d), which is at most
    4 + 2/d times the step: L is 1/d, and L_ij is 1."""
    for d, n in ((40, 2), (400, 2), (40, 8), (7, 1)):
        problem = LeastSquares(data=(np.tile(np.eye(d), (n, 1)), np.ones(n * d)), lam=0.0, split="contiguous")
        largest = 2 / (1 / n + (1 - 1 / n) / d)
        for method in (DCGD(Identity(), batch=1), EFSGD(HardThreshold(0.1), batch=1)):
            gamma = start(method, problem, n).method.gamma
            most = (4 + 2 / d) * gamma * (1 if isinstance(method, DCGD) else 2)
            assert gamma < largest <= most * (1 + 1e-12)


# --- error feedback on full gradients ---


def opposite(L: float, B: float) -> Squares:
    """Two workers with the Hessians L I + B J and L I - B J: f is convex, the f_i are not."""
    J = np.array([[1.0, 2.0], [2.0, -1.0]])
    return Squares(
        np.array([L * np.eye(2) + B * J, L * np.eye(2) - B * J]), np.zeros((2, 2)), np.array([1.0, 2.0])
    )


def test_error_feedback_is_refused_where_some_f_i_is_not_convex():
    """α/(10 L) diverges there, and L has no bound on it.  One worker is covered, whatever f."""
    problem = opposite(1.0, 100.0)
    for method in (EF14(TopK(1)), EFSGD(TopK(1)), DoubleSqueeze(TopK(1), Identity())):
        x = trajectory(start(method.with_step(1 / 20), problem, 2), 300)[-1]
        assert not np.sum(x**2) < 1e6
        for c in (replace(HAND, convex=False), replace(HAND, mu=None)):
            with pytest.raises(ConfigError, match=r"convex f_i.*EF21"):
                resolved(method, 12, 4, c)
        share = 1 / 40 if isinstance(method, DoubleSqueeze) else 1 / 10
        alone = resolved(method, 12, 1, replace(HAND, mu=None, L_i=(3.0,)))
        assert alone.gamma == pytest.approx(share / 12 / 3)


def test_error_feedback_takes_the_geometric_mean_of_L_and_L_max():
    """``support.feedback``: α/(10 √(L L_max)), with two compressors αα'/40; without compression α/(10 L)."""
    assert resolved(EF14(TopK(3)), 12, 4).gamma == pytest.approx(1 / 4 / (10 * sqrt(15)))
    assert resolved(EFSGD(TopK(3)), 12, 4).gamma == pytest.approx(1 / 4 / (10 * sqrt(15)))
    assert resolved(DoubleSqueeze(TopK(3), TopK(6)), 12, 4).gamma == pytest.approx(1 / 8 / (40 * sqrt(15)))
    assert resolved(EF14(Identity()), 12, 4, replace(HAND, convex=False)).gamma == pytest.approx(1 / 30)
    assert resolved(EFSGD(HardThreshold(0.1)), 12, 4, replace(HAND, mu=None)).gamma == pytest.approx(1 / 6)


def test_error_feedback_with_momentum_has_the_bound_of_its_proof():
    """``EF21SGDM``: (1/T) Σ |∇f|² ≤ 2 (f(x⁰) - f*)/(γT) for γ up to 1/(L/η + Q mean L_i),
    1/(L(2/η - 1) + Q mean L_i) for EF21-SGD2M, and 1/(L/η + Q L) for ARC-Top-K whatever the L_i; theory is
    less."""
    problem, n, T = opposite(1.0, 3.0), 2, 200
    c = problem.constants(n)
    alpha = 1 / 2
    q = sqrt(1 - alpha)
    Q = q / (1 - q)
    for eta in (0.05, 0.3, 1.0):
        for method, largest, rounds in (
            (EF21SGDM(TopK(1), eta=eta), 1 / (c.L / eta + Q * np.mean(c.L_i)), 1),
            (EF21SGD2M(TopK(1), eta=eta), 1 / (c.L * (2 / eta - 1) + Q * np.mean(c.L_i)), 1),
            (ARCTopK(1, r=1, width=1, eta=eta), 1 / (c.L / eta + Q * c.L), 2),
        ):
            assert start(method, problem, n).method.gamma <= largest
            xs = trajectory(start(method.with_step(largest), problem, n), rounds * T)[::rounds][:T]
            first = 0.5 * np.sum(xs[0] ** 2)
            found = np.mean([grad_norm_sq(problem, n, x) for x in xs])
            assert found <= 2 * first / (largest * T), (method, eta)


# --- what problems say of their samples ---


def test_losses_know_their_steepest_slope():
    t = np.linspace(-40, 40, 800_001)
    for phi in (LOGISTIC, SIGMOID_SQUARED):
        assert np.abs(phi.slope(t)).max() == pytest.approx(phi.steepest, rel=1e-8)


def test_the_variance_of_samples_is_at_most_what_the_constants_say():
    """At x of all sizes; one sample's gradient is steep, the others' flat: then much of it is attained."""
    draw = np.random.default_rng(2)
    X = np.vstack([np.eye(2), -np.eye(2)])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    problems = [
        Logistic(data=(X, y), lam=0.1),
        NonconvexGLM(data=(X, y), lam=0.1),
        Softmax(data=(X, y), lam=0.1),
    ]
    for problem, share in zip(problems, (0.3, 0.05, 0.2), strict=True):
        f, sigma = problem.objective(0, 1), problem.constants(1).sigma
        found = 0.0
        for scale in (0.1, 1, 10, 100):
            for _ in range(20):
                x = scale * draw.normal(size=problem.dimension())
                rows = [f.part(np.array([j])).grad(x) for j in range(4)]
                found = max(found, float(np.sum(np.var(rows, axis=0))))
        assert share * sigma**2 < found <= sigma**2, problem
    assert least_squares("gaussian").constants(2).sigma is None
