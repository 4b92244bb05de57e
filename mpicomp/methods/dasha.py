"""DASHA: MARINA's rate without rounds of dense messages after the first."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from mpicomp.compressors import Compressor, Lossless, Unbiased
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import RateOrDefault, StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.rates import require_rate
from mpicomp.methods.support.starts import Start, uplink_from
from mpicomp.problems.base import Constants, Objective


@dataclass(frozen=True)
class DASHA(AveragingMethod, EstimatingMethod):
    """Algorithm 1 of the paper, with full gradients::

        worker i   m_i = C_i(∇f_i(x^{k+1}) - ∇f_i(x^k) - a (g_i - ∇f_i(x^k)));   g_i += m_i
        all        g += mean m_i;   x^{k+2} = x^{k+1} - γ g

    g = mean g_i in every round.  a defaults to 1/(2ω + 1).
    start  "gradient": g_i^0 = ∇f_i(x^0), sent whole, as in the theorem.
           "compressed": g_i^0 = C_i(∇f_i(x^0)).
           "zero": g_i^0 = 0, as in the authors' program.  The step from x^0 would then be 0; it is left out,
           and round 0 sends C_i(a ∇f_i(x^0)).
    The mean of g^k - ∇f(x^k) fades like (1 - a)^k.  At k = 0 its mean square is 0 for "gradient",
    A mean |∇f_i(x^0)|² for "compressed" and |∇f(x^0)|² for "zero".  A, of the AB-inequality, is ω/n for
    independent compressors.
    theory, for a = 1/(2ω + 1) and the start from the gradient: gamma = 1/(L + L̃ √(16 A (2ω + 1))).

    Differences from the paper: the mean is broadcast and every rank takes the step.

    a  the rate at which the error of g_i fades
    """

    Q: Unbiased
    gamma: StepSize = "theory"
    a: RateOrDefault = None
    down: Lossless = Lossless()
    start: Start = "gradient"

    recalled: ClassVar[str] = "the constant 16 of gamma"
    paper: ClassVar[str] = "Tyurin, Richtárik, DASHA (ICLR 2023), Algorithm 1"

    @dataclass
    class Replica:
        x: Array
        g: Array

    @dataclass
    class Worker:
        g: Array
        h: Array  # ∇f_i at the previous iterate

    def uplink(self, key: Key) -> Compressor:
        return uplink_from(self.start, self.Q, key)

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        h = f.grad(r.x)  # ∇f_i(x^{k+1})
        if key.round == 0 and self.start == "zero":
            w.h = h  # as if x^1 = x^0
        C = self.uplink(key)
        m = C.compress(h - w.h - self.a * (w.g - w.h), key)  # m_i
        w.h = h
        C.decompress_add(m, w.g, key)  # g_i += m_i
        return Message(m)

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        self.down.decompress_add(broadcast.m, r.g, key)  # g += mean m_i

    def defaults(self, d: int, n: int) -> dict[str, float]:
        return {"a": 1 / (2 * self.Q.omega(d, n) + 1)}

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_rate(self, "a", 1 / (2 * self.Q.omega(d, n) + 1), "1/(2ω + 1)", exact=True)
        a, _ = self.Q.ab(d, n)
        return {"gamma": 1 / (c.L + c.L_tilde * sqrt(16 * a * (2 * self.Q.omega(d, n) + 1)))}
