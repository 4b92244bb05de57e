"""End a job in which a rank no longer answers: stopped, hung, or behind a link that was cut.

Theory of operation.  A rank that waits in MPI cannot look at the clock, so a thread of its own does.
When the server has waited for ``timeout`` seconds in one and the same call, its thread asks every other
rank's thread for that rank's state.  A rank that does not answer is called silent, whichever rank the server
happens to wait for: in a broadcast that may be any rank further down the tree.  The other ranks wait more
than twice as long before they conclude that the server itself is silent.  Then one of them prints it: each
announces to the others that it is about to print, and the lowest of these ranks does.  As long as no rank
waits too long nothing is sent, and a wait costs three microseconds more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import product
from time import monotonic
from typing import Any, NoReturn

import numpy as np

# Tags of messages without content: no byte to count.
_QUESTION, _WAITING, _COMPUTING, _BUSY, _SPEAKING = range(1, 6)
_NOTHING = np.empty(0, np.uint8)
_LEAST_PATIENCE = 2.0  # seconds that a busy machine may take to answer
_SETTLING = 0.5  # seconds after which every rank has heard who is about to speak
_ENDING = 10.0  # seconds for the rank that speaks to end the job


class Watchdog:
    """Watches the waits of one rank.

    comm     a communicator of the watchdogs' own (mpi4py's, in an MPI that threads may call)
    timeout  seconds that the server may wait in one call
    hosts    the host of each rank
    activity returns the current step of the run, such as "in round 7"
    end      ends the job, from any thread
    """

    def __init__(
        self,
        comm: Any,
        timeout: float,
        hosts: Sequence[str],
        activity: Callable[[], str],
        end: Callable[[], NoReturn],
    ) -> None:
        self._comm, self._hosts, self._activity, self._end = comm, hosts, activity, end
        self._timeout, self._patience = timeout, max(timeout / 2, _LEAST_PATIENCE)
        self._waiting_since: float | None = None
        self._busy_since = monotonic()
        self._over = threading.Event()
        self._sent: list[Any] = []  # requests of sends that need not complete
        self._thread = threading.Thread(target=self._watch, daemon=True, name="mpicomp watchdog")
        self._thread.start()

    @contextmanager
    def during(self, wait: AbstractContextManager[None]) -> Iterator[None]:
        """Enter ``wait`` and watch how long the ``with`` block takes."""
        self._waiting_since = monotonic()
        try:
            with wait:
                yield
        finally:
            self._waiting_since, self._busy_since = None, monotonic()

    def close(self) -> None:
        """Stop watching; collective."""
        self._over.set()
        self._thread.join()
        self._comm.Free()

    def _watch(self) -> None:
        act = self._watch_others if self._comm.rank == 0 else self._watch_server
        while not self._over.wait(min(self._timeout / 8, 0.5)):
            act()

    def _watch_others(self) -> None:
        since = self._waiting_since
        if since is None or monotonic() - since < self._timeout:
            return
        verdict = self._verdict(self._ask())
        if verdict and self._waiting_since == since:  # the same wait still
            self._say(verdict)

    def _ask(self) -> dict[int, int]:
        """Ask the other ranks for their states; returns the states of those ranks that answer."""
        others = range(1, self._comm.size)
        for rank, tag in product(others, (_WAITING, _COMPUTING, _BUSY)):
            while self._comm.Iprobe(rank, tag):  # too late for the question before
                self._comm.Recv(_NOTHING, rank, tag)
        self._sent += [self._comm.Isend(_NOTHING, rank, _QUESTION) for rank in others]
        answers: dict[int, int] = {}
        deadline = monotonic() + self._patience
        while len(answers) < len(others) and monotonic() < deadline and not self._over.wait(0.01):
            for rank, tag in product(others, (_WAITING, _COMPUTING, _BUSY)):
                if self._comm.Iprobe(rank, tag):
                    self._comm.Recv(_NOTHING, rank, tag)
                    answers[rank] = tag
        return answers

    def _verdict(self, answers: dict[int, int]) -> str | None:
        """What is wrong with the ranks; None if some have begun to compute within the timeout."""
        if silent := [rank for rank in range(1, self._comm.size) if rank not in answers]:
            return f"{self._have_been(silent)} silent for {self._timeout + self._patience:.3g} s"
        if busy := [rank for rank, state in answers.items() if state == _BUSY]:
            return f"{self._have_been(busy)} computing for more than {self._timeout:g} s without a message"
        if _COMPUTING in answers.values():
            return None
        return f"every rank waits for another, the server for more than {self._timeout:g} s"

    def _watch_server(self) -> None:
        since = self._waiting_since
        if self._comm.Iprobe(0, _QUESTION):
            self._comm.Recv(_NOTHING, 0, _QUESTION)
            long = monotonic() - self._busy_since > self._timeout
            state = _WAITING if since is not None else _BUSY if long else _COMPUTING
            self._sent.append(self._comm.Isend(_NOTHING, 0, state))
        # The server speaks first if it can, and then the ranks one after the other.
        limit = 2 * self._timeout + 2 * self._patience + 0.5 * self._comm.rank
        if since is None or monotonic() - since < limit:
            return
        if self._is_to_speak() and self._waiting_since == since:  # the same wait still
            self._say(f"{self._have_been([0])} silent, or computing, for {limit:.3g} s")

    def _is_to_speak(self) -> bool:
        """Whether this rank prints that the server is silent, because no other rank has done so."""
        if self._heard(range(1, self._comm.size)):
            self._over.wait(_ENDING)
            return True
        others = [rank for rank in range(1, self._comm.size) if rank != self._comm.rank]
        self._sent += [self._comm.Isend(_NOTHING, rank, _SPEAKING) for rank in others]
        self._over.wait(_SETTLING)
        return not self._heard(range(1, self._comm.rank))

    def _heard(self, ranks: Iterable[int]) -> bool:
        """Whether one of ``ranks`` has announced that it will print that the server is silent."""
        return any([self._comm.Iprobe(rank, _SPEAKING) for rank in ranks])

    def _have_been(self, ranks: list[int]) -> str:
        names = ", ".join(f"rank {rank} on {self._hosts[rank]}" for rank in ranks[:8])
        more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
        return f"{names}{more} {'has' if len(ranks) == 1 else 'have'} been"

    def _say(self, what: str) -> NoReturn:
        remedy = "The job ends; with --resume a run goes on from what was saved."
        line = f"mpicomp: {self._activity()}: {what}. {remedy}\n"
        os.write(2, line.encode())  # not through sys.stderr, whose lock the main thread may hold
        self._end()
