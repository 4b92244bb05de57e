"""A server with many workers of whom a few are real: it gets as many messages as it is told."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp import DCGD, EF21, MARINA, Artemis, PermK, Quadratics, RandK, TopK
from mpicomp.keys import Key
from mpicomp.lab.bench.crowd import Crowd, server_seconds
from mpicomp.runtime.loop import Loop
from mpicomp.runtime.rounds import Rounds
from mpicomp.transports.local import Local

PROBLEM = Quadratics(d=60, noise=0.3, lam=0.1)


def test_copies_leave_the_mean_as_it_is():
    """Each of four workers three times: the iterates are theirs, and the ledger has all messages."""
    method = EF21(TopK(3), gamma=0.1)
    loop, few = (Loop(method, PROBLEM, Local(4), seed=0) for _ in range(2))
    crowd = Crowd(12, 4)
    rounds = Rounds(loop.method, loop.x, loop.objectives, crowd)
    for k in range(10):
        rounds.play(Key(0, k, None, 12), f"round {k}")
        few.step(k)
    assert np.allclose(rounds.x, few.x, rtol=1e-10) and not np.allclose(few.x, PROBLEM.x0())
    assert rounds.ledger.up.tolist() == [3 * up for up in few.ledger.up[:4]] + [0] * 8


@pytest.mark.parametrize(
    "method",
    [
        EF21(TopK(3), gamma=0.1),
        MARINA(PermK(), gamma=0.1),
        DCGD(RandK(3), gamma=0.1),
        Artemis(RandK(3), RandK(9), gamma=0.1, p=0.3),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.parametrize("server", [{}, {"server": "sharded", "blocks": 3}], ids=["root", "sharded"])
def test_a_server_is_timed_with_any_method(method, server):
    assert server_seconds(method, PROBLEM, n=50, real=4, rounds=6, **server) > 0
