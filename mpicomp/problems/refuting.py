"""Look for points at which the constants that a problem declares do not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import sqrt
from typing import Any

import numpy as np
import scipy

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.problems.checked import NOISE, Checked, Point, length, unit
from mpicomp.problems.constants import ROUNDING, Constants

TURNS = 8  # gradients in which a direction of the steepest change is sought
NEAR = 0.01  # the distance of the points compared, in the scale of x
FAR = (0.1, 1.0)  # that of further pairs
STEPS = 20  # values and gradients that a descent to the minimum takes
LARGEST = 1000  # the dimension up to which a smoothness matrix is asked for

# From a vector v to the step taken, which is v rounded to the precision of x, and the changes of the workers'
# gradients over it, shape (workers, d).
Changes = Callable[[Array], tuple[Array, Array]]


def check_worker(f: Checked, L: float | None, known: Constants, at: Point, draw: np.random.Generator) -> None:
    """Check f_i's own constants: L_i, convexity, that it is quadratic, and its smoothness matrix."""
    changes, noise, blur = _changes([f], at)
    value, g, matrix = f.value(at), f.grad(at), _smoothness_matrix(f, at)
    for v, (D,) in _pairs(changes, at, draw):
        far = length(v)
        slack = (ROUNDING + blur / far) * length(D) + noise
        if L is not None and length(D) > L * (far * (1 + ROUNDING) + blur) + noise:
            raise f.broken(at, _too_small("|∇f_i(x+v) - ∇f_i(x)|", length(D), "L_i", L, far))
        if known.convex and np.sum(D * v) < -far * slack:
            raise f.broken(at, f"{_slope(D, v, far)}; convex says 0 or above")
        if known.quadratic and (bend := length(2 * D - changes(2 * v)[1][0])) > 3 * slack:
            raise f.broken(
                at,
                f"∇f_i(x+2v) - 2∇f_i(x+v) + ∇f_i(x) has the length {bend:.4g} for a v of length {far:.3g}; "
                "quadratic says 0",
            )
        if matrix is not None:
            there, most = f.value(at.moved(v)), float(np.sum(v * (matrix @ v))) / 2
            rise = there - value - float(np.sum(g * v))
            rounding = NOISE * f.epsilon(at) * (abs(there) + abs(value))
            if rise > most + far * slack + rounding:
                raise f.broken(
                    at,
                    f"f_i(x+v) - f_i(x) - <∇f_i(x), v> is {rise:.6g} for a v of length {far:.3g}, and the "
                    f"smoothness matrix allows {most:.6g}",
                )


def check_mean(
    name: str, fs: Sequence[Checked], known: Constants, at: Point, draw: np.random.Generator
) -> None:
    """Check the constants of f, the mean of all ``fs``: L, L_plus, L_pm, mu and f_star."""
    changes, noise, blur = _changes(fs, at)
    top = 0.0
    for v, Ds in _pairs(changes, at, draw):
        mean, far = Ds.mean(axis=0), length(v)
        squares = float(np.mean(np.sum(Ds**2, axis=1)))
        found = {
            "L": ("|∇f(x+v) - ∇f(x)|", length(mean)),
            "L_plus": ("(mean |D_i|²)^(1/2), D_i = ∇f_i(x+v) - ∇f_i(x),", sqrt(squares)),
            "L_pm": (
                "(mean |D_i - mean D_i|²)^(1/2)",
                sqrt(float(np.mean(np.sum((Ds - mean) ** 2, axis=1)))),
            ),
        }
        for constant, (what, size) in found.items():
            L = getattr(known, constant)
            if L is not None and size > L * (far * (1 + ROUNDING) + blur) + noise:
                raise ConfigError(f"{name}: f, at {at.name}: {_too_small(what, size, constant, L, far)}.")
        top = max(top, length(mean) / far)
    if known.mu is not None:
        _check_mu(name, changes, known.mu, top, top * blur + noise, at, draw)
    if known.f_star is not None:
        _check_minimum(name, fs, known.f_star, at.moved(FAR[0] * at.scale * unit(draw, at.x.size)))


