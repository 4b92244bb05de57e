"""Perturbed SGD.  Tolerances are those of test_transcriptions.py; "exact" is bit for bit.

Correspondence of rounds.  Its resets are rounds of their own, so its paper's step t is our round
t + the number of resets before it, and the transcription counts such exchanges.
"""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    HardThreshold,
    Identity,
    Lossless,
    Natural,
    RandK,
    RankR,
    Shrunk,
    Sign,
    TopK,
)
from mpicomp.keys import Key
from mpicomp.methods import EFSGD, PerturbedSGD, PowerSGD
from mpicomp.problems import Noisy, Problem, Quadratics, Saddle
from mpicomp.text.config import parse_method, to_text
from tests.reference.gd import gd
from tests.reference.perturbed_sgd import perturbed_sgd
from tests.support.trajectories import (
    CONTRACTIVE,
    EIGHTH,
    PLACES,
    ROUNDS,
    WHOLE,
    Entropy,
    Squares,
    assert_close,
    assert_equal,
    codec,
    every_place,
    gradients,
    integers,
    mean_gradient,
    on_batches,
    on_everything,
    rounding,
    squares,
    start,
    trajectory,
)

SHARED = Shrunk(RandK(3, mask="shared", values="f8"))
RESETS = [(None, None), (5, None), (None, 0.4), (7, 0.4)]


def noise(method: PerturbedSGD, seed: int, n: int, d: int):
    """xi of round k: what all ranks draw alike."""
    return lambda k: method.r * Key(seed, k, None, n).shared("perturbed_sgd").normals(d) / sqrt(d)


# --- perturbed SGD and its transcription ---


@pytest.mark.parametrize(("I_reset", "R"), RESETS, ids=repr)
@pytest.mark.parametrize("C", CONTRACTIVE, ids=repr)
def test_perturbed_sgd_is_its_transcription(C, I_reset, R):
    """docs/methods.md, PerturbedSGD.  Errors travel in f4 where C's values do."""
    problem, n = PLACES[0]
    dense = Identity("f8" if rounding(C) == 1e-12 else "f4")
    method = PerturbedSGD(C, eta=0.2, r=0.1, I_reset=I_reset, R=R, dense=dense)
    assert_transcribed(method, problem, n, on_everything(problem, n))


@every_place
def test_perturbed_sgd_is_its_transcription_everywhere(problem, n):
    method = PerturbedSGD(TopK(2, values="f8"), eta=0.1, r=0.1, I_reset=9, R=0.3, dense=WHOLE)
    assert_transcribed(method, problem, n, on_everything(problem, n))


def test_perturbed_sgd_is_its_transcription_on_batches():
    """The gradients' noise is a worker's own, the perturbation all workers'."""
    problem, n = Noisy(Quadratics(d=13, noise=0.5, lam=0.01), 0.5), 5
    method = PerturbedSGD(TopK(3, values="f8"), eta=0.1, r=0.1, I_reset=9, dense=WHOLE, batch=4)
    assert_transcribed(method, problem, n, on_batches(problem, n, 4, seed=21))


def assert_transcribed(method: PerturbedSGD, problem: Problem, n: int, grads: list) -> None:
    loop = start(method, problem, n, seed=21)
    dense, d = codec(method.dense, 21, n), problem.dimension()
    wanted, resets = perturbed_sgd(
        grads,
        problem.x0(),
        method.eta,
        noise(method, 21, n, d),
        codec(method.C, 21, n),
        lambda v: dense(0, 0, v),
        method.I_reset or inf,
        method.R or inf,
        ROUNDS,
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(method))
    assert 0 < sum(resets) < ROUNDS / 2 or method.I_reset is method.R is None


# --- its identities ---


@pytest.mark.parametrize(
    "C", [WHOLE, Lossless(), TopK(8, values="f8"), Shrunk(RandK(8, values="f8"))], ids=repr
)
@pytest.mark.parametrize("I_reset", [None, 3])
def test_without_compression_and_noise_it_is_gd(C, I_reset):
    """Exact.  docs/methods.md, PerturbedSGD: lossless C, r = 0 => SGD; a reset then moves nothing."""
    problem = integers(4, 8)
    method = PerturbedSGD(C, eta=EIGHTH, r=0, I_reset=I_reset, dense=WHOLE)
    iterates = trajectory(start(method, problem, 4), 8)
    wanted = gd(gradients(problem, 4), problem.x0(), EIGHTH, 8)
    if I_reset is None:
        assert_equal(iterates, wanted)
    else:  # rounds 3 and 7 are resets
        assert_equal(iterates, [*wanted[:4], *wanted[3:7], wanted[6]])


