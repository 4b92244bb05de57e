"""Ranks that are given different runs: refused in one line, where they mixed data or hung."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, ConfigError, Logistic, Noisy, Problem, RandK
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.scalars import SQUARE
from mpicomp.transports.launcher import launched_rank
from tests.support.launching import TESTS, mpirun

GIVEN = {"seed": 3, "rounds": 4, "every": 2, "target_grad_norm_sq": 1e-9, "out": None}
OTHERS = {"seed": 4, "rounds": 5, "every": 1, "target_grad_norm_sq": 1e-8}


def digits(seed: int = 0, lam: float = 0.1) -> Logistic:
    return Logistic(data=(np.random.default_rng(seed).normal(size=(20, 3)), np.arange(20) % 2), lam=lam)


@dataclass(frozen=True)
class Own(Problem):
    """A problem of which a rank has read the samples of its own worker alone."""

    X: np.ndarray

    def dimension(self):
        return 3

    def objective(self, i, n):
        return LinearModel(self.X, np.ones(len(self.X)), SQUARE, 0.0, SQUARE)


class Nameless:
    """Its text has its address, which differs between ranks."""


def job() -> None:
    rank, method = launched_rank(), DIANA(RandK(k=1), gamma=0.1)
    for name, other in OTHERS.items():
        with pytest.raises(
            ConfigError, match=f"rank 1 has {name} = {other}, and rank 0 has {GIVEN[name]}: all"
        ):
            mpicomp.run(method, digits(), workers=2, **GIVEN | ({name: other} if rank else {}))
    with pytest.raises(ConfigError, match=r"rank 1 has data = .*, and rank 0 has .* read copies"):
        mpicomp.run(method, digits(seed=rank), workers=2, **GIVEN)
    with pytest.raises(ConfigError, match="rank 1 has problem = Logistic"):
        mpicomp.run(method, digits(lam=0.1 + rank), workers=2, **GIVEN)
    with pytest.raises(ConfigError, match="rank 1 has method = DIANA"):
        mpicomp.run(method.with_step(0.1 + rank), digits(), workers=2, **GIVEN)
    own = Own(np.random.default_rng(rank).normal(size=(5, 3)))
    print(mpicomp.run(method, own, workers=2, **GIVEN).iterates_sha256)
    mpicomp.run(method, Noisy(own, 0.1), workers=2, **GIVEN)
    problem = digits()
    object.__setattr__(problem, "note", Nameless())
    print(mpicomp.run(method, problem, workers=2, **GIVEN).iterates_sha256)


def test_ranks_that_are_given_different_runs_are_told_so():
    done = mpirun(2, str(TESTS / "runtime" / "test_alike.py"), PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    alone = mpicomp.run(DIANA(RandK(k=1), gamma=0.1), digits(), workers=2, **GIVEN)
    told = Counter(done.stdout.split())
    assert told.pop(alone.iterates_sha256) == 2 and [*told.values()] == [2]


if __name__ == "__main__":
    job()
