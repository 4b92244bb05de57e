"""EF21 and after: EF21-SGDM, EF21-SGD2M and EF21-SGD, and EF21+."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest

import mpicomp
from mpicomp.codecs import messages
from mpicomp.compressors import Identity, Lossless, RandK, Shrunk, Sign, TopK
from mpicomp.keys import Key
from mpicomp.methods import EF21, EF21SGD2M, EF21SGDM, EF21Plus
from mpicomp.problems import Constants, Noisy, Objective, Problem
from mpicomp.runtime.loop import Loop
from mpicomp.transports.local import Local
from tests.reference.ef21plus import ef21plus
from tests.reference.ef21sgd2m import ef21sgd2m
from tests.reference.ef21sgdm import ef21sgdm
from tests.support.error_feedback import NOISY, SHRINK, Jumping, everywhere, sampler, shrinking
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    PLACES,
    ROUNDS,
    WHOLE,
    Entropy,
    assert_close,
    assert_equal,
    beginning,
    codec,
    gradients,
    integers,
    objective_value,
    rounding,
    squares,
    start,
    trajectory,
)

# --- the transcriptions ---

# As for EF21, round k makes g^k: round 0 is the initialisation, g_i^0 = s_i^0, and the message that
# makes g^{k+1} in the papers' round k is our round k+1.

some = pytest.mark.parametrize("C", [SHRINK[0], SHRINK[3], TopK(3)], ids=repr)


@everywhere
@shrinking
def test_ef21sgdm_is_its_transcription(problem, n, batch, C):
    """docs/methods.md, EF21SGDM."""
    eta = 0.1 if batch is None else 0.6
    loop = start(EF21SGDM(C, gamma="theory*8", eta=eta, batch=batch), problem, n, seed=31)
    sample, first = sampler(problem, n, batch, 31), beginning("gradient", C, 31, n)
    wanted = ef21sgdm(n, sample, problem.x0(), loop.method.gamma, eta, codec(C, 31, n), ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@shrinking
def test_ef21sgd2m_is_its_transcription(problem, n, batch, C):
    """docs/methods.md, EF21SGD2M."""
    eta = 0.6 if batch is None else 0.1
    loop = start(EF21SGD2M(C, gamma="theory*8", eta=eta, batch=batch), problem, n, seed=32)
    sample, first = sampler(problem, n, batch, 32), beginning("gradient", C, 32, n)
    wanted = ef21sgd2m(n, sample, problem.x0(), loop.method.gamma, eta, codec(C, 32, n), ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@some
def test_ef21sgd_is_its_transcription(problem, n, batch, C):
    """docs/methods.md, EF21SGDM with eta = 1, which EF21 with a batch is."""
    loop = start(EF21(C, gamma="theory*2", batch=batch), problem, n, seed=33)
    sample = sampler(problem, n, batch, 33)
    compress = codec(C, 33, n)
    wanted = ef21sgdm(n, sample, problem.x0(), loop.method.gamma, 1.0, compress, ROUNDS, compress)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


def fresh_codec(C, seed: int, n: int):
    """What the server makes of EF21+'s C(grad f_i)."""

    def compress(i, k, v):
        key = Key(seed, k, i, n).named("fresh")
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


@pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
@shrinking
@pytest.mark.parametrize("gamma", [0.3, 1.5])
def test_ef21plus_is_its_transcription(problem, n, C, gamma):
    """docs/methods.md, EF21Plus; for a random C the two candidates are drawn independently."""
    gamma /= problem.constants(n).L_max
    loop = start(EF21Plus(C, gamma=gamma), problem, n, seed=36)
    wanted, taken = ef21plus(
        gradients(problem, n), problem.x0(), gamma, codec(C, 36, n), fresh_codec(C, 36, n), ROUNDS
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))
    if (
        gamma * problem.constants(n).L_max > 1
        and problem is not PLACES[0][0]
        and C not in (WHOLE, Lossless())
    ):
        assert 4 < sum(taken) < n * ROUNDS - 4


