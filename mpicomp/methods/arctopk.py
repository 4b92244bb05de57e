"""ARC-Top-K: all workers send the same rows, in which a shared sketch of the mean is largest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import scipy

from mpicomp import kernels
from mpicomp.base.arrays import Array, Indices
from mpicomp.base.checks import check_count, resolve_count
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts, check_parts
from mpicomp.compressors import Lossless
from mpicomp.compressors.support.sparsifier import Support, gather, scatter_add
from mpicomp.kernels.lowrank import orthonormal, scaled, times
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import (
    BatchSize,
    PartsOfX,
    PositiveInteger,
    PositiveIntegerOrNone,
    Rate,
    StepSize,
    Value,
    ValueFormat,
)
from mpicomp.methods.support.batch_theory import require_bounded_variance
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.linear import LinearMethod
from mpicomp.methods.support.stochastic import gradient
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

Kept = Annotated[int | float, Value(check_count)]


class Matrix(NamedTuple):
    """A matrix that x holds row after row; a sketch of r columns chooses the ``kept`` rows that are sent."""

    x: slice
    rows: int
    columns: int
    kept: int
    r: int

    def of(self, x: Array) -> Array:
        """The matrix in x, a view of shape (rows, columns)."""
        return x[self.x].reshape(self.rows, self.columns)

    def coordinates(self, chosen: Indices) -> Indices:
        """The coordinates of x in the ``chosen`` rows, increasing; both arrays are in host memory."""
        first = self.x.start + self.columns * chosen
        return (first[:, None] + np.arange(self.columns)).ravel()

    def alpha(self) -> float:
        """The factor α with which sending the chosen rows contracts this matrix: ``contraction``."""
        return contraction(self.kept, self.rows, self.columns, self.r)


@dataclass(frozen=True)
class Layers:
    """The division of x into matrices and ``whole``, the slices of x that are sent whole."""

    matrices: tuple[Matrix, ...]
    whole: tuple[slice, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The lengths of a message: in a round of rows, with the whole slices; and in a round of sketches."""
        whole = sum(where.stop - where.start for where in self.whole)
        rows = sum(m.kept * m.columns for m in self.matrices)
        return rows + whole, sum(m.rows * m.r for m in self.matrices)

    def sketch(self, x: Array, key: Key) -> Array:
        """The sketches M V of all matrices M of x, as one vector: matrix after matrix, each row by row.

        V is uniform among the matrices with r orthonormal columns.  It is the same on all ranks, and each
        round draws a new one.
        """
        drawn = kernels.to_device(key.shared("arctopk").normals(sum(m.columns * m.r for m in self.matrices)))
        sketches, start = [], 0
        for m in self.matrices:
            stop = start + m.columns * m.r
            V = orthonormal(drawn[start:stop].reshape(m.columns, m.r))
            sketches.append(times(m.of(x), V).ravel())
            start = stop
        return np.concatenate(sketches)

    def largest(self, P: Array) -> Indices:
        """The numbers of the ``kept`` rows of each matrix with the largest norm in the sketch P.

        P has the form that ``sketch`` returns.  The result is one array, increasing within each matrix.
        """
        chosen, start = [], 0
        for m in self.matrices:
            stop = start + m.rows * m.r
            p = scaled(P[start:stop].reshape(m.rows, m.r))
            squares = np.sum(p * p, axis=1)
            chosen.append(kernels.to_host(kernels.backend_for(squares).top_k(squares, m.kept)))
            start = stop
        return np.concatenate(chosen)

    def support(self, chosen: Indices) -> Support:
        """The coordinates of x that are sent: first the ``chosen`` rows, then the whole slices."""
        ends = np.cumsum([m.kept for m in self.matrices])
        rows = np.split(chosen, ends[:-1])
        found = [m.coordinates(j) for m, j in zip(self.matrices, rows, strict=True)]
        return (*map(kernels.to_device, found), *self.whole)


