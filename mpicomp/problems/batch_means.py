"""Compare the mean of stochastic gradients with the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Stream
from mpicomp.problems.checked import Checked, Point, length
from mpicomp.problems.constants import Constants

SIGMAS = 6  # standard errors by which a mean may be off
DRAWN = 16  # samples of a batch, of an objective that draws new ones each time
ROUNDING = 1e-6  # relative, of constants and means


def check_batches(
    f: Checked, at: Point, streams: Callable[[int], Stream], draws: int, known: Constants | None
) -> None:
    """Check that ``batch_grad`` is a function of the stream, and in the mean the gradient.

    A batch is half of the samples: so each sample is in many of the batches, and a mean of few is normal.
    The mean may be off by six standard errors, along the gradient and in length.

    Nothing is checked of an objective without stochastic gradients.
    """
    b = DRAWN if f.f.samples is None else max(1, f.f.samples // 2)
    try:
        f.f.batch_grad(at.x.copy(), b, streams(0))
    except ConfigError:  # which says that it has none
        return
    g, first = f.grad(at), f.batch_grad(at, b, streams(0))
    _check_mean(f, at, b, g, [streams(t) for t in range(draws)])
    again = f.batch_grad(at, b, streams(0))
    if again.tobytes() != first.tobytes():
        raise f.broken(
            at,
            f"two batches of {b} from one stream give gradients {length(again - first):.3g} apart, of length "
            f"{length(first):.3g}; draw from the stream alone",
        )
    if known is not None and known.sigma is not None:
        squares = np.array([length(f.batch_grad(at, 1, streams(t)) - g) ** 2 for t in range(draws)])
        least = squares.mean() - SIGMAS * squares.std() / sqrt(draws)
        if least > known.sigma**2 * (1 + ROUNDING):
            raise f.broken(
                at,
                f"E |batch_grad(x, 1) - grad(x)|² is {squares.mean():.4g} in the mean of {draws} draws, and "
                f"sigma = {known.sigma:.4g} allows {known.sigma**2:.4g}",
            )


def _check_mean(f: Checked, at: Point, b: int, g: Array, streams: Sequence[Stream]) -> None:
    total, norm, draws = np.zeros(g.size), length(g), len(streams)
    along, squares = np.zeros(draws), np.zeros(draws)  # of the errors: the part along grad, and |error|²
    for t, stream in enumerate(streams):
        off = f.batch_grad(at, b, stream).astype(np.float64) - g
        total += off
        along[t] = np.sum(off * g) / norm if norm > 0 else 0.0
        squares[t] = np.sum(off * off)
    bias, slack = length(total / draws), max(ROUNDING, sqrt(np.finfo(g.dtype).eps)) * norm
    deviation = sqrt(max(0.0, float(squares.mean()) - bias**2) / draws)
    if abs(along.mean()) > SIGMAS * along.std() / sqrt(draws) + slack:
        raise f.broken(
            at,
            f"the mean of {draws} batches of {b} is {1 + along.mean() / norm:.4g} times grad along grad; "
            f"allowed: 1 ± {SIGMAS * along.std() / sqrt(draws) / norm:.2g}",
        )
    if bias > SIGMAS * deviation + slack:
        raise f.broken(
            at,
            f"the mean of {draws} batches of {b} is {bias:.4g} from grad, of length {norm:.4g}; allowed: "
            f"{SIGMAS * deviation:.2g}",
        )
