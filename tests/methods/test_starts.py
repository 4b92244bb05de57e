"""Where estimates and shifts begin: every start of every method that leaves it open."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Compressor, Identity, Lossless, Natural, RandK, Shrunk, TopK
from mpicomp.methods import (
    DASHA,
    DASHAMVR,
    DASHAPAGE,
    DIANA,
    EF21,
    EF21LMO,
    EF21P,
    EF21SGD2M,
    EF21SGDM,
    GD,
    MCM,
    VRDIANA,
    Artemis,
    Dore,
    EControl,
    EF21Muon,
    EF21Plus,
    Method,
)
from mpicomp.methods.parameters import checks_of
from tests.reference.artemis import artemis
from tests.reference.dasha import dasha
from tests.reference.dashamvr import dashamvr
from tests.reference.dashapage import dashapage
from tests.reference.diana import diana
from tests.reference.dore import dore
from tests.reference.ef21 import ef21
from tests.reference.ef21p import ef21p
from tests.reference.ef21plus import ef21plus
from tests.reference.ef21sgd2m import ef21sgd2m
from tests.reference.ef21sgdm import ef21sgdm
from tests.reference.mcm import mcm
from tests.reference.vrdiana import vrdiana
from tests.support.bidirectional import devices, in_rounds
from tests.support.error_feedback import NOISY, sampler
from tests.support.finite_sums import PLACES as SUMS
from tests.support.finite_sums import batches, coins, workers
from tests.support.method_cases import METHOD_CASES
from tests.support.trajectories import (
    EIGHTH,
    EXACT,
    PLACES,
    ROUNDS,
    WHOLE,
    Entropy,
    assert_close,
    assert_equal,
    assert_mean,
    beginning,
    codec,
    gradients,
    integers,
    rounding,
    server_codec,
    start,
    trajectory,
)

SEED = 51
ALL = ("zero", "gradient", "compressed")
ESTIMATES = ALL[1:]
all_starts = pytest.mark.parametrize("begin", ALL)
estimates = pytest.mark.parametrize("begin", ESTIMATES)
unbiased = pytest.mark.parametrize("Q", [RandK(3, values="f8"), Natural()], ids=repr)
shrinking = pytest.mark.parametrize("C", [TopK(2, values="f8"), Shrunk(RandK(3))], ids=repr)
in_places = pytest.mark.parametrize(("problem", "n"), PLACES[:2], ids=["d12-n4", "d13-n5"])
DOWN = RandK(6, values="f8")
COMPRESSORS = {"Q": RandK(3), "C": TopK(3), "down": DOWN}


def compressed_alike(method: Method) -> Method:
    """The method with ``COMPRESSORS`` in place of its own; a broadcast without loss stays one."""
    own = {name for name, C in vars(method).items() if isinstance(C, Compressor) and C != Lossless()}
    given = {name: C for name, C in COMPRESSORS.items() if name in own}
    if {"C", "down"} <= given.keys():  # both contractive
        given["down"] = Shrunk(DOWN)
    return replace(method, **given)


def starts(method: Method) -> tuple[str, ...]:
    """The starts that a method's class offers."""
    checks = checks_of(type(method))
    return checks["start"].allowed if "start" in checks else ()


DEFAULTS = {compressed_alike(case.method): case.start for case in METHOD_CASES if starts(case.method)}
STARTED = [replace(method, start=begin) for method in DEFAULTS for begin in starts(method)]
every_start = pytest.mark.parametrize("method", STARTED, ids=lambda m: f"{type(m).__name__}-{m.start}")


# --- the transcriptions ---

# What is sent for the start is round 0, and round k of a run is that of the paper at x^k.  From 0, DASHA and
# its kin leave out the paper's first step, which goes nowhere.


def iterates_of(method, problem, n):
    """The iterates of a method, and the method with the numbers that theory gives it."""
    loop = start(method, problem, n, SEED)
    return trajectory(loop, ROUNDS), loop.method


def uplink(C, n, begin):
    """What the server makes of round k's messages, and of the start's (see ``trajectories.beginning``)."""
    return codec(C, SEED, n), beginning(begin, C, SEED, n)


