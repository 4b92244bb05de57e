"""ARC-Top-K: its transcription, special cases, the contraction of the mean, and what single workers lack.

Step 0 of the transcription is our round 0.  Step t is our rounds 2t - 1, which sends sketches and draws V,
and 2t, which sends rows.  "Exact" is bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from math import atan, pi, sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import Identity, Lossless, RandK, TopK
from mpicomp.keys import Key
from mpicomp.methods import EF14, EF21SGDM, ARCTopK
from mpicomp.methods.arctopk import contraction
from mpicomp.problems import MLP, Noisy, Quadratics
from mpicomp.text.config import parse_method, to_text
from tests.methods.test_powersgd_layers import Layers
from tests.reference.arctopk import arctopk
from tests.support.error_feedback import NOISY
from tests.support.trajectories import (
    HAND,
    PLACES,
    ROUNDS,
    Entropy,
    Squares,
    assert_close,
    assert_equal,
    assert_mean,
    grad_norm_sq,
    mean_of,
    resolved,
    rng,
    squares,
    start,
    trajectory,
)

SEED = 22
STEPS = ROUNDS // 2


def sampler(problem, n, batch):
    """(i, t, x) -> s_i^t, whose batch is drawn with the key of round 2t - 1, or of round 0."""
    fs = [problem.objective(i, n) for i in range(n)]

    def sample(i, t, x):
        if batch is None:
            return fs[i].grad(x)
        return fs[i].batch_grad(x, batch, Key(SEED, max(0, 2 * t - 1), i, n).private("batch"))

    return sample


def projection(shapes, n):
    """t -> V of each shape (columns, r): the Q of numpy's decomposition of what all ranks draw alike."""
    sizes = [c * r for c, r in shapes]

    def draw(t):
        drawn = Key(SEED, 2 * t - 1, None, n).shared("arctopk").normals(sum(sizes))
        pieces = np.split(drawn, np.cumsum(sizes)[:-1])
        return [np.linalg.qr(p.reshape(shape))[0] for p, shape in zip(pieces, shapes, strict=True)]

    return draw


def assert_transcribed(method, problem, n, tensors, shapes, batch=None):
    """x after every step, and v_i and g_i after the rows of each step; sketches leave x alone."""
    loop = start(method, problem, n, SEED)
    m = loop.method
    wanted, memories = arctopk(
        n,
        sampler(problem, n, batch),
        problem.x0(),
        m.gamma,
        m.eta,
        tensors,
        projection(shapes, n),
        STEPS,
    )
    iterates = [loop.x.copy()]
    for t in range(STEPS):
        if t:
            loop.step(2 * t - 1)
            assert np.array_equal(loop.x, iterates[-1])
        loop.step(2 * t)
        iterates.append(loop.x.copy())
        for w, v, g in zip(loop.workers.values(), *memories[t], strict=True):
            scale = max(1.0, np.abs(v).max())
            np.testing.assert_allclose(w.v, v, rtol=0, atol=1e-11 * scale)
            np.testing.assert_allclose(w.g, g, rtol=0, atol=1e-11 * scale)
    assert_close(iterates, wanted, 1e-11)


WIDTHS = [(3, 1, 1), (1, 2, 3), (2, 1, 4), (2, 3, 3), (1, 4, 6), (1, 1, 12)]


