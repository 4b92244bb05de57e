"""Find the ranks on this host, to which a message need not be cut into pieces."""

from __future__ import annotations

from mpi4py import MPI


def sent_whole(comm: MPI.Comm) -> set[int]:
    """The ranks of ``comm`` to which a message need not be cut: the ranks on this host; collective.

    With another MPI library than Open MPI, all ranks: the length that it sends eagerly is not known here.
    """
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = here.group.Translate_ranks(None, comm.group)
    here.Free()
    return set(ranks if MPI.get_vendor()[0] == "Open MPI" else range(comm.size))
