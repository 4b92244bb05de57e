"""The shape of the matrix that a compressor reads a vector as."""

from __future__ import annotations

from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors.base import Compressor


def rows_in(parts: Parts, C: Compressor, text: str) -> int:
    """The rows of a vector with a single part: its first axis, or 1 if it has fewer than 2 axes.

    Raises ``ConfigError`` if there are more parts; it names C, and advises ``text`` for each part.
    """
    if len(parts) > 1:
        raise ConfigError(
            f"{C} reads the vector as one matrix, and it has the parts {parts}. Give rows, or take "
            f"Layered({{}}, default={text}), which has a matrix for each part."
        )
    shape = parts.parts[0].shape
    return shape[0] if len(shape) >= 2 else 1


def columns_of(d: int, rows: int) -> int:
    """The number of columns, d / rows.  Raises ``ConfigError`` if ``rows`` does not divide d."""
    if d % rows:
        below = next(m for m in range(min(rows, d), 0, -1) if d % m == 0)
        above = next((m for m in range(rows, d) if d % m == 0), d)
        near = " or ".join(str(m) for m in sorted({below, above}))
        raise ConfigError(f"rows={rows} does not divide the dimension d={d}; nearest: rows={near}.")
    return d // rows
