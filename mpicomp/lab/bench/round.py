"""The overhead of the loop, beyond computing gradients and moving bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

import numpy as np
import scipy
from mpi4py import MPI

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import MpicompError
from mpicomp.base.formats import WIDTH
from mpicomp.compressors import Lossless, RandK
from mpicomp.kernels import add_scaled
from mpicomp.keys import Key
from mpicomp.methods import MARINA
from mpicomp.problems import Objective, Problem
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.scalars import LOGISTIC, SQUARE
from mpicomp.runtime.loop import Loop
from mpicomp.transports.mpi import Mpi


@dataclass(frozen=True)
class SyntheticLogistic(Problem):
    """Logistic regression on random sparse rows; the fields give their size and sparsity."""

    d: int
    rows: int  # of each worker
    nonzeros: int  # of each row

    def dimension(self) -> int:
        return self.d

    def objective(self, i: int, n: int) -> Objective:
        return _shard(self, i)


@lru_cache
def _shard(p: SyntheticLogistic, i: int) -> LinearModel:
    draw = np.random.default_rng(i)
    columns = np.sort(draw.integers(0, p.d, (p.rows, p.nonzeros)), axis=1).ravel().astype(np.int32)
    starts = np.arange(0, columns.size + 1, p.nonzeros, dtype=np.int32)
    X = scipy.sparse.csr_array((draw.standard_normal(columns.size), columns, starts), shape=(p.rows, p.d))
    return LinearModel(X, draw.choice([-1.0, 1.0], p.rows), LOGISTIC, 1e-3, SQUARE)


def round_overhead(repeats: int = 5) -> list[dict[str, float]]:
    """Rounds a second of MARINA + RandK, and of two loops without this library; collective.

    The bare loop visits the iterates of the run, computes the same gradients and moves as many bytes by the
    same MPI calls.  It knows the content of the broadcasts beforehand, from the run: it only takes the steps,
    and does not draw, compress, average, encode or hash.  The still loop takes no steps either: it computes
    the gradient at one point again and again.  The three loops are timed in turn, ``repeats`` times; a ratio
    is the median of the ``repeats`` ratios.  At d = 10^6 the time of the gradient depends on the shard's
    non-zeros, so two shards are timed, with 2 10^6 and with 10^7 non-zeros.

    Raises ``MpicompError`` if the bare loop's iterate differs from the run's in any bit.
    """
    kernels.preload(kernels.MANY)  # as in a run of many rounds
    cases = [
        (SyntheticLogistic(112, rows=1000, nonzeros=22), 10, 300),
        (SyntheticLogistic(10**6, rows=20_000, nonzeros=100), 10**4, 10),
        (SyntheticLogistic(10**6, rows=100_000, nonzeros=100), 10**4, 5),
    ]
    return [_compare(*case, repeats) for case in cases]


def _compare(problem: SyntheticLogistic, k: int, rounds: int, repeats: int) -> dict[str, float]:
    comm = MPI.COMM_WORLD
    transport = _Recording(comm.size)
    # p is so small that no timed round is dense.
    loop = Loop(MARINA(Q=RandK(k=k), gamma=1e-3, p=1e-12), problem, transport, seed=0)
    transport.received = []
    loop.step(0)
    bare = _Bare(comm, loop, k * WIDTH["f4"])
    ours, theirs, still, done = [], [], [], 1
    for _ in range(repeats):
        transport.received = []
        ours.append(_time(comm, loop.step, range(done, done + rounds)))
        bare.learn(transport.received)
        theirs.append(_time(comm, bare.step, range(rounds)))
        if not np.array_equal(bare.x, loop.x):
            raise MpicompError("the bare loop took other steps than the run: the comparison is void.")
        still.append(_time(comm, bare.exchange, range(rounds)))
        done += rounds
    return {
        "d": problem.d,
        "nonzeros_per_worker": problem.rows * problem.nonzeros,
        "ranks": comm.size,
        "rounds_per_second": rounds / float(np.median(ours)),
        "bare_rounds_per_second": rounds / float(np.median(theirs)),
        "ratio": float(np.median(np.divide(ours, theirs))),
        "ratio_to_still": float(np.median(np.divide(ours, still))),
    }


def _time(comm: MPI.Comm, step: Callable[[int], object], rounds: range) -> float:
    comm.Barrier()
    started = perf_counter()
    for k in rounds:
        step(k)
    comm.Barrier()
    return perf_counter() - started


class _Recording(Mpi):
    """An MPI transport that keeps the broadcasts it has received."""

    received: list[Bytes]

    def broadcast(self, message: Bytes | None) -> tuple[Bytes, bool]:
        message, stop = super().broadcast(message)
        self.received.append(message.copy())
        return message, stop


class _Bare:
    """The bare loop, started at the iterate of ``loop``; ``up`` is the size of a worker's message."""

    def __init__(self, comm: MPI.Comm, loop: Loop, up: int) -> None:
        self.comm, self.f, self.gamma = comm, loop.objectives[comm.rank].f, loop.method.step
        self.x, self.g = loop.replica.x.copy(), loop.replica.g.copy()
        self.up, self.key = np.zeros(up, np.uint8), Key(loop.seed, 0, None, comm.size)

    def learn(self, received: list[Bytes]) -> None:
        """Decode the broadcasts of the coming rounds: which coordinates of g change, and by how much."""
        self.down, self.changes = received, []
        for message in received:
            mean = np.zeros_like(self.g)
            Lossless().decompress_add(message, mean, self.key)
            indices = np.flatnonzero(mean)
            self.changes.append((indices, mean[indices]))

    def step(self, k: int) -> None:
        self.exchange(k)
        indices, values = self.changes[k]
        self.g[indices] += values
        add_scaled(self.x, self.g, -self.gamma)

    def exchange(self, k: int) -> None:
        self.f.grad(self.x)
        if self.comm.rank == 0:
            for rank in range(1, self.comm.size):
                self.comm.Recv([self.up, MPI.BYTE], rank)
        else:
            self.comm.Send([self.up, MPI.BYTE], 0)
        self.comm.Bcast([self.down[k], MPI.BYTE], 0)
