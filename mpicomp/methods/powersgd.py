"""PowerSGD: gradients of rank r, by one power iteration a step with a warm start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from mpicomp import kernels
from mpicomp.base.checks import check_positive_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors import Sparse
from mpicomp.compressors.base import Array
from mpicomp.compressors.rankr import columns_of
from mpicomp.kernels.lowrank import add_outer, orthonormal, times
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import (
    BatchSize,
    Momentum,
    PartsOfX,
    PositiveInteger,
    StepSize,
    Value,
    ValueFormat,
)
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.linear import LinearMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.base import Constants, Objective

Rows = Annotated[int | None, Value(check_positive_integer, also=(None,))]


class Matrix(NamedTuple):
    """A matrix that x holds row after row, and its factors P, shape (rows, r), and Q, shape (columns, r).

    x  the slice of x with the matrix
    P  the slice with its P in the vector of the P of all matrices
    Q  the slice with its Q in the vector of the Q of all matrices
    """

    x: slice
    P: slice
    Q: slice
    rows: int
    r: int

    def of(self, x: Array) -> Array:
        """The matrix in x, a view of shape (rows, columns)."""
        return x[self.x].reshape(self.rows, -1)

    def P_of(self, P: Array) -> Array:
        """The P of this matrix, a view of shape (rows, r); ``P`` holds the P of all matrices."""
        return P[self.P].reshape(-1, self.r)

    def Q_of(self, Q: Array) -> Array:
        """The Q of this matrix, a view of shape (columns, r); ``Q`` begins with the Q of all matrices."""
        return Q[self.Q].reshape(-1, self.r)


@dataclass(frozen=True)
class Layers:
    """The division of x into matrices and ``whole``, the slices of x that are sent whole."""

    matrices: tuple[Matrix, ...]
    whole: tuple[slice, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The lengths of a message: in even rounds of all P; in odd rounds of all Q and the whole slices."""
        whole = sum(where.stop - where.start for where in self.whole)
        return self.matrices[-1].P.stop, self.matrices[-1].Q.stop + whole

    def add_difference(self, x: Array, P: Array, odd: Array, scale: float = 1.0) -> None:
        """x += scale Δ, where Δ is P Q' on each matrix, and on a whole slice its entries of ``odd``.

        ``P`` holds the P of all matrices.  ``odd`` is a decoded message of an odd round: the Q of all
        matrices, then the whole slices.
        """
        for m in self.matrices:
            add_outer(m.of(x), m.P_of(P), m.Q_of(odd), scale)
        start = self.matrices[-1].Q.stop
        for where in self.whole:
            stop = start + where.stop - where.start
            kernels.add_scaled(x[where], odd[start:stop], scale)
            start = stop


