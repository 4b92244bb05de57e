"""Base of the classification problems on dense images: the workers' shards, and the cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.errors import DataError
from mpicomp.data import ClassRows, Images, Split, load_images, rows_of, shard_sizes
from mpicomp.data.own import OWN
from mpicomp.problems.base import Problem
from mpicomp.problems.held_data import hold_data

Labels = NDArray[np.uint8] | NDArray[np.int64]


@dataclass(frozen=True)
class Classification(Problem):
    """Base of the classification problems.

    ``data`` is a name or path for ``load_images``, or a pair (X, y) of arrays for ``ClassRows.of``, which is
    copied; on several ranks each gives the same pair, and gradients use the rows of the rank's own workers
    only.  ``split`` is a name for ``rows_of`` or an array of each row's worker.  f is the unweighted mean of
    the f_i, even if shards differ in size.
    """

    data: Any
    split: Split = "shuffled"

    def __post_init__(self) -> None:
        hold_data(self, ClassRows, ClassRows.of)

    def images(self) -> Images | ClassRows:
        """The rows.  Raises ``DataError`` if all are of one class: the loss would be 0 for every model."""
        images = self.data if isinstance(self.data, ClassRows) else load_images(self.data)
        if images.classes < 2:
            raise DataError(f"{self.name()} has one label class; allowed: two or more. Check the labels.")
        return images

    def name(self) -> str:
        """The data's name in messages."""
        return self.data if isinstance(self.data, str) else OWN

    def fingerprint(self) -> str:
        return self.images().sha256

    def shard_sizes(self, n: int) -> list[int]:
        return shard_sizes(n, self.images().labels, self.split)

    def shard(self, i: int, n: int) -> tuple[NDArray[np.float64], Labels]:
        """The images of worker i out of n, shape (m_i, p), pixels from 0 to 1, and their labels."""
        images = self.images()
        rows = rows_of(i, n, images.labels, self.split)
        return images.intensities(rows), images.labels[rows]


def cross_entropy(Z: Array, labels: Labels) -> tuple[float, Array]:
    """The mean over rows z of Z of log sum_c exp(z_c) - z_label, and its gradient (softmax - one-hot)/m in Z.

    Z, shape (m, classes), has a row of logits for each sample.  The largest logit of each row is subtracted
    first, so that nothing overflows.
    """
    m = kernels.to_device(np.arange(len(labels)))
    Z = Z - Z.max(axis=1, keepdims=True)
    E = np.exp(Z)
    S = E.sum(axis=1, keepdims=True)
    loss = np.sum(np.log(S[:, 0]) - Z[m, labels], dtype=np.float64) / len(labels)
    R = E / S
    R[m, labels] -= 1
    R /= len(labels)
    return float(loss), R
