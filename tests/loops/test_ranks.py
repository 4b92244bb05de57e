"""Aggregators on real ranks: the same bits on any number of them, and no hang whatever one rank does."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.support.launching import mpirun, no_counter

JOB = ("-m", "tests.loops.job")
ONE, TWO = (f"Aggregator {number} (EF21SGDM, d = 8)" for number in (1, 2))
LEFT = "rank 1 has left"


@cache
def told(ranks, *what):
    done = mpirun(ranks, *JOB, *what)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("what", ["all_methods", "descents"])
def test_any_number_of_ranks_gives_the_same_bits(what, ranks):
    one = told(1, what)
    assert len(one) >= 21 and told(ranks, what) == one


@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_that_all_serve_give_the_same_bits_and_bytes(ranks):
    one = told(1, "sharded")
    assert len(one) >= 25 and told(ranks, "sharded") == one


@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_blocks_that_leave_early_give_the_same_bits_and_bytes(ranks):
    assert len(told(ranks, "overlapped")) >= 11


def test_what_is_sent_whole_may_be_summed_by_mpi():
    assert len(told(3, "summed")) == 4


@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
def test_the_ledger_is_what_mpi_counts():
    assert told(3, "verified").items() <= told(1, "all_methods").items()


def test_saved_on_some_ranks_and_loaded_on_others_is_uninterrupted(tmp_path):
    ends = {}
    for first, second in ((1, 1), (3, 2), (2, 4)):
        folder = str(tmp_path / f"{first}-{second}")
        begun = told(first, "saved", folder)
        assert begun[0] == 3
        done = mpirun(second, *JOB, "saved", folder)
        assert done.returncode == 0, done.stderr
        ends[first, second] = json.loads(done.stdout)
    assert ends[1, 1] == ends[3, 2] == ends[2, 4] and ends[1, 1][0] == 7


def test_states_of_other_ranks_and_steps_are_refused_on_all_ranks_and_change_nothing():
    """With memories and without; the steps are of ranks that saved in files of their own."""
    another = (
        "rank 1 was given the state of another rank, and each has one of its own. Save with save(folder)"
    )
    said = told(3, "others_states")
    assert [text.startswith(another) for text in said] == [True, False, True]
    assert said[1].startswith("rank 1 restores a state of rounds = 2, and rank 0 one of 1: all ranks restore")


def test_saved_with_a_worker_on_each_rank_it_goes_on_on_fewer_ranks_with_workers(tmp_path):
    """Each worker's memory goes to the rank that hosts it: the same bits."""
    refused, goes_on = told(3, "on_fewer_ranks", str(tmp_path))
    assert "workers is 3 there and 2 here. Give workers=3, which any number of ranks can host" in refused
    assert goes_on is True


def test_all_ranks_save_and_load_the_same_loops_in_one_folder(tmp_path):
    """In two folders each held parts that the other lacked, and with other loops the ranks hung."""
    first, *others = told(3, "other_folders", str(tmp_path))
    assert first == others[0] == others[1] and first[0] == 1 and len(first) == 5
    assert all(said.startswith("rank 1 has another folder than rank 0, or saves or") for said in first[1:])


def test_all_ranks_hold_the_same_coordinates_and_give_up_the_same_steps():
    """Ranks that held others had estimates of their own, and a dropped step was read as another one's."""
    first, *others = told(3, "other_slices")
    assert first == others[0] == others[1]
    name = "Aggregator 1 (DIANA, d = 8)"
    assert first[0] == "rank 1 has other slices in holding than rank 0: all ranks give the same."
    assert first[1].startswith(f"rank 0 leaves coordinates out of a step of {name}, and rank 1 calls {name}")
    assert first[3].startswith(f"rank 0 calls {TWO}, and rank 1 gives up a step of {TWO}")