@dataclass(frozen=True)
class PowerSGD(LinearMethod, EstimatingMethod):
    """Algorithms 1 and 2.  A part of x with two axes or more is a matrix, its first axis by all others, if
    that saves values: r (rows + columns) < size.  Each matrix has a P and a Q of r columns.  A step takes two
    rounds, in which each matrix is treated alike::

        even   worker i   M_i = e_i + s_i;   P_i = M_i Q       (s_i a stochastic gradient at x)
               all        P = the columns of mean P_i, made orthonormal
        odd    worker i   Q_i = M_i' P;   e_i = M_i - P Q_i'
               all        Q = mean Q_i;   g = Δ = P Q';   x = x - γ g
               or         with ``momentum`` λ > 0, m = λ m + Δ;   g = Δ + m

    All other parts, such as biases, are sent whole.  The odd round carries their M_i, after the Q_i, so that
    no rank has to keep a mean from one round to the next.  There Δ = mean M_i, and e_i is what rounding to
    ``values`` leaves, 0 for "f8".  With ``rows``, x is a single matrix of that many rows, of rank r at most.

    λ = 0 stands for no momentum.  Where Δ hardly changes, a step with momentum is γ (1 + 1/(1 - λ)) Δ, so it
    is near 2γ Δ for a small λ.  Without momentum the virtual iterate x - γ mean e_i takes the steps of SGD.
    P is common to all workers, so x is the iterate of one worker with the mean gradient.  (e_i = M_i - P Q'
    would have the same mean, but such an e_i grows for ever where a worker's gradients differ from the mean.)

    Q, the warm start, is made orthonormal before it is used.  This changes P only by rounding, and keeps P_i
    of the size of M_i.  A column of Q that depends linearly on the others, as all do at the start, is drawn
    anew, the same on all ranks.
    theory: none.  One iteration from a warm start has no contraction factor for every M.

    ``bound`` raises ``ConfigError`` if no part is such a matrix.  Without ``rows`` the method has to be bound
    before it is used, else it raises ``ConfigError``.  A run binds it to the parts of its problem.

    Differences from the paper: the server takes the means.

    r         the rank: the columns of P and of Q
    rows      None for the parts of the problem; a count makes x a single matrix of that many rows
    momentum  the momentum λ; 0 for none
    """

    r: PositiveInteger
    rows: Rows = None
    gamma: StepSize = "theory"  # which is refused: there is none
    batch: BatchSize = None
    values: ValueFormat = "f4"
    down: Sparse = Sparse()
    momentum: Momentum = 0.0
    parts: PartsOfX = field(default=None, repr=False)  # those of x, where ``rows`` is None; ``bound`` sets it

    recalled: ClassVar[str] = "the algorithm"
    worker_separable: ClassVar[bool] = False
    paper: ClassVar[str] = "Vogels, Karimireddy, Jaggi, PowerSGD (NeurIPS 2019), Algorithms 1 and 2"

    @dataclass
    class Replica:
        x: Array
        g: Array
        P: Array  # of all matrices, one after the other, each row by row; so is Q
        Q: Array
        m: Array  # 0 without momentum

    @dataclass
    class Worker:
        e: Array  # in double precision; M between the two rounds of a step
        halfway: int = 0  # 1 between them

    def bound(self, parts: Parts) -> Self:
        method = super().bound(parts)
        if self.rows is not None:
            return method
        method = replace(method, parts=parts)
        if not method._layers_of_parts.matrices:
            raise ConfigError(
                f"PowerSGD: no part is a matrix that r={self.r} shortens; the parts are {parts}. Give rows, "
                "to read x as one matrix; or take a smaller r, if a part has two axes."
            )
        return method

    def layers(self, d: int) -> Layers:
        """The division of x in R^d into matrices and slices that are sent whole.

        Raises ``ConfigError`` if the method has neither ``rows`` nor parts of d entries together.
        """
        if self.rows is not None:
            return Layers(_matrices([(slice(0, d), self.rows, columns_of(d, self.rows))], self.r))
        if self.parts is None or self.parts.size != d:
            known = "no parts" if self.parts is None else f"parts of {self.parts.size} entries"
            raise ConfigError(
                f"PowerSGD knows {known} of the dimension d={d}. Give rows, or call bound(parts) first, as "
                "a run does with the parts of its problem."
            )
        return self._layers_of_parts

    @cached_property
    def _layers_of_parts(self) -> Layers:
        matrices, whole = [], []
        for part, where in self.parts or ():
            rows = part.shape[0] if len(part.shape) >= 2 else 1
            columns = part.size // rows
            if self.r * (rows + columns) < part.size:
                matrices.append((where, rows, columns))
            else:
                whole.append(where)
        return Layers(_matrices(matrices, self.r), tuple(whole))

    def entries(self, d: int, key: Key) -> int:
        return self.layers(d).sizes[key.round % 2]

    def replica(self, x0: Array) -> Replica:
        last = self.layers(x0.size).matrices[-1]
        P, Q = (np.zeros_like(x0, shape=end, dtype=np.float64) for end in (last.P.stop, last.Q.stop))
        return self.Replica(x0.copy(), np.zeros_like(x0), P, Q, np.zeros_like(x0))

    def worker(self, x0: Array) -> Worker:
        return self.Worker(np.zeros_like(x0, dtype=np.float64))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        layers = self.layers(r.x.size)
        w.halfway = 1 - key.round % 2
        if w.halfway:
            w.e += gradient(f, r.x, self.batch, key)  # M_i = e_i + s_i
            P_i = [times(m.of(w.e), Q) for m, Q in _starts(layers, r.Q, key)]  # P_i = M_i Q
            return Message(self.uplink(key).compress(_joined(P_i), key))
        Q_i = [times(m.of(w.e).T, m.P_of(r.P)) for m in layers.matrices]  # Q_i = M_i' P
        Q, factors = self.uplink(key), _joined([*Q_i, *(w.e[where] for where in layers.whole)])
        message = Q.compress(factors, key)
        odd = Q.decompress(message, factors.size, key)
        layers.add_difference(w.e, r.P, odd, -1.0)  # e_i = M_i - P Q_i'
        return Message(message)

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        layers = self.layers(r.x.size)
        mean = self.down.decompress(broadcast.m, self.entries(r.x.size, key), key)
        if key.round % 2 == 0:
            r.P = _joined([orthonormal(m.P_of(mean)) for m in layers.matrices])
        else:
            r.Q = mean[: r.Q.size].copy()
            r.g[:] = 0.0
            layers.add_difference(r.g, r.P, mean)  # g = Δ = P Q'
            if self.momentum:
                r.m *= self.momentum
                r.m += r.g  # m = λ m + Δ
                r.g += r.m  # g = Δ + m

    def ends_step(self, r: Replica, key: Key) -> bool:
        return key.round % 2 == 1

    def residual(self, w: Worker) -> Array | None:
        return None if w.halfway else w.e

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        raise ConfigError("PowerSGD has no theory step size; give gamma as a number.")


def _matrices(found: Iterable[tuple[slice, int, int]], r: int) -> tuple[Matrix, ...]:
    """The matrices, given as slice of x, rows and columns; their P and Q lie one after the other."""
    matrices: list[Matrix] = []
    P = Q = 0
    for where, rows, columns in found:
        rank = min(r, rows, columns)
        next_P, next_Q = P + rows * rank, Q + columns * rank
        matrices.append(Matrix(where, slice(P, next_P), slice(Q, next_Q), rows, rank))
        P, Q = next_P, next_Q
    return tuple(matrices)


def _joined(arrays: list[Array]) -> Array:
    """The entries of all ``arrays``, in order, each row by row."""
    return np.concatenate([A.ravel() for A in arrays]) if len(arrays) > 1 else arrays[0].ravel()


def _starts(layers: Layers, Q: Array, key: Key) -> list[tuple[Matrix, Array]]:
    """Each matrix and its Q, orthonormal but for random columns in the place of linearly dependent ones.

    The random columns are the same on all ranks.
    """
    starts = [(m, orthonormal(m.Q_of(Q))) for m in layers.matrices]
    if all(q.any(axis=0).all() for _, q in starts):
        return starts
    drawn = kernels.to_device(key.shared("powersgd").normals(Q.size))
    return [(m, np.where(q.any(axis=0), q, m.Q_of(drawn))) for m, q in starts]
