"""GD, AGD, DCGD, DIANA, MARINA, EF14 and EF21 against plain transcriptions of their papers.

Correspondence of rounds.  Round k of a run turns x^k into x^{k+1} with the draws of ``Key(seed, k, i, n)``.
GD, AGD, DCGD, DIANA and EF14 are so numbered in their papers.  MARINA and EF21 form g^k in round k: round 0
is their initialisation (MARINA's dense g^0, EF21's g_i^0 = C(grad f_i(x^0))), and the message that makes
g^{k+1} in the paper's round k is our round k+1.  The transcriptions number messages by the g they make.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpicomp import compressors
from mpicomp.compressors import (
    Identity,
    Lossless,
    RandK,
    TopK,
)
from mpicomp.keys import Key
from mpicomp.methods import AGD, DCGD, DIANA, EF14, EF21, GD, MARINA
from mpicomp.problems import Problem
from tests.reference.agd import agd
from tests.reference.dcgd import dcgd
from tests.reference.diana import diana
from tests.reference.ef14 import ef14
from tests.reference.ef21 import ef21
from tests.reference.gd import gd
from tests.reference.marina import marina
from tests.support.trajectories import (
    ABSOLUTE,
    CONTRACTIVE,
    ROUNDS,
    UNBIASED,
    assert_close,
    beginning,
    codec,
    every_place,
    everywhere,
    gradients,
    rounding,
    squares,
    start,
    trajectory,
)


def travelled_mean(problem: Problem, n: int, values: str):
    """The mean gradient as GD's ranks know it: rounded on the way up and once more on the way down.

    A mean of a few float32 is often a tie for the second rounding, so it is summed as the server does.
    """
    through = codec(Identity(values), 0, n)

    def gradient(x):
        mean = np.zeros_like(x)
        for g in gradients(problem, n):
            mean += through(0, 0, g(x)) * (1 / n)
        return through(0, 0, mean)

    return gradient


@every_place
@pytest.mark.parametrize("values", ["f4", "f8"])
def test_gd_is_its_transcription(problem, n, values):
    """docs/methods.md, GD; the mean travels in ``values`` as well: in f4 it is the
    rounded mean of rounded ones."""
    gradient = travelled_mean(problem, n, values)
    loop = start(GD(values=values), problem, n)
    assert_close(trajectory(loop, 100), gd([gradient], problem.x0(), loop.method.gamma, 100), 1e-12)


@every_place
@pytest.mark.parametrize("values", ["f4", "f8"])
@pytest.mark.parametrize("mu", ["theory", 0])
def test_agd_is_its_transcription(problem, n, values, mu):
    """docs/methods.md, AGD, both momenta."""
    gradient = travelled_mean(problem, n, values)
    loop = start(AGD(mu=mu, values=values), problem, n)
    assert loop.method.mu == (problem.constants(n).mu if mu else 0)
    wanted = agd([gradient], problem.x0(), 1 / loop.method.gamma, loop.method.mu, 100)
    assert_close(trajectory(loop, 100), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_dcgd_is_its_transcription(problem, n, Q):
    """docs/methods.md, DCGD."""
    loop = start(DCGD(Q), problem, n, seed=11)
    wanted = dcgd(gradients(problem, n), problem.x0(), loop.method.gamma, codec(Q, 11, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_diana_is_its_transcription(problem, n, Q):
    """docs/methods.md, DIANA, h_i = 0 at the start."""
    loop = start(DIANA(Q, gamma="theory*2"), problem, n, seed=12)
    gamma, alpha = loop.method.gamma, loop.method.alpha
    wanted = diana(gradients(problem, n), problem.x0(), gamma, alpha, codec(Q, 12, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_marina_is_its_transcription(problem, n, Q):
    """docs/methods.md, MARINA; our round k makes g^k and round 0 is dense.  Dense
    messages are in f4 where Q's are."""
    sync = Identity("f8" if rounding(Q) == 1e-12 else "f4")
    loop = start(MARINA(Q, p=0.2, sync=sync), problem, n, seed=13)
    dense = codec(sync, 13, n)

    def coin(k):
        return Key(13, k, None, n).shared("marina/coin").coin(0.2)

    assert 0 < sum(coin(k) for k in range(1, ROUNDS)) < ROUNDS / 2  # both kinds of round occur
    wanted = marina(
        gradients(problem, n),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 13, n),
        coin,
        ROUNDS,
        lambda i, v: dense(i, 0, v),
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("C", [*CONTRACTIVE, *ABSOLUTE])
def test_ef14_is_its_transcription(problem, n, C):
    """docs/methods.md, EF14, e_i = 0 at the start; with a hard threshold, too."""
    gamma = 0.5 * compressors_alpha(C, problem.dimension(), n) / problem.constants(n).L_max
    loop = start(EF14(C, gamma=gamma), problem, n, seed=14)
    wanted = ef14(gradients(problem, n), problem.x0(), gamma, codec(C, 14, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


def compressors_alpha(C, d: int, n: int) -> float:
    return C.alpha(d, n) if isinstance(C, compressors.Contractive) else 1.0


@everywhere("C", CONTRACTIVE)
def test_ef21_is_its_transcription(problem, n, C):
    """docs/methods.md, EF21; our round k makes g^k, and g_i^0 = C(grad f_i(x^0)) comes of g_i^{-1} = 0."""
    loop = start(EF21(C, gamma="theory*2"), problem, n, seed=15)
    first = beginning("compressed", C, 15, n)
    wanted = ef21(gradients(problem, n), problem.x0(), loop.method.gamma, codec(C, 15, n), ROUNDS, first)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@pytest.mark.parametrize(
    ("method", "reference"),
    [
        (DCGD(RandK(2), gamma=0.1, down=Lossless("bf16")), dcgd),
        (EF14(TopK(2), gamma=0.1, down=Lossless("bf16")), ef14),
    ],
)
def test_a_rounded_broadcast_is_what_every_rank_goes_on_with(method, reference):
    """``down`` in bf16: x^{k+1} - x^k is a bf16 vector times the step, and not the mean itself."""
    problem = squares(4, 6, seed=8)
    loop = start(method, problem, 4, seed=3)
    step = 0.1 if reference is dcgd else 1.0
    for k in range(20):
        x = loop.replica.x.copy()
        loop.step(k)
        sent = np.float32((x - loop.replica.x) / step)
        # 8 significant bits, found again to the rounding of the subtraction.
        nearest = ((sent.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        assert np.allclose(sent, nearest, rtol=1e-6, atol=1e-12)
    exact = replace(method, down=Lossless())
    assert not np.array_equal(trajectory(start(exact, problem, 4, seed=3), 20)[-1], loop.replica.x)
