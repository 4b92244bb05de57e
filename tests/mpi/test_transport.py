"""Messages, errors and requests to stop between ranks; run on every rank at once, as ``test_ranks``."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import DataError
from mpicomp.transports.launcher import launched_rank, launched_ranks
from tests.mpi.everywhere import everywhere

pytestmark = pytest.mark.mpi(min_size=2)


def gathered(transport, message):
    """The messages that the server takes where worker i sends ``message(i)``."""
    taken = []
    with transport.gather(range(transport.n), lambda i, m: taken.append((i, m.tolist()))) as send:
        for i in transport.hosted:
            send(i, message(i))
    return taken


def test_the_server_receives_in_worker_order(transport):
    received = gathered(transport, lambda i: np.full(i + 1, i, np.uint8))
    assert received == ([(i, [i] * (i + 1)) for i in range(10)] if transport.is_server else [])


def test_empty_messages_arrive(transport):
    received = gathered(transport, lambda i: np.empty(0, np.uint8))
    assert len(received) == (10 if transport.is_server else 0)
    down, stop = transport.broadcast(np.empty(0, np.uint8) if transport.is_server else None)
    assert len(down) == 0 and not stop


def test_an_error_of_one_rank_is_raised_on_all(transport):
    def action():
        if transport.rank == transport.ranks - 1:
            raise DataError("only here")
        return transport.rank

    with pytest.raises(DataError, match="only here"):
        transport.raise_on_all(action)
    assert transport.raise_on_all(lambda: 7) == 7  # and the transport is still good


def test_what_the_server_is_asked_every_rank_knows(transport):
    ran = []

    def action():
        ran.append(transport.rank)
        return {"rank": transport.rank, "rows": [1, 2]}

    assert transport.ask_server(action) == {"rank": 0, "rows": [1, 2]}
    assert ran == ([0] if transport.is_server else [])


def test_an_error_of_the_servers_answer_is_raised_on_all(transport):
    def action():
        raise DataError(f"on rank {transport.rank}")

    before = list(transport.sent)
    with pytest.raises(DataError, match="on rank 0"):
        transport.ask_server(action)
    assert transport.ask_server(lambda: 7) == 7  # and the transport is still good
    assert transport.sent == before


def test_a_failed_worker_fails_the_round_everywhere_and_leaves_nothing_behind(transport):
    def round_trip(fail):
        def message(i):
            if fail and i == 6:
                raise DataError("worker 6")
            return np.full(100_000, i, np.uint8)  # long enough to need a matching receive

        try:
            received = [i for i, _ in gathered(transport, message)]
        except DataError as error:
            transport.fail(error)
            raise
        transport.broadcast(np.zeros(1, np.uint8) if transport.is_server else None)
        return received

    with pytest.raises(DataError, match="worker 6"):
        round_trip(fail=True)
    assert round_trip(fail=False) == (list(range(10)) if transport.is_server else [])


def own_message(i):
    """Worker i's own: of nothing, of a byte, and long enough to need a matching receive."""
    return np.full((0, 1, 100_000)[i % 3], i, np.uint8)


def scattered(transport, make=own_message):
    """The workers that took their own message here, in turn; then the broadcast that ends a round."""
    taken = []

    def take(i, message):
        assert np.array_equal(message, own_message(i))
        taken.append(i)

    try:
        transport.scatter(make, take)
    except DataError as error:
        transport.fail(error)
        raise
    transport.broadcast(np.zeros(1, np.uint8) if transport.is_server else None)
    return taken


@pytest.mark.parametrize("ahead", [None, 1])
def test_each_worker_gets_a_message_of_its_own_on_its_rank(monkeypatch, transport, ahead):
    """However few bytes are under way at a time; the messages are made in worker order."""
    from mpicomp.transports import ranks

    if ahead is not None:
        monkeypatch.setattr(ranks, "AHEAD", ahead)
    before, made = transport.sent[0], []

    def make(i):
        made.append(i)
        return own_message(i)

    assert scattered(transport, make) == list(transport.hosted)
    assert made == (list(range(10)) if transport.is_server else [])
    crossed = sum(len(own_message(i)) for i in range(10) if i not in transport.hosted) + transport.ranks - 1
    assert transport.sent[0] - before == (crossed if transport.is_server else 0)


