"""What ranks print arrives in full, or its loss is reported, and no reader holds up the job."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.launching import LIMIT, TESTS, mpicomp

NOISY = str(TESTS / "mpi" / "noisy.py")


def launched(lines: int, redirected: str, *unset: str) -> subprocess.CompletedProcess[str]:
    """Two ranks of ``noisy.py`` whose streams the shell has ``redirected``."""
    command = f'"{sys.executable}" -m mpicomp launch --ranks 2 "{NOISY}" {lines}'
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        ["bash", "-c", f"{command} {redirected}; exit ${{PIPESTATUS[0]}}"],
        env=environment | {"PYTHONPATH": str(TESTS.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.mark.parametrize("redirected", ["2>/dev/full >/dev/null", "2>&1 >/dev/null | true"])
def test_errors_that_cannot_be_written_do_not_hold_up_the_job(redirected):
    """More of them than a pipe holds: mpirun waited for ever."""
    assert launched(2000, redirected).returncode == 0


def test_errors_read_late_arrive_in_full():
    """What the pipe had no room for was lost two seconds after the job."""
    done = launched(700, "2>&1 >/dev/null | (sleep 5; wc -c)")
    assert (done.returncode, int(done.stdout)) == (0, 2 * 700 * 101), done.stderr


def test_output_that_cannot_be_written_is_an_error():
    done = launched(3, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr.endswith("mpicomp: cannot write to standard output: No space left on device.\n")


def test_output_into_a_file_is_whole(tmp_path):
    assert launched(2000, f'>"{tmp_path}/out" 2>/dev/null').returncode == 0
    assert (tmp_path / "out").stat().st_size == 2 * 2000 * 101


def test_ranks_start_where_no_home_is_set():
    done = launched(1, "", "HOME")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stderr


def test_where_warnings_are_errors_none_is_left(tmp_path):
    """Of the pipes that mpirun's output came through: they were never closed."""
    script = tmp_path / "script.py"
    script.write_text("print('done')")
    done = mpicomp("launch", "--ranks", "2", str(script), PYTHONWARNINGS="error")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\ndone\n", "")


def test_a_rank_that_has_finalized_mpi_may_leave_at_once(tmp_path):
    """It was taken for one that leaves the job before its end."""
    script = tmp_path / "script.py"
    script.write_text(FINALIZES)
    done = mpicomp("launch", "--ranks", "2", str(script))
    assert (done.returncode, done.stderr) == (0, "")


FINALIZES = """
import os
import mpicomp
from mpi4py import MPI
mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.problems.Quadratics(d=9), workers=2, rounds=2)
MPI.Finalize()
os._exit(0)
"""
