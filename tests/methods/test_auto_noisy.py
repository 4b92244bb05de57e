"""gamma="auto" on batches, and "auto_noisy": the rule by a transcription, and the bound on its distance."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from math import inf, nan

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Identity, Natural, RandK, TopK
from mpicomp.keys import Key
from mpicomp.loops.descent import Descent
from mpicomp.methods import (
    AGD,
    DASHAMVR,
    DCGD,
    DIANA,
    EF21,
    EF21SGD2M,
    EF21SGDM,
    EFSGD,
    GD,
    MARINA,
    VRMARINA,
    Artemis,
    DoubleSqueeze,
    EControl,
)
from mpicomp.methods.base import Method
from mpicomp.methods.support.auto_step import with_auto_step
from mpicomp.methods.support.distance import DistanceControl
from mpicomp.problems import Noisy
from tests.support.trajectories import Entropy, gradients, squares, start

FULL = [DCGD(RandK(3)), EFSGD(TopK(2)), DoubleSqueeze(TopK(2), TopK(3)), Artemis(Natural(), Natural())]
BATCH = [EF21(TopK(2), batch=3), EF21SGDM(TopK(2), batch=1), DIANA(Natural(), batch=2)]
BATCH += [DASHAMVR(RandK(3), batch=2, b=0.5), EF21SGD2M(TopK(2), batch=2), EControl(TopK(2), batch=2)]
AUTO = [method.with_step("auto") for method in FULL + BATCH]


def test_which_gradients_are_taken_for_noisy():
    assert all(method.noisy for method in AUTO)
    assert not any(m.noisy for m in (EF21(TopK(2), gamma="auto"), MARINA(RandK(3), gamma="auto")))
    assert EF21(TopK(2), gamma="auto_noisy").noisy
    for method in (AGD(gamma=1, mu=0), VRMARINA(RandK(3), batch=2, gamma=1, p=0.5)):
        with pytest.raises(ConfigError, match="takes no gamma='auto_noisy'; allowed: a positive number"):
            method.with_step("auto_noisy")


def rounded(gamma):
    """The number with five significant bits, ties away from 0."""
    m, e = np.frexp(gamma)
    return float(np.ldexp(np.floor(32 * m + 0.5), e - 5))


def asked(method, problem, seed):
    """The function (i, k, x) -> the gradient that worker i asks for at x in round k, of four workers."""
    fs = [problem.objective(i, 4) for i in range(4)]

    def gradient(i, k, x):
        if getattr(method, "batch", None) is None:
            return fs[i].grad(x)
        return fs[i].batch_grad(x, method.batch, Key(seed, k, i, 4).private("batch"))

    return gradient


@pytest.mark.parametrize("method", AUTO, ids=repr)
@pytest.mark.parametrize("problem", [Entropy(), squares(4, 12, seed=3)], ids=["entropy", "squares"])
def test_the_step_size_is_that_of_the_transcribed_rule(method, problem):
    """From the iterates, the estimates and the workers' gradients alone; sums begin anew in every round."""
    problem = Noisy(problem, 0.5)
    loop, gradient = start(method, problem, 4, seed=5), asked(method, problem, 5)
    xs, gs, gammas, means, d = [loop.x.copy()], [], [], [], []
    for k in range(60):
        s = [gradient(i, k, xs[k]) for i in range(4)]
        means.append(np.mean(s, axis=0))
        if k == 0:
            gamma = 1e-2 * max(1, np.linalg.norm(xs[0])) / np.mean([np.linalg.norm(v) for v in s])
        else:
            moved = np.linalg.norm(xs[k] - xs[0])
            progress = sum(gammas[j] * means[j] @ (xs[0] - xs[j]) for j in range(k))
            d.append(max([d[-1] if d else moved, 1.5 * progress / moved]))
            weights = [d[max(j - 1, 0)] for j in range(k)]  # of the steps so far; the first step's is d_1
            squares_of = [w**2 * (g @ g) for w, g in zip(weights, gs, strict=True)]
            gamma = d[-1] ** 2 / np.sqrt(sum(squares_of) + d[-1] ** 2 * (gs[-1] @ gs[-1]))
        loop.step(k)
        assert abs(loop.server.gamma / gamma - 1) < 1 / 32 + 1e-3  # slopes are sent in multiples of 1/4096
        gammas.append(loop.server.gamma)
        xs.append(loop.x.copy())
        gs.append(loop.replica.g.copy())
        assert gammas[k] == rounded(gammas[k])
        assert np.allclose(xs[k + 1], xs[k] - gammas[k] * gs[k], rtol=1e-12, atol=1e-14)
    assert max(gammas) > 3 * gammas[0]


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e3])
def test_the_distance_is_at_most_that_to_the_minimum(gamma):
    """1.5 times that, of exact gradients of a convex f: this is proved.  ``gamma`` is the scale of f."""
    problem = squares(1, 12, seed=3)
    problem = replace(problem, A=gamma * problem.A, b=gamma * problem.b)
    loop = start(GD(gamma="auto_noisy", values="f8"), problem, 1)
    true = float(np.linalg.norm(problem.x_star - loop.x))
    found = []
    for k in range(400):
        loop.step(k)
        found.append(loop.server.distance)
    assert max(found) <= 1.5 * true * (1 + 1e-3)
    assert found[-1] > true / 2