@dataclass(frozen=True)
class ARCTopK(LinearMethod, EstimatingMethod):
    """EF21 with momentum, in which all workers send the same rows.  x is read as a matrix with rows of
    ``width`` entries.  The first step takes one round, each later step two; s_i is a gradient of f_i at x::

        round 0   worker i   g_i = v_i = s_i, sent whole;   all: g = mean g_i;   x = x - γ g
        sketch    worker i   v_i = (1 - η) v_i + η s_i;   M_i = v_i - g_i;   P_i = M_i V
                  all        I = the k rows in which mean P_i is largest
        rows      worker i   sends M_i on the rows I;   g_i = g_i + (M_i)_I
                  all        g = g + (mean M_i)_I;   x = x - γ g

    V has r orthonormal columns, drawn for each step, the same on all ranks, so the indices I are not sent.
    A step costs a worker rows·r + k·width values, up as well as down, for any number of workers.

    k      rows that are sent of each matrix: a count, or a fraction
    width  None for the parts of the problem: a part with two axes or more is a matrix, its first axis by all
           others, where that saves values: r rows + k columns < size.  Other parts are sent whole in the
           rounds of the rows.  (The sketch of a vector by entries would be as long as the vector.)

    What is proved.  Let M = mean M_i have m rows and c columns, and let α be ``contraction``.

    1. E |M - M_I|² ≤ (1 - α) |M|² for every M, with α ≥ (k/m) (r/c).  For r = c the rows I are the largest
       ones of M, and α = k/m.  If the rows of M are orthogonal to each other, the factor is k/m for every r.
       For other M and r < c it may be below k/m.
    2. No worker has such a bound: M_i may vanish on I, and (M_i)_I = 0.  What is sent is linear in M_i, so
       the means v = mean v_i and g, and x, are those of a single worker with the gradients mean s_i.  That
       worker runs EF21-SGDM on f with a compressor of the factor α.  So that theorem holds for f, n = 1, the
       constant L in place of L̃, and the variance of mean s_i, which is σ²/n.
    3. v_i - g_i need not vanish.  It stays bounded if v_i does: a row changes g_i only by becoming v_i's.
       Error feedback as in EF14 would add up what the mean of the workers cancels, without a bound.

    theory: gamma = min{α/(20 L), η/(7 L)}, α the least of the matrices.  It is not the paper's.  By 2. it is
    the step of EF21-SGDM for n = 1, and the proof in ``EF21SGDM`` holds for it; L_max does not enter.  It is
    for full gradients, or samples of a variance of at most σ² for all x.  Raises ``ConfigError`` for other
    batches.

    ``bound`` raises ``ConfigError`` if no part is such a matrix.  Without ``width`` the method has to be
    bound before it is used, else it raises ``ConfigError``.  A run binds it to the parts of its problem.

    Differences from the paper: V is orthonormal, not Gaussian, so r = c is exact.  The server takes the
    means.

    r    the columns of the sketch P_i
    eta  the weight η of the new gradient in the average v_i
    """

    k: Kept
    r: PositiveInteger = 4
    width: PositiveIntegerOrNone = None
    gamma: StepSize = "theory"
    eta: Rate = 0.1
    batch: BatchSize = None
    values: ValueFormat = "f4"
    down: Lossless = Lossless()
    parts: PartsOfX = field(default=None, repr=False)  # those of x without ``width``; ``bound`` sets it

    recalled: ClassVar[str] = "the algorithm, and the constants of gamma"
    worker_separable: ClassVar[bool] = False
    paper: ClassVar[str] = "Chen, Ma, Li, He, Dong, Yuan, ARC-Top-K, arXiv 2510.26709"

    @dataclass
    class Replica:
        x: Array
        g: Array
        rows: Indices  # I, of all matrices, one after the other

    @dataclass
    class Worker:
        v: Array
        g: Array
        sketched: int = 0  # 1 between the two rounds of a step

    def bound(self, parts: Parts) -> Self:
        method = super().bound(parts)
        if self.width is not None:
            return method
        method = replace(method, parts=parts)
        if not method._layers_of_parts.matrices:
            raise ConfigError(
                f"ARCTopK: no part is a matrix that k={self.k} and r={self.r} shorten; the parts are "
                f"{parts}. Give width, to read x as rows of that many entries; or take a smaller k or r, if "
                "a part has two axes."
            )
        return method

    def layers(self, d: int) -> Layers:
        """The division of x in R^d into matrices and slices that are sent whole.

        Raises ``ConfigError`` if the method has neither ``width`` nor parts of d entries together.
        """
        if self.width is not None:
            rows = _rows_of(d, self.width, self.k)
            kept = resolve_count(self.k, rows)
            return Layers((Matrix(slice(0, d), rows, self.width, kept, min(self.r, self.width)),))
        check_parts("ARCTopK", self.parts, d, "Give width, or call")
        return self._layers_of_parts

    @cached_property
    def _layers_of_parts(self) -> Layers:
        matrices, whole = [], []
        for part, where in self.parts or ():
            rows = part.shape[0] if part.is_matrix else part.size
            kept = rows if self.k >= rows else resolve_count(self.k, rows)
            columns = part.size // rows
            m = Matrix(where, rows, columns, kept, min(self.r, columns))
            if rows * m.r + kept * columns < part.size:
                matrices.append(m)
            else:
                whole.append(where)
        return Layers(tuple(matrices), tuple(whole))

    def replica(self, x0: Array) -> Replica:
        rows = sum(m.kept for m in self.layers(x0.size).matrices)
        return self.Replica(x0.copy(), np.zeros_like(x0), np.zeros(rows, np.int64))

    def _sketches(self, key: Key) -> bool:
        """Whether the round of ``key`` sends sketches."""
        return key.round % 2 == 1

    def _support(self, r: Replica, key: Key) -> Support:
        """The coordinates that the round of ``key``, which sends no sketches, sends."""
        return self.layers(r.x.size).support(r.rows) if key.round else (slice(0, r.x.size),)

    def entries(self, d: int, key: Key) -> int:
        return self.layers(d).sizes[self._sketches(key)] if key.round else d

    def worker_step(self, w: Worker, r: Replica, f: Objective, key: Key) -> Message:
        if key.round == 0 or self._sketches(key):
            s = gradient(f, r.x, self.batch, key)
            w.v = s if key.round == 0 else (1 - self.eta) * w.v + self.eta * s  # v_i = (1 - η) v_i + η s_i
        w.sketched = int(self._sketches(key))
        if w.sketched:
            P = self.layers(r.x.size).sketch(w.v - w.g, key)  # P_i = M_i V
            return Message(self.uplink(key).compress(P, key))
        support = self._support(r, key)
        Q, M = self.uplink(key), gather(w.v, support) - gather(w.g, support)
        rows = Q.compress(M, key)
        sent = Q.decompress(rows, M.size, key)
        scatter_add(w.g, support, sent, 1.0)  # g_i = g_i + (M_i)_I
        return Message(rows)

    def residual(self, w: Worker) -> Array | None:
        return None if w.sketched else w.v - w.g

    def estimate(self, r: Replica, broadcast: Message, key: Key) -> None:
        mean = self.down.decompress(broadcast.m, self.entries(r.x.size, key), key)
        if self._sketches(key):
            r.rows = self.layers(r.x.size).largest(mean)  # I
        else:
            scatter_add(r.g, self._support(r, key), mean, 1.0)  # g = g + (mean M_i)_I

    def ends_step(self, r: Replica, key: Key) -> bool:
        return not self._sketches(key)

    def theory(self, c: Constants, d: int, n: int) -> dict[str, float]:
        require_bounded_variance(self, c, self.batch)
        alpha = min(m.alpha() for m in self.layers(d).matrices)
        return {"gamma": min(alpha / (20 * c.L), self.eta / (7 * c.L))}


