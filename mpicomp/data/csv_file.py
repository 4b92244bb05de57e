"""Read CSV and TSV files with a header line: one column is y, all others are numeric features."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError, unknown
from mpicomp.base.units import shortened
from mpicomp.data.exact_labels import refuse_merged, refuse_padded
from mpicomp.data.opening import opened
from mpicomp.data.row_names import refuse_keys, refuse_nameless

MISSING = {"", "?", "na", "n/a", "nan", "null", "none", "nat", "<na>", "#na", "#n/a", "#n/a n/a", "-nan"}
MISSING |= {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}  # as Windows prints what is no number
SIGNS = re.compile(r"[,'\s_%$€£¥]")  # beside the digits of numbers as people write them
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?![\d.])|\d{1,2}:\d\d\b")
BOOLEANS = {"false": 0.0, "true": 1.0}


def read_csv(
    path: Path, column: str | None, tabs: bool = False
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """X, float64 (m, d), and y, the column ``column``: float64 (m,), or texts if some label is no number.

    Fields are separated by commas, or with ``tabs`` by tabs.  True and False are read as 1 and 0.  If
    ``column`` is None, all columns are features and y is None.  Raises ``DataError`` that names the file, the
    line and the column.
    """
    with opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
        # Not strict, a quote that is never closed would take all lines after it into one field.
        reader = csv.reader(lines, delimiter="\t" if tabs else ",", skipinitialspace=True, strict=True)
        try:
            return _read(path, reader, column, "Tabs" if tabs else "Commas")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error}. Save it as UTF-8.") from None
        except csv.Error as error:
            raise DataError(
                f"{path}, line {reader.line_num}: this is no CSV: {error}. Look for a quote without its "
                "other one."
            ) from None


def _read(
    path: Path, reader: Any, column: str | None, separators: str
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    header = _header(path, reader, column, separators)
    place = None if column is None else header.index(column)
    features = [name for name in header if name != column]
    cells, labels, booleans = array("d"), [], set()

    def here() -> str:
        return f"{path}, line {reader.line_num}"

    for fields in reader:
        if not fields:
            continue
        if len(fields) != len(header):
            raise DataError(
                f"{here()}: {len(fields)} fields, and the header names {len(header)} columns. Leave "
                "row names out, and put texts that hold a comma in quotes."
            )
        if place is not None:
            label = fields.pop(place).strip()
            if label.lower() in MISSING:
                raise _missing(here(), header[place], label)
            labels.append(label)
        try:
            numbers = array("d", map(float, fields))
        except ValueError:
            values = [BOOLEANS.get(text.strip().lower(), text) for text in fields]
            booleans |= {k for k, value in enumerate(values) if not isinstance(value, str)}
            try:
                numbers = array("d", map(float, values))
            except ValueError:
                raise _fault(here(), features, fields) from None
        # Python reads 1_0 as 10, but in a file it is a text.  A sum that is finite has finite terms.
        if "_" in "".join(fields) or (not isfinite(sum(numbers)) and not all(map(isfinite, numbers))):
            raise _fault(here(), features, fields)
        cells.extend(numbers)
    if not cells:
        raise DataError(f"{path} has no line after its header; expected one for each row.")
    X = np.frombuffer(cells).reshape(-1, len(features))
    for k in booleans:
        if not np.isin(X[:, k], (0, 1)).all():
            raise DataError(
                f"{path}: column {features[k]!r} holds True or False beside other numbers. Encode it as "
                "numbers."
            )
    refuse_keys(str(path), features, X)
    return X, None if place is None else _numbers_or_texts(f"{path}, column {header[place]!r}", labels)


def _header(path: Path, reader: Any, column: str | None, separators: str) -> list[str]:
    """The names of the columns."""
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise DataError(f"{path} starts with no line of names; expected the names of its columns.")
    if all(_number(name) is not None for name in header):
        raise DataError(
            f"{path} starts with the numbers {_listed(header)}; expected the names of its columns. Add a "
            "header line."
        )
    refuse_nameless(str(path), header)
    for name, count in Counter(header).items():
        if count > 1:
            raise DataError(f"{path} has two columns named {name!r}. Rename one of them.")
    if len(header) == 1 and ";" in header[0]:
        raise DataError(
            f"{path} is separated by semicolons: write it with commas, and with a point in numbers, as "
            "DataFrame.to_csv does."
        )
    if column is not None and column not in header:
        names = [" ".join(name.split()) for name in header]  # a name in quotes may have lines
        raise DataError(f"{path}: {unknown('column', column, names)} {separators} separate the names.")
    if len(header) <= (column is not None):
        raise DataError(f"{path} has no column of features. Its columns: {_listed(header)}.")
    return header


def _fault(where: str, features: Sequence[str], fields: Sequence[str]) -> DataError:
    """The error for the fields of a line that are no finite numbers: the first, then the names of others."""
    (name, text), *others = (
        (name, text.strip())
        for name, text in zip(features, fields, strict=True)
        if text.strip().lower() not in BOOLEANS
        and ((number := _number(text)) is None or not isfinite(number))
    )
    names = shortened(name for name, _ in others)
    also = f" Other columns without a finite number in this line, {len(others)}: {names}." if others else ""
    if text.lower() in MISSING:
        return _missing(where, name, text, also)
    if _number(text) is not None:
        found = f"{where}, column {name!r}: {text[:40]}"
        return DataError(f"{found}; allowed: finite numbers. Drop the line.{also}")
    if _number(SIGNS.sub("", text)) is not None:
        remedy = "Write numbers without thousands separators and units, and with a point"
    elif DATE.match(text):
        remedy = "Write dates as numbers, as days since the first one, or drop the column"
    else:
        remedy = (
            "Encode it as numbers, or as columns of True and False, as pandas.get_dummies does; or drop the "
            "column"
        )
    return DataError(f"{where}: column {name!r} is not numeric, it holds {text[:40]!r}. {remedy}.{also}")


def _missing(where: str, name: str, text: str, also: str = "") -> DataError:
    return DataError(
        f"{where}, column {name!r}: the value is missing, found {text!r}. Drop the line, or fill the "
        f"value in.{also}"
    )


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _numbers_or_texts(where: str, labels: Sequence[str]) -> NDArray[Any]:
    numbers = [BOOLEANS.get(label.lower(), _number(label)) for label in labels]
    if None in numbers:
        return np.array(labels, dtype=object)  # for numpy's own texts lose a NUL at their end
    y = np.array(numbers, dtype=np.float64)
    if any(label.lower() in BOOLEANS for label in labels) and not np.isin(y, (0, 1)).all():
        raise DataError(f"{where} holds True or False beside other numbers. Encode it as numbers.")
    refuse_merged(where, labels, y)
    refuse_padded(where, labels, y)
    return y


def _listed(names: Sequence[str]) -> str:
    return ", ".join(islice(names, 10)) + (", ..." if len(names) > 10 else "")