def test_without_compression_and_noise_it_is_sgd_on_batches():
    """To rounding; the batches are those that its key names."""
    problem, n, x = Noisy(Quadratics(d=13, noise=0.5, lam=0.01), 0.5), 4, Quadratics(d=13).x0()
    wanted = [x]
    for k in range(60):
        x = x - 0.1 * np.mean([g(k, x) for g in on_batches(problem, n, 3, seed=2)], axis=0)
        wanted.append(x)
    loop = start(PerturbedSGD(WHOLE, eta=0.1, r=0, batch=3), problem, n, seed=2)
    assert_close(trajectory(loop, 60), wanted, 1e-12)


@pytest.mark.parametrize("C", CONTRACTIVE, ids=repr)
def test_without_noise_and_resets_it_is_ef_sgd(C):
    """Exact, on batches."""
    problem = Noisy(Quadratics(d=12, noise=0.5, lam=0.01), 0.5)
    methods = [PerturbedSGD(C, eta=0.1, r=0, batch=3), EFSGD(C, gamma=0.1, batch=3)]
    assert_equal(*(trajectory(start(m, problem, 4, seed=6), 30) for m in methods))


@pytest.mark.parametrize("C", [TopK(3, values="f8"), TopK(1, values="f8")], ids=repr)
@pytest.mark.parametrize(("I_reset", "R"), [(None, None), (2, None), (None, 3.0)], ids=repr)
def test_the_virtual_iterate(C, I_reset, R):
    """Exact.  docs/methods.md, PerturbedSGD: x - eta mean e = x_0 - eta sum s, also
    across resets, which do not move it."""
    problem = integers(4, 8)
    loop = start(PerturbedSGD(C, eta=EIGHTH, r=0, I_reset=I_reset, R=R, dense=WHOLE), problem, 4)
    virtual, resets = problem.x0(), 0
    for k in range(8):
        reset = loop.method._resets(loop.replica)
        if not reset:
            virtual -= EIGHTH * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        errors = [w.e for w in loop.workers.values()]
        assert np.array_equal(loop.replica.x - EIGHTH * np.mean(errors, axis=0), virtual)
        assert np.any(errors) != reset  # a reset leaves nothing, a step something
        resets += reset
    assert (resets > 0) == (I_reset is not None or R is not None)


@pytest.mark.parametrize("dense", [Identity(), Identity("f8"), Identity("bf16")], ids=repr)
@pytest.mark.parametrize("C", CONTRACTIVE, ids=repr)
def test_the_virtual_iterate_for_every_compressor(C, dense):
    """The same to rounding with noise, x_0 - eta sum (s + xi): what ``dense`` rounds off stays in e_i."""
    problem, n = Entropy(), 4
    loop = start(PerturbedSGD(C, eta=0.2, r=0.3, I_reset=6, dense=dense), problem, n, seed=5)
    xi, virtual = noise(loop.method, 5, n, 12), problem.x0()
    scale = np.abs(virtual).max()
    for k in range(ROUNDS):
        if k % 7 != 6:
            virtual -= 0.2 * (mean_gradient(problem, n, loop.replica.x) + xi(k))
        loop.step(k)
        errors = np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.replica.x).max(), np.abs(errors).max())
        assert np.abs(loop.replica.x - 0.2 * errors.mean(axis=0) - virtual).max() <= 1e-15 * (k + 10) * scale


