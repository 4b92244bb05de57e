"""``mpicomp.run``: run a method on a problem."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_integer, as_seed, as_switch, as_workers
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError, keeping
from mpicomp.base.files import as_path_or_none
from mpicomp.base.given_arrays import as_array
from mpicomp.base.units import one_line
from mpicomp.kernels.threads import threads
from mpicomp.keys import clear_cached_draws
from mpicomp.methods.base import Method
from mpicomp.problems.base import Problem
from mpicomp.runtime import bars
from mpicomp.runtime.alike import as_text, facts_of, refuse_other_call, refuse_unlike
from mpicomp.runtime.audit import Audit
from mpicomp.runtime.devices import open_device
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.loop import Loop
from mpicomp.runtime.observation import Observation
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.preparation import load_kernels
from mpicomp.runtime.result import Run, result_of
from mpicomp.runtime.rows import Row
from mpicomp.runtime.session import Callback, Session, check_callback
from mpicomp.runtime.signals import stop_on_signals
from mpicomp.text.config import as_method, as_problem
from mpicomp.transports import Transport
from mpicomp.transports.meeting import Features, begin


def run(
    method: Method | str,
    problem: Problem | str,
    *,
    workers: int,
    rounds: int = Limits.rounds,
    seed: int = 0,
    x0: Array | None = None,
    every: int | str = Observation.every,
    at: Sequence[int] | None = Observation.at,
    observe: int | str = Observation.observe,
    target_grad_norm_sq: float | None = Limits.target_grad_norm_sq,
    hold: float = Limits.hold,
    max_bytes: int | None = Limits.max_bytes,
    max_seconds: float | None = Limits.max_seconds,
    out: str | Path | None = None,
    resume: bool | None = False,
    checkpoint_every: int | None = None,
    server: str = Placement.server,
    blocks: int | None = Placement.blocks,
    device: str = Placement.device,
    cuda_aware: str = Placement.cuda_aware,
    stall_timeout: float | None = Placement.stall_timeout,
    verify_bytes: bool = Placement.verify_bytes,
    on_failure: str = Placement.on_failure,
    transport: Transport | None = None,
    callback: Callback | None = None,
    progress: Callable[[int, Row | None], None] | bool | None = None,
) -> Run:
    """Run ``method`` on ``problem`` with n = ``workers``, in this process or on the ranks of its MPI job::

        result = run("ef21(topk(k=0.1))", "quadratics(d=50)", workers=4, rounds=100)
        result.x, result.rows[-1].f, result.status, result.summary()

    method, problem   objects, or their texts as on the command line: "ef21(topk(k=0.01))".  A class of your
                      own is named with its file, as in "./mine.py:MyMethod(k=1)"; the file is then imported
    rounds            the number of rounds after which the run ends in any case
    seed              the seed of all random draws
    x0                the starting point, shape (d,), in place of the problem's own; rank 0's is used.  A run
                      must be resumed with the same one.  Where it is in single precision, the run is, and
                      gradients are converted to it
    every             a row is recorded after every so many rounds, 10 by default; "1%": after each of the
                      first 256 rounds, then at gaps of at most 1 % of the rounds so far.  A row has f, |∇f|²,
                      bytes and seconds, which leave out the time of recording rows
    at                the rounds after which a row is recorded, such as [1, 2, 10, 100], in place of
                      ``every``.  Either way there is a row at the start and one at the end
    observe           the samples on which f and its gradient are evaluated for each row.  "full": all.  A
                      number m: m samples of each worker, drawn once for the run.  "never": rows have neither
                      f nor ∇f, targets are refused, and divergence is noticed only when a gradient that the
                      method asks for is not finite
    target_grad_norm_sq  the run ends at a row that meets the target: its |∇f|² is at most this, and its f at
                      most f(x⁰)
    max_bytes         the run ends at a row with at least so many bytes, both directions and all workers
    max_seconds       the run ends at a row after at least so many seconds, without the time of evaluating
                      f and its gradient for rows
    hold              if every row from round k on meets the target, the run ends at the first row at or
                      after round (1 + hold) k; a row that misses the target starts the count anew.  0: the
                      run ends at the first row that meets the target
    out               a folder for the record
    resume            False: start; a folder that holds a run is refused.  True: continue the run in ``out``.
                      None: continue it if it has a checkpoint, else start
    checkpoint_every  rounds between checkpoints in ``out``, which is needed; one is written at the end, too
    server            how messages are averaged.  "shared": by rank 0, which also hosts workers.
                      "dedicated": by rank 0, which hosts no worker (needs MPI).  "sharded": by every rank,
                      for its blocks of the coordinates.  "allreduce": by MPI_Allreduce,
                      for methods whose workers send uncompressed vectors or low-rank factors; iterates then
                      depend on the number of ranks
    blocks            with "sharded", the number of blocks of the coordinates; None: one for each worker, at
                      most 64.  Compressors act on each block alone, so iterates depend on this number, and
                      not on the number of ranks
    device            "cpu"; or "cuda": vectors, gradients and compression are on a GPU.  With several GPUs,
                      the ranks of a host are assigned to them in turn
    cuda_aware        with "cuda": "yes", pass messages to MPI in the GPU's memory; "no", copy them to the
                      host's memory first; "ask", ask the MPI library.  "no" on one rank is "no" on all
    stall_timeout     with MPI, seconds: a rank that waits for longer prints which rank is silent and ends the
                      job.  It has to exceed the longest time that a rank computes between two messages: to
                      read its data, compute its workers' gradients of one round, evaluate f, or write a
                      checkpoint; and, once on a machine, to compile the kernels.  Give it on all ranks or
                      on none
    verify_bytes      also count the bytes that MPI is handed; raises ``CountError`` if the run's own count,
                      its ledger, differs
    on_failure        "end": the job ends if a rank dies.  "shrink" (needs MPI with ULFM): the others go on
                      with the remaining workers; the method restarts at the iterate reached, with the same
                      step sizes
    callback          called on the server as callback(round, row, x) for each row, including round 0.  x is
                      the model at which f is evaluated, shape (d,), a copy that is read-only.  If it
                      returns True, the run ends with status "callback"; an exception in it ends the run on
                      all ranks
    progress          True shows a bar, False none; None, the default, shows one in a notebook.  A function is
                      called on the server after each round with its number and its row, or None without one
    transport         the transport to use, for ``workers`` workers; it is not closed.  None: make one

    An interrupt (Ctrl-C, or a notebook's stop button) ends the run after the current round; the call returns
    the run so far, with status "interrupted".  After the last round it changes the status alone, not the
    record, which is of a whole run.  A second interrupt, for a gradient that hangs, raises ``Interrupted`` at
    once: a ``KeyboardInterrupt`` whose ``so_far`` is the list of rows.
    SIGTERM, SIGHUP and SIGUSR1 also end the run after the current round, with its record in ``out``, and then
    act on the process, on all ranks: the caller's handler is called or, without one, the default action is
    taken.  In one process before the first round, an interrupt, SIGTERM and SIGHUP act at once.

    Raises an ``MpicompError`` on every rank alike.  ``so_far`` of a ``DivergedError`` is the list of rows,
    and the record of a run that diverged is kept in ``out``.
    """
    method, problem = as_method(method), as_problem(problem)
    if not isinstance(method, Method) or not isinstance(problem, Problem):
        remedy = "".join(
            f" Give an object, {C.__name__}(..)." for C in (method, problem) if isinstance(C, type)
        )
        given = f"{one_line(method)} and {one_line(problem)}"
        raise ConfigError(f"run takes a Method and a Problem; it was given {given}.{remedy}")
    workers = as_workers(workers)
    limits = Limits(rounds, target_grad_norm_sq, hold, max_bytes, max_seconds)
    observation = Observation(every, at, observe)
    limits.check_observed(observation)
    if callback is not None:
        check_callback("callback", callback)
    seed = as_seed(seed)
    resume = None if resume is None else as_switch("resume", resume)
    if checkpoint_every is not None:
        checkpoint_every = as_integer("checkpoint_every", checkpoint_every)
        if out is None:
            raise ConfigError("checkpoint_every needs a folder to write to: give out.")
    placement = Placement(server, blocks, device, cuda_aware, stall_timeout, verify_bytes, on_failure)
    verify_bytes, folder = placement.verify_bytes, as_path_or_none("out", out)
    if not isinstance(transport, Transport | None):
        raise ConfigError(f"transport = {one_line(transport)}; allowed: a Transport, or None for a new one.")
    if transport is not None and transport.n != workers:
        raise ConfigError(f"workers={workers}, but the transport given is for {transport.n}.")
    import scipy.special  # noqa: F401 - normal draws load it otherwise, in a round whose seconds count

    t = transport or placement.connect(workers)
    if t.is_server and t.ranks > workers + placement.dedicated:
        _mention_idle_ranks(t.ranks, workers, placement.dedicated)
    # In this order, so that a signal acts on the script once ``t`` is closed: what it raises is no defect.
    with stop_on_signals(t) as asked, left_in_order(t, MpicompError, close=transport is None):
        if transport is not None:  # the ranks have not met, as where each makes one
            asked_for = Features(verify_bytes, placement.survive, stall_timeout is not None, transport=True)
            begin(t.tell_all, t.names, asked_for)
        refuse_other_call(t, "mpicomp.run")
        t.raise_on_all(threads)  # refused now, whether or not kernels are compiled later
        with kernels.using(t.raise_on_all(lambda: open_device(device))):
            given = {"workers": workers, "seed": seed, "out": None if folder is None else str(folder)}
            given |= {"resume": resume, "checkpoint_every": checkpoint_every, "device": device}
            given |= asdict(limits) | asdict(observation) | {"server": server, "blocks": blocks}
            _refuse_unlike_arguments(t, given, problem, method)
            loop = Loop(method, problem, t, seed, x0, server, placement.block_count(workers))
            load_kernels(t, limits.rounds * workers, loop.x.size)
            digest = t.ask_server(lambda: _sha256(x0))
            session = Session(loop, method, problem, limits, observation, folder, resume, digest, callback)
            try:
                audit = Audit(t, loop.ledger, loop.rounds.averaging.booked) if verify_bytes else None
                watched = bars.shown(progress, bars.rounds(limits.rounds))
                with keeping(lambda: session.recorder.rows), watched as advance:
                    status = session.run(checkpoint_every, advance, asked.begin)
                result = result_of(session, problem, status, audit.check() if audit else None)
                session.save()
                t.raise_on_all(lambda: session.conclude(result.summary()))
                asked.agree(t)  # perhaps a rank was asked after the last round: the record is of a whole run
                return result if asked.agreed is None else replace(result, status="interrupted")
            except DivergedError as error:
                error.so_far = t.ask_server(lambda: session.recorder.rows)
                asked.agree(t)
                raise
            finally:
                session.recorder.close()
                clear_cached_draws()  # draws that lie on a device


@contextmanager
def left_in_order(t: Transport, *alike: type[BaseException], close: bool = True) -> Iterator[None]:
    """After the ``with`` block close ``t``, if ``close``, also after one of the errors ``alike``.

    These are raised on all ranks.  Any other error aborts the job.
    """
    try:
        yield
    except alike:
        if close:
            t.close()
        raise
    except BaseException:
        t.abort()
        raise
    if close:
        t.close()


def _refuse_unlike_arguments(t: Transport, given: dict[str, Any], problem: Problem, method: Method) -> None:
    """Raise ``ConfigError`` on all ranks if their arguments of ``run`` differ; collective."""
    given = given | t.raise_on_all(lambda: facts_of(problem)) | {"method": method}
    told: Any = t.collect({name: as_text(value) for name, value in given.items()})
    t.ask_server(lambda: refuse_unlike(told))


def _sha256(x0: Array | None) -> str | None:
    """The SHA-256 of a starting point that was given, in hexadecimal."""
    return None if x0 is None else sha256(as_array("x0", x0).tobytes()).hexdigest()


@cache  # once for all the runs of a comparison
def _mention_idle_ranks(ranks: int, workers: int, dedicated: bool) -> None:
    useful = workers + dedicated
    sys.stderr.write(
        f"mpicomp: {ranks} ranks for {workers} workers: {ranks - useful} without a worker, which compute "
        f"nothing. Use --ranks {useful}, or --workers {ranks - dedicated} or more.\n"
    )