# --- EF21-SGDM, EF21-SGD2M and EF21-SGD ---


@everywhere
@some
def test_without_momentum_it_is_ef21(problem, n, batch, C):
    """Exact.  docs/methods.md, EF21SGDM: eta = 1 is EF21-SGD, and EF21 where sigma
    = 0; the same bytes, too."""
    runs = [
        mpicomp.run(method, problem, workers=n, rounds=ROUNDS, every=ROUNDS, seed=5)
        for method in (
            EF21(C, gamma=0.01, batch=batch, start="gradient"),
            EF21SGDM(C, gamma=0.01, eta=1, batch=batch),
            EF21SGD2M(C, gamma=0.01, eta=1, batch=batch),
        )
    ]
    assert len({run.iterates_sha256 for run in runs}) == 1
    assert len({(run.ledger.up_bytes, run.ledger.down_bytes) for run in runs}) == 1


def test_noise_of_size_zero_is_none():
    """Exact.  docs/methods.md, EF21SGDM: sigma = 0, eta = 1 => EF21."""
    problem = NOISY.problem
    whole = {"gamma": 0.05, "start": "gradient"}
    wanted = trajectory(start(EF21(TopK(3), **whole), problem, 5), ROUNDS)
    silent = Noisy(problem, sigma=0.0)
    for method in (EF21SGDM(TopK(3), eta=1.0, batch=1, **whole), EF21(TopK(3), batch=7, **whole)):
        assert_equal(trajectory(start(method, silent, 5), ROUNDS), wanted)


@pytest.mark.parametrize("method", [EF21SGDM, EF21SGD2M])
@pytest.mark.parametrize(
    "C", [TopK(3, values="f8"), TopK(1, values="f8"), Shrunk(RandK(4, values="f8"))], ids=repr
)
def test_g_is_the_mean_of_g_i(method, C):
    """Exact, in every round.  docs/methods.md, EF21SGDM; eta = 1/2."""
    problem = Jumping(integers(4, 8))
    loop = start(method(C, gamma=EIGHTH, eta=0.5, batch=1), problem, 4)
    for k in range(6):
        loop.step(k)
        assert np.array_equal(loop.replica.g, np.mean([w.g for w in loop.workers.values()], axis=0))
        assert loop.replica.g.any()


@pytest.mark.parametrize("method", [EF21SGDM, EF21SGD2M, EF21Plus])
@shrinking
def test_g_is_the_mean_of_g_i_for_every_compressor(method, C):
    """To rounding, in every format."""
    loop = start(method(C, gamma=0.5), Entropy(), 4)
    for k in range(ROUNDS):
        loop.step(k)
        g_i = np.array([w.g for w in loop.workers.values()])
        assert np.abs(loop.replica.g - g_i.mean(axis=0)).max() <= 1e-14 * np.abs(g_i).max()


def test_without_compression_it_is_sgd_with_momentum():
    """Exact.  docs/methods.md, EF21SGDM: identity => g_i = v_i, whose mean is the
    momentum of the mean sample."""
    problem = Jumping(integers(4, 8))
    sample = sampler(problem, 4, 1, 7)
    loop = start(EF21SGDM(WHOLE, gamma=EIGHTH, eta=0.5, batch=1), problem, 4, seed=7)
    x, v = problem.x0(), None
    for k in range(EXACT):
        s = np.mean([sample(i, k, x) for i in range(4)], axis=0)
        v = s if v is None else v / 2 + s / 2
        x = x - EIGHTH * v
        loop.step(k)
        assert np.array_equal(loop.replica.x, x)
        assert all(np.array_equal(w.g, w.v) for w in loop.workers.values())


