"""Compressors applied again and again, on every worker, and what their means may be.

Statistical tests have fixed seeds and rest on the central limit theorem: means of ``ROUNDS`` rounds
(times workers where they are pooled) may be six of their standard deviations off, on both sides for
an equality, on one for a bound.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

import numpy as np
import pytest

from mpicomp.keys import Key
from tests.support.conformance import CASES, Case

ROUNDS = 600
SIGMAS = 6

each = pytest.mark.parametrize("case", CASES, ids=str)
KEY = Key(seed=5, round=2, worker=0, n=3)


def of(*kinds: type) -> pytest.MarkDecorator:
    """A test for each case whose compressor is of one of these kinds."""
    return pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.c, kinds)], ids=str)


def apply(c, x, key=KEY):
    """C(x), by way of the bytes."""
    return c.decompress(c.compress(x, key), x.size, key)


def errors(c, x: np.ndarray, draws: int) -> np.ndarray:
    """C(x) - x over fresh rounds."""
    keys = [Key(9, t, 0, 1) for t in range(draws)]
    return np.array([apply(c, x, key) - x for key in keys])


def square(x) -> float:
    """|x|²."""
    return float(np.sum(np.square(x)))


class Simulation:
    """C_i(a_i) over ``ROUNDS`` rounds on all workers: means, squared errors and lengths."""

    def __init__(self, case: Case) -> None:
        a, rounds = case.vectors(), ROUNDS if case.draws != "nothing" else 3
        self.x = a
        self.lengths = np.empty((rounds, case.n))
        self.errors = np.empty((rounds, case.n))  # |C_i(a_i) - a_i|^2
        self.joint = np.empty(rounds)  # |mean C_i(a_i) - mean a_i|^2
        total, squares = np.zeros_like(a), np.zeros_like(a)
        for t in range(rounds):
            mean = np.zeros(case.d)
            for i in range(case.n):
                message = case.c.compress(a[i], case.key(t, i))
                error = case.c.decompress(message, case.d, case.key(t, i)) - a[i]
                self.lengths[t, i] = len(message)
                self.errors[t, i] = square(error)
                total[i] += error
                squares[i] += error**2
                mean += error / case.n
            self.joint[t] = square(mean)
        self.bias = total / rounds
        self.deviation = np.sqrt(np.maximum(squares / rounds - self.bias**2, 0) / rounds)  # of the bias


@cache
def simulation(case: Case) -> Simulation:
    """The simulation of a case, made once for all tests."""
    return Simulation(case)


def assert_mean(samples, expected: float, equality: bool) -> None:
    """The mean of ``samples`` is, or is at most, ``expected``."""
    excess = samples.mean() - expected
    allowed = SIGMAS * samples.std() / sqrt(samples.size) + 1e-12 * (1 + abs(expected))
    assert excess <= allowed
    assert not equality or excess >= -allowed


def mean_error(c, x, n=1, rounds=4000):
    """|C(x) - x|^2 / |x|^2 over fresh rounds."""
    return np.array([square(apply(c, x, Key(9, t, 0, n)) - x) for t in range(rounds)]) / square(x)
