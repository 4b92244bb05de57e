"""1-bit Adam: Adam, then compressed momenta with frozen variances; round k is the paper's step k."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.compressors import HardThreshold, RandK, Shrunk, Sign, TopK
from mpicomp.methods import OneBitAdam
from mpicomp.problems import Quadratics
from tests.reference.onebitadam import onebitadam
from tests.support.bidirectional import in_rounds
from tests.support.trajectories import (
    PLACES,
    ROUNDS,
    WHOLE,
    Entropy,
    Square,
    assert_close,
    codec,
    integers,
    mean_gradient,
    objective_value,
    rounding,
    server_codec,
    start,
    trajectory,
)

WARMUP = 9
SQUEEZED = [
    (Sign(values="f8"), Sign(values="f8")),
    (TopK(2, values="f8"), TopK(3, values="f8")),
    (HardThreshold(0.01, values="f8"), Shrunk(RandK(2, values="f8"))),
]
TRANSCRIBED = [(*place, C, D) for place in PLACES for C, D in SQUEEZED] + [(*PLACES[0], Sign(), Sign())]


# --- the transcription ---


@pytest.mark.parametrize(("problem", "n", "C", "D"), TRANSCRIBED, ids=repr)
def test_onebitadam_is_its_transcription(problem, n, C, D):
    """x in all rounds, and m and v at the end.  docs/methods.md, OneBitAdam."""
    method = OneBitAdam(WARMUP, C, D, gamma=0.02, beta2=0.9, sync=WHOLE)
    loop = start(method, problem, n, seed=34)
    wanted, moments = onebitadam(
        in_rounds(problem, n),
        n,
        problem.x0(),
        0.02,
        WARMUP,
        codec(C, 34, n),
        server_codec(D, 34, n),
        ROUNDS,
        beta2=0.9,
    )
    tolerance = max(rounding(C), rounding(D))
    assert_close(trajectory(loop, ROUNDS), wanted, tolerance)
    m, v = moments[-1]
    assert np.abs(loop.replica.m - m).max() <= 100 * tolerance * max(1, np.abs(m).max())
    assert np.abs(loop.replica.v - v).max() <= 1e-12 * v.max()


# --- special cases ---


def adam(problem, n, x, rounds, frozen=10**9):
    """Adam without bias correction on the mean gradient; v stays from round ``frozen`` on."""
    m = v = np.zeros_like(x)
    iterates = [x]
    for k in range(rounds):
        g = mean_gradient(problem, n, x)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2 if k < frozen else v
        x = x - 0.02 * m / (np.sqrt(v) + 1e-8)
        iterates.append(x)
    return iterates


def test_the_warm_up_is_adam():
    problem, n = PLACES[0]
    loop = start(OneBitAdam(ROUNDS, gamma=0.02, sync=WHOLE), problem, n)
    assert_close(trajectory(loop, ROUNDS), adam(problem, n, problem.x0(), ROUNDS), 1e-12)
    assert not loop.server.e.any() and not any(w.e.any() for w in loop.workers.values())


def test_without_compression_it_is_adam_with_v_frozen():
    problem, n = PLACES[0]
    loop = start(OneBitAdam(WARMUP, WHOLE, WHOLE, gamma=0.02, sync=WHOLE), problem, n)
    assert_close(trajectory(loop, ROUNDS), adam(problem, n, problem.x0(), ROUNDS, WARMUP), 1e-12)


@pytest.mark.parametrize(
    ("C", "D"),
    [
        (TopK(3, values="f8"), TopK(2, values="f8")),
        (TopK(1, values="f8"), HardThreshold(4.0, values="f8")),
        (HardThreshold(3.0, values="f8"), TopK(1, values="f8")),
    ],
    ids=repr,
)
def test_what_is_left_out_is_kept(C, D):
    """Exact: m + mean δ_i + δ afterwards = β1 m + (1 - β1) grad f(x) + mean δ_i + δ before.

    The step is too short to move x, for g is irrational; so gradients stay integers.
    """
    problem = integers(4, 8)
    loop = start(OneBitAdam(2, C, D, gamma=1e-300, beta1=0.5, sync=WHOLE), problem, 4)
    loop.step(0)
    loop.step(1)
    g = mean_gradient(problem, 4, problem.x0())
    left = np.zeros(8)
    for k in range(2, 12):
        wanted = 0.5 * loop.replica.m + 0.5 * g + left
        loop.step(k)
        left = np.mean([w.e for w in loop.workers.values()], axis=0) + loop.server.e
        assert np.array_equal(loop.replica.m + left, wanted)
        assert left.any()


def test_v_is_frozen_after_the_warm_up():
    loop = start(OneBitAdam(WARMUP, gamma=0.02), Entropy(), 4)
    trajectory(loop, WARMUP)
    v = loop.replica.v.copy()
    for k in range(WARMUP, 20):
        loop.step(k)
        assert np.array_equal(loop.replica.v, v) and v.all()
        assert np.ptp(np.abs(loop.replica.m)) == 0  # Sign's


@dataclass(frozen=True)
class Blind(Entropy):
    """No f_i depends on coordinate 3."""

    def objective(self, i, n):
        f = super().objective(i, n)
        f.rows[:, 3] = 0
        return f


def test_a_coordinate_without_gradients_in_the_warm_up_never_moves():
    """Sign sends a number for it too, which v = 0 would make a step of 1e8 times that."""
    problem = Blind(lam=0.0)
    loop = start(OneBitAdam(10, gamma=0.02), problem, 4)
    iterates = np.array(trajectory(loop, 60))
    assert (np.ptp(iterates, axis=0) > 0).tolist() == [j != 3 for j in range(12)]
    assert np.abs(iterates - problem.x0()).max() < 5
    assert loop.replica.m[3] != 0


@pytest.mark.parametrize("C", [Sign(), TopK(3)], ids=repr)
def test_it_descends(C):
    problem, n = Entropy(30), 4
    loop = start(OneBitAdam(30, C, C, gamma=0.02), problem, n)
    f = [objective_value(problem, n, x) for x in trajectory(loop, 225)[::75]]
    assert f[0] > 2 and max(f[1:]) < 0.5  # 0.43 is the least


# --- bytes, checkpoints ---


def test_the_bytes_are_those_of_whole_gradients_then_of_signs():
    """12 numbers of 4 bytes; then one of 4 bytes, and 12 bits."""
    loop = start(OneBitAdam(2, gamma=0.01), Entropy(), 4)
    counted = [[0, 0, 0, 0]]
    for k in range(4):
        loop.step(k)
        ledger = loop.ledger
        counted.append([ledger.up_bytes, ledger.down_bytes, ledger.paper_bits_up, ledger.paper_bits_down])
    whole, signs = [4 * 48, 4 * 48, 4 * 384, 4 * 384], [4 * 6, 4 * 6, 4 * 44, 4 * 44]
    assert np.diff(counted, axis=0).tolist() == [whole, whole, signs, signs]


@pytest.mark.parametrize("rounds", [4, 8, 13])
def test_a_run_resumes_before_at_and_after_the_switch(rounds, tmp_path):
    """The memories of workers and server are in the checkpoint."""
    method, problem = OneBitAdam(8, gamma=0.01), Entropy()
    whole = mpicomp.run(method, problem, workers=4, rounds=20)
    mpicomp.run(method, problem, workers=4, rounds=rounds, out=tmp_path / "run")
    resumed = mpicomp.run(method, problem, workers=4, rounds=20, out=tmp_path / "run", resume=True)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    assert mpicomp.run(replace(method, warmup=7), problem, workers=4, rounds=20).iterates_sha256 != (
        whole.iterates_sha256
    )


def test_blocks_have_the_same_adam():
    """Each block of x has a server with its own memory; the warm-up is that of the whole vector."""
    problem = Entropy(30)
    method = OneBitAdam(6, TopK(3), TopK(2), gamma=0.01)
    hashes = [
        mpicomp.run(
            method, problem, workers=4, rounds=rounds, server="sharded", blocks=blocks
        ).iterates_sha256
        for rounds in (6, 12)
        for blocks in (1, 3)
    ]
    assert hashes[0] == hashes[1] and hashes[2] != hashes[3]


# --- what is refused ---


@dataclass(frozen=True)
class Steep(Quadratics):
    """Gradients whose squares are beyond double precision."""

    def objective(self, i, n):
        return Square(np.zeros((self.d, self.d)), np.full(self.d, 1e160))


def test_a_square_that_overflows_is_a_divergence():
    with pytest.raises(
        DivergedError, match=r"worker 0: a gradient of magnitude 1e\+160 has a square that float64"
    ):
        start(OneBitAdam(2, gamma=0.1, sync=WHOLE), Steep(d=3), 2).step(0)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"warmup": 0}, "warmup=0; allowed: a positive integer"),
        ({"warmup": 2.5}, r"warmup=2\.5; allowed: a positive integer"),
        ({"C": RandK(2)}, "OneBitAdam needs C to be contractive or absolute"),
        ({"down": RandK(2)}, "OneBitAdam needs down to be contractive or absolute"),
        ({"sync": TopK(2)}, "sync.*identity"),
        ({"beta1": 1}, "beta1=1; allowed: a number from 0"),
        ({"beta2": -0.1}, "beta2=-0.1; allowed: a number from 0"),
        ({"eps": 0}, "eps=0; allowed: a number above 0"),
        ({"eps": float("nan")}, "eps=nan; allowed"),
        ({"eps": True}, "eps=True; allowed"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_what_it_refuses(wrong, match):
    with pytest.raises(ConfigError, match=match):
        OneBitAdam(**{"warmup": 3, "gamma": 0.1, **wrong})


def test_it_has_no_theory_step():
    with pytest.raises(ConfigError, match="OneBitAdam has no theory step size; give gamma as a number"):
        start(OneBitAdam(3), Entropy(), 4)
