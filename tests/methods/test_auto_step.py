"""gamma="auto": its rule by a transcription, what it does not depend on, and what refuses it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, floor, frexp, ldexp

import numpy as np
import pytest

import mpicomp
from mpicomp.averaging.books import advice_on_step
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs import messages
from mpicomp.compressors import Identity, Natural, PermK, RandK, TopK
from mpicomp.loops.aggregator import Aggregator
from mpicomp.loops.descent import Descent
from mpicomp.methods import DIANA, EF21, EF21SGDM, GD, MARINA, METHODS
from mpicomp.methods.support.auto_step import with_auto_step
from mpicomp.methods.support.control import StepControl
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.problems import Problem
from mpicomp.text.config import parse_method, to_text
from tests.support.method_cases import METHOD_CASES
from tests.support.trajectories import Entropy, Squares, gradients, rng, squares, start

AUTO = [case.method for case in METHOD_CASES if case.method.may_adapt]
FULL = [GD(), EF21(TopK(2)), EF21SGDM(TopK(2)), MARINA(RandK(3)), DIANA(Natural())]


def auto(method):
    return method.with_step("auto")


def rounded(x):
    """``x`` with five significant bits, ties away from 0."""
    m, e = frexp(abs(x))
    return np.copysign(ldexp(floor(32 * m + 0.5), e - 5), x)


def mean(numbers):
    """The mean over the workers of what they send, in multiples of 1/4096."""
    return sum(round(4096 * number) / 4096 for number in numbers) / len(numbers)


def transcribed(slopes):
    """γ of each round, of the first number and then the slopes."""
    gamma, ceiling, began, usual, rate = 1e-2 / slopes[0], None, None, 0.0, 0.7
    gammas, before, change = [gamma], 1.0, 1.0
    for slope in slopes[1:]:
        bounded = min(1.0, max(-1.0, slope))
        sudden = before - bounded > 8 * max(change, 1 / 4096)
        before, change = bounded, 0.9 * change + 0.1 * abs(before - bounded)
        usual = min(1.0, max(slope, 0.99 * usual, 1e-4))
        excess = min(1.0, max(-1.0, slope / usual - 0.4))
        if excess < 0:
            began = gamma if began is None else began
            ceiling = began if excess <= -0.7 and gamma >= 0.5 * began else ceiling
            gamma, rate = gamma * exp(0.7 * excess), max(0.035, rate * exp(0.35 * excess))
        elif ceiling is None:
            gamma, rate = gamma * exp(rate * excess), min(0.7, 1.05 * rate)
        elif gamma < 0.5 * ceiling:
            gamma = min(0.5 * ceiling, gamma * exp(0.7 * excess))
        elif sudden:
            ceiling, gamma = gamma, 0.7 * gamma
        else:
            beyond = gamma / ceiling
            gamma = gamma * exp(0.01 * excess * min(1.75, max(1, beyond)) ** 2)
        began = began if excess < 0 else None
        gammas.append(gamma)
    return gammas


@pytest.mark.parametrize("method", FULL, ids=repr)
@pytest.mark.parametrize("problem", [Entropy(), squares(4, 12, seed=3)], ids=["entropy", "squares"])
def test_the_step_size_is_that_of_the_transcribed_rule(method, problem):
    """From the iterates, the estimates and the gradients of the f_i alone."""
    loop, grads = start(auto(method), problem, 4, seed=5), gradients(problem, 4)
    slopes, gammas = [], []
    for k in range(50):  # later, |g| is that of rounding
        x, g = loop.x.copy(), loop.replica.g.copy()
        if k == 0:
            logs = [np.log2(np.linalg.norm(grad(x)) / max(1, np.linalg.norm(x))) for grad in grads]
            slopes.append(np.mean([2 ** mean([log]) for log in logs]))
        else:
            slopes.append(mean([grad(x) @ g / (g @ g) for grad in grads]))
        loop.step(k)
        gammas.append(loop.server.gamma)
        sent = rounded(loop.server.gamma)
        assert np.allclose(loop.x, x - sent * loop.replica.g, rtol=1e-14, atol=1e-14)
    assert np.allclose(gammas, transcribed(slopes), rtol=1e-6)
    assert max(gammas) > 10 * gammas[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_is_the_transcribed_one_for_slopes_of_any_kind(seed):
    """Stretches of nearly one slope, sudden and steep falls, slopes below -1 and above 1."""
    draw, control = rng(seed), StepControl()
    slopes = np.repeat(draw.choice([0.9, 0.8, 0.5, 0.01], 60), draw.integers(1, 90, 60))
    slopes += 1e-5 * draw.normal(size=slopes.size)
    odd = draw.random(slopes.size) < 0.02
    slopes[odd] = draw.choice([-3.0, -0.8, 0.3, 2.0], odd.sum())
    control.begin(2.0)
    gammas = [control.gamma]
    for slope in slopes:
        control.update(slope)
        gammas.append(control.gamma)
    assert np.allclose(gammas, transcribed([2.0, *slopes]), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("length", "gamma"), [(0.5, 0.02), (0.0, 0.01), (np.inf, 0.01), (np.nan, 0.01), (1e-120, 1e100)]
)
def test_the_first_step_and_a_slope_that_is_no_number(length, gamma):
    """A slope that is NaN leaves γ; an infinite one is a rise of f, so γ is where a steep fall began."""
    control = StepControl()
    control.begin(length)
    control.update(np.nan)
    assert control == StepControl(gamma)
    control.update(np.inf)
    assert (control.gamma, control.ceiling, control.last) == (gamma * exp(-0.7), gamma, -1.0)


@pytest.mark.parametrize("curvature", [1e-6, 1e-2, 1.0, 1e3, 1e8])
def test_gradient_descent_finds_the_curvature(curvature):
    """f = κ|x|²/2: the slope is 1 - γ κ.  So γ κ ends near 0.6, whatever κ is."""
    A, b = curvature * np.eye(3)[None], np.zeros((1, 3))
    loop = start(GD(gamma="auto", values="f8"), Squares(A, b, np.ones(3)), 1)
    for k in range(60):
        loop.step(k)
    found = loop.server.gamma * curvature
    assert 0.3 < found < 0.8
    assert np.abs(loop.x).max() < 1e-3


@pytest.mark.parametrize("method", FULL, ids=repr)
def test_the_units_of_f_do_not_matter(method):
    """Exact.  With 1024 f in place of f, γ is 1024 times smaller, and the iterates are the same."""
    method = auto(replace(method, values="f8") if isinstance(method, GD) else method)
    problem = squares(4, 12, seed=3)
    larger = replace(problem, A=1024 * problem.A, b=1024 * problem.b)
    first, second = (start(method, p, 4, seed=2) for p in (problem, larger))
    for k in range(40):
        first.step(k)
        second.step(k)
        assert np.array_equal(first.x, second.x)
        assert first.server.gamma == 1024 * second.server.gamma > 0


@pytest.mark.parametrize("method", AUTO, ids=repr)
def test_every_such_method_runs_and_lowers_f(method):
    run = mpicomp.run(auto(method), Entropy(), workers=4, rounds=50, seed=1)
    assert run.method.step == "auto"
    assert run.rows[-1].f < run.rows[0].f


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_takes_it_or_says_that_it_does_not(name):
    (method,) = [case.method for case in METHOD_CASES if case.name == name]
    if method.may_adapt:
        assert isinstance(method, EstimatingMethod)
        assert parse_method(to_text(auto(method))) == auto(method)
    else:
        with pytest.raises(ConfigError, match=f"takes no {method.step_name}='auto'; allowed: a positive"):
            auto(method)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_refused_step_names_it_where_it_is_allowed(name):
    (method,) = [case.method for case in METHOD_CASES if case.name == name]
    for wrong in ("AUTO", "theroy", "theory*auto", -1.0, None):
        with pytest.raises(ConfigError, match=f"{method.step_name}={wrong!r}".replace("*", r"\*")) as error:
            method.with_step(wrong)
        assert ("'auto', or 'auto_noisy'" in str(error.value)) == method.may_adapt


@dataclass(frozen=True)
class Shrinking(EF21):
    def replica_step(self, r, broadcast, key):
        super().replica_step(r, broadcast, key)
        r.x *= 0.5


@dataclass(frozen=True)
class EveryOther(EF21):
    def ends_step(self, r, key):
        return key.round % 2 == 1


@dataclass(frozen=True)
class Elsewhere(EF21):
    def worker_step(self, w, r, f, key):
        return super().worker_step(w, replace(r, x=r.x.copy()), f, key)


@pytest.mark.parametrize("kind", [Shrinking, EveryOther])
def test_a_step_of_ones_own_is_refused(kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__} takes no gamma='auto'"):
        kind(TopK(2), gamma="auto")


def test_a_gradient_elsewhere_is_named():
    with pytest.raises(ConfigError, match="needs the gradient at the point that the method's point"):
        mpicomp.run(Elsewhere(TopK(2), gamma="auto"), Entropy(), workers=4, rounds=3)


def test_an_array_is_no_step_size():
    with pytest.raises(ConfigError, match="allowed: a positive number, 'theory'"):
        EF21(TopK(2), gamma=np.array([1.0, 2.0]))


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e18])
def test_slopes_of_short_floats_are_summed_in_double_precision(scale):
    """f = scale |x|²/2 in float32: |g|² is beyond its range, the slope is not."""
    x0 = np.ones(4, np.float32)
    with Descent(GD(gamma="auto"), x0) as descent:
        for _ in range(60):
            descent.step(np.float32(scale) * descent.point)
        assert np.abs(descent.x).max() < 1e-3


def test_another_text_is_no_step_size():
    with pytest.raises(ConfigError, match="gamma='automatic'; allowed: a positive number, 'theory'"):
        EF21(TopK(2), gamma="automatic")


def test_the_numbers_are_counted():
    counts = [mpicomp.run(GD(gamma=gamma), Entropy(), workers=4, rounds=50).ledger for gamma in (0.1, "auto")]
    assert 4 * 50 * 2 <= counts[1].up_bytes - counts[0].up_bytes < 4 * 50 * 4  # a slope: 2 bytes below 2
    assert counts[1].down_bytes - counts[0].down_bytes == 4 * 50 * 2
    assert counts[1].paper_bits_up - counts[0].paper_bits_up == 4 * 50 * 32


@pytest.mark.parametrize("method", FULL, ids=repr)
@pytest.mark.parametrize("blocks", [1, 3])
def test_resumed_runs_are_the_same(method, blocks, tmp_path):
    words = {"workers": 4, "seed": 3} | ({"server": "sharded", "blocks": 3} if blocks == 3 else {})
    whole = mpicomp.run(auto(method), Entropy(), rounds=60, **words)
    mpicomp.run(auto(method), Entropy(), rounds=25, out=tmp_path, checkpoint_every=25, **words)
    resumed = mpicomp.run(auto(method), Entropy(), rounds=60, out=tmp_path, resume=True, **words)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    assert resumed.ledger.up_bytes == whole.ledger.up_bytes


def test_a_loop_of_ones_own_takes_the_same_steps():
    problem = Entropy()
    whole = mpicomp.run(EF21(TopK(2), gamma="auto"), problem, workers=4, rounds=50)
    with Descent(EF21(TopK(2), gamma="auto"), problem.x0(), workers=4) as descent:
        grads = gradients(problem, 4)
        for _ in range(50):
            x = descent.point
            descent.step({i: grads[i](x) for i in range(4)})
        assert np.array_equal(descent.x, whole.x)


def test_what_says_theory_beside_it_is_named_alone():
    with pytest.raises(ConfigError, match='"theory", for mu, follows'):
        Descent(EF21(TopK(2), gamma="auto", mu="theory"), np.zeros(4))


def test_an_aggregator_has_no_step_to_set():
    b = np.arange(6.0)
    found = []
    for gamma in (1.0, "auto"):
        with Aggregator(EF21(TopK(2), gamma=gamma), like=b) as agg:
            found.append([agg(b - k) for k in range(4)])
    assert np.array_equal(*found)


def test_allreduce_refuses_it():
    with pytest.raises(ConfigError, match="allreduce' sums vectors alone, and gamma='auto'"):
        mpicomp.run(GD(gamma="auto"), Entropy(), workers=4, rounds=2, server="allreduce")


def test_it_has_nothing_to_tune():
    with pytest.raises(ConfigError, match="gamma='auto' is not tuned"):
        mpicomp.tune(EF21(TopK(2), gamma="auto"), Entropy(), workers=4, rounds=5)


def test_a_message_without_its_slope_is_refused():
    method = with_auto_step(EF21(TopK(2), gamma="auto"))
    with pytest.raises(MessageError, match="message truncated"):
        messages.decode(method.Up, np.full(1, 200, np.uint8))


@pytest.mark.parametrize("method", [GD(values="f8"), EF21(TopK(3, "f8")), DIANA(Natural())], ids=repr)
def test_slopes_of_workers_that_differ_are_no_noise_near_the_minimum(method):
    """There the ∇f_i stay large, and so does each worker's slope, but not their mean."""
    problem = squares(4, 12, seed=3)
    problem = replace(problem, b=problem.b + 1e3 * np.array([[1.0], [-1.0], [2.0], [-2.0]]))
    run = mpicomp.run(auto(method), problem, workers=4, rounds=3000, target_grad_norm_sq=1e-16)
    assert run.status == "target"


