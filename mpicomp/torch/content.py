"""Convert the content of a tensor of any kind to bytes, and back."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from mpicomp.base.errors import ConfigError


@dataclass
class Content:
    """A tensor without its device: its type, its shape and its entries.

    kept  the shape of the entries in ``data``: an axis of stride 0, whose entries share their memory, has
          length 1 in it.  None if the tensor is sparse, quantised, nested or made of other tensors
    data  the entries in C order; or, if ``kept`` is None, the bytes that torch.save writes
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    kept: tuple[int, ...] | None
    data: bytes

    @classmethod
    def of(cls, tensor: Tensor) -> Content:
        """The content of ``tensor``."""
        if not is_plain(tensor):
            file = io.BytesIO()
            torch.save(tensor.detach().cpu().clone(), file)
            return cls(tensor.dtype, _shape(tensor), None, file.getvalue())
        kept = _kept(tensor.detach())
        entries = kept.cpu().resolve_conj().resolve_neg().contiguous()
        # numpy() would keep the tensor from being resized from then on.
        data = ctypes.string_at(entries.data_ptr(), entries.nbytes)
        return cls(tensor.dtype, tuple(tensor.shape), tuple(kept.shape), data)

    def changes(self, before: Content | None) -> Content | bytes:
        """The difference from ``before``: only the entries if type and shape are equal, else all of this."""
        same = before is not None and replace(before, data=self.data) == self
        return self.data if same else self

    def put(self, tensor: Tensor) -> Tensor:
        """Write this content into ``tensor`` if it fits, and return it; else a new one on its device."""
        if tensor.dtype == self.dtype and is_plain(tensor) and not tensor.is_inference():
            kept = _kept(tensor)
            if tensor.shape == self.shape and kept.shape == self.kept:
                kept.copy_(self._entries())
                return tensor
        return tensor if Content.of(tensor) == self else self.tensor(tensor.device)

    def tensor(self, device: torch.device) -> Tensor:
        """A new tensor with this content."""
        if self.kept is None:
            file = io.BytesIO(self.data)
            made: Any = torch.load(file, "cpu", weights_only=False)  # of a rank of this program
            return made.to(device)
        own = self._entries().clone()  # of memory that can be resized, which frombuffer's cannot
        return own.to(device).expand(self.shape)

    def _entries(self) -> Tensor:
        assert self.kept is not None
        if not self.data:  # frombuffer refuses a count of 0
            return torch.empty(self.kept, dtype=self.dtype, device="cpu")
        return torch.frombuffer(bytearray(self.data), dtype=self.dtype).reshape(self.kept)


def contents(tensors: Mapping[str, Tensor | None]) -> dict[str, Content | None]:
    """The content of each of ``tensors``; names of the same tensor share one ``Content``, sent only once."""
    read = {id(tensor): Content.of(tensor) for tensor in tensors.values() if tensor is not None}
    return {name: read.get(id(tensor)) for name, tensor in tensors.items()}


def kind(tensor: Tensor | None, name: str) -> str:
    """The type and shape of ``tensor``, as text.

    Raises ``ConfigError``, which names it ``name``, if it has no values yet (lazy, or on the meta device).
    """
    if tensor is None:
        return "None"
    if is_lazy(tensor):
        raise ConfigError(f"{name} has no shape yet: call the model once before Compressed is made.")
    if tensor.is_meta:
        raise ConfigError(
            f"{name} is on the meta device, where it has no values: load them before Compressed is made."
        )
    return f"{tensor.dtype} of shape {_shape(tensor)}"


def is_plain(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a plain strided array: not sparse, quantised, nested or made of other tensors."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """The tensor's shape; () for a nested tensor, which has no regular shape."""
    return () if tensor.is_nested else tuple(tensor.shape)


def _kept(tensor: Tensor) -> Tensor:
    """A view of ``tensor`` with length 1 along each axis of stride 0."""
    if tensor.is_contiguous():
        return tensor
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
