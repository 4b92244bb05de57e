"""The verdict of a rank's watchdog, between threads of this process that take the place of ranks."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext

from mpicomp.transports import watchdog
from mpicomp.transports.watchdog import Watchdog


class Comm:
    """The communicator of one of two ranks; ``under_way`` has (source, destination, tag) of each message."""

    size = 2

    def __init__(self, rank, under_way):
        self.rank, self._under_way = rank, under_way

    def Isend(self, _, dest, tag):
        self._under_way.append((self.rank, dest, tag))

    def Iprobe(self, source, tag):
        return (source, self.rank, tag) in self._under_way

    def Recv(self, _, source, tag):
        self._under_way.remove((source, self.rank, tag))

    def Free(self):
        pass


def test_a_rank_that_has_not_computed_for_long_is_waited_for(monkeypatch, capfd):
    """The server waits for longer than the timeout, and rank 1 has begun to compute meanwhile."""
    now, questions, ended = 0.0, [], threading.Event()

    class Asking(Comm):
        def Isend(self, _, dest, tag):
            questions.append(dest)
            super().Isend(_, dest, tag)

    monkeypatch.setattr(watchdog, "monotonic", lambda: now)
    under_way = []
    comms = Asking(0, under_way), Comm(1, under_way)
    server, other = (Watchdog(comm, 0.08, ["a", "b"], lambda: "round 5", ended.set) for comm in comms)
    with server.during(nullcontext()):
        with other.during(nullcontext()):
            now = 0.05
        now = 0.09
        limit = time.monotonic() + 20
        while len(questions) < 3 and not ended.is_set() and time.monotonic() < limit:
            time.sleep(0.001)
        assert len(questions) >= 3 and not ended.is_set(), capfd.readouterr().err
        now = 0.14
        assert ended.wait(20)
    said = "mpicomp: round 5: rank 1 on b has been computing for more than 0.08 s without a message. "
    assert capfd.readouterr().err.startswith(said)
    for dog in (server, other):
        dog.close()
