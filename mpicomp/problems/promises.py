"""Check that a problem, such as one of your own, keeps what its objectives and its constants promise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_integer, as_seed
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.keys import Key, Stream
from mpicomp.problems.base import Problem, constants_of, fingerprint_of, objective_of, parts_of
from mpicomp.problems.batch_means import check_batches
from mpicomp.problems.checked import Checked, Point, length, unit
from mpicomp.problems.constants import Constants, NoConstants
from mpicomp.problems.differences import check_slopes
from mpicomp.problems.refuting import check_mean, check_worker

MOST = 8  # workers that are all checked
AROUND = (0.001, 0.1, 1.0)  # how far from x the points are, in the scale of x


def check_problem(
    problem: Problem, workers: int = 4, seed: int = 0, x: Array | None = None, draws: int = 100
) -> None:
    """Check what ``Problem``, ``Objective`` and ``Constants`` promise, near x0 or a given x.

    * The f_i of each worker has a finite value, and a finite gradient of shape (d,) in the precision of x or
      in double precision; neither writes into x, nor into a gradient given before.  The bits are the same
      when it is asked again, by ``value_and_grad``, and of objectives made in another order.
    * ``grad`` is the gradient of ``value``, by central differences along ``grad`` and two random directions,
      at three points around x: at 0.001, 0.1 and 1 times max(1, |x|) from it, as x0 may be a kink of a
      network.  Steps are from 6e-8 to 6e-5 times that scale; the best one counts.  A slope may be off by
      2e-5 of itself, or of |grad|/√d if that is more, and by 10 roundings of the value over the step.  Where
      f computes in single precision, steps are from 5e-4 to 0.05, and 1.5e-2 takes the place of 2e-5.  Where
      the differences do not converge, a slope may be off by a tenth.
    * ``batch_grad``, where there is one, has the same bits for the same stream, and the mean of ``draws``
      batches of half the samples, or of 16 new ones, is within six standard errors of ``grad``.
    * Constants that are not None: L, L_i, L_plus, L_pm, mu, convex, quadratic, sigma and f_star, and up to
      d = 1000 the smoothness matrices.  They are compared with gradients at pairs of points, random ones and
      those that power iteration finds, and with the values of 20 steps of a descent.  **This can refute a
      constant, and never prove one**: it does not search for the worst x, and constants that hold in a region
      only are compared within max(1, |x|) of x.

    Of more than eight workers, only the first and the last are checked, and no constants of f, the mean.
    Not checked: ``sampled``, L_sample, L_sigma, L_ij, diagonals, and what f should be.  An error that
    ``value`` and ``grad`` share is not found.  The cost is about 40 values and 70 gradients of each worker,
    and ``draws`` batches.

    workers  the number n of workers among which the problem is shared out
    seed     of the points, directions and batches: with the same seed, the same check
    x        the point to check near, in place of the problem's x0
    draws    the number of batches, 30 or more

    Raises ``ConfigError`` that names the first promise broken, the worker and the point, and whatever the
    problem raises.
    """
    if not isinstance(problem, Problem):
        raise ConfigError(f"problem={one_line(problem)}; allowed: an object of a class derived from Problem.")
    n, seed, draws = as_integer("workers", workers), as_seed(seed), as_integer("draws", draws, least=30)
    name = type(problem).__name__
    x0 = Point("x0", _start(problem, name)) if x is None else Point("x", _vector(problem, "x", x))
    parts_of(problem)
    fingerprint_of(problem)
    fs = _workers(problem, name, n, x0)
    known = _constants(problem, n)
    for i, f in fs.items():
        draw = np.random.default_rng([seed, i])
        points = [*_around(x0, draw)]
        for at in points:
            check_slopes(f, at, draw)
        check_batches(f, points[1], partial(_stream, seed, i, n), draws, known)
        if known is not None:
            check_worker(f, None if known.L_i is None else known.L_i[i], known, x0, draw)
    if known is not None and len(fs) == n:
        check_mean(name, [*fs.values()], known, x0, np.random.default_rng([seed, n]))


def _start(problem: Problem, name: str) -> Array:
    x, again = (_vector(problem, f"{name}.x0()", problem.x0()) for _ in range(2))
    if x.tobytes() != again.tobytes():
        raise ConfigError(f"{name}.x0() gives two points, {length(x - again):.3g} apart, in two calls.")
    return x


def _vector(problem: Problem, name: str, x: Any) -> Array:
    """A copy of x.  Raises ``ConfigError`` unless it is a vector of d finite numbers, of 32 or 64 bits."""
    d = as_integer(f"{type(problem).__name__}.dimension()", problem.dimension())
    if not isinstance(x, np.ndarray) or x.shape != (d,) or x.dtype not in (np.float32, np.float64):
        what = f"shape {x.shape}, type {x.dtype}" if isinstance(x, np.ndarray) else one_line(x)
        raise ConfigError(f"{name} is of {what}; allowed: an array of shape ({d},), float64 or float32.")
    if not np.isfinite(x).all():
        raise ConfigError(f"{name} is not finite in {np.sum(~np.isfinite(x))} of its {d} coordinates.")
    return x.copy()


def _constants(problem: Problem, n: int) -> Constants | None:
    try:
        return constants_of(problem, n)
    except NoConstants:
        return None


def _around(x0: Point, draw: np.random.Generator) -> Iterator[Point]:
    for distance in AROUND:
        yield x0.moved(distance * x0.scale * unit(draw, x0.x.size))


def _stream(seed: int, i: int, n: int, t: int) -> Stream:
    return Key(seed, t, i, n).private("check_problem")


def _workers(problem: Problem, name: str, n: int, x0: Point) -> dict[int, Checked]:
    """The objectives to check, by worker.

    Asked again, and after others were made in the opposite order, they and the others give the same bits.
    """
    chosen = range(n) if n <= MOST else (0, n - 1)

    def made(i: int) -> Checked:
        return Checked(f"{name}: worker {i} of {n}", objective_of(problem, i, n))

    fs = {i: made(i) for i in chosen}
    away = x0.moved(0.1 * x0.scale * unit(np.random.default_rng(0), x0.x.size))
    given = {i: [(at, f.value(at), f.grad(at)) for at in (x0, away)] for i, f in fs.items()}
    kept = {i: [g.copy() for _, _, g in answers] for i, answers in given.items()}
    others = {i: made(i) for i in reversed(chosen)}
    for i, f in fs.items():
        for (at, value, g), first in zip(given[i], kept[i], strict=True):
            _check_again(f, others[i], at, value, g, first)
    return fs


def _check_again(f: Checked, other: Checked, at: Point, value: float, g: Array, first: Array) -> None:
    """Compare answers with ``value`` and ``first``, a copy of the gradient ``g`` that was given before."""
    answers = (
        (f.value(at), f.grad(at), "when asked again"),
        (*f.value_and_grad(at), "by value_and_grad"),
        (other.value(at), other.grad(at), "of an objective that was made in another order"),
    )
    for v, h, when in answers:
        if v != value:
            raise f.broken(at, f"value is {value!r}, and {v!r} {when}; allowed: the same bits")
        if np.may_share_memory(g, h):
            raise f.broken(at, "grad gave the same array twice; return a new one each time")
        if h.tobytes() != first.tobytes():
            off = f"{length(h - first):.3g} from a first one of length {length(first):.6g}"
            raise f.broken(at, f"grad is {off} {when}; allowed: the same bits")
    if g.tobytes() != first.tobytes():
        raise f.broken(at, "a gradient changed after it had been given; return a new array each time")
