"""Flatten a model's parameters, or their gradients, into one vector, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.parts import Part, Parts
from mpicomp.loops.packing import Packing
from mpicomp.torch.alike import memory, settings
from mpicomp.torch.content import is_plain, kind

if TYPE_CHECKING:
    from mpicomp.kernels.cuda import Cuda

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Tensors(Packing):
    """Parameters one after the other in one vector, float64 if one of them is float64, else float32.

    parameters  the parameters by name; all on one device
    slices      the slice of each parameter in the vector
    optimiser   the optimiser whose settings the ranks compare in each call, and which parameters it may step,
                or None
    taken       a number for the steps that the optimiser has taken, which the ranks compare in each call
    device      the GPU that holds the parameters and the vector, or None if the vector is in numpy's memory

    An ``Aggregator`` made with this packing takes and returns the vector itself, shape (d,), so that one call
    of torch copies many small tensors.
    Raises ``ConfigError`` for parameters that are empty, without values, not dense, not floats, on several
    devices, in shared memory, or sharded over ranks.
    """

    name: ClassVar[str] = "parameters"
    alike: ClassVar[str] = (
        "the settings of the optimiser, such as its learning rate, the parameters that need a gradient, the "
        "steps that were left out after opt.aggregate(), the gradients that were put in the place of the "
        "mean, or the momenta that were loaded, are not rank 0's: load and decide alike on all ranks, as by "
        "the mean loss."
    )
    missing: ClassVar[str] = (
        "the gradient of a worker is missing: before opt.step(), for each i in opt.hosted, opt.zero_grad(), "
        "loss(i).backward() and opt.collect(i)."
    )

    def __init__(self, parameters: Mapping[str, nn.Parameter], whole: Parts | None = None) -> None:
        """``whole`` has the parts of all trained parameters, if ``parameters`` are only some of these."""
        for name, p in parameters.items():
            if type(p).__name__ == "DTensor" or getattr(p, "_is_flat_param", False):  # FSDP's two kinds
                raise ConfigError(
                    f"parameter {name!r} is sharded, of which a rank holds a part; allowed: models of "
                    "which every rank holds the whole, without FSDP or tensor parallelism."
                )
            kind(p, f"parameter {name!r}")  # refuses those without values
            if not is_plain(p):
                raise ConfigError(
                    f"parameter {name!r} is a {type(p).__name__} of layout {p.layout}; allowed: dense "
                    "tensors that are not made of others."
                )
            if p.dtype not in _FLOATS:
                raise ConfigError(f"parameter {name!r} is {p.dtype}; allowed: float16, bfloat16, 32 or 64.")
            if not p.numel():
                raise ConfigError(
                    f"parameter {name!r} of shape {tuple(p.shape)} has no entries; allowed: one or more. "
                    "requires_grad_(False) leaves it out."
                )
        if len(devices := {p.device for p in parameters.values()}) > 1:
            raise ConfigError(f"the parameters are on {len(devices)} devices; allowed: all on one.")
        _refuse_overlap(parameters)
        self.device, self.settings = None, dict[str, object]()
        self.optimiser: Optimizer | None = None
        self.taken = 0
        self._state: Any = None  # of the optimiser, when its momenta were compared
        self.parameters = list(parameters.values())
        self.parts = Parts(tuple(Part(name, tuple(p.shape)) for name, p in parameters.items()), whole)
        wide = any(p.dtype == torch.float64 for p in self.parameters)
        self.dtype = np.dtype(np.float64 if wide else np.float32)
        self._dtype = torch.float64 if wide else torch.float32
        self._sizes = [p.numel() for p in self.parameters]
        self.slices = [where for _, where in self.parts]

    def placed(self, device: Cuda | None) -> Self:
        """Put the vector on ``device`` from now on; returns ``self``.

        Raises ``ConfigError`` for a GPU that does not hold the parameters.
        """
        where = self.parameters[0].__dlpack_device__()
        if device is not None and where != device.dlpack:
            raise ConfigError(
                f"device='cuda', and the parameters are on {self.parameters[0].device}; allowed: "
                f"cuda:{device.dlpack[1]}, the GPU of this rank. Move the model there, or leave device out."
            )
        return super().placed(device)

    def number(self) -> int:
        """A hash of settings, of which parameters are frozen, of the steps taken, and of loaded momenta."""
        if self.optimiser is None:
            return 0
        stepped = bytes(p.requires_grad for p in self.parameters)  # the others it leaves alone
        if self._state is not self.optimiser.state:  # at first, and where ``load_state_dict`` has put another
            self._state = self.optimiser.state
            self.taken = crc32(memory(self.optimiser).encode(), self.taken)
        return crc32(settings(self.optimiser).encode() + stepped, self.taken)

    def frozen(self) -> set[int]:
        """The numbers of the parameters that need no gradient."""
        return {j for j, p in enumerate(self.parameters) if not p.requires_grad}

    def frozen_where_zero(self, vector: Array) -> set[int]:
        """Those parameters of ``frozen`` whose part of ``vector`` is 0; others changed before the freeze."""
        return {j for j in self.frozen() if not vector[self.slices[j]].any()}

    @property
    def description(self) -> str:
        named = zip(self.parts, self.parameters, strict=True)
        return ", ".join(f"{part.name}: torch {p.dtype} {part.shape}" for (part, _), p in named)

    def pack(self, tree: Any, what: str = "the gradient") -> Array:
        """``tree`` itself, which is a vector already; raises ``ConfigError`` if it is None."""
        if tree is None:
            raise ConfigError(self.missing)
        return tree

    def unpack(self, vector: Array) -> Array:
        """``vector`` itself."""
        return vector

    def gradient(self, gradients: Sequence[Tensor | None] | None = None) -> Array:
        """A new vector of the parameters' gradients, or of ``gradients`` in their order; None means zeros.

        Raises ``ConfigError`` for a sparse gradient.
        """
        if gradients is None:
            gradients = [None if self._has_none(p) else p.grad for p in self.parameters]
        try:  # detached: after backward(create_graph=True) gradients have a graph
            return self._joined(
                [
                    p.new_zeros(()).expand_as(p) if g is None else g.detach()
                    for p, g in zip(self.parameters, gradients, strict=True)
                ]
            )
        except RuntimeError:
            for part, g in zip(self.parts.parts, gradients, strict=True):
                if g is not None:
                    _check_dense(part, g)
            raise

    def without_gradient(self) -> set[int]:
        """The numbers of the parameters that have no gradient, or are frozen."""
        return {j for j, p in enumerate(self.parameters) if self._has_none(p)}

    @staticmethod
    def _has_none(p: nn.Parameter) -> bool:
        """Whether ``p`` has no gradient; that of a frozen one is of before it was frozen."""
        return p.grad is None or not p.requires_grad

    def set_part(self, flat: Tensor, j: int, gradient: Tensor) -> None:
        """Copy the gradient of parameter j into its slice of ``flat``, a tensor made by ``empty``.

        Raises ``ConfigError`` for a sparse gradient.
        """
        _check_dense(self.parts.parts[j], gradient)
        flat[self.slices[j]].copy_(gradient.detach().reshape(-1))

    def empty(self) -> Tensor:
        """A new tensor of the vector's length and type, on the vector's device."""
        where = "cpu" if self.device is None else self.parameters[0].device  # and not torch's default device
        return torch.empty(self.parts.size, dtype=self._dtype, device=where)

    def vector(self, flat: Tensor) -> Array:
        """A tensor from ``empty``, or a slice of one, as an array; they share their memory."""
        # DLPack has CuPy's stream wait for torch's, so what was written to the tensor before is there.
        return flat.numpy() if self.device is None else self.device.xp.from_dlpack(flat)

    def tensor(self, vector: Array) -> Tensor:
        """A new tensor with the entries of ``vector``, on the same device."""
        return torch.from_numpy(vector.copy()) if self.device is None else torch.from_dlpack(vector.copy())

    def rounded(self, vector: Array) -> Array:
        """``vector`` as the parameters hold it: float16 and bfloat16 ones round it."""
        if {p.dtype for p in self.parameters} == {self._dtype}:
            return vector
        return self._joined(self.views(vector))

    def values(self) -> Array:
        """A new vector of the parameters' values."""
        return self._joined([p.detach() for p in self.parameters])

    @torch.no_grad()
    def set_gradients(self, vector: Array, without: Collection[int]) -> None:
        """Set each p.grad to its part of ``vector``, in place where it can be.

        It is in place as in DDP, for programs that keep the tensors: views of one buffer, which they clear
        at once, or gradients of a captured graph.  A p.grad is None, so that an optimiser leaves the
        parameter alone, for those whose numbers are in ``without``.
        """
        types = [getattr(p, "grad_dtype", None) or p.dtype for p in self.parameters]  # of newer versions
        kept = self._own_gradients(types)
        for j, (p, g) in enumerate(zip(self.parameters, self.views(vector, types), strict=True)):
            if j in without:
                p.grad = None
            elif j in kept:
                kept[j].copy_(g)
            else:
                # ``data`` has a version of its own, which does not count changes of its neighbours.
                p.grad = g.data

    def _own_gradients(self, types: Sequence[torch.dtype]) -> dict[int, Tensor]:
        """By number, each p.grad of its type in ``types`` that has memory of its own and no graph."""
        found: dict[int, Tensor] = {}
        spans: list[tuple[int, int, int, int]] = []
        for j, (p, dtype) in enumerate(zip(self.parameters, types, strict=True)):
            spans.append((p.untyped_storage().data_ptr(), *_span(p), -1))  # where no gradient is written
            g = p.grad
            if g is None or g.dtype != dtype or g.requires_grad or g.is_inference() or not is_plain(g):
                continue
            start, stop = _span(g)
            if stop - start == g.nbytes:  # neither expanded nor with gaps
                found[j] = g
                spans.append((g.untyped_storage().data_ptr(), start, stop, j))
        # One tensor may be the gradient of several parameters, as autograd.grad gives for x + y, or the
        # parameter itself, as of a decay.
        last, reach, holder = -1, 0, -1  # a storage, where its spans so far end, and whose span reaches there
        for storage, start, stop, j in sorted(spans):
            if storage == last and start < reach:
                found.pop(j, None)
                found.pop(holder, None)
            if storage != last or stop > reach:
                last, reach, holder = storage, stop, j
        return found

    @torch.no_grad()
    def set_values(self, vector: Array) -> None:
        """Set the parameters' values to ``vector``."""
        for p, value in zip(self.parameters, self.views(vector), strict=True):
            p.copy_(value)
        torch.clear_autocast_cache()  # inside of autocast the next forward would take the values before

    def views(self, vector: Array, types: Sequence[torch.dtype] | None = None) -> list[Tensor]:
        """New tensors with the entries of ``vector``, of the parameters' shapes, order and device.

        They are of ``types``; None: those of the parameters.
        Raises ``DivergedError`` if an entry is beyond its type, such as float16.
        """
        types = [p.dtype for p in self.parameters] if types is None else types  # they may have changed
        flat = self.tensor(vector).to(self.parameters[0].device)
        pieces = [*zip(self.parameters, types, flat.split(self._sizes), strict=True)]
        least = min(torch.finfo(t).max for t in set(types))
        if least < torch.finfo(self._dtype).max and flat.abs().max() > least:
            for (part, _), (_, dtype, piece) in zip(self.parts, pieces, strict=True):
                _refuse_beyond(dtype, part, piece)
        return [_ordered(p, piece.view(p.shape).to(dtype)) for p, dtype, piece in pieces]

    def _joined(self, tensors: list[Tensor]) -> Array:
        if self._dtype != torch.float64 and any(t.dtype == torch.float64 for t in tensors):
            raise ConfigError(
                "the model has become float64, and is aggregated in float32: convert it before Compressed or "
                "Hook is made."
            )
        pieces = [t.reshape(-1) for t in tensors]
        if [len(piece) for piece in pieces] != self._sizes:
            raise ConfigError("parameters have changed their shapes: make Compressed or Hook anew after it.")
        flat = self.empty()
        if tensors[0].device == flat.device:
            torch.cat(pieces, out=flat)
        else:
            flat.copy_(torch.cat(pieces))
        return self.vector(flat)


