"""Watch a method of one's own: what its steps leave alone, and what its records hold.

These mistakes would show late or never.  A replica that a worker's step has changed differs between ranks,
and in one process it is changed once for each worker.  A record of another shape or type than at the start
makes checkpoints that cannot be loaded.  What a step keeps in a record besides its fields is in no
checkpoint, so a resumed run would go on without it.

A step may also put an array into a field that is elsewhere too, as ``w.previous = r.x`` does.  The next
change of one would then change the other; but not after a checkpoint, nor, for an array that all workers
share, on ranks of their own.  So the field gets a copy.  The same holds for what a record begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.methods.base import Method
from mpicomp.runtime.saved import fitting

Kinds = dict[str, Any]  # a field's name, as in a checkpoint -> an array or a number of its shape and type


@contextmanager
def unchanged(replica: Any, method: Method) -> Iterator[None]:
    """In the ``with`` block, a worker's step, the arrays of the replica are read-only.

    Raises ``ConfigError`` if the step writes into one, or puts another value into a field.
    """
    held = {f.name: getattr(replica, f.name) for f in fields(replica)}
    locked = [a for a in held.values() if isinstance(a, np.ndarray) and a.flags.writeable]
    locked.sort(key=lambda a: a.base is not None)  # a view can be written to again after its base
    for array in locked:
        array.flags.writeable = False
    step = f"{type(method).__name__}.worker_step"
    remedy = "every rank holds the replica, so change it in replica_step alone"
    try:
        yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise ConfigError(f"{step}: {error}; {remedy}.") from error
    finally:
        for array in locked:
            array.flags.writeable = True
    if other := [name for name, value in held.items() if getattr(replica, name) is not value]:
        raise ConfigError(f"{step} puts another value into {other[0]} of the replica; {remedy}.")


@contextmanager
def apart(*records: Any) -> Iterator[None]:
    """After the ``with`` block, an array that it has put into a field of ``records`` is a copy of its own."""
    held = [{f.name: getattr(record, f.name) for f in fields(record)} for record in records]
    yield
    for record, before in zip(records, held, strict=True):
        for name, old in before.items():
            value = getattr(record, name)
            if value is not old and (isinstance(value, np.ndarray) or kernels.on_device(value)):
                object.__setattr__(record, name, value.copy())  # in a frozen record too


def separate(records: Iterable[Any]) -> None:
    """Give each field of ``records``, as they begin, an array of its own."""
    for record in records:
        for f in fields(record):
            value = getattr(record, f.name)
            if isinstance(value, np.ndarray) or kernels.on_device(value):
                object.__setattr__(record, f.name, value.copy())


def kinds_of(records: Mapping[str, Any]) -> Kinds:
    """The shapes and types of all fields of ``records``, dataclasses by name."""
    kinds: Kinds = {}
    for record_name, record in records.items():
        for f in fields(record):
            value = getattr(record, f.name)
            if isinstance(value, np.ndarray):
                kinds[f"{record_name}.{f.name}"] = np.broadcast_to(np.zeros((), value.dtype), value.shape)
            elif not kernels.on_device(value):
                kinds[f"{record_name}.{f.name}"] = value
    return kinds


def check_kinds(method: Method, before: Kinds, records: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` if ``records`` could not be loaded where ``before`` are those of the start."""
    try:
        for record_name, record in records.items():
            for f in fields(record):
                name, value = f"{record_name}.{f.name}", getattr(record, f.name)
                if name in before and not _is_alike(value, before[name]):
                    fitting(name, value, before[name])
    except RecordError as error:
        raise ConfigError(
            f"{type(method).__name__} has changed what it keeps, so that no checkpoint could be loaded: "
            f"{error}. Keep shape and type, as r.x[:] = .. does."
        ) from None


def besides(records: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """What ``records`` hold besides their fields: the record's class and the value, by record and name.

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


def check_besides(method: Method, before: Mapping[str, Any], records: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` if a step has put something into ``records`` that is none of their fields."""
    for path, (kind, value) in sorted(besides(records).items()):
        if path not in before or before[path][1] is not value:
            name = path.rpartition(".")[2]
            raise ConfigError(
                f"{type(method).__name__} sets {path}, which is no field of {kind}, so that a resumed "
                f"run would lose it. Declare {name} in {kind}, with a type, as in `steps: int = 0`."
            )


def _is_alike(value: Any, kind: Any) -> bool:
    """Whether ``value`` is an array of the shape and type of ``kind``, as nearly all are in every round."""
    both = isinstance(value, np.ndarray) and isinstance(kind, np.ndarray)
    return both and value.shape == kind.shape and value.dtype == kind.dtype
