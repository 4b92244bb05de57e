"""EF21Muon: EF21LMO whose server compresses its way; round k makes h^k, as in test_ef21.py."""

from __future__ import annotations

import re
import shlex
from functools import partial
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import HardThreshold, Natural, RandK, Shrunk, TopK
from mpicomp.methods import EF21LMO, EF21Muon
from mpicomp.methods.support.lmo import steepest
from mpicomp.problems import MLP, Noisy, Quadratics
from mpicomp.text.config import parse_method, parse_problem
from tests.reference.ef21lmo import lmo
from tests.reference.ef21muon import ef21muon
from tests.support.error_feedback import SHRINK, everywhere, sampler
from tests.support.layers import (
    AVERAGES,
    LAYERED,
    PARTS,
    SHAPES,
    Layered,
    dual,
    every_eta,
    every_momentum,
    every_norm,
    steps_of,
)
from tests.support.trajectories import (
    EIGHTH,
    ROUNDS,
    WHOLE,
    Entropy,
    assert_close,
    assert_equal,
    assert_mean,
    beginning,
    codec,
    integers,
    mean_gradient,
    objective_value,
    resolved,
    rounding,
    server_codec,
    squares,
    start,
    trajectory,
)

# C' chooses no entries by size: those of signs are equal, and rounding would choose.
BOTH = [(SHRINK[0], SHRINK[3]), (SHRINK[3], Shrunk(Natural(values="f8"))), (TopK(3), Shrunk(RandK(3)))]
every_pair = pytest.mark.parametrize(("C", "D"), BOTH, ids=repr)


# --- the transcription ---


def check(problem, n, batch, C, D, norm, eta, gamma=0.05, begin="gradient", momentum="heavy-ball"):
    """The workers' models, and the server's, which is x - γ e.  C' is of steps of length 1, not γ."""
    how = {"norm": norm, "eta": eta, "momentum": momentum, "batch": batch, "start": begin}
    method = EF21Muon(C, D, gamma=gamma, **how)
    code = server_codec(D, 31, n)
    shifted, iterates = ef21muon(
        n,
        sampler(problem, n, batch, 31),
        problem.x0(),
        partial(lmo, norm, shapes=SHAPES),
        *steps_of(eta, gamma, momentum),
        codec(C, 31, n),
        lambda k, v: gamma * code(k, v / gamma),
        ROUNDS,
        beginning(begin, C, 31, n),
        AVERAGES[momentum],
    )
    loop = start(method, problem, n, seed=31)
    tolerance = 10 * max(rounding(C), rounding(D))
    assert_close(trajectory(loop, ROUNDS), shifted, tolerance)
    assert np.abs(loop.x - gamma * loop.server.e - iterates[-1]).max() <= tolerance * np.abs(iterates).max()
    assert loop.server.e.any()


@everywhere
@every_pair
@every_eta
def test_ef21muon_is_its_transcription(problem, n, batch, C, D, eta):
    """docs/methods.md, EF21Muon."""
    check(problem, n, batch, C, D, "l2", eta)


@every_norm
@pytest.mark.parametrize("begin", ["gradient", "compressed"])
@every_pair
@every_eta
def test_it_is_so_in_every_norm(norm, begin, C, D, eta):
    check(LAYERED, 4, None, C, D, norm, eta, begin=begin)


@pytest.mark.parametrize("D", [TopK(3, values="f8"), Shrunk(RandK(4, values="f8"))], ids=repr)
def test_signs_are_its_transcription_exactly(D):
    """Exact: steps of 1/8 on integers; C'(v/γ) γ = C'(v), as γ is a power of two."""
    problem, n = integers(4, 8), 4
    loop = start(EF21Muon(TopK(2, values="f8"), D, gamma=EIGHTH, norm="linf"), problem, n)
    code = codec(TopK(2, values="f8"), 0, n)
    given = n, sampler(problem, n, None, 0), problem.x0(), lambda h: -np.sign(h), *steps_of(1.0, EIGHTH)
    begin = beginning("gradient", None, 0, n)
    shifted, iterates = ef21muon(*given, code, server_codec(D, 0, n), ROUNDS, begin, AVERAGES["heavy-ball"])
    assert_equal(trajectory(loop, ROUNDS), shifted)
    assert np.array_equal(loop.x - EIGHTH * loop.server.e, iterates[-1]) and loop.server.e.any()


# --- special cases and invariants ---


@every_norm
@every_eta
@every_momentum
def test_with_a_lossless_downlink_it_is_ef21lmo(norm, eta, momentum):
    """Exact."""
    how = {"gamma": 0.05, "norm": norm, "eta": eta, "momentum": momentum}
    loop = start(EF21Muon(TopK(5), WHOLE, **how), LAYERED, 4)
    assert_equal(trajectory(loop, ROUNDS), trajectory(start(EF21LMO(TopK(5), **how), LAYERED, 4), ROUNDS))
    assert not loop.server.e.any()


