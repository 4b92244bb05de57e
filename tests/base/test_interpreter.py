"""A second Python imports what this one would."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARENT = """
import subprocess
from mpicomp.base.interpreter import interpreter
subprocess.run(interpreter("-c", "import statistics; print(statistics.__file__)"), check=True)
"""


@pytest.mark.parametrize(("options", "own"), [(["-P"], False), ([], True)], ids=["command", "folder first"])
def test_the_current_folder_comes_first_only_where_it_does_here(tmp_path, options, own):
    (tmp_path / "statistics.py").write_text("")
    command = [sys.executable, *options, "-c", PARENT]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (ran.stdout.strip() == str(tmp_path / "statistics.py")) == own
