"""Compare the ledger with an independent byte counter: if they differ by one byte, the run fails.

The audit covers the traffic between its construction and its check.  It demands that in that time

* if rank 0 averages: each rank sent rank 0 the bytes that the ledger charges to the workers it hosts, and
  sent no message to another rank; workers on rank 0 itself send no MPI message; rank 0 sent each rank the
  bytes that the ledger charges to its workers alone, and broadcast the bytes that the ledger says each worker
  received beside these; no other rank broadcast;
* if every rank averages its blocks: each rank sent each other rank the blocks of its workers' messages that
  the other one serves, and the broadcasts that it owes it, its own or passed on;
* if MPI_Allreduce averages: each rank passed it the vectors of all rounds, and nothing else was sent.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mpicomp.averaging.ledger import Ledger
from mpicomp.base.errors import ConfigError, CountError
from mpicomp.transports import Transport
from mpicomp.transports.counters.base import Counted
from mpicomp.transports.counters.interfaces import sent_bytes

Booked = tuple[list[int], int]  # bytes sent to each rank, bytes passed to MPI_Allreduce
_SHOWN = 4  # differences listed in an error


@dataclass(frozen=True)
class Verified:
    """The independent count, which agreed with the ledger.

    counter  the name of the counter
    counted  its counts, by rank
    wire     bytes that the network interfaces of each host sent meanwhile, by host; empty with only one host
    """

    counter: str
    counted: list[Counted]
    wire: dict[str, int]

    @property
    def bytes(self) -> list[int]:
        """Bytes that each rank sent to others: a broadcast counts once a receiver, an Allreduce once."""
        others = len(self.counted) - 1
        return [sum(c.bytes) + c.broadcast * others + c.summed for c in self.counted]

    @property
    def messages(self) -> list[int]:
        """The number of messages that each rank sent: point-to-point, broadcasts and calls of Allreduce."""
        return [sum(c.messages) + c.broadcasts + c.sums for c in self.counted]


class Audit:
    """Compares the ledger with the counter, from construction on.  ``check`` is collective."""

    def __init__(
        self, transport: Transport, ledger: Ledger, booked: Callable[[], Booked | None] = lambda: None
    ) -> None:
        """``booked`` is ``Averaging.booked``: the bytes that this rank should have sent.

        Raises ``ConfigError`` if there are several ranks and the transport has no counter."""
        if transport.counter is None and transport.ranks > 1:
            raise ConfigError("verify_bytes needs a transport made with observed=True.")
        self._transport, self._ledger = transport, ledger
        self._up, self._own, self._shared = ledger.up.copy(), ledger.own.copy(), ledger.down - ledger.own
        self._booked, self._before = booked, booked()
        self._counted = transport.counter.counted() if transport.counter else None
        self._wire = sent_bytes()

    def check(self) -> Verified | None:
        """Return the counts, on every rank; None if there is only one rank, so that no byte crosses.

        Raises ``CountError`` on every rank if a count is not the ledger's.
        """
        t, counter = self._transport, self._transport.counter
        if counter is None or self._counted is None:
            return None
        wire, now = sent_bytes(), counter.counted()
        crossed = None if wire is None or self._wire is None else wire - self._wire
        booked = self._booked()
        if booked is not None and self._before is not None:
            (to_each, summed), (to_each_then, summed_then) = booked, self._before
            booked = [a - b for a, b in zip(to_each, to_each_then, strict=True)], summed - summed_then
        seen = t.collect((t.hosted, now.since(self._counted), socket.gethostname(), crossed, booked))

        def verified() -> Verified:
            assert seen is not None
            hosted, counted, hosts, wires, booked = zip(*seen, strict=True)
            expected = self._of_root(hosted) if None in booked else [(one, 0, sums) for one, sums in booked]
            if found := list(self._differences(expected, counted)):
                more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                raise CountError(
                    f"the ledger is not what MPI was given, as counted by {counter.name}: "
                    f"{'; '.join(found[:_SHOWN])}{more}. Unless the problem or the transport sends messages "
                    "of its own, this is a defect of mpicomp, and the run's byte counts cannot be trusted."
                )
            by_host = {host: n for host, n in zip(hosts, wires, strict=True) if n is not None}
            return Verified(counter.name, list(counted), by_host if len(by_host) > 1 else {})

        return t.ask_server(verified)

    def _of_root(self, hosted: list[range]) -> list[tuple[list[int], int, int]]:
        """For each rank (bytes to each rank, broadcast, summed) by the ledger, if rank 0 averages."""
        up, own = (self._ledger.up - self._up).tolist(), (self._ledger.own - self._own).tolist()
        nothing = [0] * (len(hosted) - 1)
        from_root = [0, *(sum(own[i] for i in workers) for workers in hosted[1:])]
        to_root = [sum(up[i] for i in workers) for workers in hosted[1:]]
        return [(from_root, max(self._broadcast()), 0), *(([sent, *nothing], 0, 0) for sent in to_root)]

    def _broadcast(self) -> set[int]:
        """The numbers of bytes that workers have received together with all others; on the server."""
        return set((self._ledger.down - self._ledger.own - self._shared).tolist())

    def _differences(
        self, expected: list[tuple[list[int], int, int]], counted: Sequence[Counted]
    ) -> Iterator[str]:
        """A line for each rank and peer for which the two counts differ; on the server."""
        if len(received := self._broadcast()) > 1:
            yield f"workers have received different numbers of bytes: {sorted(received)}"
        for rank, ((to_each, broadcast, summed), seen) in enumerate(zip(expected, counted, strict=True)):
            for peer, (sent, booked) in enumerate(zip(seen.bytes, to_each, strict=True)):
                if sent != booked:
                    yield f"rank {rank} to rank {peer}: {_difference(sent, booked)}"
            if seen.broadcast != broadcast:
                yield f"rank {rank} to every other rank: {_difference(seen.broadcast, broadcast)}"
            if seen.summed != summed:
                yield f"rank {rank} to sums of all ranks: {_difference(seen.summed, summed)}"


def _difference(sent: int, booked: int) -> str:
    return f"{sent} bytes sent, {booked} in the ledger ({sent - booked:+d})"