@every_norm
def test_the_servers_model_takes_every_step_whole(norm):
    """x - γ e moves by -γ D(h), to rounding, and h = mean h_i."""
    gamma = 0.05
    loop = start(EF21Muon(TopK(5), TopK(6), gamma=gamma, norm=norm), LAYERED, 4)
    z = loop.x.copy()
    for k in range(ROUNDS):
        loop.step(k)
        z -= gamma * steepest(norm, loop.server.h, PARTS)
        assert np.abs(loop.x - gamma * loop.server.e - z).max() < 1e-13
        assert_mean(loop.server.h, loop, "h")


@every_norm
def test_workers_stay_near_the_servers_model(norm):
    """1 and 2 of the proof, where C' draws nothing: |z - x| <= Q' ρ γ, |x⁺ - x| <= (1 + 2Q') ρ γ."""
    rho, gamma = sqrt({"l2": 1, "linf": PARTS.size, "spectral": 12}[norm]), 0.05
    for D in (TopK(4, values="f8"), TopK(20, values="f8")):
        loop = start(EF21Muon(TopK(5), D, gamma=gamma, norm=norm), LAYERED, 4)
        root = sqrt(1 - D.alpha(PARTS.size, 4))
        Q, x, far = root / (1 - root), loop.x.copy(), 0.0
        for k in range(100):
            loop.step(k)
            behind, moved = gamma * np.linalg.norm(loop.server.e), np.linalg.norm(loop.x - x)
            assert behind <= Q * rho * gamma and moved <= (1 + 2 * Q) * rho * gamma
            x, far = loop.x.copy(), max(far, behind)
        assert far > 0.5 * gamma


def test_blocks_for_signs_alone():
    """Exact: without compression iterates are those of one server."""
    method = EF21Muon(WHOLE, WHOLE, gamma=0.05, norm="linf")
    runs = [
        mpicomp.run(method, LAYERED, workers=4, rounds=9, **how)
        for how in ({}, {"server": "sharded", "blocks": 3})
    ]
    assert runs[0].iterates_sha256 == runs[1].iterates_sha256
    for norm in ("l2", "spectral"):
        with pytest.raises(ConfigError, match=rf"norm='{norm}' takes its step from whole.*norm='linf'"):
            mpicomp.run(
                EF21Muon(WHOLE, WHOLE, gamma=0.05, norm=norm), LAYERED, workers=4, rounds=1, server="sharded"
            )
    for norm, server in (("linf", "sharded"), ("l2", "shared"), ("spectral", "shared")):
        method = EF21Muon(WHOLE, WHOLE, gamma=0.05, norm=norm)
        said = rf"server='allreduce' sums vectors that are sent whole.*Take server='{server}' for EF21Muon\.$"
        with pytest.raises(ConfigError, match=said):
            mpicomp.run(method, LAYERED, workers=4, rounds=1, server="allreduce")


# --- the bound ---


def bound(method, c, F, T, sigma, n, behind=1):
    """The right side of the docstring's bound, for PARTS, from the gradient; ``behind`` = 2 for z."""
    roots = [sqrt(1 - C.alpha(PARTS.size, n)) for C in (method.C, method.down)]
    Q, Q_down = (root / (1 - root) for root in roots)
    eta, rho_sq = method.eta, {"l2": 1, "linf": PARTS.size, "spectral": 3 + 3 + 1 + 2 + 3}[method.norm]
    M = c.L * (1 - eta) / eta + Q * np.mean(c.L_i)
    N = sigma / sqrt(n) * (sqrt(eta) + 1 / (eta * T)) + sqrt(2) * Q * eta * sigma
    steps = c.L * (1 / 2 + behind * Q_down) + 2 * (1 + 2 * Q_down) * M
    return F / (method.gamma * T) + method.gamma * rho_sq * steps + 2 * sqrt(rho_sq) * N


