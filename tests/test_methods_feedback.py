"""Error feedback: EF21-SGDM, EF21-SGD2M, EF21-SGD, EF21+, EF14-SGD, and EF-SGD with a hard threshold.

Tolerances are those of test_methods.py; what is marked "exact" holds bit for bit.

Correspondence of rounds.  As for EF21, round k makes g^k: round 0 is the initialisation, g_i^0 = C(s_i^0),
and the message that makes g^{k+1} in the papers' round k is our round k+1.  EF-SGD and EF14-SGD are numbered
alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest

import mpicomp
from mpicomp import compressors, messages
from mpicomp.compressors import (
    Contractive,
    HardThreshold,
    Identity,
    Natural,
    PermK,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    Sparse,
    TopK,
)
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.loop import Loop
from mpicomp.methods import EF14, EF21, EF21SGD2M, EF21SGDM, EFSGD, EF21Plus
from mpicomp.problems import Constants, Logistic, Noisy, Objective, Problem, Quadratics
from mpicomp.transports.local import Local
from tests.reference.ef14 import ef14
from tests.reference.ef21plus import ef21plus
from tests.reference.ef21sgd2m import ef21sgd2m
from tests.reference.ef21sgdm import ef21sgdm
from tests.reference.efsgd import efsgd
from tests.test_methods_steps import SHRINKING
from tests.trajectories import (
    EIGHTH,
    EXACT,
    HAND,
    L_TILDE,
    PLACES,
    ROUNDS,
    Entropy,
    Square,
    Squares,
    assert_close,
    assert_equal,
    codec,
    grad_norm_sq,
    gradients,
    integers,
    objective_value,
    resolved,
    rounding,
    squares,
    start,
    trajectory,
)

WHOLE = Identity("f8")
SHRINK = [
    TopK(2, values="f8"),
    Sign(values="f8"),
    QuantizedTopK(3, Natural(values="f8")),
    Shrunk(RandK(2, values="f8")),
    Shrunk(PermK(values="f8")),
    WHOLE,
    TopK(3),
    Sparse(),
]
CUT = [HardThreshold(0.02, values="f8"), HardThreshold(0.3, values="f8"), HardThreshold(0.02)]
NOISY = Noisy(Quadratics(d=13, noise=0.5, lam=0.01), sigma=0.5)
DIGITS = Logistic("digits", lam=0.01)
SAMPLED = [  # problem, n, batch: full gradients, added noise, samples of a data set as a count and a fraction
    (*PLACES[0], None),
    (*PLACES[2], None),
    (NOISY, 5, 1),
    (DIGITS, 3, 2),
    (DIGITS, 3, 0.01),
]
everywhere = pytest.mark.parametrize(
    ("problem", "n", "batch"), SAMPLED, ids=["d12-n4", "d4-n9", "noisy", "digits-2", "digits-1%"]
)
shrinking = pytest.mark.parametrize("C", SHRINK, ids=repr)
some = pytest.mark.parametrize("C", [SHRINK[0], SHRINK[3], TopK(3)], ids=repr)


def sampler(problem: Problem, n: int, batch: int | float | None, seed: int):
    """s_i^k at x: the gradient on the samples that the key of the round names."""
    fs = [problem.objective(i, n) for i in range(n)]

    def sample(i, k, x):
        if batch is None:
            return fs[i].grad(x)
        b = batch if isinstance(batch, int) else round(batch * fs[i].samples)
        return fs[i].batch_grad(x, b, Key(seed, k, i, n).private("batch"))

    return sample


def counted(sample, i: int):
    """Worker i's sampler for a transcription that asks for grad(x) once a round."""
    rounds = iter(range(10**6))
    return lambda x: sample(i, next(rounds), x)


def fresh_codec(C, seed: int, n: int):
    """What the server makes of EF21+'s C(grad f_i)."""

    def compress(i, k, v):
        key = Key(seed, k, i, n).named("fresh")
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


@dataclass(frozen=True)
class Jumping(Problem):
    """``problem``, whose stochastic gradients are off by integers from {-1, 0, 0, 1}, divided by b."""

    problem: Squares

    def dimension(self):
        return self.problem.dimension()

    def objective(self, i, n):
        return Jump(self.problem.A[i], self.problem.b[i])

    def x0(self):
        return self.problem.x0()

    def constants(self, n):
        return self.problem.constants(n)


@dataclass(frozen=True, eq=False)
class Jump(Square):
    def batch_grad(self, x, b, stream):
        return self.grad(x) + np.array([-1.0, 0, 0, 1])[stream.words(x.size) & 3] / b


