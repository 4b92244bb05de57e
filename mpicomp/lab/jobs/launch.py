"""Run a job on MPI ranks: start mpirun, pass signals on to it, and end with the ranks' exit status."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from types import FrameType
from typing import IO, Any, NoReturn

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.base.interpreter import interpreter
from mpicomp.lab.jobs import stderr, stdout
from mpicomp.lab.jobs.launcher import Launcher, find_launcher
from mpicomp.runtime.signals import Requests, ending
from mpicomp.transports.launcher import STATUS, SURVIVING, launched_rank, met_beside, note_status
from mpicomp.transports.orphan import remove, segments

# Seconds that mpirun has to end once a rank has said that the job is over, and more for each rank of a core:
# ranks that share a core end one after the other.
_ENDING, _SHARING = 10, 2
_HEEDING = 10  # seconds after a request to end, when the user is told that the ranks have not ended yet
_LEAVING = 2  # seconds that the processes around it have to end once mpirun has
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
_RANK = 2**25  # bytes of memory that a rank takes at least
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE")  # ranks may have other hosts


def launch(ranks: int, arguments: Sequence[str], survive: bool = False) -> int:
    """Run ``python ARGUMENTS`` on that many ranks and return the exit status.

    survive  do not end the job when a rank dies, but tell the others

    Ctrl-C, or a request to this process to end, is passed on as a request to end after a common round;
    a second one ends the job at once.  SIGUSR1 is passed on as it is, however often.  No process of the job
    outlives this one, or an mpirun that hangs.  Where a rank has said why the job ends, mpirun's
    paragraphs on that are left out.

    Raises ``ConfigError`` for more ranks than this host has memory for, unless they may have other hosts.
    """
    launcher = find_launcher()
    _refuse_beyond_memory(ranks, launcher)
    launcher = launcher.surviving() if survive else launcher
    with TemporaryDirectory() as folder:
        status = Path(folder) / "status"
        environment = launcher.environment() | os.environ | _terminal() | {STATUS: str(status)}
        environment |= SURVIVING if survive else {}
        job = _Job(launcher, launcher.command(ranks, *interpreter(*arguments)), environment, status)
        job.wait(_patience(ranks))
        return job.exit_status()


def _refuse_beyond_memory(ranks: int, launcher: Launcher) -> None:
    """Raise ``ConfigError`` for more ranks than this host has memory for: mpirun would start them all."""
    if launcher.vendor == "slurm" or launcher.options or any(name in os.environ for name in _ALLOCATIONS):
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if ranks > (room := memory // _RANK):
        raise ConfigError(
            f"ranks={ranks}; allowed: at most {room} on this host of {memory / 1e9:.3g} GB. Take about "
            "as many ranks as cores: each may host many workers."
        )


def _terminal() -> dict[str, str]:
    """Variables that tell the ranks of the terminal: mpirun's pipes hide it from them."""
    known = {}
    if sys.stderr.isatty():  # the pipes do not keep two streams in order, so it matters whether both go there
        known["MPICOMP_TERMINAL"] = "both" if sys.stdout.isatty() else "stderr"
    if sys.stdout.isatty():
        return known | {"COLUMNS": str(shutil.get_terminal_size().columns)}
    return known | {"COLUMNS": "140", "TERM": "dumb"}  # mpirun gives its ranks a terminal of 80 columns