def test_slopes_that_are_no_numbers():
    control = StepControl()
    control.begin(1.0)
    for slope in (np.inf, -np.inf):
        before = control.gamma
        control.update(slope)
        assert control.gamma < before
    before = replace(control)
    control.update(np.nan)  # no step was made
    assert control == before
    control.begin(0.0)
    assert control.gamma > 0


@pytest.mark.parametrize("slopes, sudden", [([0.7, 0.7], True), ([0.9, 0.5], False)], ids=["quiet", "noisy"])
def test_a_small_fall_is_sudden_where_slopes_are_quiet(slopes, sudden):
    """γ is shortened by a fall from 0.7 to 0.69, and grows after one that is as large as those before it."""
    control = StepControl()
    control.begin(1.0)
    control.update(-1.0)  # the steep fall that sets the first ceiling
    for _ in range(100):
        for slope in slopes:
            control.update(slope)
    before = replace(control)
    control.update(slopes[0])
    assert (control.ceiling, control.gamma > before.gamma) == (before.ceiling, True)
    before = replace(control)
    control.update(slopes[1] - 0.01)
    if sudden:
        assert (control.ceiling, control.gamma) == (before.gamma, 0.7 * before.gamma)
    else:
        assert (control.ceiling, control.gamma > before.gamma) == (before.ceiling, True)