def _rows_of(d: int, width: int, k: int | float) -> int:
    """The number of rows of ``width`` entries in R^d.

    Raises ``ConfigError`` if ``width`` does not divide d, or if there are fewer than k rows.
    """
    if d % width:
        near = {next(w for w in range(min(width, d), 0, -1) if d % w == 0)}
        near |= {next((w for w in range(width, d) if d % w == 0), d)}
        found = " or ".join(str(w) for w in sorted(near))
        raise ConfigError(f"width={width} does not divide the dimension d={d}; nearest: width={found}.")
    if k > d // width:
        raise ConfigError(
            f"k={k} exceeds the rows of width={width} in the dimension d={d}; allowed: 1 to {d // width}, or "
            "a fraction below 1."
        )
    return d // width


def contraction(kept: int, rows: int, columns: int, r: int) -> float:
    """α with E |M_I|² ≥ α |M|² for every M of the shape (rows, columns), I the ``kept`` rows in which M V is
    largest, and V uniform among the matrices of r orthonormal columns.

    α = max_t (k/m - E (Z - t)₊)/t over 1 ≤ t ≤ c/r, with Z = (c/r) B and B ~ Beta(r/2, (c - r)/2), for k of m
    rows and c columns; 1 if all rows are kept.  At t = c/r it is (k/m) (r/c).

    Proof.  Let a_j = |M_j|² and Z_j = (c/r) |M_j V|²/a_j.  V' maps a unit vector to r coordinates of a
    uniform one, so each Z_j is distributed as Z; its mean is 1, and it is at most c/r.  I has the largest
    a_j Z_j, so Σ_I a_j Z_j ≥ (k/m) Σ a_j Z_j, whose mean is (k/m) |M|².  By Z_j ≤ t + (Z_j - t)₊,
    Σ_I a_j Z_j ≤ t |M_I|² + Σ a_j (Z_j - t)₊, whose last term has the mean |M|² E (Z - t)₊.

    If the M_j are orthogonal to each other, (Z_j) is exchangeable, so a larger a_j is at least as likely to
    be in I, and by Chebyshev's sum inequality E |M_I|² ≥ (k/m) |M|².  Rows that depend on each other may be
    worse: among many equal rows and one that is a little shorter and orthogonal to them, k = 1 takes the
    shorter one half of the time.
    """
    if kept == rows:
        return 1.0
    share = kept / rows
    if r == columns:
        return share
    t = np.geomspace(1, columns / r, 500)  # any t gives a bound
    x, a, b = 1 - t * r / columns, r / 2, (columns - r) / 2
    excess = scipy.special.betainc(b, a + 1, x) - t * scipy.special.betainc(b, a, x)  # E (Z - t)₊
    return float(np.max((share - excess) / t))
