"""The averages of gradients of EF21LMO and EF21Muon: heavy ball, transported gradients, reduced variance."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import mpicomp
from mpicomp import Aggregator, Descent
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import RandK, Shrunk, TopK
from mpicomp.methods import EF21LMO, EF21Muon
from mpicomp.methods.support.gradient_averages import MOMENTA, decreasing
from tests.methods import test_ef21lmo, test_ef21muon
from tests.support.error_feedback import DIGITS, NOISY, SAMPLED, SHRINK, Jumping
from tests.support.layers import LAYERED, every_momentum, every_norm, steps_of
from tests.support.trajectories import (
    EIGHTH,
    WHOLE,
    Entropy,
    assert_equal,
    gradients,
    integers,
    squares,
    start,
    trajectory,
)

OTHERS = ("igt", "mvr")
every_other = pytest.mark.parametrize("momentum", OTHERS)


def both(C=SHRINK[0], D=WHOLE, **how):
    """EF21LMO and EF21Muon."""
    how = {"gamma": 0.05, "norm": "l2"} | how
    return [EF21LMO(C, **how), EF21Muon(C, D, **how)]


# --- the transcription; TopK on d4-n9 of the other tests would have ties, and rounding would choose ---


@pytest.mark.parametrize(
    ("problem", "n", "batch"), [SAMPLED[i] for i in (0, 2, 3)], ids=["d12", "noisy", "digits"]
)
@pytest.mark.parametrize("eta", [1.0, 0.3, "decreasing"])
@every_other
def test_both_methods_are_their_transcriptions(problem, n, batch, eta, momentum):
    """docs/methods.md, EF21LMO, and EF21Muon."""
    test_ef21lmo.check(problem, n, batch, SHRINK[0], "l2", eta, momentum=momentum)
    C, D = test_ef21muon.BOTH[0]
    test_ef21muon.check(problem, n, batch, C, D, "l2", eta, momentum=momentum)


@every_norm
@pytest.mark.parametrize("begin", ["gradient", "compressed"])
@every_other
def test_it_is_so_in_every_norm(norm, begin, momentum):
    test_ef21lmo.check(LAYERED, 4, None, SHRINK[0], norm, "decreasing", begin=begin, momentum=momentum)
    for C, D in test_ef21muon.BOTH:
        test_ef21muon.check(LAYERED, 4, None, C, D, norm, "decreasing", begin=begin, momentum=momentum)


# --- the weights ---


@every_momentum
def test_weights_and_steps_decrease_by_their_powers(momentum):
    """From 1 and 1, and to the last bits: those of heavy ball by roots, the others in decimal arithmetic."""
    t, eta = steps_of("decreasing", 1.0, momentum)
    found = [decreasing(momentum, k) for k in (*range(100), 10**6, 10**12)]
    assert found[0] == (1.0, 1.0)
    for k, (rate, step) in zip((*range(100), 10**6, 10**12), found, strict=True):
        assert rate == pytest.approx(eta(k), rel=4e-16) and step == pytest.approx(t(k), rel=8e-16)
    assert all(later < earlier for pair in pairwise(found) for earlier, later in zip(*pair, strict=True))


def test_a_power_that_is_a_number_is_that_number():
    """Exact: 2/(k+2) = 2^-21 has the powers 2^-14 and 2^-12, 2^-15."""
    k = 2**22 - 2
    assert decreasing("mvr", k) == (2.0**-14, 2.0**-14)
    assert decreasing("igt", k) == (2.0**-12, 2.0**-15)


# --- special cases ---


def test_without_memory_all_are_one(subtests):
    """Exact: eta = 1, on batches, with compression."""
    for problem, n, batch in (SAMPLED[2], SAMPLED[3], SAMPLED[4]):
        for i in range(2):
            first, *others = (
                both(eta=1.0, momentum=momentum, batch=batch, D=Shrunk(RandK(2)))[i] for momentum in MOMENTA
            )
            wanted = trajectory(start(first, problem, n, seed=2), 30)
            for method in others:
                with subtests.test(str(method)):
                    assert_equal(trajectory(start(method, problem, n, seed=2), 30), wanted)


@pytest.mark.parametrize("eta", [0.3, "decreasing"])
def test_with_full_gradients_variance_reduction_keeps_the_gradients(eta):
    """Exact: v_i = ∇f_i, whatever η and f, as v_i - ∇f_i(x) is 0 first of all."""
    for method in both(momentum="mvr", eta=eta, D=TopK(5)):
        loop, grads = start(method, Entropy(), 4), gradients(Entropy(), 4)
        for k in range(20):
            x = loop.x.copy()
            loop.step(k)
            for i, w in loop.workers.items():
                assert np.array_equal(w.v, grads[i](x))


def test_with_full_gradients_variance_reduction_is_ef21():
    """Exact: with the weight of the new gradient constant, it does not matter."""
    for i in range(2):
        methods = [both(C=TopK(3), **how)[i] for how in ({"momentum": "mvr", "eta": 0.2}, {"eta": 1.0})]
        reduced, plain = (trajectory(start(method, Entropy(), 4), 30) for method in methods)
        assert_equal(reduced, plain)


def test_linear_gradients_are_transported_to_x():
    """Exact, on integers: v_i = ∇f_i of quadratics.  It is not so for other f, nor without the transport."""
    problem = integers(4, 8)

    def behind(problem, momentum):
        method = EF21LMO(TopK(2), gamma=EIGHTH, norm="linf", eta=0.5, momentum=momentum)
        loop, grads, most = start(method, problem, 4), gradients(problem, 4), 0.0
        for k in range(20):
            x = loop.x.copy()
            loop.step(k)
            most = max(most, *(np.abs(w.v - grads[i](x)).max() for i, w in loop.workers.items()))
        return most

    assert behind(problem, "igt") == 0 < behind(problem, "heavy-ball")
    assert behind(Entropy(), "igt") > 1e-6


@every_other
@pytest.mark.parametrize("i", [0, 1], ids=["LMO", "Muon"])
def test_what_is_left_of_noise_is_the_average_of_the_noise(momentum, i):
    """Exact: v_i - ∇f_i(x) = (1-η) that of the round before + η noise, on quadratics with added noise."""
    problem, n, eta = Jumping(integers(4, 8)), 4, 0.5
    how = {"gamma": EIGHTH, "norm": "linf", "eta": eta, "batch": 1}
    loop = start(both(C=TopK(2), D=TopK(3), momentum=momentum, **how)[i], problem, n, seed=3)
    grads, left, noisy = gradients(problem, n), np.zeros((n, 8)), 0
    for k in range(25):
        x, key = loop.x.copy(), loop._key(k)
        loop.step(k)
        for j, w in loop.workers.items():
            noise = np.array([-1.0, 0, 0, 1])[key.of(j).private("batch").words(8) & 3]
            left[j] = noise if k == 0 else (1 - eta) * left[j] + eta * noise
            assert np.array_equal(w.v - grads[j](x), left[j])
            noisy += np.any(noise)
    assert noisy


@every_norm
@every_other
def test_blocks_step_by_the_norm_of_the_whole(norm, momentum):
    """Exact: without compression the iterates are those of one server."""
    method = EF21LMO(WHOLE, gamma=0.05, norm=norm, eta="decreasing", momentum=momentum)
    runs = [
        mpicomp.run(method, LAYERED, workers=4, rounds=9, **how)
        for how in ({}, {"server": "sharded", "blocks": 3})
    ]
    assert runs[0].iterates_sha256 == runs[1].iterates_sha256


# --- what it costs, and states ---


@pytest.mark.parametrize(("momentum", "each"), [("heavy-ball", 1), ("igt", 1), ("mvr", 2)])
def test_every_gradient_is_counted(momentum, each):
    """Round 0 asks for one; the bytes are those of heavy ball."""
    T, b = 9, 5
    for i, (batch, problem) in enumerate([(None, Entropy()), (b, DIGITS)]):
        method = both(eta=0.3, momentum=momentum, batch=batch)[i]
        loop = start(method, problem, 3)
        trajectory(loop, T)
        share = 1 if batch is None else b / loop.objectives[0].samples
        assert loop.observe().epochs == pytest.approx((1 + each * (T - 1)) * share, rel=1e-12)
        plain = start(replace(method, momentum="heavy-ball"), problem, 3)
        trajectory(plain, T)
        assert (loop.ledger.up == plain.ledger.up).all()


@pytest.mark.parametrize("server", [{}, {"server": "sharded", "blocks": 3}], ids=["shared", "sharded"])
@every_other
def test_a_run_that_is_resumed_is_the_whole_run(momentum, server, tmp_path):
    """The same bits: the point of the round before is saved too."""
    for i, method in enumerate(both(norm="linf", D=TopK(3), eta="decreasing", momentum=momentum, batch=1)):

        def run(rounds, method=method, **options):
            return mpicomp.run(method, NOISY, workers=5, rounds=rounds, every=5, seed=4, **server, **options)

        run(15, out=tmp_path / f"{i}")
        resumed, whole = run(40, out=tmp_path / f"{i}", resume=True), run(40)
        assert resumed.iterates_sha256 == whole.iterates_sha256
        assert resumed.rows[-1].epochs == whole.rows[-1].epochs


@every_other
def test_memory_is_one_vector_more(momentum):
    """And with heavy ball it is what it was."""
    for method in both(momentum=momentum):
        known = [
            set(vars(start(m, Entropy(), 2).replica))
            for m in (method, replace(method, momentum="heavy-ball"))
        ]
        assert known[0] - known[1] == {"previous"}


# --- loops of one's own ---


def test_a_descent_asks_at_the_transported_point():
    """Arrays will do, at ``point``; the iterates are those of the run."""
    problem = squares(1, 6, seed=4)
    (grad,), x0 = gradients(problem, 1), problem.x0()
    for method in both(eta=0.25, momentum="igt", D=TopK(3)):
        run = mpicomp.run(method, problem, workers=1, rounds=12)
        descent, before = Descent(method, x0), x0
        for _ in range(12):
            x, point = descent.x, descent.point
            assert np.array_equal(point, x + 3 * (x - before))
            descent.step(grad(point))
            before = x
        assert descent.x.tobytes() == run.x.tobytes()
        assert not np.array_equal(point, x)


def test_an_aggregator_refuses_what_it_cannot_bring():
    """Its caller has gradients at x; a function of x has them at two points."""
    like = np.zeros(6)
    for method in (*both(momentum="igt"), "ef21lmo(C=topk(k=2), momentum=igt)"):
        with pytest.raises(
            ConfigError, match=r"with momentum='igt' chooses the points.*mpicomp\.Descent\(method, x0\)"
        ):
            Aggregator(method, like)
    for method in both(eta=0.3, momentum="mvr"):
        loops = Aggregator(method, like), Descent(method, like)
        for step in (loops[0], loops[1].step):
            with pytest.raises(ConfigError, match="several points: give a function of x"):
                step(np.ones(6))


def test_an_aggregator_takes_functions_for_variance_reduction():
    """Steps are the caller's: here half as long in every second round, from x to x^+ whatever it is."""
    problem = squares(1, 6, seed=4)
    (grad,), x = gradients(problem, 1), problem.x0()
    agg = Aggregator(EF21LMO(TopK(2), eta=0.3, momentum="mvr"), x)
    for k in range(12):
        g = agg(grad, at=x)
        assert np.array_equal(agg._play.workers[0].v, grad(x))
        x = x - (0.1 if k % 2 else 0.05) * g


# --- what is refused ---


@pytest.mark.parametrize("wrong", ["nesterov", "heavy_ball", 0.9, None, True], ids=repr)
def test_another_momentum_is_refused(wrong):
    for make in (lambda **how: EF21LMO(TopK(2), **how), lambda **how: EF21Muon(TopK(2), TopK(2), **how)):
        with pytest.raises(ConfigError, match=r"momentum.*allowed: 'heavy-ball', 'igt', 'mvr'"):
            make(momentum=wrong)


@every_other
@pytest.mark.parametrize("eta", [1.0, "decreasing"])
def test_theory_is_for_heavy_ball(momentum, eta):
    how = {"norm": "l2", "rounds": 10, "gap": 1.0, "eta": eta, "momentum": momentum}
    for method in (EF21LMO(TopK(2), **how), EF21Muon(TopK(2), TopK(2), **how)):
        said = (
            rf"\(momentum='{momentum}'\) has no theory step size: give gamma as a number, or .*'heavy-ball'"
        )
        with pytest.raises(ConfigError, match=said):
            start(method, Entropy(), 4)