def left(method, problem):
    """How much of f(x^0) - f* is left after 400 rounds, the mean of ten rows."""
    f_star = problem.constants(4).f_star
    run = mpicomp.run(method, problem, workers=4, rounds=400, every=10, seed=2)
    return (np.mean([row.f for row in run.rows[-10:]]) - f_star) / (run.rows[0].f - f_star)


@pytest.mark.parametrize("method", AUTO[:7], ids=repr)
def test_noise_is_averaged_out(method, monkeypatch):
    """The slope's rule stops far from the minimum: its steps shrink as soon as noise hides the slope.

    With momentum, which takes much of the noise away, it does not.
    """
    method, problem = replace(method, batch=1), Noisy(squares(4, 12, seed=3, identical=True), 10.0)
    assert left(method, problem) < 1 / 40
    if not isinstance(method, EF21SGDM):
        monkeypatch.setattr(Method, "noisy", False)
        assert left(method, problem) > 1 / 20


@pytest.mark.parametrize("method", AUTO, ids=repr)
def test_the_units_of_f_do_not_matter(method):
    """Exact.  With 1024 f in place of f, γ is 1024 times smaller, and the iterates are the same."""
    problem = squares(4, 12, seed=3)
    larger = replace(problem, A=1024 * problem.A, b=1024 * problem.b)
    first, second = (
        start(method, Noisy(p, sigma), 4, seed=2) for p, sigma in ((problem, 0.5), (larger, 512.0))
    )
    for k in range(40):
        first.step(k)
        second.step(k)
        assert np.array_equal(first.x, second.x)
        assert first.server.gamma == 1024 * second.server.gamma > 0


@pytest.mark.parametrize("method", [AUTO[1], AUTO[3], AUTO[5]], ids=repr)
@pytest.mark.parametrize("blocks", [1, 3])
def test_resumed_runs_are_the_same(method, blocks, tmp_path):
    problem = Noisy(Entropy(), 0.5)
    words = {"workers": 4, "seed": 3} | ({"server": "sharded", "blocks": 3} if blocks == 3 else {})
    whole = mpicomp.run(method, problem, rounds=60, **words)
    mpicomp.run(method, problem, rounds=25, out=tmp_path, checkpoint_every=25, **words)
    resumed = mpicomp.run(method, problem, rounds=60, out=tmp_path, resume=True, **words)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    assert resumed.ledger.up_bytes == whole.ledger.up_bytes


def test_blocks_have_one_step_size():
    """Identity in f8 sends the same vector whole and in blocks, so the iterates are the same."""
    method, problem = EF21(Identity("f8"), gamma="auto", batch=2), Noisy(squares(4, 12, seed=3), 0.5)
    whole = mpicomp.run(method, problem, workers=4, rounds=50)
    cut = mpicomp.run(method, problem, workers=4, rounds=50, server="sharded", blocks=3)
    assert cut.iterates_sha256 == whole.iterates_sha256


def test_a_loop_of_ones_own_says_that_its_gradients_are_noisy():
    problem = Entropy()
    method = EF21(TopK(2), gamma="auto_noisy")
    whole = mpicomp.run(method, problem, workers=4, rounds=50)
    with Descent(method, problem.x0(), workers=4) as descent:
        grads = gradients(problem, 4)
        for _ in range(50):
            x = descent.point
            descent.step({i: grads[i](x) for i in range(4)})
        assert np.array_equal(descent.x, whole.x)


