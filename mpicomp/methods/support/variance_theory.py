"""What the theory of variance-reduced methods needs to know of a problem's samples."""

from __future__ import annotations

from mpicomp.base.errors import ConfigError
from mpicomp.compressors.base import check_probability
from mpicomp.methods.base import Method
from mpicomp.methods.support.checks import Step, step_factor
from mpicomp.methods.support.stochastic import batch_size
from mpicomp.problems.base import Constants

Batch = int | float | None  # a count of samples, a fraction of a worker's, or all of them


def known(method: Method, parameter: str, c: Constants, name: str) -> float:
    """The constant ``name``, without which ``parameter`` of ``method`` has no theory."""
    value = getattr(c, name)
    if value is None:
        raise ConfigError(
            f"{type(method).__name__} needs the constant {name} for {parameter}=theory, and this problem "
            f"does not know it. Give {parameter} as a number, or take a problem on a data set."
        )
    return float(value)


def size(method: Method, parameter: str, c: Constants, batch: Batch) -> float:
    """The number of samples in a ``batch``, where ``parameter`` depends on it."""
    return known(method, parameter, c, "samples") if batch is None else batch_size(batch, c.samples)


def variance(method: Method, c: Constants, batch: Batch) -> float:
    """L_σ²/b: E |batch difference - D_i|² ≤ this |x - y|² in the mean over workers; 0 for all samples."""
    if batch is None:
        return 0.0
    L_sigma = known(method, "gamma", c, "L_sample") if c.L_sigma is None else c.L_sigma
    return L_sigma**2 / batch_size(batch, c.samples)


def balance(method: Method, c: Constants, batch: Batch, whole: Batch = None) -> float:
    """p = b/(m + b), for batches of b and m: rounds with either then look at as many samples on average."""
    if batch == whole:  # however many that is
        return 1 / 2
    b, m = (size(method, "p", c, which) for which in (batch, whole))
    return b / (m + b)


def probability(name: str, value: Step, theory: dict[str, float]) -> float:
    """The probability that ``value`` stands for: a number, or a multiple of ``theory[name]``."""
    p = step_factor(name, value) * theory[name] if isinstance(value, str) else float(value)
    check_probability(name, p)
    return p
