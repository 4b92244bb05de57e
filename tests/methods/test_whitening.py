"""Whitening: a compressor in whitened coordinates, the roots behind these, and what it costs to send them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.compressors import (
    Bernoulli,
    BlockSteps,
    Dithering,
    Identity,
    Importance,
    Natural,
    PermK,
    RandK,
    VaryingSteps,
)
from mpicomp.keys import Key
from mpicomp.lab.experiment.lines import Line
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import notes
from mpicomp.methods import DIANA, ADIANAPlus, DCGDPlus, DIANAPlus
from mpicomp.methods.support.roots import decode_symmetric, encode_symmetric, roots
from mpicomp.methods.support.whitening import Whitened, variance
from mpicomp.problems import Quadratics
from tests.support.smoothness_matrices import UPLINKS, fitted, skewed
from tests.support.trajectories import PLACES, rng, start, trajectory

# --- the compressor in whitened coordinates ---


def deficient() -> tuple[np.ndarray, np.ndarray]:
    """L of rank 4 in 7 dimensions, with a row and a column of zeros, and a vector in its range."""
    rows = rng(51).normal(size=(4, 7)) * np.geomspace(0.1, 3, 7)
    rows[:, 2] = 0
    return rows.T @ rows, rows.T @ rng(52).normal(size=4)


@pytest.mark.parametrize("Q", [q for q in UPLINKS if "f8" in repr(q)], ids=repr)
def test_unbiased_on_the_range(Q):
    """docs/methods.md#whitening: E L^{1/2} C(L^{+1/2} v) = v for v in range(L),
    which gradients and their differences are."""
    L, v = deficient()
    root, inverse = roots(L, 7)
    C, n = Whitened(Q, {0: root}, inverse), 3000
    e = np.array(
        [C.decompress(C.compress(v, key), 7, key) - v for key in (Key(7, t, 0, 1) for t in range(n))]
    )
    scale = np.abs(v).max()
    assert (np.abs(e.mean(axis=0)) <= 6 * e.std(axis=0) / sqrt(n) + 1e-12 * scale).all()
    assert (e[:, 2] == 0).all() and v[2] == 0  # what no sample has is never touched
    if isinstance(Q, Identity):
        assert np.abs(e).max() <= 1e-13 * scale
        outside = np.linalg.svd(L)[0][:, 4:] @ np.ones(3)
        assert np.abs(C.decompress(C.compress(outside, Key(7, 0, 0, 1)), 7, Key(7, 0, 0, 1))).max() < 1e-12


@pytest.mark.parametrize("Q", [VaryingSteps(20.0), BlockSteps(12.0, 3), Importance(3), RandK(3)], ids=repr)
def test_the_error_is_that_of_the_norm_of_the_matrix(Q):
    """docs/methods.md#whitening: E |C~(v) - v|^2 <= 𝓛 |L^{+1/2} v|^2, which is what
    the step sizes rest on."""
    L = skewed(1, 12, seed=53).matrices[0]
    root, inverse = roots(L, 12)
    C, v = Whitened(Q, {0: root}, inverse), rng(54).normal(size=12)
    keys = [Key(7, t, 0, 1) for t in range(3000)]
    e = np.array([np.sum((C.decompress(C.compress(v, key), 12, key) - v) ** 2) for key in keys])
    bound = variance(Q, np.diagonal(L), float(np.linalg.eigvalsh(L)[-1]), 1)
    assert e.mean() <= bound * np.sum((inverse @ v) ** 2) + 6 * e.std() / sqrt(e.size)


def second_moment(Q, L: np.ndarray) -> float:
    """The largest eigenvalue of E D L D, D = diag(C's gains) - I, over all supports: 𝓛 itself."""
    d = len(L)
    if isinstance(Q, RandK):
        masks = [np.isin(np.arange(d), kept) * 1.0 for kept in combinations(range(d), Q.k)]
        gain, odds = d / Q.k, [1 / len(masks)] * len(masks)
    else:
        masks = [np.array(mask) for mask in product([0.0, 1.0], repeat=d)]
        gain, odds = 1 / Q.q, [Q.q ** mask.sum() * (1 - Q.q) ** (d - mask.sum()) for mask in masks]
    diagonals = [np.diag(gain * mask - 1) for mask in masks]
    total = sum(p * D @ L @ D for p, D in zip(odds, diagonals, strict=True))
    return float(np.linalg.eigvalsh(total)[-1])


@pytest.mark.parametrize("Q", [RandK(1), RandK(2), RandK(6), Bernoulli(0.3)], ids=repr)
def test_the_bounds_for_sparsifiers(Q):
    """docs/methods.md#whitening: max_j (1/q - 1) L_jj for coins, exactly; for RandK λ_max(d Diag(L)
    - L) ω/(d - 1) exactly, which is at most ω d/(d - 1) max_j L_jj.  Never above ω λ_max(L)."""
    for seed in range(5):
        L = skewed(1, 6, seed).matrices[0]
        w, top, omega = np.diagonal(L), float(np.linalg.eigvalsh(L)[-1]), Q.omega(6, 1)
        exact, bound = second_moment(Q, L), variance(Q, w, top, 1)
        assert exact <= bound * (1 + 1e-12) and bound <= omega * top * (1 + 1e-12)
        if isinstance(Q, Bernoulli):
            assert exact == pytest.approx(bound) == pytest.approx((1 / 0.3 - 1) * w.max())
        else:
            inner = float(np.linalg.eigvalsh(6 * np.diag(w) - L)[-1]) * omega / 5
            assert exact == pytest.approx(inner)
            assert bound == pytest.approx(omega * min(top, 6 / 5 * w.max()))
            assert bound <= 6 / 5 * exact * (1 + 1e-12)


def test_the_bounds_for_quantisers():
    """docs/methods.md#whitening: d tr(L)/(4 beta^2); min over m of m + sum_j L_jj^2
    h_j^2/(4 (L_jj + m)); else ω λ_max."""
    w = np.array([1.0, 9.0, 4.0, 2.0])
    assert variance(VaryingSteps(8.0), w, 1e9, 1) == pytest.approx(4 * 16 / (4 * 64))
    m = np.linspace(0, 80, 1_000_001)[:, None]
    for Q, h in ((VaryingSteps(0.5), 8 / np.sqrt(w)), (Dithering(1), np.ones(4))):
        least = (m[:, 0] + np.sum(w**2 * h**2 / (4 * (w + m)), axis=1)).min()
        assert least * (1 - 1e-8) <= variance(Q, w, 1e9, 1) <= least
    assert variance(Dithering(4), w, 1e9, 1) == pytest.approx(16 / (4 * 16))
    assert variance(Dithering(1), w, 1e9, 1) == pytest.approx(4.0)
    h = [sqrt(2) * (sqrt(82) + sqrt(20)) / (0.5 * sqrt(square)) for square in (82, 20)]
    blocks = [
        (m[:, 0] + np.sum(part**2 * step**2 / (4 * (part + m)), axis=1)).min()
        for part, step in zip(np.split(w, 2), h, strict=True)
    ]
    assert max(blocks) * (1 - 1e-8) <= variance(BlockSteps(0.5, 2), w, 1e9, 1) <= max(blocks)
    assert variance(Dithering(2**15 - 1), w, 1e9, 1) == pytest.approx(16 / (4 * (2**15 - 1) ** 2))
    for Q in (Natural(), Dithering(3, p="inf"), PermK(), RandK(2, layout="block")):
        assert variance(Q, w, 10.0, 4) == Q.omega(4, 4) * 10.0
    assert variance(VaryingSteps(8.0), w, 1e-3, 1) == pytest.approx(
        1e-3 * fitted(VaryingSteps(8.0), np.diag(w)).omega(4, 1)
    )


# --- roots and their bytes ---


@pytest.mark.parametrize("seed", range(3))
def test_the_root_and_its_inverse(seed):
    L = skewed(1, 9, seed).matrices[0]
    root, inverse = roots(L, 9)
    assert np.abs(root @ root - L).max() < 1e-14 * np.abs(L).max() * 9
    assert np.abs(root @ inverse - np.eye(9)).max() < 1e-12
    L, v = deficient()
    root, inverse = roots(L, 7)
    assert np.linalg.matrix_rank(root) == 4 and not root[2].any() and not inverse[:, 2].any()
    assert np.abs(inverse - np.linalg.pinv(root, rcond=1e-6)).max() < 1e-10 * np.abs(inverse).max()
    assert np.abs(root @ (inverse @ v) - v).max() < 1e-13 * np.abs(v).max()
    assert not np.any(roots(np.zeros((3, 3)), 3))


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100])
def test_the_unit_of_f_does_not_matter(unit):
    """A root is that of L in any unit, and a matrix that has none is refused in any."""
    L, _ = deficient()
    (root, inverse), (scaled, scaled_inverse) = roots(L, 7), roots(unit * L, 7)
    assert scaled / sqrt(unit) == pytest.approx(root, rel=1e-12, abs=1e-13)
    assert scaled_inverse * sqrt(unit) == pytest.approx(inverse, rel=1e-9, abs=1e-11)
    for wrong, match in ((np.tri(2), "symmetric"), (np.array([[1.0, 2.0], [2.0, 1.0]]), "negative")):
        with pytest.raises(ConfigError, match=match):
            roots(unit * wrong, 2)