def test_a_round_without_senders_changes_no_step_size():
    """Of four workers that take part with probability 0.1, none does in 66 % of the rounds."""
    method = Artemis(Identity("f8"), Identity("f8"), gamma="auto", p=0.1, alpha=0)
    loop = start(method, Entropy(), 4, seed=1)
    silent = 0
    for k in range(60):
        before = loop.server.gamma
        up = loop.ledger.up_bytes
        loop.step(k)
        if loop.ledger.up_bytes == up and k > 0:
            silent += 1
            assert loop.server.gamma == before
    assert silent > 20
    assert np.isfinite(loop.x).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_first_round_without_senders_sets_no_scale(seed):
    """Exact: where the first round had none, γ began as a number that knew no unit of f."""
    method, problem = Artemis(Identity("f8"), Identity("f8"), gamma="auto", p=0.1, alpha=0), squares(4, 12, 3)
    larger = replace(problem, A=2**20 * problem.A, b=2**20 * problem.b)
    first, second = start(method, problem, 4, seed=seed), start(method, larger, 4, seed=seed)
    assert not method.senders(Key(seed, 0, 0, 4))
    for k in range(150):
        first.step(k)
        second.step(k)
        assert np.array_equal(first.x, second.x)
    assert (first.x != problem.x0()).any()


def test_a_first_batch_whose_gradient_is_0_sets_no_scale():
    """A loop of one's own, with f = 2^20 |x - 3|²/2 and a first batch that says nothing."""
    with Descent(DCGD(Identity("f8"), gamma="auto"), np.zeros(4)) as descent:
        for k in range(300):
            descent.step(0.0 * descent.point if k == 0 else 2.0**20 * (descent.point - 3))
            if k == 1:
                assert 0.009 < np.linalg.norm(descent.x) < 0.011
        assert np.allclose(descent.x, 3, atol=0.1)


@dataclass(frozen=True)
class Counting(DCGD):
    """Its replica has a field with a default."""

    @dataclass
    class Replica(DCGD.Replica):
        steps: int = 0

    def estimate(self, r, broadcast, key):
        super().estimate(r, broadcast, key)
        r.steps += 1


def test_a_method_of_ones_own_may_have_defaults_in_its_replica():
    loop = start(Counting(RandK(3), gamma="auto"), Entropy(), 4)
    for k in range(20):
        loop.step(k)
    assert loop.replica.steps == 20
    assert loop.replica.moved == pytest.approx(np.linalg.norm(loop.x - Entropy().x0()))


def own(record, field):
    """A method of one's own, one of whose records has a field with this name."""
    base = getattr(DCGD, record)
    return type("Own", (DCGD,), {record: make_dataclass(record, [field], bases=(base,))})(RandK(3))


NAMES = ["Replica.length", "Replica.origin", "Server.norm", "Server.gamma", "Worker.origin"]


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_ones_own_with_names_that_the_rule_needs_are_refused(name):
    """They would be overwritten."""
    record, field = name.split(".")
    method = own(record, field)
    assert with_auto_step(method.with_step(0.1)).step == 0.1
    with pytest.raises(ConfigError, match=f"Own.{record} has a field {field}, a name that gamma='auto'"):
        with_auto_step(method.with_step("auto"))


def test_slopes_that_are_no_numbers():
    control = DistanceControl()
    control.begin(0.5)
    before = replace(control)
    for slope in (nan, inf, -inf):
        control.update(slope, 1.0, 1.0)
        assert control == before
    control.update(1.0, 1e-170, 1e-170)
    assert control.gamma == before.gamma
    for scale in (0.0, inf, nan):
        control.begin(scale)
        assert 0 < control.gamma < 1
    control.begin(1e-200)
    assert control.gamma == pytest.approx(1e100, rel=1 / 32)


def test_a_start_at_the_minimum_stays_there():
    problem = replace(squares(2, 4, seed=1), start=np.zeros(4), b=np.zeros((2, 4)))
    run = mpicomp.run(EF21(Identity(), gamma="auto_noisy"), problem, workers=2, rounds=20)
    assert not run.x.any()
