"""Rotated quantisers: levels, errors, alpha and bias; methods with them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from itertools import pairwise
from math import erf, exp, inf, pi, sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, EF21, EF21SGDM, DoubleSqueeze
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import EDEN, Contractive, RotatedSign, Unbiased
from mpicomp.kernels.definition.rotated import LEVELS
from mpicomp.keys import Key
from mpicomp.problems import Quadratics
from tests.support.backends import compiled, only
from tests.support.sampling import KEY, apply, square

LEAST, INNER = "least_error", "inner_product"
BITS = (1, 2, 3, 4)


def test_the_levels_are_those_of_lloyd_and_max():
    """Each is the mean of the numbers nearest to it, to 1e-12; and the distortions of the docstring."""

    def density(t):
        return 0.0 if t == inf else exp(-t * t / 2) / sqrt(2 * pi)

    def below(t):
        return 1.0 if t == inf else (1 + erf(t / sqrt(2))) / 2

    kept = {}
    for bits in (2, 3, 4):
        levels = LEVELS[bits]
        edges = [0.0, *((levels[1:] + levels[:-1]) / 2), inf]
        pieces = [(density(a) - density(b), below(b) - below(a)) for a, b in pairwise(edges)]
        assert np.allclose([moment / mass for moment, mass in pieces], levels, rtol=0, atol=1e-12)
        kept[bits] = 2 * sum(c * moment for c, (moment, _) in zip(levels, pieces, strict=True))
    assert [1 - kept[bits] for bits in (2, 3, 4)] == pytest.approx([0.1175, 0.0345, 0.0095], abs=5e-5)


def relative_errors(C, draws: int = 40, d: int = 4 * 4096) -> np.ndarray:
    """|C(x) - x|²/|x|² in each block, of fresh normal vectors under fresh keys."""
    found = []
    for t in range(draws):
        x = np.random.default_rng([t, 7]).normal(size=d)
        error = apply(C, x, Key(3, t, 0, 1)) - x
        blocks = (error.reshape(-1, 4096) ** 2).sum(axis=1) / (x.reshape(-1, 4096) ** 2).sum(axis=1)
        found += blocks.tolist()
    return np.array(found)


DISTORTION = {1: 1 - 2 / pi, 2: 0.117482, 3: 0.034548, 4: 0.009501}
NEARLY_NORMAL = [
    *((RotatedSign(b), DISTORTION[1] ** b) for b in (1, 2, 3, 4)),
    *((EDEN(bits), DISTORTION[bits]) for bits in (2, 3, 4)),
    *((EDEN(bits, INNER), 1 / (1 - DISTORTION[bits]) - 1) for bits in BITS),
]


@pytest.mark.parametrize(("C", "expected"), NEARLY_NORMAL, ids=lambda v: str(v))
def test_the_error_on_normal_vectors(C, expected):
    """Within 4 standard errors of the mean of 160 blocks, and 4/n for blocks of n = 4096, which is finite.

    With a normal mean, one such test in 16 000 would fail by chance; the seeds are fixed.
    """
    found = relative_errors(C)
    allowed = 4 * found.std() / sqrt(found.size)
    assert allowed < 0.02 * expected  # so that the test tells constants apart
    assert abs(found.mean() - expected) <= allowed + 4 / 4096 * expected


@pytest.mark.parametrize("C", [EDEN(bits, INNER) for bits in BITS], ids=repr)
def test_the_inner_product_is_kept(C):
    """<C(x), x> = |x|², to the rounding of scales to single precision."""
    for d in (1, 5, 300, 5000):
        for seed in range(5):
            x = np.random.default_rng([d, seed]).normal(size=d) ** 3
            assert apply(C, x, KEY) @ x == pytest.approx(square(x), rel=2.0**-24)


@pytest.mark.parametrize("C", [RotatedSign(), *(EDEN(bits) for bits in BITS)], ids=repr)
def test_the_scale_has_the_least_error(C):
    """So C(x) is orthogonal to the error where nothing is cut, and any other multiple of it is worse."""
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=512)
        value = apply(C, x)
        assert value @ (value - x) == pytest.approx(0, abs=1e-7 * square(x))
        for other in (0.999, 1.001):
            assert square(value - x) < square(other * value - x)


def adversarial(d: int):
    j = np.arange(d)
    yield "one entry", (j == 1) * 1.0
    for count in (2, 3, 4, 7, d // 2, d):
        yield f"{count} equal entries", (j < count) * 1.0
    yield "two equal entries apart", ((j == 3) | (j == d - 2)) * 1.0
    yield "two entries", (j == 0) * 1.0 + (j == 1) * 0.5
    yield "better as signs, with 2 and 3 bits", (j == 0) * 1.0 + (j == 1) / 16
    yield "halves", 0.5**j
    yield "one large and many small", np.where(j == 0, sqrt(d), 1.0)
    yield "row of H", (-1.0) ** np.array([(int(i) & 5).bit_count() for i in j])
    yield "heavy tail", np.random.default_rng(d).standard_t(1.5, size=d)


PROMISES = [
    RotatedSign(1, 128),
    RotatedSign(2, 128),
    RotatedSign(4, 128),
    EDEN(2),
    EDEN(4, block=128),
    EDEN(0.5),
]


@pytest.mark.parametrize("C", PROMISES, ids=repr)
@pytest.mark.parametrize("d", [64, 200])
def test_alpha_is_not_exceeded_in_the_mean(C, d, subtests, monkeypatch):
    """On each vector, by more than 4 standard errors of 150 draws."""
    only(monkeypatch, compiled)
    for kind, x in adversarial(d):
        with subtests.test(kind):
            errors = np.array([square(apply(C, x, Key(9, t, 0, 1)) - x) for t in range(150)]) / square(x)
            assert errors.mean() <= 1 - C.alpha(d, 1) + 4 * errors.std() / sqrt(150) + 1e-12


@pytest.mark.parametrize("d", [2, 8, 64, 4096])
def test_alpha_is_attained_by_two_equal_entries(d):
    """Exactly, in each draw, for one stage."""
    for i, j in ((0, 1), (0, d - 1), (d // 2 - 1, d // 2)):
        x = np.zeros(d)
        x[i] = x[j] = -3.0
        if i == j:
            continue
        for t in range(5):
            key = Key(2, t, 0, 1)
            assert (
                square(apply(RotatedSign(), x, key) - x) == 9.0 == (1 - RotatedSign().alpha(d, 1)) * square(x)
            )
            assert square(apply(EDEN(1, INNER), x, key) - x) == square(x)  # no contraction


def test_stages_draw_signs_of_their_own():
    """With the first stage's signs again, the second one would see equal magnitudes, and leave nothing."""
    x = np.zeros(64)
    x[3] = x[9] = 1.0
    keys = [Key(2, t, 0, 1) for t in range(50)]
    drawn = {key.private(f"rotation {s}").words(2).tobytes() for key in keys for s in range(3)}
    assert len(drawn) == 150
    assert max(square(apply(RotatedSign(2), x, key) - x) for key in keys) > 0.1