def test_a_dedicated_server_warns_that_its_gradient_is_left_out():
    first, *others = told(3, "left_out_on_the_server")
    assert others == [[[], []]] * 2 and first[1] == []
    (said,) = first[0]
    assert said.startswith(
        "with server='dedicated' rank 0 hosts no worker, and the gradient that it was given"
    )


@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
def test_bytes_are_verified_from_what_was_loaded_on(tmp_path):
    assert told(3, "verified_after_loading", str(tmp_path)) == [True] * 4


def test_a_communicator_of_ones_own():
    assert told(4, "own_communicator") == told(2, "own_communicator")


def test_a_program_that_does_not_import_mpi_has_a_worker_for_each_rank():
    script = "import numpy, mpicomp; print(mpicomp.Aggregator(mpicomp.GD(), like=numpy.ones(2)).workers)"
    assert mpirun(3, "-c", script).stdout.split() == ["3", "3", "3"]


def test_one_decision_about_a_gradient_that_is_not_finite():
    assert told(3, "not_finite") == 4


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("wrong_shape", "the gradient has the shape (9,) in part 'x'; expected (8,), as at the start."),
        ("other_method", "rank 1 has method = EF21SGDM(C=TopK(k=4"),
        ("other_array", "rank 1 has method = EF21(C=Chosen(keep=array([ True, False, True, ...,"),
        ("other_like", "rank 1 has like = x: numpy float64 (9,), and rank 0 has x: numpy float64 (8,)"),
        ("other_workers", "rank 1 has workers = 5, and rank 0 has 4"),
        ("other_verify", "rank 1 has verify_bytes = True, and rank 0 has False: all ranks give the same."),
        (
            "other_timeout",
            "rank 1 has stall_timeout = a number of seconds, and rank 0 has None: all ranks give the same.",
        ),
        (
            "array_for_function",
            "MARINA asks for gradients of one f_i at several points: give a function of x",
        ),
        ("once_more 0", f"rank 0 calls {ONE}, and rank 1 has ended its work with {ONE}"),
        ("once_more 2", f"rank 0 has ended its work with {ONE}, and rank 2 calls {ONE}"),
        ("closes_early", f"rank 0 calls {ONE}, and rank 2 has ended its work with {ONE}"),
        ("closes_another", f"rank 0 has ended its work with {TWO}, and rank 1 calls {ONE}"),
        ("exits", f"rank 0 calls {ONE}, and rank 1 has ended its work with {ONE}"),
        ("exits_after_a_part", f"rank 0 calls {ONE}, and rank 1 has ended its work with {ONE}"),
        ("stays_away", "rank 1 on "),
        ("another_ranks_state", "rank 1 was given the state of another rank"),
        ("raises", "RuntimeError: the user's own error"),
        ("function_raises", "RuntimeError: the user's own error"),
        (
            "goes_on_after_its_error",
            "rank 1 has left step 2 half-way by an error of the program's own, KeyError",
        ),
        ("hides_all_errors", "rank 1 has left step 2 half-way by an error of the program's"),
        ("interrupted telling", f"{LEFT} a call at step 2 half-way by an error of the program's own, Key"),
        ("interrupted checking", f"{LEFT} a call at step 2 half-way by an error of the program's own, Key"),
        ("interrupted ending", f"{LEFT} step 2 half-way by an error of the program's own, KeyboardInt"),
        ("interrupted starting", f"{LEFT} a call at step 3 half-way by an error of the program's own, Key"),
        ("own_hook", "own logger: the user's own error"),
        ("wrapped_hook", "own logger: the user's own error"),
        ("wrapped_hook", "RuntimeError: the user's own error"),
        ("before_all", "RuntimeError: the user's own error"),
        ("bad_option", "on_nonfinite='stop'; allowed: 'raise', 'skip'."),
    ],
)
def test_an_error_of_one_rank_ends_all_and_is_said_once(what, said):
    done = mpirun(3, *JOB, *what.split())
    assert done.returncode != 0
    assert done.stderr.count(said) == 1, done.stderr


