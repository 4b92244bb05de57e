"""Constants of a problem's samples, for the theory of variance-reduced methods."""

from __future__ import annotations

from mpicomp.base.checks import check_probability, theory_factor
from mpicomp.base.errors import ConfigError
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.stochastic import batch_size
from mpicomp.problems.constants import Constants


def require_constant(method: Method, parameter: str, c: Constants, name: str) -> float:
    """The constant ``name`` of the problem, which the theory of ``parameter`` needs.

    Raises ``ConfigError`` if the problem does not know it.
    """
    value = getattr(c, name)
    if value is None:
        raise ConfigError(
            f"{type(method).__name__} needs the constant {name} for {parameter}=theory, and this problem "
            f"does not know it. Give {parameter} as a number, or take a problem on a data set."
        )
    return float(value)


def variance(method: Method, c: Constants, batch: BatchSize) -> float:
    """L_σ²/b for a ``batch`` of b samples; 0 for a batch of all samples.

    With D_i = ∇f_i(x) - ∇f_i(y), and D_i' the mean of ∇f_ij(x) - ∇f_ij(y) over the samples j of a batch,
    mean_i E |D_i' - D_i|² ≤ (L_σ²/b) |x - y|².  If the problem has no L_σ, its ``L_sample`` is taken.  Raises
    ``ConfigError`` if it has neither.
    """
    if batch is None:
        return 0.0
    L_sigma = require_constant(method, "gamma", c, "L_sample") if c.L_sigma is None else c.L_sigma
    return L_sigma**2 / batch_size(batch, c.samples)


def balanced_probability(method: Method, c: Constants, batch: BatchSize, whole: BatchSize = None) -> float:
    """The probability p = b/(m + b) of a round with ``whole`` = m samples, else ``batch`` = b samples.

    With this p, p m = (1 - p) b: both kinds of rounds use equally many samples in the mean over rounds.
    None is all samples of a worker.  Raises ``ConfigError`` where their number counts and is not known.
    """
    if batch == whole:  # the count itself may be unknown
        return 1 / 2

    def count(which: BatchSize) -> float:
        return require_constant(method, "p", c, "samples") if which is None else batch_size(which, c.samples)

    b, m = count(batch), count(whole)
    return b / (m + b)


def probability(p: float | str, theory: dict[str, float]) -> float:
    """The probability that a method's ``p`` stands for: a number, or a multiple of ``theory["p"]``.

    Raises ``ConfigError`` unless it is in (0, 1].
    """
    found = theory_factor("p", p) * theory["p"] if isinstance(p, str) else float(p)
    check_probability("p", found)
    return found