def test_a_root_survives_the_wire():
    root, _ = roots(skewed(1, 9, 1).matrices[0], 9)
    message = encode_symmetric(root)
    assert len(message) == 8 * 9 * 10 // 2
    assert message[:24].view("<f8").tolist() == [root[0, 0], root[1, 0], root[1, 1]]
    again = decode_symmetric(message, 9)
    assert np.array_equal(again, again.T) and np.array_equal(np.tril(again), np.tril(root))
    with pytest.raises(MessageError):
        decode_symmetric(message[:-1], 9)


@pytest.mark.parametrize(
    ("L", "match"),
    [
        (np.eye(3)[:2], "shape"),
        (np.ones(3), "shape"),
        (None, "shape"),
        (np.diag([1.0, np.nan, 1.0]), "finite"),
        (np.tri(3), "symmetric"),
        (np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "negative"),
    ],
    ids=str,
)
def test_a_matrix_that_is_none_is_refused(L, match):
    with pytest.raises(ConfigError, match=match):
        roots(L, 3)


# --- the set-up ---


def each(Q) -> list:
    return [DCGDPlus(Q), DIANAPlus(Q), ADIANAPlus(Q)]


@pytest.mark.parametrize("method", each(VaryingSteps(6.0)), ids=lambda m: type(m).__name__)
def test_both_ends_hold_the_same_root(method):
    """To the bit, and the server in worker order."""
    problem, n = PLACES[0]
    loop = start(method, problem, n)
    loop.step(0)
    assert loop.server.roots.shape == (n, 12, 12)
    for i, w in loop.workers.items():
        assert np.array_equal(loop.server.roots[i], w.root)
        L = problem.objective(i, n).smoothness_matrix()
        assert np.abs(w.root @ w.root - L).max() < 1e-14 * np.abs(L).max() * 12
        assert np.abs(w.inverse @ w.root - np.eye(12)).max() < 1e-12


