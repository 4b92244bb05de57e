"""A memory that decays, the mean over senders, and norms clipped at their median: SparseLoCo's options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp import (
    EFSGD,
    Aggregator,
    DoubleSqueeze,
    HardThreshold,
    Identity,
    Layered,
    Lossless,
    QuantizedTopK,
    TopK,
)
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import Dithering, Natural, RandK, Shrunk, Sign, TwoMeans
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.problems import Quadratics
from mpicomp.text.config import parse_method, to_text
from tests.reference.efsgd import clipped, sparseloco, top
from tests.support.running import interrupted, outcome, run
from tests.support.trajectories import (
    EIGHTH,
    PLACES,
    Entropy,
    assert_close,
    assert_equal,
    integers,
    start,
    trajectory,
)

WHOLE = Lossless("f8")
PROBLEM, N = PLACES[0]
PARTS = Parts((Part("a", (5,)), Part("b", (7,))))


# --- the transcription of SparseLoCo ---


@pytest.mark.parametrize("clip_norm", [False, True])
@pytest.mark.parametrize("average", ["mean", "senders"])
@pytest.mark.parametrize("beta", [1.0, 0.9, 0.0])
def test_local_steps_with_an_aggregator_are_sparseloco(beta, average, clip_norm):
    """Three inner steps a worker, then one message; two parts, and the outer step 0.7."""
    H, rounds, gradients = 3, 12, [PROBLEM.objective(i, N).grad for i in range(N)]

    def inner(i, t, theta):
        for h in range(H):
            theta = theta - 0.1 * (1 + (t + h) % 2) * gradients[i](theta)
        return theta

    method = EFSGD(TopK(3, values="f8"), gamma=1.0, decay=beta, average=average, clip_norm=clip_norm)
    theta, got = PROBLEM.x0(), [PROBLEM.x0()]
    tree = {"a": theta[:5], "b": theta[5:]}
    with Aggregator(replace(method, down=WHOLE), like=tree, workers=N) as agg:
        for t in range(rounds):
            delta = {i: theta - inner(i, t, theta) for i in range(N)}
            g = agg({i: {"a": one[:5], "b": one[5:]} for i, one in delta.items()})
            theta = theta - 0.7 * np.concatenate([g["a"], g["b"]])
            got.append(theta)
    clips = [slice(0, 5), slice(5, 12)] if clip_norm else None
    wanted = sparseloco(N, inner, PROBLEM.x0(), 0.7, beta, 3, rounds, average == "senders", clips)
    assert_close(got, wanted, 1e-12)


# --- decay ---


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("C", [TopK(3, values="f8"), HardThreshold(2.0, values="f8"), Sign("f8")], ids=repr)
def test_the_virtual_iterate_of_a_decaying_memory(C, beta):
    """v = x - γ mean e moves by -γ mean s + γ (1 - β) mean e, to rounding; so does DoubleSqueeze's."""
    problem = integers(4, 8)
    for method in (
        EFSGD(C, gamma=EIGHTH, decay=beta, down=WHOLE),
        DoubleSqueeze(C, TopK(2, "f8"), EIGHTH, decay=beta),
    ):
        loop = start(method, problem, 4)
        owed = loop.server.e if isinstance(method, DoubleSqueeze) else 0.0
        for k in range(8):
            e = np.mean([w.e for w in loop.workers.values()], axis=0)
            v, x = loop.x - EIGHTH * (e + owed), loop.x.copy()
            loop.step(k)
            s = np.mean([problem.objective(i, 4).grad(x) for i in range(4)], axis=0)
            owed = loop.server.e if isinstance(method, DoubleSqueeze) else 0.0
            after = loop.x - EIGHTH * (np.mean([w.e for w in loop.workers.values()], axis=0) + owed)
            scale = max(np.abs(x).max(), EIGHTH * np.abs(s).max(), np.abs(after).max())
            assert np.abs(after - (v - EIGHTH * s + EIGHTH * (1 - beta) * e)).max() <= 1e-14 * scale
            assert k == 0 or beta == 1 or np.abs((1 - beta) * e).max() > 1e-3


