"""One rank of a job with an aggregator; what it does is named by the first argument.

Prints a line of JSON on rank 0, where it comes to its end.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

import mpicomp
from mpicomp import (
    DCGD,
    EF21,
    EF21P,
    EF21SGDM,
    MARINA,
    VRMARINA,
    Aggregator,
    ARCTopK,
    Descent,
    Dion,
    Identity,
    PowerSGD,
    RandK,
    TopK,
)
from mpicomp.compressors import Contractive
from mpicomp.transports.counters import prepare
from tests.loops.test_aggregator import IN_BLOCKS, ONE_OF_EACH, PROBLEM, TO_CUT, WORKERS, flat, tree
from tests.loops.test_overlap import ALONE
from tests.support import every_combination

prepare()  # for verify_bytes, before MPI is loaded
from mpi4py import MPI  # noqa: E402

RANK = MPI.COMM_WORLD.rank
METHOD = EF21SGDM(TopK(k=3), eta=0.3)


def fs(loop):
    return {i: PROBLEM.objective(i, loop.workers) for i in loop.hosted}


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


def own_communicator():
    """Two halves of the ranks, each with an aggregator of its own."""
    comm = MPI.COMM_WORLD.Split(RANK % 2)
    agg = Aggregator(METHOD, like=np.zeros(8), comm=comm)
    g = agg(np.full(8, float(RANK % 2) + 1))
    assert len(set(comm.allgather(g.tobytes()))) == 1 and agg.workers == comm.size
    return g.tolist()


def not_finite():
    """Rank 1 alone has a bad gradient: all ranks skip, and the estimates go on as if it had not been."""
    rng = np.random.default_rng(RANK)
    plain = Aggregator(METHOD, like=np.zeros(8), seed=1)
    skipping = Aggregator(METHOD, like=np.zeros(8), seed=1, on_nonfinite="skip")
    for step in range(4):
        good = rng.normal(size=8)
        bad = good * np.nan if RANK == 1 else good
        assert skipping(bad) is None
        try:
            plain(bad)
            raise AssertionError("a bad gradient was taken")
        except mpicomp.DivergedError as error:
            assert str(error) == "worker 1: the gradient is not finite."
        assert plain(good).tobytes() == skipping(good).tobytes(), step
    return skipping.skipped


def wrong_shape():
    agg = Aggregator(METHOD, like=np.zeros(8))
    for _ in range(2):
        agg(np.ones(8))
    agg(np.ones(9 if RANK == 1 else 8))


def other_method():
    Aggregator(EF21SGDM(TopK(k=3 + (RANK == 1)), eta=0.3), like=np.zeros(8))


@dataclass(frozen=True)
class Chosen(Contractive):
    """The coordinates where ``keep`` is true."""

    keep: np.ndarray

    def compress(self, x, key):
        return x[self.keep].view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out[self.keep] += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * int(self.keep.sum())

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def alpha(self, d, n):
        return 0.5


def other_array():
    """A long array in a compressor of one's own differs in an entry that numpy does not print."""
    keep = np.arange(5000) % 2 == 0
    keep[2000 + 2 * (RANK == 1)] = False
    agg = Aggregator(EF21(Chosen(keep)), like=np.zeros(keep.size))
    agg(np.ones(keep.size))


def other_like():
    Aggregator(METHOD, like=np.zeros(8 + (RANK == 1)))


def other_workers():
    Aggregator(METHOD, like=np.zeros(8), workers=4 + (RANK == 1))


def array_for_function():
    Aggregator(MARINA(RandK(k=2), p=0.3), like=np.zeros(8))(np.ones(8))