@pytest.mark.parametrize(("k", "r", "width"), WIDTHS)
@pytest.mark.parametrize("eta", [1.0, 0.3])
def test_it_is_its_transcription(k, r, width, eta):
    problem, n = PLACES[0]
    method = ARCTopK(k, r=r, width=width, gamma=0.1, eta=eta, values="f8")
    assert_transcribed(method, problem, n, [(slice(0, 12), 12 // width, k)], [(width, min(r, width))])


def test_it_is_its_transcription_on_batches():
    method = ARCTopK(4, r=1, width=1, gamma=0.05, eta=0.3, batch=2, values="f8")
    assert_transcribed(method, NOISY, 5, [(slice(0, 13), 13, 4)], [(1, 1)], batch=2)


# With k = 1 and r = 1, "a" and "c" are matrices of 4 by 5 and 3 by 4; with k = 3 "c" is sent whole.
PARTS = Parts((Part("b", (3,)), Part("a", (4, 5)), Part("s", ()), Part("c", (3, 2, 2)), Part("row", (1, 4))))
NET = Layers(Entropy(PARTS.size), PARTS)
A, C = slice(3, 23), slice(24, 36)


@pytest.mark.parametrize("k", [1, 3])
def test_it_is_its_transcription_layer_by_layer(k):
    tensors = [(A, 4, 1), (C, 3, 1)] if k == 1 else [(A, 4, 3)]
    shapes = [(5, 1), (4, 1)][: len(tensors)]
    method = ARCTopK(k, r=1, gamma=0.1, eta=0.5, values="f8")
    assert_transcribed(method, NET, 4, tensors, shapes)


# --- special cases ---


@pytest.mark.parametrize("values", ["f8", "f4"])
def test_without_compression_it_is_ef21_sgdm(values):
    """Exact: with all rows kept, the iterates after rows are those of EF21-SGDM with whole messages."""
    problem, n = PLACES[0]
    whole = EF21SGDM(Identity(values), gamma=0.1, eta=0.3)
    method = ARCTopK(4, r=2, width=3, gamma=0.1, eta=0.3, values=values)
    if values == "f8":  # EF21-SGDM sends its start in f4
        whole = replace(whole, start="compressed")
    got = trajectory(start(method, problem, n), 2 * ROUNDS - 1)
    assert_equal([got[0], *got[1::2]], trajectory(start(whole, problem, n), ROUNDS))


def test_rows_of_one_entry_and_one_worker_are_topk():
    """Exact: V is 1 or -1, and the sketch is M itself."""
    problem, n = Entropy(), 1
    wanted = trajectory(start(EF21SGDM(TopK(3), gamma=0.1, eta=0.3), problem, n), ROUNDS)
    got = trajectory(start(ARCTopK(3, width=1, gamma=0.1, eta=0.3), problem, n), 2 * ROUNDS - 1)
    assert_equal([got[0], *got[1::2]], wanted)


@pytest.mark.parametrize(("k", "width"), [(1, 3), (2, 3), (2, 4), (1, 6)])
def test_a_full_sketch_takes_the_largest_rows_of_the_mean(k, width):
    """For r = width, |M_j V| = |M_j|; with one worker it is TopK by rows."""
    for n in (1, 4):
        loop = start(ARCTopK(k, r=width, width=width, gamma=0.1, eta=0.3, values="f8"), Entropy(), n)
        loop.step(0)
        for t in range(1, 20):
            loop.step(2 * t - 1)
            M = (mean_of(loop, "v") - mean_of(loop, "g")).reshape(-1, width)
            largest = np.sort(np.argsort(-np.sum(M * M, axis=1), kind="stable")[:k])
            assert loop.replica.rows.tolist() == largest.tolist()
            loop.step(2 * t)


# --- n workers are one with the mean gradient ---


@pytest.mark.parametrize("r", [1, 4])
def test_workers_are_as_one(r):
    """To rounding, the x of the mean f on one worker: supports are common, and all that is sent is linear."""
    problem = squares(4, 8, seed=9)
    alone = Squares(problem.A.mean(axis=0)[None], problem.b.mean(axis=0)[None], problem.start)
    method = ARCTopK(1, r=r, width=4, gamma=0.1, eta=0.5, values="f8")
    one = trajectory(start(method, alone, 1, seed=4), 100)
    assert_close(trajectory(start(method, problem, 4, seed=4), 100), one, 1e-12)


@pytest.mark.parametrize("values", ["f8", "f4", "bf16"])
def test_g_is_the_mean_of_the_g_i(values):
    for problem, n in PLACES[:2]:
        width = 3 if problem.dimension() == 12 else 1
        loop = start(ARCTopK(2, r=2, width=width, gamma=0.05, values=values), problem, n)
        for k in range(2 * ROUNDS):
            loop.step(k)
            assert_mean(loop.replica.g, loop, "g")


def test_what_is_sent_makes_g_i_equal_to_v_i_there():
    """To rounding; elsewhere g_i stays, exactly."""
    loop = start(ARCTopK(2, r=2, width=3, gamma=0.1, values="f8"), Entropy(), 4)
    loop.step(0)
    for t in range(1, 20):
        before = [w.g.copy() for w in loop.workers.values()]
        loop.step(2 * t - 1)
        loop.step(2 * t)
        inside = np.isin(np.arange(4), loop.replica.rows).repeat(3)
        for w, g in zip(loop.workers.values(), before, strict=True):
            np.testing.assert_allclose(w.g[inside], w.v[inside], rtol=1e-14, atol=1e-15)
            assert np.array_equal(w.g[~inside], g[~inside])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_mean_contracts_in_every_step_with_a_full_sketch(k):
    """|v - g|² shrinks to at most 1 - k/m of it, v and g the means; for one step, whatever is drawn."""
    loop = start(ARCTopK(k, r=3, width=3, gamma=0.2, values="f8"), Entropy(), 4)
    loop.step(0)
    for t in range(1, 40):
        loop.step(2 * t - 1)
        before = np.sum((mean_of(loop, "v") - mean_of(loop, "g")) ** 2)
        loop.step(2 * t)
        after = np.sum((mean_of(loop, "v") - mean_of(loop, "g")) ** 2)
        assert after <= (1 - k / 4) * before * (1 + 1e-12)


# --- the contraction factor of the sketch ---

DRAWS = 20_000


def kept_share(M: np.ndarray, k: int, r: int) -> tuple[float, float]:
    """The mean of |M_I|²/|M|² over V, and the standard error of this estimate."""
    V, _ = np.linalg.qr(rng(7).normal(size=(DRAWS, M.shape[1], r)))
    sizes = np.sum((M @ V) ** 2, axis=2)
    chosen = np.argsort(-sizes, axis=1)[:, :k]
    squares = np.sum(M * M, axis=1)
    shares = squares[chosen].sum(axis=1) / squares.sum()
    return shares.mean(), shares.std() / sqrt(DRAWS)


def worse(b: float, N: int) -> np.ndarray:
    """N rows of the squared length b in one direction, and a row of length 1 orthogonal to them."""
    return np.concatenate([np.tile([sqrt(b), 0.0], (N, 1)), [[0.0, 1.0]]])


MATRICES = [
    rng(1).normal(size=(8, 4)),
    rng(2).normal(size=(8, 1)) * rng(3).normal(size=(1, 4)),  # of rank 1
    np.diag([1.0, 2.0, 3.0, 3.0]),
    np.eye(4),
    worse(4.0, 7),
    worse(10.0, 15),
    np.concatenate([np.ones((6, 4)), 1.2 * np.eye(4)]),
]


@pytest.mark.parametrize("M", MATRICES, ids=range(len(MATRICES)))
def test_the_sketch_keeps_its_share_of_every_matrix(M):
    m, c = M.shape
    for k in (1, 2):
        for r in range(1, c + 1):
            share, error = kept_share(M, k, r)
            alpha = contraction(k, m, c, r)
            assert share >= alpha - 4 * error
            assert k / m * r / c * (1 - 1e-12) <= alpha <= k / m * (1 + 1e-12)
            if r == c:
                assert share >= k / m - 1e-12


def test_of_orthogonal_rows_it_keeps_a_share_of_k_rows():
    for M in (np.diag([1.0, 2.0, 3.0, 3.0]), np.eye(4), np.diag([1.0, 1.0, 1.0, 1.1, 5.0])):
        for k in (1, 2):
            for r in (1, 2):
                share, error = kept_share(M, k, r)
                assert share >= k / len(M) - 4 * error


def test_rows_that_depend_on_each_other_may_be_kept_less():
    """For c = 2 and r = 1, N rows of the squared length b and one orthogonal to them, of length 1: the
    former are chosen where b cos² > sin², with the probability 2/π arctan √b.  The share is below k/m."""
    b, N = 4.0, 7
    share = (1 + (b - 1) * 2 / pi * atan(sqrt(b))) / (1 + N * b)
    estimate, error = kept_share(worse(b, N), 1, 1)
    assert abs(estimate - share) <= 4 * error
    assert contraction(1, N + 1, 2, 1) <= share < 1 / (N + 1)


def test_the_factor_by_hand():
    """For c = 4 and r = 2, Z = 2U and E (Z - t)₊ = (2 - t)²/4; with k/m = 1/4 the best t is √3."""
    assert 0 <= (1 - sqrt(3) / 2) - contraction(1, 4, 4, 2) <= 1e-5
    assert contraction(2, 8, 3, 3) == 1 / 4
    assert contraction(5, 5, 3, 1) == 1


def test_the_factor_does_not_vanish_with_the_number_of_columns():
    """It tends to that of Z = χ²_r/r: at k/m = 1 % and r = 4 it stays above a sixth of k/m."""
    factors = [contraction(10, 1000, c, 4) for c in (10, 100, 1000, 10_000, 100_000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 0.01 / 6
    assert factors[-2] / factors[-1] < 1.001


# --- a single worker ---


def test_a_worker_does_not_contract_but_stays_bounded():
    """f_i = |x|²/2 - x_1 ± 100 x_1 x_4 on two workers.  In x_4 the mean gradient is 0, so this coordinate is
    never chosen.  There v_i tends to ±100 and g_i stays at its start, 0; x still tends to x* = e_1."""
    twist = np.zeros((4, 4))
    twist[0, 3] = twist[3, 0] = 100.0
    A = np.eye(4) + np.array([twist, -twist])
    problem = Squares(A, np.tile([1.0, 0, 0, 0], (2, 1)), np.zeros(4))
    loop = start(ARCTopK(1, width=1, gamma=0.5, eta=0.5, values="f8"), problem, 2)
    for k in range(201):
        loop.step(k)
        assert 3 not in loop.replica.rows
    np.testing.assert_allclose(loop.x, [1, 0, 0, 0], rtol=0, atol=1e-9)
    for w, sign in zip(loop.workers.values(), (1, -1), strict=True):
        assert w.g[3] == 0 and w.v[3] == pytest.approx(sign * 100, abs=1e-6)


# --- theory ---


def test_theory_s_step_by_hand():
    """min{α/(20 L), η/(7 L)}, of f alone: L = 3, and neither L̃ nor n enters."""
    for n in (1, 4, 64):
        assert resolved(ARCTopK(3, r=3, width=3, eta=1.0), 12, n).gamma == pytest.approx(3 / 4 / 60)
        assert resolved(ARCTopK(4, r=1, width=3, eta=0.1), 12, n).gamma == pytest.approx(0.1 / 21)
        alpha = contraction(1, 3, 4, 2)
        assert resolved(ARCTopK(1, r=2, width=4, eta=1.0), 12, n).gamma == pytest.approx(alpha / 60)
    method = ARCTopK(1, r=1, eta=1.0).bound(PARTS)
    alpha = min(contraction(1, 4, 5, 1), contraction(1, 3, 4, 1))
    assert method.resolve(lambda: HAND, PARTS.size, 4).gamma == pytest.approx(alpha / 60)


def test_it_converges_linearly_on_heterogeneous_quadratics_with_theory_s_step():
    """EF14 with TopK, and even a small step, does not."""
    problem, n = squares(4, 8, seed=9), 4

    def final(method, rounds):
        return grad_norm_sq(problem, n, trajectory(start(method, problem, n), rounds)[-1])

    assert final(ARCTopK(2, r=1, width=2, eta=1.0, values="f8"), 12_000) < 1e-20
    assert final(EF14(TopK(2), gamma=0.05), 4000) > 1e-6


# --- what is sent ---


def test_the_bytes_are_those_of_the_sketch_and_of_the_rows():
    """Exact, up and down, and the same for 4 and for 40 workers."""
    for n in (4, 40):
        loop = start(ARCTopK(2, r=2, width=3, gamma=0.01, down=Lossless("f4")), Entropy(), n)
        up, down = [], []
        for k in range(7):
            before = loop.ledger.up_bytes, loop.ledger.down_bytes
            loop.step(k)
            up.append((loop.ledger.up_bytes - before[0]) / n)
            down.append((loop.ledger.down_bytes - before[1]) / n)
        sketch, rows = 4 * (12 // 3) * 2, 4 * 2 * 3
        assert up == [4 * 12, sketch, rows, sketch, rows, sketch, rows]
        assert down == [1 + count for count in up]  # Lossless has a byte for the layout
        assert loop.ledger.paper_bits_up == 8 * loop.ledger.up_bytes
        assert loop.ledger.paper_bits_down == 8 * (loop.ledger.down_bytes - 7 * n)


def test_the_bytes_layer_by_layer():
    """4 + 3 sketches of one column; then a row of "a", one of "c", and the 8 other numbers."""
    loop = start(ARCTopK(1, r=1, gamma=0.01), NET, 4)
    for k, count in enumerate([PARTS.size, 4 + 3, 5 + 4 + 8, 4 + 3]):
        before = loop.ledger.up_bytes
        loop.step(k)
        assert loop.ledger.up_bytes - before == 4 * 4 * count


def test_the_error_is_counted_once_a_step():
    loop = start(ARCTopK(1, r=1, width=3, gamma=0.1), Entropy(), 4)
    total = 0.0
    for k in range(40):
        loop.step(k)
        if k % 2 == 0:
            total += np.mean([np.sum((w.v - w.g) ** 2) for w in loop.workers.values()])
        assert np.mean([f.meter.error for f in loop.objectives.values()]) == pytest.approx(total, rel=1e-12)
    assert total > 0


def test_a_network_s_run_resumes_between_the_two_rounds_of_a_step(tmp_path):
    method, problem = ARCTopK(0.2, r=2, gamma=0.1, batch=16), MLP("digits", hidden=16)
    whole = mpicomp.run(method, problem, workers=4, rounds=12)
    mpicomp.run(method, problem, workers=4, rounds=6, out=tmp_path / "run")
    resumed = mpicomp.run(method, problem, workers=4, rounds=12, out=tmp_path / "run", resume=True)
    assert resumed.iterates_sha256 == whole.iterates_sha256


# --- texts, and what is refused ---


def test_texts_name_neither_width_nor_parts():
    method = ARCTopK(1, r=1, gamma=0.125)
    assert to_text(method) == "arctopk(k=1, r=1, gamma=0.125)"
    bound = method.bound(PARTS)
    assert to_text(bound) == to_text(method)
    assert parse_method(to_text(bound)).bound(PARTS) == bound != method
    assert parse_method("arctopk(k=0.1, width=4)") == ARCTopK(0.1, width=4)
    assert ARCTopK(1, width=4).bound(PARTS) == ARCTopK(1, width=4)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"k": 0}, "k=0; allowed: a count"),
        ({"k": 1.5}, r"k=1\.5; allowed: a count"),
        ({"k": None}, "k=None; allowed: a count"),
        ({"r": 0}, "r=0; allowed: a positive integer"),
        ({"width": -1}, "width=-1; allowed: a positive integer"),
        ({"eta": 0}, "eta=0"),
        ({"values": "f5"}, "'f5'"),
        ({"down": RandK(2)}, "down.*lossless"),
        ({"batch": 0}, "batch=0"),
        ({"parts": 3}, "parts=3; allowed: Parts"),
    ],
)
def test_what_is_refused(wrong, match):
    with pytest.raises(ConfigError, match=match):
        ARCTopK(**{"k": 1, "r": 1, "width": 3, "gamma": 0.1, **wrong})


def test_what_has_no_rows_is_refused():
    with pytest.raises(
        ConfigError, match="width=5 does not divide the dimension d=12; nearest: width=4 or 6"
    ):
        start(ARCTopK(1, width=5, gamma=0.1), Entropy(), 4)
    with pytest.raises(ConfigError, match=r"k=5 exceeds the rows of width=3 in the dimension d=12.*1 to 4"):
        start(ARCTopK(5, width=3, gamma=0.1), Entropy(), 4)
    with pytest.raises(ConfigError, match=r"no part is a matrix.*the parts are x \(12,\).*Give width"):
        start(ARCTopK(1, gamma=0.1), Quadratics(d=12), 4)
    with pytest.raises(ConfigError, match=r"knows no parts of the dimension d=12\. Give width, or call"):
        ARCTopK(1, gamma=0.1).replica(np.zeros(12))
    with pytest.raises(ConfigError, match="knows parts of 40 entries of the dimension d=12"):
        ARCTopK(1, r=1, gamma=0.1).bound(PARTS).replica(np.zeros(12))


def test_noise_is_averaged_over_workers():
    """The linear speed-up: with four times the workers, f - f* is about a quarter after many steps."""
    levels = []
    for n in (4, 16):
        problem = Noisy(Quadratics(d=12, noise=0.0, lam=0.5), sigma=1.0)
        iterates = trajectory(
            start(ARCTopK(2, r=2, width=3, gamma=0.05, eta=0.2, batch=1, values="f8"), problem, n), 4001
        )
        levels.append(np.mean([grad_norm_sq(problem, n, x) for x in iterates[1001::2]]))
    assert 2.5 < levels[0] / levels[1] < 6


def test_a_step_asks_for_one_gradient_and_ends_with_whole_ones_or_rows():
    """Rounds 0, 1, 3 and 5 ask."""
    loop = start(ARCTopK(2, r=2, width=3, gamma=0.1), Entropy(), 2)
    ends = []
    for k in range(6):
        loop.step(k)
        ends.append(loop.method.ends_step(loop.replica, Key(0, k, None, 2)))
    assert ends == [True, False, True, False, True, False]
    assert [f.meter.epochs for f in loop.objectives.values()] == [4, 4]
