"""The ranks that average: the root, every rank its share, or MPI itself."""

from __future__ import annotations

from mpicomp.base.blocks import Blocks
from mpicomp.methods.base import Method
from mpicomp.runtime.serving.allreduce import Allreduce, check_sums
from mpicomp.runtime.serving.base import Serving
from mpicomp.runtime.serving.root import Root
from mpicomp.runtime.serving.sharded import Sharded
from mpicomp.transports import Transport


def serving(server: str, method: Method, transport: Transport, blocks: Blocks | None) -> Serving:
    """What ``server`` names, one of ``placement.SERVERS``; without blocks, or with one, the root serves."""
    if server == "allreduce":
        return Allreduce(method, transport)
    if blocks is None or len(blocks) == 1:
        return Root(method, transport)
    return Sharded(method, transport, blocks)


def check_served(server: str, method: Method, blocks: Blocks | None) -> None:
    """Raise ``ConfigError`` if ``serving`` would, for any number of ranks."""
    if server == "allreduce":
        check_sums(method)
    elif blocks is not None and len(blocks) > 1:
        method.in_blocks(blocks)
