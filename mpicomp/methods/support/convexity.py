"""Errors for theorems that need a convex, quadratic or strongly convex f, where the problem has another."""

from __future__ import annotations

from mpicomp.base.checks import theory_factor
from mpicomp.base.errors import ConfigError
from mpicomp.methods.base import Method
from mpicomp.problems.constants import Constants


def require_convex(method: Method, c: Constants, every: bool = True) -> None:
    """Raise ``ConfigError`` unless f is known to be convex, and with ``every`` each f_i as well."""
    if c.mu is None:
        found = "f is not convex, or not known to be (mu is None in its constants)"
    elif every and c.convex is None:
        found = "this is not known; constants(n) says so by convex=True"
    elif every and not c.convex:
        found = "some f_i is not, though f is"
    else:
        return
    asked = method.by_theory
    numbers = "numbers" if len(asked) > 1 else "a number"
    raise ConfigError(
        f"{type(method).__name__}'s theorem is for convex {'f_i' if every else 'f'}, and on this problem "
        f"{found}. Give {' and '.join(asked)} as {numbers}, not as theory or a multiple of it, or take GD, "
        "DIANA, MARINA, DASHA or EF21, which have theorems for nonconvex f."
    )


def require_quadratic(method: Method, c: Constants) -> None:
    """Raise ``ConfigError`` unless f is known to be convex and every f_i to be quadratic."""
    if not c.quadratic or c.mu is None:
        raise ConfigError(
            f"{type(method).__name__}'s theorem is for convex quadratic f, and this f is not, or not known "
            "to be (quadratic and mu in its constants). Take AGD or LBFGS, or give gamma as a number."
        )


def curvature(method: Method, mu: float | str, c: Constants, otherwise: str) -> float:
    """The number that ``mu`` stands for: a number itself, "theory" or a multiple of it by the problem's μ.

    Raises ``ConfigError`` if the problem's μ is asked for, and is 0 or unknown.  ``otherwise`` is the remedy
    with which the message ends.
    """
    if not isinstance(mu, str):
        return mu
    if not c.mu:
        found = "0" if c.mu == 0 else "not known"
        raise ConfigError(
            f"{type(method).__name__} needs a mu above 0, and this problem's is {found}: give mu as a "
            f"number, take a problem with a quadratic penalty, or {otherwise}."
        )
    return theory_factor("mu", mu) * c.mu
