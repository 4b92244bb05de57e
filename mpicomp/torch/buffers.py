"""A model's buffers, such as BatchNorm's running means, kept the same on all ranks."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mpicomp.transports import Transport


def share(tensors: Sequence[Tensor], transport: Transport) -> int:
    """Give all ranks rank 0's values; collective.  Returns their bytes."""
    content = transport.ask_server(lambda: to_bytes(tensors))
    if not transport.is_server:
        from_bytes(content, tensors)
    return len(content)


class Buffers:
    """The buffers of ``module``: each step starts from the same on every worker; worker 0's go to all.

    That is what torch's DDP does: it gives rank 0's to all.  Whatever the number of ranks they are the same.
    Buffers that a step has left as they were, such as a mask, are not sent.

    nbytes  bytes of buffers sent so far, once for each rank but the sender; the ledger does not hold them
    """

    def __init__(self, module: nn.Module | None, transport: Transport, dedicated: bool) -> None:
        self._module, self._transport, self._dedicated = module, transport, dedicated
        self.nbytes = 0
        self._first: dict[int, bytes] = {}  # by number, those that worker 0 has changed in this step
        self._start = self._contents()

    def collect(self, worker: int) -> None:
        """Note the buffers that ``worker`` has changed, and go back to those of the step's start."""
        if worker == 0:
            now = self._contents()
            self._first = {j: new for j, new in enumerate(now) if new != self._start[j]}
        if len(self._transport.hosted) > 1:
            self.restore()

    def step(self) -> None:
        """Give worker 0's buffers to all ranks; collective."""
        t = self._transport
        if not self._start:
            return
        if self._dedicated:  # worker 0 is on rank 1
            told: Any = t.collect(self._first)
            self._first = told[1] if t.is_server else self._first
        changed = t.ask_server(lambda: self._first)
        self._start = [changed.get(j, old) for j, old in enumerate(self._start)]
        self.restore()
        self.nbytes += sum(map(len, changed.values())) * (t.ranks - 1)

    def restore(self) -> None:
        """Go back to the buffers of the step's start, after a gradient at another point."""
        from_bytes(b"".join(self._start), self._tensors())

    def restart(self) -> None:
        """The buffers as they are now are those of the step's start."""
        self._start = self._contents()

    def _contents(self) -> list[bytes]:
        return [to_bytes([buffer]) for buffer in self._tensors()]

    def _tensors(self) -> list[Tensor]:
        return [] if self._module is None else list(self._module.buffers())


def warn_of_buffers(parameters: list[nn.Parameter], transport: Transport) -> None:
    """Warn, on the server, of buffers in the modules that have ``parameters``."""
    if transport.is_server and _has_buffers(parameters):
        warnings.warn(
            "the model has buffers, such as BatchNorm's running means, which the ranks do not share: "
            "give module=model.",
            stacklevel=3,
        )


def _has_buffers(parameters: list[nn.Parameter]) -> bool:
    """Whether some module in the program has one of the ``parameters``, and buffers."""
    ids = {id(p) for p in parameters}
    modules = [m for m in gc.get_objects() if issubclass(type(m), nn.Module)]
    return any(
        next(m.buffers(recurse=False), None) is not None
        and any(id(p) in ids for p in m.parameters(recurse=False))
        for m in modules
    )


def to_bytes(tensors: Sequence[Tensor]) -> bytes:
    """The entries of ``tensors``, one after the other."""
    return b"".join(
        t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors
    )


@torch.no_grad()
def from_bytes(content: bytes, tensors: Sequence[Tensor]) -> None:
    """Set ``tensors``, of the types and shapes of those that ``content`` was made of."""
    memory, start = bytearray(content), 0
    for t in (t for t in tensors if t.numel()):  # frombuffer refuses a count of 0
        values = torch.frombuffer(memory, dtype=t.dtype, count=t.numel(), offset=start)
        t.copy_(values.reshape(t.shape))
        start += t.numel() * t.element_size()
