"""Rows of a run as they come, for other programs: callbacks for ``run``, called on the server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.compressors.base import Array
from mpicomp.runtime.record import Row
from mpicomp.runtime.session import Callback


class JSONLines:
    """``run(.., callback=JSONLines(path))``: each row is appended to the file as one line of JSON.

    A line has the columns of ``Row`` by their names; null stands for what was not observed, and for a number
    that is not finite.  It is in the file when the next round begins.  Raises ``RecordError``, naming the
    file, if it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __call__(self, round: int, row: Row, x: Any) -> None:
        values = {name: v if v is None or isfinite(v) else None for name, v in asdict(row).items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}.") from None


class TensorBoard:
    """``run(.., callback=TensorBoard(folder))``: each row's numbers as scalars, by round.

    ``tensorboard --logdir folder`` shows them.  Raises ``ConfigError`` if tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError:
            raise ConfigError(
                "TensorBoard needs tensorboard: pip install 'mpicomp[tensorboard]'. JSONLines needs nothing."
            ) from None
        self._open: Any = lambda: Writer(str(folder))
        self._writer: Any = None

    def __call__(self, round: int, row: Row, x: Any) -> None:
        if self._writer is None:  # now, for ranks that are not the server write nothing
            self._writer = self._open()
        for name, value in asdict(row).items():
            if name != "round" and value is not None:
                self._writer.add_scalar(name, value, round)
        self._writer.flush()


def all_of(callbacks: Sequence[Callback]) -> Callback | None:
    """One callback that calls each of ``callbacks``; None if there is none."""
    if not callbacks:
        return None

    def call(round: int, row: Row, x: Array) -> bool:
        return any([bool(callback(round, row, x)) for callback in callbacks])

    return call
