"""Ridge regression as a problem of one's own, with all its constants, for ``check_problem``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from mpicomp import Constants, Problem
from mpicomp.problems import Objective

D, M = 6, 10  # the dimension, and samples of a worker


class Ridge(Objective):
    """(1/2m) |A x - b|² + |x|²/20, with batches."""

    samples = M

    def __init__(self, A, b):
        self.A, self.b = A, b

    def value(self, x):
        return float(np.sum((self.A @ x - self.b) ** 2) / (2 * M) + np.sum(x * x) / 20)

    def grad(self, x):
        return self.A.T @ (self.A @ x - self.b) / M + x / 10

    def batch_grad(self, x, b, stream):
        rows = stream.permutation(M, 0, b)
        return self.A[rows].T @ (self.A[rows] @ x - self.b[rows]) / b + x / 10


def hessian(f):
    return f.A.T @ f.A / M + np.eye(D) / 10


@dataclass(frozen=True)
class Mine(Problem):
    """Worker i has an objective of the class ``kinds[i]``, the last one from there on."""

    kinds: tuple[type, ...] = (Ridge,)
    changed: dict = field(default_factory=dict)

    def dimension(self):
        return D

    def objective(self, i, n):
        draw = np.random.default_rng(i)
        kind = self.kinds[min(i, len(self.kinds) - 1)]
        return kind(draw.normal(size=(M, D)), draw.normal(size=M))

    def constants(self, n):
        fs = [self.objective(i, n) for i in range(n)]
        H = np.array([hessian(f) for f in fs])
        mean, c = H.mean(axis=0), np.mean([f.A.T @ f.b / M for f in fs], axis=0)
        eigenvalues = np.linalg.eigvalsh(mean)
        x = np.linalg.solve(mean, c)
        true = Constants(
            L=eigenvalues[-1],
            L_i=np.linalg.eigvalsh(H)[:, -1],
            L_plus=np.sqrt(np.linalg.eigvalsh(np.mean(H @ H, axis=0))[-1]),
            L_pm=np.sqrt(np.linalg.eigvalsh(np.mean((H - mean) @ (H - mean), axis=0))[-1]),
            mu=eigenvalues[0],
            convex=True,
            quadratic=True,
            f_star=np.mean([f.value(x) for f in fs]),
        )
        return replace(true, **{name: change(getattr(true, name)) for name, change in self.changed.items()})


class Bumpy(Ridge):
    """Neither quadratic nor convex."""

    samples = None
    batch_grad = Objective.batch_grad

    def value(self, x):
        return super().value(x) + float(np.sum(np.cos(3 * x)))

    def grad(self, x):
        return super().grad(x) - 3 * np.sin(3 * x)