@in_places
@unbiased
@all_starts
def test_dasha(problem, n, Q, begin):
    gamma = start(DASHA(Q, gamma="theory*4"), problem, n).method.gamma
    got, m = iterates_of(DASHA(Q, gamma=gamma, a=0.3, start=begin), problem, n)
    skipped = begin == "zero"
    compress, first = uplink(Q, n, begin)
    wanted = dasha(gradients(problem, n), problem.x0(), m.gamma, 0.3, compress, ROUNDS + skipped, first)
    assert np.array_equal(wanted[0], wanted[1]) == skipped
    assert_close(got, wanted[skipped:], rounding(m))


@pytest.mark.parametrize(("problem", "batch"), [(SUMS[0], 2), (SUMS[1], 1)], ids=["d12-n4", "d13-n5"])
@unbiased
@all_starts
def test_dasha_on_batches(problem, batch, Q, begin):
    n, x0, s = workers(problem), problem.x0(), batches(problem, SEED, batch)
    skipped = begin == "zero"
    rounds, (compress, first) = ROUNDS + skipped, uplink(Q, n, begin)

    got, m = iterates_of(DASHAPAGE(Q, batch, gamma="theory*8", p=0.2, start=begin), problem, n)
    coin = coins("dasha/coin", SEED, n, 0.2)
    wanted = dashapage(gradients(problem, n), s, x0, m.gamma, m.a, compress, coin, rounds, first)
    assert_close(got, wanted[skipped:], rounding(m))

    got, m = iterates_of(DASHAMVR(Q, batch, b=0.4, gamma=0.02, start=begin), problem, n)
    wanted = dashamvr(n, s, x0, m.gamma, m.a, 0.4, compress, rounds, first)
    assert_close(got, wanted[skipped:], rounding(m))


@in_places
@shrinking
@estimates
def test_ef21_and_ef21plus(problem, n, C, begin):
    gamma, x0, grads = 0.3 / problem.constants(n).L_max, problem.x0(), gradients(problem, n)
    compress, first = uplink(C, n, begin)

    got, m = iterates_of(EF21(C, gamma=gamma, start=begin), problem, n)
    assert_close(got, ef21(grads, x0, gamma, compress, ROUNDS, first), rounding(m))

    def fresh(i, k, v):
        key = mpicomp.Key(SEED, k, i, n).named("fresh")
        return C.decompress(C.compress(v, key), v.size, key)

    got, m = iterates_of(EF21Plus(C, gamma=gamma, start=begin), problem, n)
    whole = first if begin == "gradient" else None
    wanted, _ = ef21plus(grads, x0, gamma, compress, fresh, ROUNDS, whole)
    assert_close(got, wanted, rounding(m))


@pytest.mark.parametrize(("method", "reference"), [(EF21SGDM, ef21sgdm), (EF21SGD2M, ef21sgd2m)])
@pytest.mark.parametrize("batch", [None, 2])
@shrinking
@estimates
def test_ef21_with_momentum(method, reference, batch, C, begin):
    n, gamma = 5, 0.1 / NOISY.constants(5).L_max
    got, m = iterates_of(method(C, gamma=gamma, eta=0.3, batch=batch, start=begin), NOISY, n)
    sample = sampler(NOISY, n, batch, SEED)
    compress, first = uplink(C, n, begin)
    wanted = reference(n, sample, NOISY.x0(), gamma, 0.3, compress, ROUNDS, first)
    assert_close(got, wanted, rounding(m))


@in_places
@unbiased
@all_starts
def test_diana(problem, n, Q, begin):
    got, m = iterates_of(DIANA(Q, gamma="theory*2", start=begin), problem, n)
    compress, first = uplink(Q, n, begin)
    wanted = diana(gradients(problem, n), problem.x0(), m.gamma, m.alpha, compress, ROUNDS, first)
    assert_close(got, wanted, rounding(m))


