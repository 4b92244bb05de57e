"""What ranks save, load and restore, in the middle of a step too, and on other ranks."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

import mpicomp
from mpicomp import (
    DCGD,
    EF21,
    Aggregator,
    Identity,
    TopK,
)
from tests.loops.jobs.common import METHOD, MPI, RANK, fs
from tests.loops.test_aggregator import PROBLEM, WORKERS


def saved(folder):
    """Four steps from what is saved in ``folder``, if there is anything; else three, which are saved."""
    agg = Aggregator(METHOD, like=PROBLEM.x0(), workers=WORKERS, seed=3)
    x, objectives = PROBLEM.x0(), fs(agg)
    try:
        agg.load(folder)
        x = np.load(f"{folder}/x.npy")
    except mpicomp.MpicompError:
        pass
    for _ in range(4 if agg.steps else 3):
        x -= 0.01 * agg(objectives, at=x)
    if agg.steps == 3:
        agg.save(folder)
        if RANK == 0:
            np.save(f"{folder}/x.npy", x)
    return [agg.steps, sha256(x.tobytes()).hexdigest(), agg.ledger.up.tolist(), agg.ledger.down.tolist()]


def other_folders(folder):
    """What is said where rank 1 saves or loads elsewhere, or without the other loop; then all goes on."""
    agg, other = (Aggregator(METHOD, like=np.zeros(8)) for _ in range(2))
    agg(np.ones(8))
    agg.save(f"{folder}/0", others=[other])
    told = []
    for act in (agg.save, agg.load):
        for place, others in ((f"{folder}/{RANK}", [other]), (f"{folder}/0", [other] * (RANK == 0))):
            try:
                act(place, others=others)
            except mpicomp.ConfigError as error:
                told.append(str(error))
    agg.save(f"{folder}/0", others=[other])
    agg(np.ones(8))
    agg.load(f"{folder}/0", others=[other])
    return MPI.COMM_WORLD.gather([agg.steps, *told])


def verified_after_loading(folder):
    """What was sent before belongs to the ledger, and not to the count of MPI that it is compared with."""
    told = []
    for server in ("shared", "sharded"):
        options = {"like": np.zeros(24), "seed": 3, "server": server}
        with Aggregator(METHOD, **options) as reference:
            for _ in range(4):
                reference(np.ones(24))
            reference.settle()
        with Aggregator(METHOD, **options, verify_bytes=True) as first:
            for _ in range(3):
                first(np.ones(24))
            first.verify()
            first.save(f"{folder}/{server}")
            state = first.state()
        for how in ("load", "restore"):
            with Aggregator(METHOD, **options, verify_bytes=True) as second:
                second(np.ones(24))
                second.load(f"{folder}/{server}") if how == "load" else second.restore(state)
                second(np.ones(24))
                second.verify()
                told.append(second.steps == 4 and second.ledger.up.tolist() == reference.ledger.up.tolist())
    return told


def another_ranks_state():
    """Rank 1 alone meets an error."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    state = MPI.COMM_WORLD.bcast(agg.state())
    agg.restore(state)
    agg(np.ones(8))


def others_states():
    """Rank 0's state on all ranks, and states of different steps; after each the next step is as before."""
    said = []
    for method in (METHOD, DCGD(Identity())):
        agg, whole = (Aggregator(method, like=np.zeros(8)) for _ in range(2))
        states = []
        for step in range(2):
            agg(np.full(8, step + RANK + 1.0)), whole(np.full(8, step + RANK + 1.0))
            states.append(agg.state())
        wrong = [MPI.COMM_WORLD.bcast(states[1]), states[min(RANK, 1)]]
        for state in wrong if method == METHOD else wrong[:1]:
            try:
                agg.restore(state)
            except mpicomp.ConfigError as error:
                said.append(str(error))
        assert agg(np.ones(8)).tobytes() == whole(np.ones(8)).tobytes()
    (everywhere,) = {tuple(theirs) for theirs in MPI.COMM_WORLD.allgather(said)}
    return everywhere


def on_fewer_ranks(folder):
    """Saved by three ranks, a worker each; two of them go on."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=(6, 3, 20))
    agg = Aggregator(METHOD, like=np.zeros(20))
    for g in given[:3]:
        agg(g[RANK])
    agg.save(folder)
    expected = [agg(g[RANK]) for g in given[3:]]
    comm = MPI.COMM_WORLD.Split(RANK == 2)
    told = None
    if RANK < 2:
        try:
            Aggregator(METHOD, like=np.zeros(20), comm=comm).load(folder)
        except mpicomp.MpicompError as error:
            told = [str(error)]
        few = Aggregator(METHOD, like=np.zeros(20), comm=comm, workers=3)
        few.load(folder)
        told.append(
            all(
                few({i: g[i] for i in few.hosted}).tobytes() == e.tobytes()
                for g, e in zip(given[3:], expected, strict=True)
            )
        )
    MPI.COMM_WORLD.barrier()
    return told


def half_way(server, folder):
    """A step that one worker's gradient ends half-way; the state saved before goes on as if it had not."""
    agg, whole = (Aggregator(EF21(TopK(k=3)), like=np.zeros(40), server=server) for _ in range(2))
    rng = np.random.default_rng(RANK)
    given = rng.normal(size=(6, 40))
    for g in given[:3]:
        agg(g), whole(g)
    agg.save(folder)
    told = []
    for g in (np.full(40, 1e39) if RANK == 1 else given[3], given[3]):
        try:
            agg(g)
        except mpicomp.MpicompError as error:
            told.append(type(error).__name__ if not told else "ended half-way" in str(error))
    agg.load(folder)
    same = all(agg(g).tobytes() == whole(g).tobytes() for g in given[3:])
    for one in (agg, whole):
        one.settle()
    same &= agg.ledger.up.tolist() == whole.ledger.up.tolist()
    (everywhere,) = {tuple(theirs) for theirs in MPI.COMM_WORLD.allgather([*told, same])}
    return everywhere
