"""Add Gaussian noise to the stochastic gradients of any problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import ClassVar

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.checks import check_nonnegative
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Stream
from mpicomp.problems.base import Problem, Wrapped
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class Noisy(Wrapped):
    """A problem with noise added to its gradients: b samples give grad f_i(x) + sigma/sqrt(b d) N(0, I).

    The noise has mean square norm sigma^2 for one sample and sigma^2/b for b samples.  It is a function of
    the stream alone.  So at two points with one stream, as in VR-MARINA, it cancels from the gradients'
    difference: L_sigma = 0, L_sample = L_plus and L_ij = L_max.  Values and full gradients have no noise.

    problem  the problem to whose gradients noise is added
    sigma    the root of the mean square norm of one sample's noise, 0 or above
    """

    sigma: float

    paper: ClassVar[str] = "none: additive noise of known variance"

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise ConfigError(f"noisy takes a problem, such as noisy(quadratics, 1); not {self.problem!r}.")
        check_nonnegative("sigma", self.sigma, "the noise")

    def objective(self, i: int, n: int) -> NoisyObjective:
        return NoisyObjective(self.problem.objective(i, n), self.sigma)

    def constants(self, n: int) -> Constants:
        found = self.problem.constants(n)
        samples = replace(found, L_sample=found.L_plus, L_sigma=0.0, L_ij=found.L_max)
        return replace(samples, sigma=self.sigma, samples=None)


@dataclass(frozen=True)
class NoisyObjective(Objective):
    """The objective ``f`` with noise in ``batch_grad``; the samples of ``f`` itself, if any, are not used."""

    f: Objective
    sigma: float

    def value(self, x: Array) -> float:
        return self.f.value(x)

    def grad(self, x: Array) -> Array:
        return self.f.grad(x)

    def value_and_grad(self, x: Array) -> tuple[float, Array]:
        return self.f.value_and_grad(x)

    def smoothness_matrix(self) -> Array:
        return self.f.smoothness_matrix()

    @property
    def told(self) -> NoisyObjective:
        return replace(self, f=self.f.told)

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        if b < 1:
            raise ConfigError(f"a batch of b = {b} samples; allowed: 1 and more.")
        g = self.f.grad(x)
        return g + (self.sigma / sqrt(b * x.size) * kernels.to_device(stream.normals(x.size))).astype(g.dtype)
