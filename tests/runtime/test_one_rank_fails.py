"""A rank that fails alone, with messages that are long enough to wait for their receiver: all ranks go on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, GD, Aggregator, ConfigError, Identity, MpicompError, Objective, Problem, TopK
from mpicomp.transports.launcher import launched_rank
from tests.support.launching import TESTS, mpirun

D = 200_000  # 800 kB a message


@dataclass(frozen=True)
class Flat(Problem):
    def dimension(self):
        return D

    def objective(self, i, n):
        return Ones()


class Ones(Objective):
    def value(self, x):
        return 0.0

    def grad(self, x):
        return np.ones_like(x)


class FailsToBegin(GD):
    """The server of rank 0 raises before it takes a message; in blocks, that of rank 0 alone."""

    def server_step(self, s, r, key):
        if launched_rank() == 0 and key.round == 1:
            raise ConfigError("no server step")
        return super().server_step(s, r, key)


class NoAccumulator(GD):
    def server_step(self, s, r, key):
        return None


def said(action) -> str:
    """What all ranks are told of an error."""
    with pytest.raises(MpicompError) as caught:
        action()
    return str(caught.value)


def job() -> None:
    for server in ({}, {"server": "sharded", "blocks": 2}):
        options = {"workers": 2, "rounds": 3, **server}
        assert said(lambda o=options: mpicomp.run(FailsToBegin(0.1), Flat(), **o)) == "no server step"
        assert "returned a NoneType; expected an Accumulator" in said(
            lambda o=options: mpicomp.run(NoAccumulator(0.1), Flat(), **o)
        )
        assert mpicomp.run(GD(0.1), Flat(), **options).rows[-1].round == 3
    x = np.zeros(6)
    with Aggregator(EF21(TopK(k=2)), like=x) as agg:
        given = {"at": x} if agg.hosted == range(1) else {}
        assert "at is given on rank 0 and not on rank 1" in said(lambda: agg(np.ones(6), **given))
        assert agg.tell_all(agg.hosted.start) == [0, 1]
    with Aggregator(EF21(Identity()), like=x, server="sharded", blocks=2) as agg:
        assert len(agg.overlap()) == 2
        if agg.hosted == range(1):
            agg.bring(1, np.ones(3))
        assert "blocks 1 and above were brought, and not those below" in said(lambda: agg(np.ones(6)))
        for block in (1, 0):
            agg.bring(block, np.ones(3))
        assert (agg(np.ones(6)) == 1).all()
        assert "does not go with overlap()" in said(agg.holding([slice(0, 2)]).__enter__)
    print("done")


def test_all_ranks_are_told_and_go_on():
    done = mpirun(2, str(TESTS / "runtime" / "test_one_rank_fails.py"), PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0 and done.stdout.count("done") == 2, done.stdout + done.stderr


if __name__ == "__main__":
    job()
