"""A real Slurm of four nodes on this machine, without systemd, without root, and gone with the tests.

munged, slurmctld and four slurmd run in the foreground as children of this process, with all their
files in one temporary folder; the kernel kills them should this process die before it stops them.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from tests.support.launching import LIMIT

NODES = 4

# Debian has the daemons in /usr/sbin, which an ordinary user's PATH may lack.
PROGRAMS = ("sbatch", "srun", "scancel", "scontrol", "squeue", "slurmctld", "slurmd", "munged", "setpriv")
_PATH = f"{os.environ['PATH']}:/usr/sbin"

# %n is a node's name.  A TmpFS for each, or the PMIx plugins of several slurmd trip over each other.
# A requeued job is held back until its old credential has expired, two minutes by default.
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
TmpFS={folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
SwitchType=switch/none
ReturnToService=2
KillWait=10
NodeName=node[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=test Nodes=ALL Default=YES DefaultTime=5 PriorityTier=1
PartitionName=urgent Nodes=ALL DefaultTime=5 PriorityTier=2
"""


def missing() -> list[str]:
    """The programs that a Slurm of our own needs and this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


class Slurm:
    """Starts with ``with``, and all that was started has ended after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Slurm:
        names = [f"node{i}" for i in range(1, NODES + 1)]
        for name in ("state", *(f"{kind}-{node}" for kind in ("spool", "tmp") for node in names)):
            (self.folder / name).mkdir()
        ports = free_ports(NODES + 1)
        conf = _CONF.format(
            host=socket.gethostname().split(".")[0],
            user=getpass.getuser(),
            folder=self.folder,
            nodes=NODES,
            controller=ports[0],
            first=ports[1],
            last=ports[-1],
        )
        (self.folder / "slurm.conf").write_text(conf)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        try:
            files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
            self._daemon(
                "munged", "-F", "--force", *(f"--{o}={self.folder}/munge.{f}" for o, f in files.items())
            )
            self.wait(lambda: (self.folder / "munge.socket").exists(), "munged does not start")
            self._daemon("slurmctld", "-D", "-c")
            for node in names:
                self._daemon("slurmd", "-D", "-N", node)
            self.wait(
                lambda: self.say("sinfo", "-h", "-t", "idle", "-o", "%D") == str(NODES), "no idle nodes"
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def _daemon(self, *command: str) -> None:
        mortal = ["setpriv", "--pdeathsig", "KILL", *command]
        with open(self.folder / f"{command[0]}-{len(self._daemons)}.log", "wb") as log:
            daemon = subprocess.Popen(mortal, env=self.environment, stdout=log, stderr=subprocess.STDOUT)
        self._daemons.append(daemon)

    def __exit__(self, *_: object) -> None:
        if len(self._daemons) > 2:
            self.say("scancel", "--user", getpass.getuser())
            with suppress(AssertionError):
                self.wait_for_jobs()
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self._of_this_cluster():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _of_this_cluster(self) -> list[int]:
        """What jobs may have left behind: every process with our SLURM_CONF in its environment."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
        return found

    def run(
        self, *command: str, folder: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of a user of this cluster, in ``folder``."""
        env = self.environment | environment
        return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=LIMIT)

    def say(self, *command: str) -> str:
        """What a command prints."""
        return self.run(*command).stdout.strip()

    def submit(self, folder: Path, *arguments: str, **environment: str) -> str:
        """sbatch in ``folder``; gives the job's number."""
        done = self.run("sbatch", "--parsable", *arguments, folder=folder, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_for_jobs(self) -> None:
        """Wait until the queue is empty."""
        self.wait(lambda: self.say("squeue", "-h") == "", "jobs do not end")

    def wait(self, condition: Callable[[], bool], complaint: str) -> None:
        """Wait until ``condition`` holds; ``complaint`` is what is wrong if it never does."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, f"{complaint}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """The ends of the daemons' logs, to show with a failure."""
        return "\n".join(
            f"{path.name}:\n" + "\n".join(path.read_text(errors="replace").splitlines()[-8:])
            for path in sorted(self.folder.glob("*.log"))
        )


def free_ports(count: int) -> list[int]:
    """That many ports in a row that nobody listens on."""
    for first in range(27001, 60000, count):
        ports = list(range(first, first + count))
        if all(_free(port) for port in ports):
            return ports
    raise AssertionError("no free ports")


def _free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
