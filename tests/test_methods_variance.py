"""Methods on batches and with sampled workers: VR-MARINA, PP-MARINA, VR-DIANA, DASHA-PAGE, DASHA-MVR.

Tolerances are those of test_methods.py; what is marked "exact" holds bit for bit.

Correspondence of rounds.  Messages, coins, batches and clients of round k are drawn with ``Key(seed, k, i,
n)``.  VR-MARINA and PP-MARINA form g^k in round k and number by it, as MARINA does; DASHA-PAGE and DASHA-MVR
leave out the first step of their transcriptions, which goes nowhere, as DASHA does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.compressors import (
    HardThreshold,
    Identity,
    Natural,
    PermK,
    Quantized,
    RandK,
    Shrunk,
    Sign,
    TopK,
)
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods import DASHA, DASHAMVR, DASHAPAGE, DCGD, DIANA, MARINA, PPMARINA, VRDIANA, VRMARINA
from mpicomp.methods.stochastic import batch_size
from mpicomp.problems import Logistic, Noisy, NonconvexGLM, NonconvexLogistic, Problem, Quadratics
from mpicomp.problems.base import FiniteSum
from mpicomp.transports.local import Local
from tests.reference.dashamvr import dashamvr
from tests.reference.dashapage import dashapage
from tests.reference.dcgd import dcgd
from tests.reference.diana import diana
from tests.reference.ppmarina import ppmarina
from tests.reference.vrdiana import vrdiana
from tests.reference.vrmarina import page, vrmarina
from tests.trajectories import (
    EIGHTH,
    HAND,
    L_TILDE,
    ROUNDS,
    Square,
    Squares,
    assert_close,
    assert_equal,
    codec,
    grad_norm_sq,
    gradients,
    integers,
    mean_gradient,
    objective_value,
    resolved,
    rounding,
    start,
    top,
    trajectory,
)

WHOLE = Identity("f8")
rng = np.random.default_rng


# --- a problem with samples ---


@dataclass(frozen=True, eq=False)
class SquareSum(FiniteSum):
    """The mean of x'A_j x/2 - b_j'x over the samples j."""

    A: np.ndarray
    b: np.ndarray

    @property
    def samples(self):
        return len(self.A)

    def part(self, rows):
        return Square(self.A[rows].mean(axis=0), self.b[rows].mean(axis=0))

    def value(self, x):
        return self.part(slice(None)).value(x)

    def grad(self, x):
        return self.part(slice(None)).grad(x)


@dataclass(frozen=True, eq=False)
class SquareSums(Problem):
    """Quadratics with matrices of shape (n, m, d, d), vectors (n, m, d) and a start (d,)."""

    A: np.ndarray = field(repr=False)
    b: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)

    def dimension(self):
        return self.start.size

    def objective(self, i, n):
        assert n == len(self.A)
        return SquareSum(self.A[i], self.b[i])

    def x0(self):
        return self.start.copy()

    @property
    def means(self):
        """The same problem without its samples."""
        return Squares(self.A.mean(axis=1), self.b.mean(axis=1), self.start)

    @property
    def x_star(self):
        return self.means.x_star

    def constants(self, n):
        return replace(
            self.means.constants(n),
            L_sample=sqrt(top((self.A @ self.A).mean(axis=(0, 1)))),
            L_ij=max(top(A) for shard in self.A for A in shard),
            samples=self.A.shape[1],
        )


@dataclass(frozen=True, eq=False)
class NotKnownConvex(SquareSums):
    """The same with mu unknown, for step sizes that do not assume convexity."""

    def constants(self, n):
        return replace(super().constants(n), mu=None)


def sums(n: int, m: int, d: int, seed: int = 0) -> SquareSums:
    """Random convex quadratics, different for every sample, with different optima."""
    draw = rng(seed)
    factors = draw.normal(size=(n, m, d, d)) / sqrt(d)
    A = factors @ factors.swapaxes(-1, -2) + 0.5 * np.eye(d)
    return SquareSums(A, draw.normal(size=(n, m, d)), 3 * draw.normal(size=d))


def integer_sums(n: int, m: int, d: int) -> SquareSums:
    """Integer data, and workers' means that are integer as well; n and m are powers of two."""
    base = integers(n, d)
    noise = np.triu(rng(6).integers(-1, 2, (n, m // 2, d, d)))
    noise = noise + noise.swapaxes(-1, -2)
    shifts = rng(7).integers(-2, 3, (n, m // 2, d))
    A = base.A[:, None] + np.concatenate([noise, -noise], axis=1)
    b = base.b[:, None] + np.concatenate([shifts, -shifts], axis=1)
    return SquareSums(A, b, base.start)


def batches(problem: SquareSums, seed: int, b: int | float):
    """The mean gradient at x of worker i's samples of round k, as the method is to draw them."""
    n, m = problem.A.shape[:2]
    count = batch_size(b, m)

    def batch(i, k, x):
        rows = Key(seed, k, i, n).private("batch").permutation(m, 0, count)
        return np.mean([problem.A[i, j] @ x - problem.b[i, j] for j in rows], axis=0)

    return batch


def in_turn(batch, n: int) -> list:
    """``batch`` for transcriptions that ask each worker once a round, and know no round number."""
    asked: Counter[int] = Counter()

    def gradient(i):
        def grad(x):
            asked[i] += 1
            return batch(i, asked[i] - 1, x)

        return grad

    return [gradient(i) for i in range(n)]


def coins(tag: str, seed: int, n: int, p: float):
    def coin(k):
        return Key(seed, k, None, n).shared(tag).coin(p)

    assert 3 < sum(coin(k) for k in range(1, ROUNDS)) < ROUNDS / 2  # both kinds of round occur
    return coin


PLACES = [sums(4, 6, 12), sums(5, 4, 13), sums(9, 3, 4)]
UPLINKS = [
    RandK(3, values="f8"),
    PermK(values="f8"),
    Natural(values="f8"),
    WHOLE,
    RandK(3),
    Natural(),
]
every_place = pytest.mark.parametrize("problem", PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
every_uplink = pytest.mark.parametrize("Q", UPLINKS, ids=repr)
every_batch = pytest.mark.parametrize("b", [1, 2, 0.5])
# Every compressor in one place; one sample, two, and half of them.
CASES = [(PLACES[0], Q, 2) for Q in UPLINKS]
CASES += [(place, Q, b) for place, b in zip(PLACES[1:], (1, 0.5), strict=True) for Q in UPLINKS[:2]]


def shown(v):
    return f"n{len(v.A)}" if isinstance(v, SquareSums) else repr(v)


every_case = pytest.mark.parametrize(("problem", "Q", "b"), CASES, ids=shown)


def workers(problem: SquareSums) -> int:
    return len(problem.A)


def dense_for(Q) -> Identity:
    """Dense messages in f8, or in f4 where Q's are."""
    return Identity("f8" if rounding(Q) == 1e-12 else "f4")


def through(C, seed: int, n: int, gradient):
    """``gradient(i, k, x)`` as it arrives."""
    arrives = codec(C, seed, n)
    return lambda i, k, x: arrives(i, k, gradient(i, k, x))


def whole_of(problem):
    grads = gradients(problem, workers(problem))
    return lambda i, k, x: grads[i](x)


# --- the transcriptions ---


@every_case
@pytest.mark.parametrize("online", [False, True], ids=["finite", "online"])
def test_vrmarina_is_its_transcription(problem, Q, b, online):
    """Sections 4.2 and 4.3: dense rounds, the first among them, send full gradients or 3 fresh samples."""
    n, sync = workers(problem), dense_for(Q)
    method = VRMARINA(Q, b, gamma="theory*2", p=0.2, sync_batch=3 if online else None, sync=sync)
    loop = start(method, problem, n, seed=41)
    wanted = vrmarina(
        n,
        through(sync, 41, n, batches(problem, 41, 3) if online else whole_of(problem)),
        batches(problem, 41, b),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 41, n),
        coins("marina/coin", 41, n, 0.2),
        ROUNDS,
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


@pytest.mark.parametrize("r", [3, 0.3])
@pytest.mark.parametrize(("problem", "Q"), [case[:2] for case in CASES], ids=shown)
def test_ppmarina_is_its_transcription(problem, Q, r):
    """Section 4.4, clients drawn without replacement."""
    n, sync = workers(problem), dense_for(Q)
    loop = start(PPMARINA(Q, r, p=0.2, sync=sync), problem, n, seed=42)
    count = r if r >= 1 else round(r * n)

    def clients(k):
        drawn = Key(42, k, None, n).shared("ppmarina/clients").permutation(n, 0, count).tolist()
        assert len(set(drawn)) == count
        return sorted(drawn)

    dense = codec(sync, 42, n)
    wanted = ppmarina(
        gradients(problem, n),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 42, n),
        coins("marina/coin", 42, n, 0.2),
        clients,
        ROUNDS,
        lambda i, v: dense(i, 0, v),
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


@every_case
def test_vrdiana_is_its_transcription(problem, Q, b):
    """Section 2.3, both x and the reference point w, which moves to x before the step."""
    n = workers(problem)
    loop = start(VRDIANA(Q, b, gamma="theory*4", p=0.2), problem, n, seed=43)
    iterates, references = vrdiana(
        gradients(problem, n),
        batches(problem, 43, b),
        problem.x0(),
        loop.method.gamma,
        loop.method.alpha,
        codec(Q, 43, n),
        coins("vrdiana/coin", 43, n, 0.2),
        ROUNDS,
    )
    assert_close(trajectory(loop, ROUNDS), iterates, rounding(Q))
    assert np.abs(loop.replica.w - references[-1]).max() <= rounding(Q) * np.abs(references).max()


@every_case
@pytest.mark.parametrize("a", [None, 0.3])
def test_dashapage_is_its_transcription(problem, Q, b, a):
    """Section 4.6 with the PAGE estimator."""
    n = workers(problem)
    loop = start(DASHAPAGE(Q, b, gamma="theory*8", p=0.2, a=a), problem, n, seed=44)
    wanted = dashapage(
        gradients(problem, n),
        batches(problem, 44, b),
        problem.x0(),
        loop.method.gamma,
        loop.method.a,
        codec(Q, 44, n),
        coins("dasha/coin", 44, n, 0.2),
        ROUNDS + 1,
    )
    assert np.array_equal(wanted[0], wanted[1])
    assert_close(trajectory(loop, ROUNDS), wanted[1:], rounding(Q))


@every_case
@pytest.mark.parametrize("a", [None, 0.3])
def test_dashamvr_is_its_transcription(problem, Q, b, a):
    """Section 4.6 with the MVR estimator."""
    n = workers(problem)
    loop = start(DASHAMVR(Q, b, b=0.4, gamma="theory*8", a=a), problem, n, seed=45)
    gamma, batch, compress = loop.method.gamma, batches(problem, 45, b), codec(Q, 45, n)
    wanted = dashamvr(n, batch, problem.x0(), gamma, loop.method.a, 0.4, compress, ROUNDS + 1)
    assert np.array_equal(wanted[0], wanted[1])
    assert_close(trajectory(loop, ROUNDS), wanted[1:], rounding(Q))


@every_case
def test_dcgd_and_diana_on_batches_are_their_transcriptions(problem, Q, b):
    """Sections 2.1 (QSGD) and 2.2 with a batch's gradient for grad f_i; one gradient a worker and round."""
    n = workers(problem)
    batch, compress = batches(problem, 46, b), codec(Q, 46, n)
    loop = start(DCGD(Q, batch=b), problem, n, seed=46)
    wanted = dcgd(in_turn(batch, n), problem.x0(), loop.method.gamma, compress, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
    loop = start(DIANA(Q, batch=b), problem, n, seed=46)
    gamma, alpha = loop.method.gamma, loop.method.alpha
    wanted = diana(in_turn(batch, n), problem.x0(), gamma, alpha, compress, ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))


# --- what they are in special cases ---


def same_run(a, b, problem: Problem, n: int, rounds: int = 12) -> bool:
    """Whether two methods give the same iterates and bytes, bit for bit."""
    runs = [mpicomp.run(m, problem, workers=n, rounds=rounds, transport=Local(n), seed=5) for m in (a, b)]
    books = [(r.ledger.up.tolist(), r.ledger.down.tolist()) for r in runs]
    return runs[0].iterates_sha256 == runs[1].iterates_sha256 and books[0] == books[1]


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
@pytest.mark.parametrize("b", [None, "m"])
def test_vrmarina_with_whole_batches_is_marina(problem, Q, b):
    """Exact.  Section 4.2: b' = m, the samples in their order."""
    n, m = problem.A.shape[:2]
    options = {"gamma": 0.1, "p": 0.2}
    assert same_run(VRMARINA(Q, m if b else None, **options), MARINA(Q, **options), problem, n)
    assert same_run(VRMARINA(Q, m, sync_batch=m, **options), MARINA(Q, **options), problem, n)
    assert not same_run(VRMARINA(Q, m - 1, **options), MARINA(Q, **options), problem, n)


@every_place
@every_batch
def test_vrmarina_and_dashapage_without_compression_are_page(problem, b):
    """Section 4.2: identity and any batch => PAGE, on what all workers draw; so is DASHA-PAGE."""
    n = workers(problem)
    local = batches(problem, 47, b)
    for method, tag in [
        (VRMARINA(WHOLE, b, gamma=0.1, p=0.2, sync=WHOLE), "marina/coin"),
        (DASHAPAGE(WHOLE, b, gamma=0.1, p=0.2), "dasha/coin"),
    ]:
        wanted = page(
            lambda x: mean_gradient(problem, n, x),
            lambda k, x: np.mean([local(i, k, x) for i in range(n)], axis=0),
            problem.x0(),
            0.1,
            coins(tag, 47, n, 0.2),
            ROUNDS,
        )
        assert_close(trajectory(start(method, problem, n, seed=47), ROUNDS), wanted, 1e-12)


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_ppmarina_with_all_clients_is_marina(problem, Q):
    """Exact, and at the same number of gradients.  Section 4.4: r = n without replacement."""
    n = workers(problem)
    marina = MARINA(Q, p=0.2)
    for r in (n, None):
        assert same_run(PPMARINA(Q, r, p=0.2), marina, problem, n)
        assert same_run(PPMARINA(Q, r), MARINA(Q), problem, n)
    assert not same_run(PPMARINA(Q, n - 1, p=0.2), marina, problem, n)
    loops = [start(method, problem, n) for method in (PPMARINA(Q, n, p=0.2), marina)]
    for loop in loops:
        trajectory(loop, 20)
    assert [f.meter.epochs for loop in loops for f in loop.objectives.values()] == [20.0] * (2 * n)


def test_vrdiana_with_whole_batches_is_diana():
    """Exact.  Section 2.3: m = b'; whatever w is, its gradients cancel."""
    problem, n, m = integer_sums(4, 4, 8), 4, 4
    wanted = trajectory(start(DIANA(RandK(4, values="f8"), gamma=EIGHTH), problem, n), 7)
    for batch in (m, None):
        for p in (0.3, 1.0):
            method = VRDIANA(RandK(4, values="f8"), batch, gamma=EIGHTH, p=p)
            assert_equal(trajectory(start(method, problem, n), 7), wanted)
    method = VRDIANA(RandK(4, values="f8"), 2, gamma=EIGHTH, p=0.3)
    assert not np.array_equal(trajectory(start(method, problem, n), 7), wanted)


@every_case
def test_vrdiana_at_its_reference_point_sends_the_whole_gradient(problem, Q, b):
    """Exact.  Section 2.3: at x = w, as in round 0, the estimate equals grad f_i(w) for any batch."""
    n = workers(problem)
    loops = [start(method, problem, n, 3) for method in (VRDIANA(Q, b, gamma=0.1), DIANA(Q, gamma=0.1))]
    for loop in loops:
        loop.step(0)
    assert np.array_equal(loops[0].replica.x, loops[1].replica.x)
    assert loops[0].replica.h.any()
    for one, other in zip(*(loop.workers.values() for loop in loops), strict=True):
        assert np.array_equal(one.h, other.h)


@every_place
@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_dashapage_that_never_samples_is_dasha(problem, Q):
    """Exact.  p = 1."""
    n = workers(problem)
    assert same_run(DASHAPAGE(Q, 2, gamma=0.1, p=1.0), DASHA(Q, gamma=0.1), problem, n)
    assert not same_run(DASHAPAGE(Q, 2, gamma=0.1, p=0.5), DASHA(Q, gamma=0.1), problem, n)


@pytest.mark.parametrize("batch", [4, None])
def test_dasha_with_whole_batches_keeps_the_gradients(batch):
    """Exact.  PAGE's h_i + grad f_i(x+) - grad f_i(x) and MVR's, for any b, are grad f_i(x+) itself."""
    problem, n, Q = integer_sums(4, 4, 8), 4, RandK(4, values="f8")
    wanted = trajectory(start(DASHA(Q, gamma=EIGHTH, a=0.5), problem, n), 6)
    for method in (
        DASHAPAGE(Q, batch, gamma=EIGHTH, p=0.1, a=0.5),
        DASHAMVR(Q, batch, b=0.25, gamma=EIGHTH, a=0.5),
    ):
        assert_equal(trajectory(start(method, problem, n), 6), wanted)


@pytest.mark.parametrize("batch", [1, 2])
def test_dashamvr_that_keeps_nothing_is_sgd(batch):
    """Exact.  b = 1 and identity (omega = 0, a = 1) => x+ = x - gamma mean s_i(x), QSGD uncompressed."""
    problem, n = integer_sums(4, 4, 8), 4
    wanted = trajectory(start(DCGD(WHOLE, gamma=EIGHTH, batch=batch), problem, n), 6)
    method = DASHAMVR(WHOLE, batch, b=1.0, gamma=EIGHTH)
    assert_equal(trajectory(start(method, problem, n), 6), wanted)


# --- invariants ---


@pytest.mark.parametrize("Q", [RandK(4, values="f8"), PermK(values="f8")], ids=repr)
def test_shifts_and_estimates_keep_their_means(Q):
    """Exact, in every round.  Sections 2.3 (h = mean h_i) and 4.6 (g = mean g_i)."""
    problem, n = integer_sums(4, 4, 8), 4
    for method, name in [
        (VRDIANA(Q, 2, gamma=EIGHTH, p=0.5), "h"),
        (DASHAPAGE(Q, 2, gamma=EIGHTH, p=0.5, a=0.5), "g"),
        (DASHAMVR(Q, 2, b=0.5, gamma=EIGHTH, a=0.5), "g"),
    ]:
        loop = start(method, problem, n)
        for k in range(6):
            loop.step(k)
            mean = np.mean([getattr(w, name) for w in loop.workers.values()], axis=0)
            assert mean.any() and np.array_equal(getattr(loop.replica, name), mean)


def test_after_a_dense_round_the_estimate_is_the_gradient():
    """Exact.  Section 4.1: after c = 1, g = grad f(x); not after c = 0, on batches or from some clients."""
    problem, n = integer_sums(4, 4, 8), 4
    for method in (
        VRMARINA(WHOLE, 2, gamma=EIGHTH, p=0.4, sync=WHOLE),
        PPMARINA(WHOLE, 2, gamma=EIGHTH, p=0.4, sync=WHOLE),
    ):
        loop = start(method, problem, n, seed=8)
        exact = []
        for k in range(8):
            x = loop.replica.x.copy()
            loop.step(k)
            assert np.array_equal(loop.replica.previous, x)
            exact.append(np.array_equal(loop.replica.g, mean_gradient(problem, n, x)))
        dense = [k == 0 or Key(8, k, None, n).shared("marina/coin").coin(0.4) for k in range(8)]
        assert exact == dense and 1 < sum(dense) < 8


def test_the_reference_point_is_an_iterate_before_its_step():
    """Exact.  Section 2.3: with u^k = 1, w^{k+1} = x^k, else w^k; and each worker knows grad f_i(w)."""
    problem, n = PLACES[0], 4
    loop = start(VRDIANA(RandK(3), 2, gamma=0.05, p=0.3), problem, n, seed=9)
    w = problem.x0()
    for k in range(ROUNDS):
        x = loop.replica.x.copy()
        loop.step(k)
        for i, worker in loop.workers.items():
            assert np.array_equal(worker.gradient, problem.objective(i, n).grad(w))
        if Key(9, k, None, n).shared("vrdiana/coin").coin(0.3):
            w = x
        assert np.array_equal(loop.replica.w, w)
    assert not np.array_equal(w, problem.x0())


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural()], ids=repr)
def test_the_optimum_is_a_fixed_point(Q):
    """Exact, for ever: with the shifts of x* all messages are C(0) = 0, whatever the batches."""
    problem, n = integer_sums(4, 4, 8), 4
    shift = problem.A.mean(axis=(0, 1)) @ problem.start - problem.b.mean(axis=(0, 1))
    problem = replace(problem, b=problem.b + shift)
    assert not mean_gradient(problem, n, problem.start).any()
    for method in (VRDIANA(Q, 1, p=0.3), DASHAPAGE(Q, 1, p=0.3)):
        loop = start(method, problem, n)
        for i, w in loop.workers.items():
            w.h[:] = problem.objective(i, n).grad(problem.start)
            assert w.h.any()
            if isinstance(method, DASHAPAGE):
                w.g[:] = w.h
        for x in trajectory(loop, 30):
            assert np.array_equal(x, problem.start)


# --- partial participation ---


@pytest.mark.parametrize("r", [1, 3, 0.5])
def test_workers_that_are_not_drawn_compute_and_send_nothing(r):
    """Section 4.4, seen from outside: the ledger and the gradients asked for, round by round."""
    problem, n, d = PLACES[1], 5, 13
    method = PPMARINA(RandK(4), r, gamma=0.05, p=0.2)
    loop = start(method, problem, n, seed=10)
    count = r if r >= 1 else round(r * n)
    drawn, dense, before = Counter(), 0, set(range(n))
    for k in range(60):
        sent, asked = loop.ledger.up.copy(), [f.meter.epochs for f in loop.objectives.values()]
        loop.step(k)
        sent = (loop.ledger.up - sent).tolist()
        asked = [f.meter.epochs - was for f, was in zip(loop.objectives.values(), asked, strict=True)]
        if sent == [d * 4] * n:  # a dense round asks everyone
            assert asked == [1.0] * n
            dense, before = dense + 1, set(range(n))
            continue
        clients = {i for i in range(n) if sent[i]}
        assert len(clients) == count and all(sent[i] == 4 * 4 for i in clients)
        # One gradient of who took part in the round before, and two of who did not; none of who sits out.
        assert asked == [(1.0 if i in before else 2.0) if i in clients else 0.0 for i in range(n)]
        drawn.update(clients)
        before = clients
    assert 5 < dense < 25
    assert len(drawn) == n


def test_clients_are_drawn_uniformly():
    """All C(5, 2) pairs alike: 2000 rounds, chi-squared of 9 degrees of freedom below its 1 - 1e-4 point."""
    method = PPMARINA(RandK(4), 2, gamma=0.05, p=1e-9)
    seen = Counter(tuple(method.senders(Key(3, k, None, 5))) for k in range(1, 2001))
    assert len(seen) == 10 and all(i < j for i, j in seen)
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 33.7


@pytest.mark.parametrize("r", [6, 100])
def test_more_clients_than_workers_are_refused(r):
    for method in (PPMARINA(RandK(4), r), PPMARINA(RandK(4), r, gamma=0.1, p=0.5)):
        with pytest.raises(ConfigError, match=rf"r={r} of 5 workers; allowed: 1 to 5"):
            mpicomp.run(method, PLACES[1], workers=5, rounds=3, transport=Local(5))


# --- step sizes ---

SAMPLED = replace(HAND, L_sample=6.0, L_ij=7.0, samples=20)  # L 3, L_+ 3.5, L_pm 1.25, L_max 5, mu 0.1
# Q, omega, A and B by hand, for d = 12, n = 4
BY_HAND = [
    (RandK(3), 3, 3 / 4, 0),
    (RandK(3, mask="shared"), 3, 3, 0),
    (PermK(), 3, 1, 1),
    (Natural(), 1 / 8, 1 / 32, 0),
    (Quantized(PermK(), Natural()), 7 / 2, 9 / 8, 1),
    (Identity(), 0, 0, 0),
]
by_hand = pytest.mark.parametrize(
    ("Q", "omega", "A", "B"), BY_HAND, ids=lambda v: repr(v) if hasattr(v, "omega") else ""
)


@by_hand
def test_vrmarina_steps(Q, omega, A, B):
    """Section 4.2, in terms of A and B; for independent compressors as the paper states it."""
    n, p = 4, 0.15
    method = resolved(VRMARINA(Q, 5, p=p), 12, n, SAMPLED)
    spread = (A - B) * 3.5**2 + B * 1.25**2 + (A + (1 - B) / n) * 6**2 / 5
    assert method.gamma == pytest.approx(1 / (3 + sqrt((1 - p) / p * spread)))
    if A == omega / n:
        paper = (1 - p) / (p * n) * (omega * 3.5**2 + (1 + omega) * 6**2 / 5)
        assert method.gamma == pytest.approx(1 / (3 + sqrt(paper)))
    assert resolved(VRMARINA(Q, 0.25, p=p), 12, n, SAMPLED).gamma == pytest.approx(method.gamma)
    assert resolved(VRMARINA(Q, 5, p=p, sync_batch=9), 12, n, SAMPLED).gamma == method.gamma
    assert resolved(VRMARINA(Q, None, p=p), 12, n).gamma == resolved(MARINA(Q, p=p), 12, n).gamma


@pytest.mark.parametrize(
    ("method", "p"),
    [
        (VRMARINA(RandK(3), 5), 5 / 25),
        (VRMARINA(RandK(2), 5), 1 / 6),  # zeta/d
        (VRMARINA(RandK(2), 0.25, sync=Identity("f8")), 1 / 12),
        (VRMARINA(Identity(), 1), 1 / 21),
        (VRMARINA(Identity(), None), 1 / 2),
        (VRMARINA(RandK(6), 5, sync_batch=45), 5 / 50),
        (VRMARINA(RandK(6), 5, sync_batch=0.5), 5 / 15),
        (VRMARINA(RandK(6), 0.5, sync_batch=10), 1 / 2),
        (VRMARINA(RandK(3), 5, p="theory*0.5"), 5 / 50),
        (PPMARINA(RandK(3), 2), 1 / 8),  # (r/n) zeta/d
        (PPMARINA(RandK(3), 0.25), 1 / 16),
        (PPMARINA(Identity(), 1), 1 / 4),
        (PPMARINA(Identity("f8"), 4), 1.0),
        (VRDIANA(RandK(3), 5), 5 / 20),
        (VRDIANA(RandK(3), 0.1), 2 / 20),
        (VRDIANA(RandK(3), None), 1.0),
        (DASHAPAGE(RandK(3), 5), 5 / 25),
        (DASHAPAGE(RandK(3), None), 1 / 2),
        (DASHAPAGE(RandK(3), 5, p=0.7), 0.7),
    ],
    ids=repr,
)
def test_probabilities(method, p):
    """Sections 4.2, 4.3, 4.4, 2.3 and 4.6, for d = 12, n = 4 and m = 20."""
    assert resolved(method, 12, 4, SAMPLED).p == pytest.approx(p)


@by_hand
@pytest.mark.parametrize("r", [1, 3, 4])
def test_ppmarina_steps(Q, omega, A, B, r):
    """Section 4.4, without replacement; never below the theorem's, which is with replacement."""
    n, p = 4, 0.15
    v = (n - r) / (r * (n - 1))
    spread = (A * n / r - B) * 3.5**2 + (B + (1 - B) * v) * 1.25**2
    gamma = resolved(PPMARINA(Q, r, p=p), 12, n).gamma
    assert gamma == pytest.approx(1 / (3 + sqrt((1 - p) / p * spread)))
    if A == omega / n:
        assert gamma >= 1 / (3.5 * (1 + sqrt((1 - p) * (1 + omega) / (p * r))))
    if r == n:
        assert gamma == pytest.approx(resolved(MARINA(Q, p=p), 12, n).gamma)


def test_ppmarina_with_one_worker_has_a_step():
    assert (
        resolved(PPMARINA(RandK(3), 1, p=0.2), 12, 1).gamma == resolved(MARINA(RandK(3), p=0.2), 12, 1).gamma
    )


@pytest.mark.parametrize("Q", [RandK(2, values="f8"), PermK(values="f8")], ids=repr)
@pytest.mark.parametrize(
    "method",
    [PPMARINA(WHOLE, 1, 0.1, 1e-9), PPMARINA(WHOLE, 3, 0.1, 1e-9), VRMARINA(WHOLE, 2, 0.1, 1e-9)],
    ids=repr,
)
def test_the_variance_of_a_compressed_round_is_as_the_steps_assume(method, Q):
    """E |g+ - g - mean D_i|^2, D_i = grad f_i(x+) - grad f_i(x), is for these compressors what the steps take
    it to be at most; a batch of 2 of 6 samples has the variance V_i = (6-2)/(2 (6-1)) times that of one:

    sampled clients  (A n/r - B) M + (B + (1-B) v) (M - |mean D_i|^2),  M = mean |D_i|^2, v = (n-r)/(r (n-1))
    batches          (A - B) M + B (M - |mean D_i|^2) + (A + (1-B)/n) mean V_i

    The mean of 1500 draws is within 5 standard errors, chance 1e-6 of failing, were they normal."""
    problem, n, d, N = sums(4, 6, 6, seed=4), 4, 6, 1500
    x, previous = problem.x0(), problem.x0() + rng(1).normal(size=d)
    method = replace(method, Q=Q)
    A, B = Q.ab(d, n)
    samples = problem.A @ (x - previous)
    local = samples.mean(axis=1)
    M, mean = np.mean(np.sum(local**2, axis=1)), local.mean(axis=0)
    if isinstance(method, PPMARINA):
        v = (n - method.r) / (method.r * (n - 1))
        wanted = (A * n / method.r - B) * M + (B + (1 - B) * v) * (M - np.sum(mean**2))
    else:
        single = np.mean(np.sum((samples - local[:, None]) ** 2, axis=-1))
        wanted = (A - B) * M + B * (M - np.sum(mean**2)) + (A + (1 - B) / n) * single * 4 / 10
    objectives, replica = [problem.objective(i, n) for i in range(n)], method.replica(x)
    replica.previous = previous
    found = []

    def up(i, key):
        worker = method.worker(x)
        if isinstance(method, PPMARINA):
            worker.gradient = objectives[i].grad(previous)
        return key.of(i), method.worker_step(worker, replica, objectives[i], key.of(i))

    for k in range(1, N + 1):
        key = Key(1, k, None, n)
        down = method.server_step(None, replica, (up(i, key) for i in method.senders(key)), key)
        found.append(np.sum((method.down.decompress(down.m, d, key) - mean) ** 2))
    assert abs(np.mean(found) - wanted) < 5 * np.std(found) / sqrt(N)


@by_hand
def test_vrdiana_steps(Q, omega, A, B):
    """Section 2.3, with A for omega/n; by the constant of all samples, or their mean square if not convex."""
    n = 4
    convex = resolved(VRDIANA(Q, 5), 12, n, SAMPLED)
    assert convex.gamma == pytest.approx(1 / (7 * (1 + 36 * (A + 1 / n))))
    if A == omega / n:
        assert convex.gamma == pytest.approx(1 / (7 * (1 + 36 * (omega + 1) / n)))
    assert convex.alpha == pytest.approx(1 / (1 + omega))
    assert resolved(VRDIANA(Q, None), 12, n).gamma == pytest.approx(1 / (5 * (1 + 36 * (A + 1 / n))))
    slowdown = 10 * sqrt(1 + A) * (4 ** (2 / 3) + omega + 1)
    nonconvex = resolved(VRDIANA(Q, 5), 12, n, replace(SAMPLED, mu=None))
    assert nonconvex.gamma == pytest.approx(1 / (6 * slowdown))
    unknown = replace(HAND, mu=None)
    assert resolved(VRDIANA(Q, None), 12, n, unknown).gamma == pytest.approx(
        resolved(DIANA(Q), 12, n, unknown).gamma
    )


@by_hand
def test_dasha_steps_on_batches(Q, omega, A, B):
    """Section 4.6: DASHA-PAGE and DASHA-MVR, with A for omega/n."""
    n, p, b = 4, 0.15, 0.3
    variance = (1 - p) * 6**2 / 5
    spread = 48 * A * (2 * omega + 1) * (variance + L_TILDE**2) + 2 * variance / (p * n)
    assert resolved(DASHAPAGE(Q, 5, p=p), 12, n, SAMPLED).gamma == pytest.approx(1 / (3 + sqrt(spread)))
    spread = 48 * A * (2 * omega + 1) * L_TILDE**2
    assert resolved(DASHAPAGE(Q, None, p=p), 12, n).gamma == pytest.approx(1 / (3 + sqrt(spread)))
    variance = (1 - b) ** 2 * 6**2 / 5
    spread = 96 * A * (2 * omega + 1) * (variance + L_TILDE**2) + 4 * variance / (b * n)
    method = resolved(DASHAMVR(Q, 0.25, b=b), 12, n, SAMPLED)
    assert method.gamma == pytest.approx(1 / (3 + sqrt(spread)))
    assert method.a == pytest.approx(1 / (2 * omega + 1))


def test_a_step_uses_the_probability_that_is_chosen():
    """p=theory*0.5 is known to gamma."""
    for method in (VRMARINA(RandK(3), 5), DASHAPAGE(RandK(3), 5)):
        half = resolved(replace(method, p="theory*0.5"), 12, 4, SAMPLED)
        assert half.gamma == resolved(replace(method, p=half.p), 12, 4, SAMPLED).gamma
        assert half.gamma < resolved(method, 12, 4, SAMPLED).gamma
        with pytest.raises(ConfigError, match=r"p=1\.6"):
            resolved(replace(method, p="theory*8"), 12, 4, SAMPLED)


@pytest.mark.parametrize(
    ("method", "missing", "what"),
    [
        (VRMARINA(RandK(3), 5), "samples", "p"),
        (VRMARINA(RandK(3), 5), "L_sample", "gamma"),
        (VRMARINA(RandK(3), 5, p=0.1), "L_sample", "gamma"),
        (VRMARINA(RandK(3), 5, gamma=0.1), "samples", "p"),
        (VRDIANA(RandK(3), 5), "samples", "p"),
        (VRDIANA(RandK(3), 5), "L_ij", "gamma"),
        (DASHAPAGE(RandK(3), 5), "samples", "p"),
        (DASHAPAGE(RandK(3), 5), "L_sample", "gamma"),
        (DASHAMVR(RandK(3), 5, b=0.5), "L_sample", "gamma"),
    ],
    ids=repr,
)
def test_a_constant_that_is_missing_is_named(method, missing, what):
    """With what it is for; and it is not missed where that is a number, nor online."""
    name = type(method).__name__
    constants = replace(SAMPLED, **{missing: None})
    with pytest.raises(
        ConfigError, match=rf"{name} needs the constant {missing} for {what}=theory.*Give {what} as"
    ):
        resolved(method, 12, 4, constants)
    resolved(replace(method, **{what: 0.1}), 12, 4, constants)
    if missing == "samples" and name == "VRMARINA":
        resolved(replace(method, sync_batch=40), 12, 4, constants)


def test_a_fraction_of_samples_drawn_afresh_is_refused():
    with pytest.raises(ConfigError, match=r"batch=0\.1"):
        resolved(VRMARINA(RandK(3), 0.1, sync_batch=40), 12, 4, replace(SAMPLED, samples=None))


@pytest.mark.parametrize("wrong", [TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1), 3], ids=repr)
@pytest.mark.parametrize("method", [VRMARINA, PPMARINA, VRDIANA, DASHAPAGE, DASHAMVR])
def test_a_compressor_that_the_theorem_does_not_cover_is_refused(method, wrong):
    """And one that it does is named."""
    more = {"r": 2} if method is PPMARINA else {"batch": 2} | ({"b": 0.5} if method is DASHAMVR else {})
    with pytest.raises(ConfigError, match=rf"{method.__name__} needs Q to be unbiased.*RandK\(k=0\.01\)"):
        method(wrong, **more)
    method(RandK(k=0.01), **more)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (VRMARINA(RandK(2), 5), "p", 1.5),
        (VRMARINA(RandK(2), 5), "p", 0),
        (VRMARINA(RandK(2), 5), "p", None),
        (VRMARINA(RandK(2), 5), "p", "theory*x"),
        (VRMARINA(RandK(2), 5), "batch", 0),
        (VRMARINA(RandK(2), 5), "batch", 1.5),
        (VRMARINA(RandK(2), 5), "sync_batch", -1),
        (PPMARINA(RandK(2), 5), "r", 0),
        (PPMARINA(RandK(2), 5), "p", 2.0),
        (VRDIANA(RandK(2), 5), "p", 1.5),
        (VRDIANA(RandK(2), 5), "alpha", 0.0),
        (DASHAPAGE(RandK(2), 5), "p", -0.1),
        (DASHAPAGE(RandK(2), 5), "a", 2.0),
        (DASHAMVR(RandK(2), 5, b=0.5), "b", 0.0),
        (DASHAMVR(RandK(2), 5, b=0.5), "b", None),
        (DCGD(RandK(2)), "batch", 0),
        (DIANA(RandK(2)), "batch", 2.0),
    ],
    ids=repr,
)
def test_parameters_out_of_range_are_refused(method, name, value):
    with pytest.raises(ConfigError, match=name):
        replace(method, **{name: value})


# --- theorems, with gamma='theory' ---


def gap(problem: Problem, n: int) -> float:
    return objective_value(problem, n, problem.x0()) - problem.constants(n).f_star


def mean_grad_norm_sq(method, problem: Problem, n: int, rounds: int, seeds: int = 4) -> float:
    """(1/T) sum_{t<T} |grad f(x_t)|^2, its mean over the seeds."""
    found = []
    for seed in range(seeds):
        iterates = trajectory(start(method, problem, n, seed), rounds - 1)
        found += [grad_norm_sq(problem, n, x) for x in iterates]
    return float(np.mean(found))


def gamma_of(method, problem: Problem, n: int) -> float:
    return start(method, problem, n).method.gamma


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_vrmarina_and_ppmarina_reach_the_rate_of_their_theorem(Q):
    """Sections 4.2, 4.4: (1/T) sum E |grad f(x_t)|^2 <= 2 Delta_0/(gamma T).  Mean of 4 seeds; no slack."""
    problem, n, T = PLACES[0], 4, 60
    for method in (VRMARINA(Q, 1), VRMARINA(Q, 3), PPMARINA(Q, 1), PPMARINA(Q, 3)):
        bound = 2 * gap(problem, n) / (gamma_of(method, problem, n) * T)
        assert mean_grad_norm_sq(method, problem, n, T) <= bound


@pytest.mark.parametrize("Q", [RandK(5), PermK()], ids=repr)
def test_online_vrmarina_reaches_the_rate_of_its_theorem(Q):
    """Section 4.3: (1/T) sum E |grad f(x_t)|^2 <= 2 Delta_0/(gamma T) + (1 + 1/(p T)) sigma^2/(n b), b being
    the samples of a dense round, as E |g - grad f|^2 <= sigma^2/(n b) after it; which is less than for b'."""
    inner, n, T, sigma = Quadratics(d=20, noise=0.3, lam=1e-3), 5, 100, 4.0
    problem = Noisy(inner, sigma)
    method = VRMARINA(Q, 1, sync_batch=100)
    solved = start(method, problem, n).method
    assert solved.p == pytest.approx(min(1 / 101, start(MARINA(Q), inner, n).method.p))
    noise = sigma**2 / (n * 100) * (1 + 1 / (solved.p * T))
    bound = 2 * gap(inner, n) / (solved.gamma * T) + noise
    assert mean_grad_norm_sq(method, problem, n, T) <= bound < sigma**2 / n


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), WHOLE], ids=repr)
def test_dasha_on_batches_reaches_the_rate_of_its_theorem(Q):
    """Section 4.6: (1/T) sum E |grad f(x_t)|^2 <= 2/(gamma T) (Delta_0 + gamma (u/a + 2 A U)), E u <= A G of
    u = |g - h|^2 and E U <= omega G of U = mean |g_i - h_i|^2 at the start, G = mean |grad f_i(x0)|^2.

    The weights 1/a, 2 A, and 1/p of |h - grad f|^2, 2 D of mean |h_i - grad f_i|^2, both 0 at the start, with
    D = 2 A (4 omega + 1), make a Lyapunov function, for steps at least as large as the theorem's."""
    problem, n, T = PLACES[0], 4, 100
    A, omega = Q.ab(12, n)[0], Q.omega(12, n)
    G = np.mean([np.sum(grad(problem.x0()) ** 2) for grad in gradients(problem, n)])
    for method in (DASHAPAGE(Q, 1), DASHAPAGE(Q, 3)):
        gamma = gamma_of(method, problem, n)
        first = gamma * ((2 * omega + 1) * A * G + 2 * A * omega * G)
        assert mean_grad_norm_sq(method, problem, n, T) <= 2 * (gap(problem, n) + first) / (gamma * T)


