"""Refuse columns that only name or number the rows, and are no features, though they hold numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError

# Names that pandas (with one or several lines of names) and janitor give to a column without a name.
NAMELESS = re.compile(r"(Unnamed: \d+(\.\d+)*(_level_\d+)?|unnamed_\d+)*", flags=re.IGNORECASE)
KEYS = re.compile(
    r"(.*[_ .-])?id|(?-i:.*[a-z](Id|ID))|"  # patient_id, PassengerId, customerID; not acid
    r"index|level_\d+|__index_level_\d+__|row|rowid|row_?names|row_?nr|row_?num(ber)?",
    flags=re.IGNORECASE,
)
# Names that R, readr, tibble and data.table give to row numbers.  Features have them too: the values decide.
COUNTED = re.compile(r"X\.?1?|V1|\.\.\.1|(?i:no\.?|nr\.?|s\.? ?no\.?|sr\.? ?no\.?|#|none|nan|<na>)")


def _text(name: Any) -> str:
    """The name of a column without invisible signs; a tuple, as of several lines of names, as one text."""
    text = "".join(map(str, name)) if isinstance(name, tuple) else str(name)
    return text.strip("\u200b\ufeff\u00a0 ")


def refuse_nameless(where: str, names: Iterable[Any]) -> None:
    """Raise ``DataError`` if a column has no name, as ``DataFrame.to_csv`` writes row numbers."""
    for place, name in enumerate(names, start=1):
        if NAMELESS.fullmatch(_text(name)):
            raise DataError(
                f"{where}: column {place} has no name ({str(name)!r}), as row numbers, which are no feature. "
                "Leave it out, as DataFrame.to_csv(.., index=False) does, or name it."
            )


def refuse_keys(where: str, names: Iterable[Any], X: Any) -> None:
    """Raise ``DataError`` if a column of X has a name in ``KEYS`` or ``COUNTED`` and its values fit.

    For ``KEYS`` they fit if each row holds another integer.  For ``COUNTED`` they fit if they count all rows,
    at least 3, from 0 or 1, and X has other columns.
    """
    names = list(names)
    for place, name in enumerate(names):
        key, counted = KEYS.fullmatch(_text(name)), COUNTED.fullmatch(_text(name))
        if not (key or counted):
            continue
        column = np.asarray(X[:, place], dtype=np.float64)
        if key and (column == np.floor(column)).all() and len(np.unique(column)) == len(column) > 1:
            found = "holds another integer in each row, so it names the rows"
        elif counted and len(names) > 1 and len(column) > 2 and _counts(column):
            found = "counts the rows"
        else:
            continue
        raise DataError(
            f"{where}: column {str(name)!r} {found} and is no feature. Leave it out, or rename it if it is "
            "one."
        )


def _counts(column: NDArray[np.float64]) -> bool:
    """Whether the column is 0, 1, 2, ... or 1, 2, 3, ..."""
    return column[0] in (0, 1) and np.array_equal(column - column[0], np.arange(len(column)))
