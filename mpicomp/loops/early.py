"""Send a round's uplink block by block, while the rest of the gradient is still being computed.

Theory of operation.  A worker's step for block b needs only block b of its gradient, of its state and of the
replica.  So each block can be compressed and sent as soon as its gradient is computed.  Backpropagation
computes the blocks from the last to the first.  The messages are those of ``Sharded.play``, byte for byte.

A worker's state must not change if some rank's gradient turns out not to be finite.  So the steps act on a
copy (``tentative``), which becomes the state once all ranks go on with the round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpicomp.averaging.sharded import Sharded, joined
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError
from mpicomp.base.given_arrays import is_finite, refuse_mask
from mpicomp.keys import Key
from mpicomp.loops.tentative import TentativeSteps
from mpicomp.runtime.measure import is_float
from mpicomp.runtime.own_methods import check_senders
from mpicomp.runtime.rounds import Rounds


class Early:
    """Send the blocks of this rank's one worker early, while ``rounds`` are played with sharded averaging.

    slices   the slice of each block in the gradient, shape (d,)
    at_drop  called when a round is given up

    A round is ``begin``, ``bring`` for each block from the last to the first, and then either ``commit`` with
    the rest of ``Sharded.play``, or ``drop``.  All ranks commit, or all drop.
    Raises ``ConfigError`` if a worker's step needs more than one block at a time.
    """

    def __init__(self, rounds: Rounds, averaging: Sharded) -> None:
        if not rounds.method.worker_separable or rounds.method.needs_function:
            raise ConfigError(
                f"a worker's step of {type(rounds.method).__name__} needs more than one block of its "
                "gradient at one point, so blocks cannot leave one by one: leave overlap out."
            )
        (self._worker,) = rounds.workers
        self._rounds, self._averaging, d = rounds, averaging, rounds.x.size
        self.slices = averaging.slices(d)
        self._steps = TentativeSteps(rounds, averaging.method, self._worker, self.slices)
        self._ups: list[Any] = []
        self._failed: MpicompError | None = None
        self.begun = False
        self.at_drop: Callable[[], None] = lambda: None
        averaging.sent_early = self.commit

    def begin(self, key: Key) -> None:
        """Begin the round of ``key``, before any of its blocks is brought."""
        self._key, self._failed, self.begun = key, None, True
        self._ups.clear()
        self._brought: dict[int, int] = {}  # block -> the sum of the bits of its gradient
        self._size = 0
        self._left = len(self.slices)  # blocks to be brought
        senders = self._averaging.method.senders(key)
        if self._rounds.method.of_ones_own:
            check_senders(self._rounds.method, senders, key)
        self._sends = self._worker in senders
        self._averaging.exchange.begin()

    def bring(self, block: int, gradient: Array) -> None:
        """Compress and send block ``block``; ``gradient`` is that block of the gradient.

        Raises ``ConfigError`` if it is not the block's turn.  Any other ``MpicompError`` is kept and raised
        by ``check``, because here it would be raised on this rank alone.
        """
        if not self._left:
            raise ConfigError(
                f"block {block!r} was brought; all are here: make the call with the whole gradient."
            )
        if isinstance(block, float) or block != self._left - 1:
            raise ConfigError(
                f"block {block!r} was brought; expected {self._left - 1}, then those before it."
            )
        self._left = block = self._left - 1
        if not self._sends:
            self._averaging.exchange.post(block, {})
            return
        message = np.empty(0, np.uint8)  # where the round is dropped
        try:
            self.check()
            with np.errstate(over="ignore", under="ignore"):
                gradient = self._checked(block, gradient)
            if not is_finite(gradient):
                raise DivergedError(f"worker {self._worker}: the gradient is not finite.")
            self._brought[block] = _sum_of_bits(gradient)
            quiet = np.errstate(over="ignore", under="ignore", invalid="ignore")
            with self._rounds.transport.clock.phase("compress"), quiet:
                up = self._steps.step(block, gradient, self._key)
                message = self._rounds.books.encoded(up)
            self._ups.append(up)
        except MpicompError as error:
            self._failed = error
        self._averaging.book(self._worker, block, len(message))
        self._size += len(message)
        self._averaging.exchange.post(block, {self._worker: message})

    def _checked(self, block: int, gradient: Any) -> Array:
        """``gradient`` in the vector's type.  Raises ``ConfigError`` unless it is like that block."""
        where, vector = self.slices[block], self._rounds.x
        refuse_mask(f"block {block}", gradient)
        shape = (where.stop - where.start,)
        if isinstance(gradient, type(vector)) and gradient.shape == shape and is_float(gradient):
            return gradient.astype(vector.dtype, copy=False)
        given = f"a {type(gradient).__name__}"
        if hasattr(gradient, "dtype"):
            given = f"{gradient.dtype} of shape {tuple(gradient.shape)}"
        raise ConfigError(
            f"block {block} was given {given}; expected {type(vector).__module__}'s floats of at most 64 "
            f"bits, of shape {shape}: the slice overlap()[{block}] of the gradient."
        )

    def check(self) -> None:
        """Raise the error that ``bring`` has met in this round, if any."""
        if self._failed is not None:
            raise self._failed

    def check_all(self) -> None:
        """Raise the error of ``check``, or ``ConfigError`` if only some blocks of this round were brought."""
        self.check()
        if self.begun and self._left:
            raise ConfigError(
                f"blocks {self._left} and above were brought, and not those below: bring all of them, from "
                "the last to the first, before the call with the whole gradient."
            )

    def check_whole(self, gradient: Array) -> None:
        """Raise ``ConfigError`` if a block of ``gradient``, shape (d,), is not the one that was brought."""
        if not self.begun:
            return
        for b, total in self._brought.items():
            if _sum_of_bits(gradient[self.slices[b]]) != total:
                raise ConfigError(
                    f"block {b} of the gradient is not what bring was given, and that has left already: make "
                    "the call with the gradient that was brought, or leave overlap out."
                )

    def commit(self) -> bool:
        """Make the copied state the worker's state, if the round was begun.  Returns whether it was begun."""
        if not self.begun:
            return False
        self.begun = False
        if not self._sends:
            return True
        self._steps.commit()
        self._averaging.enter(self._worker, joined(self._ups[::-1]), self._size, self._key)
        return True

    def drop(self) -> None:
        """Give up this round: the state stays as it was, but the bytes sent are counted; collective."""
        self.begun = False
        self._averaging.enter(self._worker, None, self._size, self._key)
        exchange, senders = self._averaging.exchange, self._averaging.method.senders(self._key)
        for b in range(self._left - 1, -1, -1):  # which the other ranks wait for
            exchange.post(b, {self._worker: np.empty(0, np.uint8)} if self._sends else {})
        for b in exchange.served:
            with exchange.receive(b, senders):
                pass
        exchange.drop()
        self.at_drop()


def _sum_of_bits(gradient: Array) -> int:
    """The sum of the entries' bits, as integers of 32 bits, which a change of scale, as clipping's, changes.

    A sum of integers of 64 bits is modulo 2^64: it is the same for 4096 entries and for their halves.
    """
    return int(gradient[:, None].view("u4").sum(dtype=np.uint64))  # a column, whose entries lie anywhere
