"""Gradients on batches of samples."""

from __future__ import annotations

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.methods.parameters import BatchSize
from mpicomp.problems.objective import Objective


def gradient(f: Objective, x: Array, batch: BatchSize, key: Key) -> Array:
    """The gradient of f_i at x, shape (d,), over all samples, or over a random ``batch`` of them.

    batch  a count of samples, or a fraction of them; None for all

    The samples are a function of ``key``, so two calls with one key use the same samples.
    """
    if batch is None:
        return f.grad(x)
    return f.batch_grad(x, batch_size(batch, f.samples), key.private("batch"))


def batch_size(batch: int | float, samples: int | None) -> int:
    """The number of samples in a batch: ``batch`` itself if it is a count, else that fraction of ``samples``.

    A fraction is rounded to the nearest count, to 1 at least.  Raises ``ConfigError`` for a fraction if
    ``samples`` is None, that is unknown.
    """
    if isinstance(batch, int):
        return batch
    if samples is None:
        raise ConfigError(f"batch={batch} is a fraction of samples that are not counted; give a number.")
    return max(1, round(batch * samples))
