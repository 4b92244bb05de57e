"""Play a run's rounds until a limit is reached: record rows, write checkpoints, resume, survive deaths."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from hashlib import sha256
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.checks import runs_later
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError, RecordError
from mpicomp.base.given_arrays import in_full
from mpicomp.keys import Key
from mpicomp.methods.base import Method
from mpicomp.problems.base import Problem, fingerprint_of
from mpicomp.runtime import checkpoint
from mpicomp.runtime.alike import has_ones_own
from mpicomp.runtime.facts import describe_machine, read_summary
from mpicomp.runtime.generations import Checks, is_count
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.loop import Loop
from mpicomp.runtime.measure import Measurement
from mpicomp.runtime.observation import FULL, Observation
from mpicomp.runtime.record import Recorder
from mpicomp.runtime.rows import Row
from mpicomp.text.own_classes import code_of

GROWTH = 1e12  # diverged if |∇f|² > GROWTH * max(1, mean |∇f_i(x⁰)|²)

# The entries of a checkpoint's manifest about a run, each with the test of a valid value.
_FACTS: Checks = {
    "seconds": lambda value: type(value) in (int, float) and 0 <= value < inf,
    "scale": lambda value: type(value) in (int, float) and 0 <= value < inf,
    "digest": lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
    "begun": is_count,
    "crew": lambda value: isinstance(value, list) and len(value) > 0 and all(map(is_count, value)),
    "lost": lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
}

Progress = Callable[[int, Row | None], None]
Callback = Callable[[int, Row, Array], Any]


def _identity(
    loop: Loop, problem: Problem, observation: Observation, x0_sha256: str | None
) -> dict[str, str]:
    """The settings, as texts by name, that must be the same when a run is resumed.

    They are compared in this order, because the first ones determine others.  Records of older versions lack
    "blocks" and those after it; such runs had the defaults.
    """
    if has_ones_own(problem):  # on another rank its fields may hold that rank's data
        text, data = loop.transport.ask_server(lambda: (in_full(problem), fingerprint_of(problem)))
    else:  # it shows the hash of the arrays that it was given
        text, data = repr(problem), fingerprint_of(problem)
    config = {"method": type(loop.method).__name__, "problem": text}
    config |= {"data": data, "workers": str(loop.transport.n), "seed": str(loop.seed)}
    config |= {"device": "cpu" if kernels.device() is None else "cuda"}
    given = {f.name: getattr(loop.method, f.name) for f in fields(loop.method)}
    config |= {f"method.{name}": in_full(value) for name, value in given.items()}
    config |= {} if loop.blocks == 1 else {"blocks": str(loop.blocks)}
    config |= {"server": "allreduce"} if loop.server_name == "allreduce" else {}
    config |= {} if x0_sha256 is None else {"x0": f"sha256 {x0_sha256}"}
    return config | ({} if observation.observe == FULL else {"observe": str(observation.observe)})


class Session:
    """A run in progress, with its limits, its record and its checkpoints.

    round         the number of rounds done; they took ``seconds``
    resumed_from  the number of rounds done before the resume; 0 if the run was not resumed
    scale         on the server, mean |∇f_i(x⁰)|²
    start_f       on the server, f at x⁰, or where the method restarted after ranks had died
    lost          a dict for each rank that died: "round", the number of rounds done by then; "rank", its
                  number in the job; "host"; "workers".  "back": the number of rounds after which a resumed
                  run had these workers again
    """

    def __init__(
        self,
        loop: Loop,
        method: Method,
        problem: Problem,
        limits: Limits,
        observation: Observation,
        folder: Path | None,
        resume: bool | None,
        x0_sha256: str | None,
        callback: Callback | None,
    ) -> None:
        t = loop.transport
        self.loop, self.limits, self.observation, self.folder = loop, limits, observation, folder
        self.asked, self.callback = method, callback
        if resume is not False and folder is None:
            raise ConfigError("resume needs the folder of the run to continue: give out.")
        self.resumed = t.ask_server(self._has_checkpoint) if resume is None else resume
        self.round, self.resumed_from, self.seconds, self.scale = 0, 0, 0.0, 0.0
        self.resumed_bytes = 0  # on the server, those sent to the workers before the resume
        self.earlier: dict[str, Any] = {}  # on the server, the summary of the run that is resumed
        self.start_f: float | None = None
        self.saved: int | None = None  # the round of the newest checkpoint
        self.lost: list[dict[str, Any]] = []
        self.config = _identity(loop, problem, observation, x0_sha256)
        if observation.samples is not None:
            t.raise_on_all(self._choose_samples)
        facts = {
            "config": self.config,
            "asked": {"method": repr(method), **asdict(limits), **asdict(observation)},
            "code": t.ask_server(lambda: code_of(method, problem)),
            "shard_sizes": t.ask_server(lambda: problem.shard_sizes(t.n)),
            "command": sys.argv,
            "ranks": t.ranks,
            "server": loop.server_name,
            "message_buffers": "device" if kernels.device() is not None and t.device_buffers else "host",
            "hosts": t.collect(t.host()),
            "workers_by_rank": t.collect(f"{t.hosted.start}..{t.hosted.stop - 1}" if t.hosted else "none"),
            "lost": self.lost,
            **describe_machine(),
        }
        afresh = resume is None and not self.resumed
        self.recorder = t.raise_on_all(
            lambda: Recorder(self.folder if t.is_server else None, facts, self.resumed, afresh)
        )
        if self.resumed:
            self._load()

    def run(self, checkpoint_every: int | None, progress: Progress | None, begun: Callable[[], None]) -> str:
        """Run until a limit is reached or a signal asks to stop; return the name of the reason.

        ``begun`` is called before the first round.
        """
        t = self.loop.transport
        t.raise_on_all(self._open_record)
        begin = self._look_back if self.resumed else self._record
        while True:
            try:
                status = begin()
                begun()
                return self._go_on(status, checkpoint_every, progress)
            except Exception as error:
                if not t.outlives(error):
                    raise
                begin = self._begin_without_the_lost

    def _go_on(self, status: str | None, checkpoint_every: int | None, progress: Progress | None) -> str:
        loop, t, limits = self.loop, self.loop.transport, self.limits
        while status is None and self.round < limits.rounds:
            started = perf_counter()
            try:
                stop = loop.step(self.round)
            finally:
                self.seconds += perf_counter() - started
            self.round += 1
            row = None
            if stop or self.observation.is_due(self.round) or self.round == limits.rounds:
                status = self._record()
                row = self.recorder.rows[-1] if t.is_server else None
            if stop:
                status = "interrupted"
            if checkpoint_every and self.round % checkpoint_every == 0:
                self.save()
            if progress is not None and t.is_server:
                self._report(progress, row)
        if self.resumed and t.ask_server(lambda: self.recorder.rows[-1].round < self.round):
            # The resume dropped an irregular last row, and no round followed.
            status = self._record()
        self._compare_replicas()
        return status or "rounds"

    def _report(self, progress: Progress, row: Row | None) -> None:
        """Call ``progress``.  An error of it is on the server alone: it ends the job, whatever its class."""
        try:
            progress(self.round, row)
        except MpicompError:  # which ``run`` takes for one of all ranks
            self.loop.transport.abort()
            raise

    def save(self) -> None:
        """Write a checkpoint, if there is a folder."""
        if self.folder is not None and self.round != self.saved:
            self.loop.transport.activity = f"checkpoint after round {self.round}"
            header = {
                "config": self.config,
                "seconds": self.seconds,
                "scale": self.scale,
                "digest": self.loop.digest.value.hex(),
                "begun": self.loop.method_start_round,
                "crew": self.loop.original_ids.tolist(),
                "lost": self.lost,
            }
            self.loop.transport.raise_on_all(self._check)
            self.loop.rounds.settle()
            states = self.loop.states()
            checkpoint.save(self.folder / "checkpoint", self.loop.transport, self.round, states, header)
            self.saved = self.round

    def conclude(self, summary: dict[str, Any]) -> None:
        """Write the summary.

        Skipped if the resume ran no rounds: the earlier summary of this end holds the real costs.  But a last
        row that was recorded anew may differ: in f on another machine, in bytes where lost workers are back.
        """
        idle = self.resumed and self.round == self.resumed_from
        same = ("status", "rounds", "f", "down_bytes")
        if not idle or any(self.earlier.get(name) != summary[name] for name in same):
            self.recorder.write_json("summary.json", summary)

    def _check(self) -> None:
        """Raise the error that prevents a checkpoint: this rank's state is unsound, or the folder is gone.

        Or a method of one's own keeps what could not be loaded.
        """
        self.loop.rounds.check_saved()
        self.recorder.check()

    def _has_checkpoint(self) -> bool:
        assert self.folder is not None
        return checkpoint.exists(self.folder / "checkpoint")

    def _load(self) -> None:
        assert self.folder is not None
        states = self.loop.states() | {"replica": self.loop.replica}
        t = self.loop.transport
        manifest = checkpoint.load(self.folder / "checkpoint", t, states, self.config, _FACTS)
        self.round = self.resumed_from = manifest["round"]
        if self.round > self.limits.rounds:
            raise RecordError(
                f"rounds={self.limits.rounds}, and the run in {self.folder} has done {self.round}: "
                "ask for more, or start in another folder."
            )
        self.seconds, self.scale = manifest["seconds"], manifest["scale"]
        self.loop.digest.value = bytes.fromhex(manifest["digest"])
        self.loop.method_start_round, self.lost, self.saved = manifest["begun"], manifest["lost"], self.round
        self.resumed_bytes = self.loop.ledger.down_bytes
        if len(manifest["crew"]) < self.loop.transport.n:  # the lost workers are here again
            self.loop.restart(self.round)
            self.lost = [{"back": self.round} | one for one in self.lost]

    def _open_record(self) -> None:
        if self.resumed and self.recorder.folder is not None:
            self.earlier = read_summary(self.recorder.folder)  # a damaged one is refused before the rounds
        round = self.round if self.resumed else None
        self.recorder.start(round, self.observation.is_due, self.resumed_bytes)
        if self.resumed:
            self.recorder.amend({"lost": self.lost})

    def _begin_without_the_lost(self) -> str | None:
        """Restart the method on the remaining ranks at the server's model, and record a row there."""
        loop, t, started = self.loop, self.loop.transport, perf_counter()
        gone = t.shrink()
        # Every remaining rank stores the losses before the next operation in which a rank may die.
        for rank in gone:
            workers = loop.original_ids[rank.workers].tolist()
            self.lost.append({"round": None, "rank": rank.rank, "host": rank.host, "workers": workers})
        loop.dismiss([i for rank in gone for i in rank.workers])
        self.saved = self.start_f = None

        self.round = t.ask_server(lambda: self.round)
        new = [one for one in self.lost if one["round"] is None]
        for one in new:
            one["round"] = self.round
        if t.is_server:
            sys.stderr.write(f"mpicomp: after round {self.round}: {_obituary(new, t.n)}\n")
        loop.restart(self.round)
        self.seconds += perf_counter() - started
        t.raise_on_all(lambda: self.recorder.amend({"lost": self.lost}))
        return self._record()

    def _look_back(self) -> str | None:
        """The limit that the last row of the resumed run has already reached, if any."""
        rows = self.recorder.rows
        if rows:
            self.start_f = rows[0].f
        return self.loop.transport.ask_server(lambda: self.limits.reached(rows, rows[0].f) if rows else None)

    def _record(self) -> str | None:
        """Observe and add a row; return the limit reached, if any, on every rank."""
        self.loop.transport.activity = f"observation after round {self.round}"
        if not self.loop.transport.is_server:
            # An error here reaches the server, which raises it on all ranks.
            self.loop.observe(self.observation.observes)
        return self.loop.transport.ask_server(self._add_row)

    def _add_row(self) -> str | None:
        try:
            seen = self.loop.observe(self.observation.observes)
            assert seen is not None
            book = self.loop.ledger
            row = Row(
                self.round,
                seen.f,
                seen.grad_norm_sq,
                book.up_bytes,
                book.down_bytes,
                book.paper_bits_up,
                book.paper_bits_down,
                seen.epochs,
                seen.error if self.loop.method.keeps_residual else None,
                self.seconds,
                seen.x_norm,
            )
            self.recorder.add(row)
            if self.start_f is None:
                self.start_f = row.f
            self._check_growth(seen)
        except DivergedError as error:
            if self.round == 0:
                raise DivergedError(f"at x0: {error}") from None
            rounds = f"the run diverged: after {self.round} rounds, "
            raise DivergedError(f"{rounds}{error} {self.loop.rounds.books.advice}") from None
        asked = self._ask_callback(row, seen.x)
        return self.limits.reached(self.recorder.rows, self.start_f) or asked

    def _check_growth(self, seen: Measurement) -> None:
        """Raise ``DivergedError`` if |∇f|² has grown by ``GROWTH``; do nothing if ∇f is not observed."""
        if seen.f is None or seen.grad_norm_sq is None or seen.local_norm_sq is None:
            return
        if self.round == 0:
            self.scale = seen.local_norm_sq
        if not seen.grad_norm_sq <= GROWTH * max(self.scale, 1.0):
            raise DivergedError(f"f = {seen.f:.3g}, |∇f|² = {seen.grad_norm_sq:.3g}.")

    def _ask_callback(self, row: Row, x: Array) -> str | None:
        """Call the user's callback, if there is one; "callback" if it asks to stop."""
        if self.callback is None:
            return None
        x = x.copy()  # for a list of them: the run's own takes its steps in place
        x.flags.writeable = False
        return "callback" if is_true(self.callback(self.round, row, x)) else None

    def _choose_samples(self) -> None:
        """Draw the samples on which f is observed; they depend on the seed and the worker only."""
        m = self.observation.samples
        assert m is not None
        for f in self.loop.objectives.values():
            key = Key(self.loop.seed, 0, f.worker, self.loop.transport.n)
            f.observe_samples(m, key.private("observation"))

    def _compare_replicas(self) -> None:
        """Raise ``MpicompError`` on all ranks unless they all hold the same replica, bit for bit."""
        t, replica = self.loop.transport, self.loop.rounds.replica
        own = sha256()
        for f in fields(replica):
            own.update(np.ascontiguousarray(kernels.to_host(getattr(replica, f.name))).data)
        digests = t.collect(own.hexdigest())

        def check() -> None:
            self.loop.rounds.books.check()
            if digests is not None and len(set(digests)) > 1:
                odd = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
                raise MpicompError(
                    f"the replicas on ranks {odd} differ from rank 0's: the ranks do not run the same code, "
                    "a replica_step depends on the rank, or the hosts do not compute alike. Nothing of this "
                    "run can be trusted."
                )

        t.raise_on_all(check)


def check_callback(name: str, callback: Any) -> None:
    """Raise ``ConfigError`` unless a call of ``callback`` runs its code."""
    if not callable(callback) or runs_later(callback):
        raise ConfigError(
            f"{name}={callback!r}; allowed: a function of (round, row, x) without async and yield."
        )


def is_true(answer: object) -> bool:
    """Whether a callback's answer is True, Python's or numpy's, as ``np.linalg.norm(x) > 9`` is."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _obituary(lost: list[dict[str, Any]], left: int) -> str:
    """The line printed about ranks that have died; ``left`` workers remain."""
    names = ", ".join(f"rank {one['rank']} on {one['host']}" for one in lost)
    workers = ", ".join(str(i) for one in lost for i in one["workers"])
    theirs = f", with workers {workers}" if workers else ""
    return f"{names} died{theirs}. {left} workers go on: the method begins anew at this iterate."
