"""The time of a round on links of a given speed: an alpha-beta model of this library's transport.

There are n workers, each on its own rank and host.  Rank 0 is the server; it hosts worker 0 too, unless it is
``dedicated``.  So s = n - 1 workers (dedicated: s = n) are away from the server, and R = s + 1 ranks take
part.  A link sends ``rate`` bits a second each way, alpha is the time of an empty message, and a payload byte
takes

    beta = 8 h / rate,  h = (1448 + 66) / 1448,  for the headers of Ethernet, IP and TCP around 1448 bytes.

A round is the sum of five times; nothing overlaps:

    worker   c w               gradient and compression, all workers at the same time
    up       alpha + s u beta  all messages of u bytes into the server's one link;
                               + 2 ceil(s / ceil(4 MiB / u)) alpha if u > 64 KiB: the server asks for
                               such messages, for as many at a time as make up 4 MiB
    server   n v               decoding the n messages and averaging them; v depends on n, for there is a
                               time for the step on their mean, and short messages are added many in a call
    down     t alpha + k m beta   Bcast of m bytes as Open MPI 5 does it (below)
    replica   c e               decoding the broadcast and the step, on all ranks at the same time

c = max(1, ranks on a machine / its cores) is 1 where every host has a core to itself.

Broadcast.  For lengths from 8 KiB to 512 KiB the algorithm of Open MPI 5 depends on the number of ranks:

    R < 16   one copy after the other from the root: k = R - 1, t = 1
    R < 64   a binomial tree: k = t = ceil(log2 R)
    else     a tree in which each rank sends three copies at a time: t = ceil(log4 R), k = 3 t

None of them is pipelined.  If m > 64 KiB, each of the t steps takes 3 alpha.  t is at least the depth of the
tree that carries the 16 bytes announcing the message.  If the server also sends each worker a message of its
own, they leave through its one link as those of the workers come in, with o bytes for u::

    own      alpha + s o beta + 2 ceil(s / ceil(4 MiB / o)) alpha if o > 64 KiB; a part of ``down``

Where every rank serves its share, in S <= n blocks of nearly equal size, the busiest rank serves one block.
It sends S and receives n - 1 blocks of messages, and a message takes 10 us of the processor at each end.
Broadcasts spread in trees if n is far above S: the busiest rank then sends b blocks, about S, and the last
one gets a block after t = ceil(log2 n) messages, one after the other.  Else b = n - 1 and t = 1::

    up       alpha + max(u, (n - 1) u / S) beta + (n - 1 + S) 10 us
    server   n v / S                v measured in S blocks
    down     t alpha + max(m, b m / S) beta + (t - 1) (m / S beta + 10 us) + (b + S) 10 us

Where MPI_Allreduce sums vectors of u bytes, it is taken to double recursively, as Open MPI 5 does it between
4, 7 and 8 hosts for all lengths measured, up to 1 MiB.  The ranks exchange whole vectors in pairs, j times,
j = floor(log2 n), and twice more if n is no power of 2::

    up       j (alpha + u beta)             u up to 64 KiB
             j (3 alpha + 1.4 u beta)       else: measured 1.2 to 1.5, for the two directions are in each
                                            other's way, unless Open MPI sends in fragments (``hosts``)
    server   n v                            the step after the sum, on all ranks at the same time
    down     0
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log

from mpicomp.base.units import human_time
from mpicomp.transports import tree
from mpicomp.transports.base import AHEAD

HEADERS = (1448 + 66) / 1448
MESSAGE = 1e-5  # seconds of the processor for a short message, at each end
EAGER = 64 * 1024  # bytes; Open MPI's TCP transport sends longer messages only when asked
DUPLEX = 1.4  # with what Open MPI does unless it is told otherwise


@dataclass(frozen=True)
class Costs:
    """The costs of a round that do not depend on the link.

    up, down  bytes of a worker's message, bytes of the broadcast
    worker    seconds for gradient, differences and compression of one worker
    server    seconds of the server's half, divided by the number of workers
    replica   seconds to decode the broadcast and to update the replica
    own       bytes of the server's message to one worker alone, beside the broadcast
    """

    up: float
    down: float
    worker: float
    server: float
    replica: float
    own: float = 0.0


@dataclass(frozen=True)
class Link:
    """A link between hosts.

    rate     bits a second, each way
    latency  alpha, in seconds one way, software included
    duplex   time of two long Allreduce messages in opposite directions, over the time of one alone
    """

    rate: float
    latency: float
    duplex: float = DUPLEX


@dataclass(frozen=True)
class RoundTime:
    """Seconds of a round, by the five parts of the model."""

    worker: float
    up: float
    server: float
    down: float
    replica: float

    @property
    def total(self) -> float:
        return self.worker + self.up + self.server + self.down + self.replica


def depth(ranks: int) -> int:
    """The number of links from the root to the farthest rank in the tree of a short broadcast."""
    return ceil(log(ranks, 2) - 1e-9) if ranks < 64 else ceil(log(ranks, 4) - 1e-9)


def copies(ranks: int) -> int:
    """k: a broadcast takes the time of sending its message k times, one after the other."""
    if ranks < 16:
        return ranks - 1
    return depth(ranks) if ranks < 64 else 3 * depth(ranks)


def exchanges(ranks: int) -> int:
    """How often a rank sends the whole vector in an Allreduce by recursive doubling."""
    whole = ranks.bit_length() - 1
    return whole if ranks == 1 << whole else whole + 2


@lru_cache
def broadcasting(ranks: int, blocks: int) -> tuple[int, int]:
    """(b, t): the busiest rank sends b blocks of broadcasts a round; a block reaches all ranks in t steps."""
    owners = [b * ranks // blocks for b in range(blocks)]
    if tree.pays(owners, ranks):
        return tree.sends(owners, ranks), tree.steps(ranks)
    return ranks - 1, 1


class RoundModel(ABC):
    """The model of a round of n workers, each on its own rank, whose messages are averaged in one way."""

    @abstractmethod
    def time(self, costs: Costs, link: Link, n: int, sharing: float = 1.0) -> RoundTime:
        """The five times of a round; ``sharing`` is c, the number of ranks for each core, at least 1."""

    @abstractmethod
    def received(self, costs: Costs, n: int) -> float:
        """Payload bytes that a rank that averages receives in a round; of several, the busiest."""

    @abstractmethod
    def sent(self, costs: Costs, n: int) -> float:
        """Payload bytes that it sends itself."""

    @abstractmethod
    def assumptions(self, n: int) -> str:
        """The assumptions on the ranks that serve, in sentences."""


@dataclass(frozen=True)
class ByRoot(RoundModel):
    """Rank 0 averages; unless it is ``dedicated`` it hosts worker 0 too."""

    dedicated: bool = False

    def _away(self, n: int) -> int:
        """s: the number of workers that are not on the server's rank."""
        return n if self.dedicated else n - 1

    def time(self, costs: Costs, link: Link, n: int, sharing: float = 1.0) -> RoundTime:
        away = self._away(n)
        ranks = away + 1
        beta, alpha = 8 * HEADERS / link.rate, link.latency

        def through_one_link(size: float) -> float:
            asks = 2 * alpha * ceil(away / ceil(AHEAD / size)) if size > EAGER else 0.0
            return alpha + away * size * beta + asks

        steps = 1 if ranks < 16 else depth(ranks)
        t = max(depth(ranks), 3 * steps if costs.down > EAGER else steps)
        own = through_one_link(costs.own) if costs.own else 0.0
        return RoundTime(
            worker=sharing * costs.worker,
            up=through_one_link(costs.up),
            server=n * costs.server,
            down=t * alpha + copies(ranks) * costs.down * beta + own,
            replica=sharing * costs.replica,
        )

    def received(self, costs: Costs, n: int) -> float:
        return self._away(n) * costs.up

    def sent(self, costs: Costs, n: int) -> float:
        away = self._away(n)
        return copies(away + 1) * costs.down + away * costs.own

    def assumptions(self, n: int) -> str:
        ranks = self._away(n) + 1
        role = "the server only" if self.dedicated else "the server, and hosts worker 0"
        return (
            f"rank 0 is {role}. A round is the sum of its parts. The server receives messages over its one "
            f"link; those above 64 KiB are sent when it asks for them, {AHEAD // 2**20} MiB at a time. The "
            f"broadcast is Open MPI 5's: {copies(ranks)} messages' lengths, {depth(ranks)} links deep. "
            f"MPI's own time on the processor is left out, some {human_time(MESSAGE)} for each message "
            "received."
        )


