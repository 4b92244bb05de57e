"""Turn rows, or other records, into a pandas DataFrame; pandas is imported only when a frame is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

from mpicomp.base.extras import needed_by
from mpicomp.runtime.rows import Row

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(
    rows: Iterable[tuple[tuple[Any, ...], Any]], keys: tuple[str, ...] = (), kind: type[Any] = Row
) -> DataFrame:
    """A frame with the columns ``keys`` and the fields of the dataclass ``kind``.

    ``rows`` has a pair (values of ``keys``, a ``kind``) for each line.  Raises ``NotInstalled`` without
    pandas.
    """
    with needed_by("a frame", "frames"):
        from pandas import DataFrame
    columns = [*keys, *(f.name for f in fields(kind))]
    found = DataFrame([(*values, *astuple(row)) for values, row in rows], columns=columns)
    numbers = {f.name: float for f in fields(kind) if f.type == "float | None"}
    return found.astype(numbers)  # a column of None alone would be of objects
