"""A user's own arrays as a data set: copied once, checked, and named by the SHA-256 of their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data.dataset import Dataset, Named, content_sha256
from mpicomp.data.images import Rows

OWN = "the given data"
DENSE_BYTES = 2**32  # a sparse X is stored densely up to this size


def own_dataset(data: Any, real_targets: bool = False, name: str = OWN) -> Dataset:
    """The data set ``name`` of a pair (X, y): X an array or sparse matrix of shape (m, d), y of shape (m,).

    The arrays are copied.  With ``real_targets`` y stays as it is; else y must have exactly two values: the
    smaller becomes -1, the larger +1.  Raises ``ConfigError`` unless ``data`` is a pair, and ``DataError``
    if shapes, types or values cannot be used.
    """
    X, y = _pair(data)
    rows = scipy.sparse.csr_array(_matrix(X), dtype=np.float64, copy=True)
    rows.sum_duplicates()  # also sorts the indices of each row
    if rows.nnz == 0:
        raise DataError("X holds no value other than 0, so f does not depend on x. Check how X was made.")
    labels = _labels(y, rows.shape[0])
    if not real_targets:
        values, codes = np.unique(labels, return_inverse=True)
        if len(values) != 2:  # ``Dataset.of`` says this for numbers
            shown = ", ".join(map(str, values[:10])) + (", ..." if len(values) > 10 else "")
            raise DataError(
                f"{name} has {len(values)} label classes ({shown}); these problems need exactly two. "
                "Keep two of the classes, or take softmax or mlp."
            )
        return Dataset.of(name, rows, codes.astype(np.float64))
    if labels.dtype.kind not in "biuf":
        raise DataError(f"y is of type {labels.dtype}; least squares needs numbers.")
    return Dataset.made(name, rows, labels.astype(np.float64))


@dataclass(frozen=True, eq=False, repr=False)
class ClassRows(Named):
    """Dense rows ``X``, float64 (m, p), with ``labels``, int64 (m,), from 0 to ``classes`` - 1; read-only."""

    X: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    sha256: str

    @staticmethod
    def of(data: Any) -> ClassRows:
        """The rows of a pair (X, y); the distinct values of y, sorted, become 0, 1, ...

        The arrays are copied, and a sparse X is stored densely.  Raises ``ConfigError`` unless ``data`` is a
        pair, and ``DataError`` if shapes, types or values cannot be used.
        """
        X, y = _pair(data)
        X = _matrix(X)
        if scipy.sparse.issparse(X):
            if 8 * X.shape[0] * X.shape[1] > DENSE_BYTES:
                raise DataError(
                    f"X is sparse of shape {X.shape[0]} x {X.shape[1]}, too large to be stored densely: at "
                    f"most {DENSE_BYTES // 8} entries. Keep fewer columns, or take logistic."
                )
            X = X.toarray()
        dense = np.array(X, dtype=np.float64, order="C")
        values, codes = np.unique(_labels(y, len(dense)), return_inverse=True)
        labels = codes.astype(np.int64)
        dense.flags.writeable = labels.flags.writeable = False
        return ClassRows(dense, labels, len(values), content_sha256(dense.shape, dense, labels))

    @staticmethod
    def unlabelled(X: Any) -> ClassRows:
        """The rows of X alone, as ``of``, all of one class.  Of a pair (X, y), y is not used."""
        if isinstance(X, tuple):
            X, _ = _pair(X)
        X = _matrix(X)
        return ClassRows.of((X, np.zeros(X.shape[0])))

    @property
    def shape(self) -> tuple[int, int]:
        """(m, p): the numbers of rows and of features."""
        m, p = self.X.shape
        return m, p

    def intensities(self, rows: Rows) -> NDArray[np.float64]:
        """The rows ``rows``, shape (number of rows, p)."""
        return np.asarray(self.X)[rows]


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, tuple) or len(data) != 2:
        raise ConfigError(
            f"data is of type {type(data).__name__}; allowed: the name of a data set, the path of a file, or "
            "a pair (X, y) of arrays."
        )
    return data


def _matrix(X: Any) -> Any:
    """X as a sparse matrix or an array of real, finite numbers with two axes."""
    if not scipy.sparse.issparse(X):
        X = np.asarray(X)
    if X.dtype.kind not in "biuf":
        raise DataError(f"X is of type {X.dtype}; allowed: real numbers. Encode other columns as numbers.")
    if X.ndim != 2 or 0 in X.shape:
        raise DataError(
            f"X has the shape {X.shape}; allowed: (rows, columns), at least 1 of each. Reshape it, as in "
            "X.reshape(len(X), -1)."
        )
    if scipy.sparse.issparse(X):
        X = X.tocoo()
        wrong = np.flatnonzero(~np.isfinite(X.data))
        places = [(X.row[k], X.col[k], X.data[k]) for k in wrong[:1]]
    else:
        places = [(j, k, X[j, k]) for j, k in np.argwhere(~np.isfinite(X))[:1]]
    for row, column, value in places:
        raise DataError(
            f"X[{row}, {column}] is {value}; allowed: finite numbers. Drop the row, or fill the value in."
        )
    return X


def _labels(y: Any, m: int) -> NDArray[Any]:
    """y as an array of shape (m,) without missing values."""
    y = np.asarray(y)
    if y.shape != (m,):
        raise DataError(f"y has the shape {y.shape} and X has {m} rows; allowed: y of shape ({m},).")
    if y.dtype.kind not in "biufU":
        raise DataError(f"y is of type {y.dtype}; allowed: real numbers or texts, as y.astype(str) makes.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        j = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"y[{j}] is {y[j]}; allowed: finite labels. Drop that row.")
    return y
