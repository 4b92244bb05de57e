"""EF21-P + DIANA; and what it, 2Direction, ADIANA and DASHA refuse."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    Bernoulli,
    HardThreshold,
    Identity,
    Lossless,
    Natural,
    PermK,
    RandK,
    Shrunk,
    Sign,
    TopK,
)
from mpicomp.methods import ADIANA, DASHA, DIANA, EF21P, GD, TwoDirection
from tests.reference.ef21p import ef21p
from tests.support.trajectories import (
    BY_HAND,
    EIGHTH,
    EXACT,
    HAND,
    L_TILDE,
    PLACES,
    ROUNDS,
    WHOLE,
    assert_close,
    assert_equal,
    assert_mean,
    codec,
    every_pair,
    every_place,
    every_uplink,
    gradients,
    integers,
    resolved,
    rounding,
    server_codec,
    squares,
    start,
    trajectory,
)

# --- the transcription ---

# Rounds are numbered as in the paper: round k draws with ``Key(seed, k, i, n)``.


@every_place
@every_pair
def test_ef21p_is_its_transcription(problem, n, Q, C):
    """docs/methods.md, EF21P, both w, which the run reports, and x, which the server keeps."""
    gamma = 0.3 / problem.constants(n).L_max
    loop = start(EF21P(C, Q, gamma=gamma), problem, n, seed=23)
    shifted, iterates = ef21p(
        gradients(problem, n),
        problem.x0(),
        gamma,
        loop.method.beta,
        codec(Q, 23, n),
        server_codec(C, 23, n),
        ROUNDS,
    )
    tolerance = max(rounding(Q), rounding(C))
    assert_close(trajectory(loop, ROUNDS), shifted, tolerance)
    assert np.abs(loop.server.x - iterates[-1]).max() <= tolerance * np.abs(iterates).max()


# --- what it is in special cases ---


@every_uplink
def test_ef21p_with_a_lossless_downlink_is_diana(Q):
    """docs/methods.md, EF21P: C = I => w = x, DIANA's.  To rounding: w + (x - w) is
    not always x in floating point."""
    problem, n = PLACES[0]
    gamma = 0.1 / problem.constants(n).L_max
    loop = start(EF21P(WHOLE, Q, gamma=gamma), problem, n, seed=2)
    wanted = trajectory(start(DIANA(Q, gamma=gamma, down=Lossless()), problem, n, seed=2), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(Q))
    assert np.abs(loop.server.x - loop.replica.w).max() <= 1e-15 * np.abs(wanted).max()


@pytest.mark.parametrize(
    "Q", [RandK(4, values="f8"), PermK(values="f8"), Bernoulli(0.5, values="f8")], ids=repr
)
def test_ef21p_with_a_lossless_downlink_is_diana_bit_for_bit(Q):
    """Exact, where data are integers and factors powers of two."""
    problem = integers(4, 8)
    loop = start(EF21P(WHOLE, Q, gamma=EIGHTH), problem, 4, seed=2)
    wanted = trajectory(start(DIANA(Q, gamma=EIGHTH), problem, 4, seed=2), 7)
    assert_equal(trajectory(loop, 7), wanted)
    assert np.array_equal(loop.server.x, loop.replica.w)


@pytest.mark.parametrize("C", [WHOLE, TopK(8, values="f8")], ids=repr)
def test_ef21p_without_compression_is_gd(C):
    """Exact.  docs/methods.md, EF21P; Q is Identity() unless said otherwise, in f8 here."""
    problem = integers(4, 8)
    wanted = trajectory(start(GD(EIGHTH, values="f8"), problem, 4), EXACT)
    assert_equal(trajectory(start(EF21P(C, WHOLE, gamma=EIGHTH), problem, 4), EXACT), wanted)
    assert isinstance(EF21P(C).Q, Identity)


@every_pair
def test_ef21p_keeps_h_the_mean_of_h_i(Q, C):
    problem, n = PLACES[0]
    loop = start(EF21P(C, Q), problem, n)
    for k in range(30):
        loop.step(k)
        assert_mean(loop.server.h, loop, "h")


# --- step sizes, and the way to the optimum ---


@pytest.mark.parametrize(
    ("C", "alpha"), [(TopK(3), 1 / 4), (Sign(), 1 / 12), (Identity(), 1)], ids=lambda v: repr(v)
)
@pytest.mark.parametrize(("Q", "omega", "A"), BY_HAND)
def test_ef21p_steps(C, alpha, Q, omega, A):
    """docs/methods.md, EF21P, with A for omega/n; each of the bounds."""
    bounds = [
        1 / (160 * A * 5),
        sqrt(alpha / A) / (20 * L_TILDE),
        alpha / (100 * 3),
    ]
    method = resolved(EF21P(C, Q), 12, 4)
    assert method.gamma == pytest.approx(min(*bounds, 1 / ((omega + 1) * 0.1)))
    assert method.beta == pytest.approx(1 / (1 + omega))
    stiff = resolved(EF21P(C, Q), 12, 4, replace(HAND, mu=1e9))
    assert stiff.gamma == pytest.approx(1 / ((omega + 1) * 1e9))
    plain = replace(HAND, mu=0.0, L=1e-9)
    assert resolved(EF21P(C, Q), 12, 4, plain).gamma == pytest.approx(min(*bounds[:2], alpha / 1e-7))
    convex = replace(HAND, mu=0.0, convex=False)
    assert resolved(EF21P(C), 12, 4, convex).gamma == pytest.approx(alpha / 300)
    for some in (convex, replace(HAND, mu=None), replace(HAND, convex=None)):
        with pytest.raises(ConfigError, match="convex"):
            resolved(EF21P(C, Q), 12, 4, some)


def test_ef21p_steps_of_dependent_compressors():
    """n = 5 with one mask are as one: the first bound is 5 times less; for small alpha the second, sqrt 5."""
    c = replace(HAND, mu=0.0, L=1e-9, L_i=(1.0,) * 5)
    for C, d, factor in ((Identity(), 12, 5), (Sign(), 1200, sqrt(5))):
        independent, shared = (EF21P(C, RandK(0.25, mask=mask)) for mask in ("independent", "shared"))
        gammas = [resolved(method, d, 5, c).gamma for method in (independent, shared)]
        assert gammas[0] == pytest.approx(factor * gammas[1])


@pytest.mark.parametrize(
    ("Q", "C"), [(RandK(2), TopK(2)), (PermK(), Sign()), (Natural(), Shrunk(RandK(4)))], ids=repr
)
def test_ef21p_converges_linearly(C, Q):
    """docs/methods.md, EF21P: in practice a multiple of the theory step works; here 0.05/L."""
    problem = squares(4, 8, seed=31)
    gamma = 0.05 / problem.constants(4).L
    errors = [
        np.sum((w - problem.x_star) ** 2)
        for w in trajectory(start(EF21P(C, Q, gamma=gamma), problem, 4, seed=1), 900)[::300]
    ]
    assert all(new < 0.2 * old or new < 1e-20 for old, new in pairwise(errors)), errors


# --- what is refused ---


@pytest.mark.parametrize(
    "Q", [TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1), "randk", None], ids=repr
)
@pytest.mark.parametrize(
    "make",
    [
        ADIANA,
        DASHA,
        lambda Q: EF21P(TopK(2), Q),
        lambda Q: TwoDirection(TopK(2), Q),
    ],
    ids=["ADIANA", "DASHA", "EF21P", "TwoDirection"],
)
def test_an_uplink_of_the_wrong_kind_is_refused(make, Q):
    with pytest.raises(ConfigError, match=r"needs Q to be unbiased.*RandK\(k=0\.01\)"):
        make(Q)


@pytest.mark.parametrize("C", [RandK(2), PermK(), Natural(), HardThreshold(0.1), "topk", None], ids=repr)
@pytest.mark.parametrize("make", [EF21P, lambda C: TwoDirection(C, RandK(2))], ids=["EF21P", "TwoDirection"])
def test_a_downlink_of_the_wrong_kind_is_refused(make, C):
    with pytest.raises(ConfigError, match=r"needs C to be contractive.*TopK\(k=0\.01\)"):
        make(C)


@pytest.mark.parametrize("make", [EF21P, lambda C: TwoDirection(C, RandK(2))], ids=["EF21P", "TwoDirection"])
def test_a_joint_compressor_cannot_serve_the_server(make):
    with pytest.raises(ConfigError, match=r"PermK"):
        problem, n = PLACES[0]
        trajectory(start(replace(make(Shrunk(PermK())), **{make(TopK(2)).step_name: 1.0}), problem, n), 2)


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        (ADIANA(RandK(2)), "mu", [0, -1.0, "theory*x", None]),
        (ADIANA(RandK(2)), "p", [0.0, 1.5, "theory"]),
        (ADIANA(RandK(2)), "alpha", [0.0, -0.5, 1.5]),
        (ADIANA(RandK(2)), "parameters", ["refind", None, 3]),
        (ADIANA(RandK(2)), "down", [RandK(2), TopK(2)]),
        (DASHA(RandK(2)), "a", [0.0, 1.5, "theory"]),
        (DASHA(RandK(2)), "down", [RandK(2), TopK(2)]),
        (EF21P(TopK(2)), "beta", [0.0, 1.5, "theory"]),
        (TwoDirection(TopK(2), RandK(2)), "mu", [-1.0, float("nan"), "theory*x"]),
        (TwoDirection(TopK(2), RandK(2)), "p", [0.0, 1.5]),
        (TwoDirection(TopK(2), RandK(2)), "tau", [0.0, 1.5]),
        (TwoDirection(TopK(2), RandK(2)), "beta", [0.0, 1.5]),
        (TwoDirection(TopK(2), RandK(2)), "dense", [RandK(2), TopK(2), Lossless()]),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "paper") else str(v),
)
def test_other_parameters_are_checked_too(method, name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            replace(method, **{name: value})
