"""Step sizes: theory's, from constants given by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    Bernoulli,
    Dithering,
    HardThreshold,
    Identity,
    Lazy,
    Lossless,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    Ternary,
    TopK,
)
from mpicomp.methods import (
    ADIANA,
    AGD,
    DASHA,
    DASHAMVR,
    DASHAPAGE,
    DCGD,
    DIANA,
    EF14,
    EF21,
    EF21LMO,
    EF21P,
    GD,
    MARINA,
    MCM,
    VRDIANA,
    ADIANAPlus,
    Artemis,
    DCGDPlus,
    DIANAPlus,
    Dore,
    LoCoDL,
    TwoDirection,
)
from tests.support.trajectories import HAND, L_MEAN, resolved


def test_steps_of_the_uncompressed():
    """docs/methods.md, GD and AGD."""
    assert resolved(GD(), 12, 4).gamma == pytest.approx(1 / 3)
    assert resolved(GD("theory*8"), 12, 4).gamma == pytest.approx(8 / 3)
    assert resolved(GD(0.7), 12, 4).gamma == 0.7
    method = resolved(AGD(), 12, 4)
    assert (method.gamma, method.mu) == (pytest.approx(1 / 3), 0.1)
    assert resolved(AGD(), 12, 4, replace(HAND, mu=0.0, convex=False)).mu == 0
    assert resolved(AGD(gamma=0.2, mu=0.3), 12, 4).mu == 0.3


# Q, d, n, omega, A, B: docs/methods.md#correlated-compressors and each compressor there, by hand.
JOINT = [
    (Identity(), 12, 4, 0, 0, 0),
    (Lossless(), 12, 4, 0, 0, 0),
    (RandK(3), 12, 4, 3, 3 / 4, 0),
    (RandK(0.25, layout="block"), 12, 4, 3, 3 / 4, 0),
    (RandK(3, mask="shared"), 12, 4, 3, 3, 0),  # the same mask everywhere: averaging gains nothing
    (Bernoulli(0.25), 12, 4, 3, 3 / 4, 0),
    (Lazy(0.2), 12, 4, 4, 1, 0),
    (PermK(), 12, 4, 3, 1, 1),
    (PermK(), 13, 4, 3, 1, 1),
    (PermK("block"), 12, 4, 3, 1, 1),
    (PermK(), 4, 12, 3, 3 / 11, 3 / 11),  # (d-1)/(n-1) where d divides n
    (PermK(), 4, 13, 13 / 3 - 1, 10 / 36, 10 / 36),  # q = 3: (n-q)/(q(n-1))
    (PermK(), 6, 1, 0, 0, 0),
    (Natural(), 12, 4, 1 / 8, 1 / 32, 0),
    (Dithering(3), 12, 4, 1 / 3, 1 / 12, 0),  # d/(4 s^2), as 36 = 12 modulo 8
    (Dithering(1), 16, 4, 3, 3 / 4, 0),  # sqrt(d)/s - 1
    (Dithering(1), 100, 4, 9, 9 / 4, 0),
    (Dithering(1, "inf"), 9, 4, 1, 1 / 4, 0),  # (sqrt(1 + (d - 1)/s^2) - 1)/2
    (Dithering(2, "inf"), 13, 4, 1 / 2, 1 / 8, 0),
    (Ternary(), 16, 4, 3 / 2, 3 / 8, 0),
    (NaturalDithering(2), 100, 4, 4, 1, 0),  # t - 1, t = sqrt(d) 2^(1 - s)
    (NaturalDithering(3), 36, 4, 1 / 8 + 1 / 2, 5 / 32, 0),  # 1/8 + 2 t^2/9 where t < 9/4
    (NaturalDithering(3, "inf"), 129, 4, 1, 1 / 4, 0),  # (sqrt(1 + (d - 1)/4^(s - 1)) - 1)/2
    (NaturalDithering(5, "inf"), 16, 4, 1 / 8, 1 / 32, 0),
    (Quantized(RandK(3), Natural()), 12, 4, 7 / 2, 7 / 8, 0),  # (1 + 3)(1 + 1/8) - 1
    (Quantized(PermK(), Natural()), 12, 4, 7 / 2, 9 / 8, 1),
]


@pytest.mark.parametrize(
    ("Q", "d", "n", "omega", "A", "B"), JOINT, ids=lambda v: repr(v) if hasattr(v, "omega") else ""
)
def test_steps_for_unbiased_compressors(Q, d, n, omega, A, B):
    """docs/methods.md, DCGD, DIANA (convex and not) and MARINA, with A for omega/n."""
    assert resolved(DCGD(Q), d, n).gamma == pytest.approx(1 / (3 + 2 * A * 5))
    convex = resolved(DIANA(Q), d, n)
    assert convex.gamma == pytest.approx(1 / ((1 + 6 * A) * 5))
    assert convex.alpha == pytest.approx(1 / (1 + omega))
    slowdown = sqrt(A) * (1 + omega + sqrt(omega * (1 + omega)))  # 1/(1 - sqrt rho), rho = omega/(1 + omega)
    for c in (replace(HAND, mu=None), replace(HAND, convex=False), replace(HAND, convex=None)):
        assert resolved(DIANA(Q), d, n, c).gamma == pytest.approx(1 / (3 + 3.5 * slowdown))
    assert resolved(DIANA(Q, gamma=1.0, alpha=0.3), d, n).alpha == 0.3
    p = 0.15
    marina = resolved(MARINA(Q, p=p), d, n)
    assert marina.gamma == pytest.approx(1 / (3 + sqrt((1 - p) / p * ((A - B) * 3.5**2 + B * 1.25**2))))


def test_marina_steps_as_its_papers_state_them():
    """docs/methods.md, MARINA: 1/(L(1 + omega/sqrt n)) if p = 1/(1+omega); PermK
    1/(L + sqrt((1-p)/p) L_pm); p = 1."""
    equal = replace(HAND, L_plus=3.0)
    assert resolved(MARINA(RandK(3), p=1 / 4), 12, 4, equal).gamma == pytest.approx(1 / (3 * (1 + 3 / 2)))
    assert resolved(MARINA(PermK(), p=1 / 4), 12, 4).gamma == pytest.approx(1 / (3 + sqrt(3) * 1.25))
    assert resolved(MARINA(PermK()), 12, 4, replace(HAND, L_pm=0.0)).gamma == pytest.approx(1 / 3)
    assert resolved(MARINA(RandK(3), p=1.0), 12, 4).gamma == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("method", "d", "n", "p"),
    [
        (MARINA(RandK(3)), 12, 4, 1 / 4),  # K/d
        (MARINA(RandK(3), sync=Identity("f8")), 12, 4, 1 / 8),  # in bytes
        (MARINA(PermK()), 12, 4, 1 / 4),
        (MARINA(PermK()), 13, 4, 1 / 4),  # 3.25 floats on average
        (MARINA(PermK()), 4, 12, 1 / 4),
        (MARINA(PermK()), 4, 13, 12 / 13 / 4),  # one worker of 13 sends nothing
        (MARINA(Bernoulli(0.25)), 12, 4, 1 / 4),
        (MARINA(Lazy(0.25)), 12, 4, 1 / 4),
        (MARINA(Natural()), 12, 4, 14 / 48),  # 2 bytes of signs, 12 of exponents
        (MARINA(Dithering(3)), 12, 4, 9 / 48),  # a norm and 36 bits
        (MARINA(Identity()), 12, 4, 1.0),
        (MARINA(Identity("f8")), 12, 4, 1.0),  # never above 1
    ],
    ids=lambda v: repr(v) if isinstance(v, MARINA) else "",
)
def test_marina_default_p_balances_the_bytes(method, d, n, p):
    """docs/methods.md, MARINA, p = zeta/d, taken in bytes."""
    assert resolved(method, d, n).p == pytest.approx(p)
    assert resolved(replace(method, p=0.3), d, n).p == 0.3


SHRINKING = [
    (TopK(3), 12, 4, 1 / 4),
    (Sign(), 12, 4, 1 / 12),
    (QuantizedTopK(4, Natural()), 12, 4, 4 / (12 * 9 / 8)),
    (Shrunk(RandK(3)), 12, 4, 1 / 4),
    (Shrunk(PermK()), 12, 4, 1 / 4),
    (Shrunk(PermK()), 4, 13, 3 / 13),
    (Identity(), 12, 4, 1),
]


@pytest.mark.parametrize(
    ("C", "d", "n", "alpha"), SHRINKING, ids=lambda v: repr(v) if hasattr(v, "alpha") else ""
)
def test_steps_for_contractive_compressors(C, d, n, alpha):
    """docs/methods.md, EF14 (alpha/(10 sqrt(L L_max))) and EF21, with theta and beta as there."""
    theta = 1 - sqrt(1 - alpha)
    beta = (1 - alpha) / theta
    assert resolved(EF21(C), d, n).gamma == pytest.approx(1 / (3 + L_MEAN * sqrt(beta / theta)))
    assert resolved(EF14(C), d, n).gamma == pytest.approx(alpha / (10 * sqrt(15 if alpha < 1 else 9)))


NONCONVEX = [
    (replace(HAND, mu=None), "mu is None"),
    (replace(HAND, mu=None, convex=True), "mu is None"),
    (replace(HAND, convex=False), "some f_i is not, though f is"),
    (replace(HAND, convex=None), "convex=True"),
]
CONVEX = [
    DCGD(RandK(3)),
    DCGD(PermK(), gamma="theory*8"),
    Artemis(RandK(3), Natural()),
    MCM(RandK(3), Natural()),
    Dore(Natural(), RandK(3)),
    EF21P(TopK(3), RandK(3)),
    TwoDirection(TopK(3), RandK(3)),
    ADIANA(RandK(3)),
    ADIANA(RandK(3), parameters="refined", mu=0.1),
    DCGDPlus(RandK(3)),
    DIANAPlus(RandK(3)),
    ADIANAPlus(RandK(3)),
]


# ω of RandK(3) in R^12 is 3; that of Natural is 1/8.  Each rate is out of its theorem's reach.
RATES = [
    (DIANA(RandK(3), alpha=0.26), r"alpha <= 1/\(1 \+ ω\) = 0.25"),
    (VRDIANA(RandK(3), batch=None, alpha=0.26, p=0.5), r"alpha <= 1/\(1 \+ ω\) = 0.25"),
    (Dore(RandK(3), Natural(), alpha=0.26), r"alpha <= 1/\(1 \+ ω\) = 0.25"),
    (Artemis(RandK(3), Natural(), alpha=0.26), r"alpha <= 1/\(1 \+ ω\) = 0.25"),
    (Artemis(RandK(3), RandK(3), alpha_down=0.26), r"alpha_down <= 1/\(1 \+ ω'\) = 0.25"),
    (MCM(RandK(3), Natural(), alpha=0.26), r"alpha <= 1/\(1 \+ ω\) = 0.25"),
    (MCM(Natural(), RandK(3), alpha_down=0.13), r"alpha_down <= 1/\(2\(1 \+ ω'\)\) = 0.125"),
    (EF21P(TopK(3), RandK(3), beta=0.1), r"beta = 1/\(1 \+ ω\) = 0.25"),
    (TwoDirection(TopK(3), RandK(3), beta=0.3), r"beta <= 1/\(1 \+ ω\) = 0.25"),
    (ADIANA(RandK(3), alpha=0.1), r"alpha = 1/\(1 \+ ω\) = 0.25"),
    (DASHA(RandK(3), a=0.1), r"a = 1/\(2ω \+ 1\) = 0.142857"),
    (DASHAPAGE(RandK(3), batch=None, a=0.2, p=0.5), r"a = 1/\(2ω \+ 1\) = 0.142857"),
    (DASHAMVR(RandK(3), batch=None, a=0.2, b=0.5), r"a = 1/\(2ω \+ 1\) = 0.142857"),
    (DIANAPlus(RandK(3), alpha="theory*1.1"), r"alpha <= 1/\(1 \+ ω_max\)"),
    (ADIANAPlus(RandK(3), alpha="theory*0.9"), r"alpha = 1/\(1 \+ ω_max\)"),
]


@pytest.mark.parametrize(("method", "said"), RATES, ids=lambda v: repr(v) if hasattr(v, "step") else "")
def test_a_rate_outside_its_theorem_has_no_step(method, said):
    """A step given as a number goes with any rate."""
    c = replace(HAND, diagonals=lambda: np.ones((4, 12)))
    with pytest.raises(ConfigError, match=rf"{said}.*give {method.step_name} as a number"):
        resolved(method, 12, 4, c)
    assert resolved(method.with_step(0.25), 12, 4, c).step == 0.25


@pytest.mark.parametrize(("c", "why"), NONCONVEX, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("method", CONVEX, ids=repr)
def test_theorems_for_convex_functions_are_refused_elsewhere(method, c, why):
    """The message says which fact is missing, which numbers would do, and which methods."""
    with pytest.raises(ConfigError, match=rf"convex f_i.*{why}.*Give {method.step_name}.*MARINA"):
        resolved(method, 12, 4, c)
    assert (
        resolved(method.with_step(0.25), 12, 4, replace(HAND, diagonals=lambda: np.ones((4, 12)))).step
        == 0.25
    )


def test_agd_needs_f_alone_to_be_convex():
    assert resolved(AGD(), 12, 4, replace(HAND, convex=False)).gamma == pytest.approx(1 / 3)
    for method in (AGD(), AGD(mu=0), AGD("theory*4", mu=0.1), AGD(0.1)):
        with pytest.raises(ConfigError, match=r"for convex f, .*mu is None.*or take GD"):
            resolved(method, 12, 4, replace(HAND, mu=None))
    assert resolved(AGD(0.1, mu=0), 12, 4, replace(HAND, mu=None)).gamma == 0.1
    assert resolved(AGD(), 12, 4, replace(HAND, mu=0.0)).mu == 0  # where f is merely convex


def test_some_theorems_need_no_convexity():
    for method in (GD(), MARINA(RandK(3)), EF21(TopK(3)), DASHA(RandK(3)), DCGD(Identity())):
        assert resolved(method, 12, 4, replace(HAND, mu=None)) == resolved(method, 12, 4)


# --- under the Polyak-Łojasiewicz condition ---


@pytest.mark.parametrize("mu", [0.1, 1e-6, 50.0])
def test_steps_under_the_pl_condition(mu):
    """docs/methods.md, MARINA and EF21: min{1/(L + sqrt(2 ..)), p/(2 mu)} and min{1/(L
    + mean L_i sqrt(2 beta/theta)), theta/(2 mu)}, both of which bind for some mu."""
    p, alpha = 0.2, 1 / 4
    for Q, A, B in ((RandK(3), 3 / 4, 0), (RandK(3, mask="shared"), 3, 0), (PermK(), 1, 1)):
        spread = 2 * (1 - p) / p * ((A - B) * 3.5**2 + B * 1.25**2)
        wanted = min(1 / (3 + sqrt(spread)), p / (2 * mu))
        assert resolved(MARINA(Q, p=p, mu=mu), 12, 4).gamma == pytest.approx(wanted)
        assert resolved(MARINA(Q, "theory*4", p, mu=mu), 12, 4).gamma == pytest.approx(4 * wanted)
    theta = 1 - sqrt(1 - alpha)
    beta = (1 - alpha) / theta
    wanted = min(1 / (3 + L_MEAN * sqrt(2 * beta / theta)), theta / (2 * mu))
    assert resolved(EF21(TopK(3), mu=mu), 12, 4).gamma == pytest.approx(wanted)
    assert resolved(EF21(Identity(), mu=mu), 12, 4).gamma == pytest.approx(min(1 / 3, 1 / (2 * mu)))


@pytest.mark.parametrize("method", [MARINA(RandK(3)), EF21(TopK(3))], ids=repr)
def test_mu_of_the_pl_condition_may_be_the_problems(method):
    asked = replace(method, mu="theory")
    assert resolved(asked, 12, 4) == resolved(replace(method, mu=0.1), 12, 4)
    half, given = resolved(replace(method, mu="theory*0.5"), 12, 4), replace(method, mu=0.05)
    assert half == resolved(given, 12, 4)
    assert resolved(method, 12, 4).gamma == resolved(method, 12, 4, replace(HAND, mu=None)).gamma
    for mu in (0.0, None):
        with pytest.raises(ConfigError, match=r"mu above 0.*give mu as a number.*leave mu at 0"):
            resolved(asked, 12, 4, replace(HAND, mu=mu))


def test_a_hard_threshold_has_no_theory_step():
    with pytest.raises(ConfigError, match="gamma"):
        resolved(EF14(HardThreshold(0.1)), 12, 4)
    assert resolved(EF14(HardThreshold(0.1), gamma=0.2), 12, 4).gamma == 0.2


def test_a_compressor_that_sends_nearly_nothing_is_refused_by_theory():
    """alpha = 5e-18 and below, at which 1 - sqrt(1 - alpha) is 0, and omega = inf: in one line."""
    nearly = Shrunk(Bernoulli(1e-17))
    for method, names in (
        (EF21(nearly), "gamma"),
        (EF21LMO(Shrunk(Bernoulli(1e-320)), rounds=9, gap=1.0), "gamma"),
        (LoCoDL(Bernoulli(1e-320), mu=0.1), "rho and alpha"),
    ):
        with pytest.raises(
            ConfigError, match=rf"{names} by theory is beyond double precision .*give"
        ) as error:
            resolved(method, 12, 4)
        assert "\n" not in str(error.value)
    assert resolved(EF21(nearly, gamma=0.1), 12, 4).gamma == 0.1


@pytest.mark.parametrize("method", [GD(), MARINA(RandK(3)), EF21(TopK(3)), DIANA(RandK(3)), DASHA(RandK(3))])
def test_f_in_other_units_has_the_step_of_these_units_or_none(method):
    """Powers of two round nothing; the squares of constants beyond 1e150 and 1e-150 would."""

    def scaled(factor):
        names = ("L", "L_plus", "L_pm", "mu")
        L_i = tuple(factor * L for L in HAND.L_i)
        return replace(HAND, L_i=L_i, **{name: factor * getattr(HAND, name) for name in names})

    usual = resolved(method, 12, 4).gamma
    for factor in (2.0**490, 2.0**-490):
        assert resolved(method, 12, 4, scaled(factor)).gamma * factor == usual
    for factor in (2.0**500, 2.0**-500, 2.0**-1060):
        with pytest.raises(ConfigError, match=r"L from 1e-150 to 1e150, .* Give gamma as a number"):
            resolved(method, 12, 4, scaled(factor))


def test_constants_are_asked_for_only_if_a_step_needs_them():
    def refuse():
        raise AssertionError("asked")

    for method in (GD(0.1), AGD(0.1, mu=0), DIANA(RandK(2), 0.1), MARINA(PermK(), 0.1), EF21(TopK(2), 0.1)):
        assert method.resolve(refuse, 12, 4).gamma == 0.1
