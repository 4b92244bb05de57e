"""What several files of this folder need."""

from __future__ import annotations

import pytest

from tests.support.running import interrupted


@pytest.fixture
def stopped(tmp_path):
    """A run interrupted in round 30 with checkpoints every 10 rounds."""
    interrupted(30, out=tmp_path / "run", checkpoint_every=10)
    return tmp_path / "run"
