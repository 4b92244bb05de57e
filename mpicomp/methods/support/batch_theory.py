"""What batches of samples ask of a problem, for the theory of methods that do not reduce their variance."""

from __future__ import annotations

from mpicomp.base.errors import ConfigError
from mpicomp.methods.base import Method
from mpicomp.methods.parameters import BatchSize
from mpicomp.methods.support.stochastic import batch_size
from mpicomp.problems.base import Constants


def batch_smoothness(method: Method, c: Constants, batch: BatchSize) -> float:
    """S = L_ij/b for a ``batch`` of b samples, 0 for all samples, and 0 where a bound on the variance is known.

    With s_i the mean gradient over the batch, F = f(x) - f*, and σ*² the mean over workers of the variance of
    one sample's gradient at x*, convex f_ij have

        mean_i E |s_i - ∇f_i(x)|² ≤ 4 S F + 2 σ*²/b.

    Proof.  The variance of a mean of b samples, drawn with or without replacement, is at most 1/b of that of
    one.  ∇f_ij(x) is D_ij + ∇f_ij(x*), so its variance over j is at most 2 mean_j |D_ij|² plus twice that of
    ∇f_ij(x*).  As f_ij is convex and L_ij-smooth, |D_ij|² ≤ 2 L_ij (f_ij(x) - f_ij(x*) - ⟨∇f_ij(x*), x - x*⟩),
    whose mean over i and j is 2 L_ij F.

    Where the constants have a ``sigma``, the variance is at most σ²/b for every x, whether f is convex or not.

    Raises ``ConfigError`` where neither is known.  A step that serves the full gradient may then diverge.
    """
    if batch is None or c.sigma is not None:
        return 0.0
    if c.mu is None or not c.convex or c.L_ij is None:
        raise _refused(
            method, "a bound on the variance of a sample's gradient (sigma), or convex samples (L_ij)"
        )
    return c.L_ij / batch_size(batch, c.samples)


def require_bounded_variance(method: Method, c: Constants, batch: BatchSize, name: str = "batch") -> None:
    """Raise ``ConfigError`` unless ``batch`` is all samples, or the constants have a ``sigma``.

    Where the variance grows with the distance from x*, no step of such a method need converge, as its error
    does not vanish with the step; or its theorem has no step for this case.
    """
    if batch is not None and c.sigma is None:
        raise _refused(method, "a bound on the variance of a sample's gradient (sigma)", name)


def _refused(method: Method, needed: str, name: str = "batch") -> ConfigError:
    return ConfigError(
        f"{type(method).__name__} with {name}={getattr(method, name)} has a theory step size for {needed} in "
        f"the problem's constants, which this problem does not have. Give {method.step_name} as a number, leave "
        f"{name} out for full gradients, or take VRMARINA or DASHAPAGE, which need no such bound."
    )
