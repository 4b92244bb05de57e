"""Refuse labels that become equal as numbers, though they are not: long integers, and 007 beside 7."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError

PADDED = re.compile(r"[+-]?0\d", flags=re.ASCII)  # as codes are written, and numbers are not


def refuse_padded(where: str, labels: Sequence[str], numbers: NDArray[np.float64]) -> None:
    """Raise ``DataError`` if a text with zeros in front is the number of another text, as 007 and 7 are.

    ``numbers`` are the ``labels``, shape (m,).
    """
    if not any(map(PADDED.match, labels)):
        return
    texts: dict[float, str] = {}
    for label, number in zip(labels, numbers.tolist(), strict=True):
        other = texts.setdefault(number, label)
        if other != label and (PADDED.match(label) or PADDED.match(other)):
            raise DataError(
                f"{where}: the labels {other} and {label} are one number. If they are two classes, put a "
                "letter before each label; if they are one, write it without zeros in front."
            )


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
