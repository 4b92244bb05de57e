"""The loop: the only place where a method, a problem and a transport meet."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from mpicomp import checkpoint, messages
from mpicomp.coding.bits import Bytes
from mpicomp.compressors.base import Array
from mpicomp.errors import ConfigError, DivergedError, MpicompError
from mpicomp.keys import Key
from mpicomp.ledger import Ledger
from mpicomp.measure import Measured, measure
from mpicomp.methods.base import Method
from mpicomp.problems.base import Objective, Problem
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


class Loop:
    """A method at work on a problem over a transport: the state of a run, and one round of it."""

    def __init__(self, method: Method, problem: Problem, transport: Transport, seed: int) -> None:
        t, n = transport, transport.n
        self.transport, self.seed = t, seed
        self.objectives = t.together(lambda: {i: problem.objective(i, n) for i in t.hosted})
        x0 = t.together(problem.x0)
        resolved = t.together(
            lambda: method.resolve(lambda: problem.constants(n), x0.size, n) if t.is_server else None
        )
        self.method: Method = pickle.loads(t.tell(pickle.dumps(resolved) if t.is_server else None))
        self.replica = self.method.replica(x0)
        self.server = self.method.server(x0) if t.is_server else None
        self.workers = {i: self.method.worker(x0) for i in t.hosted}
        self._measured = {i: Measured(f, t.clock) for i, f in self.objectives.items()}
        self.ledger = Ledger(n)
        self.digest = sha256(x0.tobytes()).digest()

    def step(self, k: int) -> bool:
        """Round k.  Returns whether some rank has asked to stop after it."""
        t, method, key = self.transport, self.method, Key(self.seed, k, None, self.transport.n)
        down = None
        try:
            with closing(t.gather(self._uplink(key))) as received:
                if t.is_server:
                    with t.clock.phase("server"):
                        ups = self._decoded(received, key)
                        down = messages.encode(method.server_step(self.server, self.replica, ups, key))
        except MpicompError as error:
            t.fail(error)
            raise
        down, stop = t.broadcast(down)
        with t.clock.phase("decode"):
            method.follow(self.replica, messages.decode(method.Down, down), key)
        if t.is_server:
            self.ledger.down += len(down)
            # A chain of digests, h_k = SHA-256(h_{k-1}, x^k): unlike a running hash it can be saved.
            h = sha256(self.digest)
            h.update(np.ascontiguousarray(self.replica.x))
            self.digest = h.digest()
        return stop

    def _uplink(self, key: Key) -> Iterator[tuple[int, Bytes]]:
        """The hosted workers' messages, each computed when it is asked for."""
        for i, w in self.workers.items():
            try:
                with self.transport.clock.phase("compress"):
                    up = self.method.worker_step(w, self.replica, self._measured[i], key.of(i))
                    message = messages.encode(up)
            except DivergedError as error:
                raise DivergedError(f"worker {i}, round {key.round}: {error} {self._advice()}") from None
            yield i, message

    def _decoded(self, received: Iterator[tuple[int, Bytes]], key: Key) -> Iterator[tuple[Key, Any]]:
        """What arrived, decoded and entered in the ledger."""
        for i, message in received:
            up = messages.decode(self.method.Up, message)
            self.ledger.up[i] += len(message)
            self.ledger.paper_bits_up += self.method.paper_bits(up, self.replica.x.size, key.of(i))
            yield key.of(i), up

    def observe(self, round: int, seconds: float) -> Row | None:
        """f and the gradient at the current iterate, with what it took; None but on the server."""
        with np.errstate(over="ignore", invalid="ignore"):
            measured = measure(self.transport, self.objectives, self.replica.x)
        if measured is None:
            return None
        book = self.ledger
        return Row(round, *measured, book.up_bytes, book.down_bytes, book.paper_bits_up, seconds)

    def states(self) -> checkpoint.States:
        """The records that this rank answers for in a checkpoint; the replica is the server's."""
        own: checkpoint.States = {f"worker-{i}": w for i, w in self.workers.items()}
        if self.transport.is_server:
            own |= {"replica": self.replica, "server": self.server, "ledger": self.ledger}
        return own

    def _advice(self) -> str:
        return f"The step size may be too large: gamma={getattr(self.method, 'gamma', None)}; try a smaller one."

    def verdict(self, row: Row, first: Row, limits: Limits) -> str | None:
        """Why the run ends here, if it does.  Raises ``DivergedError`` if it runs away."""
        bound = GROWTH * max(first.grad_norm_sq, 1e-12)
        if not (np.isfinite(row.f) and row.grad_norm_sq <= bound):
            raise DivergedError(
                f"the run diverged: f = {row.f:.3g}, |∇f|² = {row.grad_norm_sq:.3g} after {row.round} rounds. "
                + self._advice()
            )
        reached = {
            "target": limits.target_grad_norm_sq is not None and row.grad_norm_sq <= limits.target_grad_norm_sq,
            "max_bytes": limits.max_bytes is not None and row.up_bytes + row.down_bytes >= limits.max_bytes,
            "max_seconds": limits.max_seconds is not None and row.seconds >= limits.max_seconds,
        }
        return next((name for name, hit in reached.items() if hit), None)


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
    for name, value in {"workers": workers, "rounds": rounds, "every": every}.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name}={value!r}; allowed: a positive integer.")
    if checkpoint_every is not None and out is None:
        raise ConfigError("checkpoint_every needs a folder to write to: give out.")
    t = transport or connect(workers, dedicated)
    try:
        session = _Session(Loop(method, problem, t, seed), problem, limits, out, resume)
        with stop_on_signals(t):
            return session.run(every, checkpoint_every, progress)
    except MpicompError:
        raise
    except BaseException:
        t.abort()
        raise


