"""One process: what the server is asked there, as on the ranks of a job (``tests.mpi.test_transport``)."""

from __future__ import annotations

import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, DataError
from mpicomp.transports.local import Local
from tests.support.every_combination import PROBLEM, ROUNDS, WORKERS, methods


def raising(error):
    def action():
        raise error

    return action


def test_the_server_is_asked_once_and_its_answer_is_given():
    ran = []
    assert Local(3).ask_server(lambda: ran.append("here") or {"rows": [1, 2]}) == {"rows": [1, 2]}
    assert ran == ["here"]


@pytest.mark.parametrize("error", [DataError("known"), ZeroDivisionError("a defect")], ids=repr)
def test_an_error_of_the_server_is_raised(error):
    transport = Local(3)
    with pytest.raises(type(error), match=str(error)):
        transport.ask_server(raising(error))
    assert transport.sent == [0, 0]


def test_an_answer_must_be_one_that_can_be_sent():
    with pytest.raises(ConfigError, match=r"Can't pickle .*<lambda>.* at the top level of a file"):
        Local(3).ask_server(lambda: lambda: None)


class Hearing(Local):
    """Notes how many messages are gathered at once, and the lengths of all messages up and down."""

    def __init__(self):
        super().__init__(WORKERS)
        self.counts, self.up, self.down = set(), set(), set()

    def gather(self, senders, take):
        def heard(i, message):
            self.up.add(len(message))
            take(i, message)

        self.counts.add(len(senders))
        return super().gather(senders, heard)

    def broadcast(self, message):
        self.down.add(len(message))
        return super().broadcast(message)


def test_the_runs_by_which_placements_are_compared_differ_in_all_that_ranks_see():
    """The number of messages, and lengths of nothing, a part of a piece of 7 bytes, a piece, and many."""
    transport = Hearing()
    for method in methods():
        mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=ROUNDS, every=ROUNDS, transport=transport)
    assert transport.counts >= {0, 1, 2, 3, WORKERS - 1, WORKERS}
    for lengths in (transport.up, transport.down):
        assert {0, 1} < lengths and max(lengths) > 50 * 7
    assert {6, 7, 8, 14 + 1} < transport.up
