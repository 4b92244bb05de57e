"""Runs that lose workers and go on: in one process, as told, and on real ranks of which one dies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import mpicomp
from mpicomp.base.bits import Bytes
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.transports.base import Lost, Take
from mpicomp.transports.local import Local
from tests.support.fault_injection import OPTIONS, PROBLEM, Outcome, Strike, struck


class Died(Exception):
    """A rank is gone."""


class Losing(Local):
    """``losses`` maps a round to the workers lost in it, by their numbers at the start.

    They go after ``heard`` messages of that round have arrived, or if there are no more than that, when the
    server has made its step; those in ``later`` while the others begin anew after the first loss.  Each is
    taken for a rank of its own number.
    """

    def __init__(
        self, n: int, losses: dict[int, list[int]], heard: int = 0, later: tuple[int, ...] = ()
    ) -> None:
        super().__init__(n)
        self.losses, self.heard = {f"round {k}": workers for k, workers in losses.items()}, heard
        self.crew, self.later, self.dying = list(range(n)), list(later), list[int]()

    def gather(self, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        numbers = count()

        def heard(i: int, message: Bytes) -> None:
            if next(numbers) == self.heard:
                self._lose_now()
            take(i, message)

        return super().gather(senders, heard)

    def broadcast(self, message: Bytes | None) -> tuple[Bytes, bool]:
        self._lose_now()
        return super().broadcast(message)

    def _lose_now(self) -> None:
        if self.activity in self.losses:
            self.dying = self.losses.pop(self.activity)
            raise Died

    def broadcast_control(self, message: bytes | None) -> bytes:
        if self.dying and self.later:
            self.dying, self.later = self.later, []
            raise Died
        self.dying = []
        return super().broadcast_control(message)

    def outlives(self, error: BaseException) -> bool:
        return isinstance(error, Died)

    def shrink(self) -> list[Lost]:
        gone = self.dying
        lost = [Lost(i, "here", range(self.crew.index(i), self.crew.index(i) + 1)) for i in gone]
        self.crew = [i for i in self.crew if i not in gone]
        self.n, self.hosted = len(self.crew), range(len(self.crew))
        return lost


def lose(
    method: str, losses: dict[int, list[int]], heard: int = 0, later: tuple[int, ...] = (), **options
) -> mpicomp.Run:
    """The run of ``tests.support.fault_injection`` in one process, with these losses."""
    options = OPTIONS | options
    transport = Losing(options["workers"], losses, heard, later) if losses else None
    return mpicomp.run(parse_method(method), parse_problem(PROBLEM), transport=transport, **options)


def outlive(strike: Strike, folder: Path, ranks: int = 4) -> Outcome:
    """Strike a rank; the others have to say so, once, and go on as one process without its workers does."""
    outcome = struck(strike, folder, ranks, launched=True, on_failure="shrink")
    assert outcome.status == 0, outcome.said
    summary = json.loads((folder / "summary.json").read_text())
    (one,) = summary["lost"]
    n = OPTIONS["workers"]
    theirs = list(range(strike.rank * n // ranks, (strike.rank + 1) * n // ranks))
    assert (one["rank"], one["workers"]) == (strike.rank, theirs)
    assert one["round"] >= strike.round - 1
    workers = ", ".join(map(str, theirs))
    said = f"after round {one['round']}: rank {strike.rank} on {one['host']} died, with workers {workers}. "
    assert outcome.said.count(said) == 1, outcome.said
    assert (summary["rounds"], summary["n"], summary["ranks"]) == (OPTIONS["rounds"], n, ranks - 1)
    same = lose(strike.method, {one["round"]: theirs})
    assert summary["iterates_sha256"] == same.iterates_sha256
    assert summary["f"] == same.rows[-1].f
    return outcome
