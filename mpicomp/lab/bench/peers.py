"""torch's compressors: its selection of large entries, and the compression in its DDP communication hooks.

Only a hook's compression and decompression run here, by torch's own functions; the collectives between them
need a process group.  Hooks that cast also divide by the number of ranks; that division is left out.  torch
has no function that packs signs.  It uses as many threads as this library: ``MPICOMP_NUM_THREADS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as hooks

from mpicomp.base.arrays import Array
from mpicomp.base.checks import resolve_count
from mpicomp.kernels.threads import threads

Tensors = tuple[Any, ...]

CHANNEL = 512  # coordinates of a channel, the hook's default

torch.set_num_threads(threads())


class Message(Tensors):
    """The tensors that a hook would send for one vector."""

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self)


@dataclass(frozen=True)
class Peer:
    """A compressor of torch's with the interface of ``Compressor``."""

    name: str
    encode: Callable[[Any], Tensors]
    add: Callable[[Tensors, Any, float], object]  # message, out, scale: out += scale * C(x), in place

    def __str__(self) -> str:
        return self.name

    def compress(self, x: Array, key: object) -> Message:
        return Message(self.encode(torch.from_numpy(x)))

    def decompress_add(self, buf: Message, out: Array, key: object, scale: float = 1.0) -> None:
        self.add(buf, torch.from_numpy(out), scale)


def _top(x: Any) -> Tensors:
    """The largest 1 % of x in magnitude: their positions, as 32-bit integers, and their values."""
    kept = torch.topk(x.abs(), resolve_count(0.01, x.numel()), sorted=False).indices
    return kept.to(torch.int32), x[kept]


def _add_top(message: Tensors, out: Any, scale: float) -> None:
    kept, values = message
    out.index_add_(0, kept, values, alpha=scale)


def _quantize(x: Any) -> Tensors:
    """x in 256 even steps between its extremes, a byte a coordinate; and the scale and zero point."""
    observer = MinMaxObserver()
    observer(x)
    affine = torch.cat(observer.calculate_qparams())
    return hooks._quantize_per_tensor_backend(x, *affine), affine


def _add_quantized(message: Tensors, out: Any, scale: float) -> None:
    symbols, affine = message
    out.add_(hooks._dequantize_per_tensor_backend(symbols, *affine), alpha=scale)


def _quantize_channels(x: Any) -> Tensors:
    """As ``_quantize``, for each channel of 512 coordinates; as in the hook, 1 to 512 zeros are appended."""
    channels = torch.nn.functional.pad(x, (0, CHANNEL - x.numel() % CHANNEL)).view(-1, CHANNEL)
    observer = PerChannelMinMaxObserver()
    observer(channels)
    affine = torch.stack(observer.calculate_qparams())
    return hooks._quantize_per_channel_backend(channels, *affine), affine


def _add_channels(message: Tensors, out: Any, scale: float) -> None:
    symbols, affine = message
    values = hooks._dequantize_per_channel_backend(symbols, *affine)
    out.add_(values.flatten()[: out.numel()], alpha=scale)


def _cast(to: torch.dtype) -> Callable[[Any], Tensors]:
    return lambda x: (x.to(to),)


def _add_cast(message: Tensors, out: Any, scale: float) -> None:
    out.add_(message[0], alpha=scale)


PEERS = [
    Peer("torch.topk of |x|, 1%", _top, _add_top),
    Peer("torch quantization_pertensor_hook", _quantize, _add_quantized),
    Peer("torch quantization_perchannel_hook", _quantize_channels, _add_channels),
    Peer("torch fp16_compress_hook", _cast(torch.float16), _add_cast),
    Peer("torch bf16_compress_hook", _cast(torch.bfloat16), _add_cast),
]
