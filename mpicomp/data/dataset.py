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
    """The SHA-256 that identifies a data set: of ``repr(head)`` and the bytes of its arrays."""
    digest = hashlib.sha256(repr(head).encode())
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


class Named:
    """Base of the data sets: two are equal if their ``sha256`` is, and their ``repr`` is short."""

    X: Any
    sha256: str

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d): the numbers of rows and of features, of ``X`` where a class does not say otherwise."""
        m, d = self.X.shape
        return m, d

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        m, d = self.shape
        return f"<{m} x {d}, sha256 {self.sha256[:12]}>"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Named):
    """``X`` is CSR float64 of shape (m, d) with sorted indices, ``y`` float64 of shape (m,); read-only.

    ``sha256`` identifies the content (the four arrays and the shape); it does not depend on the file.
    """

    name: str
    X: scipy.sparse.csr_array
    y: NDArray[np.float64]
    sha256: str

    @staticmethod
    def of(
        name: str, X: scipy.sparse.csr_array, labels: NDArray[np.float64], real_targets: bool = False
    ) -> Dataset:
        """A data set from arrays in memory; of two labels the smaller becomes -1, the larger one +1.

        Other numbers of labels are y unchanged with ``real_targets``, and raise ``DataError`` without.
        """
        classes = np.unique(labels)
        if len(classes) != 2:
            if real_targets:
                return Dataset.made(name, X, labels)
            found = ", ".join(f"{c:g}" for c in classes[:10]) + (", ..." if len(classes) > 10 else "")
            raise DataError(
                f"{name} has {len(classes)} label classes ({found}); these problems need exactly two. "
                "Keep two of the classes, or take softmax or mlp for more, or least_squares for real targets."
            )
        return Dataset.made(name, X, np.where(labels == classes[1], 1.0, -1.0))

    @staticmethod
    def made(name: str, X: scipy.sparse.csr_array, y: NDArray[np.float64]) -> Dataset:
        """A data set with y unchanged; X and y become read-only."""
        if max(X.nnz, *X.shape) < 2**31:  # half the memory traffic of a product with X
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        arrays = X.data, X.indices, X.indptr, y
        for array in arrays:
            array.flags.writeable = False
        return Dataset(name, X, y, content_sha256(X.shape, *arrays))