def _ordered(p: nn.Parameter, values: Tensor) -> Tensor:
    """``values`` in the memory order of ``p``, such as channels_last: a fused step takes both as they lie."""
    if p.is_contiguous():
        return values
    return torch.empty_like(p, dtype=values.dtype, requires_grad=False).copy_(values)


def _refuse_overlap(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise ``ConfigError`` if two entries share memory: a step would move it twice."""
    stored: dict[int, list[str]] = {}
    for name, p in parameters.items():
        stored.setdefault(p.untyped_storage().data_ptr(), []).append(name)
    for names in stored.values():
        spans = sorted(_span(parameters[name]) for name in names)
        apart = all(first[1] <= second[0] for first, second in pairwise(spans))
        filled = sum(stop - start for start, stop in spans) == sum(parameters[name].nbytes for name in names)
        if apart and filled:
            continue
        places = torch.cat([_places(parameters[name]) for name in names])
        if len(places.unique()) < len(places):
            raise ConfigError(
                f"entries of {' and '.join(map(repr, names))} are the same memory, as after expand or in "
                "views; allowed: parameters with memory of their own."
            )


def _span(p: Tensor) -> tuple[int, int]:
    """The first byte of ``p`` in its storage, and the byte after its last."""
    last = sum((size - 1) * stride for size, stride in zip(p.shape, p.stride(), strict=True))
    start = int(p.storage_offset())
    return start * p.element_size(), (start + int(last) + 1) * p.element_size()


def _places(p: Tensor) -> Tensor:
    """The byte in the storage of ``p`` at which each of its entries begins."""
    places = torch.tensor(p.storage_offset(), device="cpu")
    for size, stride in zip(p.shape, p.stride(), strict=True):
        places = places.unsqueeze(-1) + torch.arange(size, device="cpu") * stride
    return places.reshape(-1) * p.element_size()


def _refuse_beyond(dtype: torch.dtype, part: Part, values: Tensor) -> None:
    """Raise ``DivergedError`` if one of ``values`` is finite, and infinite in the type ``dtype``."""
    if (values.isfinite() & values.to(dtype).isinf()).any():
        raise DivergedError(
            f"the mean has in {part.name!r} a magnitude of {values.abs().max():.3g}, which {dtype} does not "
            "hold; allowed: parameters of float32 or float64, or a smaller loss scale."
        )


def _check_dense(part: Part, gradient: Tensor) -> None:
    """Raise ``ConfigError`` for a sparse gradient."""
    if gradient.layout != torch.strided:
        raise ConfigError(
            f"the gradient of {part.name!r} is sparse; allowed: dense ones, as of an nn.Embedding with "
            "sparse=False."
        )