def test_the_noise_is_there():
    """The two tests above are about batches: without, they would be about something else."""
    problem = Jumping(integers(4, 8))
    first, second = (
        trajectory(start(EF21SGDM(WHOLE, gamma=EIGHTH, eta=0.5, batch=b), problem, 4), 3) for b in (1, None)
    )
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("method", [EF21SGDM(TopK(2)), EF21SGD2M(TopK(2)), EF21Plus(TopK(2))], ids=repr)
def test_converges_linearly_at_the_step_of_its_theorem(method):
    """docs/methods.md, EF21 and EF21SGDM, with full gradients: f - f* shrinks by (1 - gamma
    mu) a round or faster, over every stretch, although the grad f_i(x*) do not vanish."""
    problem = squares(3, 6, seed=4)
    c, loop, gaps = problem.constants(3), start(method, problem, 3), []
    stretch = round(1 / (loop.method.gamma * c.mu))
    for k in range(5 * stretch + 1):
        if k % stretch == 0:
            gaps.append(objective_value(problem, 3, loop.x) - c.f_star)
        loop.step(k)
    assert gaps[-1] > 1e-10  # far above rounding
    assert all(after < (1 - 1 / stretch) ** stretch * before for before, after in pairwise(gaps))


# Noise with E xi = 0 for which TopK(1), applied to xi - g, does not give 0 on average.
SKEWED = np.array([[3.0, -2.0], [3.0, -2.0], [-6.0, 4.0]])


@dataclass(frozen=True)
class Skewed(Problem):
    """f_i = |x|^2/2 in the plane, on every worker; the gradient on one sample is x + xi."""

    def dimension(self):
        return 2

    def objective(self, i, n):
        return SkewedBowl()

    def x0(self):
        return np.array([1.0, 1.0])

    def constants(self, n):
        return Constants(L=1.0, L_i=(1.0,) * n, L_plus=1.0, L_pm=0.0, mu=1.0, f_star=0.0)


class SkewedBowl(Objective):
    def value(self, x):
        return float(np.sum(x * x) / 2)

    def grad(self, x):
        return x.copy()

    def batch_grad(self, x, b, stream):
        return x + SKEWED[[int(3 * u) for u in stream.uniform(b)]].mean(axis=0)


def stationary_bias() -> np.ndarray:
    """E g - x for EF21-SGD at a fixed x: g - x is a Markov chain on the values of xi's coordinates."""
    states = list(product(*(sorted(set(column)) for column in SKEWED.T)))
    chain = np.zeros((len(states), len(states)))
    for (a, g), xi in product(enumerate(states), SKEWED):
        j = int(np.argmax(np.abs(xi - g)))
        chain[a, states.index(tuple(xi[i] if i == j else g[i] for i in range(2)))] += 1 / len(SKEWED)
    values, vectors = np.linalg.eig(chain.T)
    weights = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return weights @ np.array(states) / weights.sum()


def test_ef21sgd_keeps_a_bias_that_no_number_of_workers_removes_and_momentum_does():
    """docs/methods.md, EF21SGDM.  As gamma -> 0, EF21-SGD settles where E g = 0: at -bias and not at 0,
    whatever n.

    Means over the last 3/4 of 1000 rounds.  The noise adds about gamma sigma^2/(2 n), 0.26/n, for either."""
    bias = stationary_bias()
    assert bias == pytest.approx([0, -4 / 7], abs=1e-9)

    def tail(method, n):
        xs = trajectory(start(replace(method, gamma=0.02, batch=1), Skewed(), n, seed=2), 1000)[250:]
        return np.mean(xs, axis=0), np.mean([np.sum(x**2) for x in xs])

    place, size = tail(EF21(TopK(1)), 16)
    assert np.abs(place + bias).max() < 0.1  # found: 0.02
    assert size > 0.9 * np.sum(bias**2)
    assert tail(EF21(TopK(1)), 1)[1] > size  # one worker's noise comes on top
    sizes = [tail(EF21SGDM(TopK(1)), n)[1] for n in (1, 4, 16)]
    assert sizes[0] > 2 * sizes[1] > 4 * sizes[2]  # found: 4 and 6 times
    assert sizes[2] < np.sum(bias**2) / 10


# --- EF21+ ---