def test_without_memory_it_is_compressed_descent():
    """Exact: with β = 0 nothing of the memory is sent."""
    problem, C = integers(4, 8), TopK(3, values="f8")
    loop = start(EFSGD(C, gamma=EIGHTH, decay=0.0, down=WHOLE), problem, 4)
    x = problem.x0()
    for k in range(6):
        sent = [
            C.decompress(C.compress(problem.objective(i, 4).grad(x), Key(0, k, i, 4)), 8, Key(0, k, i, 4))
            for i in range(4)
        ]
        x = x - EIGHTH * np.mean(sent, axis=0)
        loop.step(k)
        assert np.array_equal(loop.x, x)


# --- the mean over senders ---


def averaged(method, vectors: np.ndarray, parts: Parts | None = None) -> np.ndarray:
    """What the server of ``method`` makes of the workers' vectors."""
    n, d = vectors.shape
    method, key = method.bound(parts or Parts.single(d)), Key(0, 3, None, n)
    replica = method.replica(np.zeros(d))
    step = method.server_step(None, replica, key)
    for i, x in enumerate(vectors):
        message = method.C.compress(x, key.of(i))
        step.take(key.of(i), Message(message))
        message[:] = 0  # a message need be valid only while it is taken
    out = np.zeros(d)
    method.down.decompress_add(step.close().m, out, key)
    return out


def both(C, vectors: np.ndarray) -> list[np.ndarray]:
    return [averaged(EFSGD(C, gamma=1.0, average=a, down=WHOLE), vectors) for a in ("mean", "senders")]


def test_of_disjoint_supports_the_mean_over_senders_is_n_times_the_mean():
    """Exact."""
    vectors = np.zeros((4, 12))
    for i in range(4):
        vectors[i, 3 * i : 3 * i + 3] = np.arange(1, 4) * (1 + i)
    mean, senders = both(TopK(3, values="f8"), vectors)
    assert np.array_equal(senders, 4 * mean) and np.array_equal(senders, vectors.sum(axis=0))


def test_of_equal_supports_and_of_one_worker_it_is_the_mean():
    """Exact."""
    vectors = np.random.default_rng(3).integers(1, 9, (4, 12)) * (np.arange(12) % 3 == 1)
    mean, senders = both(TopK(4, values="f8"), vectors.astype(float))
    assert np.array_equal(mean, senders) and mean.any()
    mean, senders = both(TopK(2, values="f8"), vectors[:1].astype(float))
    assert np.array_equal(mean, senders) and mean.any()
    loops = [start(EFSGD(TopK(3), gamma=EIGHTH, average=a), Entropy(), 1) for a in ("mean", "senders")]
    assert_equal(*[trajectory(loop, 20) for loop in loops])


def test_a_zero_that_was_sent_counts():
    """Worker 1 sends (0, 8): TopK(2) has to fill its two places."""
    vectors = np.array([[4.0, 6.0, 0.0], [0.0, 8.0, 0.0]])
    assert both(TopK(2, values="f8"), vectors)[1].tolist() == [2.0, 7.0, 0.0]
    assert both(HardThreshold(1.0, values="f8"), vectors)[1].tolist() == [4.0, 7.0, 0.0]


CHOOSING = [
    TopK(3),
    QuantizedTopK(4, TwoMeans()),
    QuantizedTopK(4, Natural()),
    HardThreshold(0.5),
    Shrunk(RandK(4)),
    Layered({"b": TopK(2)}, Identity()),
]


@pytest.mark.parametrize("C", CHOOSING, ids=repr)
def test_each_coordinate_is_divided_by_the_number_of_its_senders(C):
    """Exact, by ``coordinates`` and ``decompress`` worker by worker."""
    rng = np.random.default_rng(8)
    vectors = rng.normal(size=(5, 12))
    C = C.bound(PARTS)
    total, counts = np.zeros(12), np.zeros(12)
    for i, x in enumerate(vectors):
        key = Key(0, 3, i, 5)
        message = C.compress(x, key)
        C.decompress_add(message, total, key)
        for where in C.coordinates(message, 12, key):
            counts[where] += 1
    got = averaged(EFSGD(C, gamma=1.0, average="senders", down=WHOLE), vectors, PARTS)
    assert np.array_equal(got, total / np.maximum(counts, 1)) and counts.max() > 1


# --- clipped norms ---


