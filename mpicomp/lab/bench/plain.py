"""Compressors written plainly in numpy, as a baseline for the kernels.

They use numpy's random generator and 32-bit integers for indices; each returns the arrays it would send.
"""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import resolve_count
from mpicomp.compressors import (
    Dithering,
    HardThreshold,
    Natural,
    PermK,
    RandK,
    Sign,
    TopK,
)

Parts = tuple[np.ndarray, ...]


def plain(C: object, x: Array, n: int, draw: np.random.Generator) -> Parts | None:
    """The arrays that C sends of x for one of n workers, in plain numpy; None without a plain version.

    The layout of the bytes differs from that of C's messages.
    """
    match C:
        case Sign():
            return np.array([np.abs(x).mean()]), np.packbits(x < 0)
        case Natural():
            fraction, exponent = np.frexp(np.abs(x))
            up = draw.random(x.size, dtype=x.dtype) < 2 * fraction - 1
            return np.packbits(x < 0), (exponent + 126 + up).astype(np.uint8)
        case Dithering(s=7):
            norm = np.abs(x).max() if C.p == "inf" else np.linalg.norm(x)
            level = np.floor(np.abs(x) * (7 / norm) + draw.random(x.size, dtype=x.dtype))
            return np.array([norm]), _halves((7 + np.copysign(level, x)).astype(np.uint8))
        case TopK() | RandK(layout="uniform"):
            k = resolve_count(C.k, x.size)
            if isinstance(C, RandK):
                return (x[draw.choice(x.size, k, replace=False)],)
            return _sparse(x, np.argpartition(np.abs(x), -k)[-k:])
        case HardThreshold():
            return _sparse(x, np.flatnonzero(np.abs(x) >= C.lam))
        case PermK(layout="uniform"):
            return (x[draw.permutation(x.size)[: x.size // n]],)
    return None


def _sparse(x: Array, kept: np.ndarray) -> Parts:
    return kept.astype(np.int32), x[kept]


def _halves(symbols: Bytes) -> np.ndarray:
    """Pack symbols of 4 bits, two in a byte."""
    even = np.append(symbols, np.uint8(0)) if symbols.size % 2 else symbols
    return even[::2] | even[1::2] << 4