# --- bias ---


@pytest.mark.parametrize("d", [2, 3, 16, 5000])
def test_eden_is_not_unbiased(d):
    """x = (1, 1/2, 0, ..) becomes (5/4, 0, ..) in every draw, exactly: the error |x|²/4 is all bias."""
    x, wanted = np.zeros(d), np.zeros(d)
    x[:2], wanted[0] = (1.0, 0.5), 1.25
    for t in range(200):
        assert np.array_equal(apply(EDEN(1, INNER), x, Key(5, t, 0, 1)), wanted)
    assert square(wanted - x) == square(x) / 4


def test_on_dense_vectors_the_mean_of_many_draws_has_little_bias():
    """The mean of 100 has 1/100 of the squared error, within a tenth."""
    x = np.random.default_rng(0).normal(size=4096)
    for bits in BITS:
        values = np.array([apply(EDEN(bits, INNER), x, Key(5, t, 0, 1)) for t in range(100)])
        each = np.mean(np.square(values - x).sum(axis=1))
        assert square(values.mean(axis=0) - x) == pytest.approx(each / 100, rel=0.1)


def test_what_is_of_which_kind():
    assert isinstance(RotatedSign(), Contractive) and isinstance(EDEN(0.3), Contractive)
    biased = EDEN(3, INNER)
    assert not isinstance(biased, Unbiased | Contractive)
    for changed, kind in ((replace(EDEN(3), scale=INNER), False), (replace(biased, scale=LEAST), True)):
        assert isinstance(changed, Contractive) == kind and changed.bits == 3
        assert pickle.loads(pickle.dumps(changed)) == changed == copy.deepcopy(changed)
        assert type(copy.copy(changed)) is type(changed)
    with pytest.raises(ConfigError, match="scale='least'; allowed"):
        replace(EDEN(3), scale="least")
    with pytest.raises(
        ConfigError, match=r"DIANA needs Q to be unbiased; it was given EDEN\(bits=3, scale='inner"
    ):
        DIANA(biased)
    with pytest.raises(ConfigError, match=r"EF21 needs C to be contractive; it was given EDEN\(bits=3"):
        EF21(biased)


# --- methods with them ---


@pytest.mark.parametrize(
    "method",
    [
        EF21(RotatedSign(2), gamma="theory*2"),
        EF21SGDM(EDEN(3), eta=0.5, gamma="theory*2"),
        DoubleSqueeze(RotatedSign(), EDEN(4), gamma="theory*16"),
    ],
    ids=lambda m: type(m).__name__,
)
def test_methods_converge_with_rotated_quantisers(method):
    run = mpicomp.run(method, Quadratics(d=70, noise=0.3, lam=0.1), workers=4, rounds=150, every=50)
    f = [row.f for row in run.rows]
    assert f[3] <= f[2] < f[1] < f[0] and run.rows[-1].grad_norm_sq < 1e-2 * run.rows[0].grad_norm_sq
