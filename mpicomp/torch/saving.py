"""Save a training with ``Compressed`` by all ranks together, and load it on any number of ranks."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mpicomp.base.errors import ConfigError, MpicompError, RecordError
from mpicomp.base.units import one_line, shortened
from mpicomp.torch.optimiser import Compressed
from mpicomp.torch.state import NO_LOCAL_STEPS, load_into
from mpicomp.transports.calls import Operation

_READABLE = (torch.Tensor, nn.Parameter, bool, int, float, str, type(None))


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
    Raises ``ConfigError`` for an entry that ``load`` could not read, such as an object in a parameter group,
    for a ``model`` that lacks parameters of ``opt``, inside ``opt.common()``, and between ``aggregate`` and
    ``step``; ``RecordError`` if the folder holds the state of another training, or cannot be written.
    """
    _check_kinds(opt, model)
    opt.exchange()
    opt.aggregator.tell_all(0, Operation.SAVE)  # all ranks save, and no exchange is under way
    blobs = opt.aggregator.transport.raise_on_all(lambda: _blobs(opt, model))
    opt.aggregator.save(folder, opt.aggregators[1:], **blobs)


def _check_kinds(opt: Any, model: Any) -> None:
    """Raise ``ConfigError`` unless ``opt`` is a ``Compressed``, and ``model`` has all that it trains."""
    for name, given, kind in (("opt", opt, Compressed), ("model", model, nn.Module)):
        if not isinstance(given, kind):
            raise ConfigError(
                f"{name} is {one_line(given)}; allowed: a {kind.__name__}: (folder, opt, model)."
            )
    if lacking := opt.lacking(model):
        raise ConfigError(
            f"model lacks {shortened(lacking)}, which opt trains: give the model that is trained, and not a "
            "copy of it; of several modules, torch.nn.ModuleList([..]) of them."
        )


def _blobs(opt: Compressed, model: nn.Module) -> dict[str, Blob]:
    """This rank's part of the state, by the names of its records."""
    opt.check_stepped()
    blobs: dict[str, Blob] = {}
    states = {"model": model.state_dict(), "inner": _with_numbers(opt.inner.state_dict())}
    _check_readable(states)
    if opt.aggregator.transport.is_server:
        outer = None if opt.outer is None else _with_numbers(opt.outer.state_dict())
        blobs["torch"] = Blob.of(states | {"outer": outer})
    if opt.local is not None:  # between two exchanges each rank has a model of its own
        blobs[f"torch-{opt.hosted.start}"] = Blob.of(states | opt.local.state())
    return blobs


def _with_numbers(state: Any) -> Any:
    """``state`` with Python's numbers in the place of numpy's, such as a rate that was computed by numpy."""
    if isinstance(state, np.generic):
        return state.item()
    if type(state) is dict:
        return {name: _with_numbers(value) for name, value in state.items()}
    return type(state)(map(_with_numbers, state)) if type(state) in (list, tuple) else state


def _check_readable(state: Any, name: str = "") -> None:
    """Raise ``ConfigError``, which names the entry, if ``Blob.read`` could not read ``state`` again."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            _check_readable(value, f"{name}.{key}" if name else str(key))
    elif type(state) in (list, tuple):
        for k, value in enumerate(state):
            _check_readable(value, f"{name}.{k}")
    elif type(state) not in _READABLE:
        try:
            Blob.of(state).read()
        except Exception as error:  # torch and pickle raise many types
            raise ConfigError(
                f"{name} of the state to save is of the type {type(state).__name__}, which could not be "
                "loaded again; allowed: texts, numbers, tensors. Keep others out of the optimiser's groups "
                "and the model's extra state."
            ) from error


def load(folder: str | Path, opt: Compressed, model: nn.Module) -> None:
    """Load the state that ``save`` wrote to ``folder`` into ``opt`` and ``model``; collective.

    The training then continues bit for bit, if its batches and random numbers do.  Raises ``RecordError`` if
    the state is damaged, or belongs to another method, seed, model, number of workers or ``sync_every``, and
    ``ConfigError`` inside ``opt.common()`` and for another ``model``; nothing has changed then.  If it is of
    another optimiser or of other buffers, ``RecordError`` too; but parts of it have been loaded then, and
    nothing is averaged or saved until a load succeeds.
    """
    _check_kinds(opt, model)
    if opt.local is not None:
        opt.local.check_own()
    common, own = Blob(), Blob()
    records = {"torch": common}
    if opt.local is not None:
        records[f"torch-{opt.hosted.start}"] = own
    opt.aggregator.load(folder, opt.aggregators[1:], **records)

    def take() -> None:
        try:
            saved = common.read()
            if opt.outer is not None:
                load_into("outer", opt.outer, saved["outer"])
            if opt.local is not None:
                saved = own.read()
            load_into("inner", opt.inner, saved["inner"])
            if opt.local is not None:
                opt.local.resume(*(saved[name] for name in NO_LOCAL_STEPS))
            model.load_state_dict(saved["model"])
        except Exception as error:  # torch raises many types
            raise RecordError(
                f"{folder} does not hold the state of this model and these optimisers "
                f"({one_line(str(error), 200)}). Make them anew, as they were when it was saved."
            ) from error

    try:
        opt.aggregator.transport.raise_on_all(take)
    except MpicompError as error:  # the memories are the saved ones, and perhaps not the parameters
        reason = MpicompError(f"{str(error).rstrip('.')}. Till a state is loaded, nothing is averaged.")
        for one in opt.aggregators:
            one.refuse_steps(reason)
        raise
    opt._go_on()