@pytest.mark.parametrize("method", each(RandK(3)), ids=lambda m: type(m).__name__)
def test_the_matrices_are_sent_once_and_counted(method):
    """8 d (d+1)/2 bytes a worker in round 0 and never again, in the bytes up and apart; 32 bits a number in
    the paper's count; the broadcast of round 0 says nothing."""
    problem, n = PLACES[0]
    loop = start(method, problem, n)
    messages = 2 if isinstance(method, ADIANAPlus) else 1
    header = messages - 1  # the length of all messages but the last
    loop.step(0)
    book = loop.ledger
    assert book.set_up_bytes == book.up_bytes == n * (8 * 78 + header)
    assert book.up.tolist() == [8 * 78 + header] * n
    assert book.paper_bits_up == n * 32 * 78
    assert (book.down_bytes, book.paper_bits_down) == (n * header, 0)
    loop.step(1)
    assert book.set_up_bytes == n * (8 * 78 + header)
    assert book.up_bytes == book.set_up_bytes + n * (12 * messages + header)
    assert book.paper_bits_up == n * 32 * (78 + 3 * messages)


def test_a_method_without_a_set_up_has_none():
    problem, n = PLACES[0]
    loop = start(DIANA(RandK(3)), problem, n)
    trajectory(loop, 3)
    assert loop.ledger.up_bytes > 0 == loop.ledger.set_up_bytes


def test_the_table_says_what_the_set_up_took():
    suite = parse_suite('problem = "quadratics"\nworkers = 4\nrounds = 9\n[[method]]\nmethod = "gd"\n')
    line = Line("", "theory", False, 1, 1, 0, 0)
    with_set_up = [replace(line, set_up_bytes_per_worker=b) for b in (0.0, 2400.0, 2401.0, 361200.0)]
    said = [sentence for sentence in notes(with_set_up, suite) if "set up" in sentence]
    assert said == ["Up includes what a worker of some methods sends once, to set up: 2.4 KB, 361 KB."]
    assert not any("set up" in sentence for sentence in notes([line], suite))


def test_a_line_of_the_table_has_the_set_up_of_one_worker():
    problem = Quadratics(d=13, noise=0.4, lam=0.01)
    found = mpicomp.compare([DIANAPlus(VaryingSteps(6.0))], problem, workers=4, rounds=2)
    assert [line.set_up_bytes_per_worker for line in found.lines()] == [8 * 13 * 14 // 2]


def test_the_record_has_the_set_up_apart():
    run = mpicomp.run(
        DIANAPlus(VaryingSteps(6.0)), Quadratics(d=13, noise=0.4, lam=0.01), workers=4, rounds=10, every=1
    )
    summary = run.summary()
    assert summary["set_up_bytes"] == 4 * 8 * 13 * 14 // 2 == run.rows[1].up_bytes
    assert run.rows[0].f == run.rows[1].f != run.rows[2].f  # the set-up takes a round and no step
    assert summary["up_bytes"] == run.rows[-1].up_bytes > summary["set_up_bytes"]
