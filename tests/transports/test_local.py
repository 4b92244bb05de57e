"""One process: what the server is asked there, as on the ranks of a job (see ``tests.mpi.test_ranks``)."""

from __future__ import annotations

import pytest

from mpicomp.base.errors import DataError
from mpicomp.transports.local import Local


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
    with pytest.raises(Exception, match="pickle"):
        Local(3).ask_server(lambda: lambda: None)