@pytest.mark.parametrize("Q", [RandK(5), Natural(), WHOLE], ids=repr)
def test_dashamvr_reaches_the_rate_of_its_theorem(Q):
    """Section 4.6, as above but for the weights of |h - grad f|^2 and mean |h_i - grad f_i|^2: 1/b and 2 b D.
    They start at s/n and s, s = sigma^2/B, and each round adds 2 b s/n + 2 b^2 (1 + 2 b) D s."""
    inner, n, T, sigma, b, B = Quadratics(d=20, noise=0.3, lam=1e-3), 5, 100, 0.5, 0.05, 2
    problem = Noisy(inner, sigma)
    A, omega = Q.ab(20, n)[0], Q.omega(20, n)
    D, s = 2 * A * (4 * omega + 1), sigma**2 / B
    G = np.mean([np.sum(grad(problem.x0()) ** 2) for grad in gradients(problem, n)]) + s
    first = (2 * omega + 1) * A * G + 2 * A * omega * G + s / (n * b) + 2 * b * D * s
    each = 2 * b * s / n + 2 * b**2 * (1 + 2 * b) * D * s
    method = DASHAMVR(Q, B, b=b)
    bound = 2 * gap(inner, n) / (gamma_of(method, problem, n) * T) + 2 * first / T + 2 * each
    assert mean_grad_norm_sq(method, problem, n, T) <= bound


