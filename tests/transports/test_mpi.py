"""Real ranks, started by mpirun: the same bits and bytes as in one process, and no hang."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from mpicomp.runtime.rows import read_rows
from mpicomp.transports.base import AHEAD
from tests.support.launching import LIMIT, TESTS, finish, mpicomp, mpirun, no_counter, start

QUADRATIC = ("--problem", "quadratics(d=40, lam=0.1)", "--workers", "8")
EF21 = ("--method", "ef21(topk(k=4), gamma=0.05)")


binds = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="macOS binds no process to a core")


@cache
def alone(how):
    """All methods in one process, without a launcher: the Local transport."""
    command = [sys.executable, "-m", "tests.support.every_combination", how]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TWO_PLACEMENTS = [(4, "observed"), (5, "sharded-4 trees chunked observed")]
OTHER_PLACEMENTS = [
    (1, "plain"),
    (2, "plain"),
    (3, "plain"),
    (8, "plain"),
    (3, "dedicated"),
    (3, "chunked observed"),
    pytest.param(2, "crowded", marks=binds),
    (2, "sharded-4"),
    (3, "sharded-4"),
    (4, "sharded-7 apart observed"),
    (8, "sharded-7"),
    (2, "sharded-7 chunked observed"),
    (5, "sharded-4 trees apart"),
    (8, "sharded-7 trees observed"),
]


@pytest.mark.parametrize(("ranks", "how"), TWO_PLACEMENTS + OTHER_PLACEMENTS)
def test_every_method_and_compressor_gives_the_same_bits_and_bytes(ranks, how):
    """Design rules 4 and 6: iterates (by SHA-256) and byte totals depend neither on placement nor on
    chunking nor on how ranks wait, and each run's ledger is, byte for byte, what the MPI library counted.
    Where every rank serves its share, they depend on the number of blocks alone."""
    check_the_same(ranks, how)


@pytest.mark.parametrize(("ranks", "how"), TWO_PLACEMENTS)
def test_every_pair_of_them_gives_the_same_bits_and_bytes(ranks, how):
    check_the_same(ranks, f"{how} every")


@pytest.mark.parametrize(("ranks", "how"), OTHER_PLACEMENTS)
def test_every_pair_of_them_is_the_same_at_every_placement(ranks, how):
    """A placement cannot know the compressor that made the bytes, so `make test-all` alone has these."""
    check_the_same(ranks, f"{how} every")


def check_the_same(ranks, how):
    if "observed" in how and (missing := no_counter()):
        pytest.skip(missing)
    done = mpirun(ranks, str(TESTS / "support" / "every_combination.py"), how, PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    words = re.findall(r"sharded-\d+|every", how)
    assert json.loads(done.stdout) == alone(" ".join(words) or "plain")


def test_a_stop_and_an_error_go_through_trees():
    """Some ranks pass broadcasts on, but none where a rank has neither workers nor blocks."""
    done = mpirun(8, str(TESTS / "mpi" / "in_trees.py"), PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert any(seen["passes_on"]) and not any(seen["with idle ranks"])
    assert seen["stop"] == [["interrupted", 7], *[["interrupted", None]] * 7]
    assert seen["after it"] == ["rounds"] * 8
    assert len(set(seen["nan"])) == 1 and "round 6: worker 7: the gradient is not finite" in seen["nan"][0]


def test_more_ranks_than_workers_is_fine():
    """Ranks without a worker follow along."""
    few = (
        "run",
        "--problem",
        "quadratics(d=40, lam=0.1)",
        "--workers",
        "2",
        *EF21,
        "--rounds",
        "10",
        "--json",
    )
    alone, many = mpicomp(*few), mpicomp(*few, "--ranks", "5")
    a, b = (json.loads(done.stdout.splitlines()[-1]) for done in (alone, many))
    assert a["iterates_sha256"] == b["iterates_sha256"]


def test_the_command_starts_ranks_itself_or_finds_itself_on_them():
    """`mpicomp run --ranks 3`, `mpirun -n 3 mpicomp run` and one process agree."""
    arguments = ("run", *QUADRATIC, *EF21, "--rounds", "30", "--json")
    answers = [
        mpicomp(*arguments),
        mpicomp(*arguments, "--ranks", "3"),
        mpirun(3, "-m", "mpicomp", *arguments),
    ]
    outcomes = [json.loads(a.stdout.splitlines()[-1]) for a in answers]
    assert [o["ranks"] for o in outcomes] == [1, 3, 3]
    for field in (
        "iterates_sha256",
        "up_bytes",
        "down_bytes",
        "f",
        "grad_norm_sq",
        "paper_bits_up",
        "paper_bits_down",
    ):
        assert len({o[field] for o in outcomes}) == 1, field


def test_bytes_handed_to_mpi_are_the_ledgers():
    """On 8 ranks worker i is rank i: each rank but the server sends what the ledger says of its worker."""
    done = mpicomp("run", *QUADRATIC, *EF21, "--rounds", "20", "--ranks", "8", "--json")
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["mpi_bytes_sent"][1:] == outcome["up_bytes_by_worker"][1:]
    assert outcome["mpi_bytes_sent"][0] * 8 == outcome["down_bytes"] * 7  # seven receivers, eight workers


def test_the_server_holds_few_messages_at_a_time():
    """O(d), not O(n d): however many workers send 200 KB, one message and those asked for ahead of it."""
    done = mpirun(2, str(TESTS / "mpi" / "peak.py"), PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)
    # Buffers are an eighth longer than asked for, observations have messages of 400 KB, and 8 are kept.  How
    # many are on their way at once is a matter of time, with 64 workers as with 256: one bound for both.
    assert max(peaks) < peaks[0] + 9 / 8 * (AHEAD + 10 * 400_000)


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_unexpected_exception_ends_the_job_with_its_traceback(ranks):
    done = mpirun(ranks, str(TESTS / "mpi" / "faulty.py"), "raise", PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: worker 5 in its round 7") == 1


def test_a_gradient_that_is_not_finite_is_reported_once_with_worker_and_round():
    done = mpirun(4, str(TESTS / "mpi" / "faulty.py"), "nan", PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0
    assert done.stderr.count("round 7: worker 5: the gradient is not finite") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("observe", "worker 5 has no value here"),
        ("shard", "worker 5 has no data"),
        ("crash", "ZeroDivisionError: worker 5 has no value here"),
    ],
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_what_fails_on_one_rank_ends_all(ranks, fault, text):
    """At the start and in an observation, as in a round."""
    done = mpirun(ranks, str(TESTS / "mpi" / "faulty.py"), fault, PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0
    assert done.stderr.count(text) == 1 if fault != "crash" or ranks > 1 else text in done.stderr


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize(("fault", "text"), [("short", "truncated"), ("long", "too long")])
def test_a_message_of_the_wrong_length_is_refused_once_and_every_rank_ends(ranks, fault, text):
    done = mpirun(ranks, str(TESTS / "mpi" / "faulty.py"), fault, PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 1
    assert done.stderr.count("round 7: worker 5: TopK") == done.stderr.count(f"message {text}") == 1
    assert "Traceback" not in done.stderr


def test_a_full_disk_ends_the_run_on_every_rank_and_keeps_the_rows(tmp_path):
    folder = tmp_path / "run"
    done = mpirun(3, str(TESTS / "mpi" / "faulty.py"), f"full {folder}", PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 1
    assert done.stderr.count("cannot write") == 1 and "are kept" in done.stderr
    assert "Traceback" not in done.stderr
    rows = read_rows(folder / "rows.csv")
    assert len(rows) > 2 and [row.round for row in rows] == list(range(0, 10 * len(rows), 10))
    assert f"round {rows[-1].round} are kept" in done.stderr


def test_a_script_that_fails_outside_a_run_ends_the_job():
    """One rank raises between two runs: the others, waiting for it in the second, do not wait for ever."""
    done = mpirun(3, str(TESTS / "mpi" / "faulty.py"), "after", PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: rank 1 on its own") == 1


def test_the_starting_point_is_the_servers():
    """Ranks whose problem starts them apart would never meet: f(x0) is that of rank 0's zeros."""
    done = mpirun(3, str(TESTS / "mpi" / "faulty.py"), "x0", PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0 and float(done.stdout) == 0.0


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_ends_the_job(rank):
    done = mpirun(3, str(TESTS / "mpi" / "faulty.py"), f"kill {rank}", PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0


def test_a_user_error_is_said_once_and_every_rank_ends():
    done = mpirun(4, "-m", "mpicomp", "run", *QUADRATIC, "--method", "marina(Q=randk(k=41))")
    assert done.returncode != 0
    assert done.stderr.count("k=41 exceeds the dimension d=40") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variables", "remedy"),
    [
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, "the mpirun of that library"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "srun --mpi=pmix"),
    ],
)
def test_ranks_that_each_believe_they_are_alone_are_refused(variables, remedy):
    """A launcher's variables with an MPI that knows of one rank: the wrong mpirun, or srun."""
    done = mpicomp("run", *QUADRATIC, *EF21, **variables)
    assert done.returncode != 0
    assert "each rank believes it is alone" in done.stderr and remedy in done.stderr


