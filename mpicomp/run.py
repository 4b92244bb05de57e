"""A run: the loop with its limits, its record and its checkpoints."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from mpicomp import checkpoint
from mpicomp.compressors.base import Array
from mpicomp.errors import ConfigError, DivergedError, MpicompError
from mpicomp.ledger import Ledger
from mpicomp.loop import Loop, advice
from mpicomp.methods.base import Method
from mpicomp.problems.base import Problem
from mpicomp.record import Recorder, Row, describe_machine
from mpicomp.signals import stop_on_signals
from mpicomp.transports import Transport, connect

GROWTH = 1e12  # a squared gradient norm this many times the first one counts as divergence


@dataclass(frozen=True)
class Limits:
    """When a run ends.  All but ``rounds`` are looked at where rows are recorded."""

    rounds: int
    target_grad_norm_sq: float | None = None
    max_bytes: int | None = None  # both directions, all workers
    max_seconds: float | None = None

    def reached(self, row: Row) -> str | None:
        """The name of the limit that ``row`` has reached, if any."""
        hits = {
            "target": self.target_grad_norm_sq is not None and row.grad_norm_sq <= self.target_grad_norm_sq,
            "max_bytes": self.max_bytes is not None and row.up_bytes + row.down_bytes >= self.max_bytes,
            "max_seconds": self.max_seconds is not None and row.seconds >= self.max_seconds,
        }
        return next((name for name, hit in hits.items() if hit), None)


@dataclass(frozen=True)
class Run:
    """What a run gives back, on every rank alike.  ``method`` has its step sizes as numbers."""

    method: Method
    problem: Problem
    workers: int
    ranks: int
    seed: int
    status: str  # "rounds", "target", "max_bytes", "max_seconds" or "interrupted": why it ended
    rows: list[Row]
    ledger: Ledger
    x: Array
    iterates_sha256: str
    phases: list[dict[str, float]]  # seconds by phase, for each rank
    sent: list[list[int]]  # bytes each rank handed to MPI: [messages, observations]

    def summary(self) -> dict[str, Any]:
        """The outcome as plain data."""
        last = self.rows[-1]
        return {
            "method": repr(self.method),
            "problem": repr(self.problem),
            "n": self.workers,
            "d": self.x.size,
            "ranks": self.ranks,
            "seed": self.seed,
            "status": self.status,
            "rounds": last.round,
            "f": last.f,
            "grad_norm_sq": last.grad_norm_sq,
            "up_bytes": last.up_bytes,
            "down_bytes": last.down_bytes,
            "paper_bits_up": last.paper_bits_up,
            "seconds": last.seconds,
            "iterates_sha256": self.iterates_sha256,
            "up_bytes_by_worker": self.ledger.up.tolist(),
            "mpi_bytes_sent": [messages for messages, _ in self.sent],
            "observation_bytes_sent": [observations for _, observations in self.sent],
            "phases": self.phases,
        }


def run(
    method: Method,
    problem: Problem,
    *,
    workers: int,
    rounds: int = 1000,
    seed: int = 0,
    every: int = 10,
    target_grad_norm_sq: float | None = None,
    max_bytes: int | None = None,
    max_seconds: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    dedicated: bool = False,
    transport: Transport | None = None,
    progress: Callable[[int, Row | None], None] | None = None,
) -> Run:
    """Run ``method`` on ``problem`` with n = ``workers``, here or on the ranks of the MPI job we are in.

    every             rounds between rows; f and ∇f are computed for a row, outside the run's seconds
    target_..., max_  further ends of the run, looked at with each row
    out               a folder for the record; ``resume`` continues the run that it holds
    checkpoint_every  rounds between checkpoints in ``out``; one is always written at the end
    dedicated         rank 0 is the server only (MPI)
    progress          called on the server after each round with its number, and the row if there is one

    Raises an ``MpicompError`` on every rank alike; the record of a run that diverged is kept in ``out``.
    """
    limits = Limits(rounds, target_grad_norm_sq, max_bytes, max_seconds)
    counts = {"workers": workers, "rounds": rounds, "every": every}
    if checkpoint_every is not None:
        counts["checkpoint_every"] = checkpoint_every
    for name, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name}={value!r}; allowed: a positive integer.")
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ConfigError(f"seed={seed!r}; allowed: an integer from 0 to 2^64 - 1.")
    if checkpoint_every is not None and out is None:
        raise ConfigError("checkpoint_every needs a folder to write to: give out.")
    t = transport or connect(workers, dedicated)
    try:
        session = _Session(Loop(method, problem, t, seed), problem, limits, out, resume)
        with stop_on_signals(t):
            result = session.run(every, checkpoint_every, progress)
    except MpicompError:  # the same on all ranks
        if transport is None:
            t.close()
        raise
    except BaseException:
        t.abort()
        raise
    if transport is None:
        t.close()
    return result


class _Session:
    """A loop with its record and its limits."""

    def __init__(
        self, loop: Loop, problem: Problem, limits: Limits, out: str | Path | None, resume: bool
    ) -> None:
        t = loop.transport
        self.loop, self.problem, self.limits = loop, problem, limits
        self.folder = None if out is None else Path(out)
        self.config = {"method": type(loop.method).__name__, "problem": repr(problem)}
        self.config |= {"workers": str(t.n), "seed": str(loop.seed)}  # before what may follow from them
        self.config |= {f"method.{f.name}": repr(getattr(loop.method, f.name)) for f in fields(loop.method)}  # type: ignore[arg-type]
        facts = {"config": self.config, "ranks": t.ranks, **describe_machine(), "hosts": t.collect(t.host())}
        self.recorder = t.together(lambda: Recorder(self.folder if t.is_server else None, facts, resume))
        self.round, self.seconds = 0, 0.0
        if resume:
            self._load()
        self.resumed = resume

    def run(
        self, every: int, checkpoint_every: int | None, progress: Callable[[int, Row | None], None] | None
    ) -> Run:
        loop, t = self.loop, self.loop.transport
        status: str | None = None
        try:
            t.together(lambda: self.recorder.start(self.round if self.resumed else None, every))
            over = self.round >= self.limits.rounds and self.round % every != 0  # that row was dropped
            if not self.resumed or over:
                status = self._record()
            while status is None and self.round < self.limits.rounds:
                started = perf_counter()
                stop = loop.step(self.round)
                self.seconds += perf_counter() - started
                self.round += 1
                row = None
                if stop or self.round % every == 0 or self.round == self.limits.rounds:
                    status = self._record()
                    row = self.recorder.rows[-1] if t.is_server else None
                if stop:
                    status = "interrupted"
                if checkpoint_every and self.round % checkpoint_every == 0:
                    self._save()
                if progress is not None and t.is_server:
                    progress(self.round, row)
            result = self._result(status or "rounds")
            self._save()
            t.together(lambda: self.recorder.write_json("summary.json", result.summary()))
            return result
        finally:
            self.recorder.close()

    def _record(self) -> str | None:
        """Add a row, and hear from the server whether the run ends here."""
        t = self.loop.transport
        row = self.loop.observe(self.round, self.seconds)
        verdict: object = None
        if row is not None:
            try:
                self.recorder.add(row)
                self._refuse_divergence(row)
                verdict = self.limits.reached(row)
            except MpicompError as error:
                verdict = error
        verdict = pickle.loads(t.tell(pickle.dumps(verdict) if t.is_server else None))
        if isinstance(verdict, MpicompError):
            raise verdict
        return verdict  # type: ignore[return-value]

    def _refuse_divergence(self, row: Row) -> None:
        bound = GROWTH * max(self.recorder.rows[0].grad_norm_sq, 1e-12)
        if not (np.isfinite(row.f) and row.grad_norm_sq <= bound):
            raise DivergedError(
                f"the run diverged: f = {row.f:.3g}, |∇f|² = {row.grad_norm_sq:.3g} "
                f"after {row.round} rounds. {advice(self.loop.method)}"
            )

    def _save(self) -> None:
        if self.folder is not None:
            header = {"config": self.config, "seconds": self.seconds, "digest": self.loop.digest.value.hex()}
            checkpoint.save(
                self.folder / "checkpoint", self.loop.transport, self.round, self.loop.states(), header
            )

    def _load(self) -> None:
        if self.folder is None:
            raise ConfigError("resume needs the folder of the run to continue: give out.")
        states = self.loop.states() | {"replica": self.loop.replica}
        manifest = checkpoint.load(self.folder / "checkpoint", self.loop.transport, states, self.config)
        self.round, self.seconds = manifest["round"], manifest["seconds"]
        self.loop.digest.value = bytes.fromhex(manifest["digest"])

    def _result(self, status: str) -> Run:
        """The run as every rank sees it; the server's rows and ledger are told to the others."""
        loop, t = self.loop, self.loop.transport
        phases, sent = t.collect(dict(t.clock.seconds)), t.collect(t.sent)
        known = (self.recorder.rows, loop.ledger, loop.digest.value.hex(), phases, sent)
        rows, ledger, digest, phases, sent = pickle.loads(
            t.tell(pickle.dumps(known) if t.is_server else None)
        )
        return Run(
            method=loop.method,
            problem=self.problem,
            workers=t.n,
            ranks=t.ranks,
            seed=loop.seed,
            status=status,
            rows=rows,
            ledger=ledger,
            x=loop.replica.x,
            iterates_sha256=digest,
            phases=phases,
            sent=sent,
        )
