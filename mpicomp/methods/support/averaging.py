"""Methods whose server averages the workers' messages and broadcasts the average."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import BlockMessages
from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.compressors import Compressor
from mpicomp.compressors.base import Sum
from mpicomp.compressors.blockwise import Blockwise
from mpicomp.compressors.lossless import Lossless
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Message, Method
from mpicomp.methods.support.forwarding import Forwarding, is_forwarded, split


class AveragingMethod(Method):
    """Each worker sends one compressed vector; the server averages these and broadcasts the mean, compressed.

    A subclass that broadcasts something else overrides ``answer``.

    down  the compressor of the server's broadcast
    """

    down: Compressor

    @abstractmethod
    def uplink(self, key: Key) -> Compressor:
        """The compressor that the workers use in the round of ``key``."""

    def entries(self, d: int, key: Key) -> int:
        """The length of the vector that a worker compresses in the round of ``key``; the iterate has d."""
        return d

    def weight(self, key: Key) -> float:
        """The weight of each message in the mean of the round of ``key``."""
        return 1 / key.n

    @property
    def sums(self) -> bool:
        """Whether the server needs no more of the messages than their sum, as an MPI_Allreduce gives it."""
        return True

    def total(self, out: Array, key: Key) -> Sum:
        """Begin the sum of the messages of the round of ``key``; ``out`` is 0."""
        return self.uplink(key).sum(out, key, self.weight(key))

    def server_step(self, s: Any, r: Any, key: Key) -> Accumulator:
        total = self.total(np.zeros_like(getattr(r, self.iterate)), key)
        if down := self._forwarding:
            return Forwarding(total, lambda m: self.answer(s, r, m, key), down.most_nbytes(total.out.size))
        return Means({"m": total}, lambda m: Message(self.answer(s, r, m, key)))

    def answer(self, s: Any, r: Any, m: Array, key: Key) -> Bytes:
        """Make the broadcast from ``m``, the mean of the workers' messages; this changes ``s`` alone."""
        return self.down.compress(m, key)

    @property
    def may_forward(self) -> bool:
        steps = type(self).server_step, type(self).answer
        return steps == (AveragingMethod.server_step, AveragingMethod.answer)

    @property
    def _forwarding(self) -> Lossless | None:
        """``down``, without its blocks, if it forwards messages."""
        down = self.down.C if isinstance(self.down, Blockwise) else self.down
        return down if isinstance(down, Lossless) and down.forward else None

    def received(self, broadcast: Message, r: Any, key: Key) -> Message:
        if not self._forwarding:
            return broadcast
        like = getattr(r, self.iterate)
        means = tuple(
            method._message_of_mean(m, like[where], key)
            for method, m, where in self._by_block(broadcast.m, like.size)
        )
        return Message(BlockMessages(means) if isinstance(broadcast.m, BlockMessages) else means[0])  # type: ignore[arg-type]

    def _message_of_mean(self, m: Bytes, like: Array, key: Key) -> Bytes:
        """The message of the mean, where ``m`` may have forwarded messages: as the server made it."""
        if not is_forwarded(m):
            return m
        total, senders = self.total(np.zeros_like(like), key), self.senders(key)
        try:
            for i, message in zip(senders, split(m, len(senders)), strict=True):
                total.take(i, message)
            return self.down.compress(total.close(), key)
        except DivergedError as error:  # the server has sent no such messages
            raise MessageError(f"forwarded messages: {error}") from None

    def _by_block(self, m: Any, d: int) -> Iterator[tuple[Self, Bytes, slice]]:
        """For each block of a broadcast: the method that serves it, its message and its slice of a vector."""
        if isinstance(self.down, Blockwise) and self.down.only is None:
            for b, where in enumerate(self.down.blocks.slices(d)):
                yield self.of_block(b), m.of_blocks[b], where
        else:
            yield self, m, slice(0, d)

    def paper_bits(self, up: Message, d: int, key: Key) -> int:
        return self.uplink(key).paper_bits(up.m, d, key)

    def paper_bits_down(self, broadcast: Message, d: int, key: Key) -> int:
        if not self._forwarding:
            return self.down.paper_bits(broadcast.m, d, key)
        return sum(
            method._charge(m, where.stop - where.start, key)
            for method, m, where in self._by_block(broadcast.m, d)
        )

    def _charge(self, m: Bytes, d: int, key: Key) -> int:
        """The bits that the papers charge for ``m``, the message of the mean or the forwarded messages."""
        if not is_forwarded(m):
            return self.down.paper_bits(m, d, key)
        C, senders = self.uplink(key), self.senders(key)
        sent = zip(senders, split(m, len(senders)), strict=True)
        return sum(C.paper_bits(message, d, key.of(i)) for i, message in sent)


class Means(Accumulator):
    """A server step that averages some fields of the workers' messages and makes the broadcast of the means.

    sums    for each of these fields of ``Up``, by name, the ``Sum`` that adds its messages; a sum scales each
            message by its weight in the mean
    answer  called with the means, in the order of ``sums``; returns the broadcast
    """

    def __init__(self, sums: Mapping[str, Sum], answer: Callable[..., Any]) -> None:
        self._sums, self._answer = sums, answer

    def take(self, key: Key, up: Any) -> None:
        assert key.worker is not None
        for name, total in self._sums.items():
            total.take(key.worker, getattr(up, name))

    def flush(self) -> None:
        for total in self._sums.values():
            total.flush()

    def close(self) -> Any:
        return self._answer(*[total.close() for total in self._sums.values()])


class Each(Accumulator):
    """A server step made of two functions.

    add     called with each worker's key and message
    answer  called once, after all messages; returns the broadcast
    """

    def __init__(self, add: Callable[[Key, Any], None], answer: Callable[[], Any]) -> None:
        self._add, self._answer = add, answer

    def take(self, key: Key, up: Any) -> None:
        self._add(key, up)

    def close(self) -> Any:
        return self._answer()


def means(Q: Compressor, like: Array, key: Key, names: Sequence[str], answer: Callable[..., Any]) -> Means:
    """``Means`` over all n workers of the fields ``names`` of ``Up``, whose messages are compressed by Q.

    like    an array of the shape and on the device of the vectors
    key     of the round; ``key.named(name)`` decodes the field ``name``, so each field has its own draws
    answer  called with the means, in the order of ``names``; returns the broadcast
    """
    return Means({name: Q.sum(np.zeros_like(like), key.named(name), 1 / key.n) for name in names}, answer)
