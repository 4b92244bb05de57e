"""Jobs on a real Slurm: launched as its users would, stopped, queued again, and split into arrays."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mpicomp.lab.jobs.submit import fill
from tests.cluster.conftest import ROOT
from tests.support.launching import mpicomp

JOBS = ROOT / "jobs"
RUN = ("--problem", "quadratics(d=40, lam=0.1)", "--method", "diana(randk(k=4))", "--workers", "20")
BRIEF = (*RUN, "--rounds", "50")
LONG = (*RUN, "--rounds", "800", "--every", "10")  # a second or two


def outcome(text: str) -> dict:
    """The one line of JSON among what a job printed."""
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def alone(*arguments: str) -> dict:
    """A run in one process, left alone."""
    done = mpicomp("run", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return outcome(done.stdout)


@pytest.fixture(scope="module")
def brief():
    return alone(*BRIEF)["iterates_sha256"]


@pytest.fixture(scope="module")
def whole():
    return alone(*LONG)


def test_the_scripts_that_users_copy_are_clean():
    scripts = sorted(JOBS.glob("*.sh"))
    assert [s.name for s in scripts] == [
        "array.sh",
        "compare.sh",
        "gpu.sh",
        "images.sh",
        "requeue.sh",
        "run.sh",
    ]
    try:
        done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no shellcheck here: apt-get install shellcheck")
    assert done.returncode == 0, done.stdout


# Which launcher goes with which MPI, on two nodes.


@pytest.mark.parametrize(("plugin", "mpi"), [("pmi2", "mpich"), ("pmix", "debian_openmpi")])
def test_srun_with_an_mpi_of_its_kind(slurm, brief, request, plugin, mpi):
    environment = request.getfixturevalue(mpi)
    srun = ("srun", f"--mpi={plugin}", "--nodes=2", "--ntasks=2")
    done = slurm.run(*srun, "mpicomp", "run", *BRIEF, "--json", **environment)
    assert done.returncode == 0, done.stderr
    said = outcome(done.stdout)
    assert (said["ranks"], said["iterates_sha256"]) == (2, brief)


def test_ranks_that_each_believe_they_are_alone_are_refused(slurm):
    """The wheel's Open MPI does not speak Slurm's PMI-2: two worlds of one rank."""
    done = slurm.run("srun", "--mpi=pmi2", "--ntasks=2", "mpicomp", "run", *BRIEF)
    assert done.returncode == 1
    assert done.stderr.count("the launcher started 2 ranks but MPI sees 1") == 1
    assert "mpicomp run --ranks N" in done.stderr and "Traceback" not in done.stderr


def test_submit_hands_a_run_to_slurm(slurm, tmp_path, brief):
    """Started by the wheel's mpirun, within the job and on both of its nodes."""
    request = ("--ranks", "2", "--nodes", "2", "--time", "10", "--partition", "urgent")
    done = slurm.run("mpicomp", "submit", *BRIEF, *request, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    slurm.wait_for_jobs()
    said = outcome((tmp_path / f"mpicomp-{done.stdout.split()[-1]}.out").read_text())
    assert (said["ranks"], said["iterates_sha256"]) == (2, brief)


def test_one_process_in_a_job_of_two_tasks(slurm, tmp_path, brief):
    """A batch script is no rank, whatever it is told of the job's tasks."""
    command = f"mpicomp run {shlex.join(BRIEF)} --json"
    slurm.submit(tmp_path, "--ntasks=2", "--output=out", f"--wrap={command}")
    slurm.wait_for_jobs()
    said = outcome((tmp_path / "out").read_text())
    assert (said["ranks"], said["iterates_sha256"]) == (1, brief)


# A long run is stopped on the way, by whatever means, and is in the end the run left alone.


@pytest.fixture
def folder(tmp_path):
    """A folder with jobs/requeue.sh, edited."""
    request = {"ntasks": 2, "nodes": 2, "time": 10}
    text = fill((JOBS / "requeue.sh").read_text(), request, (*LONG, "--out", "run-SEED"))
    (tmp_path / "requeue.sh").write_text(text.replace("SEED", '"$seed"'))
    return tmp_path


def begun(run: Path) -> Callable[[], bool]:
    """Whether some rows are recorded."""
    rows = run / "rows.csv"
    return lambda: rows.exists() and len(rows.read_text().splitlines()) > 3


def fact(slurm, job: str, name: str) -> str:
    """What Slurm knows of a job."""
    words = slurm.say("scontrol", "show", "job", job).split()
    return next(word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}="))


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def same(found: dict, expected: dict) -> bool:
    fields = ("iterates_sha256", "up_bytes", "down_bytes", "rounds", "f", "grad_norm_sq", "status")
    return all(found[field] == expected[field] for field in fields)


def test_a_task_of_an_array_queues_itself_again(slurm, folder, whole):
    """The last one, whose job has the number of the whole array; the other runs through."""
    array = slurm.submit(folder, "--array=0-1", "--ntasks=1", "--nodes=1", "requeue.sh")
    slurm.wait(begun(folder / "run-1"), "no rows")
    slurm.run("scancel", "--batch", "--signal=USR1", f"{array}_1")
    slurm.wait_for_jobs()
    assert [fact(slurm, f"{array}_{task}", "Restarts") for task in (0, 1)] == ["0", "1"]
    assert same(summary(folder / "run-0"), whole)
    assert same(summary(folder / "run-1"), alone(*LONG, "--seed", "1"))


def test_a_preempted_job_comes_back_by_itself(slurm, folder, whole):
    """A job of more importance takes its nodes: TERM to every process of it, and some seconds later KILL."""
    job = slurm.submit(folder, "--exclusive", "requeue.sh")
    slurm.wait(begun(folder / "run-0"), "no rows")
    slurm.submit(folder, "--partition=urgent", "--exclusive", "--nodes=4", "--wrap=true")
    slurm.wait_for_jobs()
    assert fact(slurm, job, "Restarts") == "1"
    assert same(summary(folder / "run-0"), whole)


def test_a_cancelled_job_keeps_its_state_and_stays_away(slurm, folder, whole, mpich):
    """Submitted again, it goes on.  This one's ranks are started by srun."""
    environment = mpich | {"MPICOMP_MPIRUN": "srun --mpi=pmi2"}
    job = slurm.submit(folder, "requeue.sh", **environment)
    slurm.wait(begun(folder / "run-0"), "no rows")
    slurm.run("scancel", job)
    slurm.wait_for_jobs()
    assert (fact(slurm, job, "JobState"), fact(slurm, job, "Restarts")) == ("CANCELLED", "0")
    assert summary(folder / "run-0")["status"] == "interrupted"
    slurm.submit(folder, "requeue.sh", **environment)
    slurm.wait_for_jobs()
    assert same(summary(folder / "run-0"), whole)


SUITE = """
problem = "quadratics(d=20, lam=0.1)"
workers = 4
rounds = 40
seeds = [0, 1]
[[method]]
method = "gd"
tune = [0, 1]
[[method]]
method = "diana(randk(k=2))"
"""


def test_an_array_collects_itself(slurm, tmp_path):
    """Two tasks, each with a share of the methods and seeds: the rows of one process, table and figure."""
    (tmp_path / "suite.toml").write_text(SUITE)
    text = (JOBS / "array.sh").read_text().replace("suite=jobs/demo.toml", "suite=suite.toml")
    (tmp_path / "array.sh").write_text(text.replace("--array=1-4 --ntasks=4", "--array=1-2 --ntasks=1"))
    job = slurm.submit(tmp_path, "array.sh")
    slurm.wait_for_jobs()
    printed = [(tmp_path / f"array-{job}_{task}.out").read_text() for task in (1, 2)]
    assert any("figure.png, " in text and "table.md" in text for text in printed), printed
    done = mpicomp("compare", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "alone"))
    assert done.returncode == 0, done.stderr
    rows = [
        [{**row, "seconds": ""} for row in csv.DictReader((out / "rows.csv").read_text().splitlines())]
        for out in (tmp_path / "runs/suite", tmp_path / "alone")
    ]
    assert rows[0] == rows[1]
    assert "seconds" in rows[0][0]
    assert {"table.md", "figure.png"} <= {path.name for path in (tmp_path / "runs/suite").iterdir()}
