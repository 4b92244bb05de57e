"""A training saved by all ranks together, to go on with on any number of them."""

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
        """What was saved: texts, numbers and tensors, without anybody's code.

        Raises ``ValueError`` for an archive that would become more than its bytes.
        """
        content = io.BytesIO(self.content.tobytes())
        with zipfile.ZipFile(content) as archive:
            if any(member.compress_type for member in archive.infolist()):
                raise ValueError("it is compressed")
        content.seek(0)
        return torch.load(content, map_location="cpu", weights_only=True)


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

    def take() -> None:
        try:
            saved = common.read()
            opt.inner.load_state_dict(saved["inner"])
            if opt.outer is not None:
                opt.outer.load_state_dict(saved["outer"])
            if opt.sync_every > 1:
                saved = own.read()
                opt.load_local_state(saved["own"])
            model.load_state_dict(saved["model"])
        except Exception as error:  # torch raises many types
            raise RecordError(
                f"{folder} does not hold the state of this model and these optimisers ({error}). Make them "
                "anew, as they were when it was saved."
            ) from error

    opt.aggregator.transport.raise_on_all(take)
    opt.buffers.restart()
