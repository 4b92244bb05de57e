"""Gradient descent: the uncompressed reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize, ValueFormat
from mpicomp.methods.support.dense import DenseMethod
from mpicomp.methods.support.estimating import Estimate, EstimatingMethod
from mpicomp.problems.constants import Constants


@dataclass(frozen=True)
class GD(DenseMethod, EstimatingMethod):
    """Gradient descent; the vectors are dense in both directions, in the format ``values``::

        worker i   sends ∇f_i(x^k)
        all        x^{k+1} = x^k - γ mean ∇f_i(x^k)

    theory: gamma = 1/L, for any L-smooth f.
    """

    gamma: StepSize = "theory"
    values: ValueFormat = "f4"

    paper: ClassVar[str] = "Cauchy (1847); step size as in Nesterov, Lectures on convex optimization, 1.2.3"
    may_adapt: ClassVar[bool] = True

    def estimate(self, r: Estimate, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)  # g^k = mean ∇f_i(x^k)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        return {"gamma": 1 / c.L}
