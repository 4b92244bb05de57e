"""L-BFGS: quasi-Newton steps from the last differences of the mean gradient."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.compressors import Compressor, Identity
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import PositiveInteger, StepSize, ValueFormat
from mpicomp.methods.support.convexity import require_convex
from mpicomp.methods.support.line_search import bracket, next_trial
from mpicomp.methods.support.linear import LinearMethod
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

TRIALS = 20  # of one line search


@dataclass(frozen=True)
class LBFGS(LinearMethod):
    """Quasi-Newton steps; a round is one trial of a line search, with dense messages in both directions::

        worker i   sends ∇f_i(y) and f_i(y) - f_i(x)
        all        if t fits:  s = y - x;   z = mean ∇f_i(y) - g;   keep the pair (s, z)
                               x = y;   g = mean ∇f_i(y);   p = -H g;   t = γ
                   else:       t = the next trial
                   y = x + t p

    t fits if it satisfies the weak Wolfe conditions; ``support.line_search`` defines them and the next trial.
    So f(x) never rises, except by the rounding to ``values``.  H g is the two-loop recursion over the last
    ``memory`` pairs, from s'z/z'z of the newest one.  Round 0 only evaluates x⁰.  A pair whose s'z is 0 up to
    rounding is not kept.  All pairs are dropped if 20 trials of a search did not fit, or if by rounding p is
    no direction of descent.  Without pairs, as in round 1, p = -g and the first trial is t = γ/|g|.

    Every rank keeps the pairs, 2 d ``memory`` numbers, and only the means are broadcast.  The difference
    f_i(y) - f_i(x) is one more entry of the message, in the same format as the gradient.
    theory, for convex f: gamma = 1.  If f is strongly convex and its second derivatives are continuous,
    f - f* then falls linearly.  For other f give gamma as a number: f falls there too, without a theorem.

    gamma   the first trial of a line search, as a multiple of p
    memory  how many pairs are kept
    """

    gamma: StepSize = 1.0
    memory: PositiveInteger = 20
    values: ValueFormat = "f4"

    recalled: ClassVar[str] = "the conditions of both theorems"
    paper: ClassVar[str] = "Liu, Nocedal (Mathematical Programming 1989); line search: Lewis, Overton (2013)"
    needs_function: ClassVar[bool] = True
    needs_also: ClassVar[str] = "values f_i(x)"
    worker_separable: ClassVar[bool] = False
    starts_at_x0: ClassVar[tuple[str, ...]] = ("y",)

    @dataclass
    class Replica:
        x: Array
        y: Array
        p: Array
        g: Array  # mean ∇f_i(x)
        S: Array  # row j % memory is the s of pair j; so is Z
        Z: Array
        low: NDArray[np.float64]  # the interval of the line search
        high: NDArray[np.float64]
        slope: float = 0.0  # g'p
        t: float = 0.0
        pairs: int = 0  # since they were dropped last
        steps: int = 0
        trials: int = 0  # of this line search

    @dataclass
    class Worker:
        value: float = 0.0  # f_i(x)
        trial: float = 0.0  # f_i(y)
        steps: int = 0

    @property
    def down(self) -> Compressor:  # type: ignore[override]
        return self.in_these_blocks(Identity(self.values))

    def entries(self, d: int, key: Key) -> int:
        return d + 1

    def replica(self, x0: Array) -> Replica:
        x0 = x0.astype(np.float64, copy=False)  # as the means are, from which all else is computed
        zero, pairs = np.zeros_like(x0), np.zeros_like(x0, shape=(self.memory, x0.size))
        return self.Replica(x0.copy(), x0.copy(), zero, zero.copy(), pairs, pairs.copy(), *bracket(0.0))

    def point(self, r: Replica, key: Key) -> Array:
        return r.y

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        gradient = f.grad(r.y)
        if w.steps < r.steps:  # y of the round before has become x
            w.value, w.steps = w.trial, r.steps
        w.trial = f.value(r.y)
        if key.round == 0:
            w.value = w.trial
        sent = np.zeros_like(gradient, shape=gradient.size + 1, dtype=np.float64)
        sent[:-1], sent[-1] = gradient, w.trial - w.value
        return Message(self.uplink(key).compress(sent, key))

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        mean = self.down.decompress(broadcast.m, r.x.size + 1, key)
        gradient, change = mean[:-1], float(mean[-1])
        if key.round == 0:
            r.g = gradient
            self._begin_search(r)
        else:
            r.trials += 1
            trial = np.array([r.t, change, _dot(gradient, r.p)])
            t = next_trial(trial, r.slope, r.low, r.high)
            if t is None:
                self._keep(r, r.y - r.x, gradient - r.g)
                r.x, r.g = r.y, gradient
                r.steps += 1
                self._begin_search(r)
            elif r.trials == TRIALS:
                r.pairs = 0
                self._begin_search(r)
            else:
                r.t = t
        r.y = r.x + r.t * r.p  # y = x + t p

    def _keep(self, r: Replica, s: Array, z: Array) -> None:
        if _dot(s, z) > np.finfo(np.float64).eps * _dot(z, z):
            r.S[r.pairs % self.memory], r.Z[r.pairs % self.memory] = s, z
            r.pairs += 1

    def _begin_search(self, r: Replica) -> None:
        r.p = -self._times_inverse(r)  # p = -H g
        r.slope = _dot(r.g, r.p)
        if r.slope >= 0:  # by rounding
            r.pairs, r.p, r.slope = 0, -r.g, -_dot(r.g, r.g)
        r.low, r.high = bracket(r.slope)
        length = 1.0 if r.pairs or not r.slope else sqrt(-r.slope)
        r.t, r.trials = self.gamma / length, 0

    def _times_inverse(self, r: Replica) -> Array:
        """H g: the two-loop recursion."""
        q = r.g.copy()
        newest_first = [j % self.memory for j in range(r.pairs - 1, max(r.pairs - self.memory, 0) - 1, -1)]
        weights = []
        for j in newest_first:
            weights.append(_dot(r.S[j], q) / _dot(r.S[j], r.Z[j]))
            q -= weights[-1] * r.Z[j]
        for j in newest_first[:1]:
            q *= _dot(r.S[j], r.Z[j]) / _dot(r.Z[j], r.Z[j])
        for j, weight in zip(newest_first[::-1], weights[::-1], strict=True):
            q += (weight - _dot(r.Z[j], q) / _dot(r.S[j], r.Z[j])) * r.S[j]
        return q

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_convex(self, c, every=False)
        return {"gamma": 1.0}


def _dot(a: Array, b: Array) -> float:
    """a'b; a BLAS would round as its number of threads has it."""
    return float(np.sum(a * b))
