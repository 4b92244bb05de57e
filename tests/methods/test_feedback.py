"""Error feedback: what is held back, batches, steps and refusals of EF14, EF21 and all that came of them."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp import compressors
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Natural, PermK, RandK, Shrunk, TopK
from mpicomp.methods import ADEF, EF14, EF21, EF21SGD2M, EF21SGDM, EFSGD, EControl, EF21Plus
from tests.methods.test_steps import SHRINKING
from tests.support.error_feedback import NOISY, sampler
from tests.support.trajectories import HAND, L_TILDE, resolved, start


def test_the_total_error_is_that_of_what_was_held_back():
    """Column ``error``: sum over the rounds of the mean over the workers of |e_i|^2."""
    n = 5
    held = {
        EF21SGDM(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: w.v - w.g,
        EF21SGD2M(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: w.u - w.g,
        EF21(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: s - w.g,
        EF21Plus(TopK(3, values="f8"), gamma=0.5): lambda w, s: s - w.g,
        EControl(TopK(3, values="f8"), gamma=0.1, eta=0.1, batch=1): lambda w, s: w.e,
        ADEF(TopK(3, values="f8"), gamma=0.1, batch=1): lambda w, s: w.e,
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
    EControl(TopK(3), gamma=0.05, batch=1),
    ADEF(TopK(3), gamma=0.05, batch=1),
    EF21(TopK(3), gamma=0.05, batch=1),
    EF14(TopK(3), gamma=0.05, batch=1),
    EFSGD(HardThreshold(0.2), gamma=0.05, batch=1),
]


@pytest.mark.parametrize("method", STOCHASTIC, ids=repr)
def test_batches_are_drawn_again_when_a_run_is_resumed(method, tmp_path):
    """The resumed run has the same bits and the same totals, of the error too."""

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
    """docs/methods.md, EF21 and EF21SGDM; EF-SGD's as EF14's, α/(10 √(L L_max))."""
    for eta in (0.01, 0.1, 1.0):
        assert resolved(EF21SGDM(C, eta=eta), d, n).gamma == pytest.approx(
            min(alpha / (20 * L_TILDE), eta / 21)
        )
        assert resolved(EF21SGD2M(C, eta=eta), d, n).gamma == pytest.approx(
            min(alpha / (60 * L_TILDE), eta / 48)
        )
    assert resolved(EF21SGDM(C), d, n).eta == 0.1
    assert resolved(EF21Plus(C), d, n).gamma == resolved(EF21(C), d, n).gamma
    L_max = 3 if alpha == 1 else 5  # without compression L is enough
    assert resolved(EFSGD(C), d, n).gamma == pytest.approx(alpha / (10 * sqrt(3 * L_max)))


def test_one_worker_needs_neither_L_max_nor_convexity():
    nonconvex = replace(HAND, convex=False)
    assert resolved(EFSGD(TopK(3)), 12, 1, nonconvex).gamma == pytest.approx(0.25 / (10 * 3))
    assert resolved(EFSGD(TopK(3)), 12, 2).gamma == pytest.approx(0.25 / (10 * sqrt(3 * 5)))
    with pytest.raises(ConfigError, match=r"convex f_i"):
        resolved(EFSGD(TopK(3)), 12, 2, nonconvex)


# --- what is refused ---


REFUSED = [
    (method, C)
    for method in (EF21SGDM, EF21SGD2M, EControl, EF21Plus, EFSGD)
    for C in (RandK(2), PermK(), Natural(), HardThreshold(0.1), None)
    if not (method is EFSGD and isinstance(C, HardThreshold))  # whose error its theorem covers
]


@pytest.mark.parametrize(("method", "C"), REFUSED, ids=repr)
def test_a_compressor_that_the_theorem_does_not_cover_is_refused(method, C):
    """With the nearest remedy, that is then accepted."""
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
@pytest.mark.parametrize("method", [EF21, EF21SGDM, EF21SGD2M, EControl, EF14, EFSGD])
def test_a_batch_that_is_none_is_refused(method, batch):
    with pytest.raises(ConfigError, match="batch="):
        method(TopK(2), batch=batch)


def test_batches_need_a_problem_that_has_them():
    with pytest.raises(ConfigError, match=r"no stochastic gradients.*noisy\("):
        mpicomp.run(EF21SGDM(TopK(2), gamma=0.1, batch=1), NOISY.problem, workers=2, rounds=1)
