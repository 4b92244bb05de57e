"""A server with many workers, a few of them real: the others send copies of the real ones' messages.

So the server decodes and adds as many messages as are asked for, while the gradients, the workers' states and
the memory are those of a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle, islice

from mpicomp.base.bits import Bytes
from mpicomp.base.blocks import Blocks
from mpicomp.keys import Key
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.runtime.loop import Loop
from mpicomp.runtime.rounds import Rounds
from mpicomp.transports.base import Take
from mpicomp.transports.exchange import Exchange, LocalExchange, Received, sound
from mpicomp.transports.local import Local


class Crowd(Local):
    """A transport for n workers, of whom only the first ``real`` ones exist, in this process.

    The other workers' messages are copies of the real ones.  A copy is received under the number of the
    worker that made the message, because that worker's key decodes it.  If no real worker takes part in a
    round, the round has no messages.
    """

    def __init__(self, n: int, real: int) -> None:
        super().__init__(n)
        self.hosted = range(real)

    @contextmanager
    def gather(self, senders: Sequence[int], take: Take) -> Iterator[Take]:
        real: list[tuple[int, Bytes]] = []
        yield lambda i, message: real.append((i, message))
        for i, message in _copied(real, len(senders)):
            take(i, message)

    def exchange(self, blocks: int) -> Exchange:
        return _CrowdExchange(blocks, self.hosted, lambda: self.stop)


class _CrowdExchange(LocalExchange):
    def receive(self, block: int, senders: Sequence[int]) -> AbstractContextManager[Received]:
        return nullcontext(_copied([(i, sound(m)) for i, m in self._sent[block].items()], len(senders)))


def _copied(real: list[tuple[int, Bytes]], count: int) -> Iterator[tuple[int, Bytes]]:
    """``count`` messages: the ``real`` ones, over and over."""
    return islice(cycle(real), count)


def server_seconds(
    method: Method, problem: Problem, n: int, real: int, rounds: int, server: str = "shared", blocks: int = 1
) -> float:
    """Mean seconds of the server's half of a round with n workers, ``real`` ones and copies.

    The problem is split among the real workers, and the step sizes are computed for that many workers.
    """
    loop = Loop(method, problem, Local(real), seed=0, server=server, blocks=blocks)
    crowd = Crowd(n, real)
    cut = Blocks.cut(problem.parts(), blocks) if blocks > 1 else None
    many = Rounds(loop.method, loop.x, loop.objectives, crowd, server=server, blocks=cut)
    for k in range(rounds):
        many.play(Key(loop.seed, k, None, n), f"round {k}")
    return crowd.clock.seconds["server"] / rounds
