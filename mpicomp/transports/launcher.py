"""Read from the environment how this process was started: its rank, and the number of ranks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

STATUS = "MPICOMP_STATUS"  # names the file in which a rank tells ``mpicomp launch`` that the job is over

# What Open MPI needs for a job to outlive a rank.  Without the first, ranks on other hosts may never hear of
# its death; without the second, the others may wait for it in MPI_Finalize for ever.
SURVIVING = {"OMPI_MCA_mpi_ft_propagator_with_rbcast": "1", "OMPI_MCA_async_mpi_finalize": "1"}

# Variables by which a launcher tells a process how many ranks it has started.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def launched_ranks() -> int | None:
    """How many ranks the launcher says it started, or None outside a launcher.

    A Slurm job's batch script is outside: it knows the job's SLURM_NTASKS, but is no step of it.
    """
    told = _number(*_SIZES)
    return _number("SLURM_STEP_NUM_TASKS") if told is None and "SLURM_PROCID" in os.environ else told


def _number(*names: str) -> int | None:
    """The number in the first of these variables that holds one, as a launcher's do; None if none does."""
    return next((int(text) for text in map(os.environ.get, names) if text and text.isdecimal()), None)


def launched_by_mpi() -> bool:
    """Whether a launcher of MPI started this process, and no torchrun between the two.

    srun starts programs with MPI and programs without it, and then sets PMI_SIZE for either.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    names = ["OMPI_COMM_WORLD_SIZE"] if "SLURM_STEP_ID" in os.environ else _SIZES
    return _number(*names) is not None


def torchrun_processes() -> int:
    """How many processes torchrun says it started, as ``accelerate launch`` does too; 1 outside them.

    These processes are no ranks of one MPI job: each is alone in an MPI job of its own.
    """
    return _number("WORLD_SIZE") or 1 if "TORCHELASTIC_RUN_ID" in os.environ else 1


def launched_rank() -> int:
    """This process's rank as its launcher says, 0 outside one; known before MPI is imported."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _number("RANK") or 0
    return _number(*_RANKS) or 0 if launched_ranks() is not None else 0


def local_rank() -> int:
    """This process's number among the ranks on its host, 0 outside a launcher; torchrun's comes first."""
    return _number(*_LOCAL_RANKS) or 0


def note_status(status: int) -> bool:
    """Tell ``mpicomp launch`` the exit status of the job, which is about to end.

    Returns whether this succeeded: only ranks that ``mpicomp launch`` started on its own host can tell it.
    """
    if STATUS in os.environ:
        with suppress(OSError):
            Path(os.environ[STATUS]).write_text(str(status))
            return True
    return False


def note_meeting(going_on: bool) -> None:
    """Tell ``mpicomp launch`` that the ranks of the job have met, and at the end that they have parted.

    MPICH's mpirun reports success if a rank calls ``os._exit(0)`` in between.
    """
    if STATUS in os.environ and launched_rank() == 0:
        with suppress(OSError):
            met = met_beside(Path(os.environ[STATUS]))
            met.touch() if going_on else met.unlink()


def met_beside(status: Path) -> Path:
    """The file that is there while the ranks of the job whose status is noted in ``status`` meet."""
    return status.with_suffix(".met")


def remedy() -> str:
    """Advice for an error message: the launcher and the MPI library do not belong together."""
    if "SLURM_STEP_ID" in os.environ:
        return (
            "`srun --mpi=pmix` suits most builds of Open MPI, `srun --mpi=pmi2` those of MPICH, and `srun "
            "--mpi=list` says what this Slurm has. Or leave srun out: `mpicomp run --ranks N` in the job "
            "script starts that library's own mpirun."
        )
    return "Start the job with the mpirun of that library; `mpicomp doctor` tries the one it finds."
