"""Ranks that are given different runs: refused in one line, where they mixed data or hung."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, ConfigError, Logistic, MpicompError, Noisy, Problem, RandK
from mpicomp.lab.experiment.compare import compare_all
from mpicomp.lab.experiment.study import parse
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.scalars import SQUARE
from mpicomp.transports import connect
from mpicomp.transports.launcher import launched_rank
from tests.support.launching import TESTS, mpirun

GIVEN = {"seed": 3, "rounds": 4, "every": 2, "target_grad_norm_sq": 1e-9, "out": None}
OTHERS = {"seed": 4, "rounds": 5, "every": 1, "target_grad_norm_sq": 1e-8}

# What rank 0 is given and rank 1, each in the words of the refusal, where these are not the values.
BEFORE = {
    "workers": (
        (3, 2),
        None,
    ),  # rank 0 took worker 2 from a rank that had none such, and the iterates were wrong
    "out": (("one", "another"), None),
    "stall_timeout": ((None, 200.0), ("None", "a number of seconds")),
    "on_failure": (("end", "shrink"), None),
    "verify_bytes": ((False, True), None),
}


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


def own_transport(rank: int, method: DIANA) -> None:
    """A transport of the caller's on one rank alone, or of which one rank alone wants the bytes verified."""
    t = connect(2)
    for given, verify in (((t, None), (False, False)), ((None, t), (False, False)), ((t, t), (False, True))):
        name, words = "verify_bytes", ("False", "True")
        if given[0] is not given[1]:
            name, words = "transport", tuple("None" if one is None else "a transport" for one in given)
        with pytest.raises(ConfigError, match=f"rank 1 has {name} = {words[1]}, and rank 0 has {words[0]}"):
            options = GIVEN | {"transport": given[rank], "verify_bytes": verify[rank]}
            mpicomp.run(method, digits(), workers=2, **options)
    assert mpicomp.run(method, digits(), workers=2, transport=t, **GIVEN).status == "rounds"
    t.close()


def comparisons(rank: int) -> None:
    """Of which the ranks have other methods, labels, seeds or folders: some hung, others mixed two tables."""
    gd, agd = "gd(gamma=0.1)", "agd(gamma=0.1, mu=0.1)"
    one = {"methods": {"a": gd}, "problem": "quadratics(d=3)", "workers": 2, "rounds": 2, "seeds": [0]}
    others = {
        "entries": {"methods": {"a": gd, "b": agd}},
        "entries ": {"methods": {"b": gd}},
        "seeds": {"seeds": [0, 1]},
        "out": {"out": "folder"},
        "resume": {"resume": None},
        "placement": {"server": "sharded"},
    }
    for name, other in others.items():
        for first in (0, 1):
            with pytest.raises(ConfigError, match=f"rank 1 has {name.strip()} = .*, and rank 0 has .*: all"):
                mpicomp.compare(**one | (other if rank == first else {}))
    with pytest.raises(ConfigError, match=r"rank 1 has entries = .*tune=\(0, 2\)"):
        mpicomp.tune(gd, "quadratics(d=3)", workers=2, rounds=2, exponents=(0, 1 + rank))
    assert "a" in mpicomp.compare(**one).table()


def studies(rank: int) -> None:
    """Of which one rank has another method or case: it hung, for the other one had come to its end."""
    one = 'rounds = 2\nworkers = 2\nproblem = "quadratics(d=3)"\n[[case]]\nlabel = "a"\n'
    method, case = '[[method]]\nmethod = "gd"\n', '[[case]]\nlabel = "b"\n'
    agd = method.replace("gd", "agd(mu=0.0)")
    others = {"a: entries": one + method + agd, "b: title": one + case + method}
    for name, other in others.items():
        for first in (0, 1):
            with pytest.raises(ConfigError, match=f"rank 1 has {name} = .*, and rank 0 has .*: all"):
                compare_all(parse(other if rank == first else one + method), "study")


def other_calls(rank: int) -> None:
    """A run here and a loop or a comparison there: each took the other's messages for its own."""
    calls = {
        "mpicomp.run": lambda: mpicomp.run("gd(gamma=0.1)", "quadratics(d=3)", workers=2, rounds=1),
        "mpicomp.compare": lambda: mpicomp.compare(["gd"], "quadratics(d=3)", workers=2, rounds=1),
        "mpicomp.tune": lambda: mpicomp.tune("gd", "quadratics(d=3)", workers=2, rounds=1),
        "Aggregator": lambda: mpicomp.Aggregator("gd(gamma=0.1)", like=np.zeros(3)),
        "Descent": lambda: mpicomp.Descent("gd(gamma=0.1)", np.zeros(3)),
    }
    for pair in permutations(calls, 2):
        with pytest.raises(MpicompError) as raised:
            calls[pair[rank]]()
        assert str(raised.value) == (
            f"rank 0 calls {pair[0]}, and rank 1 calls {pair[1]}: all ranks have to make the same calls in "
            "the same order."
        )


def job() -> None:
    rank, method = launched_rank(), DIANA(RandK(k=1), gamma=0.1)
    other_calls(rank)
    for name, other in OTHERS.items():
        with pytest.raises(
            ConfigError, match=f"rank 1 has {name} = {other}, and rank 0 has {GIVEN[name]}: all"
        ):
            mpicomp.run(method, digits(), workers=2, **GIVEN | ({name: other} if rank else {}))
    for name, (given, words) in BEFORE.items():
        for a in (0, 1):  # which of the two rank 0 is given
            first, other = (words or given)[a], (words or given)[1 - a]
            options = {"workers": 2} | GIVEN | {name: given[a ^ rank]}
            with pytest.raises(
                ConfigError, match=f"rank 1 has {name} = {other}, and rank 0 has {first}: all"
            ):
                mpicomp.run(method, digits(), **options)
    own_transport(rank, method)
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
    comparisons(rank)
    studies(rank)


def test_ranks_that_are_given_different_runs_are_told_so(tmp_path):
    done = mpirun(2, str(TESTS / "runtime" / "test_alike.py"), str(tmp_path), PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    alone = mpicomp.run(DIANA(RandK(k=1), gamma=0.1), digits(), workers=2, **GIVEN)
    told = Counter(done.stdout.split())
    assert told.pop(alone.iterates_sha256) == 2 and [*told.values()] == [2]


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    job()
