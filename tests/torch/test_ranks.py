"""mpicomp.torch on real ranks: the same bits on any number of them, DDP's parameters, and one decision."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import Aggregator, DoubleSqueeze, TopK
from mpicomp.keys import Key
from mpicomp.torch.fragments import cut
from mpicomp.torch.tensors import Tensors
from tests.support.launching import LIMIT, mpirun, torchrun
from tests.torch.models import loss, network, values


def told(ranks, *what):
    done = mpirun(ranks, "-m", "tests.torch.job", *what)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fixed_workers_give_the_same_bits_on_any_number_of_ranks():
    one = told(1, "fixed_workers")
    assert told(2, "fixed_workers") == told(4, "fixed_workers") == one


def test_saved_and_loaded_on_another_number_of_ranks_is_uninterrupted(tmp_path):
    whole = told(1, "uninterrupted")
    for first, second in ((1, 3), (4, 2)):
        folder = str(tmp_path / str(first))
        told(first, "saved", folder)
        assert told(second, "saved", folder) == whole


def test_closures_of_fixed_workers_give_the_same_bits_on_any_number_of_ranks():
    one = told(1, "closures")
    assert told(3, "closures") == told(4, "closures") == one
    assert told(4, "own_closure") == one[0]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_gradients_that_leave_early_give_the_same_bits_and_bytes(ranks):
    assert told(ranks, "overlapped") == 7  # DCGD does not depend on the blocks


def test_what_has_left_early_is_forgotten_where_a_gradient_is_bad():
    assert told(3, "overlap_not_finite") == 2


def test_without_compression_it_is_ddp_up_to_rounding(tmp_path):
    assert told(3, "beside_ddp", str(tmp_path / "meet")) < 1e-6


@pytest.mark.parametrize("what", ["beside_the_hook", "the_hook_remembers"])
def test_the_hook_is_the_optimiser(what, tmp_path):
    assert told(3, what, str(tmp_path / "meet")) is True


def test_the_hook_goes_on_from_what_it_saved(tmp_path):
    """Its memories are there again: the training is the uninterrupted one."""
    whole, resumed = told(3, "the_hook_goes_on", str(tmp_path / "meet"), str(tmp_path / "saved"))
    assert whole == resumed


def test_the_hook_refuses_what_another_method_saved(tmp_path):
    said = told(2, "the_hook_of_another_method", str(tmp_path / "meet"), str(tmp_path / "saved"))
    assert "method.C" in said and "TopK(k=0.2" in said and "TopK(k=0.5" in said


def test_an_overflow_on_one_rank_is_left_out_on_all():
    assert told(3, "overflow_on_one_rank") == [[256.0, 128.0, 256.0], 1]


def test_local_steps_end_alike_on_all_ranks():
    assert told(3, "local_steps") == 3


def by_hand(n, keep, ahead):
    """The job ``streamed`` of n ranks in one process: n models, and an Aggregator for each fragment."""
    C, key = TopK(k=0.3), Key(0, 0, 0, n)
    models = [network(seed=1) for _ in range(n)]
    inner = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    fragments = [Tensors(one) for one in cut(dict(models[0].named_parameters()), 2)]
    names = [[part.name for part in f.parts.parts] for f in fragments]
    own = [[Tensors({k: m.get_parameter(k) for k in names[p]}) for m in models] for p in range(2)]
    start = [f.values() for f in fragments]
    means = [Aggregator(DoubleSqueeze(C, C), like, workers=n) for like in start]
    memories = [[np.zeros_like(like) for _ in range(n)] for like in start]
    sent, then = {}, {}
    for t in range(1, 21):
        for i, (model, sgd) in enumerate(zip(models, inner, strict=True)):
            sgd.zero_grad()
            loss(model, i, t - 1).backward()
            sgd.step()
        for p, due in enumerate((0, 3)):
            if (t + 2 - due) % 6 == 0:
                then[p] = [one.values() for one in own[p]]
                changes = [start[p] - ahead * e - x for e, x in zip(memories[p], then[p], strict=True)]
                sent[p] = means[p](dict(enumerate(changes)))
                for e, change in zip(memories[p], changes, strict=True):
                    e += change
                    C.decompress_add(C.compress(e, key), e, key, -1.0)
        for p, due in enumerate((0, 3)):
            if (t - due) % 6 == 0:
                start[p] = start[p] - sent.pop(p)
                for one, before, e in zip(own[p], then[p], memories[p], strict=True):
                    now = one.values()
                    kept = now - before if keep == "delay" else np.float32(keep) * (now - start[p])
                    one.set_values(start[p] - ahead * e + kept)
    up, down = ([int(a) for a in sum(getattr(m.ledger, way) for m in means)] for way in ("up", "down"))
    ends = [sha256(values(m)).hexdigest() for m in models]
    return [ends, sha256(np.concatenate(start).tobytes()).hexdigest(), [up, down]]


@pytest.mark.parametrize(("keep", "ahead"), [(0.5, 0.0), ("delay", 0.5)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_delayed_exchanges_have_the_bits_of_one_process(ranks, keep, ahead, tmp_path):
    """Whatever the network does; and saved in the middle of an exchange they go on."""
    found = told(ranks, "streamed", "shared", str(tmp_path / "saved"), str(keep), str(ahead))
    assert found == by_hand(ranks, keep, ahead)


def test_delayed_exchanges_by_every_rank(tmp_path):
    ends, _, _ = told(3, "streamed", "sharded", str(tmp_path / "saved"), "delay", "0.5")
    assert len(set(ends)) == 3  # each rank has steps of its own since the last exchange


def test_a_server_without_a_worker():
    assert told(3, "dedicated_server")


def test_a_server_without_a_worker_warns_that_its_gradient_is_left_out():
    """Once, where rank 0 trains too, and never where it does not or on another rank."""
    assert told(2, "left_out_on_the_server") == [[1, 0, 1, 0, 1, 0], [0] * 6]


def test_one_bad_gradient_is_said_by_all():
    assert told(3, "not_finite") == "worker 1: the gradient is not finite."


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a_little_other_rate", "the optimiser's settings on rank 1 differ from rank 0's"),
        ("other_rate_of_numpy", "the optimiser's settings on rank 1 differ from rank 0's"),
        ("other_rate", "the optimiser's settings on rank 1 differ from rank 0's"),
        ("other_outer=rate", "outer's settings on rank 1 differ from rank 0's: give all ranks the same"),
        ("other_outer=class", "outer's settings on rank 1 differ from rank 0's: give all ranks the same"),
        ("other_outer=momenta", "outer's momenta on rank 1 differ from rank 0's: load its state on all"),
        ("other_momenta", "the optimiser's momenta on rank 1 differ from rank 0's"),
        ("other_memory=tensor", "the optimiser's momenta on rank 1 differ from rank 0's"),
        ("other_memory=dicts", "the optimiser's momenta on rank 1 differ from rank 0's"),
        ("changed_alone", "the parameters on rank 1 differ from rank 0's: they were changed on some ranks"),
        ("interrupted=1", "rank 1 has left a call at step 3 half-way by an error of the program's own, Key"),
        ("interrupted=2", "rank 1 has left a call at step 2 half-way by an error of the program's own, Key"),
        ("another_ranks_state", "rank 1 was given the state of another rank"),
    ],
)
def test_what_differs_between_ranks_is_said(what, said):
    done = mpirun(2, "-m", "tests.torch.job", *what.split("="))
    assert done.returncode != 0
    assert done.stderr.count(said) == 1, done.stderr


def test_settings_that_differ_are_named():
    """By their own names, and not by what follows from them, such as the parameters of a fragment."""
    found = told(2, "other_settings")
    theirs = {
        "sync_every": (7, 6),
        "delay": (1, 0),
        "keep": (0.5, 0.0),
        "fragments": (2, 1),
        "start_after": (3, 0),
        "module": ("given", None),
        "overlap": (True, False),
    }
    said = "rank 1 has {} = {}, and rank 0 has {}: all ranks give the same."
    wanted = {name: said.format(name, *values) for name, values in theirs.items()}
    assert found == wanted | {"more fragments": said.format("fragments", 2, 3)}


def test_models_that_differ_are_named_by_their_first_difference():
    found = told(2, "other_model")
    for shape in ("(4, 4)", "(5, 4)"):
        assert f"group0.80: torch torch.float32 {shape}" in found
    assert found.startswith("rank 1 has parameters = .. ") and "group0.2:" not in found and len(found) < 500


def test_rates_that_become_different_are_refused_before_the_step():
    said = "on rank 1 the settings of the optimiser, such as its learning rate, the parameters that need"
    for theirs in told(2, "schedules_of_their_own"):
        assert len(theirs) == 6 and all(one.startswith(said) for one in theirs)


def test_a_parameter_that_is_frozen_on_one_rank_is_refused_before_the_step():
    """Rank 0 would step it, and rank 1 would not.  Frozen on all ranks it stays."""
    said = "the parameters that need a gradient, the steps that were left out after opt.aggregate()"
    for theirs in told(2, "frozen_alone"):
        assert len(theirs) == 3 and all(said in one for one in theirs)


def test_a_step_that_one_rank_leaves_out_or_takes_with_its_own_gradients_is_refused_in_the_next():
    """The ranks' parameters differ by then.  What all ranks do alike is theirs to choose."""
    said = "the steps that were left out after opt.aggregate(), the gradients that were put in the place"
    for theirs in told(2, "stepped_alone"):
        assert len(theirs) == 3 and all(said in one for one in theirs)


