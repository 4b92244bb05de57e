"""What an audit makes of two counts, without MPI: the ranks and what they are seen to send are made up."""

from __future__ import annotations

import pytest

from mpicomp.averaging.books import Books
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.errors import ConfigError, CountError, MessageError
from mpicomp.methods import GD
from mpicomp.runtime.audit import Audit
from mpicomp.transports.counters.base import ByteCounter, Counted
from mpicomp.transports.counters.interfaces import parsed
from mpicomp.transports.local import Local


class Scripted(ByteCounter):
    """Shows what it is told to; the first count is nothing."""

    name = "a script"

    def __init__(self, ranks: int) -> None:
        self.now = Counted([0] * ranks, [0] * ranks, 0, 0)

    def counted(self) -> Counted:
        return self.now

    def set_paused(self, paused: bool) -> None:
        """It has no eyes."""

    def close(self) -> None:
        """It holds nothing."""


class Rigged(Local):
    """Three ranks with two workers each.  This process is the server; ``others`` is what they tell."""

    def __init__(self) -> None:
        super().__init__(6)
        self.ranks, self.hosted, self.counter = 3, range(2), Scripted(3)
        self.others: list = []

    def collect(self, value: object) -> list[object]:
        return [value, *self.others]


@pytest.fixture
def counts():
    """An honest run after one that was resumed: each worker sends 10 bytes, each receives 7, in 2 rounds."""
    transport, ledger = Rigged(), Ledger(6)
    ledger.up += 1000
    ledger.down += 500
    audit = Audit(transport, ledger)
    ledger.up += 10
    ledger.down += 7
    transport.counter.now = Counted([0, 0, 0], [0, 0, 0], 7, 2)
    uplink = Counted([20, 0, 0], [4, 0, 0], 0, 0)
    transport.others = [(range(2, 4), uplink, "b", 90, None), (range(4, 6), uplink, "b", 90, None)]
    return audit, transport, ledger


def test_counts_that_agree(counts):
    audit, _, _ = counts
    verified = audit.check()
    assert verified.counter == "a script"
    assert verified.bytes == [14, 20, 20]  # 7 bytes go to two ranks
    assert verified.messages == [2, 4, 4]
    assert verified.wire["b"] == 90  # two ranks on one host: its interfaces are read once


def test_every_difference_is_named(counts):
    audit, transport, ledger = counts
    ledger.up[3] -= 1
    transport.counter.now = Counted([0, 3, 0], [0, 1, 0], 6, 2)
    stray = Counted([20, 9, 0], [4, 1, 0], 5, 1)
    transport.others[1] = (range(4, 6), stray, "b", 90, None)
    with pytest.raises(CountError) as raised:
        audit.check()
    for line in (
        "rank 0 to rank 1: 3 bytes sent, 0 in the ledger (+3)",
        "rank 0 to every other rank: 6 bytes sent, 7 in the ledger (-1)",
        "rank 1 to rank 0: 20 bytes sent, 19 in the ledger (+1)",
        "rank 2 to rank 1: 9 bytes sent, 0 in the ledger (+9); and 1 more",
    ):
        assert line in str(raised.value)


def test_a_ledger_that_disagrees_with_itself(counts):
    audit, _, ledger = counts
    ledger.down[4] += 1
    with pytest.raises(CountError, match=r"different numbers of bytes: \[7, 8\]"):
        audit.check()


def test_messages_to_one_worker_alone_are_expected_from_the_server(counts):
    """Worker i receives i bytes alone, and 7 with all others; workers 0 and 1 live on the server's rank."""
    audit, transport, ledger = counts
    for received in (ledger.down, ledger.own):
        received += range(6)
    with pytest.raises(CountError, match=r"rank 0 to rank 1: 0 bytes sent, 5 in the ledger \(-5\)"):
        audit.check()
    transport.counter.now = Counted([0, 5, 9], [0, 2, 2], 7, 2)
    assert audit.check().bytes == [5 + 9 + 14, 20, 20]
    transport.counter.now = Counted([0, 5, 10], [0, 2, 2], 7, 2)
    with pytest.raises(CountError, match=r"rank 0 to rank 2: 10 bytes sent, 9 in the ledger \(\+1\)"):
        audit.check()


def test_a_transport_that_nobody_observes_is_refused():
    transport = Rigged()
    transport.counter = None
    with pytest.raises(ConfigError, match="observed=True"):
        Audit(transport, Ledger(6))


def test_alone_there_is_nothing_to_compare():
    assert Audit(Local(6), Ledger(6)).check() is None


def test_the_kernels_table_of_interfaces():
    """Bytes sent are the ninth number of a line; the loopback interface is left out."""
    table = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n"
        "    lo:  500000     400    0    0    0     0          0         0   500000     400    0    0\n"
        "  eth0: 1183297    1000    0    0    0     0          0         0    77123     900    0    0\n"
        "veth-1:      10       1    0    0    0     0          0         0        7       1    0    0\n"
    )
    assert parsed(table) == 77130


@pytest.mark.parametrize("direction", ["up", "down", "own"])
def test_the_ledger_is_exact_beyond_2_to_the_53(direction):
    counts = getattr(Ledger(2), direction)
    for size in (2**53, 1):
        counts[1] += size
    assert counts.tolist() == [0, 2**53 + 1]


def test_a_sum_of_ledgers_has_each_count_of_all():
    one, other = Ledger(2), Ledger(2)
    for i, ledger in enumerate((one, other)):
        ledger.up[0], ledger.down[1], ledger.own[1] = 10**i, 20**i, 30**i
        ledger.paper_bits_up, ledger.paper_bits_down, ledger.set_up_bytes = 40**i, 50**i, 60**i
    total = Ledger.sum([one, other])
    assert [c.tolist() for c in (total.up, total.down, total.own)] == [[11, 0], [0, 21], [0, 31]]
    assert (total.paper_bits_up, total.paper_bits_down, total.set_up_bytes) == (41, 51, 61)
    assert one.up_bytes == 1 and Ledger.sum([one]) is one


def test_a_bad_message_is_of_the_worker_that_it_names_or_else_of_the_sender():
    books = Books(GD(gamma=0.1), 3, Local(3))
    books.sender, books.original_ids[1] = 2, 7  # worker 1 was worker 7 before ranks died
    error = MessageError("short")
    assert str(books.named(error)).endswith("worker 2: short")
    error.worker = 1
    assert str(books.named(error)).endswith("worker 7: short")