def test_steps_stay_finite_where_f_has_no_minimum():
    """f = -x: every slope is 1, so γ would double for ever."""

    @dataclass(frozen=True)
    class Falling(Problem):
        def dimension(self):
            return 2

        def objective(self, i, n):
            class Line(mpicomp.Objective):
                def value(self, x):
                    return -float(x.sum())

                def grad(self, x):
                    return -np.ones(2)

            return Line()

    run = mpicomp.run(GD(gamma="auto", values="f8"), Falling(), workers=1, rounds=1500, every=1500)
    assert 1e100 < run.x[0] < 2e103


def test_a_start_at_the_minimum_stays_there():
    problem = replace(squares(2, 4, seed=1), start=np.zeros(4), b=np.zeros((2, 4)))
    run = mpicomp.run(EF21(Identity(), gamma="auto"), problem, workers=2, rounds=20)
    assert not run.x.any()


def test_permk_needs_every_worker():
    """MARINA with PermK: the mean of the slopes is of all workers, whichever coordinates they send."""
    run = mpicomp.run(MARINA(PermK(), gamma="auto"), Entropy(), workers=4, rounds=150, seed=2)
    assert run.rows[-1].grad_norm_sq < 1e-2 * run.rows[0].grad_norm_sq


def test_where_auto_finds_no_step_a_number_is_advised():
    said = "gamma='auto' has not found a step size for this problem; give a number."
    assert advice_on_step(GD(gamma="auto")) == said
    assert advice_on_step(GD(gamma=0.5)) == "The step size may be too large: gamma=0.5; try another."
