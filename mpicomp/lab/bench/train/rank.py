"""The program of a rank of ``mpicomp bench train``: ``python -m mpicomp.lab.bench.train.rank JSON``.

All contestants are made once and take turns, so that they meet the same state of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf, isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

from mpicomp.base.errors import DivergedError
from mpicomp.lab.bench.train.asked import Asked
from mpicomp.lab.bench.train.contestants import CONTESTANTS, INNER, Contestant, Trainer
from mpicomp.lab.bench.train.models import Task, task
from mpicomp.lab.jobs.launch import run_rank

_WARM_UP = 8  # steps: DDP makes its buckets anew after the first, its PowerSGD hook starts with the third
_TURN = 8  # steps of a contestant's turn
_TURNS = 5  # at least
_RATE_OF_TIMING = 1e-3  # the learning rate there: nothing diverges, and a step takes as long with any
_SCORE_EVERY = 40  # steps, a multiple of the local steps

comm = MPI.COMM_WORLD


def chosen(asked: Asked) -> list[Contestant]:
    """The contestants with the labels that were asked for."""
    return [c for c in CONTESTANTS if c.label in asked.labels]


def competitors(asked: Asked) -> list[Contestant]:
    """The contestants of ``chosen`` that train to a target."""
    return [c for c in chosen(asked) if c.competes]


def traffic(interface: str) -> np.ndarray:
    """Bytes that the interface has received and sent so far, headers included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            values = counts.split()
            return np.array([int(values[0]), int(values[8])])
    return np.zeros(2, int)


