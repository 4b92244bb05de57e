"""Unbiased compressors up and down, and what transcriptions of both directions are given."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.compressors import Natural, PermK, RandK
from mpicomp.keys import Key
from tests.support.trajectories import gradients

BOTH = [  # up, down
    (RandK(3, values="f8"), RandK(2, values="f8")),
    (PermK(values="f8"), Natural(values="f8")),
    (Natural(values="f8"), RandK(3, layout="block", values="f8")),
    (RandK(3), Natural()),
]
every_pair = pytest.mark.parametrize(("Q", "D"), BOTH, ids=repr)


def in_rounds(problem, n):
    """The gradients as the transcriptions ask for them."""
    local = gradients(problem, n)
    return lambda i, k, x: local[i](x)


def devices(seed, n, p):
    """The workers that take part in round k, each with probability p, as Artemis draws them."""
    return lambda k: np.flatnonzero(Key(seed, k, None, n).shared("artemis/devices").uniform(n) < p).tolist()
