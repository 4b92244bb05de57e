"""Runs on a CPU that plays the device, MPI given its buffers and not: `buffers.py KERNELS HOW FOLDER`.

KERNELS is a library that ``cuda_host.build`` has made; HOW is as for `every_combination.py`, or "watched":
for stalls; and FOLDER is where the runs are recorded, as NUMBER OF THE METHOD-WAY.  Prints one JSON object,
method -> way -> what came of it; for each rank, in "ranks":

copies  [to the host, to the device], of arrays that were on the other
handed  for each time that MPI took the address of a buffer on the device, whether nothing was under way there
"""

import json
import sys
from pathlib import Path

import numpy as np

import mpicomp
from mpicomp import DIANA, EF21, GD, MARINA, Natural, RandK, TopK
from mpicomp.problems import Quadratics
from mpicomp.transports.counters import prepare
from mpicomp.transports.launcher import launched_rank
from tests.support.cuda_host import Host, play
from tests.support.cuda_host.arrays import Stream

WORKERS, ROUNDS = 8, 6
METHODS = [
    EF21(TopK(3), gamma=0.01),
    MARINA(RandK(5), gamma=0.01, p=0.3),
    DIANA(Natural(), gamma=0.01),
    GD(gamma=0.01),
]
WAYS = {"cpu": ("cpu", False), "staged": ("cuda", False), "direct": ("cuda", True)}


class Counting(Host):
    """Counts copies from and to the device."""

    def __init__(self, library):
        super().__init__(library)
        self.copies = [0, 0]

    def host(self, a):
        self.copies[0] += 1
        return super().host(a)

    def put(self, a):
        self.copies[1] += isinstance(a, np.ndarray)
        return super().put(a)


def one(method, device, direct, how, out, host):
    """A run, and what it did on each rank."""
    host.copies, Stream.handed = [0, 0], []
    options = {"server": "dedicated" if "dedicated" in how else "shared"}
    options |= {"cuda_aware": "yes" if direct else "no"}
    options |= {"verify_bytes": "observed" in how, "stall_timeout": 60.0 if "watched" in how else None}
    if "chunked" in how:
        from mpicomp.transports.mpi import Mpi

        options |= {"transport": Mpi(WORKERS, chunk=7, observed="observed" in how, cuda_aware=direct)}
    problem = Quadratics(d=24, noise=0.5, lam=0.1)
    run = mpicomp.run(
        method, problem, workers=WORKERS, rounds=ROUNDS, every=3, device=device, out=out, **options
    )
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD.gather({"copies": host.copies, "handed": Stream.handed})
    if "transport" in options:
        options["transport"].close()
    return {
        "iterates": run.iterates_sha256,
        "up": run.ledger.up.tolist(),
        "down": run.ledger.down.tolist(),
        "sent": run.sent,
        "ranks": ranks,
    }


def main(library, how, folder):
    if "observed" in how:
        prepare()
    host = Counting(Path(library))
    play(host)
    found = {}
    for number, method in enumerate(METHODS):
        found[repr(method)] = {
            way: one(method, *where, how, Path(folder) / f"{number}-{way}", host)
            for way, where in WAYS.items()
        }
    if launched_rank() == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