@pytest.mark.parametrize(
    ("Q", "b"),
    [(RandK(2), 1), (RandK(2), 3), (RandK(4, mask="shared"), 1), (Natural(), 3), (PermK(), 1)],
    ids=repr,
)
def test_vrdiana_contracts_linearly(Q, b):
    """Section 2.3.  With H = mean |h_i - grad f_i(x*)|^2, W = mean |grad f_ij(w) - grad f_ij(x*)|^2 and
    V = |x - x*|^2 + gamma^2 (4 A/alpha H + (20 A + 4/n)/p W), E V_k <= rate^k V_0, rate the largest of
    1 - gamma mu, 1 - alpha/2 and 1 - p/2.

    For with F = f(x) - f*, E |g|^2 <= (2 + 8 A + 4/n) L F + 2 A H + 2 (A + 1/n) W, E H+ <= (1 - alpha) H +
    alpha (6 L F + 2 W) and E W+ <= (1 - p) W + 2 p L F, and gamma <= 1/(L (1 + 36 A + 6/n)) will do.
    The mean of 4 seeds, at every 15th round, no slack: runs lie well below the bound."""
    problem, n, d = sums(4, 6, 8, seed=3), 4, 8
    mu, x_star = problem.constants(n).mu, problem.x_star
    limits = [grad(x_star) for grad in gradients(problem, n)]
    samples = problem.A @ x_star - problem.b
    A, _ = Q.ab(d, n)
    values = []
    for seed in range(4):
        loop = start(VRDIANA(Q, b), problem, n, seed)
        gamma, alpha, p = loop.method.gamma, loop.method.alpha, loop.method.p
        history = []
        for k in range(151):
            if k % 15 == 0:
                H = np.mean([np.sum((w.h - limits[i]) ** 2) for i, w in loop.workers.items()])
                W = np.mean(np.sum((problem.A @ loop.replica.w - problem.b - samples) ** 2, axis=-1))
                V = np.sum((loop.replica.x - x_star) ** 2) + gamma**2 * 4 * A / alpha * H
                history.append(V + gamma**2 * (20 * A + 4 / n) / p * W)
            loop.step(k)
        values.append(history)
    rate = max(1 - gamma * mu, 1 - alpha / 2, 1 - p / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 4
    assert all(v <= rate ** (15 * j) * mean[0] for j, v in enumerate(mean))


def test_methods_on_batches_that_reduce_variance_reach_the_optimum_and_others_do_not():
    """Sections 2.1 to 2.3, 4.2, 4.6, by theory; VR-DIANA by the step for non-convex f as well."""
    problem, n = sums(4, 6, 8, seed=3), 4
    careful = NotKnownConvex(problem.A, problem.b, problem.start)
    Q, first = RandK(4, values="f8"), grad_norm_sq(problem, n, problem.x0())

    def final(method, problem, rounds=1000):
        iterates = trajectory(start(method, problem, n), rounds)
        return np.mean([grad_norm_sq(problem, n, x) for x in iterates[-100:]]) / first

    for method in (DCGD(Q, batch=2), DIANA(Q, batch=2), DASHAMVR(Q, 2, b=0.5)):
        assert final(method, problem, 300) > 1e-4
    for method in (VRDIANA(Q, 2), VRMARINA(Q, 2), DASHAPAGE(Q, 2)):
        assert final(method, problem) < 1e-10
    assert final(VRDIANA(Q, 2), careful) < 1e-10


@pytest.mark.parametrize("Q", [RandK(3, values="f8"), PermK(values="f8"), WHOLE], ids=repr)
@pytest.mark.parametrize("r", [1, 3])
def test_ppmarina_converges_linearly_where_f_is_strongly_convex(Q, r):
    """By more than half in each span of rounds, although most rounds hear some workers only."""
    problem, n = PLACES[0], 4
    iterates = trajectory(start(PPMARINA(Q, r, sync=WHOLE), problem, n), 300)[::60]
    errors = [np.sum((x - problem.x_star) ** 2) for x in iterates]
    assert all(new < 0.5 * old or new < 1e-20 for old, new in pairwise(errors)), errors


# --- the constant of every sample ---


@pytest.mark.parametrize("make", [Logistic, NonconvexLogistic, NonconvexGLM])
def test_l_ij_bounds_every_sample(make):
    """It is that of the longest row, and nearly attained along it, around the margin of greatest |phi''|."""
    problem = make("breast_cancer", lam=0.02)
    found, data = problem.constants(3), problem.objective(0, 1)
    rows = data.X.toarray()
    j = int(np.argmax(np.sum(rows**2, axis=1)))
    top = problem.phi.curvature * np.sum(rows[j] ** 2) + 0.02 * problem.rho.curvature
    assert found.L_ij == pytest.approx(top, rel=1e-12)
    assert found.L_ij >= max(found.L_sample, found.L_max)
    single, direction = data.part(np.array([j])), rows[j] / np.sqrt(np.sum(rows[j] ** 2))
    points = direction * np.linspace(-1, 1, 1001)[:, None]
    slopes = np.array([single.grad(x) for x in points])
    length = lambda v: np.sqrt(np.sum(np.diff(v, axis=0) ** 2, axis=1))  # noqa: E731
    steps = length(slopes) / length(points)
    assert 0.9 * found.L_ij < steps.max() <= found.L_ij * (1 + 1e-9)
