"""Bounds on the variance of batches, for the theory of methods without variance reduction."""

from __future__ import annotations

from mpicomp.base.errors import ConfigError
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.stochastic import batch_size
from mpicomp.problems.constants import Constants


def batch_smoothness(method: Method, c: Constants, batch: BatchSize) -> float:
    """S = L_ij/b for a ``batch`` of b samples; 0 for all samples, and for samples of bounded variance.

    With s_i the mean gradient over the batch, F = f(x) - f*, and σ*² the mean over workers of the variance of
    one sample's gradient at x*, convex f_ij have

        mean_i E |s_i - ∇f_i(x)|² ≤ 4 S F + 2 σ*²/b.

    Proof.  The variance of a mean of b samples, drawn with or without replacement, is at most 1/b of that of
    one.  ∇f_ij(x) is D_ij + ∇f_ij(x*), so its variance over j is at most 2 mean_j |D_ij|² plus twice that of
    ∇f_ij(x*).  As f_ij is convex and L_ij-smooth,
    |D_ij|² ≤ 2 L_ij (f_ij(x) - f_ij(x*) - ⟨∇f_ij(x*), x - x*⟩), whose mean over i and j is at most 2 L_ij F.

    Where the constants have a ``sigma``, the variance is at most σ²/b for every x, for any f.

    Raises ``ConfigError`` if neither bound applies: with the step of full gradients the method may diverge.
    """
    if batch is None or c.sigma is not None:
        return 0.0
    if c.mu is None or not c.convex or c.L_ij is None:
        raise _refused(
            method, "batch", "convex samples with a known L_ij, or samples of bounded variance (sigma)"
        )
    return c.L_ij / batch_size(batch, c.samples)


def require_bounded_variance(method: Method, c: Constants, batch: BatchSize, name: str = "batch") -> None:
    """Raise ``ConfigError`` unless ``batch`` is all samples, or the constants have a ``sigma``.

    The theorem of such a method is for samples of bounded variance.  If the variance grows with the distance
    from x*, the method may diverge.
    """
    if batch is not None and c.sigma is None:
        raise _refused(method, name, "samples of bounded variance (sigma)")


def _refused(method: Method, name: str, needed: str) -> ConfigError:
    return ConfigError(
        f"{type(method).__name__} with {name}={getattr(method, name)} has a theory step size for {needed} "
        f"alone, and this problem's constants do not say that it has them. Give {method.step_name} as a "
        f"number, or {name}=None for full gradients, or take DASHAPAGE, which needs no bounded variance."
    )
