"""Problems whose workers declare smoothness matrices, and compressors to be fitted to these."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from mpicomp.compressors import Bernoulli, BlockSteps, Dithering, Identity, Importance, RandK, VaryingSteps
from mpicomp.compressors.support.weighted import Weighted
from mpicomp.problems import Objective, Problem
from tests.support.trajectories import Squares, rng, squares

UPLINKS = [
    RandK(2, values="f8"),
    Bernoulli(0.4, "f8"),
    Importance(2, values="f8"),
    VaryingSteps(6.0, values="f8"),
    BlockSteps(6.0, 3, values="f8"),
    Dithering(2, values="f8"),
    Identity("f8"),
    VaryingSteps(6.0),
    Importance(2),
]


def matrix(d: int, seed: int) -> np.ndarray:
    """A smoothness matrix whose diagonal spans two orders of magnitude."""
    rows = rng(seed).normal(size=(2 * d, d)) * np.geomspace(0.1, 3, d)
    return rows.T @ rows / (2 * d)


def weights(L: np.ndarray) -> tuple[float, ...]:
    """Its diagonal, as compressors take it."""
    return tuple(np.diagonal(L).tolist())


@dataclass(frozen=True, eq=False)
class Declared(Problem):
    """Another problem, whose workers are given smoothness matrices of shape (n, d, d)."""

    problem: Problem
    matrices: np.ndarray = field(repr=False)

    def dimension(self):
        return self.problem.dimension()

    def x0(self):
        return self.problem.x0()

    def objective(self, i, n):
        return DeclaredObjective(self.problem.objective(i, n), self.matrices[i])

    def constants(self, n):
        tops = tuple(float(np.linalg.eigvalsh(L)[-1]) for L in self.matrices)
        mean = float(np.linalg.eigvalsh(self.matrices.mean(axis=0))[-1])
        return replace(self.problem.constants(n), L=mean, L_i=tops, diagonals=lambda: self.diagonals(n))


@dataclass(frozen=True, eq=False)
class DeclaredObjective(Objective):
    f: Objective
    L: np.ndarray

    def value(self, x):
        return self.f.value(x)

    def grad(self, x):
        return self.f.grad(x)

    def smoothness_matrix(self):
        return self.L.copy()


def quadratic(problem: Squares) -> Declared:
    """Quadratics with their Hessians as smoothness matrices."""
    return Declared(problem, np.array(problem.A))


def skewed(n: int, d: int, seed: int, **kind) -> Declared:
    """Quadratics whose coordinates are of very different curvature, differently from worker to worker."""
    plain = squares(n, d, seed, **kind)
    scales = np.geomspace(0.5, 2, d) * rng(seed).uniform(0.5, 2, (n, d))
    A = scales[:, :, None] * plain.A * scales[:, None, :] + 0.05 * np.eye(d)
    b = np.einsum("ijk,k->ij", A, rng(seed).normal(size=d)) if kind else plain.b
    return quadratic(Squares(A, b, plain.start))


def fitted(Q, L):
    """Q fitted to L by the closed forms of docs/methods.md#whitening: its steps or
    odds follow from diag(L)."""
    open_weights = isinstance(Q, Weighted) and Q.weights is None
    return replace(Q, weights=weights(L)) if open_weights else Q
