"""Broadcasts of blocks in trees, on the ranks of one job: a stop ends all ranks, an error is raised on all.

Rank 0 prints a JSON object with what each rank saw.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

import mpicomp
from mpicomp import EF21, TopK
from mpicomp.transports import connect, mpi_exchange

BLOCKS = 3

comm = MPI.COMM_WORLD
mpi_exchange.pays = lambda roots, ranks: True
transport = connect(comm.size)


@dataclass(frozen=True)
class Problem(mpicomp.Problem):
    """f_i = |x - i|²/2; in its eighth gradient the last worker asks to stop, or has none that is finite."""

    fault: str

    def dimension(self):
        return 40

    def objective(self, i, n):
        return Objective(i, i == n - 1 and self.fault)


class Objective(mpicomp.Objective):
    def __init__(self, i, fault):
        self.i, self.fault, self.calls = i, fault, 0

    def value(self, x):
        return float(np.sum((x - self.i) ** 2)) / 2

    def grad(self, x):
        self.calls += 1
        if self.calls == 8 and self.fault == "stop":
            transport.stop = True
        return x * np.nan if self.calls == 8 and self.fault == "nan" else x - self.i


def passes_on(exchange) -> list[int]:
    """The blocks that this rank does not serve and sends to other ranks."""
    return [b for b in range(BLOCKS) if b not in exchange.served and exchange.receivers(b)]


def run(fault: str):
    method = EF21(TopK(k=2), gamma=0.1)
    options = {"workers": comm.size, "rounds": 30, "every": 30, "server": "sharded", "blocks": BLOCKS}
    return mpicomp.run(method, Problem(fault), transport=transport, **options)


seen = {"passes_on": comm.gather(passes_on(transport.exchange(BLOCKS)))}
stopped = run("stop")
seen["stop"] = comm.gather([stopped.status, stopped.rows[-1].round if comm.rank == 0 else None])
transport.stop = False
seen["after it"] = comm.gather(run("none").status)
try:
    run("nan")
    said = "nothing"
except mpicomp.MpicompError as error:
    said = str(error)
seen["nan"] = comm.gather(said)
few = connect(2)  # two workers: the other ranks host none
seen["with idle ranks"] = comm.gather(passes_on(few.exchange(BLOCKS)))
for used in (few, transport):
    used.close()
if comm.rank == 0:
    print(json.dumps(seen))
