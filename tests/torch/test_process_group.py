"""Process groups of torch in the place of MPI: the same bits and bytes, and an end where a process ends.

The jobs under torchrun block mpi4py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import Aggregator, ConfigError
from mpicomp.torch import Compressed, Hook
from tests.support.launching import finish, mpirun, start_processes, torchrun
from tests.torch.models import network

JOB = ("-m", "tests.torch.group_job")


def told(start, ranks, *what):
    done = start(ranks, *JOB, *what)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def alone(ranks, *command):
    assert ranks == 1
    return subprocess.run([sys.executable, *command], capture_output=True, text=True)


@pytest.fixture(scope="module")
def in_one_process():
    return told(alone, 1, "bits")


@pytest.mark.parametrize("ranks", [2, 4])
def test_bits_and_bytes_are_those_of_one_process_and_of_mpi(ranks, in_one_process):
    """Each method, each server; more workers than ranks, and fewer."""
    by_torchrun, by_mpirun = told(torchrun, ranks, "bits"), told(mpirun, ranks, "bits")
    assert by_torchrun == by_mpirun
    assert {name: one["of all"] for name, one in by_torchrun.items()} == {
        name: one["of all"] for name, one in in_one_process.items()
    }


def test_the_hook_and_local_steps_and_saved_states_are_those_of_mpi(tmp_path):
    folder = str(tmp_path)
    first = told(mpirun, 2, "of_each_rank", folder, "mpirun", "")
    torch_s = told(torchrun, 2, "of_each_rank", folder, "torchrun", "mpirun")
    again = told(mpirun, 2, "of_each_rank", folder, "mpirun-2", "torchrun")
    assert torch_s["local steps"] == first["local steps"]
    assert torch_s["hook"] == [*first["hook"][:2], "ProcessGroup"] and first["hook"][2] == "Mpi"
    assert torch_s["resumed"] == again["resumed"]


def test_what_one_rank_meets_all_are_told(tmp_path):
    everybody = told(torchrun, 2, "refusals")
    first, second = everybody
    assert first == second
    for option, name in (("verify_bytes", "verify_bytes"), ("cuda_aware", "cuda_aware='yes'")):
        assert first[option].startswith(
            f"ConfigError: {name} needs MPI, and these ranks are of a process group"
        )
    assert first["seeds"] == "ConfigError: rank 1 has seed = 1, and rank 0 has 0: all ranks give the same."
    assert "ConfigError: rank 1 has like = " in first["shape"]
    for name in ("True", "False"):
        assert first[f"not finite {name}"] == "DivergedError: worker 1: the gradient is not finite."
        assert first[f"no array {name}"].startswith("ConfigError: ")
    order = first["other order"]
    assert "MpicompError: rank 0 calls Aggregator 1 (" in order and "rank 1 calls Aggregator 2 (" in order
    assert "rank 0 calls Aggregator 1 (" in first["other calls"]
    assert "rank 1 settles the ledger of Aggregator 1 (" in first["other calls"]
    assert "rank 1 begins another run, Aggregator or Descent" in first["begins"]


def test_groups_of_some_of_the_ranks():
    other, few = told(torchrun, 4, "groups")
    assert other.startswith("ConfigError: this process is none of the process group's")
    assert "DDP's process group has 2 processes, and the hook 4 ranks: give the Hook group=" in few


LOST = "rank 1 has ended, or its connection is lost"


@pytest.mark.parametrize(
    ("what", "server"),
    [
        ("ending", "kill"),
        ("killed_inside", "shared"),
        ("killed_inside", "sharded"),
        ("killed_inside", "allreduce"),
        ("ending", "raise"),
        ("ending", "leave"),
    ],
)
def test_where_one_process_ends_the_others_end(what, server, tmp_path):
    """Without a launcher that would kill them: each has its own end."""
    jobs = start_processes(3, tmp_path, *JOB, what, server)
    first, second, third = map(finish, jobs)
    assert first.returncode == third.returncode == 1
    if server == "leave":
        said = "rank 1 has ended its work with Aggregator 1"
        assert second.returncode == 0 and said in second.stderr
        assert said in first.stderr and said in third.stderr
        return
    assert second.returncode == (1 if server == "raise" else -signal.SIGKILL)
    lost = LOST if server != "allreduce" else LOST.replace("rank 1", "a rank")
    for other in (first, third):
        assert f"MpicompError: step 2: {lost}" in other.stderr
        assert other.stderr.count("MpicompError:") == 1


def test_a_silent_rank_is_named(tmp_path):
    jobs = start_processes(3, tmp_path, *JOB, "ending", "stop")
    first, third = finish(jobs[0]), finish(jobs[2])
    os.killpg(jobs[1].pid, signal.SIGKILL)
    jobs[1].communicate()
    assert first.returncode == third.returncode == 1
    assert "step 2: rank 1 has been silent for too long" in first.stderr


def test_what_is_no_group_is_refused():
    parameters = list(network().parameters())
    for make in (
        lambda **options: Compressed(torch.optim.SGD(parameters, lr=0.1), "dcgd(identity())", **options),
        lambda **options: Hook("dcgd(identity())", **options),
    ):
        with pytest.raises(ConfigError, match=r"group is 3; allowed: a process group of torch.distributed"):
            make(group=3)
    with pytest.raises(ConfigError, match=r"comm is 'x'; allowed: a communicator of mpi4py, or a process"):
        Aggregator("dcgd(identity())", np.zeros(3), comm="x")
