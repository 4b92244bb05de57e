"""1-bit Adam: Adam on whole gradients first, then compressed momentum with the variances frozen."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import number
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.compressors import Absolute, Compressor, Contractive, Identity, Sign
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import BatchSize, Momentum, PositiveInteger, StepSize, Value
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

Eps = Annotated[float, Value(number("a number above 0", lambda v: 0 < v < inf))]


@dataclass(frozen=True)
class OneBitAdam(AveragingMethod, EstimatingMethod):
    """Adam in rounds k < T, the warm-up; then its variances v are frozen, and the momenta are compressed on
    the way up and on the way down, with error feedback on the workers and on the server::

        k < T    worker i   sends s_i whole                     (s_i a stochastic gradient at x)
                 all        m = β1 m + (1 - β1) mean s_i;   v = β2 v + (1 - β2) (mean s_i)²
        k ≥ T    worker i   p_i = β1 m + (1 - β1) s_i + δ_i;   sends C(p_i);   δ_i = p_i - C(p_i)
                 server     p = mean C(p_i) + δ;               sends C'(p);    δ = p - C'(p)
                 all        m = C'(p)
        always   all        g = m/(√v + ε);   x = x - γ g

    Squares, roots and quotients are taken entry by entry.  There is no bias correction.  g is Adam's
    direction, so an ``Aggregator``'s caller takes the step x - γ g by SGD without momentum.  The sum
    m + mean δ_i + δ is the momentum that dense messages would give for the same gradients, whatever C and C'
    are.

    Where v = 0, g = 0: a coordinate whose gradients are 0 throughout the warm-up never moves.  (After it,
    ``Sign`` sends a number for each coordinate, so m/ε would be a step of 1e8 such numbers there.)

    The memories δ_i and δ are records of the method: a checkpoint holds them, and a resumed run is the
    uninterrupted one.  The round number decides between warm-up and compressed rounds, also after a resume.
    theory: none.

    Raises ``DivergedError`` if the square of a gradient overflows in the warm-up.

    Differences from the paper: C is any contractive or absolute compressor, by default ``Sign``, with the
    mean magnitude; the paper's own scale keeps the norm, which is no contraction for every vector.

    The ``error`` in a run's rows counts the workers' δ_i, not the server's δ.

    warmup  the number T of rounds in which gradients are sent whole; 1 or above, as v would be 0 without.
            DeepSpeed's ``freeze_step`` is T + 1, as it counts a first call that takes no step
    down    the server's compressor C'
    beta1   the weight β1 of the old momentum
    beta2   the weight β2 of the old variances in the warm-up
    eps     ε, added to √v
    """

    warmup: PositiveInteger
    C: Contractive | Absolute = Sign()
    down: Contractive | Absolute = Sign()
    gamma: StepSize = "theory"  # which is refused: there is none
    beta1: Momentum = 0.9
    beta2: Momentum = 0.999
    eps: Eps = 1e-8
    batch: BatchSize = None
    sync: Identity = Identity()

    paper: ClassVar[str] = "Tang et al., 1-bit Adam (ICML 2021)"

    @dataclass
    class Replica:
        x: Array
        g: Array
        m: Array
        v: Array

    @dataclass
    class Server:
        e: Array  # δ

    @dataclass
    class Worker:
        e: Array  # δ_i

    def _warms_up(self, key: Key) -> bool:
        return key.round < self.warmup

    def uplink(self, key: Key) -> Compressor:
        return self.sync if self._warms_up(key) else self.C

    def _downlink(self, key: Key) -> Compressor:
        return self.sync if self._warms_up(key) else self.down

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        s = gradient(f, r.x, self.batch, key)
        if self._warms_up(key):
            _check_square(s)
            return Message(self.sync.compress(s, key))
        w.e += self.beta1 * r.m + (1 - self.beta1) * s  # p_i = β1 m + (1 - β1) s_i + δ_i
        message = self.C.compress(w.e, key)
        self.C.decompress_add(message, w.e, key, -1.0)  # δ_i = p_i - C(p_i)
        return Message(message)

    def residual(self, w: Worker) -> Array:
        return w.e

    def answer(self, s: Server, r: Replica, m: Array, key: Key) -> Bytes:
        if self._warms_up(key):
            return self.sync.compress(m, key)
        s.e += m  # p = mean C(p_i) + δ
        answer = self.down.compress(s.e, key)
        self.down.decompress_add(answer, s.e, key, -1.0)  # δ = p - C'(p)
        return answer

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        r.g[:] = 0
        self._downlink(key).decompress_add(broadcast.m, r.g, key)
        if self._warms_up(key):
            r.m = self.beta1 * r.m + (1 - self.beta1) * r.g
            r.v = self.beta2 * r.v + (1 - self.beta2) * (r.g * r.g)
        else:
            r.m[:] = r.g  # m = C'(p)
        r.g[:] = np.where(r.v > 0, r.m / (np.sqrt(r.v) + self.eps), 0.0)  # g = m/(√v + ε)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self._downlink(key).paper_bits(broadcast.m, d, key)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        raise ConfigError("OneBitAdam has no theory step size; give gamma as a number.")


def _check_square(s: Array) -> None:
    """Raise ``DivergedError`` if a square of ``s``, shape (d,), overflows: v would be infinite, and g 0."""
    largest = np.max(np.abs(s))
    if not np.isfinite(2 * largest * largest):  # twice, as a mean of rounded gradients may be a little larger
        raise DivergedError(f"a gradient of magnitude {largest:.3g} has a square that {s.dtype} cannot hold.")
