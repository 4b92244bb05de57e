"""The size of coded index sets, beside the lower bound log2 C(d, k), and the speed of coding them."""

from __future__ import annotations

from collections.abc import Iterator
from math import lgamma, log

import numpy as np

from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.lab.bench.stopwatch import fastest

SHARES = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_SETS = 4


def wire_costs(d: int, repeats: int = 6) -> Iterator[dict[str, float | int]]:
    """Yield bits and speed for random sets of k of d positions, k/d in ``SHARES``.

    Speeds are in coordinates of the vector, d, a second.
    """
    draw = np.random.default_rng(0)
    return (_cost(d, max(1, round(share * d)), draw, repeats) for share in SHARES)


def _cost(d: int, k: int, draw: np.random.Generator, repeats: int) -> dict[str, float | int]:
    sets = [np.sort(draw.choice(d, k, replace=False)) for _ in range(_SETS)]
    coded = [encode_indices(s, d) for s in sets]
    optimum = (lgamma(d + 1) - lgamma(k + 1) - lgamma(d - k + 1)) / log(2)
    return {
        "d": d,
        "k": k,
        "bits": 8 * coded[0].size,
        "of_optimum": 8 * coded[0].size / optimum,
        "encoded_per_second": d / fastest(lambda s: encode_indices(s, d), sets * repeats),
        "decoded_per_second": d / fastest(lambda b: decode_indices(b, d, k), coded * repeats),
    }
