"""Requests to end, in one process and on ranks: a first one saves a run, a second one insists."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpicomp
from mpicomp.base.errors import DivergedError, Interrupted
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.jobs.launcher import find_launcher
from mpicomp.runtime.signals import stop_on_signals
from mpicomp.transports.local import Local
from tests.support.fault_injection import started
from tests.support.launching import LIMIT, TESTS, finish

RUN = ("run", "--problem", "quadratics(d=40, lam=0.1)", "--method", "gd(gamma=0.1)", "--workers", "4")
ENDLESS = (*RUN, "--rounds", "100000000", "--every", "5")


@pytest.fixture(autouse=True)
def terminal():
    """What a terminal starts heeds SIGHUP, also where these tests are started by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def wait_for(job: subprocess.Popen[str], come) -> None:
    deadline = time.monotonic() + LIMIT
    while not come():
        assert time.monotonic() < deadline and job.poll() is None, "it has not come so far"
        time.sleep(0.01)


def under_way(folder, *options: str) -> subprocess.Popen[str]:
    """`mpicomp run`, with some rows."""
    job = started(*ENDLESS, "--out", str(folder), *options)
    rows = folder / "rows.csv"
    wait_for(job, lambda: rows.exists() and rows.read_bytes().count(b"\n") > 3)
    return job


def expect_saved(job: subprocess.Popen[str], folder) -> None:
    done = finish(job)
    assert done.returncode == 130, done.stderr
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    assert list(folder.glob("checkpoint/round-*/manifest.json"))


# --- a run ---


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_saves_the_run(number, ranks, tmp_path):
    """In one process as on ranks; SIGHUP is what a terminal that closes sends."""
    job = under_way(tmp_path / "run", "--ranks", str(ranks))
    job.send_signal(number)
    expect_saved(job, tmp_path / "run")


@pytest.mark.parametrize("ranks", [1, 2])
def test_two_signals_at_once_are_one_request(ranks, tmp_path):
    """`timeout` sends SIGTERM to its command, and at once to the process group that the command is in."""
    job = under_way(tmp_path / "run", "--ranks", str(ranks))
    job.terminate()
    time.sleep(0.02)  # else the system may make one of them
    job.terminate()
    expect_saved(job, tmp_path / "run")


def test_the_second_of_two_signals_at_once_is_caught_though_the_run_is_saved_by_then(monkeypatch):
    caught, waits = Local(1), []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("mpicomp.runtime.signals.monotonic", lambda: 1.0)
    monkeypatch.setattr("mpicomp.runtime.signals.sleep", wait)
    own: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: own.append(number))
    try:
        with stop_on_signals(caught) as asked:
            asked.begin()
            signal.raise_signal(signal.SIGTERM)
            assert own == []
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.stop and waits == [pytest.approx(0.2)]
    assert own == [signal.SIGTERM]  # both are one request, and the caller's handler hears of it


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_is_to_survive_its_terminal_does(ranks, tmp_path):
    """As `nohup` starts it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        job = under_way(tmp_path / "run", "--ranks", str(ranks))
    finally:
        signal.signal(signal.SIGHUP, before)
    job.send_signal(signal.SIGHUP)
    rows = (tmp_path / "run" / "rows.csv").stat().st_size
    wait_for(job, lambda: (tmp_path / "run" / "rows.csv").stat().st_size > 2 * rows)
    job.terminate()
    expect_saved(job, tmp_path / "run")


HANGING = """
import time
import numpy as np
import mpicomp

class Hanging(mpicomp.Objective):
    def value(self, x):
        return 0.0
    def grad(self, x):
        if x.any():
            print("hangs", flush=True)
            time.sleep(1000)
        return x - 1.0

class Problem(mpicomp.Problem):
    def dimension(self):
        return 3
    def objective(self, i, n):
        return Hanging()