def test_a_rank_that_closes_while_others_call_is_still_there_for_them():
    assert told(3, "goes_on_after_closing_early") == [1.0, 1.0]


def test_calls_after_mpi_has_ended_are_refused():
    """Any use of MPI then ended the process."""
    said = told(2, "ends_mpi_first")
    assert len(said) == 2 and all("has been finalised. Call" in one for one in said)


def test_what_the_server_alone_has_met_is_raised_on_all_ranks():
    """Rank 0 raised it at once, where the others went on with the estimate."""
    said = told(2, "counts_no_bits_down")
    assert said[0] == said[1] and said[0][0] == [1.0, 0.0]
    assert said[0][1].startswith("NoCount.paper_bits_down=-1; allowed: an integer from 0")


def test_ranks_that_make_different_calls_are_told_so(tmp_path):
    """The error names both calls, on all ranks, and nothing has changed."""
    first, second, third = (f"Aggregator {i} (EF21, d = {d})" for i, d in ((1, 4), (2, 4), (3, 6)))
    descent, new = "Descent 4 (EF21P, d = 3)", "begins another run, Aggregator or Descent"
    pairs = {
        "another": (f"calls {first}", f"calls {third}"),
        "its like": (f"calls {first}", f"calls {second}"),
        "Descent": (f"calls {descent}", f"calls {first}"),
        "save": (f"saves {first}", f"calls {first}"),
        "load": (f"calls {first}", f"loads {first}"),
        "settle": (f"settles the ledger of {first}", f"saves {first}"),
        "model": (f"asks for the model of {descent}", f"calls {descent}"),
        "start": (f"asks for the start of {first}", f"asks for the start of {third}"),
        "made": (new, f"calls {first}"),
        "run": (f"calls {first}", new),
        "of another class": ("calls Aggregator", "calls Descent"),
    }
    said = told(3, "different_calls", str(tmp_path))
    for name, (a, b) in pairs.items():
        expected = f"rank 0 {a}, and rank 1 {b}: all ranks have to make the same calls in the same order."
        assert said.pop(name) == expected
    assert said.pop("made before").startswith("rank 1 has method = EF21(C=TopK(k=2")
    assert not said


def test_ranks_that_train_different_x_are_told_so():
    """And none of those that start from the same x, or whose ``like`` is not x, is refused."""
    said = told(2, "starts")
    remedy = "x = agg.start(x), before the first call, gives rank 0's to all ranks."
    shapes = "If like only shows shapes, give zeros: like=np.zeros_like(..)."
    of_like = (
        "the loop changes like between calls, and like on rank 1 is not like on rank 0: the ranks train "
        f"different x. {remedy} {shapes}"
    )
    of_at = f"at on rank 1 is not at on rank 0: all ranks give the same x. {remedy}"
    for name in ("wrong_in_place", "wrong_by_name", "skipped_first"):
        assert said.pop(name) == [of_like, []]
    for name in ("wrong_at", "wrong_at_beside_an_array"):
        assert said.pop(name) == [of_at, []]
    for name in ("wrong_anew", "own_gradient", "shared_anew"):  # nobody can tell them apart
        assert said.pop(name) == [None, [f"like differs between ranks. If it is x: {remedy} {shapes}"]]
    assert len(said) == 5 and set(map(str, said.values())) == {"[None, []]"}


@pytest.mark.parametrize("server", ["shared", "dedicated", "sharded"])
def test_after_a_step_that_ended_half_way_a_saved_state_goes_on(server, tmp_path):
    assert told(3, "half_way", server, str(tmp_path)) == ["DivergedError", True, True]


def test_a_program_may_end_mpi_itself():
    assert told(2, "finalized") == 1


def test_a_rank_that_dies_ends_the_others():
    assert mpirun(3, *JOB, "rank_dies").returncode != 0
