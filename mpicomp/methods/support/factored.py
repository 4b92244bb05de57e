"""Methods that send two thin factors of each matrix in x, in two rounds a step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts, check_parts
from mpicomp.compressors.support.matrices import columns_of
from mpicomp.kernels.lowrank import add_outer, orthonormal, times
from mpicomp.keys import Key, Stream
from mpicomp.methods.parameters import PartsOfX, PositiveIntegerOrNone
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.linear import LinearMethod


class Matrix(NamedTuple):
    """A matrix M that x holds row after row, and its factors P, shape (m, r), and Q, shape (c, r).

    x       the slice of x with the matrix
    P       the slice with its P in the vector of the P of all matrices
    Q       the slice with its Q in the vector of the Q of all matrices
    rows    the rows in x
    turned  whether M is the transpose of the matrix in x; M has m rows and c columns
    """

    x: slice
    P: slice
    Q: slice
    rows: int
    r: int
    turned: bool

    @property
    def columns(self) -> int:
        """The columns in x."""
        return (self.x.stop - self.x.start) // self.rows

    def of(self, x: Array) -> Array:
        """M in x, a view of shape (m, c)."""
        M = x[self.x].reshape(self.rows, -1)
        return M.T if self.turned else M

    def P_of(self, P: Array) -> Array:
        """The P of this matrix, a view of shape (m, r); ``P`` holds the P of all matrices."""
        return P[self.P].reshape(-1, self.r)

    def Q_of(self, Q: Array) -> Array:
        """The Q of this matrix, a view of shape (c, r); ``Q`` begins with the Q of all matrices."""
        return Q[self.Q].reshape(-1, self.r)


@dataclass(frozen=True)
class Layers:
    """The division of x into matrices and ``whole``, the slices of x that are sent whole.

    Messages of even rounds hold the P of all matrices; those of odd rounds all Q, then the whole slices.
    """

    matrices: tuple[Matrix, ...]
    whole: tuple[slice, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The lengths of a message, in even and in odd rounds."""
        whole = sum(where.stop - where.start for where in self.whole)
        return self.matrices[-1].P.stop, self.matrices[-1].Q.stop + whole

    def even(self, x: Array, Q: Sequence[Array]) -> Array:
        """The message M Q of an even round, for the matrices M of x and the ``Q`` of each."""
        return joined([times(m.of(x), q) for m, q in zip(self.matrices, Q, strict=True)])

    def odd(self, x: Array, P: Array) -> Array:
        """The message M' P of an odd round, for the matrices M of x; then the whole slices of x."""
        return joined([*(times(m.of(x).T, m.P_of(P)) for m in self.matrices), *(x[w] for w in self.whole)])

    def add_products(self, x: Array, P: Array, Q: Array, scale: float) -> None:
        """M += scale P Q' for the matrices M of x; the whole slices stay."""
        for m in self.matrices:
            add_outer(m.of(x), m.P_of(P), m.Q_of(Q), scale)

    def add_difference(self, x: Array, P: Array, odd: Array, scale: float = 1.0) -> None:
        """x += scale Δ, where Δ is P Q' on each matrix, and on a whole slice its entries of ``odd``.

        ``P`` holds the P of all matrices.  ``odd`` is a decoded message of an odd round.
        """
        self.add_products(x, P, odd, scale)
        start = self.matrices[-1].Q.stop
        for where in self.whole:
            stop = start + where.stop - where.start
            kernels.add_scaled(x[where], odd[start:stop], scale)
            start = stop

    def bases(self, P: Array) -> Array:
        """The P of all matrices with their columns made orthonormal."""
        return joined([orthonormal(m.P_of(P)) for m in self.matrices])

    def redrawn(self, Q: list[Array], stream: Stream) -> list[Array]:
        """The ``Q`` of each matrix, with Gaussian columns in the place of those that are 0.

        The Gaussian columns are the same on all ranks, if ``stream`` is.
        """
        if all(q.any(axis=0).all() for q in Q):
            return Q
        drawn = kernels.to_device(stream.normals(self.matrices[-1].Q.stop))
        return [np.where(q.any(axis=0), q, m.Q_of(drawn)) for m, q in zip(self.matrices, Q, strict=True)]


class FactoredMethod(LinearMethod, EstimatingMethod):
    """A step takes two rounds: workers send M_i Q in the even one, M_i' P and the other parts in the odd one.

    A part of x with two axes or more is a matrix, its first axis by all others, if that saves values:
    r (rows + columns) < size.  With ``rows``, x is a single matrix of that many rows.

    Subclasses are dataclasses with the fields ``r``, ``rows``, and ``parts``: those of x if ``rows`` is None.
    """

    r: Any
    rows: PositiveIntegerOrNone
    parts: PartsOfX
    worker_separable: ClassVar[bool] = False
    turns: ClassVar[bool] = False  # whether a matrix with more columns than rows is transposed

    @abstractmethod
    def rank(self, rows: int, columns: int) -> int:
        """The number of columns of P and of Q for a matrix of that shape, ``r`` resolved."""

    def bound(self, parts: Parts) -> Self:
        method = super().bound(parts)
        if self.rows is not None:
            return method
        method = replace(method, parts=parts)  # type: ignore[call-arg]  # subclasses have this field
        if not method._layers_of_parts.matrices:
            raise ConfigError(
                f"{type(self).__name__}: no part is a matrix that r={self.r} shortens; the parts are {parts}."
                " Give rows, to read x as one matrix; or take a smaller r, if a part has two axes."
            )
        return method

    def layers(self, d: int) -> Layers:
        """The division of x in R^d into matrices and slices that are sent whole.

        Raises ``ConfigError`` if the method has neither ``rows`` nor parts of d entries together.
        """
        if self.rows is not None:
            return Layers(self._matrices([(slice(0, d), self.rows, columns_of(d, self.rows))]))
        check_parts(type(self).__name__, self.parts, d, "Give rows, or call")
        return self._layers_of_parts

    @cached_property
    def _layers_of_parts(self) -> Layers:
        matrices, whole = [], []
        for part, where in self.parts or ():
            rows = part.shape[0] if part.is_matrix else 1
            columns = part.size // rows
            if self.rank(rows, columns) * (rows + columns) < part.size:
                matrices.append((where, rows, columns))
            else:
                whole.append(where)
        return Layers(self._matrices(matrices), tuple(whole))

    def _matrices(self, found: Iterable[tuple[slice, int, int]]) -> tuple[Matrix, ...]:
        """The matrices, given as slice of x, rows and columns; their P and Q lie one after the other."""
        matrices: list[Matrix] = []
        P = Q = 0
        for where, rows, columns in found:
            r, turned = self.rank(rows, columns), self.turns and rows < columns
            m, c = (columns, rows) if turned else (rows, columns)
            next_P, next_Q = P + m * r, Q + c * r
            matrices.append(Matrix(where, slice(P, next_P), slice(Q, next_Q), rows, r, turned))
            P, Q = next_P, next_Q
        return tuple(matrices)

    def entries(self, d: int, key: Key) -> int:
        return self.layers(d).sizes[key.round % 2]

    def ends_step(self, r: Any, key: Key) -> bool:
        return key.round % 2 == 1


def joined(arrays: list[Array]) -> Array:
    """The entries of all ``arrays``, in order, each row by row."""
    return np.concatenate([A.ravel() for A in arrays]) if len(arrays) > 1 else arrays[0].ravel()
