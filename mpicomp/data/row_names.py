"""Columns that name or number the rows: no features, though their entries are numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from mpicomp.base.errors import DataError

NAMELESS = re.compile(
    r"(Unnamed: \d+(\.\d+)*)?", flags=re.IGNORECASE
)  # as pandas names a column without name
KEYS = {"id", "index", "level_0", "row", "row_id", "rowid", "row_names", "rownames"}


def refuse_nameless(where: str, names: Iterable[Any]) -> None:
    """Raise ``DataError`` if a column has no name, as ``DataFrame.to_csv`` writes row numbers."""
    for place, name in enumerate(names, start=1):
        if NAMELESS.fullmatch(str(name)):
            raise DataError(
                f"{where}: column {place} has no name ({str(name)!r}), as row numbers, which are no feature. "
                "Leave it out, as DataFrame.to_csv(.., index=False) does, or name it."
            )


def refuse_keys(where: str, names: Iterable[Any], X: Any) -> None:
    """Raise ``DataError`` if a column of X is named as ``KEYS`` and holds a different integer in each row."""
    for place, name in enumerate(names):
        if str(name).lower() in KEYS:
            column = np.asarray(X[:, place], dtype=np.float64)
            if (column == np.floor(column)).all() and len(np.unique(column)) == len(column) > 1:
                raise DataError(
                    f"{where}: column {str(name)!r} holds another integer in each row, so it names the rows "
                    "and is no feature. Leave it out, or rename it if it is one."
                )