class Tapped(Local):
    """Notes the messages of the last round, decoded."""

    def gather(self, senders, take):
        self.ups: list = []

        def noted(i, message):
            self.ups.append(messages.decode(EF21Plus.Up, message.copy()))
            take(i, message)

        return super().gather(senders, noted)


@pytest.mark.parametrize("C", [TopK(2, values="f8"), TopK(1, values="f8")], ids=repr)
def test_ef21plus_keeps_g_the_mean_of_g_i(C):
    """Exact, in every round, over both kinds of message, with a server that holds nothing of its own."""
    loop, fresh = Loop(EF21Plus(C, gamma=0.25), integers(4, 8), Tapped(4), seed=0), 0
    assert not vars(loop.server)
    for k in range(9):
        loop.step(k)
        fresh += sum(len(up.old) > 0 for up in loop.transport.ups)
        assert np.array_equal(loop.replica.g, np.mean([w.g for w in loop.workers.values()], axis=0))
    assert 2 < fresh < 33


def test_ef21plus_is_never_worse_than_either():
    """docs/methods.md, EF21Plus: |g_i - grad f_i| is that of the better of the two,
    hence within both contractions.  EF21's is not."""
    problem, n = PLACES[1]
    C, worse = TopK(3, values="f8"), 0
    gamma, decoded = 1.5 / problem.constants(n).L_max, codec(C, 0, n)
    for method in (EF21Plus(C, gamma=gamma), EF21(C, gamma=gamma)):
        loop = start(method, problem, n)
        for k in range(ROUNDS):
            targets = [grad(loop.x) for grad in gradients(problem, n)]
            before = [w.g.copy() for w in loop.workers.values()]
            loop.step(k)
            for i, w in loop.workers.items():
                error = np.sum((w.g - targets[i]) ** 2)
                assert error <= 10 / 13 * np.sum((before[i] - targets[i]) ** 2) * (1 + 1e-12)
                fresh = np.sum((decoded(i, k, targets[i]) - targets[i]) ** 2)
                worse += error > fresh + 1e-12 * np.sum(targets[i] ** 2)
                assert worse == 0 or isinstance(method, EF21)
    assert worse > 0


def test_ef21plus_on_the_wire():
    """An increment takes C's bytes and one; a fresh start hands back g_i as well; the paper charges a bit."""
    problem, n, C = *PLACES[1], TopK(3, values="f8")
    gamma = 1.5 / problem.constants(n).L_max
    loop, kinds = Loop(EF21Plus(C, gamma=gamma), problem, Tapped(n), seed=0), set()
    for k in range(ROUNDS):
        before = [w.g.copy() for w in loop.workers.values()]
        booked = loop.ledger.up.copy()
        loop.step(k)
        for i, up in enumerate(loop.transport.ups):
            kinds.add(len(up.old) > 0)
            if len(up.old):
                assert np.array_equal(Lossless().decompress(up.old, 13, None), before[i])
                assert len(up.old) <= 1 + 13 * 8  # dense at the worst
            assert loop.ledger.up[i] - booked[i] == 1 + len(up.old) + (3 * 8 + 2)  # 286 supports
    assert kinds == {True, False}
    assert loop.ledger.paper_bits_up == ROUNDS * n * (3 * 32 + 1)


@shrinking
def test_ef21plus_without_gain_is_ef21(C):
    """Exact.  docs/methods.md, EF21Plus: EF21, until a fresh start is nearer;
    without compression it never is."""
    problem, n = PLACES[0]
    gamma = 0.5 / problem.constants(n).L_max
    loop = Loop(EF21Plus(C, gamma=gamma), problem, Tapped(n), seed=3)
    wanted = start(EF21(C, gamma=gamma), problem, n, seed=3)
    fresh = 0
    for k in range(ROUNDS):
        loop.step(k)
        wanted.step(k)
        fresh += sum(len(up.old) > 0 for up in loop.transport.ups)
        assert np.array_equal(loop.x, wanted.x) == (fresh == 0)
    assert fresh == 0 or not isinstance(C, TopK | Sign | Identity | Lossless)