@unbiased
@all_starts
def test_vrdiana(Q, begin):
    problem, n = SUMS[0], 4
    got, m = iterates_of(VRDIANA(Q, 2, gamma="theory*4", p=0.2, start=begin), problem, n)
    compress, first = uplink(Q, n, begin)
    coin, s = coins("vrdiana/coin", SEED, n, 0.2), batches(problem, SEED, 2)
    grads, x0 = gradients(problem, n), problem.x0()
    wanted, _ = vrdiana(grads, s, x0, m.gamma, m.alpha, compress, coin, ROUNDS, first)
    assert_close(got, wanted, rounding(m))


@in_places
@unbiased
@all_starts
@pytest.mark.parametrize("p", [1.0, 0.6])
def test_artemis(problem, n, Q, begin, p):
    got, m = iterates_of(Artemis(Q, DOWN, alpha_down=0.2, p=p, start=begin), problem, n)
    compress, first = uplink(Q, n, begin)
    way = compress, server_codec(DOWN, SEED, n), devices(SEED, n, p)
    grad, x0 = in_rounds(problem, n), problem.x0()
    wanted, _ = artemis(grad, n, x0, m.gamma, m.alpha, 0.2, p, *way, ROUNDS, first)
    assert_close(got, wanted, rounding(Q))


@in_places
@unbiased
@all_starts
def test_mcm_dore_and_ef21p(problem, n, Q, begin):
    grad, x0, (compress, first) = in_rounds(problem, n), problem.x0(), uplink(Q, n, begin)
    way = compress, server_codec(DOWN, SEED, n)

    got, m = iterates_of(MCM(Q, DOWN, gamma="theory*4", start=begin), problem, n)
    wanted, _ = mcm(grad, n, x0, m.gamma, m.alpha, m.alpha_down, *way, ROUNDS, first)
    assert_close(got, wanted, rounding(Q))

    got, m = iterates_of(Dore(Q, DOWN, gamma="theory*2", start=begin), problem, n)
    wanted, _ = dore(grad, n, x0, m.gamma, m.alpha, m.beta, m.eta, *way, ROUNDS, first)
    assert_close(got, wanted, rounding(Q))

    C, gamma = TopK(4, values="f8"), 0.1 / problem.constants(n).L_max
    got, m = iterates_of(EF21P(C, Q, gamma=gamma, start=begin), problem, n)
    way = compress, server_codec(C, SEED, n)
    wanted, _ = ef21p(gradients(problem, n), x0, gamma, m.beta, *way, ROUNDS, first)
    assert_close(got, wanted, rounding(Q))


# --- which there are ---


@pytest.mark.parametrize("method", DEFAULTS, ids=lambda m: type(m).__name__)
def test_the_default(method):
    assert method.start == DEFAULTS[method]


@pytest.mark.parametrize("method", DEFAULTS, ids=lambda m: type(m).__name__)
def test_the_starts_differ(method):
    """Each start that is offered is a run of its own."""
    runs = [trajectory(start(replace(method, start=begin), Entropy(), 4), 5) for begin in starts(method)]
    for i, one in enumerate(runs):
        assert not any(np.array_equal(one, other) for other in runs[:i])


@pytest.mark.parametrize("method", [EF21, EF21Plus, EF21SGDM, EF21SGD2M, EControl])
def test_the_kin_of_ef21_do_not_start_from_zero(method):
    with pytest.raises(ConfigError, match=rf"start='zero': {method.__name__} .* allowed: 'gradient', 'compr"):
        method(TopK(2), start="zero")


def test_from_zero_ef21_would_lose_a_round():
    """Exact: a step of length 0, and then what "compressed" is."""
    problem, C = integers(4, 8), TopK(2, values="f8")

    def zero(i, k, v):
        return np.zeros_like(v)

    wanted = ef21(gradients(problem, 4), problem.x0(), EIGHTH, codec(C, 0, 4), EXACT + 1, zero)
    assert np.array_equal(wanted[0], wanted[1])
    assert_equal(trajectory(start(EF21(C, gamma=EIGHTH), problem, 4), EXACT), wanted[1:])


