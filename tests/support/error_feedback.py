"""What error feedback is run with: contractive compressors, and gradients as a round draws them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mpicomp.compressors import Lossless, Natural, PermK, QuantizedTopK, RandK, Shrunk, Sign, TopK
from mpicomp.keys import Key
from mpicomp.problems import Logistic, Noisy, Problem, Quadratics
from tests.support.trajectories import PLACES, WHOLE, Square, Squares

SHRINK = [
    TopK(2, values="f8"),
    Sign(values="f8"),
    QuantizedTopK(3, Natural(values="f8")),
    Shrunk(RandK(2, values="f8")),
    Shrunk(PermK(values="f8")),
    WHOLE,
    TopK(3),
    Lossless(),
]
shrinking = pytest.mark.parametrize("C", SHRINK, ids=repr)
NOISY = Noisy(Quadratics(d=13, noise=0.5, lam=0.01), sigma=0.5)
DIGITS = Logistic("digits", lam=0.01)
SAMPLED = [  # problem, n, batch: full gradients, added noise, samples of a data set as a count and a fraction
    (*PLACES[0], None),
    (*PLACES[2], None),
    (NOISY, 5, 1),
    (DIGITS, 3, 2),
    (DIGITS, 3, 0.01),
]
everywhere = pytest.mark.parametrize(
    ("problem", "n", "batch"), SAMPLED, ids=["d12-n4", "d4-n9", "noisy", "digits-2", "digits-1%"]
)


def sampler(problem: Problem, n: int, batch: int | float | None, seed: int):
    """s_i^k at x: the gradient on the samples that the key of the round names."""
    fs = [problem.objective(i, n) for i in range(n)]

    def sample(i, k, x):
        if batch is None:
            return fs[i].grad(x)
        b = batch if isinstance(batch, int) else round(batch * fs[i].samples)
        return fs[i].batch_grad(x, b, Key(seed, k, i, n).private("batch"))

    return sample


@dataclass(frozen=True)
class Jumping(Problem):
    """``problem``, whose stochastic gradients are off by integers from {-1, 0, 0, 1}, divided by b."""

    problem: Squares

    def dimension(self):
        return self.problem.dimension()

    def objective(self, i, n):
        return Jump(self.problem.A[i], self.problem.b[i])

    def x0(self):
        return self.problem.x0()

    def constants(self, n):
        return self.problem.constants(n)


@dataclass(frozen=True, eq=False)
class Jump(Square):
    def batch_grad(self, x, b, stream):
        return self.grad(x) + np.array([-1.0, 0, 0, 1])[stream.words(x.size) & 3] / b
