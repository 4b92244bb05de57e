"""RankR and the products and bases that it is made of.  What every compressor promises: conformance.py.

Statistical tests have fixed seeds; means may be six of their standard deviations off.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.compressors import RankR
from mpicomp.compressors.support.matrices import columns_of
from mpicomp.kernels.lowrank import add_outer, orthonormal, times
from mpicomp.keys import Key
from tests.support.sampling import KEY, apply, assert_mean, square

PACKAGE = Path(__file__).parents[2] / "mpicomp"
rng = np.random.default_rng


def normal(*shape: int) -> np.ndarray:
    return rng(list(shape)).normal(size=shape)


def hadamard(order: int) -> np.ndarray:
    """Orthogonal columns of length sqrt(order)."""
    H = np.ones((1, 1))
    while len(H) < order:
        H = np.block([[H, H], [H, -H]])
    return H


def assert_basis(P: np.ndarray) -> None:
    """The columns are orthonormal, but for those that are 0."""
    kept = P[:, P.any(axis=0)]
    assert np.abs(kept.T @ kept - np.eye(kept.shape[1])).max() < 1e-14


# --- products and bases ---


@pytest.mark.parametrize(("m", "k", "r"), [(1, 1, 1), (7, 3, 2), (3, 7, 5), (1, 9, 1), (40, 30, 6)])
def test_products(m, k, r):
    A, B, C = normal(m, k), normal(k, r), normal(m, r)
    np.testing.assert_allclose(times(A, B), A @ B, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(times(A.T, C), A.T @ C, rtol=1e-13, atol=1e-13)
    total = A.copy()
    add_outer(total, C, B, -0.5)
    np.testing.assert_allclose(total, A - 0.5 * C @ B.T, rtol=1e-13, atol=1e-13)
    strided = np.zeros((2 * m, 2 * k))
    add_outer(strided[::2, ::2], C, B)
    np.testing.assert_allclose(strided[::2, ::2], C @ B.T, rtol=1e-13, atol=1e-13)
    assert not strided[1::2].any()
    assert not strided[:, 1::2].any()
    np.testing.assert_allclose(times(strided[::2, ::2], B), C @ B.T @ B, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("m", "r"), [(1, 1), (5, 1), (9, 4), (6, 6), (50, 8)])
def test_the_basis_is_that_of_the_qr_decomposition(m, r):
    """The one whose R has a positive diagonal."""
    Y = normal(m, r)
    Q, R = np.linalg.qr(Y)
    np.testing.assert_allclose(orthonormal(Y), Q * np.sign(np.diag(R)), rtol=0, atol=1e-12)
    assert_basis(orthonormal(Y))


def test_columns_that_depend_on_those_before_are_zero():
    a, b = normal(2, 9)
    P = orthonormal(np.stack([0 * a, a, 3 * a, b, 0 * a, a - 7 * b, 1e-200 * b], axis=1))
    assert P.any(axis=0).tolist() == [False, True, False, True, False, False, False]
    assert_basis(P)


@pytest.mark.parametrize("power", [-1074, -1030, -600, 0, 600, 1000])
def test_bases_of_very_small_and_very_large_columns(power):
    """Columns scaled by a power of two give the same basis as long as no digit is lost."""
    Y = rng(4).integers(-9, 10, (6, 3)).astype(float)
    assert np.array_equal(orthonormal(np.ldexp(Y, power)), orthonormal(Y))


@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16])
def test_bases_of_nearly_dependent_columns(gap):
    """Whatever is left of the last column, it is orthogonal to the others or 0."""
    for seed in range(20):
        Y = rng(seed).normal(size=(30, 4))
        Y[:, 3] = Y[:, :3].sum(axis=1) + gap * Y[:, 3]
        assert_basis(orthonormal(Y))


@pytest.mark.parametrize(
    "name",
    [
        "kernels/lowrank.py",
        "kernels/definition/lowrank.py",
        "kernels/compiled/lowrank.py",
        "compressors/rankr.py",
        "methods/powersgd.py",
        "methods/dion.py",
        "methods/support/factored.py",
        "methods/arctopk.py",
    ],
)
def test_no_product_is_left_to_blas(name):
    """Its sums change with the number of threads."""
    for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
        assert not isinstance(node, ast.MatMult)
        assert getattr(node, "attr", "") not in {"dot", "matmul", "inner", "vdot", "tensordot", "linalg"}


# --- the compressor ---


def by_hand(x: np.ndarray, rows: int, r: int, key: Key) -> np.ndarray:
    """P P'M by numpy's QR decomposition, M the matrix or its transpose, whichever is not wider than high."""
    M = x.reshape(rows, -1)
    M = M if M.shape[0] >= M.shape[1] else M.T
    G = key.private("rankr").normals(M.shape[1] * r).reshape(-1, r)
    P, _ = np.linalg.qr(M @ G)
    value = P @ (P.T @ M)
    return (value if M.shape[0] == rows else value.T).ravel()


@pytest.mark.parametrize(("rows", "columns", "r"), [(6, 5, 2), (5, 6, 2), (9, 9, 4), (3, 30, 2), (30, 3, 1)])
def test_it_is_one_power_iteration(rows, columns, r):
    x = normal(rows * columns)
    for t in range(5):
        key = Key(1, t, 0, 1)
        value = apply(RankR(r, rows, "f8"), x, key)
        np.testing.assert_allclose(value, by_hand(x, rows, r, key), rtol=0, atol=1e-12)
        assert np.linalg.matrix_rank(value.reshape(rows, columns)) == r
        np.testing.assert_allclose(apply(RankR(r, rows), x, key), value, rtol=0, atol=1e-6)


def test_a_random_start_is_uniform():
    """The lemma's E |M Q|^2 = r/columns |M|^2, Q the orthonormal columns of a Gaussian matrix."""
    M = normal(7, 5) * np.array([9, 1, 1, 1, 0.1])
    shares = []
    for t in range(4000):
        Q = orthonormal(Key(3, t, 0, 1).private("rankr").normals(10).reshape(5, 2))
        shares.append(square(M @ Q) / square(M))
    assert_mean(np.array(shares), 2 / 5, equality=True)