@pytest.mark.parametrize("method", DEFAULTS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("begin", ["", "Gradient", "dense", None, 0])
def test_no_other_start(method, begin):
    with pytest.raises(ConfigError, match=r"start=.*; allowed: .*'gradient', 'compressed'"):
        replace(method, start=begin)


def test_artemis_without_memory_has_none_to_start():
    """Exact.  alpha = 0 is Bi-QSGD, and h_i = 0, whatever the start."""
    method = Artemis(RandK(3), DOWN, alpha=0, p=0.6)
    runs = [trajectory(start(replace(method, start=begin), Entropy(), 4), 12) for begin in ALL]
    assert_equal(runs[0], runs[1])
    assert_equal(runs[0], runs[2])


# --- what holds ---


@every_start
def test_the_mean_is_kept_from_round_0(method):
    """g = mean g_i, or h = mean h_i, where the ranks or the server have it."""
    loop = start(method, Entropy(), 4)
    name = "g" if hasattr(loop.workers[0], "g") else "h"
    held = loop.replica if hasattr(loop.replica, name) else loop.server
    for k in range(12):
        loop.step(k)
        assert getattr(held, name).any()
        assert_mean(getattr(held, name), loop, name)


@every_start
def test_round_0_begins_at_what_it_sends(method):
    """grad f_i(x^0) in float32, or C_i(grad f_i(x^0)); from 0 it is a first step towards the latter."""
    problem, n = Entropy(), 4
    loop = start(method, problem, n, seed=3)
    grads = [grad(problem.x0()) for grad in gradients(problem, n)]
    loop.step(0)
    C = getattr(method, "Q", None) or method.C
    first = beginning(method.start, C, 3, n)
    for i, w in loop.workers.items():
        kept = w.g if hasattr(w, "g") else w.h
        if method.start == "gradient":
            assert np.array_equal(kept, np.float32(grads[i]))
        elif method.start == "zero":
            rate = loop.method.a if hasattr(method, "a") else getattr(loop.method, "alpha", None)
            wanted = codec(C, 3, n)(i, 0, grads[i]) * (rate or loop.method.beta)
            assert kept == pytest.approx(wanted, rel=1e-6)
        elif not isinstance(method, EF21Plus):
            assert np.array_equal(kept, first(i, 0, grads[i]))


@every_start
def test_the_ledger_has_what_the_start_sends(method):
    """From the gradient 4 bytes a coordinate in round 0, else a message like all others."""
    problem, n, d = Entropy(), 4, 12
    loop = start(method, problem, n)
    loop.step(0)
    first, bits = loop.ledger.up.copy(), loop.ledger.paper_bits_up
    loop.step(1)
    second = loop.ledger.up - first
    fields = 1 if isinstance(method, EF21Plus) else 0  # a byte says that nothing is handed back
    if method.start == "gradient":
        assert (first == Identity().nbytes(d) + fields).all() and Identity().nbytes(d) == 4 * d
        assert bits == n * (32 * d + fields)
        assert (second < first).all()
    else:
        assert (first == second).all()
        assert 2 * bits == loop.ledger.paper_bits_up


def is_rate(method: Method, name: str) -> bool:
    """Whether the field may be 1, as the rate of a shift or an average may; a momentum may not."""
    try:
        checks_of(type(method))[name](type(method).__name__, name, 1.0)
    except ConfigError:
        return False
    return True


ALONG_ESTIMATES = [m for m in STARTED if not isinstance(m, EF21LMO | EF21Muon)]


@pytest.mark.parametrize("method", ALONG_ESTIMATES, ids=lambda m: f"{type(m).__name__}-{m.start}")
def test_without_compression_every_start_is_gd(method):
    """Exact: float32 holds the first gradients.  DASHA from 0 sends all of it too, as a = 1."""
    ways = {"Q": WHOLE, "C": WHOLE, "down": WHOLE}
    given = {f.name: ways[f.name] for f in fields(method) if f.name in ways}
    if vars(method).get("down") == Lossless():  # which is without loss, and stays
        del given["down"]
    given |= {name: 1.0 for name in ("eta", "alpha") if hasattr(method, name) and is_rate(method, name)}
    if isinstance(method, EF21P):
        given["beta"] = 1.0
    problem = integers(4, 8)
    loop = start(replace(method, gamma=EIGHTH, **given), problem, 4)
    assert_equal(trajectory(loop, EXACT), trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT))