def test_resets_come_after_so_many_steps_or_so_far():
    """I_reset steps after the last one, or once x is R away from where it was then, whichever is first."""
    loop = start(PerturbedSGD(TopK(2), eta=0.2, r=0.1, I_reset=6, R=0.2), Entropy(), 4)
    anchor, age, by_age, by_distance = loop.replica.x.copy(), 0, 0, 0
    for k in range(120):
        far = np.linalg.norm(loop.replica.x - anchor) >= 0.2
        wanted = far or age >= 6
        before = loop.ledger.up_bytes
        loop.step(k)
        # A length, then 12 values or two and their code: a byte says which 2 of 12.
        assert loop.ledger.up_bytes - before == 4 * (1 + (48 if wanted else 8 + 1))
        by_age, by_distance = by_age + (wanted and not far), by_distance + far
        age = 0 if wanted else age + 1
        anchor = loop.replica.x.copy() if wanted else anchor
        assert loop.replica.age == age
        assert np.array_equal(loop.replica.anchor, anchor)
    assert by_age > 2 and by_distance > 2


def test_a_reset_asks_for_no_gradient():
    loop = start(PerturbedSGD(TopK(2), eta=0.2, r=0.1, I_reset=4), Entropy(), 2)
    trajectory(loop, 10)
    assert [f.meter.epochs for f in loop.objectives.values()] == [8, 8]


def test_the_paper_s_count_has_the_resets():
    loop = start(PerturbedSGD(TopK(2, values="f8"), eta=0.2, r=0.1, I_reset=4), Entropy(), 2)
    trajectory(loop, 10)
    assert loop.ledger.paper_bits_up == 2 * 32 * (8 * 2 + 2 * 12)


def test_the_noise_costs_no_bytes_and_is_the_same_on_all_workers():
    quiet, loud = (start(PerturbedSGD(RankR(1, 3), eta=0.1, r=r), Entropy(), 4) for r in (0, 3.0))
    for loop in (quiet, loud):
        trajectory(loop, 12)
    assert np.array_equal(quiet.ledger.up, loud.ledger.up)
    assert not np.array_equal(quiet.replica.x, loud.replica.x)
    problem = squares(4, 6, seed=1, identical=True)
    loop = start(PerturbedSGD(TopK(2), eta=0.1, r=1.0), problem, 4)
    trajectory(loop, 12)
    assert len({w.e.tobytes() for w in loop.workers.values()}) == 1


def test_the_noise_has_the_stated_size_and_is_new_every_round():
    """x moves by -eta xi where there is no gradient.  |xi|^2 / r^2 is chi-square of 6 degrees over 6: its
    mean over 3000 rounds within six standard deviations, and so each coordinate's mean and correlations."""
    flat = Squares(np.zeros((1, 6, 6)), np.zeros((1, 6)), np.zeros(6))
    iterates = trajectory(start(PerturbedSGD(WHOLE, eta=0.5, r=2.0), flat, 1), 3000)
    xi = np.diff(iterates, axis=0) / -0.5 / 2.0 * sqrt(6)
    T = len(xi)
    assert abs(np.mean(np.sum(xi**2, axis=1)) / 6 - 1) < 6 * sqrt(2 / 6 / T)
    assert np.abs(xi.mean(axis=0)).max() < 6 / sqrt(T)
    assert np.abs(xi[1:].T @ xi[:-1] / T).max() < 6 / sqrt(T)


# --- one mask for all ---


@pytest.mark.parametrize(("k", "d"), [(3, 12), (5, 12), (1, 7), (0.3, 13), (12, 12)])
@pytest.mark.parametrize("layout", ["uniform", "block"])
def test_a_shrunk_randk_is_unscaled(k, d, layout):
    """docs/methods.md, PerturbedSGD: the kept coordinates as they are, to the
    rounding of (k/d)(d/k); alpha = k/d."""
    U = RandK(k, layout, "f8", mask="shared")
    x = np.random.default_rng(d).normal(size=d)
    count = U.max_count(d, 1)
    assert Shrunk(U).alpha(d, 1) == pytest.approx(count / d, rel=1e-15)
    for t in range(10):
        key = Key(3, t, 0, 4)
        value = Shrunk(U).decompress(Shrunk(U).compress(x, key), d, key)
        kept = value != 0
        assert kept.sum() == count
        np.testing.assert_allclose(value[kept], x[kept], rtol=4e-16, atol=0)
        assert np.array_equal(kept, Shrunk(U).decompress(Shrunk(U).compress(x, key.of(3)), d, key.of(3)) != 0)


