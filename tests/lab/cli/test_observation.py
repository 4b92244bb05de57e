"""What a run observes and where it begins, from the command line; a callback that fails on several ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mpicomp.runtime.rows import read_rows
from tests.support.launching import mpicomp, mpirun

RUN = ("run", "--problem", "logistic(data=breast_cancer, lam=1e-3)", "--workers", "4", "--rounds", "20")
GD = ("--method", "gd")


@pytest.mark.parametrize("ranks", [(), ("--ranks", "2")], ids=["one process", "two ranks"])
def test_rows_samples_and_the_starting_point(ranks, tmp_path):
    x0 = np.linspace(-0.1, 0.1, 30)
    np.save(tmp_path / "x0.npy", x0)
    out = tmp_path / "run"
    options = ("--at", "1,2,15", "--observe", "12", "--x0", str(tmp_path / "x0.npy"), "--out", str(out))
    done = mpicomp(*RUN, *GD, *options, *ranks)
    assert done.returncode == 0, done.stderr
    assert "f on 12 samples of each worker" in done.stdout
    rows = read_rows(out / "rows.csv")
    assert [row.round for row in rows] == [0, 1, 2, 15, 20]
    assert rows[0].x_norm == np.sqrt(np.sum(x0**2))


def test_a_run_that_observes_no_f():
    done = mpicomp(*RUN, *GD, "--observe", "never")
    assert done.returncode == 0 and "not observed (observe = never)" in done.stdout
    outcome = json.loads(mpicomp(*RUN, *GD, "--observe", "never", "--json").stdout)
    assert outcome["f"] is None and outcome["x_norm"] > 0


def test_what_is_refused(tmp_path):
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "short.npy", np.zeros(3))
    for options, said in [
        (("--at", "1,two"), "Give rounds with commas between them"),
        (("--at", "1", "--every", "5"), "both say when there is a row"),
        (("--observe", "often"), "observe='often'; allowed: 'full', 'never', or a number"),
        (("--observe", "0"), "observe=0; allowed"),
        (("--observe", "never", "--target-grad-norm-sq", "1"), "Give observe a number of samples"),
        (("--x0", str(tmp_path / "none.npy")), "No such file"),
        (("--x0", str(tmp_path / "text.npy")), "a file that numpy.save wrote"),
        (("--x0", str(tmp_path / "short.npy")), "x0 has shape (3,)"),
    ]:
        done = mpicomp(*RUN, *GD, *options)
        assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_job_script_repeats_the_rounds():
    done = mpicomp("submit", *RUN[1:], *GD, "--at", "1,2,15", "--dry-run")
    assert "--at 1,2,15" in done.stdout, done.stdout + done.stderr


FAILS = """
import mpicomp, sys
def fail(round, *_):
    if round == 4:
        raise getattr(mpicomp, sys.argv[2], ZeroDivisionError)("in the function")
problem = mpicomp.problems.Quadratics(d=9)
mpicomp.run(mpicomp.GD(gamma=0.1), problem, workers=6, rounds=9, every=2, **{sys.argv[1]: fail})
"""


@pytest.mark.parametrize(
    ("called", "error"),
    [
        ("callback", "ZeroDivisionError"),
        ("progress", "ZeroDivisionError"),
        ("progress", "DivergedError"),  # as of a run inside: the other ranks waited for the server for ever
    ],
)
def test_an_error_of_a_callback_ends_all_ranks_with_its_traceback(called, error, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    done = mpirun(3, str(script), called, error)
    assert done.returncode != 0 and done.stderr.count(f"{error}: in the function") == 1, done.stderr
    assert "fails.py" in done.stderr
