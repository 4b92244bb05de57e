"""What the loop costs on top of the gradients and the bytes themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

import numpy as np
from mpi4py import MPI
from scipy.sparse import csr_array

from mpicomp.coding.values import WIDTH
from mpicomp.compressors import RandK
from mpicomp.loop import Loop
from mpicomp.methods import MARINA
from mpicomp.problems import Objective, Problem
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.scalars import LOGISTIC, SQUARE
from mpicomp.transports.mpi import Mpi


@dataclass(frozen=True)
class SyntheticLogistic(Problem):
    """Logistic regression on random sparse rows, in the shape of a text data set."""

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
    X = csr_array((draw.standard_normal(columns.size), columns, starts), shape=(p.rows, p.d))
    return LinearModel(X, draw.choice([-1.0, 1.0], p.rows), LOGISTIC, 1e-3, SQUARE)


def round_overhead(repeats: int = 5) -> list[dict[str, float]]:
    """Rounds a second of MARINA + RandK and of a bare loop; collective.

    The bare loop asks for the same gradients and moves the same number of bytes by the same MPI calls,
    from buffers filled once; it compresses nothing and updates nothing.  The two are timed in turn,
    ``repeats`` times, and the ratio is the median of the pairs'.  At d = 10^6 the gradient costs what
    the shard's non-zeros cost, so two shards are shown: with 2 10^6 and with 10^7 of them.
    """
    cases = [
        (SyntheticLogistic(112, rows=1000, nonzeros=22), 10, 300),
        (SyntheticLogistic(10**6, rows=20_000, nonzeros=100), 10**4, 10),
        (SyntheticLogistic(10**6, rows=100_000, nonzeros=100), 10**4, 5),
    ]
    return [_compare(*case, repeats) for case in cases]


def _compare(problem: SyntheticLogistic, k: int, rounds: int, repeats: int) -> dict[str, float]:
    comm = MPI.COMM_WORLD
    transport = Mpi(comm.size)
    # p = 1/d: no dense round falls into the timed ones.
    loop = Loop(MARINA(Q=RandK(k=k), gamma=1e-3, p=1 / problem.d), problem, transport, seed=0)
    loop.step(0)
    before = loop.ledger.down_bytes
    loop.step(1)
    down = comm.bcast((loop.ledger.down_bytes - before) // comm.size)
    bare = _Bare(comm, loop.objectives[comm.rank], loop.replica.x, k * WIDTH["f4"], down)
    ours, theirs, done = [], [], 2
    for _ in range(repeats):
        theirs.append(_time(comm, bare.step, range(rounds)))
        ours.append(_time(comm, loop.step, range(done, done + rounds)))
        done += rounds
    return {
        "d": problem.d,
        "nonzeros_per_worker": problem.rows * problem.nonzeros,
        "ranks": comm.size,
        "rounds_per_second": rounds / float(np.median(ours)),
        "bare_rounds_per_second": rounds / float(np.median(theirs)),
        "ratio": float(np.median(np.divide(ours, theirs))),
    }


def _time(comm: MPI.Comm, step: Callable[[int], object], rounds: range) -> float:
    comm.Barrier()
    started = perf_counter()
    for k in rounds:
        step(k)
    comm.Barrier()
    return perf_counter() - started


class _Bare:
    """The same gradients and bytes, and nothing else."""

    def __init__(self, comm: MPI.Comm, f: Objective, x: np.ndarray, up: int, down: int) -> None:
        self.comm, self.f, self.x = comm, f, x
        self.up, self.down = np.zeros(up, np.uint8), np.zeros(down, np.uint8)

    def step(self, k: int) -> None:
        self.f.grad(self.x)
        if self.comm.rank == 0:
            for rank in range(1, self.comm.size):
                self.comm.Recv([self.up, MPI.BYTE], rank)
        else:
            self.comm.Send([self.up, MPI.BYTE], 0)
        self.comm.Bcast([self.down, MPI.BYTE], 0)
