"""The LIBSVM text format, ``label index:value index:value ...``, plain or compressed by bzip2 or gzip."""

from __future__ import annotations

import bz2
import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import DataError

EXPECTED = "expected `label index:value ...` with indices from 1 upwards, ascending, and finite values"
FROM_ZERO = (
    "index 0, so the file counts from 0. Add 1 to every index, as "
    "sklearn.datasets.dump_svmlight_file(X, y, file, zero_based=False) does"
)
OPENERS: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open}


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file opened for reading, decompressed as its suffix says.

    As a context manager; errors while reading are raised as ``DataError``.
    """
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} is truncated, damaged or unreadable: {error}. Get the file again."
        ) from error


def read_libsvm(
    path: str | Path, features: int | None = None
) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """Rows and labels of a LIBSVM file: CSR float64 (m, d) with sorted indices, and float64 (m,).

    ``features`` is d; if it is None, d is the largest index in the file.  Raises ``DataError`` naming the
    file and, if there is one, the faulty line.
    """
    # Imported here because the import is slow, and a cached set does not need it.
    from sklearn.datasets import load_svmlight_file

    path = Path(path)
    with opened(path) as file:
        try:
            X, labels = load_svmlight_file(file, n_features=features, zero_based=False)
        except (ValueError, OverflowError) as error:
            raise _first_fault(path) or DataError(f"{path}: {error}; {EXPECTED}.") from error
    if not (np.isfinite(X.data).all() and np.isfinite(labels).all()):
        raise _first_fault(path) or DataError(f"{path}: a value is not finite; {EXPECTED}.")
    if X.nnz == 0:
        raise DataError(f"{path} holds {len(labels)} rows and no values; {EXPECTED}.")
    X.sort_indices()
    return scipy.sparse.csr_array(X), labels


def _first_fault(path: Path) -> DataError | None:
    """The error for the first faulty line, found line by line, slowly; None if all lines are right."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            fault = _fault(line.split(b"#")[0].split())
            if fault:
                return DataError(f"{path}, line {number}: {fault}; {EXPECTED}.")
    return None


def _fault(fields: list[bytes]) -> str | None:
    """The fault of a line, given its fields; None if there is none."""
    if fields and not _is_finite(fields[0]):
        return f"label {_shown(fields[0])} is not a finite number"
    previous = 0
    for field in fields[1:]:
        index, colon, value = field.partition(b":")
        if not (colon and index.isdigit() and _is_finite(value)):
            return f"found {_shown(field)}"
        if int(index) <= previous:
            return f"index {int(index)} after {previous}" if previous else FROM_ZERO
        if int(index) >= 2**31:
            return f"index {int(index)} exceeds 2^31 - 1"
        previous = int(index)
    return None


def _is_finite(text: bytes) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _shown(field: bytes) -> str:
    return repr(field[:40].decode(errors="replace"))