@pytest.mark.parametrize("decay", [1.0, 0.8, 0.3])
def test_alpha_bounds_the_error_whatever_the_spectrum(decay):
    """Singular values decay^j: the mean error is below 1 - alpha, and the less so the flatter they are."""
    U, V = np.linalg.qr(normal(12, 8))[0], np.linalg.qr(normal(8, 8))[0]
    x = (U * decay ** np.arange(8.0) @ V.T).ravel()
    c = RankR(3, 12, "f8")
    errors = [square(apply(c, x, Key(2, t, 0, 1)) - x) / square(x) for t in range(1000)]
    assert_mean(np.array(errors), 1 - 3 / 8, equality=decay == 1.0)


@pytest.mark.parametrize("r", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_alpha_is_attained_on_orthogonal_columns(r, transposed):
    """Draw by draw: the range of P lies in that of M, so |P'M|^2 = r/columns |M|^2."""
    M = hadamard(16)[:, :8]
    x = (M.T if transposed else M).ravel()
    c = RankR(r, 8 if transposed else 16, "f8")
    assert c.alpha(x.size, 1) == r / 8
    for t in range(10):
        assert square(apply(c, x, Key(1, t, 0, 1)) - x) == pytest.approx((1 - r / 8) * square(x), rel=1e-12)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_matrices_of_rank_r_and_less_come_back(rank):
    """To rounding; also where columns of the power iteration depend on one another."""
    x = (normal(9, rank) @ normal(rank, 8)).ravel()
    value = apply(RankR(3, 9, "f8"), x)
    np.testing.assert_allclose(value, x, rtol=0, atol=1e-14 * max(1, np.abs(x).max()))
    assert value.any() == (rank > 0)


@pytest.mark.parametrize(
    ("r", "rows", "d"), [(4, 4, 24), (9, 4, 24), (3, 4, 24), (1, 1, 7), (1, 7, 7), (2, 3, 9)]
)
def test_where_factors_are_no_shorter_x_is_sent(r, rows, d):
    """Bit for bit; so it is for r >= min(rows, columns), always."""
    x = normal(d)
    c = RankR(r, rows, "f8")
    assert apply(c, x).tobytes() == x.tobytes()
    assert c.nbytes(d) == 8 * d
    assert c.alpha(d, 1) == 1


@pytest.mark.parametrize("power", [-1070, -600, 600, 1015])
def test_vectors_of_any_size_come_back(power):
    """Where M G would overflow, or vanish, so would the basis: a matrix of rank 1 at the ends of float64."""
    M = np.ldexp(np.outer(np.arange(1.0, 13.0), np.arange(1.0, 13.0)) / 16, power)
    c = RankR(1, 12, "f8")
    back = c.decompress(c.compress(M.ravel(), KEY), 144, KEY)
    assert back == pytest.approx(M.ravel(), rel=1e-12, abs=2.0**-1070)


def test_a_vector_whose_factor_is_beyond_the_format_is_refused():
    with pytest.raises(DivergedError, match="the factor M'P of a finite vector is beyond double precision"):
        RankR(2, 12, "f8").compress(np.full(144, 1.7e308), KEY)


def test_sizes():
    for values, width in (("f8", 8), ("f4", 4), ("f2", 2), ("bf16", 2)):
        assert RankR(2, 10, values).nbytes(1000) == 2 * (10 + 100) * width
    key = Key(1, 0, 0, 1)
    assert RankR(2, 100).paper_bits(RankR(2, 100).compress(normal(1000), key), 1000, key) == 32 * 220
    assert RankR(2, 10).alpha(1000, 1) == RankR(2, 100).alpha(1000, 1) == 1 / 5


def test_the_wire_is_the_two_factors():
    """As docs/wire.md has it: P row after row, then M'P, M being the transpose of the 4 x 9 matrix."""
    x = normal(36)
    sent = RankR(2, 4, "f8").compress(x, Key(1, 0, 0, 1)).view("<f8")
    P, Q = sent[:18].reshape(9, 2), sent[18:].reshape(4, 2)
    assert_basis(P)
    np.testing.assert_allclose(Q, x.reshape(4, 9) @ P, rtol=0, atol=1e-14)


def test_workers_start_apart():
    x = normal(30)
    values = {apply(RankR(1, 5), x, Key(1, 0, i, 4)).tobytes() for i in range(4)}
    assert len(values) == 4


@pytest.mark.parametrize(
    ("rows", "d", "nearest"), [(5, 24, "4 or 6"), (30, 24, "24"), (7, 13, "1 or 13"), (13, 24, "12 or 24")]
)
def test_rows_that_do_not_divide_d_are_refused(rows, d, nearest):
    said = rf"rows={rows} does not divide the dimension d={d}; nearest: rows={nearest}\."
    for ask in (lambda c: c.nbytes(d), lambda c: c.alpha(d, 1), lambda c: c.compress(np.ones(d), None)):
        with pytest.raises(ConfigError, match=said):
            ask(RankR(1, rows))
    assert columns_of(24, 6) == 4


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: RankR(0, 4), r"r=0; allowed: a positive integer"),
        (lambda: RankR(1.5, 4), r"r=1\.5; allowed"),
        (lambda: RankR(True, 4), r"r=True; allowed"),
        (lambda: RankR(1, -2), r"rows=-2; allowed"),
        (lambda: RankR(1, "4"), r"rows='4'; allowed"),
        (lambda: RankR(1, 4, "f5"), r"'f5'.*f8, f4, f2, bf16"),
    ],
)
def test_a_wrong_configuration_is_refused(build, match):
    with pytest.raises(ConfigError, match=match):
        build()


def test_the_error_shrinks_when_the_power_iteration_goes_on():
    """Compressing what is left, as error feedback does: its mean square falls below (1 - alpha)^t."""
    c, left = RankR(2, 12, "f8"), normal(12 * 10)
    before = square(left)
    for t in range(40):
        left = left - apply(c, left, Key(5, t, 0, 1))
    assert square(left) < (1 - 2 / 10) ** 40 * before