def once_more():
    """One rank makes a call more than the others, whose program ends."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    for _ in range(3 + (RANK == int(sys.argv[2]))):
        agg(np.ones(8))


def closes_early():
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 2:
        agg.close()
    else:
        agg(np.ones(8))


def goes_on_after_closing_early():
    """Rank 1 closes where the others call, and all catch the error: it is still open, and the job ends."""
    agg = Aggregator(DCGD(Identity("f8")), like=np.zeros(2))
    try:
        agg.close() if RANK == 1 else agg(np.ones(2))
    except mpicomp.MpicompError:
        return agg(np.full(2, float(RANK))).tolist()


def ends_mpi_first():
    """All ranks finalise MPI, and then call and close: both are refused, and the job ends in order."""
    agg, said = Aggregator(METHOD, like=np.zeros(8)), []
    MPI.Finalize()
    for call in (lambda: agg(np.ones(8)), agg.close):
        try:
            call()
        except mpicomp.ConfigError as error:
            said.append(str(error))
    return said


class NoCount(EF21):
    def paper_bits_down(self, broadcast, d, key):
        return -1


def counts_no_bits_down():
    """The server alone sees that the method gives no count: all ranks raise the error, in the next call."""
    agg, said = Aggregator(NoCount(TopK(k=1)), like=np.zeros(2)), []
    for _ in range(2):
        try:
            said.append(agg(np.ones(2)).tolist())
        except mpicomp.ConfigError as error:
            said.append(str(error))
    return MPI.COMM_WORLD.allgather(said)


def stays_away():
    """Rank 1 computes for ever: the others name it."""
    agg = Aggregator(METHOD, like=np.zeros(8), stall_timeout=1.0)
    agg(np.ones(8))
    if RANK == 1:
        time.sleep(100)
    agg(np.ones(8))


def different_calls(folder):
    """What is said where rank 0 makes one call and the others another; afterwards all goes on as before."""
    agg, same, other = (Aggregator(EF21(TopK(k=2)), like=np.zeros(d)) for d in (4, 4, 6))
    descent = Descent(EF21P(TopK(k=2), gamma=0.1), np.zeros(3))
    agg.save(folder)
    g = np.arange(4.0) + RANK
    pairs = {
        "another": (lambda: agg(g), lambda: other(np.ones(6))),
        "its like": (lambda: agg(g), lambda: same(g)),
        "Descent": (lambda: descent.step(np.ones(3)), lambda: agg(g)),
        "save": (lambda: agg.save(folder), lambda: agg(g)),
        "load": (lambda: agg(g), lambda: agg.load(folder)),
        "settle": (agg.settle, lambda: agg.save(folder)),
        "model": (descent.model, lambda: descent.step(np.ones(3))),
        "start": (lambda: agg.start(g), lambda: other.start(np.ones(6))),
        "made": (lambda: Aggregator(METHOD, like=np.zeros(3)), lambda: agg(g)),
        "run": (lambda: agg(g), lambda: mpicomp.run(mpicomp.GD(gamma=0.1), PROBLEM, workers=2, rounds=1)),
        "made before": (
            lambda: Aggregator(METHOD, like=np.zeros(3)),
            lambda: Aggregator(EF21(TopK(k=2)), like=np.zeros(3)),
        ),
        "of another class": (
            lambda: Aggregator(mpicomp.GD(gamma=0.1), like=np.zeros(3)),
            lambda: Descent(mpicomp.GD(gamma=0.1), np.zeros(3)),
        ),
    }
    told = {}
    for name, (first, second) in pairs.items():
        try:
            (first if RANK == 0 else second)()
        except mpicomp.MpicompError as error:
            told[name] = str(error)
        assert len(set(MPI.COMM_WORLD.allgather(told.get(name)))) == 1, name
    for step in range(3):
        assert agg(g + step).tobytes() == same(g + step).tobytes() and agg.steps == step + 1
    return told


def closes_another():
    agg, other = (Aggregator(METHOD, like=np.zeros(8)) for _ in range(2))
    other.close() if RANK == 0 else agg(np.ones(8))


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


def raises():
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 1:
        raise RuntimeError("the user's own error")
    agg(np.ones(8))


def function_raises():
    def gradient(x):
        if RANK == 1:
            raise RuntimeError("the user's own error")
        return x + 1

    Aggregator(METHOD, like=np.zeros(8))(gradient, at=np.zeros(8))


def goes_on_after_its_error(caught=KeyError):
    """Rank 1's function raises at the second point of step 2, when the others have sent, or wait."""
    agg = Aggregator(VRMARINA(Identity("f8"), batch=None, p=1e-9), like=np.zeros(8))
    for step in range(4):

        def gradient(x, step=step):
            if RANK == 1 and step == 2 and x[0] == 1:
                raise KeyError("label")
            return x + 1

        try:
            agg(gradient, at=np.full(8, float(step)))
        except caught:
            continue


def hides_all_errors():
    goes_on_after_its_error(Exception)


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


def before_all():
    """An error before the first collective call, where MPI is loaded."""
    MPI.COMM_WORLD.Barrier()
    if RANK == 1:
        raise RuntimeError("the user's own error")
    MPI.COMM_WORLD.Barrier()


def bad_option():
    """An option that one rank alone gives, and that is refused before the ranks are joined."""
    Aggregator(METHOD, like=np.zeros(8), on_nonfinite="stop" if RANK == 1 else "raise")


def wrapped_hook():
    """The program's own ``sys.excepthook`` calls the one before it, which is that of mpicomp."""
    before = sys.excepthook

    def logger(kind, error, trace):
        print(f"own logger: {error}", file=sys.stderr, flush=True)
        before(kind, error, trace)

    sys.excepthook = logger
    raises()


def own_hook():
    """The program's own ``sys.excepthook``, from before, still has its turn."""

    def logger(kind, error, trace):
        print(f"own logger: {error}", file=sys.stderr, flush=True)

    sys.excepthook = logger
    raises()


def finalized():
    """The program ends MPI itself, on all ranks, with an aggregator open."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    MPI.COMM_WORLD.Barrier()
    if RANK == 0:
        print(json.dumps(agg.steps), flush=True)
    MPI.Finalize()
    sys.exit()


def exits():
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 1:
        sys.exit(0)
    agg(np.ones(8))


def rank_dies():
    import os

    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 1:
        os._exit(3)
    agg(np.ones(8))


if __name__ == "__main__":
    told = globals()[sys.argv[1]](*sys.argv[2:] if sys.argv[1] != "once_more" else [])
    if RANK == 0:
        print(json.dumps(told))
