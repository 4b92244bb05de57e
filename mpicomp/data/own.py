"""Make a data set of a user's own arrays: copy and check them, and hash their content by SHA-256."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, DataError
from mpicomp.base.given_arrays import as_array, refuse_mask
from mpicomp.base.units import one_line, shortened
from mpicomp.data.dataset import Dataset, Named, content_sha256
from mpicomp.data.exact_labels import refuse_merged
from mpicomp.data.images import Rows
from mpicomp.data.row_names import refuse_keys, refuse_nameless

OWN = "the given data"
DENSE_BYTES = 2**32  # a sparse X is stored densely up to this size


def own_dataset(data: Any, real_targets: bool = False, name: str = OWN) -> Dataset:
    """The data set ``name`` of a pair (X, y): X an array or sparse matrix of shape (m, d), y of shape (m,).

    The arrays are copied.  With ``real_targets`` y is unchanged; else y must have exactly two values: the
    smaller becomes -1, the larger +1.  Raises ``ConfigError`` unless ``data`` is a pair, and ``DataError``
    if shapes, types or values cannot be used.
    """
    X, y = _pair(data)
    rows = scipy.sparse.csr_array(_matrix(X), dtype=np.float64)
    if not rows.data.any():
        raise DataError("X holds no value other than 0, so f does not depend on x. Check how X was made.")
    labels = _labels(y, rows.shape[0])
    if not real_targets:
        values, codes = np.unique(labels, return_inverse=True)
        if len(values) != 2:  # ``Dataset.of`` says this for numbers
            shown = ", ".join(map(str, values[:10])) + (", ..." if len(values) > 10 else "")
            raise DataError(
                f"{name} has {len(values)} label classes ({shown}); these problems need exactly two. "
                "Keep two of the classes, or take softmax or mlp for more, or least_squares for real targets."
            )
        return Dataset.of(name, rows, codes.astype(np.float64))
    if labels.dtype.kind not in "biuf":
        raise DataError(
            f"y is of type {'text' if labels.dtype == object else labels.dtype}; least squares needs numbers."
        )
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
        y = _labels(y, len(dense))
        values, codes = np.unique(y, return_inverse=True)
        if y.dtype.kind == "f" and 2 * len(values) > len(y) and (between := values[values % 1 != 0]).size:
            raise DataError(
                f"y holds {len(values)} different numbers in {len(y)} rows, such as {between[0]:g}: they are "
                "no classes. Take least_squares for real targets, or number the classes 0, 1, 2, ..."
            )
        labels = codes.astype(np.int64)
        dense.flags.writeable = labels.flags.writeable = False
        return ClassRows(dense, labels, len(values), content_sha256(dense.shape, dense, labels))

    @staticmethod
    def unlabelled(X: Any) -> ClassRows:
        """The rows of X, all in class 0, made as by ``of``.  Of a pair (X, y), y is not used."""
        if isinstance(X, tuple):
            X, _ = _pair(X)
        X = _matrix(X)
        return ClassRows.of((X, np.zeros(X.shape[0])))

    def intensities(self, rows: Rows) -> NDArray[np.float64]:
        """The rows ``rows``, shape (number of rows, p)."""
        return np.asarray(self.X)[rows]


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, tuple) or len(data) != 2:
        raise ConfigError(
            f"data is of type {type(data).__name__}; allowed: the name of a data set, the path of a file, or "
            "a pair (X, y) of arrays."
        )
    _refuse_other_index("X", data[0], "y", data[1], "labels")
    return data


def refuse_split_of_other_index(data: Any, split: Any) -> None:
    """Raise ``DataError`` if ``split`` and ``data``, X or a pair (X, y), have different indices."""
    for name, one in zip("Xy", data if isinstance(data, tuple) else (data,), strict=False):
        _refuse_other_index(name, one, "split", split, "workers")


def _refuse_other_index(name: str, one: Any, name_of_other: str, other: Any, what: str) -> None:
    """Raise ``DataError`` if ``one`` and ``other``, of pandas and of one length, have different indices.

    Row i is paired with entry i of ``other``, whatever the index says, so rows would get wrong entries.
    ``name``, ``name_of_other`` and ``what``, for the entries of ``other``, are their names in the message.
    """
    rows: Any = getattr(one, "index", None)
    entries: Any = getattr(other, "index", None)
    if not (hasattr(rows, "equals") and hasattr(entries, "equals")) or len(rows) != len(entries):
        return
    if not (rows.equals(entries) or rows.astype(object).equals(entries.astype(object))):  # of two types
        raise DataError(
            f"{name} and {name_of_other} have different indices, and rows are paired with {what} by "
            f"their places. Give {name_of_other}.loc[{name}.index], or {name_of_other}.to_numpy() if the "
            "places are right."
        )


def _matrix(X: Any) -> Any:
    """X as a CSR matrix of float64 or an array, of real, finite numbers with two axes."""
    names = getattr(X, "columns", ())  # of a DataFrame
    refuse_nameless("X", names)
    if scipy.sparse.issparse(X):
        refuse_mask("X", getattr(X, "data", None), DataError)
    else:
        X = _numbers("X", as_array("X", X, DataError))
        if X.dtype == object and X.ndim == 2:
            for row, column in np.argwhere(_missing(X))[:1]:
                raise DataError(f"X[{row}, {column}] is missing. Drop the row, or fill the value in.")
    if X.dtype.kind not in "biuf":
        columns = zip(names, X.T if X.ndim == 2 else (), strict=False)
        others = [name for name, column in columns if not _are_real(column)]
        which = f" These are: {shortened(others, one_line)}." if others else ""
        raise DataError(
            f"X is of type {X.dtype}; allowed: real numbers. Encode other columns as numbers.{which}"
        )
    if X.ndim != 2 or 0 in X.shape:
        raise DataError(
            f"X has the shape {X.shape}; allowed: (rows, columns), at least 1 of each. Reshape it, as in "
            "X.reshape(len(X), -1)."
        )
    if scipy.sparse.issparse(X):
        X = _csr(X)
        wrong = np.flatnonzero(~np.isfinite(X.data))[:1]
        places = [(np.searchsorted(X.indptr, k, "right") - 1, X.indices[k], X.data[k]) for k in wrong]
    else:
        places = [(j, k, X[j, k]) for j, k in np.argwhere(~np.isfinite(X))[:1]]
    for row, column, value in places:
        raise DataError(
            f"X[{row}, {column}] is {value}; allowed: finite numbers. Drop the row, or fill the value in."
        )
    refuse_keys("X", names, X)
    return X


def _csr(X: Any) -> Any:
    """A copy of the sparse matrix X in CSR format, float64, without duplicates and stored zeros.

    Raises ``DataError`` if an index is out of bounds, where scipy would read and write other memory.
    """
    try:
        X = X.copy()  # for ``check_format`` shortens the arrays
        if X.format == "coo":
            # Converted first: scipy sums duplicates in their own type, where 100 + 100 is -56 in int8.
            X = scipy.sparse.coo_array((X.data.astype(np.float64), X.coords), shape=X.shape)
        elif X.format in ("csr", "csc", "bsr"):
            if (X.indptr[1:] < X.indptr[:-1]).any():  # which scipy does not look at if the last is 0
                raise ValueError("indptr must be a non-decreasing sequence")
            X.check_format()
        X = scipy.sparse.csr_array(X, dtype=np.float64)
        X.check_format()  # of lists of lists
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        raise DataError(f"X, a sparse matrix, is damaged: {error}. Check how X was made.") from None
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _labels(y: Any, m: int) -> NDArray[Any]:
    """y as an array of shape (m,) of numbers or texts without missing values; texts may be objects."""
    if scipy.sparse.issparse(y):
        raise DataError("y is sparse; allowed: an array of shape (rows,). Give y.toarray().ravel().")
    given, y = y, as_array("y", y, DataError)
    if y.shape != (m,):
        column = " Give np.ravel(y)." if y.shape == (m, 1) else ""
        raise DataError(f"y has the shape {y.shape} and X has {m} rows; allowed: y of shape ({m},).{column}")
    if y.dtype.kind in "fU" and not hasattr(given, "dtype"):
        y = np.array(given, dtype=object)  # of [1, "1"] numpy makes texts, of [2**53 + 1, 2.0] doubles
    if y.dtype == object and all(isinstance(label, str) for label in y):
        return y
    given, y = y, _numbers("y", y)
    if y is not given:
        refuse_merged("y", given, y)
    if y.dtype.kind not in "biufU":
        raise DataError(
            f"y is of type {y.dtype}; allowed: real numbers, or texts without a missing one. Drop the rows, "
            "or give [str(label) for label in y], where a missing one is a text too."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        j = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"y[{j}] is {y[j]}; allowed: finite labels. Drop that row.")
    return y


@np.vectorize
def _missing(entry: Any) -> bool:
    """Whether an entry is None, NaN, or one of the values that pandas has for a missing one."""
    return entry is None or (not isinstance(entry, str) and str(entry) in ("nan", "NaT", "<NA>"))


def _are_real(entries: NDArray[Any]) -> bool:
    """Whether all entries are real numbers, which durations are to Python."""
    if entries.dtype.kind == "c":
        return not entries.imag.any()
    return all(isinstance(one, Real | np.bool_) and not isinstance(one, np.timedelta64) for one in entries)


def _numbers(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """``array``, converted to float64 if it holds Python numbers (as of a DataFrame) or longer floats."""
    if array.dtype == object and _are_real(array.ravel()):
        try:
            return array.astype(np.float64)
        except OverflowError:
            raise DataError(f"{name} holds an integer beyond double precision.") from None
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # an infinity is refused
            return array.astype(np.float64)
    return array
