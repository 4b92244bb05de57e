"""How messages are averaged: by rank 0, by every rank for its blocks, or by MPI_Allreduce."""

from __future__ import annotations

from mpicomp.averaging.allreduce import Allreduce, check_sums
from mpicomp.averaging.base import Averaging
from mpicomp.averaging.books import Books
from mpicomp.averaging.root import Root
from mpicomp.averaging.sharded import Sharded
from mpicomp.base.blocks import Blocks
from mpicomp.methods.base import Method
from mpicomp.transports import Transport


def averaging(server: str, method: Method, d: int, transport: Transport, blocks: Blocks | None) -> Averaging:
    """Make the ``Averaging`` of ``method`` on vectors in R^d; ``server`` is one of ``placement.SERVERS``.

    "allreduce": MPI_Allreduce.  Else, with more than one block, every rank averages its share of ``blocks``;
    without blocks, or with one, rank 0 averages.  Raises ``ConfigError`` as ``check_averaging`` does.
    """
    if server == "allreduce":
        return Allreduce(Books(method, d, transport))
    if blocks is None or len(blocks) == 1:
        return Root(Books(method, d, transport))
    return Sharded(Books(method.in_blocks(blocks), d, transport), method, blocks)


def check_averaging(server: str, method: Method, blocks: Blocks | None) -> None:
    """Raise ``ConfigError`` if ``method`` cannot be averaged by ``server`` in ``blocks``, on any ranks."""
    if server == "allreduce":
        check_sums(method)
    elif blocks is not None and len(blocks) > 1:
        method.in_blocks(blocks)
