"""What a run observes, on all ranks at once: `mpicomp launch --ranks 4 -m pytest --only-mpi tests/mpi`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21P, MARINA, PermK, RandK, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.problems import Logistic
from mpicomp.transports.launcher import launched_rank
from mpicomp.transports.local import Local

pytestmark = pytest.mark.mpi(min_size=2)

PROBLEM = Logistic(data="breast_cancer", lam=1e-3)
METHODS = [MARINA(PermK()), EF21P(TopK(k=3), RandK(k=3), start="gradient")]  # the second has a server's model


def run(method, transport, **options):
    return mpicomp.run(method, PROBLEM, workers=6, rounds=20, seed=1, transport=transport, **options)


@pytest.fixture
def transport():
    from mpicomp.transports.mpi import Mpi

    t = Mpi(6)
    yield t
    t.close()


@pytest.mark.parametrize("observe", ["full", 11, "never"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_rows_and_what_a_callback_sees_are_those_of_one_process(method, observe, transport):
    here, alone = [], []
    x0 = np.linspace(-1, 1, PROBLEM.dimension())
    # The server's starting point counts, so the other ranks need none.
    theirs = x0 if launched_rank() == 0 else None
    options = {"at": [1, 2, 7], "observe": observe}
    one = run(method, Local(6), x0=x0, callback=lambda k, row, x: alone.append((k, x.tobytes())), **options)
    all_ = run(
        method, transport, x0=theirs, callback=lambda k, row, x: here.append((k, x.tobytes())), **options
    )
    assert one.iterates_sha256 == all_.iterates_sha256
    assert [replace(row, seconds=0) for row in one.rows] == [replace(row, seconds=0) for row in all_.rows]
    assert [row.round for row in all_.rows] == [0, 1, 2, 7, 20]
    assert here == (alone if launched_rank() == 0 else [])


def test_a_callback_ends_the_run_on_all_ranks(transport):
    result = run(METHODS[0], transport, every=4, callback=lambda k, row, x: k == 8)
    assert (result.status, result.rows[-1].round) == ("callback", 8)


def test_a_refusal_in_a_callback_is_raised_on_all_ranks(transport):
    def refuse(k, row, x):
        raise ConfigError("not this one")

    with pytest.raises(ConfigError, match="not this one"):
        run(METHODS[0], transport, callback=refuse)
