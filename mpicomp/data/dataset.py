"""A binary classification set: a sparse matrix of rows a_j and labels y_j in {-1, +1}."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import DataError


def content_sha256(head: tuple[object, ...], *arrays: NDArray[Any]) -> str:
    """The SHA-256 that names a data set: of ``repr(head)`` and of the bytes of its arrays."""
    digest = hashlib.sha256(repr(head).encode())
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Dataset:
    """``X`` is CSR float64 of shape (m, d) with sorted indices, ``y`` float64 of shape (m,); read-only.

    ``sha256`` names the content, the four arrays and the shape; it does not depend on the file.
    """

    name: str
    X: scipy.sparse.csr_array
    y: NDArray[np.float64]
    sha256: str

    @staticmethod
    def of(name: str, X: scipy.sparse.csr_array, labels: NDArray[np.float64]) -> Dataset:
        """A data set from arrays in memory; the smaller label becomes -1, the larger one +1.

        Raises ``DataError`` unless there are exactly two labels.
        """
        classes = np.unique(labels)
        if len(classes) != 2:
            found = ", ".join(f"{c:g}" for c in classes[:10]) + (", ..." if len(classes) > 10 else "")
            raise DataError(
                f"{name} has {len(classes)} label classes ({found}); these problems need exactly two. "
                "Keep two of the classes, or merge them into two."
            )
        y = np.where(labels == classes[1], 1.0, -1.0)
        if max(X.nnz, *X.shape) < 2**31:  # half the memory traffic of a product with X
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        arrays = X.data, X.indices, X.indptr, y
        for array in arrays:
            array.flags.writeable = False
        return Dataset(name, X, y, content_sha256(X.shape, *arrays))

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d): the numbers of rows and of features."""
        m, d = self.X.shape
        return m, d