def test_the_server_holds_no_more_messages_than_are_ahead(monkeypatch, transport):
    """Each message is known to be sent before the next one is made."""
    from mpicomp.transports import ranks

    monkeypatch.setattr(ranks, "AHEAD", 1)
    requests = getattr(transport, "_requests", ())  # of one process there are none

    def make(i):
        assert not requests
        return np.full(100_000, i, np.uint8)

    transport.scatter(make, lambda i, message: None)
    transport.broadcast(np.zeros(1, np.uint8) if transport.is_server else None)


@pytest.mark.parametrize("bad", [0, 4, 9])
def test_a_message_that_cannot_be_made_fails_the_round_everywhere_and_leaves_nothing_behind(transport, bad):
    def make(i):
        if i == bad:
            raise DataError(f"for worker {i}")
        return own_message(i)

    with pytest.raises(DataError, match=f"for worker {bad}"):
        scattered(transport, make)
    assert scattered(transport) == list(transport.hosted)


@pytest.mark.parametrize("dropped", [False, True])
def test_nothing_is_under_way_once_an_exchange_has_ended(transport, dropped):
    """The next one uses the memory of broadcasts again, and this rank may have passed them on."""
    exchange, block = transport.exchange(4), np.zeros(100_000, np.uint8)
    exchange.send({i: [block] * 4 for i in transport.hosted})
    for b in exchange.served:
        with exchange.receive(b, range(transport.n)) as received:
            assert [i for i, _ in received] == list(range(transport.n))
        if not dropped:
            exchange.publish(b, block)
    exchange.drop() if dropped else exchange.collect()
    assert not getattr(transport, "_requests", ())  # of one process there are none


def test_buffers_of_a_device_are_handed_to_mpi_only_if_every_rank_says_so():
    """What the ranks are told counts, and where they are told nothing what the library says."""
    from mpicomp.transports.mpi import Mpi, says_cuda_aware

    def taken(told):
        t = Mpi(4, cuda_aware=told)
        t.close()
        return everywhere(t.device_buffers)

    rank, ranks = launched_rank(), launched_ranks()
    assert taken(True) == [True] * ranks
    assert taken(False) == [False] * ranks
    assert taken(None) == [all(everywhere(says_cuda_aware()))] * ranks
    for odd in (0, ranks - 1):
        assert taken(rank != odd) == [False] * ranks


def test_a_request_to_stop_from_any_rank_reaches_all(transport):
    transport.stop = transport.rank == transport.ranks - 1
    gathered(transport, lambda i: np.zeros(1, np.uint8))
    _, stop = transport.broadcast(np.zeros(1, np.uint8) if transport.is_server else None)
    assert everywhere(stop) == [True] * transport.ranks


def test_a_request_to_stop_from_a_rank_without_workers_reaches_all():
    """Whose request travels beside the messages, so that a few rounds may pass."""
    from mpicomp.transports.mpi import Mpi

    t = Mpi(1)
    t.stop = t.rank == t.ranks - 1
    stops = []
    for _ in range(1000):
        gathered(t, lambda i: np.zeros(1, np.uint8))
        stops.append(t.broadcast(np.zeros(1, np.uint8) if t.is_server else None)[1])
        if stops[-1]:
            break
    assert stops[-1]
    assert everywhere(len(stops)) == [len(stops)] * t.ranks
    t.close()


