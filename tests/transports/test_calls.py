"""What ranks tell each other as a call begins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.transports.calls import Call, Operation, refuse_different
from mpicomp.transports.meeting import Features, begin


def test_a_call_is_the_number_that_is_told():
    calls = [
        Call(operation, whose, failed, interrupted, value)
        for operation, whose, failed, interrupted, value in product(
            Operation, (0, 1, 2**24 - 1), (False, True), (False, True), (0, 1, 2**32 - 1)
        )
    ]
    numbers = [call.number for call in calls]
    assert len(set(numbers)) == len(calls) and 0 <= min(numbers) <= max(numbers) < 2**64
    assert [Call.of(number) for number in numbers] == calls


def test_what_a_rank_has_met_makes_no_other_call():
    same = [Call(Operation.SAVE, 1), Call(Operation.SAVE, 1, failed=True), Call(Operation.SAVE, 1, value=7)]
    refuse_different(same, ["a run", "Aggregator 1"])
    with pytest.raises(MpicompError, match="rank 0 saves Aggregator 1, and rank 3 loads Aggregator 1: all"):
        refuse_different([*same, Call(Operation.LOAD, 1)], ["a run", "Aggregator 1"])


def test_ranks_that_ask_for_other_features_are_told_of_the_first():
    names = ["a run"]
    calls = [Features(), Features(True, False, True), Features(False, False, True)]
    told = []
    for asked in calls:
        begin(lambda own: [told.append(own) or own] * 3, names, asked)  # all alike
    with pytest.raises(
        ConfigError, match="rank 1 has verify_bytes = True, and rank 0 has False: all"
    ) as raised:
        begin(lambda own: [own, told[1], told[2]], names, Features())
    assert raised.value.unlike
    with pytest.raises(
        ConfigError, match="rank 2 has stall_timeout = a number of seconds, and rank 0 has None"
    ):
        begin(lambda own: [own, own, told[2]], names, Features())


def test_a_call_that_an_exception_has_ended_is_not_taken_for_the_next():
    """A handler of signals, for example, raises while the rank waits; the others go on with the call."""
    mpi = pytest.importorskip("mpi4py.MPI", exc_type=(ImportError, RuntimeError))
    from mpicomp.transports.mpi_meeting import MpiMeeting

    meeting = MpiMeeting(mpi.COMM_SELF)
    assert meeting.tell_all(2**64 - 1) == [2**64 - 1]
    patience = meeting.patience.until

    def raise_while_waiting(come):
        patience(come)
        raise TimeoutError

    meeting.patience.until = raise_while_waiting
    with pytest.raises(TimeoutError):
        meeting.tell_all(3)
    meeting.patience.until = patience
    with pytest.raises(MpicompError, match="an exception has ended a call on this rank while it waited"):
        meeting.tell_all(4)


def test_a_call_during_that_of_another_thread_names_the_thread():
    """It was said that an exception had ended a call, and to end the program."""
    mpi = pytest.importorskip("mpi4py.MPI", exc_type=(ImportError, RuntimeError))
    from mpicomp.transports.mpi_meeting import MpiMeeting

    meeting = MpiMeeting(mpi.COMM_SELF)
    patience, said = meeting.patience.until, []

    def call_in_a_thread(come):
        with ThreadPoolExecutor() as pool:
            said.append(pool.submit(meeting.tell_all, 4).exception())
        patience(come)

    meeting.patience.until = call_in_a_thread
    assert meeting.tell_all(3) == [3]
    assert "the thread 'MainThread' of this rank is in a call too" in str(said[0])
    meeting.patience.until = patience
    assert meeting.tell_all(5) == [5]