mpicomp.run(mpicomp.GD(gamma=0.1), Problem(), workers=2)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_request_ends_a_gradient_that_hangs(number):
    job = subprocess.Popen(
        [sys.executable, "-c", HANGING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=TESTS.parent,
    )
    assert job.stdout.readline() == "hangs\n"
    job.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(1.0)  # it would end after the round
    job.send_signal(number)
    assert finish(job).returncode == -number


# --- a run in a script ---

SWEEP = """
import sys
import mpicomp

for i, rounds in enumerate((20, 10**7, 20)):
    run = mpicomp.run("gd(gamma=0.1)", "quadratics(d=20)", workers=2, rounds=rounds, out=f"{sys.argv[1]}/{i}")
    print(i, run.status)
"""


@pytest.mark.parametrize(("number", "ranks"), [(signal.SIGTERM, 1), (signal.SIGUSR1, 1), (signal.SIGTERM, 2)])
def test_a_signal_ends_a_script_once_its_run_is_saved(number, ranks, tmp_path):
    """And not the one run of a sweep alone, whose truncated result would be one like any other."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    launcher = find_launcher()
    command = [sys.executable, str(tmp_path / "sweep.py"), str(tmp_path)]
    job = subprocess.Popen(
        launcher.command(ranks, *command) if ranks > 1 else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=TESTS.parent,
        env=launcher.environment() | os.environ,
    )
    rows = tmp_path / "1" / "rows.csv"
    wait_for(job, lambda: rows.exists() and rows.read_bytes().count(b"\n") > 3)
    os.kill(job.pid if ranks == 1 else ranks_of(job.pid)[-1], number)  # of the ranks one, not the launcher
    done = finish(job)
    assert done.returncode == -number if ranks == 1 else done.returncode not in (0, 1)
    least = 1 if launcher.vendor == "mpich" else ranks  # MPICH's mpirun kills the others with the first
    assert least <= done.stdout.splitlines().count("0 rounds") <= ranks  # what it has printed is not lost
    said = f"mpicomp: {number.name} has ended the run, after a whole round, and ends the process now."
    assert done.stderr.count(said) == 1
    assert json.loads((tmp_path / "1" / "summary.json").read_text())["status"] == "interrupted"
    assert list((tmp_path / "1").glob("checkpoint/round-*/manifest.json"))
    assert not (tmp_path / "2").exists()


def ranks_of(mpirun: int) -> list[int]:
    """The ranks that an mpirun has started; MPICH's has a proxy between."""
    return [rank for child in children(mpirun) for rank in children(child) or [child]]


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


SUITE_OF_TWO = """
problem = "quadratics(d=20)"
workers = 2
rounds = 20
seeds = [0, 1]

[[method]]
label = "GD"
method = "gd(gamma=0.1)"
"""


def strike(number: int, at: int):
    """Progress in which the signal comes after that round."""
    return lambda round, row: signal.raise_signal(number) if round == at else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("at", [7, 20])
def test_a_script_s_own_handler_hears_of_the_signal(number, at, tmp_path):
    """Also where the signal comes after the last round, and the run is whole."""

    class Stop(Exception):
        pass

    def stop(number, frame):
        raise Stop(number, json.loads((tmp_path / "summary.json").read_text())["status"])

    before = signal.signal(number, stop)
    try:
        with pytest.raises(Stop) as stopped:
            mpicomp.run(
                "gd(gamma=0.1)",
                "quadratics(d=20)",
                workers=2,
                rounds=20,
                progress=strike(number, at),
                out=tmp_path,
            )
    finally:
        assert signal.signal(number, before) is stop  # the run has put it back
    assert stopped.value.args == (number, "interrupted" if at == 7 else "rounds")


def test_a_run_whose_signal_the_script_heeds_and_outlives_says_interrupted():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        run = mpicomp.run(
            "gd(gamma=0.1)", "quadratics(d=20)", workers=2, rounds=20, progress=strike(signal.SIGTERM, 7)
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (run.status, run.rows[-1].round, heard) == ("interrupted", 8, [signal.SIGTERM])


@pytest.mark.parametrize("at", [20, "last row"])
def test_an_interrupt_after_the_last_round_is_not_lost(at, tmp_path):
    """The caller of the next run has to hear of it; the run itself is whole, and its record says so."""
    seen = {
        "callback": lambda round, row, x: signal.raise_signal(signal.SIGINT) if round == 20 else None,
    }
    late = {"progress": strike(signal.SIGINT, 20)} if at == 20 else seen
    run = mpicomp.run("gd(gamma=0.1)", "quadratics(d=20)", workers=2, rounds=20, out=tmp_path, **late)
    assert (run.status, run.rows[-1].round) == ("interrupted", 20)
    assert mpicomp.load(tmp_path).summary["status"] == "rounds"


def test_an_interrupt_after_the_ranks_have_agreed_that_none_came_acts_at_the_run_s_end(monkeypatch):
    monkeypatch.setattr("mpicomp.runtime.run.clear_cached_draws", lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        mpicomp.run("gd(gamma=0.1)", "quadratics(d=20)", workers=2, rounds=20)
    with pytest.raises(DivergedError):  # as on the other ranks, which may not have been asked
        mpicomp.run("gd(gamma=1e8)", "quadratics(d=20)", workers=2, rounds=1000, every=1000)


def test_an_interrupt_at_the_end_of_a_comparison_s_run_ends_the_comparison_which_keeps_that_run(tmp_path):
    suite = parse_suite(SUITE_OF_TWO)
    ended = []

    def interrupt(stage, round, row):
        ended.append(stage.number)
        if round == 20:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        compare(suite, tmp_path, progress=interrupt)
    assert set(ended) == {1}
    ended.clear()
    done = compare(suite, tmp_path, resume=True, progress=lambda stage, round, row: ended.append(round))
    assert ended == [*range(1, 21)]  # of the second run alone
    assert [o.summary["status"] for o in done.outcomes] == ["rounds", "rounds"]


def test_an_interrupt_is_not_lost_in_a_run_that_diverges_before_the_next_round(tmp_path):
    """A tuning tries steps that diverge within milliseconds, and went on with the next of them."""
    seen = []
    far = {"method": "gd(gamma=1e8)", "problem": "quadratics(d=20)", "workers": 2, "every": 1000}
    with pytest.raises(DivergedError):
        mpicomp.run(**far, rounds=1000, progress=lambda round, row: seen.append(round))
    with pytest.raises(Interrupted) as caught:
        mpicomp.run(**far, rounds=1000, progress=strike(signal.SIGINT, seen[-1]))
    assert isinstance(caught.value.__cause__, DivergedError) and len(caught.value.so_far) == 1


# --- no run ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_ends_a_download_that_is_stalled(number, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        mirror = f"http://127.0.0.1:{server.getsockname()[1]}"
        job = started("data", "fetch", "mushrooms", "--from", mirror, MPICOMP_CACHE=str(tmp_path))
        server.settimeout(LIMIT)
        with server.accept()[0]:  # and never answered
            job.send_signal(number)
            assert finish(job).returncode == -number


def test_a_request_ends_a_benchmark():
    job = started("bench", "kernels")
    wait_for(job, lambda: catches(job.pid, signal.SIGUSR1))
    job.terminate()
    assert finish(job).returncode == -signal.SIGTERM


def test_a_request_ends_what_prepares_a_comparison(tmp_path):
    """The command waits for its suite: the file is a pipe into which nobody writes."""
    os.mkfifo(tmp_path / "suite.toml")
    job = started("compare", str(tmp_path / "suite.toml"))
    wait_for(job, lambda: catches(job.pid, signal.SIGUSR1))
    job.terminate()
    assert finish(job).returncode == -signal.SIGTERM


def catches(process: int, number: int) -> bool:
    """Whether the process has a handler for the signal: `mpicomp` has begun."""
    with open(f"/proc/{process}/status") as file:
        (caught,) = [int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")]
    return bool(caught >> (number - 1) & 1)