def test_ranks_are_crowded_where_they_are_more_than_the_cores_of_all_of_them(monkeypatch, transport):
    from mpi4py import MPI

    from mpicomp.transports import waiting

    for cores, crowded in [({0}, True), ({transport.rank}, False), ({0, transport.rank}, False)]:
        monkeypatch.setattr(waiting, "cores", lambda cores=cores: cores)
        assert waiting._crowded(MPI.COMM_WORLD) == crowded


def test_who_waits_gives_way_and_among_crowded_ranks_naps(monkeypatch):
    """A clock that only questions and naps move: 10 questions of 0.1 ms in a row, then one a nap.

    Where ranks are not crowded, it gives way to other processes each time.
    """
    from mpi4py import MPI

    from mpicomp.transports import waiting

    now, naps, ways = 0.0, [], []

    class Clock:
        @staticmethod
        def monotonic():
            return now

        @staticmethod
        def sleep(seconds):
            nonlocal now
            naps.append(seconds)
            now += seconds

    def come():
        nonlocal now
        now += 1e-4
        return now > 2e-3

    monkeypatch.setattr(waiting, "time", Clock)
    monkeypatch.setattr(waiting.os, "sched_yield", lambda: ways.append(None))
    monkeypatch.setattr(waiting, "cores", lambda: {0})
    waiting.Patience(MPI.COMM_WORLD).until(come)
    assert (len(naps), len(ways)) == (5, 9)
    monkeypatch.setattr(waiting, "cores", lambda: {launched_rank()})
    waiting.Patience(MPI.COMM_WORLD).until(iter([False] * 1000 + [True]).__next__)
    assert (len(naps), len(ways)) == (5, 1009)


@pytest.mark.parametrize("chunk", [16, 1000])
def test_messages_are_taken_in_order_whole_and_few_ahead(monkeypatch, transport, chunk):
    """Of messages of up to 200 bytes, 20 from each rank, none is asked for once 300 bytes are under way."""
    from mpi4py import MPI

    from mpicomp.transports import arrivals, pieces
    from mpicomp.transports.inbox import Inbox
    from mpicomp.transports.waiting import Patience

    monkeypatch.setattr(arrivals, "AHEAD", 300)
    comm = MPI.COMM_WORLD.Dup()
    draw = np.random.default_rng(5)
    sent = {(rank, j): draw.bytes(draw.integers(0, 201)) for rank in range(1, comm.size) for j in range(20)}
    patience = Patience(comm)
    if comm.rank:
        own = [sent[comm.rank, j] for j in range(20)]
        parts = [part for m in own for part in pieces.cut(m, len(m) % 4, chunk)]
        requests = [comm.Isend([piece, MPI.BYTE], 0, tag=tag) for piece, tag in parts]
        comm.Barrier()
        MPI.Request.Waitall(requests)
    else:
        comm.Barrier()
        order = sorted(sent, key=lambda which: (which[1], which[0]))
        ranks = [rank for rank, _ in order]
        coming, most = arrivals.Arrivals(comm, ranks, lambda tag: None, Inbox(), patience), 0
        for left, which in zip(range(len(order), 0, -1), order, strict=True):
            assert len(coming) == left
            message, tag = coming.take()
            assert message.tobytes() == sent[which]
            assert tag == len(sent[which]) % 4
            asked = sum(m.count * m.piece for m in coming._under_way)
            assert asked == coming._bytes < 300 + 208  # 13 pieces of 16 bytes are asked for 200 bytes
            most = max(most, len(coming._under_way))
        assert not coming
        assert most > 1
    comm.Free()


def test_what_is_under_way_when_mpi_fails_keeps_its_memory():
    """Three messages of oneself to oneself, asked for; then an error: none is taken, no buffer used again."""
    from mpi4py import MPI

    from mpicomp.transports.arrivals import Arrivals
    from mpicomp.transports.inbox import Inbox

    class Failing:
        def until(self, come):
            while len(coming._under_way) < 3:
                come()
            raise MPI.Exception(MPI.ERR_OTHER)

    inbox, comm = Inbox(), MPI.COMM_SELF
    sends = [comm.Isend([bytes([i] * 10), MPI.BYTE], 0) for i in range(4)]
    coming = Arrivals(comm, [0, 0, 0], lambda tag: None, inbox, Failing())
    with pytest.raises(MPI.Exception):
        coming.take()
    assert not coming
    assert [buffer[0] for buffer in inbox._abandoned] == [0, 1, 2]
    assert inbox._free == {None: []}
    comm.Recv([bytearray(10), MPI.BYTE], 0)
    MPI.Request.Waitall(sends)


