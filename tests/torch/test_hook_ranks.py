"""The communication hook of DDP on two and three ranks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

from tests.support.launching import mpirun


def test_ranks_agree_on_what_they_use_and_refuse(tmp_path):
    """With four ranks a quarter of an integer is exact, as is a half with two; three would round."""
    done = mpirun(4, "-m", "tests.torch.hook_job", str(tmp_path))
    assert done.returncode == 0 and done.stdout == "all well\n", done.stderr
