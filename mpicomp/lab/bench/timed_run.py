"""A run timed after a warm-up, so that its seconds are those of its rounds; and the costs of a round.

``timed_run`` runs in this process; ``python -m mpicomp.lab.bench.timed_run JSON`` runs on the ranks of an MPI
job.
"""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import numpy as np

from mpicomp.lab.bench.cost_model import Costs
from mpicomp.lab.jobs.launch import run_rank
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.runtime.result import Run
from mpicomp.runtime.run import run
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.transports import connect
from mpicomp.transports.launcher import launched_rank

_WARM_UP = 3  # rounds of warm-up, in which kernels are loaded and connections made
_EMPTY_ROUNDS = 50  # empty rounds, for warm-up and again for timing


def timed_run(method: Method, problem: Problem, **options: Any) -> Run:
    """``run(method, problem, **options)`` after a warm-up; ``KeyboardInterrupt`` if interrupted."""
    for asked in (options | {"rounds": _WARM_UP, "every": _WARM_UP, "at": None}, options):
        done = run(method, problem, **asked)
        if done.status == "interrupted":
            raise KeyboardInterrupt
    return done


def costs(done: Run) -> Costs:
    """The mean costs of a round of ``done``, a run in one process."""
    last, spent, n = done.rows[-1], done.phases[0], done.workers
    own = int(done.ledger.own.sum())
    return Costs(
        up=last.up_bytes / n / last.round,
        down=(last.down_bytes - own) / n / last.round,
        worker=(spent.get("gradient", 0) + spent.get("compress", 0)) / n / last.round,
        server=spent.get("server", 0) / n / last.round,
        replica=spent.get("decode", 0) / last.round,
        own=own / n / last.round,
    )


def empty_round(workers: int) -> float:
    """Mean seconds of a round with messages of one byte; collective.  Use the result on the server's rank."""
    t = connect(workers)
    byte = np.zeros(1, dtype=np.uint8)

    def step() -> None:
        with t.gather(range(workers), lambda i, message: None) as send:
            for i in t.hosted:
                send(i, byte)
        t.broadcast(byte if t.is_server else None)

    for _ in range(_EMPTY_ROUNDS):
        step()
    started = perf_counter()
    for _ in range(_EMPTY_ROUNDS):
        step()
    seconds = (perf_counter() - started) / _EMPTY_ROUNDS
    t.close()
    return seconds


def main(text: str) -> None:
    """Do the run that the JSON ``text`` describes; rank 0 prints its summary as JSON."""
    asked = json.loads(text)
    method, problem = parse_method(asked.pop("method")), parse_problem(asked.pop("problem"))
    done = timed_run(method, problem, **asked)
    summary = done.summary() | {"empty_round_seconds": empty_round(done.workers)}
    if launched_rank() == 0:
        print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    run_rank(main)
