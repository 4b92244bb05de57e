"""The ledger beside an independent counter's count: equal byte for byte, or the run has failed.

The audit covers the traffic between its construction and its check.  It demands that in that time

* where the root serves, each rank sent it the bytes that the ledger charges to the workers it hosts;
  workers on the server's own rank send no MPI message;
* no rank sent a point-to-point message to any rank but the server;
* the root broadcast the bytes that the ledger says each worker received; no other rank broadcast;
* where every rank serves its share, each rank sent each other rank what the ledger of its share says: the
  blocks of its workers' messages that the other one serves, and the broadcasts that it sends there, its
  own or passed on;
* where MPI_Allreduce averages, each rank handed it the vectors of all rounds, and nothing else was sent.
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

Booked = tuple[list[int], int]  # bytes to each rank, and to sums
_SHOWN = 4  # differences listed in an error


@dataclass(frozen=True)
class Verified:
    """A count that agreed.

    counter  the name of the counter that counted
    counted   its counts, by rank
    wire      bytes that the interfaces of each host sent meanwhile, by host; empty if there is only one
    """

    counter: str
    counted: list[Counted]
    wire: dict[str, int]

    @property
    def bytes(self) -> list[int]:
        """Bytes that went from each rank to others, a broadcast once for each that gets it, a sum once."""
        others = len(self.counted) - 1
        return [sum(c.bytes) + c.broadcast * others + c.summed for c in self.counted]

    @property
    def messages(self) -> list[int]:
        """Messages from each rank to another, broadcasts, and sums."""
        return [sum(c.messages) + c.broadcasts + c.sums for c in self.counted]


class Audit:
    """Compares the ledger with the counter, from construction on.  ``check`` is collective."""

    def __init__(
        self, transport: Transport, ledger: Ledger, booked: Callable[[], Booked | None] = lambda: None
    ) -> None:
        """``booked`` is ``Averaging.booked``.

        Raises ``ConfigError`` if bytes cross between ranks and the transport has no counter."""
        if transport.counter is None and transport.ranks > 1:
            raise ConfigError("verify_bytes needs a transport made with observed=True.")
        self._transport, self._ledger = transport, ledger
        self._up, self._down = ledger.up.copy(), ledger.down.copy()
        self._booked, self._before = booked, booked()
        self._counted = transport.counter.counted() if transport.counter else None
        self._wire = sent_bytes()

    def check(self) -> Verified | None:
        """The counts, on every rank, or None if there is one rank only: then nothing crosses.

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

        def compare() -> Verified:
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

        return t.ask_server(compare)

    def _of_root(self, hosted: list[range]) -> list[tuple[list[int], int, int]]:
        """For each rank the bytes that it sent to each, broadcast, and summed, by the ledger of a root."""
        up = (self._ledger.up - self._up).tolist()
        down = int((self._ledger.down - self._down).max())
        to_root = [0, *(sum(up[i] for i in workers) for workers in hosted[1:])]
        nothing = [0] * (len(hosted) - 1)
        return [([sent, *nothing], down if rank == 0 else 0, 0) for rank, sent in enumerate(to_root)]

    def _differences(
        self, expected: list[tuple[list[int], int, int]], counted: Sequence[Counted]
    ) -> Iterator[str]:
        """A line for each rank and peer for which the two counts differ; on the server."""
        received = {int(d) for d in self._ledger.down - self._down}
        if len(received) > 1:
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
