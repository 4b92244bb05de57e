"""A user's own method, problem and compressor in the commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings

import pytest

from mpicomp import compare, run
from mpicomp.lab.experiment.folder import read_comparison
from mpicomp.text.config import parse_method, parse_problem
from tests.support import own_file
from tests.support.launching import mpicomp

RUN = ("--problem", "./mine.py:Centre(d=4)", "--method", "./mine.py:Plain(C=./mine.py:First(k=3))")
SUITE = """
problem = "./mine.py:Centre(d=4)"
workers = 4
rounds = 20
seeds = [0, 1]

[[method]]
method = "mine:Plain(C=./mine.py:First(k=4), gamma=theory*0.25)"
tune = [0, 1]

[[method]]
label = "EF21"
method = "ef21(C=./mine.py:First(k=4))"
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, in which the user's file is."""
    shutil.copy(own_file.__file__, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outcome(*arguments: str) -> dict:
    done = mpicomp("run", *RUN, "--workers", "3", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_run_and_its_resume_on_other_ranks(here):
    whole = outcome("--rounds", "9")
    assert whole["method"] == "./mine.py:Plain(C=./mine.py:First(k=3), gamma=1.0)"
    assert whole["problem"] == "./mine.py:Centre(d=4)"
    outcome("--rounds", "5", "--out", "run")
    resumed = outcome("--rounds", "9", "--out", "run", "--resume", "--ranks", "2")
    assert (resumed["resumed_after"], resumed["ranks"]) == (5, 2)
    assert resumed["iterates_sha256"] == whole["iterates_sha256"]
    assert resumed["up_bytes"] == whole["up_bytes"] == 9 * 3 * 3 * 8
    assert mpicomp("plot", "run").returncode == 0


def test_a_comparison_its_tuning_its_resume_and_its_figure(here):
    (here / "suite.toml").write_text(SUITE)
    for more in ([], ["--resume"]):
        done = mpicomp("compare", "suite.toml", "--out", "both", *more)
        assert done.returncode == 0, done.stderr
    (here / "both" / "figure.png").unlink()
    assert mpicomp("plot", "both").returncode == 0
    assert (here / "both" / "figure.png").exists()
    held = read_comparison(here / "both")
    (label,) = held.tunings
    assert label == "mine:Plain(C=./mine.py:First(k=4), gamma=theory*0.25)"
    assert len(held.outcomes) == 4 and all(o.summary["status"] == "rounds" for o in held.outcomes)


def test_code_that_has_changed_since_is_named(here):
    """Not comments; and with what the last resume had, which has said so."""
    method, problem = parse_method(RUN[3]), parse_problem(RUN[1])

    def go_on(rounds, **options):
        run(method, problem, workers=2, rounds=rounds, out="run", **options)

    def compare_on():
        compare([method], problem, workers=2, rounds=3, seeds=[0], out="both", resume=None)

    go_on(1)
    compare_on()
    append(here / "mine.py", "# a comment\n\n")
    with warnings.catch_warnings(action="error"):
        go_on(2, resume=True)
        compare_on()
    append(here / "mine.py", "PI = 3\n")
    with pytest.warns(UserWarning, match="^mine.py has changed since the rounds before 2 of run were done: "):
        go_on(3, resume=True)
    with pytest.warns(UserWarning, match="^mine.py has changed since runs in both/.*, which are kept: "):
        compare_on()
    with warnings.catch_warnings(action="error"):
        go_on(4, resume=True)


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def test_submit_shows_the_text(here):
    done = mpicomp("submit", *RUN, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert (
        "--problem './mine.py:Centre(d=4)' --method './mine.py:Plain(C=./mine.py:First(k=3))'" in done.stdout
    )


def test_list_describes_it(here):
    said = mpicomp("list", "./mine.py:First").stdout
    assert "./mine.py:First(k)  [contractive]" in said and "The first k coordinates." in said
    text = (here / "mine.py").read_text()
    (here / "mine.py").write_text(text.replace("The first k coordinates.", "The first k coordinates::", 1))
    assert "The first k coordinates\n" in mpicomp("list", "./mine.py:First").stdout


def test_an_import_that_raises_is_reported_once(here):
    (here / "mine.py").write_text("import nosuch\n")
    for command in (("run", *RUN), ("run", *RUN, "--ranks", "2"), ("list", "./mine.py:First")):
        done = mpicomp(*command)
        assert done.returncode == 1
        said = "mpicomp: cannot import ./mine.py: ModuleNotFoundError: No module named 'nosuch' (line 1 of "
        assert done.stderr.count(said) == 1 and "Traceback" not in done.stderr


def test_one_rank_reports_it_where_the_user_starts_the_ranks(here):
    from tests.support.launching import mpirun

    (here / "mine.py").write_text("import nosuch\n")
    done = mpirun(2, "-m", "mpicomp", "run", *RUN)
    assert done.returncode != 0
    assert done.stderr.count("cannot import ./mine.py") == 1 and "Traceback" not in done.stderr


def test_a_path_needs_no_quotes(here):
    (here / "data").mkdir()
    (here / "data" / "set.txt").write_text("1 1:1\n-1 2:1\n1 1:2\n-1 2:3\n")
    done = mpicomp(
        "run", "--problem", "logistic(data=data/set.txt, lam=0.1)", "--method", "gd", "--workers", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "logistic(data='data/set.txt', lam=0.1)" in done.stdout


def test_ranks_import_no_library_from_the_current_folder(tmp_path):
    for name in ("mpicomp", "statistics"):
        (tmp_path / f"{name}.py").write_text('raise SystemExit("the file in the folder was run")')
    (tmp_path / "helper.py").write_text("")
    command = [sys.executable, "-P", "-m", "mpicomp"]
    run = ["run", "--problem", "quadratics(d=4)", "--method", "gd", "--rounds", "1", "--ranks", "2"]
    ran = subprocess.run([*command, *run], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    for program in (["-m", "helper"], ["-c", "import helper"]):
        ran = subprocess.run([*command, "launch", "--ranks", "2", *program], cwd=tmp_path)
        assert ran.returncode == 0
