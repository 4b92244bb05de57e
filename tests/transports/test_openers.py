"""Whose ranks they are: MPI's, or those of another library that a program has loaded."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mpicomp import ConfigError
from mpicomp.transports import connect, openers, ranks_of
from mpicomp.transports.launcher import launched_by_mpi, launched_rank, local_rank
from mpicomp.transports.local import Local

STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
MPI = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_SIZE", "PMI_RANK")


class Pair:
    """A communicator of two ranks, or of one."""

    def __init__(self, ranks=2):
        self.ranks = ranks


class Pairs(openers.Opener):
    joined = Pair()

    def takes(self, comm):
        return isinstance(comm, Pair)

    def default(self):
        return self.joined

    def size(self, comm):
        return comm.ranks

    def open(self, n, comm, options):
        return n, comm, options


OPENER = Pairs()


@pytest.fixture
def environment(monkeypatch):
    """Without a launcher, in a program that has loaded the library ``pairs``."""
    for name in (*STEP, *TORCHRUN, *MPI):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.setitem(sys.modules, "pairs", SimpleNamespace())
    monkeypatch.setattr(openers, "_PLACES", {"pairs": f"{__name__}:OPENER", "absent": "no.such:OPENER"})

    def given(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return given


@pytest.mark.parametrize(
    ("variables", "by_mpi"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"PMI_SIZE": "2"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "", "PMI_SIZE": "x"}, False),
        (STEP, False),
        ({"PMI_SIZE": "2"} | STEP, False),  # srun --mpi=pmi2, with MPI or without
        ({"OMPI_COMM_WORLD_SIZE": "2"} | STEP, True),
        ({"OMPI_COMM_WORLD_SIZE": "2"} | TORCHRUN, False),  # mpirun starts a torchrun on each host
    ],
)
def test_a_launcher_of_mpi_comes_before_the_default_of_another_library(environment, variables, by_mpi):
    environment(variables)
    assert launched_by_mpi() is by_mpi
    assert ranks_of(None) == ((None, 2) if by_mpi else (Pairs.joined, 2))


def test_mpi_that_has_been_loaded_on_several_ranks_comes_first(environment, monkeypatch):
    world = SimpleNamespace(size=3, Get_size=lambda: 3)
    up = {"Is_initialized": lambda: True, "Is_finalized": lambda: False}
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(COMM_WORLD=world, **up))
    assert ranks_of(None) == (world, 3)
    world.size = 1  # each process is alone in a job of its own
    assert ranks_of(None) == (Pairs.joined, 2)


def test_the_opener_opens_what_it_takes(environment):
    n, comm, options = connect(5, dedicated=True, stall_timeout=2.0)
    assert (n, comm) == (5, Pairs.joined)
    defaults = {"observed": False, "survive": False, "cuda_aware": None}
    assert options._asdict() == {"dedicated": True, "stall_timeout": 2.0} | defaults
    assert isinstance(connect(5, comm=Pair(1)), Local)
    with pytest.raises(ConfigError, match="a dedicated server needs"):
        connect(5, dedicated=True, comm=Pair(1))
    with pytest.raises(ConfigError, match="comm is 7; allowed: a communicator of mpi4py, or a process group"):
        connect(5, comm=7)


def test_ranks_under_torchrun(environment):
    environment({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"} | TORCHRUN)
    assert (launched_rank(), local_rank()) == (3, 1)


class Communicator:
    """As of mpi4py."""

    def __init__(self, null=False, inter=False):
        self._null, self.is_inter, self.size = null, inter, 2

    def __bool__(self):
        return not self._null

    def Get_size(self):
        return self.size


class Group(Communicator):
    def Translate_ranks(self, ranks=None, group=None): ...


def test_a_communicator_that_joins_no_ranks_with_this_one_is_refused():
    assert ranks_of(comm := Communicator()) == (comm, 2)
    for call in (ranks_of, lambda comm: connect(2, comm=comm)):
        with pytest.raises(
            ConfigError, match="comm is MPI_COMM_NULL: it was freed, or this rank is not in it"
        ):
            call(Communicator(null=True))
        with pytest.raises(ConfigError, match=r"comm is an intercommunicator; allowed: .* Merge\(\)"):
            call(Communicator(inter=True))
        for no_communicator in (Communicator, Group()):
            with pytest.raises(ConfigError, match=r"comm is <.*; allowed: a communicator of mpi4py"):
                call(no_communicator)


@pytest.mark.parametrize("ended", ["", "MPI.Init(); MPI.Finalize()"])
def test_an_mpi_that_is_down_is_left_alone(ended):
    """Any use of it ends the process: one process works without, and what needs it is refused."""
    code = f"""
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
{ended}
import numpy, mpicomp
print(mpicomp.Aggregator(mpicomp.GD(), like=numpy.ones(2))(numpy.ones(2)))
try:
    mpicomp.Aggregator(mpicomp.GD(), like=numpy.ones(2), comm=MPI.COMM_WORLD)
except mpicomp.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1. 1.]\nMPI is not initialised, as with mpi4py.rc.initialize = False, or")
