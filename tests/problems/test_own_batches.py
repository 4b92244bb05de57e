"""Batches of a user's own objective: what they need is said in one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp import EFSGD, ConfigError, TopK


class Rows(mpicomp.FiniteSum):
    def __init__(self, A):
        self.A, self.samples = A, len(A)

    def value(self, x):
        return np.mean((self.A @ x - 1) ** 2) / 2

    def grad(self, x):
        return self.A.T @ (self.A @ x - 1) / len(self.A)

    def part(self, rows):
        return type(self)(self.A[rows])


class NotCounted(Rows):
    def __init__(self, A):
        self.A = A


class WithoutReturn(Rows):
    def part(self, rows):
        Rows(self.A[rows])


class WithoutRows(mpicomp.Objective):
    value, grad, __init__ = Rows.value, Rows.grad, Rows.__init__


@dataclass(frozen=True)
class Regression(mpicomp.Problem):
    kind: type

    def dimension(self):
        return 6

    def objective(self, i, n):
        return self.kind(np.random.default_rng(i).standard_normal((10, 6)))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (NotCounted, r"Regression\.objective\(0, 4\) is a FiniteSum without samples: set self\.samples"),
        (WithoutReturn, r"WithoutReturn\.part\(rows\) gives None; expected an mpicomp\.Objective"),
        (
            WithoutRows,
            r"no stochastic gradients.* A class of your own defines batch_grad\(x, b, stream\), or",
        ),
    ],
)
def test_what_a_batch_needs(kind, said):
    """The first two ended in errors of our own; the last named problems of the package alone."""
    with pytest.raises(ConfigError, match=said):
        mpicomp.run(EFSGD(TopK(k=2), gamma=0.1, batch=3), Regression(kind), workers=4, rounds=2)


def test_rows_are_enough():
    mpicomp.check_problem(Regression(Rows))
    run = mpicomp.run(EFSGD(TopK(k=2), gamma=0.1, batch=10), Regression(Rows), workers=4, rounds=20)
    full = mpicomp.run(EFSGD(TopK(k=2), gamma=0.1), Regression(Rows), workers=4, rounds=20)
    assert run.iterates_sha256 == full.iterates_sha256  # a batch of all rows is no draw