def test_what_one_rank_changes_between_two_steps_is_refused_in_the_next():
    """Else each rank trains a model of its own from there on.  What all ranks change alike is theirs."""
    for theirs in told(2, "changed_between_steps"):
        assert len(theirs) == 24
        for change, alone, said in theirs:
            of_momenta = change in ("remember", "forget", "reset")
            what = "the optimiser's momenta" if of_momenta else "the parameters"
            wanted = f"{what} on rank 1 differ from rank 0's: " if alone else ""
            if alone and change == "remember_outer":
                wanted = "on rank 1 the settings of the optimiser"
            assert said.startswith(wanted) and bool(said) == alone, (change, said)


def test_a_step_of_the_inner_optimiser_alone_is_refused():
    """A program that still calls it would train each rank alone."""
    for theirs in told(2, "stepped_by_the_inner_optimiser"):
        assert len(theirs) == 2 and all("SGD.step() would step along" in one for one in theirs)
    assert told(2, "own_steps_that_are_allowed")


def test_an_error_in_the_outer_step_on_one_rank_holds_up_no_other():
    assert told(2, "outer_step_that_fails") == told(2, "late_outer_step_that_fails") == 3


def test_a_rank_that_ends_in_an_exchange_is_named():
    done = mpirun(2, "-m", "tests.torch.job", "ends_in_an_exchange")
    assert done.returncode and "all ranks have to make the same calls" in done.stderr
    assert "rank 0 has ended its work with Aggregator" in done.stderr


