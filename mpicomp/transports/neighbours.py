"""The ranks to which messages are sent whole."""

from __future__ import annotations

from mpi4py import MPI


def sent_whole(comm: MPI.Comm) -> set[int]:
    """The ranks of ``comm`` to which a message need not be cut: those on this host; collective.

    With another library than Open MPI all ranks, for only of that one it is known how long messages to other
    hosts may be for it to send them unasked.
    """
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = here.group.Translate_ranks(None, comm.group)
    here.Free()
    return set(ranks if MPI.get_vendor()[0] == "Open MPI" else range(comm.size))
