"""Gradients on batches of samples."""

from __future__ import annotations

from mpicomp.base.errors import ConfigError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.methods.parameters import BatchSize
from mpicomp.problems.base import Objective


def gradient(f: Objective, x: Array, batch: BatchSize, key: Key) -> Array:
    """The gradient of f_i at x, or its mean over a batch: a count of samples, or a fraction of them.

    The samples follow from ``key``: the same key, the same samples, at whatever x.
    """
    if batch is None:
        return f.grad(x)
    return f.batch_grad(x, batch_size(batch, f.samples), key.private("batch"))


def batch_size(batch: int | float, samples: int | None) -> int:
    """The number of samples that ``batch``, a count or a fraction, stands for out of ``samples``."""
    if isinstance(batch, int):
        return batch
    if samples is None:
        raise ConfigError(f"batch={batch} is a fraction of samples that are not counted; give a number.")
    return max(1, round(batch * samples))
