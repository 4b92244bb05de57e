"""The first of the random kills; `python -m tests.cluster.kills` runs as many as one likes."""

from __future__ import annotations

import pytest

from tests.cluster import saves, times
from tests.cluster.kills import draws, ended


@pytest.mark.parametrize("strike", draws(8, seed=0), ids=lambda s: f"{s.phase}-{s.how}-{s.rank}")
def test_a_random_kill_ends_the_job_and_loses_nothing(strike, tmp_path):
    ended(strike, tmp_path / "run")


@pytest.mark.parametrize("number", range(5))
def test_a_kill_at_a_random_time_does_not_end_the_job(number, tmp_path):
    """In the fifth two ranks die.  Open MPI may end a job by itself; none hangs, or is ended by us."""
    outcome = times.kill(times.kills(5, seed=0)[number], tmp_path / "run")
    assert outcome.kind in (times.GONE_ON, times.LATE, times.ABORTED), outcome.said


def test_a_kill_in_a_save_of_two_ranks_loses_no_state():
    """A few of `python -m tests.cluster.saves`; each of them checks what the one before has left."""
    seen, words = saves.kills(4, seed=0)
    assert sum(seen.values()) == 4 and words["saved"] and words["loaded"] == 4
