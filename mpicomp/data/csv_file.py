"""CSV files with a header line: one column is y, all others are numeric features."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError, unknown
from mpicomp.data.libsvm import opened

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}


def read_csv(path: Path, column: str | None) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """X, float64 (m, d), and y, the column ``column``: float64 (m,), or texts if one is no number.

    If ``column`` is None, all columns are features and y is None.  Raises ``DataError`` naming the file, the
    line and the column.
    """
    with opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
        try:
            return _read(path, csv.reader(lines), column)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error}. Save it as UTF-8.") from None
        except csv.Error as error:
            raise DataError(f"{path} is no CSV file: {error}. Get the file again.") from None


def _read(path: Path, reader: Any, column: str | None) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    header = _header(path, reader, column)
    place = None if column is None else header.index(column)
    features = [name for name in header if name != column]
    cells, labels = array("d"), []
    for fields in reader:
        where = f"{path}, line {reader.line_num}"
        if not fields:
            continue
        if len(fields) != len(header):
            raise DataError(
                f"{where}: {len(fields)} fields, and the header names {len(header)} columns. Put texts that "
                "hold a comma in quotes."
            )
        if place is not None:
            label = fields.pop(place).strip()
            if label.lower() in MISSING:
                raise _missing(where, header[place], label)
            labels.append(label)
        try:
            numbers = array("d", map(float, fields))
        except ValueError:
            raise _fault(where, features, fields) from None
        if not all(map(isfinite, numbers)):
            raise _fault(where, features, fields)
        cells.extend(numbers)
    if not cells:
        raise DataError(f"{path} has no line after its header; expected one for each row.")
    X = np.frombuffer(cells).reshape(-1, len(features))
    return X, None if place is None else _numbers_or_texts(labels)


def _header(path: Path, reader: Any, column: str | None) -> list[str]:
    """The names of the columns."""
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise DataError(f"{path} starts with no line of names; expected the names of its columns.")
    if all(_number(name) is not None for name in header):
        raise DataError(
            f"{path} starts with the numbers {_listed(header)}; expected the names of its columns. Add a "
            "header line."
        )
    for name in header:
        if header.count(name) > 1:
            raise DataError(f"{path} has two columns named {name!r}. Rename one of them.")
    if column is not None and column not in header:
        raise DataError(f"{path}: {unknown('column', column, header)} Commas separate the names.")
    if len(header) <= (column is not None):
        raise DataError(f"{path} has no column of features. Its columns: {_listed(header)}.")
    return header


def _fault(where: str, features: Sequence[str], fields: Sequence[str]) -> DataError:
    """The error for the first field that is no finite number."""
    name, text = next(
        (name, text.strip())
        for name, text in zip(features, fields, strict=True)
        if (number := _number(text)) is None or not isfinite(number)
    )
    if text.lower() in MISSING:
        return _missing(where, name, text)
    if _number(text) is not None:
        return DataError(f"{where}, column {name!r}: {text}; allowed: finite numbers. Drop the line.")
    return DataError(
        f"{where}: column {name!r} is not numeric, it holds {text[:40]!r}. Encode it as numbers, as "
        "pandas.get_dummies does, or drop the column."
    )


def _missing(where: str, name: str, text: str) -> DataError:
    return DataError(
        f"{where}, column {name!r}: the value is missing, found {text!r}. Drop the line, or fill the "
        "value in."
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _numbers_or_texts(labels: Sequence[str]) -> NDArray[Any]:
    numbers = [_number(label) for label in labels]
    return np.array(labels) if None in numbers else np.array(numbers, dtype=np.float64)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(islice(names, 10)) + (", ..." if len(names) > 10 else "")
