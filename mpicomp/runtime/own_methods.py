"""Watch the steps of a method of one's own: who sends and what, which records they change, and how.

These mistakes would show late or never.  A replica that a worker's step has changed differs between ranks,
and in one process it is changed once for each worker.

A step may also put an array into a field that is elsewhere too, as ``w.previous = r.x`` does.  The next
change of one would then change the other; but not after a checkpoint, nor, for an array that all workers
share, on ranks of their own.  So the field gets a copy.  The same holds for what a record begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.keys import Key
from mpicomp.methods.base import Method


@contextmanager
def unchanged(replica: Any, method: Method) -> Iterator[None]:
    """In the ``with`` block, a worker's step, the arrays of the replica are read-only.

    Raises ``ConfigError`` if the step writes into one, or puts another value into a field.
    """
    held = {f.name: getattr(replica, f.name) for f in fields(replica)}
    locked = [a for a in held.values() if isinstance(a, np.ndarray) and a.flags.writeable]
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


def check_senders(method: Method, senders: Any, key: Key) -> None:
    """Raise ``ConfigError`` unless ``senders``, of the round of ``key``, are workers in increasing order.

    Raises ``RuntimeError``, which ends the job, if the method gives others when asked again: all ranks wait
    for the messages of the workers that they were given, and perhaps this rank alone has noticed it.
    """
    name = f"{type(method).__name__}.senders"
    if not _are_workers(senders, key.n):
        raise ConfigError(
            f"{name} gives {one_line(senders)}; expected a list of the workers that take part, increasing, "
            f"from 0 to {key.n - 1}, as in [i for i in range(key.n) if ..]."
        )
    if [*method.senders(key)] != [*senders]:
        raise RuntimeError(f"{name} gives other workers when asked again: draw them from the key alone.")


def _are_workers(senders: Any, n: int) -> bool:
    if not isinstance(senders, Sequence) and np.ndim(senders) != 1:
        return False
    numbers = [-1, *senders, n]
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in numbers)
    return whole and all(i < j for i, j in pairwise(numbers))


def check_up(method: Method, up: Any) -> None:
    """Raise ``ConfigError`` unless ``up``, which a worker's step has returned, is the method's record."""
    if not isinstance(up, method.Up):
        name = type(method).__name__
        raise ConfigError(
            f"{name}.worker_step returns {one_line(up)}; expected {method.Up.__name__}(..), the record "
            f"{name}.Up."
        )