@dataclass(frozen=True)
class BySharded(RoundModel):
    """Every rank averages its share, in at most ``blocks`` blocks; None: a block a worker."""

    blocks: int | None = None

    def _blocks(self, n: int) -> int:
        return min(self.blocks or n, n)

    def time(self, costs: Costs, link: Link, n: int, sharing: float = 1.0) -> RoundTime:
        beta, alpha, S = 8 * HEADERS / link.rate, link.latency, self._blocks(n)
        b, t = broadcasting(n, S)
        step = costs.down / S * beta + MESSAGE  # of a block in its tree
        return RoundTime(
            worker=sharing * costs.worker,
            up=alpha + max(1.0, (n - 1) / S) * costs.up * beta + (n - 1 + S) * MESSAGE,
            server=n * costs.server / S,
            down=t * alpha + max(1.0, b / S) * costs.down * beta + (t - 1) * step + (b + S) * MESSAGE,
            replica=sharing * costs.replica,
        )

    def received(self, costs: Costs, n: int) -> float:
        S = self._blocks(n)
        return (n - 1) * costs.up / S + costs.down * (1 - 1 / S)

    def sent(self, costs: Costs, n: int) -> float:
        S = self._blocks(n)
        return costs.up * (1 - 1 / S) + broadcasting(n, S)[0] * costs.down / S

    def assumptions(self, n: int) -> str:
        S = self._blocks(n)
        steps = broadcasting(n, S)[1]
        return (
            f"{S} ranks serve a block each. "
            f"A broadcast takes {'one step' if steps == 1 else f'{steps} steps, in a tree'}. "
            "A round is the sum of its parts on the busiest rank. Its link is as busy as its bytes say, "
            f"and each message takes {human_time(MESSAGE)} of the processor at each end."
        )