@every_norm
@pytest.mark.parametrize("eta", [1.0, 0.2])
@pytest.mark.parametrize("sigma", [0.0, 2.0])
@pytest.mark.parametrize("D", [TopK(12), Shrunk(RandK(0.5))], ids=repr)
def test_the_bound_of_its_proof_holds_and_theory_minimises_it(norm, eta, sigma, D):
    """At x and at z, for theory's γ and for others, below and above."""
    n, T = 3, 100
    plain = squares(n, PARTS.size, seed=6)
    problem = Layered(Noisy(plain, sigma=sigma) if sigma else plain)
    c, F = plain.constants(n), objective_value(plain, n, plain.x0()) - plain.constants(n).f_star
    method = EF21Muon(TopK(12), D, norm=norm, eta=eta, rounds=T, gap=F, batch=1 if sigma else None)
    best = start(method, problem, n).method
    least = bound(best, c, F, T, sigma, n)
    for factor in (0.1, 0.9, 1.0, 1.1, 10.0):
        tried = best.with_step(best.gamma * factor)
        right = bound(tried, c, F, T, sigma, n)
        assert right >= least
        loop, at = start(tried, problem, n, seed=7), ([], [])
        for k in range(T):
            for found, x in zip(at, (loop.x, loop.x - tried.gamma * loop.server.e), strict=True):
                found.append(dual(norm, mean_gradient(plain, n, x)))
            loop.step(k)
        assert np.mean(at[0]) <= right and np.mean(at[1]) <= bound(tried, c, F, T, sigma, n, behind=2)


def test_theory_by_hand():
    """docs/methods.md, EF21Muon: L = 3 and mean L_i = 3; of 12 coordinates TopK(3) has α = 1/4."""
    given = {"rounds": 100, "gap": 2.0}
    Q = sqrt(3 / 4) / (1 - sqrt(3 / 4))
    for C, q in ((TopK(3), Q), (WHOLE, 0)):
        for D, behind in ((Shrunk(RandK(3)), Q), (WHOLE, 0)):
            for eta, late in ((1.0, 0), (0.25, 3 * 3)):
                steps = 3 * (1 / 2 + behind) + 2 * (1 + 2 * behind) * (late + 3 * q)
                for norm, rho_sq in (("l2", 1), ("linf", 12)):
                    got = resolved(EF21Muon(C, D, norm=norm, eta=eta, **given), 12, 4).gamma
                    assert got == pytest.approx(sqrt(2 / (100 * rho_sq * steps)))
    assert resolved(EF21Muon(TopK(3), WHOLE, norm="l2", **given), 12, 4).gamma == pytest.approx(
        resolved(EF21LMO(TopK(3), **given), 12, 4).gamma
    )


# --- a network, and what is refused ---


def test_it_trains_a_network_by_matrices_and_sends_less_down():
    """A tenth of the coordinates in both directions, with batches; nothing is known of the problem."""
    how = {"gamma": 0.1, "eta": "decreasing", "batch": 32}
    both, one = (
        mpicomp.run(method, MLP("digits", hidden=16), workers=4, rounds=120, every=120, seed=1)
        for method in (EF21Muon(TopK(0.1), TopK(0.1), **how), EF21LMO(TopK(0.1), norm="spectral", **how))
    )
    assert both.rows[-1].f < 0.3 * both.rows[0].f
    assert both.ledger.down_bytes < 0.4 * one.ledger.down_bytes


def test_the_command_of_the_page_trains():
    """docs/methods.md, EF21Muon; fewer rounds will do."""
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    (command,) = re.findall(r"`mpicomp run (.*\"ef21muon.*\")`", page)
    told = shlex.split(command)
    options = dict(zip(told[::2], told[1::2], strict=True))
    method, problem = parse_method(options["--method"]), parse_problem(options["--problem"])
    run = mpicomp.run(method, problem, workers=int(options["--workers"]), rounds=60, every=60)
    assert method.polar == "newton-schulz" and run.rows[-1].f < 0.3 * run.rows[0].f


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"C": RandK(2)}, "EF21Muon needs C to be contractive"),
        ({"down": RandK(2)}, "EF21Muon needs down to be contractive"),
        ({"down": HardThreshold(0.1)}, "EF21Muon needs down to be contractive"),
        ({"norm": "l1"}, "norm='l1'; allowed: 'l2', 'linf', 'spectral'"),
        ({"eta": 1.5}, "eta=1.5; allowed: a number"),
        ({"start": "zero"}, "start='zero'"),
    ],
    ids=repr,
)
def test_other_values_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        EF21Muon(**{"C": TopK(2), "down": TopK(2), **wrong})


def test_theory_and_vectors_are_refused_as_by_ef21lmo():
    with pytest.raises(ConfigError, match=r"EF21Muon takes its theory from.*give rounds and gap; or gamma"):
        start(EF21Muon(TopK(2), TopK(2), norm="l2"), Entropy(), 4)
    with pytest.raises(ConfigError, match=r"EF21Muon\(eta='decreasing'\) has no theory step size"):
        start(EF21Muon(TopK(2), TopK(2), norm="l2", eta="decreasing"), Entropy(), 4)
    method = EF21Muon(TopK(2), TopK(2), gamma=0.1)
    with pytest.raises(ConfigError, match=r"no part has two axes.*norm='linf'"):
        start(method, Quadratics(d=12), 4)
    with pytest.raises(ConfigError, match=r"EF21Muon.* knows no parts .*Call bound\(parts\)"):
        method.replica(np.zeros(12))
