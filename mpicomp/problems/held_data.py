"""The fields ``data`` and ``split`` of a problem on rows: checked, and arrays converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpicomp.data import as_name, checked_split
from mpicomp.data.own import refuse_split_of_other_index


def hold_data(problem: Any, kind: type, made: Callable[[Any], Any]) -> None:
    """Check ``data`` and ``split``, and convert arrays in ``data`` to a data set ``kind`` by ``made``."""
    refuse_split_of_other_index(problem.data, problem.split)
    object.__setattr__(problem, "split", checked_split(problem.split))
    object.__setattr__(problem, "data", as_name(problem.data))
    if not isinstance(problem.data, str | kind):
        object.__setattr__(problem, "data", made(problem.data))
