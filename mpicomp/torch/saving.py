"""A training saved by all ranks together, to go on with on any number of them."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mpicomp.torch.optimiser import Compressed


@dataclass
class Blob:
    """What torch.save has written, as a record of a checkpoint."""

    content: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def of(cls, state: Any) -> Blob:
        file = io.BytesIO()
        torch.save(state, file)
        return cls(np.frombuffer(file.getvalue(), np.uint8))

    def read(self) -> Any:
        return torch.load(io.BytesIO(self.content.tobytes()), map_location="cpu", weights_only=True)


def save(folder: str | Path, opt: Compressed, model: nn.Module) -> None:
    """Save ``model``, the optimisers and what the method remembers, of all ranks; collective.

    Two generations are kept.  Not saved: random number generators, schedulers, data loaders.
    """
    blobs: dict[str, Blob] = {}
    if opt.aggregator.transport.is_server:
        outer = None if opt.outer is None else opt.outer.state_dict()
        common = {"model": model.state_dict(), "outer": outer, "inner": opt.inner.state_dict()}
        blobs["torch"] = Blob.of(common)
    if opt.sync_every > 1:  # between two exchanges each rank has a model of its own
        worker = opt.hosted.start
        blobs[f"torch-{worker}"] = Blob.of({"model": model.state_dict(), "own": opt.local_state()})
    opt.aggregator.save(folder, **blobs)


def load(folder: str | Path, opt: Compressed, model: nn.Module) -> None:
    """Go on from what ``save`` saved; collective.  The training is then the uninterrupted one, bit for bit.

    Raises ``RecordError`` if it is damaged, or of another method, seed, model, number of workers or
    ``sync_every``.
    """
    common, own = Blob(), Blob()
    records = {"torch": common}
    if opt.sync_every > 1:
        records[f"torch-{opt.hosted.start}"] = own
    opt.aggregator.load(folder, **records)
    saved = common.read()
    opt.inner.load_state_dict(saved["inner"])
    if opt.outer is not None:
        opt.outer.load_state_dict(saved["outer"])
    if opt.sync_every > 1:
        saved = own.read()
        opt.load_local_state(saved["own"])
    model.load_state_dict(saved["model"])
    opt.buffers.restart()
