"""The records of a method of one's own hold the same shapes and types in every round, in fields alone.

A record of another shape or type than at the start makes checkpoints that cannot be loaded.  What a step
keeps in a record besides its fields is in no checkpoint, so a resumed run would go on without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.methods.base import Method
from mpicomp.runtime.saved import fields_of, fitting


class Kept:
    """The contents of ``records``, dataclasses by name as in a checkpoint, at the start of ``method``."""

    def __init__(self, method: Method, records: Mapping[str, Any]) -> None:
        self._method = type(method).__name__
        self._kinds, self._besides = _kinds_of(records), _besides(records)
        self._unknown = _with_nan(records)

    def check(self, records: Mapping[str, Any], every_entry: bool = False) -> None:
        """Raise ``ConfigError`` if a step has changed a shape or a type, or set more than the fields.

        NaN in a number, or in an array that began with it, is refused too, and so is a single integer below
        0.  With ``every_entry`` NaN is refused in any array; in each round this would cost too much.
        """
        try:
            for name, value in fields_of(records).items():
                if name not in self._kinds:
                    continue
                if every_entry or name in self._unknown or not _is_alike(value, self._kinds[name]):
                    fitting(name, value, self._kinds[name])
        except RecordError as error:
            raise ConfigError(
                f"{self._method} keeps what could not be loaded from a checkpoint: {error}. {_remedy(error)}"
            ) from None
        for path, (kind, value) in sorted(_besides(records).items()):
            if path not in self._besides or self._besides[path][1] is not value:
                name = path.rpartition(".")[2]
                raise ConfigError(
                    f"{self._method} sets {path}, which is no field of {kind}, so that a resumed run would "
                    f"lose it. Declare {name} in {kind}, a dataclass (@dataclass), with a type, as in "
                    "`steps: int = 0`."
                )


def _remedy(error: RecordError) -> str:
    """Advice on what to keep in place of the value that ``fitting`` refused with ``error``."""
    if str(error).endswith(("has entries that are NaN", "has negative entries")):
        return "Where there is no value, keep inf or 0, or a field of its own, as in `known: bool = False`."
    return (
        "Keep shape and type, as r.x[:] = .. does; a number that is no integer later is none at first, as in "
        "`mean: float = 0.0`."
    )


def _with_nan(records: Mapping[str, Any]) -> set[str]:
    """The arrays of floats that hold NaN, by the names that they have in a checkpoint."""
    arrays = {name: value for name, value in fields_of(records).items() if isinstance(value, np.ndarray)}
    return {name for name, value in arrays.items() if value.dtype.kind in "fc" and np.isnan(value).any()}


def _kinds_of(records: Mapping[str, Any]) -> dict[str, Any]:
    """An array or a number of the shape and type of each field, by the name that it has in a checkpoint."""
    kinds: dict[str, Any] = {}
    for name, value in fields_of(records).items():
        if isinstance(value, np.ndarray):
            kinds[name] = np.broadcast_to(np.zeros((), value.dtype), value.shape)
        elif not kernels.on_device(value):
            kinds[name] = value
    return kinds


def _besides(records: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """The attributes of ``records`` that are no fields: the record's class and the value, by record and name.

    Cached properties are left out, since they can be computed again.
    """
    found: dict[str, tuple[str, Any]] = {}
    for record_name, record in records.items():
        kind, held = type(record), getattr(record, "__dict__", {})
        if len(held) == len(fields(record)):
            continue
        for name in held.keys() - {f.name for f in fields(record)}:
            if not isinstance(getattr_static(kind, name, None), cached_property):
                found[f"{record_name}.{name}"] = kind.__name__, held[name]
    return found


def _is_alike(value: Any, kind: Any) -> bool:
    """Whether ``value`` is an array of the shape and type of ``kind``, as nearly all are in every round."""
    both = isinstance(value, np.ndarray) and isinstance(kind, np.ndarray)
    return both and value.shape == kind.shape and value.dtype == kind.dtype
