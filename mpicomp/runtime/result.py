"""``Run``: the result of a run, equal on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpicomp import kernels
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.arrays import Array
from mpicomp.methods.base import Method
from mpicomp.problems.base import Problem
from mpicomp.runtime import plotting
from mpicomp.runtime.audit import Verified
from mpicomp.runtime.frames import frame
from mpicomp.runtime.glance import on, on_in_full, run_html, run_line
from mpicomp.runtime.rows import Row
from mpicomp.runtime.session import Session

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)  # its arrays have no one truth value; so a run equals itself alone
class Run:
    """The result of ``mpicomp.run``, the same on all ranks."""

    method: Method  # with its step sizes as numbers
    asked: Method  # as it was given, such as with gamma="theory"
    problem: Problem
    workers: int
    ranks: int
    seed: int
    server: str  # who averaged, one of ``placement.SERVERS``
    blocks: int  # the number of blocks of the coordinates; 1 if they were not cut
    observe: int | str  # the samples on which f and ∇f of the rows were evaluated; see ``Observation``
    status: str  # why it ended: "rounds", "target", "max_bytes", "max_seconds", "callback" or "interrupted"
    rows: list[Row]
    ledger: Ledger
    x: Array  # the final model, shape (d,), measured in the last row: the server's own if it keeps one
    iterates_sha256: str  # the hash of all iterates, in hexadecimal (see ``Digest``)
    resumed_after: int  # rounds done before the last resume; phases, sent and verified count since then
    phases: list[dict[str, float]]  # seconds by phase, for each rank
    sent: list[list[int]]  # bytes that each rank passed to MPI: [messages, observations]
    lost: list[dict[str, Any]]  # the ranks that died (see ``Session``); phases and sent do not have them
    verified: Verified | None  # the independent byte count, if it was asked for and there are several ranks

    def to_frame(self) -> DataFrame:
        """The rows as a pandas DataFrame, with the columns of ``Row``.

        Raises ``ConfigError`` if pandas is not installed.
        """
        return frame(((), row) for row in self.rows)

    def plot(self, **words: Any) -> Any:
        """``mpicomp.plot`` of this run, with its arguments; returns matplotlib's axes."""
        return plotting.plot(self, **words)

    def __repr__(self) -> str:
        what = f"Run of {on(repr(self.method), repr(self.problem))}, {self.workers} workers"
        return run_line(what, self.rows, self.status)

    def _repr_html_(self) -> str:
        what = f"{on_in_full(repr(self.method), repr(self.problem))}, {self.workers} workers"
        return run_html(what, self.rows, self.status)

    def summary(self) -> dict[str, Any]:
        """The outcome as a dict of numbers, texts and lists, as in summary.json."""
        last = self.rows[-1]
        return {
            "method": repr(self.method),
            "problem": repr(self.problem),
            "n": self.workers,
            "d": self.x.size,
            "ranks": self.ranks,
            "seed": self.seed,
            "server": self.server,
            "blocks": self.blocks,
            "status": self.status,
            "rounds": last.round,
            "observe": self.observe,
            "f": last.f,
            "grad_norm_sq": last.grad_norm_sq,
            "x_norm": last.x_norm,
            "up_bytes": last.up_bytes,
            "down_bytes": last.down_bytes,
            "set_up_bytes": self.ledger.set_up_bytes,
            "paper_bits_up": last.paper_bits_up,
            "paper_bits_down": last.paper_bits_down,
            "seconds": last.seconds,
            "iterates_sha256": self.iterates_sha256,
            "lost": self.lost,
            "up_bytes_by_worker": self.ledger.up.tolist(),
            "resumed_after": self.resumed_after,
            "mpi_bytes_sent": [messages for messages, _ in self.sent],
            "observation_bytes_sent": [observations for _, observations in self.sent],
            "verified_by": self.verified.counter if self.verified else None,
            "mpi_bytes_counted": self.verified.bytes if self.verified else None,
            "mpi_messages_counted": self.verified.messages if self.verified else None,
            "wire_bytes_sent": self.verified.wire if self.verified else {},
            "phases": self.phases,
        }


def result_of(session: Session, problem: Problem, status: str, verified: Verified | None) -> Run:
    """The ``Run`` on every rank; the server broadcasts its rows and ledger.  Collective."""
    loop, t = session.loop, session.loop.transport
    collected: Any = t.collect(dict(t.clock.seconds)), t.collect(t.sent)
    known = (session.recorder.rows, loop.ledger, loop.digest.value.hex(), *collected)
    rows, ledger, digest, phases, sent = t.ask_server(lambda: known)
    return Run(
        method=loop.method,
        asked=session.asked,
        problem=problem,
        workers=loop.ledger.n,
        ranks=t.ranks,
        seed=loop.seed,
        server=loop.server_name,
        blocks=loop.blocks,
        observe=session.observation.observe,
        status=status,
        rows=rows,
        ledger=ledger,
        x=kernels.to_host(loop.model()),
        iterates_sha256=digest,
        resumed_after=session.resumed_from,
        phases=phases,
        sent=sent,
        lost=session.lost,
        verified=verified,
    )
