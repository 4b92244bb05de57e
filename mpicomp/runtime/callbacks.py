"""Callbacks that write each row of a run to a file or to TensorBoard while the run goes on.

    mpicomp.run(method, problem, workers=8, callback=mpicomp.callbacks.JSONLines("runs/rows.jsonl"))

Any function of (round, row, x) is a callback.  Only rank 0 calls it.  So under mpirun every rank may make
these objects, and only rank 0's object writes.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from dataclasses import asdict
from importlib.util import find_spec
from math import isfinite
from os import SEEK_END
from pathlib import Path
from time import time
from typing import Any

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import as_path, is_file, os_errors_as
from mpicomp.runtime.rows import Row
from mpicomp.runtime.session import Callback, check_callback, is_true

_ROW = b'{"round"'  # how a row begins in a file of ``JSONLines``


def together(*callbacks: Callback) -> Callback:
    """One callback that calls all of ``callbacks``, in order; it ends the run if one of them returns True.

    Raises ``ConfigError`` for what is no callback.
    """
    for callback in callbacks:
        check_callback("together", callback)

    def call(round: int, row: Row, x: Array) -> bool:
        answers = [callback(round, row, x) for callback in callbacks]
        return any(map(is_true, answers))

    return call


class JSONLines:
    """Appends each row to the file ``path``: one JSON object a line, on disk at once.

    An object has the fields of ``Row``: round, f, grad_norm_sq, up_bytes, down_bytes and others.  A number
    that is not observed or not finite is null.  Nothing is overwritten: a resumed run appends to its file.
    A round that it repeats has two lines, and the later one counts.  The folder is made if it does not
    exist.  Raises ``RecordError`` in the run, on all ranks, if the file cannot be written, or if it holds
    something else: a row at its end would damage it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = as_path("path", path, "file")
        self._begun = False

    def __call__(self, round: int, row: Row, x: Array) -> None:
        known = {name: value if isfinite(value or 0) else None for name, value in asdict(row).items()}
        with os_errors_as(RecordError, f"cannot write {self.path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            start = "" if self._begun else self._start()
            with open(self.path, "a") as file:
                file.write(start + json.dumps(known) + "\n")
            self._begun = True

    def _start(self) -> str:
        """The text before the first row: the end of a line that was cut short, if the file ends in one.

        Raises ``RecordError`` if the file does not begin with a row.  A pipe or a device is not read.
        """
        if not is_file(self.path) or self.path.absolute().is_relative_to("/dev"):
            return ""
        with open(self.path, "rb") as file:
            first = file.read(40)
            file.seek(max(0, file.seek(0, SEEK_END) - 1))
            last = file.read()
        started = first.removeprefix(BOM_UTF8).lstrip()  # perhaps cut short
        if not started.startswith(_ROW[: len(started)]):
            raise RecordError(
                f"{self.path} begins with {first.decode(errors='replace')!r}, so it holds no rows of a run; "
                "rows are appended to those of a run only. Name another file."
            )
        return "" if last in (b"", b"\n") else "\n"


class TensorBoard:
    """Writes each row into ``folder`` for TensorBoard: a curve for each field of ``Row``, over the rounds.

    ``tensorboard --logdir FOLDER`` shows them while the run goes on; FOLDER may also hold several such
    folders.  The curves hold 32-bit floats, so byte counts keep seven digits.  A resumed run adds to its
    folder.  Raises ``ConfigError`` if tensorboard is not installed, and ``RecordError`` in the run, on all
    ranks, if the folder cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        if find_spec("tensorboard") is None:
            raise ConfigError(
                "rows for TensorBoard need tensorboard, which is not installed: "
                "pip install 'mpicomp[tensorboard]'."
            )
        self.folder = as_path("folder", folder)
        self._writer: Any = None

    def __call__(self, round: int, row: Row, x: Array) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        values = [(name, value) for name, value in asdict(row).items() if name != "round"]
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values if value is not None]
        with os_errors_as(RecordError, f"cannot write {self.folder}"):
            if self._writer is None:
                self._writer = EventFileWriter(str(self.folder))
            self._writer.add_event(Event(wall_time=time(), step=round, summary=Summary(value=scalars)))
            self._writer.flush()

    def close(self) -> None:
        """Close the file.  Its rows are on disk even without this."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
