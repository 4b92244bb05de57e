"""Linear conjugate gradients, for quadratic f_i."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, hypot, ldexp
from typing import ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.formats import ROUNDING
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize, ValueFormat
from mpicomp.methods.support.convexity import require_quadratic
from mpicomp.methods.support.dense import DenseMethod
from mpicomp.methods.support.recording import norm
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective


@dataclass(frozen=True)
class CG(DenseMethod):
    """f_i has the Hessian A_i, and A is their mean.  Round 0 sends ∇f_i(x⁰): g is the mean, p = -g.  Then::

        worker i   sends A_i p = (∇f_i(x⁰ + s p) - ∇f_i(x⁰))/s
        all        α = g'g/p'Ap;   x = x + γ α p;   g⁺ = g + γ α A p
                   p = -g⁺ + (g⁺'g⁺/g'g) p;   g = g⁺

    s is a power of two, 1 or more, with which s p is about as long as x⁰, and as 1.  The vectors are dense in
    both directions, in the format ``values``.  A_i p tends to 0 with p, and so does its rounding error.  g is
    updated by A p and never computed anew: for an f that is not quadratic it is wrong.  Once |g| is no more
    than rounding may have added to it, by ``values``, by the differences of gradients and by x⁰ + s p, x
    stays: p would lead along directions in which f is flat.
    theory, for convex quadratic f: gamma = 1, the minimiser along p.  Then x^d = x* but for rounding.

    gamma  the step along p, as a multiple of the step to the minimiser along p
    """

    gamma: StepSize = "theory"
    values: ValueFormat = "f4"

    paper: ClassVar[str] = "Hestenes, Stiefel (1952)"
    starts_at_x0: ClassVar[tuple[str, ...]] = ("start",)

    @dataclass
    class Replica:
        x: Array
        start: Array  # x⁰
        p: Array
        g: Array
        first: float = 0.0  # |g| of round 0
        rounding: float = 0.0  # how much of |g| may be rounding: errors of rounds add up in squares

    @dataclass
    class Worker:
        gradient: Array  # ∇f_i(x⁰)

    def point(self, r: Replica, key: Key) -> Array:
        return r.start + self._stretch(r) * r.p

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        gradient = f.grad(self.point(r, key))
        if key.round == 0:
            w.gradient = gradient
            return Message(self.uplink(key).compress(gradient, key))
        return Message(self.uplink(key).compress((gradient - w.gradient) / self._stretch(r), key))  # A_i p

    def replica(self, x0: Array) -> Replica:
        found: CG.Replica = super().replica(x0.astype(np.float64, copy=False))  # as the means are
        return found

    def worker(self, x0: Array) -> Worker:
        found: CG.Worker = super().worker(x0.astype(np.float64, copy=False))
        return found

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        sent = self.down.decompress(broadcast.m, r.x.size, key)
        if key.round == 0:
            r.g, r.p, r.first = sent, -sent, norm(sent)
            return
        square, along = np.sum(r.g * r.g), np.sum(r.p * sent)
        if square <= r.rounding**2:  # x is the minimiser, but for rounding
            return
        if along <= 0:
            raise ConfigError(
                f"CG met a direction in which f does not curve upwards (p'Ap = {along:.3g}): it is for "
                f"convex quadratic f, or values={self.values!r} are too coarse for this one. Take LBFGS."
            )
        step = self.gamma * square / along  # γ α
        r.x = r.x + step * r.p  # x = x + γ α p
        r.g = r.g + step * sent  # g⁺ = g + γ α A p
        r.rounding = hypot(r.rounding, step * self._rounding(r, norm(sent)))
        r.p = np.sum(r.g * r.g) / square * r.p - r.g

    def _rounding(self, r: Replica, size: float) -> float:
        """About the rounding error of A p, of the norm ``size``: by ``values``, gradients, and x⁰ + s p."""
        gradients = r.first + size * norm(r.start) / norm(r.p)
        return ROUNDING[self.values] * size + 2 * ROUNDING["f8"] * gradients / self._stretch(r)

    def _stretch(self, r: Replica) -> float:
        """s: the difference of two gradients is as exact for a short p as for a long one."""
        return ldexp(1.0, max(0, frexp(max(1.0, norm(r.start)) / (norm(r.p) or 1.0))[1] - 1))

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_quadratic(self, c)
        return {"gamma": 1.0}
