"""The chain of SHA-256 over all iterates, of short ones and of those that a thread hashes."""

from __future__ import annotations

from hashlib import sha256
from time import sleep

import numpy as np
import pytest

from mpicomp import GD
from mpicomp.problems import Quadratics
from mpicomp.runtime.digest import Digest, _link
from mpicomp.runtime.loop import Loop
from mpicomp.transports.local import Local


@pytest.mark.parametrize("d", [3, 2**13, 2**13 + 1])  # 64 KiB, and one number more
def test_each_hash_is_of_the_one_before_and_the_iterate(d):
    x = np.random.default_rng(d).normal(size=(5, d))
    digest, chain = Digest(x[0]), [sha256(x[0].tobytes()).digest()]
    for k in range(1, 5):
        digest.update(x[k])
        chain.append(sha256(chain[-1] + x[k].tobytes()).digest())
        assert k == 2 or digest.value == chain[-1]  # which nobody asks for after x²
    resumed = Digest(x[4])
    resumed.update(x[0])
    resumed.value = chain[2]
    for k in (3, 4):
        resumed.update(x[k])
    assert resumed.value == chain[4]


def test_an_iterate_is_hashed_before_the_next_step_changes_it(monkeypatch):
    """However long the thread takes; GD changes x in place."""

    def late(previous, x):
        sleep(0.05)
        return _link(previous, x)

    monkeypatch.setattr("mpicomp.runtime.digest._link", late)
    loop = Loop(GD(gamma=0.1), Quadratics(d=2**13 + 1), Local(1), 0)
    chain = sha256(loop.x.tobytes()).digest()
    for k in range(3):
        loop.step(k)
        chain = sha256(chain + loop.x.tobytes()).digest()
    assert loop.digest.value == chain
