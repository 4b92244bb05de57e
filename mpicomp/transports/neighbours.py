"""The ranks that share a host."""

from __future__ import annotations

from mpi4py import MPI


def on_this_host(comm: MPI.Comm) -> set[int]:
    """The ranks of ``comm`` that share this host's memory, this one among them; collective."""
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = set(MPI.Group.Translate_ranks(here.group, None, comm.group))
    here.Free()
    return ranks