class _Job:
    """An mpirun and its ranks, started with ``command``; signals to this process are passed on to it.

    status  the file in which rank 0 notes its exit status
    asked   the requests to end that have come
    hung    whether mpirun had to be killed, because it did not end after its ranks
    failed  the error with which standard output could not be written, if there was one
    """

    def __init__(
        self, launcher: Launcher, command: Sequence[str], environment: dict[str, str], status: Path
    ) -> None:
        self.launcher, self.status, self.hung = launcher, status, False
        self.asked: list[int] = []
        self.failed: list[OSError] = []
        # In a session of its own, and deaf to SIGTERM: Open MPI's mpirun would kill the ranks at a terminal's
        # Ctrl-C, and when a batch system tells every process of a job to end, before they have saved a thing.
        deaf = {signal.SIGTERM} if launcher.vendor == "openmpi" else set()
        end = signal.SIGINT if deaf else signal.SIGTERM
        self._answers, self._requests = (signal.SIGUSR1, end), Requests()
        closed = sys.__stdout__ is None  # a library may have opened a file of its own by that number
        before = signal.pthread_sigmask(signal.SIG_BLOCK, deaf)  # which mpirun inherits; its ranks do not
        self.mpirun = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL if closed else subprocess.PIPE if stdout.may_fill(1) else None,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=partial(_when_we_die, end),
        )
        self._copiers: dict[IO[bytes], Thread] = {}  # by what they read
        if self.mpirun.stdout is not None:
            self._copy(stdout.pass_on, self.mpirun.stdout, 1, self.failed)
        assert self.mpirun.stderr is not None
        self._copy(stderr.pass_on, self.mpirun.stderr, 2, lambda: bool(self.asked) or status.exists())
        for number in (*ending(), signal.SIGUSR1):
            signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _copy(
        self, pass_on: Callable[[int, int, Any], None], source: IO[bytes], target: int, more: Any
    ) -> None:
        """Call ``pass_on`` in a thread."""
        self._copiers[source] = Thread(target=pass_on, args=(source.fileno(), target, more), daemon=True)
        self._copiers[source].start()

    def _finish_copies(self) -> None:
        """Wait until all that mpirun has printed is passed on, or for another request: a reader may pause."""
        asked = len(self.asked)
        for source, copier in self._copiers.items():
            while copier.is_alive() and len(self.asked) == asked < 2:
                copier.join(_LEAVING)
                if not select.select([source], [], [], 0)[0]:
                    break  # a process that has left the session may hold the pipe open
            if not copier.is_alive():
                source.close()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.mpirun.send_signal(number)
        elif self._requests.is_new():
            self.asked.append(number)
            nth = len(self.asked)
            self.mpirun.send_signal(self._answers[nth - 1] if nth <= 2 else signal.SIGKILL)

    def wait(self, patience: float) -> None:
        """Wait for mpirun to end, at most ``patience`` seconds after its ranks, and clear up after it."""
        self._wait(patience)
        _kill_session(self.mpirun.pid)
        self._finish_copies()
        if self.mpirun.returncode < 0 and self.launcher.vendor == "openmpi" and self.launcher.major >= 5:
            _remove_files_of(self.mpirun.pid)

    def _wait(self, patience: float) -> None:
        over = since = 0.0
        while over < patience:
            try:
                self.mpirun.wait(timeout=0.5)
                return
            except subprocess.TimeoutExpired:
                over += 0.5 * self.status.exists()
                since += 0.5 * bool(self.asked)
                if since == _HEEDING:
                    sys.stderr.write(
                        "mpicomp: the ranks were asked to stop, and have not ended. Ctrl-C again ends the "
                        "job at once.\n"
                    )
        sys.stderr.write(f"mpicomp: the ranks have ended and mpirun has not, for {over:g} s; it is killed.\n")
        shared = set().union(*map(segments, _members(self.mpirun.pid)))
        self.mpirun.kill()
        self.mpirun.wait()
        remove(shared)
        self.hung = True

    def exit_status(self) -> int:
        """The exit status of the job that has ended: rank 0's, or that of the signal that ended it."""
        left = self.mpirun.returncode
        if len(self.asked) > 1:
            return 128 + self.asked[-1]
        if left < 0 and not self.hung:
            return 128 - left  # as a shell reports what a signal ended
        if self.asked and left == 128 + signal.SIGUSR1:  # a rank that had not begun its program
            return 128 + signal.SIGINT
        noted = int(self.status.read_text()) if self.status.exists() else 0
        status = noted or (0 if self.hung else left)
        if not status and met_beside(self.status).exists():
            sys.stderr.write(
                "mpicomp: a rank left the job before its end, with exit status 0, and ended the others. Look "
                "for os._exit(0) in what they run.\n"
            )
            return 1
        if self.failed and not status:
            sys.stderr.write(f"mpicomp: cannot write to standard output: {self.failed[0].strerror}.\n")
            return 1
        return status


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


def run_rank(main: Callable[[str], None]) -> None:
    """Run ``main``, a rank's program, on its one argument.  Rank 0 prints an error of all ranks."""
    try:
        main(sys.argv[1])
    except MpicompError as error:
        if launched_rank() == 0:
            print(f"mpicomp: {error}", file=sys.stderr)
        leave(1)


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
