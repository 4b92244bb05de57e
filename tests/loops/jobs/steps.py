"""What ranks do with every method: the same steps, in blocks, early, summed by MPI, on some ranks."""

from __future__ import annotations

import warnings
from hashlib import sha256

import numpy as np

import mpicomp
from mpicomp import (
    DCGD,
    Aggregator,
    ARCTopK,
    Descent,
    Dion,
    Identity,
    PowerSGD,
)
from tests.loops.jobs.common import METHOD, MPI, RANK, fs
from tests.loops.test_aggregator import IN_BLOCKS, ONE_OF_EACH, PROBLEM, TO_CUT, WORKERS, flat, tree
from tests.loops.test_overlap import ALONE
from tests.support import every_combination


def trajectory(method, verify=False):
    """The iterates of 5 steps, and the bytes, as text; the same on all ranks or an error."""
    agg = Aggregator(method, like=tree(PROBLEM.x0()), workers=WORKERS, seed=3, verify_bytes=verify)
    x, digest, objectives = PROBLEM.x0(), sha256(), fs(agg)
    for _ in range(5):
        x -= 0.01 * flat(agg(objectives, at=tree(x)))
        digest.update(x.tobytes())
    if verify:
        agg.verify()
    assert len(set(MPI.COMM_WORLD.allgather(digest.hexdigest()))) == 1
    own = agg.ledger.up[agg.hosted.start : agg.hosted.stop].tolist()
    everybody = MPI.COMM_WORLD.allgather(own)
    if RANK == 0:
        assert [n for theirs in everybody for n in theirs] == agg.ledger.up.tolist()
    told = [digest.hexdigest(), agg.ledger.up.tolist(), agg.ledger.down.tolist()]
    agg.close()
    return told


def numbers(method):
    return mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=1).method


def all_methods():
    return {type(m).__name__: trajectory(numbers(m)) for m in ONE_OF_EACH}


def verified():
    return {type(m).__name__: trajectory(numbers(m), verify=True) for m in ONE_OF_EACH[::4]}


def descents():
    told = {}
    for method in {type(m): m for m in every_combination.methods()}.values():
        start = tree(PROBLEM.x0() + RANK)  # rank 0's counts
        descent = Descent(numbers(method), start, workers=WORKERS, seed=3)
        objectives = fs(descent)
        for _ in range(5):
            descent.step(objectives)
        told[type(method).__name__] = sha256(flat(descent.model()).tobytes()).hexdigest()
        descent.close()
    return told


def sharded():
    """Each method's iterate after 5 steps of ranks that all serve, with the bytes that MPI has counted."""
    told = {}
    for name, method in IN_BLOCKS.items():
        options = {"workers": WORKERS, "seed": 3, "server": "sharded", "blocks": 5, "verify_bytes": True}
        descent = Descent(
            mpicomp.run(method, TO_CUT, workers=WORKERS, rounds=1).method,
            tree(TO_CUT.x0(), TO_CUT),
            **options,
        )
        objectives = {i: TO_CUT.objective(i, WORKERS) for i in descent.hosted}
        for _ in range(5):
            descent.step(objectives)
        descent.verify()
        model = sha256(flat(descent.model()).tobytes()).hexdigest()
        told[name.__name__] = [model, descent.ledger.up.tolist(), descent.ledger.down.tolist()]
        descent.close()
    return told


def summed():
    """What MPI_Allreduce can sum is estimated as by the root, and the ledger is the root's."""
    told = []
    for method in (
        DCGD(Identity("f8")),
        PowerSGD(2, values="f8"),
        Dion(2, values="f8"),
        ARCTopK(0.3, r=1, values="f8"),
    ):
        found = []
        for server in ("shared", "allreduce"):
            agg = Aggregator(method, tree(TO_CUT.x0(), TO_CUT), workers=WORKERS, server=server)
            estimates = []
            for step in range(4):
                draw = np.random.default_rng(step)
                gradients = draw.normal(size=(WORKERS, TO_CUT.dimension()))
                estimates.append(flat(agg({i: tree(gradients[i], TO_CUT) for i in agg.hosted})))
            assert len(set(MPI.COMM_WORLD.allgather(estimates[-1].tobytes()))) == 1
            agg.settle()
            found.append((estimates, agg.ledger.up.tolist()))
            agg.close()
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=0, atol=1e-9)
        assert found[1][1] == found[0][1]
        told.append(type(method).__name__)
    return told


def overlapped():
    """A worker a rank: blocks that leave early give the estimates of those that wait; MPI counts them."""
    told = []
    for method in {type(m): m for m in ALONE}.values():
        found = [
            _estimates(method, early, bad) for early, bad in ((False, 2), (True, 2), (False, 9), (True, 9))
        ]
        assert found[0][0] == found[1][0] and found[2] == found[3], method
        assert None in found[0][0] and None not in found[2][0]
        told.append(type(method).__name__)
    return told