def test_a_batch_script_of_slurm_is_no_rank():
    """Slurm tells the script how many tasks the job has, but the script is none of its steps."""
    done = mpicomp("run", *QUADRATIC, *EF21, "--rounds", "5", SLURM_NTASKS="4", SLURM_PROCID="0")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            "shared",
            "4 ranks for 2 workers: 2 without a worker, which compute nothing. "
            "Use --ranks 2, or --workers 4 or more.",
        ),
        (
            "dedicated",
            "4 ranks for 2 workers: 1 without a worker, which compute nothing. "
            "Use --ranks 3, or --workers 3 or more.",
        ),
    ],
)
def test_ranks_without_a_worker_are_mentioned_once(server, said):
    run = ("run", "--problem", "quadratics(d=10)", "--method", "gd(gamma=0.1)", "--rounds", "3")
    done = mpirun(4, "-m", "mpicomp", *run, "--workers", "2", "--server", server)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line] == [f"mpicomp: {said}"]


def test_tables_under_mpirun_are_plain_and_whole(tmp_path):
    """mpirun's output is a pipe here, and yet rank 0 has a terminal of 80 columns; no variable says so."""
    suite = 'problem = "quadratics(d=20)"\nworkers = 2\nrounds = 3\n[[method]]\nmethod = "gd(gamma=0.1)"\n'
    (tmp_path / "suite.toml").write_text(suite)
    options = str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out")
    done = mpirun(2, "-m", "mpicomp", "compare", *options, COLUMNS="")
    assert "gd(gamma=0.1)" in done.stdout and "…" not in done.stdout and "\x1b" not in done.stdout


