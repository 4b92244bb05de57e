"""A user's own classes on all ranks at once: `mpicomp launch --ranks 4 -m pytest --only-mpi tests/mpi`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import Each
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.transports.launcher import launched_rank, launched_ranks
from mpicomp.transports.local import Local
from tests.support import own_file

pytestmark = pytest.mark.mpi(min_size=2)

FILE = Path(own_file.__file__)


def test_every_rank_imports_the_file_and_the_run_is_that_of_one_process():
    method = parse_method(f"{FILE}:Plain(C={FILE}:First(k=3), gamma=theory*0.5)")
    problem = parse_problem(f"{FILE}:Centre(d=6)")
    options = {"workers": 6, "rounds": 8}
    here = mpicomp.run(method, problem, **options)
    alone = mpicomp.run(method, problem, **options, transport=Local(6))
    assert here.ranks == min(launched_ranks(), here.ranks) > 1
    assert here.iterates_sha256 == alone.iterates_sha256
    assert here.ledger.up_bytes == alone.ledger.up_bytes == 8 * 6 * 3 * 8


@dataclass(frozen=True)
class Late(own_file.Plain):
    """A method that keeps each broadcast, and steps by that of the round before; so does its server."""

    down: own_file.First = field(default_factory=lambda: own_file.First(k=3))

    @dataclass
    class Replica:
        x: np.ndarray
        last: np.ndarray

    def replica(self, x0):
        return self.Replica(x0.copy(), np.zeros(24, np.uint8))

    def server_step(self, server, replica, key):
        kept = []

        def close():
            mean = np.zeros_like(replica.x)
            for key_i, up in kept:
                self.C.decompress_add(up.m, mean, key_i, 1 / key.n)
            return Message(self.down.compress(mean, key))

        return Each(lambda key_i, up: kept.append((key_i, up)), close)

    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(r.last, r.x, key, -self.gamma)
        r.last = broadcast.m


def test_messages_that_a_method_keeps_stay_what_they_were():
    """The next message comes to the same memory."""
    method, options = Late(own_file.First(k=3), gamma=0.1), {"workers": 6, "rounds": 5}
    here = mpicomp.run(method, own_file.Centre(d=6), **options)
    alone = mpicomp.run(method, own_file.Centre(d=6), **options, transport=Local(6))
    assert here.iterates_sha256 == alone.iterates_sha256


@dataclass(frozen=True)
class Touching(own_file.Plain):
    """A method whose workers write into the replica, though not into x."""

    @dataclass
    class Replica:
        x: np.ndarray
        v: np.ndarray

    def worker_step(self, w, r, f, key):
        r.v += key.worker
        return super().worker_step(w, r, f, key)


def test_a_worker_that_changes_the_replica_is_refused():
    with pytest.raises(ConfigError, match=r"worker_step: .* change it in replica_step alone"):
        mpicomp.run(Touching(own_file.First(k=3), gamma=0.1), own_file.Centre(d=6), workers=6, rounds=2)


@dataclass(frozen=True)
class Apart(Touching):
    """A method whose replica is another one on each rank."""

    def worker_step(self, w, r, f, key):
        return super(Touching, self).worker_step(w, r, f, key)

    def replica_step(self, r, broadcast, key):
        super().replica_step(r, broadcast, key)
        r.v += launched_rank()


def test_replicas_that_differ_between_ranks_are_noticed():
    with pytest.raises(MpicompError, match=r"replicas on ranks .* a replica_step depends on the rank"):
        mpicomp.run(Apart(own_file.First(k=3), gamma=0.1), own_file.Centre(d=6), workers=6, rounds=2)


@dataclass(frozen=True)
class Here(own_file.Centre):
    """A problem whose field holds this rank's data."""

    b: np.ndarray = field(default_factory=lambda: np.full(5, 1.0 + launched_rank()))

    def objective(self, i, n):
        return own_file.Distance(self.b)


def test_a_run_on_each_rank_s_own_data_is_resumed(tmp_path):
    """The other ranks took it for another run, since their data are not rank 0's."""
    from mpi4py import MPI

    out = MPI.COMM_WORLD.bcast(tmp_path / "run")
    asked = {"method": "gd(gamma=0.25)", "problem": Here(), "workers": launched_ranks()}
    mpicomp.run(rounds=3, out=out, **asked)
    resumed = mpicomp.run(rounds=6, out=out, resume=True, **asked)
    assert resumed.iterates_sha256 == mpicomp.run(rounds=6, **asked).iterates_sha256