def test_with_one_mask_workers_are_as_one():
    """Linear and the same everywhere, so that heterogeneity plays no part: the run is that of the mean f
    on one worker with the same draws.  TopK's is not."""
    problem, n = squares(4, 8, seed=9), 4
    alone = Squares(problem.A.mean(axis=0)[None], problem.b.mean(axis=0)[None], problem.start)
    for C, alike in ((SHARED, True), (TopK(3, values="f8"), False)):
        method = PerturbedSGD(C, eta=0.1, r=0.1)
        many = trajectory(start(method, problem, n, seed=4), 100)
        one = trajectory(start(method, alone, 1, seed=4), 100)
        difference = np.abs(np.subtract(many, one)).max() / np.abs(many).max()
        assert difference < 1e-12 if alike else difference > 1e-3


# --- the saddle ---

ESCAPING = [TopK(2), Shrunk(RandK(2, mask="shared")), Shrunk(RandK(2)), Sign(), RankR(1, 2), WHOLE]
QUIET = [TopK(2), SHARED, Sign(), TopK(1, values="f8"), WHOLE]


@pytest.mark.parametrize("C", QUIET, ids=repr)
@pytest.mark.parametrize("I_reset", [None, 5])
def test_without_noise_it_stays_at_a_saddle_for_ever(C, I_reset):
    """Exact.  docs/methods.md, PerturbedSGD, and workers whose gradients cancel there without being 0."""
    problem = Saddle(d=6, noise=0.5)
    loop = start(PerturbedSGD(C, eta=0.1, r=0, I_reset=I_reset), problem, 4)
    assert np.any([g(problem.x0()) for g in gradients(problem, 4)])
    assert not np.any(trajectory(loop, 300))


@pytest.mark.parametrize("C", ESCAPING, ids=repr)
def test_with_noise_it_escapes_to_a_minimum(C):
    """docs/methods.md, PerturbedSGD: r > 0 escapes to x_2 = -1 or 1, and over the
    seeds to both; f is -1/4 there."""
    ends = []
    method = PerturbedSGD(C, eta=0.1, r=0.01, I_reset=40, R=0.5)
    for seed in range(6):
        run = mpicomp.run(method, Saddle(d=6), workers=2, rounds=200, every=200, seed=seed)
        assert run.rows[0].f == 0
        assert run.rows[-1].f < -0.2499
        assert np.abs(np.abs(run.x) - (np.arange(6) == 1)).max() < 0.05
        ends.append(run.x[1] > 0)
    assert len(set(ends)) == 2


# --- what it refuses ---


@pytest.mark.parametrize("C", [RandK(2), Natural(), HardThreshold(0.1)], ids=repr)
def test_a_compressor_of_the_wrong_kind_is_refused(C):
    with pytest.raises(
        ConfigError, match=r"PerturbedSGD needs C to be contractive.*TopK\(k=0\.01\) would do"
    ):
        PerturbedSGD(C, eta=0.1, r=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"r": -0.1},
        {"r": inf},
        {"r": "theory"},
        {"I_reset": 0},
        {"I_reset": 2.5},
        {"I_reset": "theory"},
        {"R": 0},
        {"R": float("nan")},
        {"R": "far"},
        {"batch": 0},
        {"batch": 1.5},
    ],
    ids=repr,
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=rf"^{next(iter(wrong))}=.*allowed"):
        PerturbedSGD(TopK(2), **{"eta": 0.1, "r": 0.1, **wrong})


@pytest.mark.parametrize(
    ("method", "name"),
    [(PerturbedSGD(TopK(2), eta="theory", r=0.1), "eta"), (PowerSGD(1, 3, gamma="theory*2"), "gamma")],
)
def test_there_is_no_theory_s_step(method, name):
    with pytest.raises(ConfigError, match=f"give {name} as a number"):
        start(method, Entropy(), 4)


@pytest.mark.parametrize(
    "method",
    [
        PerturbedSGD(SHARED, eta=0.1, r=0.1),
        PerturbedSGD(TopK(2), eta=0.1, r=0, I_reset=5, R=0.1, batch=0.5),
        PowerSGD(2, 3, gamma=0.1),
    ],
    ids=repr,
)
def test_a_method_as_it_is_run_reads_back_from_text(method):
    """Resolved, as a run's record has it, never-resets included."""
    resolved = start(method, Entropy(), 4).method
    assert resolved == method == parse_method(to_text(resolved)) == parse_method(repr(resolved))