@dataclass(frozen=True)
class ByAllreduce(RoundModel):
    """MPI_Allreduce sums vectors of ``costs.up`` bytes."""

    def time(self, costs: Costs, link: Link, n: int, sharing: float = 1.0) -> RoundTime:
        beta, alpha = 8 * HEADERS / link.rate, link.latency
        short = costs.up <= EAGER
        once = alpha + costs.up * beta if short else 3 * alpha + link.duplex * costs.up * beta
        return RoundTime(
            worker=sharing * costs.worker,
            up=exchanges(n) * once,
            server=sharing * n * costs.server,
            down=0.0,
            replica=sharing * costs.replica,
        )

    def received(self, costs: Costs, n: int) -> float:
        return exchanges(n) * costs.up

    def sent(self, costs: Costs, n: int) -> float:
        return self.received(costs, n)

    def assumptions(self, n: int) -> str:
        return (
            "MPI_Allreduce sums the vectors. A round is the sum of its parts. The ranks exchange whole "
            f"vectors in pairs {exchanges(n)} times, by recursive doubling, as Open MPI 5 does it "
            "between 8 hosts."
        )


def model_of(server: str, blocks: int | None = None) -> RoundModel:
    """The model where ``server``, one of ``runtime.placement.SERVERS``, averages; see ``BySharded``."""
    if server == "sharded":
        return BySharded(blocks)
    return ByAllreduce() if server == "allreduce" else ByRoot(dedicated=server == "dedicated")


def latency_of(empty_round: float, ranks: int) -> float:
    """The alpha for which the model's round of empty messages takes ``empty_round`` seconds."""
    return empty_round / (1 + depth(ranks))
