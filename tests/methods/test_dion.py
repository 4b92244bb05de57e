"""Dion and Orth-Dion.  Step t of the paper is our rounds 2t and 2t+1.

The first Q of all matrices is drawn with the key of round 0.  M_i here is the worker's record less
(1 - μ) P R', which the next round subtracts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import RandK
from mpicomp.keys import Key
from mpicomp.methods import Dion
from mpicomp.problems import MLP, Noisy, Quadratics
from mpicomp.text.config import parse_method, to_text
from tests.methods.test_powersgd_layers import Layers
from tests.reference.dion import dion, orth
from tests.support.trajectories import (
    ROUNDS,
    Entropy,
    Squares,
    assert_close,
    gradients,
    integers,
    on_batches,
    on_everything,
    squares,
    start,
    trajectory,
)

# A tall matrix, a wide one of four axes, and a square one; of rank 2 the last two are sent whole.
PARTS = Parts((Part("b", (3,)), Part("a", (7, 3)), Part("s", ()), Part("c", (2, 2, 2)), Part("d", (3, 3))))
PROBLEM, N = Layers(Entropy(PARTS.size), PARTS), 4
BOTH = pytest.mark.parametrize("columns", ["normalised", "orthonormal"])


def first(widths, r, seed, n):
    """The Q of round 0, of matrices whose shorter sides are ``widths``."""
    drawn = Key(seed, 0, None, n).shared("dion").normals(r * sum(widths))
    return [q.reshape(-1, r) for q in np.split(drawn, r * np.cumsum(widths)[:-1])]


def memories(loop):
    """M_i of each worker after a step, with what the next round subtracts first subtracted."""
    left = 1 - loop.method.momentum
    return [w.M - left * loop.replica.product for w in loop.workers.values()]


def two_rounds(loop, t):
    before = loop.x.copy()
    loop.step(2 * t)
    assert np.array_equal(loop.x, before)
    loop.step(2 * t + 1)


@BOTH
@pytest.mark.parametrize("r", [1, 2])
def test_dion_is_its_transcription(r, columns):
    """x, Q and M_i after every step, for which the transcription has one array for each part."""
    method = Dion(r, gamma=0.05, columns=columns, momentum=0.9, values="f8")
    loop = start(method, PROBLEM, N, seed=22)
    matrices = {1: loop.method.layers(PARTS.size).matrices[0]}
    Q = first([3] if r == 2 else [3, 2, 3], r, 22, N)
    warm = {1: Q[0]}
    if r == 1:
        matrices |= dict(zip((3, 4), loop.method.layers(PARTS.size).matrices[1:], strict=True))
        warm |= {3: Q[1], 4: Q[2]}
    shapes = [part.shape for part in PARTS.parts]
    grads = [lambda t, x, g=g: g(x) for g in gradients(PROBLEM, N)]
    wanted, bases, kept = dion(
        grads, PROBLEM.x0(), 0.05, shapes, warm, ROUNDS // 2, 0.9, columns == "orthonormal"
    )
    iterates = [loop.x.copy()]
    for t in range(ROUNDS // 2):
        two_rounds(loop, t)
        iterates.append(loop.x.copy())
        for l, m in matrices.items():
            np.testing.assert_allclose(m.Q_of(loop.replica.Q), bases[t + 1][l], rtol=0, atol=1e-10)
        for M, wanted_M in zip(memories(loop), kept[t], strict=True):
            for l, m in matrices.items():
                np.testing.assert_allclose(m.of(M), wanted_M[l], rtol=0, atol=1e-11)
    assert_close(iterates, wanted, 1e-11)


@BOTH
@pytest.mark.parametrize(("r", "rows"), [(1, 3), (2, 3), (1, 4), (0.5, 6), (0.4, 3), (1, 1), (1, 12), (9, 4)])
def test_dion_of_one_matrix_is_its_transcription(r, rows, columns):
    """Tall and wide ones; a fraction of the shorter side, rounded up, and a rank above that side."""
    problem = Entropy()
    loop = start(Dion(r, rows, gamma=0.05, columns=columns, values="f8"), problem, N, seed=22)
    shorter = min(rows, 12 // rows)
    rank = {0.5: 1, 0.4: 2, 9: shorter}.get(r, r)
    assert loop.replica.Q.size == rank * shorter
    wanted, _, _ = dion(
        on_everything(problem, N),
        problem.x0(),
        0.05,
        [(rows, 12 // rows)],
        {0: first([shorter], rank, 22, N)[0]},
        ROUNDS // 2,
        orthonormal=columns == "orthonormal",
    )
    assert_close(trajectory(loop, ROUNDS)[::2], wanted, 1e-11)


def test_dion_is_its_transcription_on_batches():
    problem, n = Noisy(Quadratics(d=20, noise=0.5, lam=0.01), 0.5), 5
    loop = start(Dion(2, 5, gamma=0.05, values="f8", batch=4), problem, n, seed=22)
    grads = on_batches(problem, n, 4, seed=22, rounds_a_step=2)
    wanted, _, _ = dion(grads, problem.x0(), 0.05, [(5, 4)], {0: first([4], 2, 22, n)[0]}, ROUNDS // 2)
    assert_close(trajectory(loop, ROUNDS)[::2], wanted, 1e-11)


@BOTH
def test_workers_are_as_one_with_the_mean_gradient(columns):
    """To rounding: x, Q and mean M_i, however the workers' gradients differ."""
    problem, n = squares(4, 8, seed=9), 4
    alone = Squares(problem.A.mean(axis=0)[None], problem.b.mean(axis=0)[None], problem.start)
    method = Dion(1, 4, gamma=0.02, columns=columns, values="f8")
    many, one = start(method, problem, n, seed=4), start(method, alone, 1, seed=4)
    for t in range(40):
        two_rounds(many, t)
        two_rounds(one, t)
        scale = max(np.abs(M).max() for M in memories(many))
        np.testing.assert_allclose(many.x, one.x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(many.replica.Q, one.replica.Q, rtol=0, atol=1e-11)
        np.testing.assert_allclose(
            np.mean(memories(many), axis=0), memories(one)[0], rtol=0, atol=1e-11 * scale
        )
    assert scale > 2 * np.abs(memories(one)[0]).max()  # the workers do differ


@BOTH
@pytest.mark.parametrize(("r", "rows"), [(3, 3), (3, 4), (0.99, 6), (1, 1)])
def test_of_full_rank_the_product_is_the_memory(r, rows, columns):
    """P R' = mean M_i, so mean M_i becomes μ mean M_i; all singular values of Orth-Dion's g are
    √(rows/columns)."""
    loop = start(Dion(r, rows, gamma=0.05, momentum=0.75, columns=columns, values="f8"), Entropy(), N)
    for t in range(10):
        two_rounds(loop, t)
        before = np.mean([w.M for w in loop.workers.values()], axis=0)
        np.testing.assert_allclose(loop.replica.product, before, rtol=0, atol=1e-13 * np.abs(before).max())
        np.testing.assert_allclose(np.mean(memories(loop), axis=0), 0.75 * before, rtol=0, atol=1e-12)
        if columns == "orthonormal":
            singular = np.linalg.svd(loop.replica.g.reshape(rows, -1), compute_uv=False)
            np.testing.assert_allclose(singular, np.sqrt(rows * rows / 12), rtol=1e-10)


@BOTH
@pytest.mark.parametrize("turned", [False, True])
def test_at_a_fixed_memory_g_converges_to_the_polar_factor(columns, turned):
    """That of the best approximation of rank r, with the sign that descends: ⟨g, M⟩ is the nuclear norm."""
    draw = np.random.default_rng(3)
    U, V = (np.linalg.qr(draw.normal(size=(m, m)))[0] for m in (6, 4))
    M = U[:, :4] @ np.diag([8.0, 4.0, 1.0, 0.5]) @ V.T
    X, polar = (A.T if turned else A for A in (M, U[:, :2] @ V[:, :2].T))
    loop = start(Dion(2, len(X), gamma=1e-9, columns=columns, values="f8"), Quadratics(d=24), 1)
    w, r = loop.workers[0], loop.replica
    for t in range(40):
        w.M[:] = X.ravel() - loop.objectives[0].grad(r.x) + (1 - loop.method.momentum) * r.product
        two_rounds(loop, t)
    np.testing.assert_allclose(r.g.reshape(X.shape), np.sqrt(len(X) / X.shape[1]) * polar, rtol=0, atol=1e-7)
    nuclear = np.sqrt(len(X) / X.shape[1]) * (8 + 4)
    assert np.sum(r.g.reshape(X.shape) * X) == pytest.approx(nuclear, rel=1e-7)


def test_the_sign_of_a_column_is_kept():
    """The triangular factor has a positive diagonal: ⟨orth(A)_j, A_j⟩ > 0, which numpy's qr does not give."""
    A = np.random.default_rng(0).normal(size=(5, 3))
    assert (np.sum(orth(A) * A, axis=0) > 0).all()
    assert not (np.sum(np.linalg.qr(A)[0] * A, axis=0) > 0).all()
    np.testing.assert_allclose(mpicomp.kernels.lowrank.orthonormal(A), orth(A), rtol=0, atol=1e-14)


def test_the_step_does_not_grow_with_the_gradient():
    """Gradients times 2¹⁰⁰ have the same iterates, but for the 1e-8 in the norms."""
    problem, n = squares(4, 12, seed=9), 4
    large = replace(problem, A=problem.A * 2.0**100, b=problem.b * 2.0**100)
    method = Dion(2, 3, gamma=0.02, values="f8")
    wanted = trajectory(start(method, problem, n), 40)
    assert_close(trajectory(start(method, large, n), 40), wanted, 1e-6)


def test_parts_sent_whole_have_the_mean_gradient():
    loop = start(Dion(2, gamma=0.05, values="f8"), PROBLEM, N)
    for t in range(5):
        wanted = np.mean([g(loop.x) for g in gradients(PROBLEM, N)], axis=0)
        two_rounds(loop, t)
        for part, where in PARTS:
            same = np.abs(loop.replica.g[where] - wanted[where]).max() <= 1e-15
            assert same == (part.name != "a")


def test_a_part_is_a_matrix_where_that_saves_values():
    """2 (4 + 4) = 16 values are as many as the part has; 2 (4 + 5) are fewer than 20."""
    method = Dion(2, gamma=0.05).bound(Parts((Part("W", (4, 4)), Part("V", (4, 5)))))
    (m,) = method.layers(36).matrices
    assert (m.x, m.r, m.turned) == (slice(16, 36), 2, True)
    assert method.layers(36).whole == (slice(0, 16),)


@pytest.mark.parametrize(("r", "shorter", "rank"), [(0.25, 8, 2), (0.25, 9, 3), (0.25, 10, 3), (0.01, 6, 1)])
def test_a_fraction_of_the_shorter_side_is_rounded_up(r, shorter, rank):
    """As in the authors' program.  It was rounded to nearest: 2 for 9, and for 10."""
    assert Dion(r).rank(shorter, 50) == Dion(r).rank(50, shorter) == rank


def test_the_bytes_are_those_of_the_factors_and_of_what_is_whole():
    """P of the longer sides in even rounds; R and the other parts in odd ones; 4 bytes a value, 4 workers."""
    loop = start(Dion(1, gamma=0.05), PROBLEM, N)
    lengths, charged = [], []
    for k in range(6):
        before = loop.ledger.up_bytes, loop.ledger.paper_bits_up
        loop.step(k)
        lengths.append(loop.ledger.up_bytes - before[0])
        charged.append(loop.ledger.paper_bits_up - before[1])
    assert lengths == [4 * 4 * (7 + 4 + 3), 4 * 4 * ((3 + 2 + 3) + (3 + 1))] * 3
    assert charged == [8 * length for length in lengths]


@pytest.mark.parametrize("rounds", [7, 8])
def test_a_run_resumes_with_its_layers(rounds, tmp_path):
    """After a step, and between its two rounds."""
    method, problem = Dion(0.25, gamma=0.01, batch=16), MLP("digits", hidden=16)
    whole = mpicomp.run(method, problem, workers=4, rounds=12)
    mpicomp.run(method, problem, workers=4, rounds=rounds, out=tmp_path / "run")
    resumed = mpicomp.run(method, problem, workers=4, rounds=12, out=tmp_path / "run", resume=True)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    values = 4 * (16 + 64) + 3 * (10 + 16) + 16 + 10  # of a worker in two rounds; a quarter of 16, and of 10
    assert whole.ledger.up_bytes == 6 * 4 * 4 * values
    assert mpicomp.run(replace(method, columns="orthonormal"), problem, workers=4, rounds=12).rows[-1].f != (
        whole.rows[-1].f
    )


@BOTH
def test_lost_directions_are_drawn_anew(columns):
    """Where all gradients are 0, so are P and Q; away from there the step is one of full rank again."""
    still = integers(2, 8, identical=True)
    still = replace(still, b=still.A @ still.start)
    loop = start(Dion(2, 4, gamma=0.1, columns=columns, values="f8"), still, 2)
    assert not np.ptp(trajectory(loop, 4), axis=0).any()
    assert not loop.replica.P.any() and not loop.replica.Q.any()
    loop.replica.x = still.start + 1
    trajectory(loop, 2)
    assert np.linalg.matrix_rank(loop.replica.g.reshape(4, 2)) == 2


def test_the_loss_of_a_network_falls():
    run = mpicomp.run(Dion(0.25, gamma=0.2), MLP("digits", hidden=16), workers=4, rounds=60, every=60)
    assert run.rows[-1].f < 0.5 * run.rows[0].f


def test_texts_name_neither_rows_nor_parts():
    method = Dion(2, gamma=0.125, columns="orthonormal")
    assert to_text(method) == "dion(r=2, gamma=0.125, columns=orthonormal)"
    bound = method.bound(PARTS)
    assert to_text(bound) == to_text(method) and repr(bound) == repr(method)
    assert parse_method(to_text(bound)).bound(PARTS) == bound != method


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"r": 0}, r"r=0; allowed: a count.*or a fraction"),
        ({"r": 1.5}, r"r=1\.5; allowed"),
        ({"rows": -1}, "rows=-1; allowed: a positive integer"),
        ({"momentum": 1}, "momentum=1; allowed: a number from 0"),
        ({"columns": "unit"}, "columns='unit'; allowed: 'normalised', 'orthonormal'"),
        ({"values": "f5"}, "'f5'"),
        ({"down": RandK(2)}, "down.*lossless"),
        ({"batch": 0}, "batch=0"),
        ({"parts": 3}, "parts=3; allowed: Parts"),
    ],
)
def test_what_dion_refuses(wrong, match):
    with pytest.raises(ConfigError, match=match):
        Dion(**{"r": 1, "rows": 3, "gamma": 0.1, **wrong})


def test_what_does_not_fit_x_is_refused():
    with pytest.raises(ConfigError, match=r"Dion has no theory step size.*Give gamma as a number"):
        start(Dion(1, rows=3), Entropy(), N)
    with pytest.raises(ConfigError, match="rows=5 does not divide the dimension d=12; nearest: rows=4 or 6"):
        start(Dion(1, 5, gamma=0.1), Entropy(), N)
    with pytest.raises(ConfigError, match=r"Dion: no part is a matrix that r=1 shortens; .* x \(12,\).*rows"):
        start(Dion(1, gamma=0.1), Quadratics(d=12), N)
    with pytest.raises(ConfigError, match=r"Dion knows no parts of the dimension d=12\. Give rows"):
        Dion(1, gamma=0.1).replica(np.zeros(12))
