"""Process groups of torch in the place of MPI: the same bits and bytes, and an end where a process ends.

The jobs under torchrun block mpi4py.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
import torch.distributed as dist

from mpicomp import Aggregator, ConfigError
from mpicomp.torch import Compressed, Hook
from mpicomp.torch.gloo import store_of_next
from tests.support.launching import LIMIT, mpirun, torchrun
from tests.torch.models import network

JOB = ("-m", "tests.torch.group_job")


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_one_process(what):
    return subprocess.run([sys.executable, *JOB, what], capture_output=True, text=True, timeout=LIMIT)


@pytest.fixture(scope="module")
def alone():
    return told(in_one_process("bits"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def by_mpirun(folder):
    return told(mpirun(2, *JOB, "bits", f"of_each_rank={folder},mpirun,none"))


@pytest.fixture(scope="module")
def by_torchrun(folder, by_mpirun):
    return told(
        torchrun(2, *JOB, "bits", f"of_each_rank={folder},torchrun,mpirun", "in_pieces", "around", "refusals")
    )


@pytest.fixture(scope="module")
def on_four():
    return told(torchrun(4, *JOB, "bits", "groups", "stops", "scatters"))


def of_all(found):
    return {name: one["of all"] for name, one in found["bits"].items()}


def test_bits_and_bytes_are_those_of_one_process_on_any_number_of_ranks(alone, by_torchrun, on_four):
    """Each method, each server; more workers than ranks, and fewer."""
    assert of_all(by_torchrun) == of_all(on_four) == of_all(alone)


def test_each_rank_sends_what_it_sends_over_mpi(by_torchrun, by_mpirun):
    assert by_torchrun["bits"] == by_mpirun["bits"]
    assert by_mpirun["bits"]["EFSGD, sharded"]["sent"][0][0] > 0


def test_long_messages_are_sent_in_pieces(by_torchrun):
    for name, found in by_torchrun["in_pieces"].items():
        assert found == by_torchrun["bits"][name]


def test_the_hook_and_local_steps_are_those_of_mpi(by_torchrun, by_mpirun):
    ours, theirs = (found["of_each_rank"] for found in (by_torchrun, by_mpirun))
    assert ours["local steps"] == theirs["local steps"]
    assert ours["delayed"] == theirs["delayed"]
    assert ours["hook"] == [*theirs["hook"][:2], "ProcessGroup"] and theirs["hook"][2] == "Mpi"


def test_a_state_saved_under_one_launcher_is_loaded_under_the_other(folder, by_torchrun):
    again = told(mpirun(2, *JOB, f"of_each_rank={folder},mpirun-2,torchrun"))
    assert again["of_each_rank"]["resumed"] == by_torchrun["of_each_rank"]["resumed"]


def test_what_one_rank_meets_all_are_told(by_torchrun):
    first, second = by_torchrun["refusals"]
    assert first == second
    for option, name in (("verify_bytes", "verify_bytes"), ("cuda_aware", "cuda_aware='yes'")):
        assert first[option].startswith(f"ConfigError: {name} needs MPI, and these ranks are of a process")
    assert first["seeds"] == "ConfigError: rank 1 has seed = 1, and rank 0 has 0: all ranks give the same."
    assert "ConfigError: rank 1 has like = " in first["shape"]
    for name in ("True", "False"):
        assert first[f"not finite {name}"] == "DivergedError: worker 1: the gradient is not finite."
        assert first[f"no array {name}"].startswith("ConfigError: ")
    one, two = (rf"Aggregator {i} \(EFSGD, d = 30\)" for i in first["numbers"])
    assert re.search(f"MpicompError: rank 0 calls {one}, and rank 1 calls {two}", first["other order"])
    assert re.search(f"rank 0 calls {one}, and rank 1 settles the ledger of {one}", first["other calls"])
    assert "rank 1 begins another run, Aggregator or Descent" in first["begins"]


def test_a_ddp_that_is_put_around_the_model_later_is_said_once(by_torchrun):
    """By the rank of worker 0, which watches its gradients, and at the line that steps."""
    first, second = by_torchrun["around"]
    for told in first:
        ((text, here),) = told
        assert text.startswith(
            "the model is in a DistributedDataParallel, whose backward averages whole gradients"
        )
        assert here
    assert second == [[], []]


def test_groups_of_some_of_the_ranks(on_four):
    other, few = on_four["groups"]
    assert other.startswith("ConfigError: this process is none of the process group's")
    assert "DDP's process group has 2 processes, and the hook 4 ranks: give the Hook group=" in few


def test_groups_that_torch_has_crossed_are_refused():
    """Rank 0 would average with rank 2, and rank 3 wait."""
    done = torchrun(4, *JOB, "crossed")
    assert done.returncode == 1
    assert "group of the ranks (0, 3) with a rank of the group (1, 2)" in done.stderr
    assert "use_local_synchronization=True). Make these last" in done.stderr


def test_all_are_told_when_one_is_asked_to_stop(on_four):
    assert on_four["stops"] == [[False] * 4] * 2 + [[True] * 4] * 8


def test_each_worker_gets_a_message_of_its_own_and_errors_are_raised_on_all(on_four):
    """Workers 0 to 5 on ranks 0, 1, 1, 2, 3, 3; and of two workers none on ranks 0 and 2."""
    hosts = ([[0], [1, 2], [3], [4, 5]], [[], [0], [], [1]])
    for told, workers, placed in zip(on_four["scatters"], (6, 2), hosts, strict=True):
        for rank, found in enumerate(told):
            wanted = [[i, (0, 1, 70_000)[i % 3], (0, 1, 70_000)[i % 3] * i] for i in placed[rank]]
            assert found == ["MpicompError: for worker 0", f"MpicompError: for worker {workers - 1}", wanted]


def test_where_one_process_ends_the_others_end_and_name_it(tmp_path, subtests):
    """No launcher kills them: each has its own end."""
    found = told(in_one_process(f"endings={tmp_path}"))
    for how, ((first, first_said), (second, second_said), (third, third_said)) in found["endings"].items():
        with subtests.test(how):
            assert first == third == 1
            assert second == {"raise": 1, "leave": 0}.get(how, -signal.SIGKILL)
            assert first_said.count("MpicompError:") == third_said.count("MpicompError:") == 1
            if how == "leave":
                said = "rank 1 has ended its work with Aggregator 2 (EFSGD, d = 30)"
                assert all(said in text for text in (first_said, second_said, third_said))
            elif how == "stop":
                assert "MpicompError: step 2: rank 1 has been silent for too long" in first_said
                assert "MpicompError: step 2: rank 0 has ended" in third_said
            else:
                whom = "a rank" if how == "inside allreduce" else "rank 1"
                for text in (first_said, third_said):
                    assert f"MpicompError: step 2: {whom} has ended, or its connection is lost" in text


def test_a_process_that_stays_goes_on_with_one_that_takes_another_s_place(tmp_path):
    assert told(in_one_process(f"replaced={tmp_path}"))["replaced"] == [0.5, 0.5]


def test_processes_that_torchrun_starts_anew_meet_in_the_store_that_it_keeps(monkeypatch):
    """Before, rank 0 has made a group more than rank 1 had come to."""
    kept = dist.HashStore()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    for rank in (0, 1, 0):
        store_of_next(kept, rank).set("address", f"of {rank}")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    first, second = store_of_next(kept, 0), store_of_next(kept, 1)
    assert not second.check(["address"])
    first.set("address", "new")
    assert second.get("address") == b"new"


def test_hosts_whose_torchruns_have_counted_other_restarts_meet_in_a_new_store(monkeypatch):
    """torchrun does not count those in which a process on another host had ended."""
    new = dist.HashStore()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    for rank in range(2):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(rank))
        store_of_next(new, rank).set(f"address of {rank}", "")
    assert store_of_next(new, 2).check(["address of 0", "address of 1"])


def test_an_error_while_an_exchange_is_under_way_ends_the_process_once_it_has_ended(tmp_path):
    """Not by SIGABRT, from the exchange's thread in an interpreter that is gone."""
    done = torchrun(2, *JOB, f"raises_meanwhile={tmp_path}")
    assert re.search(r"failed \(exitcode: 1\) local_rank: 1 ", done.stderr), done.stderr
    assert "ZeroDivisionError: the user's own" in done.stderr and "SIGABRT" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"exchanged-0", "exchanged-1"}


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
