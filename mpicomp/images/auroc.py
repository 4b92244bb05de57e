"""The area under the receiver operating characteristic: how well a score tells two sets apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mpicomp.base.errors import DataError


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """P(s > t) + P(s = t) / 2, for s drawn from the scores ``inside`` and t from those ``outside``.

    It is 1 if every score inside is above every score outside, and 1/2 for scores without information.  The
    counts come from one sort: m log m steps for m scores.  Infinite scores are allowed.  Raises ``DataError``
    if a set is empty, has another shape than (m,), or has a NaN.

    Source: Mann, Whitney, "On a test of whether one of two random variables is stochastically larger than
    the other", Annals of Mathematical Statistics 1947.
    """
    s, t = _scores("inside", inside), np.sort(_scores("outside", outside))
    below, up_to = np.searchsorted(t, s, side="left"), np.searchsorted(t, s, side="right")
    return int(below.sum() + up_to.sum()) / (2 * s.size * t.size)


def _scores(name: str, scores: ArrayLike) -> np.ndarray:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size or np.isnan(array).any():
        raise DataError(
            f"the scores {name} have shape {array.shape} and {int(np.isnan(array).sum())} NaN; allowed: at "
            "least 1 number, in one axis, without NaN. Leave NaN out."
        )
    return array
