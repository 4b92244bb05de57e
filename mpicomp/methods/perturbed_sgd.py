"""Perturbed SGD: error feedback with added noise, which leads away from saddle points."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import number
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Contractive, Identity, Lossless
from mpicomp.keys import Key, Stream, cached_draw
from mpicomp.methods.base import Message, Method, Nothing
from mpicomp.methods.parameters import BatchSize, PositiveIntegerOrNone, StepSize, Value
from mpicomp.methods.support.averaging import Each
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

_check_noise = number("the size of the noise, a number from 0 up", lambda v: 0 <= v < inf)
_check_distance = number("a distance above 0, or None for no such reset", lambda v: 0 < v < inf)


@dataclass(frozen=True)
class PerturbedSGD(Method):
    """Error feedback with noise ξ ~ N(0, r²/d I), and resets of the errors::

        worker i   u_i = e_i + s_i + ξ;   e_i = u_i - C(u_i)          (s_i a stochastic gradient at x)
        all        x = x - η mean C(u_i)
        reset, once t - t' >= I_reset or ‖x - x_{t'}‖ >= R, t' being the step of the last reset:
        all        x = x - η mean e_i;   e_i = 0;   t' = t

    The virtual iterate x - η mean e_i takes the steps of SGD with the gradients s_i + ξ, also across resets.
    All ranks draw the same ξ, so it costs no bytes, and averaging over workers does not shrink it.  A reset
    is a round of its own, in which the errors travel dense; the rounding of ``dense`` stays in e_i.  Every
    rank decides from x whether a round is a reset.  I_reset=None and R=None switch that condition off.
    Without resets the theorem covers a C that is linear and the same on all workers, such as unscaled RandK
    with one mask, Shrunk(RandK(k, mask="shared")), whose alpha is k/d.

    The theorem gives only the orders of η, r, I_reset and R, so they have to be given.

    eta      the step size η
    r        the size of the noise: E ‖ξ‖² = r²
    I_reset  the steps after which the errors are reset; None for no such reset
    R        the distance ‖x - x_{t'}‖ at which the errors are reset; None for no such reset
    dense    how the errors travel in a reset
    """

    C: Contractive
    eta: StepSize
    r: Annotated[float, Value(_check_noise)]
    I_reset: PositiveIntegerOrNone = None
    R: Annotated[float | None, Value(_check_distance, also=(None,))] = None
    batch: BatchSize = None
    dense: Identity = Identity()
    down: Lossless = Lossless()

    recalled: ClassVar[str] = "the algorithm"
    paper: ClassVar[str] = (
        "Avdiukhin, Yaroslavtsev, Escaping saddle points with compressed SGD (NeurIPS 2021)"
    )
    starts_at_x0: ClassVar[tuple[str, ...]] = ("anchor",)

    @dataclass
    class Up:
        e: Bytes  # in a reset
        m: Bytes  # otherwise

    @dataclass
    class Replica:
        x: Array
        anchor: Array  # x_{t'}
        age: int = 0  # t - t'

    @dataclass
    class Worker:
        e: Array

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Up:
        nothing = np.empty(0, np.uint8)
        if self._resets(r):
            e = self.dense.compress(w.e, key)  # e_i
            self.dense.decompress_add(e, w.e, key, -1.0)  # e_i = 0
            return self.Up(e, nothing)
        w.e += gradient(f, r.x, self.batch, key)  # e_i + s_i
        xi = kernels.to_device(_direction(key.shared("perturbed_sgd"), w.e.size))
        kernels.add_scaled(w.e, xi, self.r)  # u_i = e_i + s_i + ξ
        m = self.C.compress(w.e, key)  # C(u_i)
        self.C.decompress_add(m, w.e, key, -1.0)  # e_i = u_i - C(u_i)
        return self.Up(nothing, m)

    def server_step(self, s: Nothing, r: Replica, key: Key) -> Each:
        mean = np.zeros_like(r.x)

        def add(k: Key, up: PerturbedSGD.Up) -> None:
            if len(up.e):  # in a reset
                self.dense.decompress_add(up.e, mean, k, 1 / k.n)
            else:
                self.C.decompress_add(up.m, mean, k, 1 / k.n)

        return Each(add, lambda: Message(self.down.compress(mean, key)))

    def replica_step(self, r: Replica, broadcast: Message, key: Key) -> None:
        resets = self._resets(r)
        self.down.decompress_add(broadcast.m, r.x, key, -self.eta)  # x = x - η mean C(u_i), or e_i in a reset
        r.age += 1
        if resets:
            r.anchor, r.age = r.x.copy(), 0  # t' = t

    def ends_step(self, r: Replica, key: Key) -> bool:
        return not self._resets(r)

    def _resets(self, r: Replica) -> bool:
        """Whether the round that starts from ``r`` is a reset."""
        if self.I_reset is not None and r.age >= self.I_reset:
            return True
        return self.R is not None and bool(np.sum((r.x - r.anchor) ** 2) >= self.R**2)

    def residual(self, w: Worker) -> Array:
        return w.e

    def paper_bits(self, up: Up, d: int, key: Key) -> int:
        return self.dense.paper_bits(up.e, d, key) if len(up.e) else self.C.paper_bits(up.m, d, key)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        return self.down.paper_bits(broadcast.m, d, key)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        raise ConfigError("PerturbedSGD's theorem gives no constant for its step size; give eta as a number.")


@cached_draw(2)
def _direction(stream: Stream, d: int) -> Array:
    """A draw of N(0, I/d), shape (d,); E |ξ|² = 1.  Cached because every worker of a rank asks for it."""
    xi = stream.normals(d) / sqrt(d)
    xi.setflags(write=False)
    return xi