def _long_job(folder):
    """`mpicomp run --ranks 2`, under way and far from its end."""
    arguments = ("run", *QUADRATIC, *EF21, "--rounds", "1000000", "--ranks", "2", "--out", str(folder))
    job = subprocess.Popen(
        [sys.executable, "-m", "mpicomp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_rows(folder / "rows.csv", 4)
    return job


def _wait_for_rows(path, rows: int) -> None:
    deadline = time.monotonic() + LIMIT
    while not path.exists() or len(path.read_text().splitlines()) < rows + 1:
        assert time.monotonic() < deadline, "the run recorded nothing"
        time.sleep(0.01)


def test_a_signal_ends_the_run_in_good_order_and_it_resumes_on_other_ranks(tmp_path):
    """Interrupted at some round on 3 ranks and resumed on 2: the iterates of a run left alone."""
    arguments = ("run", *QUADRATIC, "--method", "marina(randk(k=4), gamma=0.01)", "--json")
    rounds = ("--rounds", "1000000", "--every", "5")
    job = start(3, "-m", "mpicomp", *arguments, *rounds, "--out", str(tmp_path / "run"))
    _wait_for_rows(tmp_path / "run" / "rows.csv", 4)
    job.send_signal(signal.SIGUSR1)  # mpirun passes it on to the ranks
    stopped = finish(job)
    outcome = json.loads(stopped.stdout.splitlines()[-1])
    assert outcome["status"] == "interrupted"
    rounds = ("--rounds", str(outcome["rounds"] + 30), "--every", "5")
    resumed = mpirun(2, "-m", "mpicomp", *arguments, *rounds, "--out", str(tmp_path / "run"), "--resume")
    whole = mpicomp(*arguments, *rounds)
    a, b = (json.loads(done.stdout.splitlines()[-1]) for done in (resumed, whole))
    for field in ("iterates_sha256", "up_bytes", "down_bytes", "rounds", "grad_norm_sq"):
        assert a[field] == b[field], field


def test_control_c_reaches_ranks_that_the_command_started(tmp_path):
    """Ctrl-C on `mpicomp run --ranks 2`: exit status 130, a summary, and every row kept."""
    job = _long_job(tmp_path / "run")
    job.send_signal(signal.SIGINT)
    done = finish(job)
    assert done.returncode == 130, done.stderr
    assert done.stderr == ""
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_ending_the_command_ends_its_ranks(tmp_path):
    """`timeout` and batch systems send SIGTERM to the command, not to mpirun: no rank is left behind."""
    job = _long_job(tmp_path / "run")
    job.terminate()
    assert finish(job).returncode == 130
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_a_batch_system_may_ask_every_process_to_end(tmp_path):
    """The command, mpirun and the ranks, all at once: the state is saved, and the status says so."""
    job = _long_job(tmp_path / "run")
    everyone = _family(job.pid)
    assert len(everyone) >= 4
    for pid in everyone:
        os.kill(pid, signal.SIGTERM)
    done = finish(job)
    assert done.returncode == 130, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


SUITE = """
problem = "quadratics(d=20, lam=0.1)"
workers = 4
rounds = 40
seeds = [0, 1]
[[method]]
method = "gd"
tune = [0, 1]
[[method]]
method = "ef21(topk(k=2), gamma=1e6)"
"""


def test_a_comparison_on_ranks(tmp_path):
    """The rows of one process, a diverged method told in the table, and a resume that runs nothing again."""
    (tmp_path / "suite.toml").write_text(SUITE)
    command = ("compare", str(tmp_path / "suite.toml"), "--out")
    alone, ranks = tmp_path / "alone", tmp_path / "ranks"
    assert mpicomp(*command, str(alone)).returncode == 0
    done = mpicomp(*command, str(ranks), "--ranks", "2")
    assert done.returncode == 0 and "diverged" in done.stdout, done.stderr
    tables = [(out / "rows.csv").read_text().splitlines() for out in (alone, ranks)]
    assert tables[0][0].endswith(",seconds,x_norm")
    rows = [[line.rsplit(",", 2)[::2] for line in table] for table in tables]  # all but the seconds
    assert rows[0] == rows[1]
    again = mpicomp(*command, str(ranks), "--ranks", "2", "--resume")
    assert again.stdout == done.stdout


def test_a_comparison_that_is_asked_to_stop_says_how_to_go_on(tmp_path):
    """Exit status 130, as for a run; --resume-or-start then does the rest."""
    long = SUITE.replace("tune = [0, 1]\n", "").replace("rounds = 40", "rounds = 800")
    (tmp_path / "suite.toml").write_text(long)
    command = ("compare", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--resume-or-start")
    job = start(2, "-m", "mpicomp", *command)
    _wait_for_rows(tmp_path / "out" / "runs" / "gd" / "seed-0" / "rows.csv", 2)
    job.send_signal(signal.SIGUSR1)
    stopped = finish(job)
    assert stopped.returncode == 130
    assert stopped.stderr.count("--resume continues") == 1 and "Traceback" not in stopped.stderr
    done = mpicomp(*command, "--ranks", "2")
    assert done.returncode == 0 and "diverged" in done.stdout, done.stderr


def test_a_damaged_comparison_is_refused_on_all_ranks(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)
    command = ("compare", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--ranks", "2")
    assert mpicomp(*command).returncode == 0
    (tmp_path / "out" / "runs" / "gd" / "tuning.json").write_text('{"gd": {}}')
    done = mpicomp(*command, "--resume")
    assert done.returncode == 1
    assert done.stderr.count("tuning.json is damaged") == 1
