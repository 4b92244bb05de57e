"""A problem whose x has parts of several shapes, the norms of steps on it, and what their tests vary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mpicomp.base.parts import Part, Parts
from mpicomp.methods.support.lmo import NORMS
from mpicomp.problems import Constants, Objective, Problem
from tests.reference.ef21lmo import heavy_ball, reduced, transported
from tests.support.trajectories import Entropy

# A tall matrix, a wide one of four axes, a square one, and others.
PARTS = Parts((Part("b", (3,)), Part("a", (7, 3)), Part("s", ()), Part("c", (2, 2, 2)), Part("d", (3, 3))))
SHAPES = [part.shape for part, _ in PARTS]
every_norm = pytest.mark.parametrize("norm", NORMS)
every_eta = pytest.mark.parametrize("eta", [1.0, 0.3, "decreasing"])
AVERAGES = {"heavy-ball": heavy_ball, "igt": transported, "mvr": reduced}
every_momentum = pytest.mark.parametrize("momentum", AVERAGES)


@dataclass(frozen=True)
class Layered(Problem):
    """``problem``, whose x has ``PARTS``."""

    problem: Problem

    def dimension(self):
        return PARTS.size

    def parts(self):
        return PARTS

    def objective(self, i, n) -> Objective:
        return self.problem.objective(i, n)

    def x0(self):
        return self.problem.x0()

    def constants(self, n) -> Constants:
        return self.problem.constants(n)


LAYERED = Layered(Entropy(PARTS.size))


def steps_of(eta, gamma, momentum="heavy-ball"):
    """t_k and η_k as functions of k."""
    if eta == "decreasing":
        p, q = {"heavy-ball": (1 / 2, 3 / 4), "igt": (4 / 7, 5 / 7), "mvr": (2 / 3, 2 / 3)}[momentum]
        return lambda k: gamma * (2 / (k + 2)) ** q, lambda k: (2 / (k + 2)) ** p
    return lambda k: gamma, lambda k: eta


def dual(norm, g):
    """‖g‖_*, by its definition."""
    if norm == "l2":
        return np.linalg.norm(g)
    matrices = [(g[where], part.shape) for part, where in PARTS] if norm == "spectral" else [(g, (g.size,))]
    return sum(
        np.abs(a).sum() if len(shape) < 2 else np.linalg.norm(a.reshape(shape[0], -1), "nuc")
        for a, shape in matrices
    )


def size(norm, s):
    """‖s‖, by its definition."""
    if norm == "l2":
        return np.linalg.norm(s)
    if norm == "linf":
        return np.abs(s).max()
    return max(
        np.abs(s[where]).max()
        if len(part.shape) < 2
        else np.linalg.norm(s[where].reshape(part.shape[0], -1), 2)
        for part, where in PARTS
    )
