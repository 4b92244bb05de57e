"""Dion: steps along orthonormalised momentum of rank r, by one power iteration a step with a warm start."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Annotated, ClassVar

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.checks import check_count
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless
from mpicomp.kernels.lowrank import orthonormal, unit_columns
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import (
    BatchSize,
    Choice,
    Momentum,
    PartsOfX,
    PositiveIntegerOrNone,
    StepSize,
    Value,
    ValueFormat,
)
from mpicomp.methods.support.factored import FactoredMethod, joined
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

Rank = Annotated[int | float, Value(check_count)]
Columns = Annotated[str, Choice(("normalised", "orthonormal"))]

EPSILON = 1e-8  # added to the norms of columns, as in the authors' program


@dataclass(frozen=True)
class Dion(FactoredMethod):
    """Steps along orthonormalised momentum of rank r.

    A part of x with two axes or more is a matrix X, its first axis by all others, if that saves values:
    r (rows + columns) < size.  M_i, P and Q are of X, or of its transpose if X has more columns than rows.
    A step takes two rounds::

        even   worker i   M_i = M_i + s_i;   P_i = M_i Q       (s_i a stochastic gradient at x)
               all        P = the columns of mean P_i, made orthonormal
        odd    worker i   R_i = M_i' P
               all        R = mean R_i;   Q = R with columns of norm 1
                          g = √(rows/columns) P Q', rows and columns of X;   x = x - γ g
        then   worker i   M_i = M_i - (1 - μ) P R'

    With columns="orthonormal", which is Orth-Dion, Q = R with orthonormal columns instead.  Both
    orthonormalisations have a triangular factor with a positive diagonal, so columns keep their signs, and at
    a fixed M, P Q' converges to the orthogonal polar factor of the best approximation of rank r.  A norm of
    columns is |R_j| + 1e-8.

    M_i is both the momentum and the memory of what P R' leaves out.  R is the mean, so x, Q and mean M_i are
    those of one worker with the mean gradient.  Of full rank, P R' is mean M_i.

    All other parts, such as biases, are sent whole in the odd rounds.  For them g is the mean gradient,
    without momentum and of its own size, and the caller's optimiser steps along it as along the rest.  The
    paper uses AdamW or Lion for these parts, whose steps need more than this g: give these parts a learning
    rate of their own, in a second parameter group.  Weight decay is the optimiser's: SGD with the learning
    rate η and the weight decay λ takes the step x = (1 - η λ) x - η g of the paper.

    Q is Gaussian at first.  Where M has a lower rank than r, columns of P, R and Q are 0, and the next step
    draws these columns of Q anew, the same on all ranks.
    theory: none; |g| does not shrink with the gradient, so a constant γ ends at a distance of about γ.

    ``bound`` raises ``ConfigError`` if no part is such a matrix.  Without ``rows`` the method has to be bound
    before it is used, else it raises ``ConfigError``.  A run binds it to the parts of its problem.

    Differences from the paper: the server takes the means; other parts have the mean gradient, and so do
    matrices whose factors save nothing, for which the authors' program computes the step from it.  Orth-Dion
    is stated with the memory μ (M - P P'M) and without √(rows/columns); here it has both as Dion has them.

    r         the rank, the columns of P and of Q: a count, or a fraction of the shorter side of a matrix,
              rounded up as in the authors' program
    rows      None for the parts of the problem; a count makes x a single matrix of that many rows
    momentum  the momentum μ
    columns   how Q follows from R: "normalised", as in Dion, or "orthonormal", as in Orth-Dion
    """

    r: Rank = 0.25
    rows: PositiveIntegerOrNone = None
    gamma: StepSize = "theory"  # which is refused: there is none
    momentum: Momentum = 0.95
    columns: Columns = "normalised"
    batch: BatchSize = None
    values: ValueFormat = "f4"
    down: Lossless = Lossless()
    parts: PartsOfX = field(default=None, repr=False)  # those of x, where ``rows`` is None; ``bound`` sets it

    turns: ClassVar[bool] = True
    paper: ClassVar[str] = "Ahn, Xu et al., Dion, arXiv 2504.05295; Orth-Dion, arXiv 2605.16341"

    @dataclass
    class Replica:
        x: Array
        g: Array
        P: Array  # of all matrices, one after the other, each row by row; so is Q
        Q: Array
        product: Array  # P R', 0 where x is sent whole

    @dataclass
    class Worker:
        M: Array  # before the last P R' is subtracted; s_i where x is sent whole

    def rank(self, rows: int, columns: int) -> int:
        shorter = min(rows, columns)
        return min(self.r if isinstance(self.r, int) else ceil(self.r * shorter), shorter)

    def replica(self, x0: Array) -> Replica:
        last = self.layers(x0.size).matrices[-1]
        sizes = last.P.stop, last.Q.stop, x0.size
        P, Q, product = (np.zeros_like(x0, shape=size, dtype=np.float64) for size in sizes)
        return self.Replica(x0.copy(), np.zeros_like(x0), P, Q, product)

    def worker(self, x0: Array) -> Worker:
        return self.Worker(np.zeros_like(x0, dtype=np.float64))

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        layers = self.layers(r.x.size)
        if key.round % 2 == 0:
            s = gradient(f, r.x, self.batch, key)
            w.M -= (1 - self.momentum) * r.product  # M_i = M_i - (1 - μ) P R'
            for where in layers.whole:
                w.M[where] = 0.0
            w.M += s  # M_i = M_i + s_i
            Q = layers.redrawn([m.Q_of(r.Q) for m in layers.matrices], key.shared("dion"))
            return Message(self.uplink(key).compress(layers.even(w.M, Q), key))  # P_i = M_i Q
        return Message(self.uplink(key).compress(layers.odd(w.M, r.P), key))  # R_i = M_i' P

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        layers = self.layers(r.x.size)
        mean = self.down.decompress(broadcast.m, self.entries(r.x.size, key), key)
        if key.round % 2 == 0:
            r.P = layers.bases(mean)
            return
        Q = [self._with_unit_columns(m.Q_of(mean)) for m in layers.matrices]
        scaled = [sqrt(m.rows / m.columns) * q for m, q in zip(layers.matrices, Q, strict=True)]
        r.Q = joined(Q)
        r.g[:], r.product[:] = 0.0, 0.0
        layers.add_difference(r.g, r.P, joined([*scaled, mean[r.Q.size :]]))  # g = √(rows/columns) P Q'
        layers.add_products(r.product, r.P, mean, 1.0)

    def _with_unit_columns(self, R: Array) -> Array:
        """The Q of a matrix whose mean M_i' P is R."""
        return orthonormal(R) if self.columns == "orthonormal" else unit_columns(R, EPSILON)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        raise ConfigError(
            "Dion has no theory step size: its steps do not shrink with the gradient. Give gamma as a number."
        )