def digest(trainer: Trainer) -> str:
    """A hash of the model's parameters."""
    with trainer.common():
        parts = [p.detach().numpy().tobytes() for p in trainer.model.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


class Stint:
    """One contestant's training: its trainer, and the times, steps and bytes of its turns so far."""

    def __init__(self, contestant: Contestant, job: Task, lr: float, outer: float, optimiser: str) -> None:
        self.contestant, self.job, self.taken = contestant, job, 0
        self.trainer = contestant.trainer(job.model(), lr, outer, INNER[optimiser])
        self.seconds: list[float] = []  # of a step; with local steps, means from one exchange to the next
        self.counted = 0
        self.crossed = np.zeros(2, int)
        self.phases: dict[str, float] = {}
        self.up = self.down = 0

    def steps(self, count: int) -> None:
        """Take steps, each on a batch of its own."""
        for _ in range(count):
            self.trainer.step(*self.job.batch(self.taken, comm.rank, comm.size))
            self.taken += 1

    def turn(self, count: int, interface: str) -> None:
        """Take steps and note their times and bytes."""
        before, crossed = self.trainer.seconds(), traffic(interface)
        up, down = self.trainer.payload()
        every = self.trainer.every
        for _ in range(count // every):
            started = perf_counter()
            self.steps(every)
            self.seconds.append((perf_counter() - started) / every)
        comm.Barrier()
        after = self.trainer.payload()
        self.counted += count
        self.crossed += traffic(interface) - crossed
        self.up, self.down = self.up + after[0] - up, self.down + after[1] - down
        for name, value in self.trainer.seconds().items():
            self.phases[name] = self.phases.get(name, 0.0) + value - before.get(name, 0.0)

    def named(self) -> dict[str, Any]:
        """The contestant and the model, as rows have them."""
        return {
            "label": self.contestant.label,
            "side": self.contestant.side,
            "every": self.trainer.every,
            "model": self.job.kind,
            "d": sum(p.numel() for p in self.trainer.model.parameters()),
        }

    def row(self) -> dict[str, Any]:
        """The figures, on all ranks: rank 0's seconds a step, and the bytes a step on the busiest link."""
        parameters = comm.allgather(digest(self.trainer))
        busiest = max(comm.allgather(int(self.crossed.max())))
        low, middle, high = np.quantile(self.seconds, [0.25, 0.5, 0.75])
        return self.named() | {
            "seconds": middle,
            "low": low,
            "high": high,
            "steps": self.counted,
            "up_bytes": self.up / self.counted,
            "down_bytes": self.down / self.counted,
            "link_bytes": busiest / self.counted,
            "phases": {name: value / self.counted for name, value in self.phases.items()},
            "ranks_agree": len(set(parameters)) == 1,
        }


def step_times(asked: Asked, job: Task) -> list[dict[str, Any]]:
    """Time each contestant's steps, as many as asked for or some more, in turns; returns ``Stint.row``s."""
    optimiser = asked.optimiser
    stints = [Stint(c, job, _RATE_OF_TIMING, c.outer[0], optimiser) for c in chosen(asked)]
    for stint in stints:
        stint.steps(_WARM_UP)
    for _ in range(max(_TURNS, -(-asked.steps // _TURN))):
        for stint in stints:
            comm.Barrier()
            stint.turn(_TURN, asked.interface)
    return [stint.row() for stint in stints]


def train(asked: Asked, c: Contestant, job: Task, lr: float, outer: float, most: float) -> dict[str, Any]:
    """Train a contestant to the test score that is asked for, for at most ``most`` steps.

    ``curve`` holds (seconds, steps, score); the clock stands still while the score is taken.  A contestant
    that diverges has missed the target.  The bytes are of all messages of the training.
    """
    target, limit = asked.target, asked.limit
    assert target is not None
    stint = Stint(c, job, lr, outer, asked.optimiser)
    spent, sent, curve, reached, diverged = 0.0, (0, 0), [], False, False
    while not (reached or diverged) and spent < limit and stint.taken + _SCORE_EVERY <= most:
        comm.Barrier()
        started = perf_counter()
        try:
            stint.steps(_SCORE_EVERY)
        except DivergedError:  # raised on all ranks
            diverged = True
            break
        comm.Barrier()
        spent += perf_counter() - started
        with stint.trainer.common():
            score = sum(comm.allgather(job.score(stint.trainer.model, comm.rank, comm.size)))
        spent = comm.bcast(spent)
        sent = stint.trainer.payload()
        diverged = not isfinite(score)
        if not diverged:
            curve.append((spent, stint.taken, score))
            reached = job.reached(score, target)
    return stint.named() | {
        "target": target,
        "lr": lr,
        "outer": outer,
        "seed": job.seed,
        "reached": reached,
        "diverged": diverged,
        "seconds": spent,
        "steps": stint.taken,
        "up_bytes": sent[0],
        "down_bytes": sent[1],
        "curve": curve,
    }


def to_target(asked: Asked, job: Task) -> Iterator[dict[str, Any]]:
    """Train each contestant to the target, once for each seed, with rates of its own: learning and outer."""
    own, most = asked.learning or {}, asked.most or inf
    for c in competitors(asked):
        for seed in asked.seeds:
            lr, outer = own.get(c.label, (asked.usual, c.outer[0]))
            yield train(asked, c, replace(job, seed=seed), lr, outer, most)


def tune(asked: Asked, job: Task) -> Iterator[dict[str, Any]]:
    """Train each contestant with each learning rate of the grid and each outer rate, once for each seed.

    A training ends early if it misses the target, or once its rates can no longer be the best ones.  Then
    these rates are not tried with further seeds.
    """
    for c in competitors(asked):
        most = asked.most or inf
        for lr, outer in product(asked.grid, c.outer):
            rows = []
            for seed in asked.seeds:
                rows.append(train(asked, c, replace(job, seed=seed), lr, outer, most))
                yield rows[-1]
                if not rows[-1]["reached"]:
                    break
            else:
                most = max(row["steps"] for row in rows)


def _store(address: str) -> dist.Store:
    """Rank 0's store, at a port that is free there: one that is chosen before may be taken by then."""
    own = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(None if own is None else own.port)
    return dist.TCPStore(address, port, is_master=False) if own is None else own


def main(text: str) -> None:
    """Train as the JSON ``text`` asks; rank 0 prints a JSON object for each contestant."""
    asked = Asked(**json.loads(text))
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = asked.interface
    dist.init_process_group("gloo", store=_store(asked.address), rank=comm.rank, world_size=comm.size)
    target = asked.target
    job = task(asked.model, asked.d, None if target is None else asked.images)
    if target is None:
        rows: Any = step_times(asked, job)
    else:
        rows = tune(asked, job) if asked.grid else to_target(asked, job)
    for row in rows:
        if comm.rank == 0:
            print(json.dumps(row), flush=True)
    comm.Barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