def _estimates(method, early, bad):
    """The estimates of some steps, and the ledger; in step ``bad`` one gradient is not finite."""
    options = {"server": "sharded", "blocks": 7, "verify_bytes": True, "on_nonfinite": "skip"}
    agg = Aggregator(method.with_step(0.01), tree(TO_CUT.x0(), TO_CUT), **options)
    blocks = agg.overlap() if early else []
    rng = np.random.default_rng(RANK)
    found = []
    for step in range(5):
        g = rng.normal(size=TO_CUT.dimension())
        if step == bad and RANK == 1:
            g[500] = np.nan
        for b in reversed(range(len(blocks))):
            agg.bring(b, g[blocks[b]])
        estimate = agg(tree(g, TO_CUT))
        found.append(None if estimate is None else flat(estimate).tobytes())
    agg.verify()
    agg.close()
    return found, agg.ledger.up.tolist(), agg.ledger.down.tolist(), agg.ledger.paper_bits_up


def own_communicator():
    """Two halves of the ranks, each with an aggregator of its own."""
    comm = MPI.COMM_WORLD.Split(RANK % 2)
    agg = Aggregator(METHOD, like=np.zeros(8), comm=comm)
    g = agg(np.full(8, float(RANK % 2) + 1))
    assert len(set(comm.allgather(g.tobytes()))) == 1 and agg.workers == comm.size
    return g.tolist()


def starts():
    """What is said of x in loops whose ranks make x by seeds of their own, and in some that are right."""
    draw = np.random.default_rng(42 + RANK)
    told = {}

    def make(like):
        return Aggregator(METHOD, like=like)

    def steps(agg, x, how, given=lambda x: x - RANK):
        for _ in range(3):
            g = agg(given(x))
            x = how(x, g)

    def in_place(x, g):
        x -= 0.1 * g
        return x

    def anew(x, g):
        return x - 0.1 * g

    def by_name(x, g):
        for name in x:
            x[name] -= 0.1 * g[name]
        return x

    def of_names(x):
        return {name: part - RANK for name, part in x.items()}

    def wrong_in_place():
        x = draw.normal(size=8)
        steps(make(x), x, in_place)

    def wrong_by_name():
        x = {"W": draw.normal(size=(2, 3)), "b": np.zeros(2)}
        steps(make(x), x, by_name, of_names)

    def wrong_anew():
        x = draw.normal(size=8)
        steps(make(x), x, anew)

    def wrong_at():
        x = draw.normal(size=8)
        make(np.zeros(8))(lambda at: at - RANK, at=x)

    def wrong_at_beside_an_array():
        x = draw.normal(size=8)
        make(np.zeros(8))(x - RANK, at=x)

    def started():
        x = draw.normal(size=8)
        agg = make(x)
        x = agg.start(x)
        steps(agg, x, in_place)
        assert len(set(MPI.COMM_WORLD.allgather(x.tobytes()))) == 1

    def started_by_name():
        x = {"W": draw.normal(size=(2, 3)).astype(np.float32), "b": draw.normal(size=2)}
        agg = make(x)
        first = MPI.COMM_WORLD.bcast(x)
        x = agg.start(x)
        assert all(x[name].dtype == first[name].dtype and np.array_equal(x[name], first[name]) for name in x)
        steps(agg, x, by_name, of_names)

    def shared_in_place():
        x = draw.normal(size=8)
        agg = make(x)
        MPI.COMM_WORLD.Bcast(x)
        steps(agg, x, in_place)

    def shared_anew():
        x = draw.normal(size=8)
        agg = make(x)
        steps(agg, MPI.COMM_WORLD.bcast(x).copy(), in_place)

    def own_gradient():
        x = np.zeros(8)
        g = x - draw.normal(size=8)
        agg = make(g)
        steps(agg, x, in_place, lambda x: x - RANK)
        assert g is not None

    def own_gradient_is_given():
        g = draw.normal(size=8)
        agg = make(g)
        for _ in range(3):
            agg(g)
            g[:] = draw.normal(size=8)

    def zeros_that_gather_gradients():
        total = np.zeros(8)
        agg = make(total)
        for _ in range(3):
            total += draw.normal(size=8)
            agg(total / 2)

    def skipped_first():
        x = draw.normal(size=8)
        agg = Aggregator(METHOD, like=x, on_nonfinite="skip")
        agg(np.full(8, np.nan))
        steps(agg, x, in_place)

    for case in (
        wrong_in_place,
        wrong_by_name,
        wrong_anew,
        wrong_at,
        wrong_at_beside_an_array,
        skipped_first,
        started,
        started_by_name,
        shared_in_place,
        shared_anew,
        own_gradient,
        own_gradient_is_given,
        zeros_that_gather_gradients,
    ):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            said = None
            try:
                case()
            except mpicomp.ConfigError as error:
                said = str(error)
        assert len(set(MPI.COMM_WORLD.allgather(said))) == 1, case.__name__
        told[case.__name__] = [said, [str(w.message) for w in warned if RANK == 0]]
        assert RANK == 0 or not warned
    return told
