"""Average by MPI_Allreduce, for methods whose workers send uncompressed vectors or low-rank factors.

The MPI library chooses the algorithm of the sum: a tree, a ring, recursive halving.  So the last bits of the
sum, and with them the iterates, depend on the number of ranks and on the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.averaging.base import Averaging, Receive, WorkerStep, begun
from mpicomp.averaging.books import Books
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, MpicompError, raise_if
from mpicomp.compressors import Identity
from mpicomp.compressors.base import Compressor
from mpicomp.compressors.lossless import forwards
from mpicomp.keys import Key
from mpicomp.methods.base import Method, Nothing
from mpicomp.methods.parameters import is_auto
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.scattering import ScatteringMethod, refuse_server

_TYPES = {"f4": np.float32, "f8": np.float64}


class Allreduce(Averaging):
    """Every rank sums the vectors of its workers in float32 or float64 (f4, f8), as they are sent.  MPI sums
    these, and every rank takes the server's step with the sum as its only message.

    A round is one MPI_Allreduce of the vector and two more numbers: how many ranks were asked to stop, and
    how many have failed.  The ledger counts the vector once up and once down for each worker.  The bytes that
    cross between ranks depend on the library's algorithm.

    Raises ``ConfigError`` for a method whose workers send anything else, or whose server has a state.
    """

    def __init__(self, books: Books) -> None:
        check_sums(books.method)
        super().__init__(books)
        self._summed = 0

    def begin(self, x: Array) -> None:
        """Nothing to do: the server has no state."""

    def play(
        self, step: WorkerStep, receive: Receive, senders: Sequence[int], replica: Any, key: Key
    ) -> tuple[Any, int, bool]:
        t, books, method = self.transport, self.books, self.method
        assert isinstance(method, AveragingMethod)
        values: Any = method.uplink(key)
        size = method.entries(books.d, key)
        total = np.zeros(size + 2, _TYPES[values.values])  # the vector, and the two numbers
        failed: MpicompError | None = None
        try:
            for i in self.hosted(senders):
                with t.clock.phase("compress"):
                    message = step(i).m
                    total[:-2] += kernels.to_host(message).view(total.dtype)
                books.ledger.up[books.original_ids[i]] += message.nbytes
        except MpicompError as error:
            failed = books.named(error)
        total[-2:] = t.stop, failed is not None
        t.sum_all(total)
        self._summed += total.nbytes
        if total[-1]:
            t.raise_on_all(lambda: raise_if(failed))
        vector = total[:-2].view(np.uint8)
        if t.is_server:
            others = [i for i in senders if i not in t.hosted]
            books.ledger.up[books.original_ids[others]] += vector.nbytes
            books.ledger.paper_bits_up += len(senders) * 32 * size
        with t.clock.phase("server"):
            server_step = begun(method, None, replica, key)
            server_step.take(key.of(0), books.decoded(method.Up, vector))
            down = server_step.close()
        return down, vector.nbytes, total[-2] > 0

    def decode(self, broadcast: Any) -> Any:
        return broadcast

    def states(self) -> dict[str, Any]:
        return {"server": Nothing()} if self.transport.is_server else {}

    def booked(self) -> tuple[list[int], int]:
        return [0] * self.transport.ranks, self._summed

    def model(self, name: str) -> Array | None:
        raise AssertionError(name)


def sums(method: Method) -> bool:
    """Whether the server only averages, and workers send uncompressed vectors in f4 or f8."""
    sent = {f.name: getattr(method, f.name) for f in fields(method) if f.name != "down"}
    whole = all(
        isinstance(C, Identity) and C.values in _TYPES for C in sent.values() if isinstance(C, Compressor)
    )
    averages = isinstance(method, AveragingMethod) and method.sums and method.Server is Nothing
    return whole and averages and sent.get("values", "f4") in _TYPES


def check_sums(method: Method) -> None:
    """Raise ``ConfigError`` unless ``sums(method)``."""
    if isinstance(method, ScatteringMethod):
        refuse_server(method, "allreduce")
    if forwards(getattr(method, "down", None)):
        raise ConfigError(
            "server='allreduce' adds vectors, and has no messages that could be forwarded: leave forward out."
        )
    if is_auto(method.step):
        raise ConfigError(
            f"server='allreduce' sums vectors alone, and {method.step_name}={method.step!r} needs a number "
            "of each worker too: take server='shared' or 'sharded', or give a number."
        )
    if not sums(method):
        name, server = type(method).__name__, "sharded" if method.separable else "shared"
        raise ConfigError(
            f"server='allreduce' sums vectors that are sent whole, as f4 or f8; this {name} sends something "
            "else. Allowed: GD, AGD, methods such as DCGD(Identity()), PowerSGD, Dion and ARCTopK. Take "
            f"server={server!r} for {name}."
        )
