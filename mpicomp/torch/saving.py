"""Save a training with ``Compressed`` by all ranks together, and load it on any number of ranks."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mpicomp.base.errors import RecordError
from mpicomp.base.units import one_line
from mpicomp.torch.optimiser import Compressed
from mpicomp.torch.state import NO_LOCAL_STEPS, load_into


@dataclass
class Blob:
    """The bytes that torch.save writes, as a record of a checkpoint."""

    content: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def of(cls, state: Any) -> Blob:
        file = io.BytesIO()
        torch.save(state, file)
        return cls(np.frombuffer(file.getvalue(), np.uint8))

    def read(self) -> Any:
        """Read the saved texts, numbers and tensors; no pickled code is run.

        Raises ``ValueError`` if the archive is compressed, because it could then unpack to any size.
        """
        content = io.BytesIO(self.content.tobytes())
        with zipfile.ZipFile(content) as archive:
            if any(member.compress_type for member in archive.infolist()):
                raise ValueError("it is compressed")
        content.seek(0)
        return torch.load(content, map_location="cpu", weights_only=True)


def save(folder: str | Path, opt: Compressed, model: nn.Module) -> None:
    """Save ``model``, the optimisers and the method's state on all ranks to ``folder``; collective.

    The two newest states are kept.  Not saved: random number generators, schedulers, data loaders.
    """
    opt.exchange()
    blobs: dict[str, Blob] = {}
    if opt.aggregator.transport.is_server:
        outer = None if opt.outer is None else opt.outer.state_dict()
        common = {"model": model.state_dict(), "outer": outer, "inner": opt.inner.state_dict()}
        blobs["torch"] = Blob.of(common)
    if opt.local is not None:  # between two exchanges each rank has a model of its own
        own = {"model": model.state_dict(), "inner": opt.inner.state_dict()} | opt.local.state()
        blobs[f"torch-{opt.hosted.start}"] = Blob.of(own)
    opt.aggregator.save(folder, opt.aggregators[1:], **blobs)


def load(folder: str | Path, opt: Compressed, model: nn.Module) -> None:
    """Load the state that ``save`` wrote to ``folder`` into ``opt`` and ``model``; collective.

    The training then continues bit for bit, if its batches and random numbers do.  Raises ``RecordError`` if
    the state is damaged, or belongs to another method, seed, model, number of workers or ``sync_every``.
    """
    common, own = Blob(), Blob()
    records = {"torch": common}
    if opt.local is not None:
        records[f"torch-{opt.hosted.start}"] = own
    opt.aggregator.load(folder, opt.aggregators[1:], **records)

    def take() -> None:
        try:
            saved = common.read()
            load_into("inner", opt.inner, saved["inner"])
            if opt.outer is not None:
                load_into("outer", opt.outer, saved["outer"])
            if opt.local is not None:
                saved = own.read()
                load_into("inner", opt.inner, saved["inner"])
                opt.local.resume(*(saved[name] for name in NO_LOCAL_STEPS))
            model.load_state_dict(saved["model"])
        except Exception as error:  # torch raises many types
            raise RecordError(
                f"{folder} does not hold the state of this model and these optimisers "
                f"({one_line(str(error), 200)}). Make them anew, as they were when it was saved."
            ) from error

    opt.aggregator.transport.raise_on_all(take)
    opt._go_on()