def _check_mu(
    name: str, changes: Changes, mu: float, top: float, noise: float, at: Point, draw: np.random.Generator
) -> None:
    """Compare mu with the slopes along directions of ever less change: power iteration with ``top`` - H."""
    v = unit(draw, at.x.size)
    for _ in range(TURNS):
        step, Ds = changes(NEAR * at.scale * v)
        far, D = length(step), Ds.mean(axis=0)
        if np.sum(D * step) < mu * far**2 - far * (ROUNDING * top * far + noise):
            says = f"mu = {mu:.6g} says {mu * far**2:.4g} at least"
            raise ConfigError(f"{name}: f, at {at.name}: {_slope(D, step, far, 'f')}; {says}.")
        v = top * step - D
        if (norm := length(v)) <= ROUNDING * top * far:
            return
        v /= norm


def _check_minimum(name: str, fs: Sequence[Checked], f_star: float, start: Point) -> None:
    """Compare f_star with the values of a descent, scipy's L-BFGS from ``start``."""
    values: list[float] = []

    def both(x: Array) -> tuple[float, Array]:
        at = Point(f"the point of step {len(values)} of a descent", x.astype(start.x.dtype))
        values.append(float(np.mean([f.value(at) for f in fs])))
        return values[-1], np.mean([f.grad(at) for f in fs], axis=0).astype(np.float64)

    most: Any = {"maxfun": STEPS, "maxiter": STEPS}
    # A long step may leave the points at which f is finite in floating point: then the descent ends there.
    with suppress(ConfigError), np.errstate(over="ignore", invalid="ignore"):
        scipy.optimize.minimize(both, start.x.astype(np.float64), jac=True, method="L-BFGS-B", options=most)
    if not values:
        return
    k = int(np.argmin(values))
    slack = NOISE * max(f.epsilon(start) for f in fs) * max(map(abs, values))
    if values[k] < f_star - ROUNDING * abs(f_star - values[0]) - slack:
        raise ConfigError(
            f"{name}: f is {values[k]:.8g} at evaluation {k} of a descent from {start.name}, and f_star = "
            f"{f_star:.8g} is above it."
        )


def _changes(fs: Sequence[Checked], at: Point) -> tuple[Changes, float, float]:
    """The changes of the gradients of ``fs`` from x on, and two bounds on rounding.

    On the length of a change, and on how far from x the point may be at which f took its gradient.
    """
    here = np.array([f.grad(at) for f in fs], dtype=np.float64)

    def changes(v: Array) -> tuple[Array, Array]:
        there = at.moved(v)
        step = there.x.astype(np.float64) - at.x
        return step, np.array([f.grad(there) for f in fs], dtype=np.float64) - here

    epsilons = [f.epsilon(at) for f in fs]
    norms = [epsilon * length(g) for epsilon, g in zip(epsilons, here, strict=True)]
    return changes, 2 * NOISE * max(norms), 2 * NOISE * max(epsilons) * at.scale


def _pairs(changes: Changes, at: Point, draw: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Steps from x and the changes over them: random ones, and near x along ever steeper changes.

    The change of the mean is about Hess f(x) times the step.  So by power iteration, with the last change as
    the next step, its ratio grows towards the largest eigenvalue.
    """
    for distance in FAR:
        yield changes(distance * at.scale * unit(draw, at.x.size))
    v = unit(draw, at.x.size)
    for _ in range(TURNS):
        step, Ds = changes(NEAR * at.scale * v)
        yield step, Ds
        v = Ds.mean(axis=0)
        if (norm := length(v)) == 0:
            return
        v /= norm


def _smoothness_matrix(f: Checked, at: Point) -> Array | None:
    """The worker's smoothness matrix; None if it has none, or d is large."""
    d = at.x.size
    if d > LARGEST:
        return None
    try:
        matrix = f.f.smoothness_matrix()
    except ConfigError:  # which says that it has none
        return None
    if np.shape(matrix) != (d, d):
        raise f.broken(at, f"smoothness_matrix gave the shape {np.shape(matrix)}; allowed: {(d, d)}")
    return matrix


def _too_small(what: str, size: float, name: str, L: float, far: float) -> str:
    return f"{what} is {size / far:.6g} |v| for a v of length {far:.3g}, and {name} = {L:.6g}"


def _slope(D: Array, v: Array, far: float, f: str = "f_i") -> str:
    return f"<∇{f}(x+v) - ∇{f}(x), v> is {np.sum(D * v):.4g} for a v of length {far:.3g}"