def test_the_inbox_gives_the_shortest_buffer_that_fits():
    from mpicomp.transports.inbox import Inbox

    inbox = Inbox()
    for _ in range(3):
        taken = [inbox.take(size, None) for size in (800, 8, 80)]
        for buffer in taken:
            inbox.give_back(buffer, None)
    assert sorted(buffer.size for buffer in inbox._free[None]) == [9, 90, 900]
    for size in range(1000, 1020):
        inbox.give_back(np.empty(size, np.uint8), None)
    assert sorted(buffer.size for buffer in inbox._free[None]) == list(range(1012, 1020))


def test_ranks_on_a_host_are_sent_whole_messages():
    from mpi4py import MPI

    from mpicomp.transports.mpi_exchange import sent_whole

    assert sent_whole(MPI.COMM_WORLD) == set(range(MPI.COMM_WORLD.size))


@pytest.mark.parametrize("every_rank_serves", [True, False])
def test_so_much_is_sent_unasked_and_near_ranks_get_whole_messages(monkeypatch, every_rank_serves):
    """Five workers a rank, with 500 bytes for each block; ranks 0 and 1 share a host, as do 2 and 3.

    Where each rank serves a block, 1100 bytes are a rank's share of what another may get unasked: those of
    two workers.  Where half of the ranks serve one, and nothing may come ahead, not even one worker's.
    Broadcasts always go unasked.
    """
    from mpi4py import MPI

    from mpicomp.transports import mpi_exchange
    from mpicomp.transports.mpi import Mpi

    comm, sent = MPI.COMM_WORLD, []
    near = {comm.rank, comm.rank ^ 1}
    blocks = comm.size if every_rank_serves else comm.size // 2
    ahead = 1100 * (comm.size - 1) - 500 * comm.size if every_rank_serves else 0
    expected = [300, 300, None, None, None] if every_rank_serves else [None] * 5
    monkeypatch.setattr(mpi_exchange, "sent_whole", lambda comm: near)
    monkeypatch.setattr(mpi_exchange, "AHEAD", ahead)
    monkeypatch.setattr(mpi_exchange, "UNASKED", 300)
    mpi = Mpi(5 * comm.size)
    exchange, post = mpi.exchange(blocks), mpi.post

    def seen(comm, message, tag, dest=0, longest=None):
        sent.append((dest, longest))
        post(comm, message, tag, dest, longest)

    def message(i, b):
        return np.full(500, (10 * i + b) % 256, np.uint8)

    mpi.post = seen
    workers = range(5 * comm.size)
    for _ in range(2):  # what a round has sent does not count in the next
        sent.clear()
        exchange.send({i: [message(i, b) for b in range(blocks)] for i in mpi.hosted})
        for dest in set(exchange.owners) - {comm.rank}:
            lengths = [longest for to, longest in sent if to == dest]
            assert lengths == ([None] * 5 if dest in near else expected)
        sent.clear()
        for b in exchange.served:
            with exchange.receive(b, workers) as received:
                got = {i: bytes(block) for i, block in received}
            assert got == {i: bytes(message(i, b)) for i in workers}
            exchange.publish(b, message(0, b))
            assert set(sent) == {(d, None if d in near else 300) for d in range(comm.size) if d != comm.rank}
        broadcasts, stop = exchange.collect()
        assert [bytes(one) for one in broadcasts] == [bytes(message(0, b)) for b in range(blocks)]
    assert not stop
    mpi.close()
