"""What these tests share: the Slurm that they start, and what a user of it would have.

`make test-cluster` runs them; the plain test run does not collect this folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpicomp.lab.jobs.launcher import OPENMPI_4
from tests.cluster.slurm import Slurm, missing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A running Slurm, whose users have `mpicomp` on their PATH."""
    if lacking := missing():
        pytest.skip(f"no {', '.join(lacking)} here: apt-get install slurm-wlm munge")
    commands = tmp_path_factory.mktemp("bin")
    (commands / "mpicomp").write_text(f'#!/bin/sh\nexec {sys.executable} -m mpicomp "$@"\n')
    (commands / "mpicomp").chmod(0o755)
    with Slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        cluster.environment["PATH"] = f"{commands}:{cluster.environment['PATH']}"
        # The nodes claim more cores than there are: ranks that wait have to let others go on.
        polite = {"OMPI_MCA_mpi_yield_when_idle": "1", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
        cluster.environment |= polite | {"PYTHONPATH": str(ROOT)}
        yield cluster


@pytest.fixture(scope="session")
def mpich(tmp_path_factory):
    """The environment in which mpi4py finds the MPICH wheel, which has to be apart from Open MPI's."""
    folder = tmp_path_factory.mktemp("mpich")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
    done = subprocess.run([*command, "--prefix", str(folder), "mpich"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no MPICH wheel to be had: {done.stderr.strip().splitlines()[-1]}")
    # By default it goes by UCX, whose addresses Slurm 22's PMI-2 now and then passed on in pieces.
    libfabric = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    return {"LD_LIBRARY_PATH": str(folder / "lib"), "MPI4PY_MPIABI": "mpich"} | libfabric


@pytest.fixture(scope="session")
def debian_openmpi():
    """The environment in which mpi4py finds the Open MPI of the distribution, built with Slurm's PMIx."""
    libraries = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
    library, pmix = libraries / "libmpi.so.40", libraries / "pmix2" / "lib" / "libpmix.so"
    for file, package in ((library, "libopenmpi3"), (pmix, "libpmix-dev")):  # Slurm's plugin opens the latter
        if not file.exists():
            pytest.skip(f"no {file} here: apt-get install {package}")
    return {"MPI4PY_LIBMPI": str(library)} | OPENMPI_4