def test_norms_are_clipped_at_their_median_in_each_part():
    """By hand: norms 5, 10, 20 in part a; 1, 1, 8 in part b.  With one part they are those of the whole."""
    a, b = np.array([3.0, 4, 0, 0, 0]), np.array([1.0, 0, 0, 0, 0, 0, 0])
    vectors = np.array([np.r_[u * a, v * b] for u, v in ((1, 1), (2, 1), (4, 8))])
    method = EFSGD(Identity("f8"), gamma=1.0, clip_norm=True, down=WHOLE)
    wanted = np.r_[(1 + 2 + 2) * a, 3 * b] / 3
    np.testing.assert_allclose(averaged(method, vectors, PARTS), wanted, rtol=1e-15)
    norms = np.linalg.norm(vectors, axis=1)
    wanted = np.mean(vectors * np.minimum(1, np.median(norms) / norms)[:, None], axis=0)
    np.testing.assert_allclose(averaged(method, vectors), wanted, rtol=1e-15)


@pytest.mark.parametrize(
    ("lengths", "bound"), [((1, 9), 1), ((8, 1, 4, 2), 2), ((3, 1, 3, 9), 3), ((4, 1, 2), 2)]
)
def test_of_an_even_number_of_norms_the_median_is_the_smaller_of_the_middle_two(lengths, bound):
    """As torch has it, and the authors' programs.  It was the mean of the two: 5 of 1 and 9."""
    x = np.array([0.0, 3, 4, 0]) / 5
    method = EFSGD(Identity("f8"), gamma=1.0, clip_norm=True, down=WHOLE)
    wanted = np.mean([min(length, bound) for length in lengths]) * x
    got = averaged(method, np.array([length * x for length in lengths]))
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


def test_in_a_block_the_norms_are_those_of_its_parts():
    """Two blocks of six: part a and the first entry of b, then the rest of b."""
    vectors = np.random.default_rng(5).integers(-9, 10, (3, 12)).astype(float)
    method = EFSGD(Identity("f8"), gamma=1.0, clip_norm=True, down=WHOLE).bound(PARTS)
    blocks, wanted = (
        Blocks.cut(PARTS, 2),
        np.mean(clipped([*vectors], [slice(0, 5), slice(5, 6), slice(6, 12)]), axis=0),
    )
    assert blocks.slices(12) == [slice(0, 6), slice(6, 12)]
    key, got = Key(0, 3, None, 3), np.zeros(12)
    for b, where in enumerate(blocks.slices(12)):
        served = method.in_blocks(blocks).of_block(b)
        step = served.server_step(None, served.replica(np.zeros(6)), key)
        for i, x in enumerate(vectors[:, where]):
            step.take(key.of(i), Message(served.C.compress(x, key.of(i))))
        served.down.decompress_add(step.close().m, got[where], key)
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


def test_equal_norms_are_not_clipped_and_zeros_divide_nothing():
    """Exact."""
    vectors = np.random.default_rng(1).permuted(np.tile(np.arange(-5.0, 7), (4, 1)), axis=1)
    C = TopK(3)
    plain, bounded = (averaged(EFSGD(C, gamma=1.0, clip_norm=c, down=WHOLE), vectors) for c in (False, True))
    assert np.array_equal(plain, bounded) and plain.any()
    assert not averaged(EFSGD(TopK(3), gamma=1.0, clip_norm=True), np.zeros((4, 12))).any()
    vectors[1:] = 0
    assert not averaged(EFSGD(TopK(3), gamma=1.0, clip_norm=True), vectors).any()  # the median is 0


def test_one_loud_worker_moves_the_mean_no_further_than_the_others():
    vectors = np.random.default_rng(2).normal(size=(5, 12))
    quiet = EFSGD(Identity("f8"), gamma=1.0, clip_norm=True, down=WHOLE)
    loud = vectors * np.array([[1e9], [1], [1], [1], [1]])
    assert np.linalg.norm(averaged(quiet, loud)) <= np.linalg.norm(vectors, axis=1).max()


