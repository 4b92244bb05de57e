"""The cost of entropy-coding a message with a symbol model learned from another message.

The other message comes from another round of the run, or from another layer.  A small network is trained, and
the messages of worker 0 in a few rounds are split into symbols: levels, exponents, gaps between positions.
Each message is coded with the model of every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.codecs import gaps
from mpicomp.codecs.entropy import bits, encode_model, entropy, fit, smoothed
from mpicomp.codecs.indices import decode_indices
from mpicomp.compressors import Dithering, Natural, Shrunk, TopK
from mpicomp.compressors.support.quantizer import Quantizer
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.methods import DIANA, EF21
from mpicomp.problems import MLP
from mpicomp.problems.mlp import layers
from mpicomp.runtime.loop import Loop
from mpicomp.transports.base import Take
from mpicomp.transports.local import Local

ROUNDS = (10, 100, 1000)
WORKERS, GAMMA, K = 4, 0.3, 0.05


@dataclass(frozen=True)
class Message:
    """The statistics of a message that determine its coded length.

    counts       how often each symbol occurs
    packed_bits  length of the message without entropy coding
    open_bits    further bits that follow the symbols uncoded
    """

    counts: NDArray[np.int64]
    packed_bits: float
    open_bits: int = 0

    def bits_by(self, other: Message) -> float:
        """Bits per symbol with the model of another message, which the receiver knows already."""
        return (bits(self.counts, smoothed(other.counts)) + self.open_bits) / self.counts.sum()

    def figures(self) -> dict[str, float]:
        """Bits per symbol: packed; fitted, with its own model sent along; entropy, the lower bound."""
        model, count = fit(self.counts), int(self.counts.sum())
        own = bits(self.counts, model) + 8 * len(encode_model(model))
        return {
            "symbols": count,
            "packed": self.packed_bits / count,
            "fitted": (own + self.open_bits) / count,
            "entropy": (entropy(self.counts) + self.open_bits) / count,
        }


def model_costs(data: str, rounds: tuple[int, ...] = ROUNDS) -> Iterator[dict[str, Any]]:
    """Bits per symbol for the messages of ``rounds`` and for their parts by layer; MLP on images ``data``."""
    for Q in (Dithering(7, "inf"), Natural()):
        for method in (DIANA(Q, gamma=GAMMA), EF21(Shrunk(Q), gamma=GAMMA)):
            yield from _compared(method, data, rounds, partial(_quantized, Q))
    yield from _compared(EF21(TopK(K), gamma=GAMMA), data, rounds, _positioned)


def _compared(
    method: DIANA | EF21,
    data: str,
    rounds: tuple[int, ...],
    parts: Callable[[Bytes, int], dict[str, Message]],
) -> Iterator[dict[str, Any]]:
    taken = {k: parts(buf, d) for k, buf, d in _messages(method, data, rounds)}
    whole = {f"round {k}": taken[k]["all"] for k in rounds}
    label = f"{type(method).__name__}, {method.C if isinstance(method, EF21) else method.Q}"
    yield from _crossed(label, whole)
    for k in rounds:
        by_layer = {f"round {k}, {part}": m for part, m in taken[k].items() if part != "all"}
        yield from _crossed(label, by_layer)


def _crossed(method: str, messages: dict[str, Message]) -> Iterator[dict[str, Any]]:
    for name, message in messages.items():
        by = {other: message.bits_by(messages[other]) for other in messages}
        yield {"method": method, "message": name, **message.figures(), "by_model_of": by}


def _messages(method: DIANA | EF21, data: str, rounds: tuple[int, ...]) -> Iterator[tuple[int, Bytes, int]]:
    """For each of ``rounds``: the round, the message of worker 0, and the dimension."""
    transport = _Listening(WORKERS)
    loop = Loop(method, MLP(data=data), transport, seed=0)
    for k in range(max(rounds) + 1):
        loop.step(k)
        if k in rounds:
            yield k, transport.heard, loop.x.size


class _Listening(Local):
    """A local transport that keeps the last message of worker 0."""

    heard: Bytes

    def gather(self, senders: Sequence[int], take: Take) -> AbstractContextManager[Take]:
        def heard(i: int, message: Bytes) -> None:
            if i == 0:
                self.heard = message.copy()
            take(i, message)

        return super().gather(senders, heard)


def _quantized(Q: Quantizer, buf: Bytes, d: int) -> dict[str, Message]:
    """The symbol statistics of a quantised message: of all coordinates, and of two layers' weights."""
    symbols, width = Q.symbols(buf, d), (8 * len(buf) - 8 * Q.head) / d
    first, _, last, _ = layers(np.arange(float(d)), MLP.hidden, 10)
    parts: dict[str, Any] = {
        "all": slice(0, d),
        "first layer": first.ravel().astype(int),
        "last layer": last.ravel().astype(int),
    }
    counts = {name: np.bincount(symbols[part], minlength=Q.alphabet) for name, part in parts.items()}
    return {name: Message(c, float(c.sum()) * width) for name, c in counts.items()}


def _positioned(buf: Bytes, d: int) -> dict[str, Message]:
    """The symbol statistics of a TopK message's positions."""
    k = max(1, round(K * d))
    split = index_nbytes(d, k)
    symbols, _ = gaps.symbols_of(decode_indices(buf[:split], d, k))
    counts = np.bincount(symbols, minlength=gaps.used(d))
    return {"all": Message(counts, 8 * split, int(gaps.widths_of(symbols).sum()))}
