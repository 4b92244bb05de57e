"""Quadratics whose gradients are means over samples; runs on them, their draws and their steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.compressors import Identity, Natural, PermK, Quantized, RandK
from mpicomp.keys import Key
from mpicomp.methods.support.stochastic import batch_size
from mpicomp.problems import Problem
from mpicomp.problems.objective import FiniteSum
from mpicomp.transports.local import Local
from tests.support.trajectories import (
    HAND,
    ROUNDS,
    UPLINKS,
    Square,
    Squares,
    grad_norm_sq,
    integers,
    objective_value,
    rng,
    start,
    top,
    trajectory,
)

# --- problems ---


@dataclass(frozen=True, eq=False)
class SquareSum(FiniteSum):
    """The mean of x'A_j x/2 - b_j'x over the samples j."""

    A: np.ndarray
    b: np.ndarray

    @property
    def samples(self):
        return len(self.A)

    def part(self, rows):
        return Square(self.A[rows].mean(axis=0), self.b[rows].mean(axis=0))

    def value(self, x):
        return self.part(slice(None)).value(x)

    def grad(self, x):
        return self.part(slice(None)).grad(x)


@dataclass(frozen=True, eq=False)
class SquareSums(Problem):
    """Quadratics with matrices of shape (n, m, d, d), vectors (n, m, d) and a start (d,)."""

    A: np.ndarray = field(repr=False)
    b: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)

    def dimension(self):
        return self.start.size

    def objective(self, i, n):
        assert n == len(self.A)
        return SquareSum(self.A[i], self.b[i])

    def x0(self):
        return self.start.copy()

    @property
    def means(self):
        """The same problem without its samples."""
        return Squares(self.A.mean(axis=1), self.b.mean(axis=1), self.start)

    @property
    def x_star(self):
        return self.means.x_star

    def constants(self, n):
        mean = self.means.A
        return replace(
            self.means.constants(n),
            L_sample=sqrt(top((self.A @ self.A).mean(axis=(0, 1)))),
            L_sigma=sqrt(max(0.0, top((self.A @ self.A).mean(axis=(0, 1)) - (mean @ mean).mean(axis=0)))),
            L_ij=max(top(A) for shard in self.A for A in shard),
            samples=self.A.shape[1],
        )


def sums(n: int, m: int, d: int, seed: int = 0) -> SquareSums:
    """Random convex quadratics, different for every sample, with different optima."""
    draw = rng(seed)
    factors = draw.normal(size=(n, m, d, d)) / sqrt(d)
    A = factors @ factors.swapaxes(-1, -2) + 0.5 * np.eye(d)
    return SquareSums(A, draw.normal(size=(n, m, d)), 3 * draw.normal(size=d))


def integer_sums(n: int, m: int, d: int) -> SquareSums:
    """Integer data, and workers' means that are integer as well; n and m are powers of two."""
    base = integers(n, d)
    noise = np.triu(rng(6).integers(-1, 2, (n, m // 2, d, d)))
    noise = noise + noise.swapaxes(-1, -2)
    shifts = rng(7).integers(-2, 3, (n, m // 2, d))
    A = base.A[:, None] + np.concatenate([noise, -noise], axis=1)
    b = base.b[:, None] + np.concatenate([shifts, -shifts], axis=1)
    return SquareSums(A, b, base.start)


def workers(problem: SquareSums) -> int:
    """How many workers the problem is made for."""
    return len(problem.A)


# --- draws ---


def batches(problem: SquareSums, seed: int, b: int | float):
    """The mean gradient at x of worker i's samples of round k, as the method is to draw them."""
    n, m = problem.A.shape[:2]
    count = batch_size(b, m)

    def batch(i, k, x):
        rows = Key(seed, k, i, n).private("batch").permutation(m, 0, count)
        return np.mean([problem.A[i, j] @ x - problem.b[i, j] for j in rows], axis=0)

    return batch


def coins(tag: str, seed: int, n: int, p: float):
    """The coin that falls in round k with probability p, as the method named in ``tag`` draws it."""

    def coin(k):
        return Key(seed, k, None, n).shared(tag).coin(p)

    assert 3 < sum(coin(k) for k in range(1, ROUNDS)) < ROUNDS / 2  # both kinds of round occur
    return coin


# --- problems, compressors and batches ---

PLACES = [sums(4, 6, 12), sums(5, 4, 13), sums(9, 3, 4)]
every_place = pytest.mark.parametrize("problem", PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])

# Every compressor in one place; one sample, two, and half of them.
CASES = [(PLACES[0], Q, 2) for Q in UPLINKS]
CASES += [(place, Q, b) for place, b in zip(PLACES[1:], (1, 0.5), strict=True) for Q in UPLINKS[:2]]


def shown(v):
    """The name of a parameter in a test's name."""
    return f"n{len(v.A)}" if isinstance(v, SquareSums) else repr(v)


every_case = pytest.mark.parametrize(("problem", "Q", "b"), CASES, ids=shown)


# --- running ---


def same_run(a, b, problem: Problem, n: int, rounds: int = 12) -> bool:
    """Whether two methods give the same iterates and bytes, bit for bit."""
    runs = [mpicomp.run(m, problem, workers=n, rounds=rounds, transport=Local(n), seed=5) for m in (a, b)]
    books = [(r.ledger.up.tolist(), r.ledger.down.tolist()) for r in runs]
    return runs[0].iterates_sha256 == runs[1].iterates_sha256 and books[0] == books[1]


def gap(problem: Problem, n: int) -> float:
    """f(x⁰) - f*."""
    return objective_value(problem, n, problem.x0()) - problem.constants(n).f_star


def mean_grad_norm_sq(method, problem: Problem, n: int, rounds: int, seeds: int = 4) -> float:
    """(1/T) sum_{t<T} |grad f(x_t)|^2, its mean over the seeds."""
    found = []
    for seed in range(seeds):
        iterates = trajectory(start(method, problem, n, seed), rounds - 1)
        found += [grad_norm_sq(problem, n, x) for x in iterates]
    return float(np.mean(found))


def gamma_of(method, problem: Problem, n: int) -> float:
    """The step size of the method on n workers, as a number."""
    return start(method, problem, n).method.gamma


# --- step sizes ---

SAMPLED = replace(
    HAND, L_sample=6.0, L_ij=7.0, samples=20, sigma=1.5
)  # L 3, L_+ 3.5, L_pm 1.25, L_max 5, mu 0.1
# Q, omega, A and B by hand, for d = 12, n = 4
BY_HAND = [
    (RandK(3), 3, 3 / 4, 0),
    (RandK(3, mask="shared"), 3, 3, 0),
    (PermK(), 3, 1, 1),
    (Natural(), 1 / 8, 1 / 32, 0),
    (Quantized(PermK(), Natural()), 7 / 2, 9 / 8, 1),
    (Identity(), 0, 0, 0),
]
by_hand = pytest.mark.parametrize(
    ("Q", "omega", "A", "B"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else ""
)
