"""The bytes of a round's messages, from a method, d and n alone."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from mpicomp.base.checks import resolve_count
from mpicomp.codecs.sparse import sparse_nbytes
from mpicomp.compressors import Lossless, QuantizedTopK, TopK
from mpicomp.compressors.support.sparsifier import Sparsifier
from mpicomp.methods import LBFGS, MARINA, Method


def message_nbytes(method: Method, d: int, n: int, blocks: int = 1) -> tuple[float, float]:
    """The expected bytes of a worker's message and of the broadcast, in a round after the first.

    The mean of sparse messages is taken to have the coordinates of all of them, the most that it can have;
    ``is_bound`` says whether that matters.  In several blocks compressors act on each block alone.
    """
    entries = d + isinstance(method, LBFGS)  # L-BFGS sends a number of its line search, too
    cuts = [b * entries // blocks for b in range(blocks + 1)]
    sizes = [_of_block(method, cuts[b + 1] - cuts[b], n) for b in range(blocks)]
    return sum(up for up, _ in sizes), sum(down for _, down in sizes)


def is_bound(method: Method) -> bool:
    """Whether the bytes of the broadcast depend on the data, so that ``message_nbytes`` gives a bound."""
    return isinstance(getattr(method, "down", None), Lossless)


def keeps_few(method: Method) -> bool:
    """Whether a compressor of the method keeps k coordinates: in a block, k of the block's."""
    values = (getattr(method, f.name) for f in fields(method))
    return any(isinstance(value, TopK | QuantizedTopK | Sparsifier) for value in values)


def _of_block(method: Any, d: int, n: int) -> tuple[float, float]:
    """The bytes of a message and of the broadcast of d coordinates, by themselves."""
    C = getattr(method, "Q", getattr(method, "C", method.down))
    up = C.mean_nbytes(d, n)
    if isinstance(method, MARINA):
        p = method.defaults(d, n)["p"]
        up = p * method.sync.mean_nbytes(d, n) + (1 - p) * up
    if not is_bound(method):
        return up, method.down.mean_nbytes(d, n)
    kept = resolve_count(C.k, d) if isinstance(C, TopK | QuantizedTopK) else d
    sparse = 1 + sparse_nbytes(d, min(n * kept, d), method.down.values)
    return up, min(sparse, method.down.most_nbytes(d))
