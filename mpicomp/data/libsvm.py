"""Read the LIBSVM text format, ``label index:value index:value ...``, plain or compressed."""

from __future__ import annotations

import io
import math
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.base.extras import needed_by
from mpicomp.data.exact_labels import refuse_merged
from mpicomp.data.opening import opened

BLOCK = 2**20  # bytes that are read and looked through at one time
EXPECTED = "expected `label index:value ...` with indices from 1 upwards, ascending, and finite values"
FROM_ZERO = (
    "index 0, so the file counts from 0. Add 1 to every index, as "
    "sklearn.datasets.dump_svmlight_file(X, y, file, zero_based=False) does"
)


class _Watched(io.RawIOBase):
    """A file that notes whether an underscore was among the bytes read."""

    underscore = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        self.underscore |= b"_" in bytes(buffer[:count])
        return count


@contextmanager
def _text(path: Path) -> Iterator[Any]:
    """The opened file, after its byte order mark."""
    with opened(path) as file:
        if file.peek(3)[:3] == BOM_UTF8:
            file.read(3)
        yield file


def read_libsvm(
    path: str | Path, features: int | None = None
) -> tuple[scipy.sparse.csr_array, NDArray[np.float64]]:
    """Rows and labels of a LIBSVM file: CSR float64 (m, d) with sorted indices, and float64 (m,).

    ``features`` is d; if it is None, d is the largest index in the file.  A query id, ``qid:3`` after the
    label, is ignored.  Raises ``DataError`` that names the file and, if there is one, the faulty line.
    """
    # Imported here because the import is slow, and a cached set does not need it.
    with needed_by("reading LIBSVM files", "lab"):
        from sklearn.datasets import load_svmlight_file

    path = Path(path)
    with _text(path) as file:
        watched = _Watched(file)
        try:
            X, labels = load_svmlight_file(
                io.BufferedReader(watched, BLOCK), n_features=features, zero_based=False
            )
        except (ValueError, OverflowError) as error:
            raise _first_fault(path) or DataError(f"{path}: {error}; {EXPECTED}.") from error
    # Python reads 1_0 as 10, but in a file it is no number.
    if watched.underscore and (fault := _first_fault(path)):
        raise fault
    if not (np.isfinite(X.data).all() and np.isfinite(labels).all()):
        raise _first_fault(path) or DataError(f"{path}: a value is not finite; {EXPECTED}.")
    if not X.data.any():
        raise DataError(f"{path} holds {len(labels)} rows and no values other than 0; {EXPECTED}.")
    if (np.abs(labels) >= 2**53).any():
        with _text(path) as file:
            fields = [line.split(b"#")[0].split() for line in file]
        refuse_merged(str(path), [line[0].decode() for line in fields if line], labels)
    X.sort_indices()
    return scipy.sparse.csr_array(X), labels


def _first_fault(path: Path) -> DataError | None:
    """The error for the first faulty line, found line by line, slowly; None if all lines are right."""
    with _text(path) as file:
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
    for field in fields[2 if fields[1:2] and fields[1].startswith(b"qid:") else 1 :]:
        index, colon, value = field.partition(b":")
        if not (colon and index.removeprefix(b"+").isdigit() and _is_finite(value)):
            return f"found {_shown(field)}"
        digits = index.lstrip(b"+0") or b"0"
        if len(digits) > 10 or int(digits) >= 2**31:  # int refuses very long texts
            return f"index {digits[:40].decode()} exceeds 2^31 - 1"
        if int(digits) <= previous:
            return f"index {int(digits)} after {previous}" if previous else FROM_ZERO
        previous = int(digits)
    return None


def _is_finite(text: bytes) -> bool:
    try:
        return b"_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


def _shown(field: bytes) -> str:
    return repr(field[:40].decode(errors="replace"))
