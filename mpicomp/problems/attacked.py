"""Let some workers lie: the gradients that they work with, and so the messages that they send, are false."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import scipy

from mpicomp.base.arrays import Array
from mpicomp.base.checks import check_choice, check_positive_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.keys import Stream
from mpicomp.problems.base import Problem, Wrapped
from mpicomp.problems.constants import Constants
from mpicomp.problems.objective import Objective

ATTACKS = ("sign_flip", "ipm", "alie")


@dataclass(frozen=True)
class Attacked(Wrapped):
    """A problem shared among n - b honest workers, and b more workers, the last ones, that lie.

    In place of its gradient at x, on a batch or in full, a liar gives the method, with c the ``scale``:

    ===========  =======================================================================================
    "sign_flip"  -c times the gradient of an honest worker, whose data it copied
    "ipm"        -c times the mean of all honest gradients: inner product manipulation
    "alie"       their mean - c their standard deviation, the root of the mean square, in each
                 coordinate: "a little is enough"
    ===========  =======================================================================================

    With these the liar does what the method asks of any worker, so its messages are real and are counted.
    f is the mean over the honest workers, and what a run records of f and ∇f is true.  For the last two kinds
    a liar reads the data of all workers and computes their gradients, on batches of as many samples of each;
    for the records every liar computes f.

    problem  the problem of the honest workers
    liars    b, the number of workers that lie; fewer than half
    attack   how they lie: sign_flip, ipm or alie
    scale    c; None is 1, and for alie the quantile of the normal distribution at (n - b - s)/(n - b),
             s = n // 2 + 1 - b, with which half of all workers are at least as far from the mean
    """

    liars: int
    attack: str = "sign_flip"
    scale: float | None = None

    paper: ClassVar[str] = (
        "inner product manipulation: Xie, Koyejo, Gupta (UAI 2019); a little is enough: Baruch, Baruch, "
        "Goldberg (NeurIPS 2019); both as recalled"
    )

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise ConfigError(
                f"attacked takes a problem, such as attacked(quadratics, liars=1); not {self.problem!r}."
            )
        if any(isinstance(one, Attacked) for one in _within(self.problem)):
            raise ConfigError(
                "attacked takes a problem of honest workers, and this one has liars already, and too "
                "many may lie together: give one attacked, with more liars."
            )
        check_positive_integer("liars", self.liars)
        check_choice("attack", self.attack, ATTACKS)
        c = self.scale
        if c is not None and (isinstance(c, bool) or not isinstance(c, int | float) or not abs(c) <= 1e300):
            raise ConfigError(f"scale={one_line(c)}; allowed: a number, or None for that of the attack.")

    def honest(self, n: int) -> int:
        """n - b.  Raises ``ConfigError`` unless that is more than half of n."""
        if 2 * self.liars >= n:
            raise ConfigError(
                f"attacked has liars={self.liars} of {n} workers; allowed: fewer than half. Take more "
                "workers."
            )
        return n - self.liars

    def shard_sizes(self, n: int) -> list[int] | None:
        sizes = self.problem.shard_sizes(self.honest(n))
        return None if sizes is None else sizes + sizes[: self.liars]

    def objective(self, i: int, n: int) -> Objective:
        honest = self.honest(n)
        if i < honest:
            return self.problem.objective(i, honest)
        every = tuple(self.problem.objective(j, honest) for j in range(honest))
        return LiarObjective(every, i - honest, self.attack, self._scale(n))

    def _scale(self, n: int) -> float:
        if self.scale is not None:
            return self.scale
        if self.attack != "alie":
            return 1.0
        honest, supporters = n - self.liars, n // 2 + 1 - self.liars
        return float(scipy.special.ndtri((honest - supporters) / honest))

    def constants(self, n: int) -> Constants:
        """The constants of the honest workers.  A liar's own f_i is f, whose constants are no larger."""
        found = replace(self.problem.constants(self.honest(n)), liars=self.liars)
        if found.L_i is not None:
            found = replace(found, L_i=(*found.L_i, *(found.L,) * self.liars))
        return found if found.diagonals is None else replace(found, diagonals=partial(self.diagonals, n))

    def diagonals(self, n: int) -> Array:
        found = self.problem.diagonals(self.honest(n))
        return np.concatenate([found, np.repeat(found.mean(axis=0)[None], self.liars, axis=0)])


@dataclass(frozen=True)
class LiarObjective(Objective):
    """A worker that lies: its f_i is f, the mean of the ``honest``, and ``told`` gives false gradients.

    own  the number of the honest worker whose data it copied
    """

    honest: tuple[Objective, ...]
    own: int
    attack: str
    scale: float

    @property
    def samples(self) -> int | None:  # type: ignore[override]
        counts = [f.samples for f in self.honest if f.samples is not None]
        return min(counts) if len(counts) == len(self.honest) else None

    def value(self, x: Array) -> float:
        return float(np.mean([f.value(x) for f in self.honest]))

    def grad(self, x: Array) -> Array:
        return _mean([f.grad(x) for f in self.honest])

    def value_and_grad(self, x: Array) -> tuple[float, Array]:
        values, gradients = zip(*(f.value_and_grad(x) for f in self.honest), strict=True)
        return float(np.mean(values)), _mean(list(gradients))

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        return _mean([f.batch_grad(x, b, stream) for f in self.honest])

    def sampled(self, b: int, stream: Stream) -> Objective:
        return replace(self, honest=tuple(f.sampled(b, stream) for f in self.honest))

    def smoothness_matrix(self) -> Array:
        return _mean([f.smoothness_matrix() for f in self.honest])

    def on_device(self) -> Self:
        return replace(self, honest=tuple(f.on_device() for f in self.honest))

    @property
    def told(self) -> Objective:
        return Lies(self)


class Lies(Objective):
    """The ``liar``'s objective with false gradients; values are true."""

    def __init__(self, liar: LiarObjective) -> None:
        self.liar, self.samples = liar, liar.samples

    def value(self, x: Array) -> float:
        return self.liar.value(x)

    def grad(self, x: Array) -> Array:
        return self._lie([f.grad(x) for f in self._witnesses])

    def batch_grad(self, x: Array, b: int, stream: Stream) -> Array:
        return self._lie([f.batch_grad(x, b, stream) for f in self._witnesses])

    def smoothness_matrix(self) -> Array:
        return self.liar.smoothness_matrix()

    @property
    def _witnesses(self) -> tuple[Objective, ...]:
        """The honest workers whose gradients the lie is made of."""
        honest, own = self.liar.honest, self.liar.own
        return honest[own : own + 1] if self.liar.attack == "sign_flip" else honest

    def _lie(self, gradients: Sequence[Array]) -> Array:
        mean = _mean(gradients)
        if self.liar.attack != "alie":
            return -self.liar.scale * mean
        return mean - self.liar.scale * np.sqrt(_mean([(g - mean) ** 2 for g in gradients]))


def _mean(arrays: Sequence[Array]) -> Array:
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return total / len(arrays)


def _within(problem: Problem) -> Iterator[Problem]:
    """``problem``, and the problems that it is made of, as noisy(problem) is."""
    yield problem
    inner = getattr(problem, "problem", None)
    if isinstance(inner, Problem):
        yield from _within(inner)
