"""What the theory of variance-reduced methods needs to know of a problem's samples."""

from __future__ import annotations

from mpicomp.base.checks import check_probability, theory_factor
from mpicomp.base.errors import ConfigError
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.stochastic import batch_size
from mpicomp.problems.base import Constants


def require_constant(method: Method, parameter: str, c: Constants, name: str) -> float:
    """The constant ``name``, without which ``parameter`` of ``method`` has no theory."""
    value = getattr(c, name)
    if value is None:
        raise ConfigError(
            f"{type(method).__name__} needs the constant {name} for {parameter}=theory, and this problem "
            f"does not know it. Give {parameter} as a number, or take a problem on a data set."
        )
    return float(value)


def batch_count(method: Method, parameter: str, c: Constants, batch: BatchSize) -> float:
    """The number of samples in a ``batch``, where ``parameter`` depends on it."""
    if batch is None:
        return require_constant(method, parameter, c, "samples")
    return batch_size(batch, c.samples)


def variance(method: Method, c: Constants, batch: BatchSize) -> float:
    """L_σ²/b: E |batch difference - D_i|² ≤ this |x - y|² in the mean over workers; 0 for all samples."""
    if batch is None:
        return 0.0
    L_sigma = require_constant(method, "gamma", c, "L_sample") if c.L_sigma is None else c.L_sigma
    return L_sigma**2 / batch_size(batch, c.samples)


def balanced_probability(method: Method, c: Constants, batch: BatchSize, whole: BatchSize = None) -> float:
    """p = b/(m + b), for batches of b and m: rounds with either then look at as many samples on average."""
    if batch == whole:  # however many that is
        return 1 / 2
    b, m = (batch_count(method, "p", c, which) for which in (batch, whole))
    return b / (m + b)


def probability(name: str, value: float | str, theory: dict[str, float]) -> float:
    """The probability that ``value`` stands for: a number, or a multiple of ``theory[name]``."""
    p = theory_factor(name, value) * theory[name] if isinstance(value, str) else float(value)
    check_probability(name, p)
    return p
