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

So a round takes a + b / rate seconds, and two methods that need K and K' rounds take the same time at

    rate = (K' b' - K b) / (K a - K' a').
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log

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
    replica    seconds to decode the broadcast and to update the replica
    own        bytes of the server's message to one worker alone, beside the broadcast
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


def round_time(
    costs: Costs, link: Link, workers: int, dedicated: bool = False, sharing: float = 1.0
) -> RoundTime:
    """The five times of a round; ``sharing`` is c, the number of ranks for each core, at least 1."""
    away = workers if dedicated else workers - 1
    ranks = away + 1
    beta, alpha = 8 * HEADERS / link.rate, link.latency

    def through_one_link(size: float) -> float:
        asks = 2 * alpha * ceil(away / ceil(AHEAD / size)) if size > EAGER else 0.0
        return alpha + away * size * beta + asks

    steps = 1 if ranks < 16 else depth(ranks)
    t = max(depth(ranks), 3 * steps if costs.down > EAGER else steps)
    return RoundTime(
        worker=sharing * costs.worker,
        up=through_one_link(costs.up),
        server=workers * costs.server,
        down=t * alpha
        + copies(ranks) * costs.down * beta
        + (through_one_link(costs.own) if costs.own else 0.0),
        replica=sharing * costs.replica,
    )


def sharded_time(costs: Costs, link: Link, workers: int, blocks: int, sharing: float = 1.0) -> RoundTime:
    """The five times of a round where every rank serves its share, in at most as many blocks as workers."""
    beta, alpha, n, S = 8 * HEADERS / link.rate, link.latency, workers, blocks
    b, t = broadcasting(n, S)
    step = costs.down / S * beta + MESSAGE  # of a block in its tree
    return RoundTime(
        worker=sharing * costs.worker,
        up=alpha + max(1.0, (n - 1) / S) * costs.up * beta + (n - 1 + S) * MESSAGE,
        server=n * costs.server / S,
        down=t * alpha + max(1.0, b / S) * costs.down * beta + (t - 1) * step + (b + S) * MESSAGE,
        replica=sharing * costs.replica,
    )


@lru_cache
def broadcasting(ranks: int, blocks: int) -> tuple[int, int]:
    """(b, t): the busiest rank sends b blocks of broadcasts a round; a block reaches all ranks in t steps."""
    owners = [b * ranks // blocks for b in range(blocks)]
    if tree.pays(owners, ranks):
        return tree.sends(owners, ranks), tree.steps(ranks)
    return ranks - 1, 1


def exchanges(ranks: int) -> int:
    """How often a rank sends the whole vector in an Allreduce by recursive doubling."""
    whole = ranks.bit_length() - 1
    return whole if ranks == 1 << whole else whole + 2


def allreduce_time(costs: Costs, link: Link, workers: int, sharing: float = 1.0) -> RoundTime:
    """The five times of a round where MPI_Allreduce sums vectors of ``costs.up`` bytes."""
    beta, alpha = 8 * HEADERS / link.rate, link.latency
    short = costs.up <= EAGER
    once = alpha + costs.up * beta if short else 3 * alpha + link.duplex * costs.up * beta
    return RoundTime(
        worker=sharing * costs.worker,
        up=exchanges(workers) * once,
        server=sharing * workers * costs.server,
        down=0.0,
        replica=sharing * costs.replica,
    )


def latency_of(empty_round: float, ranks: int) -> float:
    """The alpha for which the model's round of empty messages takes ``empty_round`` seconds."""
    return empty_round / (1 + depth(ranks))


TimeOf = Callable[[Costs, Link, int, float], RoundTime]  # costs, link, workers, sharing


def time_of(server: str, blocks: int | None = None) -> TimeOf:
    """The model of a round where ``server`` averages; ``blocks`` None: with "sharded", a block a worker."""
    if server == "sharded":
        return lambda costs, link, n, sharing: sharded_time(costs, link, n, min(blocks or n, n), sharing)
    if server == "allreduce":
        return allreduce_time
    return lambda costs, link, n, sharing: round_time(costs, link, n, server == "dedicated", sharing)


def break_even(
    compressed: tuple[int, Costs],
    plain: tuple[int, Costs],
    latency: float,
    workers: int,
    sharing: float,
    times: tuple[TimeOf, TimeOf] = (time_of("shared"), time_of("shared")),
) -> float:
    """The rate, in bits a second, below which ``compressed`` takes less time than ``plain``.

    Each method is given as (rounds, costs).  ``times`` are the models of their rounds, ``compressed`` first;
    ``latency`` is alpha in seconds, and ``sharing`` is c, the ranks for each core.  The result is inf if
    ``compressed`` is faster at every rate, 0 if at none.
    """
    a, b = _affine(times[0], *compressed, latency, workers, sharing)
    a_plain, b_plain = _affine(times[1], *plain, latency, workers, sharing)
    if b >= b_plain:
        return 0.0
    return (b_plain - b) / (a - a_plain) if a > a_plain else inf


def _affine(
    time: TimeOf, rounds: int, costs: Costs, latency: float, workers: int, sharing: float
) -> tuple[float, float]:
    """(a, b) such that all rounds together take a + b / rate seconds."""
    fixed = rounds * time(costs, Link(inf, latency), workers, sharing).total
    at_one = rounds * time(costs, Link(1.0, latency), workers, sharing).total
    return fixed, at_one - fixed


def crossing(rates: list[float], compressed: list[float], plain: list[float]) -> tuple[float, float]:
    """Bounds (low, high) on the break-even rate from times measured at increasing ``rates``.

    low = high where the times cross.  Between two rates, log(compressed/plain) is interpolated linearly in
    log(rate).  (0, slowest rate) if ``compressed`` never wins, (fastest rate, inf) if it always does.
    """
    ratios = [log(c / p) for c, p in zip(compressed, plain, strict=True)]
    if ratios[0] >= 0:
        return 0.0, rates[0]
    for i in range(1, len(rates)):
        if ratios[i] >= 0:
            share = -ratios[i - 1] / (ratios[i] - ratios[i - 1])
            rate = rates[i - 1] * (rates[i] / rates[i - 1]) ** share
            return rate, rate
    return rates[-1], inf
