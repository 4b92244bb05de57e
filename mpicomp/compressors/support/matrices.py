"""Compressors that read a vector as a matrix, and the shape of that matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from mpicomp.base.checks import check_positive_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors.base import Contractive


class MatrixCompressor(Contractive):
    """A compressor that reads the vector as one matrix, row after row.

    rows  None: the shape of the part of x, its first axis by all others.  A part with fewer than 2 axes is a
          single row.
    """

    rows: int | None

    def __post_init__(self) -> None:
        if self.rows is not None:
            check_positive_integer("rows", self.rows)

    def bound(self, parts: Parts) -> Self:
        if self.rows is not None:
            return self
        if len(parts) > 1:
            raise ConfigError(
                f"{self} reads the vector as one matrix, and it has the parts {parts}. Give rows, or take "
                f"Layered({{}}, default={self}), which has a matrix for each part."
            )
        part = parts.parts[0]
        rows = part.shape[0] if part.is_matrix else 1
        return replace(self, rows=rows)  # type: ignore[type-var]  # subclasses are dataclasses

    def rows_of(self, d: int) -> int:
        """The number of rows.  Raises ``ConfigError`` if it is neither given nor bound."""
        if self.rows is None:
            raise ConfigError(
                f"{self} does not know the rows of the dimension d={d}. Give rows, or bind it to a part, as "
                f"Layered({{}}, default={self}) does in a run."
            )
        return self.rows


def columns_of(d: int, rows: int) -> int:
    """The number of columns, d / rows.  Raises ``ConfigError`` if ``rows`` does not divide d."""
    if d % rows:
        below = next(m for m in range(min(rows, d), 0, -1) if d % m == 0)
        above = next((m for m in range(rows, d) if d % m == 0), d)
        near = " or ".join(str(m) for m in sorted({below, above}))
        raise ConfigError(f"rows={rows} does not divide the dimension d={d}; nearest: rows={near}.")
    return d // rows