class _Session:
    """A loop with its record and its limits."""

    def __init__(self, loop: Loop, problem: Problem, limits: Limits, out: str | Path | None, resume: bool) -> None:
        t = loop.transport
        self.loop, self.problem, self.limits = loop, problem, limits
        self.folder = None if out is None else Path(out)
        self.config = {"method": type(loop.method).__name__, "problem": repr(problem)}
        self.config |= {f"method.{f.name}": repr(getattr(loop.method, f.name)) for f in fields(loop.method)}  # type: ignore[arg-type]
        self.config |= {"workers": str(t.n), "seed": str(loop.seed)}
        facts = {"config": self.config, "ranks": t.ranks, **describe_machine(), "hosts": t.collect(t.host())}
        self.recorder = t.together(lambda: Recorder(self.folder if t.is_server else None, facts, resume))
        self.round, self.seconds = 0, 0.0
        if resume:
            self._load()
        t.together(lambda: self.recorder.start(self.round if resume else None))

    def run(self, every: int, checkpoint_every: int | None, progress: Callable[[int, Row | None], None] | None) -> Run:
        loop, t = self.loop, self.loop.transport
        status: str | None = None
        try:
            if not self.recorder.rows and self.round == 0:
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
                verdict = self.loop.verdict(row, self.recorder.rows[0], self.limits)
            except MpicompError as error:
                verdict = error
        verdict = pickle.loads(t.tell(pickle.dumps(verdict) if t.is_server else None))
        if isinstance(verdict, MpicompError):
            raise verdict
        return verdict  # type: ignore[return-value]

    def _save(self) -> None:
        if self.folder is not None:
            header = {"config": self.config, "seconds": self.seconds, "digest": self.loop.digest.hex()}
            checkpoint.save(self.folder / "checkpoint", self.loop.transport, self.round, self.loop.states(), header)

    def _load(self) -> None:
        if self.folder is None:
            raise ConfigError("resume needs the folder of the run to continue: give out.")
        states = self.loop.states() | {"replica": self.loop.replica}
        manifest = checkpoint.load(self.folder / "checkpoint", self.loop.transport, states, self.config)
        self.round, self.seconds = manifest["round"], manifest["seconds"]
        self.loop.digest = bytes.fromhex(manifest["digest"])

    def _result(self, status: str) -> Run:
        """The run as every rank sees it; the server's rows and ledger are told to the others."""
        loop, t = self.loop, self.loop.transport
        phases, sent = t.collect(dict(t.clock.seconds)), t.collect(t.sent)
        known = (self.recorder.rows, loop.ledger, loop.digest.hex(), phases, sent)
        rows, ledger, digest, phases, sent = pickle.loads(t.tell(pickle.dumps(known) if t.is_server else None))
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
