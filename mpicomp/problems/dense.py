"""Classification of dense images: the workers' shards, and the cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.errors import unknown
from mpicomp.data import SPLITS, Images, load_images, rows_of
from mpicomp.problems.base import Array, Problem

Labels = NDArray[np.uint8]


@dataclass(frozen=True)
class Classification(Problem):
    """Base of the classification problems.

    ``data`` is a name for ``load_images``, ``split`` one for ``rows_of``.  f is the unweighted mean of the
    f_i, even if shards differ in size.
    """

    data: str
    split: str = "shuffled"

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown("split", self.split, SPLITS)

    def images(self) -> Images:
        return load_images(self.data)

    def fingerprint(self) -> str:
        return self.images().sha256

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