# --- the transcriptions ---


@everywhere
@shrinking
def test_ef21sgdm_is_its_transcription(problem, n, batch, C):
    """Section 5.3."""
    eta = 0.1 if batch is None else 0.6
    loop = start(EF21SGDM(C, gamma="theory*8", eta=eta, batch=batch), problem, n, seed=31)
    sample = sampler(problem, n, batch, 31)
    wanted = ef21sgdm(n, sample, problem.x0(), loop.method.gamma, eta, codec(C, 31, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@shrinking
def test_ef21sgd2m_is_its_transcription(problem, n, batch, C):
    """Section 5.3, twice the momentum."""
    eta = 0.6 if batch is None else 0.1
    loop = start(EF21SGD2M(C, gamma="theory*8", eta=eta, batch=batch), problem, n, seed=32)
    sample = sampler(problem, n, batch, 32)
    wanted = ef21sgd2m(n, sample, problem.x0(), loop.method.gamma, eta, codec(C, 32, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@some
def test_ef21sgd_is_its_transcription(problem, n, batch, C):
    """Section 5.3 with eta = 1, which EF21 with a batch is."""
    loop = start(EF21(C, gamma="theory*2", batch=batch), problem, n, seed=33)
    sample = sampler(problem, n, batch, 33)
    wanted = ef21sgdm(n, sample, problem.x0(), loop.method.gamma, 1.0, codec(C, 33, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@pytest.mark.parametrize("C", [*SHRINK[:4], TopK(3), *CUT], ids=repr)
def test_efsgd_is_its_transcription(problem, n, batch, C):
    """Section 5.4, for contractive compressors as well."""
    gamma = 0.3 / problem.constants(n).L_max
    gamma *= C.alpha(problem.dimension(), n) if isinstance(C, Contractive) else 1
    loop = start(EFSGD(C, gamma=gamma, batch=batch), problem, n, seed=34)
    sample = sampler(problem, n, batch, 34)
    wanted = efsgd(n, sample, problem.x0(), gamma, codec(C, 34, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere
@pytest.mark.parametrize("C", [TopK(2, values="f8"), TopK(3), *CUT[1:]], ids=repr)
def test_ef14sgd_is_its_transcription(problem, n, batch, C):
    """Section 5.1 with batches."""
    gamma = 0.3 / problem.constants(n).L_max
    gamma *= C.alpha(problem.dimension(), n) if isinstance(C, Contractive) else 1
    loop = start(EF14(C, gamma=gamma, batch=batch), problem, n, seed=35)
    sample = sampler(problem, n, batch, 35)
    grads = [counted(sample, i) for i in range(n)]
    wanted = ef14(grads, problem.x0(), gamma, codec(C, 35, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
@shrinking
@pytest.mark.parametrize("gamma", [0.3, 1.5])
def test_ef21plus_is_its_transcription(problem, n, C, gamma):
    """Section 5.2, EF21+; for a random C the two candidates are drawn independently."""
    gamma /= problem.constants(n).L_max
    loop = start(EF21Plus(C, gamma=gamma), problem, n, seed=36)
    wanted, taken = ef21plus(
        gradients(problem, n), problem.x0(), gamma, codec(C, 36, n), fresh_codec(C, 36, n), ROUNDS
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))
    if gamma * problem.constants(n).L_max > 1 and problem is not PLACES[0][0] and C not in (WHOLE, Sparse()):
        assert 4 < sum(taken) < n * ROUNDS - 4


# --- EF21-SGDM, EF21-SGD2M and EF21-SGD ---


@everywhere
@some
def test_without_momentum_it_is_ef21(problem, n, batch, C):
    """Exact.  Section 5.3: eta = 1 is EF21-SGD, and EF21 where sigma = 0; the same bytes, too."""
    runs = [
        mpicomp.run(method, problem, workers=n, rounds=ROUNDS, every=ROUNDS, seed=5)
        for method in (
            EF21(C, gamma=0.01, batch=batch),
            EF21SGDM(C, gamma=0.01, eta=1, batch=batch),
            EF21SGD2M(C, gamma=0.01, eta=1, batch=batch),
        )
    ]
    assert len({run.iterates_sha256 for run in runs}) == 1
    assert len({(run.ledger.up_bytes, run.ledger.down_bytes) for run in runs}) == 1


def test_noise_of_size_zero_is_none():
    """Exact.  Section 5.3: sigma = 0, eta = 1 => EF21."""
    problem = NOISY.problem
    wanted = trajectory(start(EF21(TopK(3), gamma=0.05), problem, 5), ROUNDS)
    silent = Noisy(problem, sigma=0.0)
    for method in (EF21SGDM(TopK(3), gamma=0.05, eta=1.0, batch=1), EF21(TopK(3), gamma=0.05, batch=7)):
        assert_equal(trajectory(start(method, silent, 5), ROUNDS), wanted)


@pytest.mark.parametrize("method", [EF21SGDM, EF21SGD2M])
@pytest.mark.parametrize(
    "C", [TopK(3, values="f8"), TopK(1, values="f8"), Shrunk(RandK(4, values="f8"))], ids=repr
)
def test_g_is_the_mean_of_g_i(method, C):
    """Exact, in every round.  Section 5.3; eta = 1/2."""
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
    """Exact.  Section 5.3: identity => g_i = v_i, whose mean is the momentum of the mean sample."""
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
    """Sections 5.2 and 5.3 with full gradients: f - f* shrinks by (1 - gamma mu) a round or faster, over
    every stretch, although the grad f_i(x*) do not vanish."""
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
    """Section 5.3.  As gamma -> 0, EF21-SGD settles where E g = 0: at -bias and not at 0, whatever n.

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

    def gather(self, uplink, senders):
        self.ups: list = []
        for i, message in super().gather(uplink, senders):
            self.ups.append(messages.decode(EF21Plus.Up, message.copy()))
            yield i, message


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
    """Section 5.2: |g_i - grad f_i| is that of the better of the two, hence within both contractions.  EF21's
    is not."""
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
                assert np.array_equal(Sparse().decompress(up.old, 13, None), before[i])
                assert len(up.old) <= 1 + 13 * 8  # dense at the worst
            assert loop.ledger.up[i] - booked[i] == 1 + len(up.old) + (3 * 8 + 2)  # 286 supports
    assert kinds == {True, False}
    assert loop.ledger.paper_bits_up == ROUNDS * n * (3 * 32 + 1)


@shrinking
def test_ef21plus_without_gain_is_ef21(C):
    """Exact.  Section 5.2: EF21, until a fresh start is nearer; without compression it never is."""
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
    assert fresh == 0 or not isinstance(C, TopK | Sign | Identity | Sparse)


# --- EF-SGD ---


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("method", [EFSGD, EF14])
def test_a_threshold_of_zero_is_sgd(method, batch):
    """Exact.  Section 5.4: lambda = 0 => SGD, and no error."""
    problem = Jumping(integers(4, 8))
    sample = sampler(problem, 4, batch, 9)
    loop = start(method(HardThreshold(0.0, values="f8"), gamma=EIGHTH, batch=batch), problem, 4, seed=9)
    x = problem.x0()
    for k in range(EXACT):
        x = x - EIGHTH * np.mean([sample(i, k, x) for i in range(4)], axis=0)
        loop.step(k)
        assert np.array_equal(loop.replica.x, x)
        assert not any(w.e.any() for w in loop.workers.values())


@everywhere
@pytest.mark.parametrize("lam", [0.003, 0.3])
def test_errors_stay_below_the_threshold(problem, n, batch, lam):
    """Exact.  Section 5.4: |e_j| < lambda for all j and t, whatever the step, payloads being f8."""
    for gamma in ("theory", "theory*0.01"):
        loop, largest = start(EFSGD(HardThreshold(lam, "f8"), gamma=gamma, batch=batch), problem, n), 0.0
        for k in range(ROUNDS):
            loop.step(k)
            largest = max(largest, *(np.abs(w.e).max() for w in loop.workers.values()))
        assert lam / 2 < largest < lam


@pytest.mark.parametrize("method", [EFSGD, EF14])
@pytest.mark.parametrize(
    "C", [TopK(3, values="f8"), TopK(1, values="f8"), HardThreshold(2.0, values="f8")], ids=repr
)
@pytest.mark.parametrize("batch", [None, 2])
def test_virtual_iterate(method, C, batch):
    """Exact.  Sections 5.1 and 5.4: x_t - gamma mean e_t = x_0 - gamma sum_{s<t} mean s_i; EF14's e has the
    gamma in it."""
    problem = Jumping(integers(4, 8))
    sample, loop = (
        sampler(problem, 4, batch, 6),
        start(method(C, gamma=EIGHTH, batch=batch), problem, 4, seed=6),
    )
    virtual = problem.x0()
    for k in range(7):
        virtual -= EIGHTH * np.mean([sample(i, k, loop.x) for i in range(4)], axis=0)
        loop.step(k)
        errors = np.mean([w.e for w in loop.workers.values()], axis=0)
        assert np.array_equal(loop.x - (EIGHTH if method is EFSGD else 1) * errors, virtual)
        assert errors.any()


@everywhere
@pytest.mark.parametrize("method", [EFSGD, EF14])
@pytest.mark.parametrize("C", [Shrunk(RandK(2)), Sign(), TopK(3), HardThreshold(0.1)], ids=repr)
def test_virtual_iterate_for_every_compressor(problem, n, batch, method, C):
    """The same to rounding: a few ulp of x, and of the step times the errors, a round."""
    gamma = 0.1 / problem.constants(n).L_max
    sample, loop = (
        sampler(problem, n, batch, 6),
        start(method(C, gamma=gamma, batch=batch), problem, n, seed=6),
    )
    virtual = problem.x0()
    scale = np.abs(virtual).max()
    for k in range(ROUNDS):
        virtual -= gamma * np.mean([sample(i, k, loop.x) for i in range(n)], axis=0)
        loop.step(k)
        errors = (gamma if method is EFSGD else 1) * np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.x).max(), np.abs(errors).max())
        assert np.abs(loop.x - errors.mean(axis=0) - virtual).max() <= 1e-15 * (k + 10) * scale


@pytest.mark.parametrize("C", [TopK(3), Sign(), QuantizedTopK(3, Natural()), Shrunk(RandK(3))], ids=repr)
def test_where_c_commutes_with_the_step_it_is_ef14(C):
    """Exact.  Section 5.1: the two variants agree for constant gamma; a power of two rounds nothing."""
    first, second = (
        trajectory(start(method(C, gamma=EIGHTH), Entropy(), 4), ROUNDS) for method in (EFSGD, EF14)
    )
    assert_equal(first, second)


def test_a_threshold_acts_on_the_gradient_and_not_on_the_step():
    """Exact.  EF14 with gamma lambda is EF-SGD with lambda; with lambda itself it is not."""
    wanted = trajectory(start(EFSGD(HardThreshold(0.04), gamma=EIGHTH), Entropy(), 4), ROUNDS)
    for lam, same in ((EIGHTH * 0.04, True), (0.04, False)):
        got = trajectory(start(EF14(HardThreshold(lam), gamma=EIGHTH), Entropy(), 4), ROUNDS)
        assert np.array_equal(got, wanted) == same


@pytest.mark.parametrize("lam", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("factor", ["theory", "theory*0.1"])
def test_efsgd_reaches_the_rate_of_its_bound(lam, noise, factor):
    """The docstring's bound, for certain: full gradients, payloads f8.  (1/T) sum |grad f(x_t)|^2 <=
    4 Delta_0/(gamma T) + 2 gamma^2 L^2 d lambda^2 for gamma <= 1/(2L)."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 150
    c = problem.constants(n)
    gap = objective_value(problem, n, problem.x0()) - c.f_star
    loop = start(EFSGD(HardThreshold(lam, "f8"), gamma=factor), problem, n)
    gamma = loop.method.gamma
    mean = np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)])
    assert mean <= 4 * gap / (gamma * T) + 2 * gamma**2 * c.L**2 * 20 * lam**2


def test_the_threshold_for_an_average_count():
    """Section 5.4: lambda = 1/(2 sqrt k)."""
    assert HardThreshold.averaging(100) == HardThreshold(0.05)
    assert HardThreshold.averaging(1.1e4, "f8").lam == pytest.approx(0.00477, rel=1e-3)
    for k in (0, -1, float("nan")):
        with pytest.raises(ConfigError, match="k="):
            HardThreshold.averaging(k)


# --- all of them ---


def test_the_total_error_is_that_of_what_was_held_back():
    """Column ``error``: sum over the rounds of the mean over the workers of |e_i|^2."""
    n = 5
    held = {
        EF21SGDM(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: w.v - w.g,
        EF21SGD2M(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: w.u - w.g,
        EF21(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: s - w.g,
        EF21Plus(TopK(3, values="f8"), gamma=0.5): lambda w, s: s - w.g,
        EFSGD(HardThreshold(0.3, values="f8"), gamma=0.1, batch=1): lambda w, s: w.e,
        EF14(HardThreshold(0.03, values="f8"), gamma=0.1, batch=1): lambda w, s: w.e / 0.1,
    }
    for method, error in held.items():
        sample = sampler(NOISY, n, getattr(method, "batch", None), 8)
        loop, total = start(method, NOISY, n, seed=8), 0.0
        for k in range(20):
            samples = [sample(i, k, loop.x) for i in range(n)]
            loop.step(k)
            total += np.mean([np.sum(error(w, samples[i]) ** 2) for i, w in loop.workers.items()])
        assert total > 0
        assert loop.observe().error == pytest.approx(total, rel=1e-12)


STOCHASTIC = [
    EF21SGDM(TopK(3), gamma=0.05, batch=1),
    EF21SGD2M(Shrunk(RandK(3)), gamma=0.05, batch=2),
    EF21(TopK(3), gamma=0.05, batch=1),
    EF14(TopK(3), gamma=0.05, batch=1),
    EFSGD(HardThreshold(0.2), gamma=0.05, batch=1),
]


@pytest.mark.parametrize("method", STOCHASTIC, ids=repr)
def test_batches_are_drawn_again_when_a_run_is_resumed(method, tmp_path):
    """Bit for bit, and with the same totals, the error's among them."""

    def run(rounds, **options):
        return mpicomp.run(method, NOISY, workers=5, rounds=rounds, every=5, seed=4, **options)

    run(15, out=tmp_path / "run")
    resumed, whole = run(40, out=tmp_path / "run", resume=True), run(40)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    assert [replace(row, seconds=0.0) for row in resumed.rows] == [
        replace(row, seconds=0.0) for row in whole.rows
    ]
    other = mpicomp.run(method, NOISY, workers=5, rounds=40, every=5, seed=5)
    assert other.iterates_sha256 != whole.iterates_sha256


@pytest.mark.parametrize(
    ("C", "d", "n", "alpha"), SHRINKING, ids=lambda v: repr(v) if hasattr(v, "alpha") else ""
)
def test_steps(C, d, n, alpha):
    """Sections 5.2 and 5.3; EF-SGD's as EF14's."""
    for eta in (0.01, 0.1, 1.0):
        assert resolved(EF21SGDM(C, eta=eta), d, n).gamma == pytest.approx(
            min(alpha / (20 * L_TILDE), eta / 21)
        )
        assert resolved(EF21SGD2M(C, eta=eta), d, n).gamma == pytest.approx(
            min(alpha / (60 * L_TILDE), eta / 48)
        )
    assert resolved(EF21SGDM(C), d, n).eta == 0.1
    assert resolved(EF21Plus(C), d, n).gamma == resolved(EF21(C), d, n).gamma
    assert resolved(EFSGD(C), d, n).gamma == pytest.approx(alpha / 30)


def test_the_step_of_a_hard_threshold_is_that_of_its_bound():
    assert resolved(EFSGD(HardThreshold(0.1)), 12, 4).gamma == pytest.approx(1 / (2 * HAND.L))


@pytest.mark.parametrize("method", [EF21SGDM, EF21SGD2M, EF21Plus, EFSGD])
@pytest.mark.parametrize("C", [RandK(2), PermK(), Natural(), HardThreshold(0.1), None], ids=repr)
def test_a_compressor_that_the_theorem_does_not_cover_is_refused(method, C):
    """With the nearest remedy, that is then accepted."""
    if method is EFSGD and isinstance(C, HardThreshold):
        return
    with pytest.raises(ConfigError, match=rf"{method.__name__} needs C to be contractive") as caught:
        method(C)
    remedy = f"Shrunk({C!r})" if isinstance(C, RandK | PermK | Natural) else "TopK(k=0.01)"
    assert remedy in str(caught.value)
    method(eval(remedy, dict(vars(compressors))))


@pytest.mark.parametrize("eta", [0, 0.0, -0.1, 1.5, float("nan"), True, None, "theory"], ids=repr)
@pytest.mark.parametrize("method", [EF21SGDM, EF21SGD2M])
def test_a_momentum_that_is_none_is_refused(method, eta):
    with pytest.raises(ConfigError, match="eta="):
        method(TopK(2), eta=eta)


@pytest.mark.parametrize("batch", [0, -1, 1.0, 0.0, True, "all"], ids=repr)
@pytest.mark.parametrize("method", [EF21, EF21SGDM, EF21SGD2M, EF14, EFSGD])
def test_a_batch_that_is_none_is_refused(method, batch):
    with pytest.raises(ConfigError, match="batch="):
        method(TopK(2), batch=batch)


def test_batches_need_a_problem_that_has_them():
    with pytest.raises(ConfigError, match=r"no stochastic gradients.*noisy\("):
        mpicomp.run(EF21SGDM(TopK(2), batch=1), NOISY.problem, workers=2, rounds=1)