def test_ranks_agree_on_whether_a_second_aggregate_sends():
    """Two averages in each of three steps: the third call finds no change."""
    assert told(2, "aggregated_again") == 6


def test_other_values_for_a_while_on_one_rank_change_nothing():
    assert told(2, "looked_at_on_one_rank") is True


def test_what_is_alike_passes():
    assert told(2, "alike") is True


def test_what_is_outside_the_module_is_shared_too():
    assert told(2, "outside_the_module") is True


def test_buffers_that_do_not_change_are_not_sent():
    """BatchNorm's three are, of one layer with 8 features: two with 32 bytes, and a count with 8."""
    assert told(3, "a_mask") == 4 * 2 * (2 * 32 + 8)


ALONE = """
from tests.torch.loops import compressed
from tests.torch.models import network
compressed(network())
"""


def test_torchrun_is_refused_where_torch_has_not_joined_its_processes():
    """Each would train alone."""
    done = torchrun(2, "--no-python", sys.executable, "-c", ALONE)
    assert done.returncode != 0
    assert "torchrun started 2 processes, and each would train alone: first call" in done.stderr
    assert 'torch.distributed.init_process_group("gloo"), or start the program with `mpirun' in done.stderr


def test_processes_are_refused_a_communicator_of_each_alone(tmp_path):
    script = f"""
import sys, torch
meet = "file://{tmp_path}/group"
torch.distributed.init_process_group("gloo", init_method=meet, rank=int(sys.argv[1]), world_size=2)
from mpi4py import MPI
from tests.torch.loops import compressed
from tests.torch.models import network
compressed(network(), comm=MPI.COMM_SELF)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", script, str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [one.communicate(timeout=LIMIT)[1] for one in both]
    assert all("torch.distributed has 2 processes, and MPI knows of this one alone" in text for text in said)


@pytest.mark.parametrize("what", ["other_start", "other_frozen"])
def test_parameters_that_differ_are_refused(what):
    done = mpirun(2, "-m", "tests.torch.job", what)
    assert done.returncode != 0
    assert done.stderr.count("the parameters on rank 1 differ from rank 0's: give module=model") == 1
