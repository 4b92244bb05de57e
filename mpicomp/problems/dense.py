"""What the problems on dense images share: a shard of images, the cross-entropy."""

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
    """What the classification problems share: images for ``load_images``, and a split for ``rows_of``.

    f is the plain mean of the f_i, whatever the sizes of the shards.
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
    """The mean over rows of log sum_c exp(z_c) - z_label, and its gradient in Z: softmax - one-hot, over m.

    Z has a row of logits for each sample.  The largest logit is subtracted first: nothing overflows.
    """
    m = kernels.put(np.arange(len(labels)))
    Z = Z - Z.max(axis=1, keepdims=True)
    E = np.exp(Z)
    S = E.sum(axis=1, keepdims=True)
    loss = np.sum(np.log(S[:, 0]) - Z[m, labels], dtype=np.float64) / len(labels)
    R = E / S
    R[m, labels] -= 1
    R /= len(labels)
    return float(loss), R
