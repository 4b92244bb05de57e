"""Refuse integer labels that become equal when they are rounded to double precision."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError


def refuse_merged(where: str, given: Sequence[Any] | NDArray[Any], numbers: NDArray[np.float64]) -> None:
    """Raise ``DataError`` if two different integers of ``given`` (texts or numbers) are equal in ``numbers``.

    ``numbers`` are the same labels in double precision, shape (m,); ``where`` begins the message.
    """
    exact: dict[float, int] = {}
    for k in np.flatnonzero(np.isfinite(numbers) & (np.abs(numbers) >= 2**53)).tolist():
        label = int(Decimal(given[k]) if isinstance(given[k], str) else given[k])
        other = exact.setdefault(numbers[k], label)
        if other != label:
            raise DataError(
                f"{where}: the labels {other} and {label} are one number in double precision. Number the "
                "classes 0, 1, 2, ..., or put a letter before each label."
            )
