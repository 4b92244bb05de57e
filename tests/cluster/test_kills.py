"""The first of the random kills; `python -m tests.cluster.kills` runs as many as one likes."""

from __future__ import annotations

import pytest

from tests.cluster.kills import draws, ended


@pytest.mark.parametrize("strike", draws(8, seed=0), ids=lambda s: f"{s.phase}-{s.how}-{s.rank}")
def test_a_random_kill_ends_the_job_and_loses_nothing(strike, tmp_path):
    ended(strike, tmp_path / "run")
