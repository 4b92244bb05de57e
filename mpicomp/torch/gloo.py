"""A gloo group of mpicomp's own beside a process group of torch: messages, and the ranks that are gone.

Nothing of the program's or of DDP's own traffic can mix with what travels here.  The group is made directly
on the process group's store.  torch's ``new_group`` would name it by the number of groups that a process
has, in which the ranks may differ, and ``destroy_process_group`` would end it before mpicomp does.

gloo sends a message once the receiver has posted its receive.  So a message waits in its sender's memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line

_CHUNK = 2**30  # bytes: the longest piece handed to gloo
_GRACE = 1.0  # seconds that the other ranks wait longer than twice as long as the server


class Gone(Exception):
    """A rank has ended, is not reachable, or has been silent for too long; the text says which one, if known.

    rank  its number, or None
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank


class UnderWay(NamedTuple):
    """A piece on its way to or from ``rank``: gloo's work, or the error that kept it from being started."""

    rank: int
    work: Any
    failed: RuntimeError | None = None


class Gloo:
    """The gloo group of the ranks of ``group``; collective.

    rank, ranks  this rank's number in ``group``, and their number
    lost         what has failed, once anything has: from then on nothing can be sent or received

    Raises ``Gone`` if the other ranks do not come within ``timeout``.
    """

    def __init__(self, group: dist.ProcessGroup, timeout: timedelta) -> None:
        ranks = tuple(dist.get_process_group_ranks(group))
        self.rank, self.ranks = group.rank(), group.size()
        self.lost: str | None = None
        self.limit(timeout)
        with self._naming(None):
            store = store_of_next(group.get_group_store(), ranks[self.rank])
            self._gloo: Any = dist.ProcessGroupGloo(store, self.rank, self.ranks, timeout)
        self._refuse_crossed(ranks)

    def _refuse_crossed(self, ranks: tuple[int, ...]) -> None:
        """Raise ``ConfigError`` unless all ranks here mean the group of ``ranks``; collective.

        torch names a group by the number of groups that a process has made.  Where these numbers differ, two
        groups may have one name, and torch joins ranks of both.
        """
        own = torch.tensor(ranks, device="cpu")  # whatever torch's default device
        told = [torch.empty_like(own) for _ in ranks]
        with self._naming(None):
            self._gloo.allgather([told], [own]).wait()
        for theirs in told:
            if not torch.equal(theirs, own):
                raise ConfigError(
                    f"torch has joined this process's group of the ranks {ranks} with a rank of the group "
                    f"{tuple(theirs.tolist())}: some processes have made more groups than others, as by "
                    "new_group(.., use_local_synchronization=True). Make these last, or all groups so."
                )

    def limit(self, timeout: timedelta) -> None:
        """Let rank 0 wait for another rank for ``timeout`` at most.

        The other ranks wait more than twice as long for a message, so that rank 0 names the silent one.
        """
        self._limit = timeout if self.rank == 0 else 2 * timeout + timedelta(seconds=_GRACE)

    def send(self, message: Bytes, dest: int, tag: int) -> list[UnderWay]:
        """Start to send a message; ``wait`` ends it, or raises the error that kept it from being started."""
        return [self._started(self._gloo.send, piece, dest, tag) for piece in _pieces(message)]

    def receive(self, into: Bytes, source: int, tag: int) -> list[UnderWay]:
        """Start to receive as many bytes as ``into`` has from the rank ``source``; see ``send``."""
        return [self._started(self._gloo.recv, piece, source, tag) for piece in _pieces(into)]

    def _started(self, start: Callable[..., Any], piece: Bytes, rank: int, tag: int) -> UnderWay:
        try:
            return UnderWay(rank, start([tensor(piece)], rank, tag))
        except RuntimeError as error:
            return UnderWay(rank, None, error)

    def wait(self, under_way: list[UnderWay]) -> None:
        """Wait until all of ``under_way`` is done.  Raises ``Gone``, naming the other rank."""
        for rank, work, failed in under_way:
            with self._naming(rank):
                if failed is not None:
                    raise failed
                work.wait(self._limit)

    def broadcast(self, message: Bytes) -> None:
        """Send rank 0's bytes to all ranks, which receive them in ``message``; collective."""
        for piece in _pieces(message):
            with self._naming(None):
                self._gloo.broadcast(tensor(piece), 0).wait()

    def sum(self, vector: NDArray[np.floating]) -> None:
        """Replace ``vector`` by the sum over the ranks; collective."""
        with self._naming(None):
            self._gloo.allreduce([tensor(vector)]).wait()

    def close(self) -> None:
        """Close the connections; call it once every rank has received its messages."""
        self._gloo = None
        self.lost = self.lost or "the transport is closed."

    @contextmanager
    def _naming(self, rank: int | None) -> Iterator[None]:
        """Turn an error of gloo's into ``Gone``, which names ``rank``."""
        try:
            yield
        except RuntimeError as error:
            reason = one_line(str(error), 200)
            whom = "a rank" if rank is None else f"rank {rank}"
            late = "timed out" in reason.lower() or "timeout" in reason.lower()
            what = "has been silent for too long" if late else "has ended, or its connection is lost"
            text = f"{whom} {what} (gloo: {reason.rstrip('.')})."
            self.lost = self.lost or text
            raise Gone(text, rank) from None


def store_of_next(shared: Any, rank: int) -> Any:
    """The part of ``shared``, a process group's store, in which its ranks meet for their next gloo group.

    ``shared`` counts the gloo groups of each rank.  A new process group has a new store, so there a process
    that has made gloo groups before begins at the same number as one that has just started.  A store that
    torchrun keeps stays when torchrun starts all processes anew: there the number of restarts is a part of
    the name.  Elsewhere it is not, since hosts may count restarts differently.
    """
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    place = f"mpicomp/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0) if kept else 0}"
    number = shared.add(f"{place}/of rank {rank}", 1)
    return dist.PrefixStore(f"{place}/{number}", shared)


def tensor(array: NDArray[Any]) -> Tensor:
    """``array`` as a tensor in the same memory.  One that must not be written to is only read by its user."""
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writable(array)))


class _Writable:
    """numpy's view of a read-only array as one to write to: torch has no tensors of the other kind."""

    def __init__(self, array: NDArray[Any]) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = array.__array_interface__ | {"data": (address, False)}
        self._array = array  # whose memory it is


def _pieces(message: Bytes) -> Iterator[Bytes]:
    """``message`` in pieces that are not empty, of which gloo takes any."""
    for i in range(0, len(message), _CHUNK):
        yield message[i : i + _CHUNK]


def timeout_of(group: dist.ProcessGroup) -> timedelta:
    """The timeout of ``group``.  Raises ``ConfigError`` for a group whose backend has none."""
    try:
        return group._get_backend(group._device_types[0]).options._timeout
    except (RuntimeError, AttributeError, IndexError):
        raise ConfigError(
            f"group is of the backend {dist.get_backend(group)!r}; allowed: one that has a timeout, such as "
            "'gloo' or 'nccl'."
        ) from None
