"""Runs whose bytes are counted by MPI too: `observed.py WHAT [FOLDER OF THE RUN]`.

calls      every function that sends, between two ranks; prints what rank 1 and rank 0 are seen to have sent
both       the same, seen by Open MPI's monitoring and by the shim
late       a run that asks for the count when MPI has long been running
blind      a run that asks for it and brings a transport that is not observed
part       the same, observed, on every other rank

Or a transport that cheats, once, in a run of EF21 in which each of 8 workers sends 380 bytes:

hidden     rank 2 sends a byte that the server takes off again; shaved: one less, which the server adds
down       the server broadcasts a byte that every rank takes off again
elsewhere  rank 1 sends rank 3 five bytes, not on the transport's communicators
observing  the same as a measurement: which is allowed
"""

import json
import sys
from contextlib import contextmanager

import numpy as np

from mpicomp.transports import counters
from mpicomp.transports.launcher import launched_rank

WHAT = sys.argv[1]
if WHAT != "late":
    counters.prepare()
if WHAT == "both":
    from mpicomp.transports.counters import shim

    shim.load_shim(counters.find_library())

from mpi4py import MPI  # noqa: E402  (what is above comes before MPI is loaded)

import mpicomp  # noqa: E402
from mpicomp.transports.counters.shim import Shim  # noqa: E402
from mpicomp.transports.mpi import Mpi  # noqa: E402

WORKERS = 8


class Cheating(Mpi):
    """Does what ``WHAT`` says in its first round."""

    rounds = 0

    def gather(self, senders, take):
        self.rounds += 1
        if self.rounds == 1 and WHAT == "elsewhere":
            self._pass_a_note()
        return super().gather(senders, take)

    @contextmanager
    def observe(self, take):
        with super().observe(take) as send:
            yield send
        if self.rounds == 0 and WHAT == "observing":
            with self.counter.paused():
                self._pass_a_note()

    def _pass_a_note(self):
        note = np.zeros(5, np.uint8)
        if self.rank == 1:
            MPI.COMM_WORLD.Send(note, 3)
        elif self.rank == 3:
            MPI.COMM_WORLD.Recv(note, 1)

    def _send(self, comm, message, tag):
        if self._cheats(comm, self.rank):
            message = np.append(message, 7).astype(np.uint8) if WHAT == "hidden" else message[:-1]
        return super()._send(comm, message, tag)

    def take(self, comm, arrivals):
        message, tag = super().take(comm, arrivals)
        if self._cheats(comm, arrivals._taken.rank):
            message = message[:-1] if WHAT == "hidden" else np.append(message, 0).astype(np.uint8)
        return message, tag

    def _cheats(self, comm, rank):
        """Whether this is the first message of rank 2."""
        if WHAT not in ("hidden", "shaved") or comm is not self.messages or rank != 2 or self.rounds > 1:
            return False
        self.rounds += 1
        return True

    def broadcast(self, message):
        if self.rounds != 1 or WHAT != "down":
            return super().broadcast(message)
        longer = None if message is None else np.append(message, 7).astype(np.uint8)
        message, stop = super().broadcast(longer)
        return message[:-1], stop


def calls():
    """Eight ways to send 1, 2, 4, .. bytes to rank 0, two to broadcast 100 and 1000 from there, and a sum."""
    transport = Mpi(WORKERS, observed=True)
    comm, seeing = transport.messages, [transport.counter]
    if WHAT == "both":
        seeing.append(Shim(transport.ranks))
    before = [s.counted() for s in seeing]
    if comm.rank == 1:
        MPI.Attach_buffer(np.zeros(10_000, np.uint8))
    for power, name in enumerate(("Send", "Bsend", "Ssend", "Rsend", "Isend", "Ibsend", "Issend", "Irsend")):
        data = np.zeros(2**power, np.uint8)
        request = comm.Irecv(data, 1) if comm.rank == 0 else None
        MPI.COMM_WORLD.Barrier()  # a ready send needs the receive to be there
        if comm.rank == 1:
            request = getattr(comm, name)(data, 0)
        if request is not None:
            request.Wait()
    comm.Bcast(np.zeros(100, np.uint8))
    comm.Ibcast(np.zeros(1000, np.uint8)).Wait()
    comm.Allreduce(MPI.IN_PLACE, np.zeros(25, np.float32))
    found = [s.counted().since(b) for s, b in zip(seeing, before, strict=True)]
    if comm.rank == 1:
        MPI.Detach_buffer()
    told = comm.gather([[c.bytes, c.messages, c.broadcast, c.broadcasts, c.summed, c.sums] for c in found])
    return told and [list(by_observer) for by_observer in zip(*told, strict=True)]


def run(transport=None):
    """20 rounds of EF21; gives the messages seen."""
    problem = mpicomp.problems.Quadratics(d=40, lam=0.1)
    options = {"workers": WORKERS, "rounds": 20, "transport": transport, "verify_bytes": True}
    options["out"] = sys.argv[2] if len(sys.argv) > 2 else None
    return mpicomp.run(mpicomp.EF21(mpicomp.TopK(k=4), gamma=0.05), problem, **options).verified.messages


try:
    if WHAT in ("calls", "both"):
        result = calls()
    else:
        comm = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2) if WHAT == "part" else None
        transport = Cheating(WORKERS, comm, observed=WHAT not in ("late", "blind"))
        result = run(None if WHAT == "late" else transport)
except mpicomp.MpicompError as error:
    if launched_rank() == 0:
        print(error, file=sys.stderr)
    sys.exit(0)  # on every rank
if launched_rank() == 0:
    print(json.dumps(result))