def test_in_blocks_transcribed():
    """One coordinate of each of three blocks of ten, and norms clipped in each block."""
    problem, n, beta = Quadratics(d=30, noise=0.3, lam=0.1), 5, 0.9
    blocks = [slice(0, 10), slice(10, 20), slice(20, 30)]
    method = EFSGD(TopK(1, "f8"), gamma=0.1, decay=beta, average="senders", clip_norm=True, down=WHOLE)
    run = mpicomp.run(method, problem, workers=n, rounds=15, server="sharded", blocks=3)
    x, errors = problem.x0(), np.zeros((n, 30))
    for _ in range(15):
        messages, counts = np.zeros((n, 30)), np.zeros(30)
        for i in range(n):
            p = beta * errors[i] + problem.objective(i, n).grad(x)
            for block in blocks:
                messages[i, block], kept = top(p[block], 1)
                counts[block.start + kept] += 1
            errors[i] = p - messages[i]
        x = x - 0.1 * np.sum(clipped([*messages], blocks), axis=0) / np.maximum(counts, 1)
    np.testing.assert_allclose(run.x, x, rtol=0, atol=1e-12 * np.abs(x).max())
    assert counts.max() > 1 and np.abs(x - problem.x0()).max() > 0.1


OPTIONS = {"decay": 0.9, "average": "senders", "clip_norm": True, "gamma": 0.05}


@pytest.mark.parametrize(
    "method", [EFSGD(TopK(2), **OPTIONS), DoubleSqueeze(TopK(2), TopK(3), **OPTIONS)], ids=repr
)
def test_resumed_runs_are_the_uninterrupted_one(method, tmp_path):
    whole = run(method, rounds=40)
    interrupted(17, method, out=tmp_path / "run", checkpoint_every=3)
    assert outcome(run(method, out=tmp_path / "run", resume=True, checkpoint_every=3)) == outcome(whole)
    assert parse_method(to_text(method)) == method


# --- what is refused ---


@pytest.mark.parametrize("cls", [EFSGD, DoubleSqueeze])
def test_what_is_refused(cls):
    rest = {} if cls is EFSGD else {"down": TopK(3)}
    for decay in (-0.1, 1.1, float("nan"), "x", True, None):
        with pytest.raises(ConfigError, match=r"decay=.*allowed: a number from 0 to 1"):
            cls(TopK(3), decay=decay, **rest)
    for average in ("median", 1, None):
        with pytest.raises(ConfigError, match=r"average=.*'mean', 'senders'"):
            cls(TopK(3), average=average, **rest)
    for switch in (1, "yes", None):
        with pytest.raises(ConfigError, match=r"clip_norm=.*True or False"):
            cls(TopK(3), clip_norm=switch, **rest)
    for C in (Sign(), Shrunk(Dithering(3)), Layered({"*": Sign()}), Lossless()):
        with pytest.raises(ConfigError, match=r"average='senders' with C=.*TopK\(k=0\.01\)"):
            cls(C, average="senders", **rest)
    for option in ({"decay": 0.9}, {"average": "senders"}, {"clip_norm": True}):
        with pytest.raises(ConfigError, match=rf"no theory step size with {next(iter(option))}=.*gamma"):
            mpicomp.run(cls(TopK(3), **option, **rest), PROBLEM, workers=N, rounds=1)


def test_an_allreduce_sums_and_so_refuses_other_means():
    whole = Identity()
    assert mpicomp.run(
        EFSGD(whole, gamma=0.1, decay=0.5), PROBLEM, workers=N, rounds=2, server="allreduce"
    ).x.any()
    for option in ({"average": "senders"}, {"clip_norm": True}):
        with pytest.raises(ConfigError, match=r"allreduce"):
            mpicomp.run(EFSGD(whole, gamma=0.1, **option), PROBLEM, workers=N, rounds=2, server="allreduce")


@pytest.mark.parametrize("option", [{"average": "senders"}, {"clip_norm": True}], ids=str)
def test_a_bad_message_is_refused_when_it_is_taken(option):
    method = EFSGD(TopK(3), gamma=1.0, **option).bound(Parts.single(100))
    key = Key(0, 0, None, 2)
    step = method.server_step(None, method.replica(np.zeros(100)), key)
    message = TopK(3).compress(np.arange(100.0), key.of(0))
    step.take(key.of(0), Message(message))
    for bad in (message[:-1], np.full(len(message), 255, np.uint8)):
        with pytest.raises(MessageError):
            step.take(key.of(1), Message(bad))
