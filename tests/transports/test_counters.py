"""An independent counter: it agrees with an honest ledger, and a dishonest one is found out.

That it agrees for every method and compressor is in test_mpi.py.
"""

from __future__ import annotations

import json
import shutil
import signal
import time

import pytest

from mpicomp.transports.counters import find_library
from tests.support.launching import LIMIT, TESTS, finish, mpicomp, mpirun, no_counter, start

RUN = ("run", "--problem", "quadratics(d=40, lam=0.1)", "--workers", "8", "--verify-bytes")
EF21 = ("--method", "ef21(topk(k=4), gamma=0.05)")


@pytest.fixture(autouse=True)
def _observer_there():
    if missing := no_counter():
        pytest.skip(missing)


def observed(what: str, *arguments: str, ranks: int = 4):
    done = mpirun(ranks, str(TESTS / "mpi" / "observed.py"), what, *arguments, PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    return done


def test_the_command_says_who_counted():
    done = mpicomp(*RUN, *EF21, "--rounds", "20", "--ranks", "4")
    assert done.returncode == 0, done.stderr
    assert "4.43 KB from rank to rank" in done.stdout  # 6 workers send 380 bytes; 716 go to 3 ranks
    assert "agree byte for byte" in done.stdout


def test_with_one_rank_nothing_crosses():
    for ranks in ((), ("--ranks", "1")):
        done = mpicomp(*RUN, *EF21, "--rounds", "20", *ranks)
        assert done.returncode == 0, done.stderr
        assert "nothing: there is one rank" in done.stdout


def test_ranks_started_by_hand_and_a_dedicated_server():
    arguments = (*RUN, *EF21, "--rounds", "20", "--server", "dedicated", "--json")
    done = mpirun(3, "-m", "mpicomp", *arguments)
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["verified_by"] is not None
    assert outcome["mpi_messages_counted"] == [20, 4 * 20, 4 * 20]
    assert outcome["mpi_bytes_counted"] == outcome["mpi_bytes_sent"] == [2 * 716, 4 * 380, 4 * 380]
    assert outcome["wire_bytes_sent"] == {}  # one host


def test_an_interrupted_run_and_what_a_resumed_one_adds_are_verified(tmp_path):
    """The ledger of a resumed run holds totals; what is compared is what was sent since."""
    arguments = (
        *RUN,
        "--method",
        "ppmarina(randk(k=4), r=3, gamma=0.01)",
        "--json",
        "--out",
        str(tmp_path / "run"),
    )
    job = start(3, "-m", "mpicomp", *arguments, "--rounds", "1000000", "--every", "5")
    rows, deadline = tmp_path / "run" / "rows.csv", time.monotonic() + LIMIT
    while not rows.exists() or rows.read_text().count("\n") < 5:
        assert time.monotonic() < deadline, "the run recorded nothing"
        time.sleep(0.01)
    job.send_signal(signal.SIGUSR1)
    stopped = json.loads(finish(job).stdout.splitlines()[-1])
    assert stopped["status"] == "interrupted" and stopped["verified_by"] is not None
    more = ("--rounds", str(stopped["rounds"] + 30), "--every", "5", "--resume")
    done = mpirun(2, "-m", "mpicomp", *arguments, *more)
    assert done.returncode == 0, done.stderr
    resumed = json.loads(done.stdout.splitlines()[-1])
    assert resumed["verified_by"] is not None
    broadcasts, messages = resumed["mpi_messages_counted"]
    assert broadcasts == 30 and messages <= 30 * 4  # rank 1 has 4 workers


@pytest.mark.parametrize(
    ("cheat", "found"),
    [
        ("hidden", "rank 2 to rank 0: 761 bytes sent, 760 in the ledger (+1)"),
        ("shaved", "rank 2 to rank 0: 759 bytes sent, 760 in the ledger (-1)"),
        ("down", "rank 0 to every other rank: 717 bytes sent, 716 in the ledger (+1)"),
        ("elsewhere", "rank 1 to rank 3: 5 bytes sent, 0 in the ledger (+5)"),
    ],
)
def test_a_transport_that_cheats_is_found_out(cheat, found, tmp_path):
    """The rows are kept, but there is no outcome."""
    done = observed(cheat, str(tmp_path / "run"))
    assert done.stdout == ""
    assert (tmp_path / "run" / "rows.csv").exists() and not (tmp_path / "run" / "summary.json").exists()
    assert done.stderr.count(found) == 1
    assert done.stderr.count("bytes sent") == 1  # and nobody else is accused


def test_what_a_run_is_measured_by_is_not_counted():
    assert json.loads(observed("observing").stdout) == [20, 40, 40, 40]


# 1 + 2 + .. + 128 bytes from rank 1 to rank 0 in 8 messages; 100 and 1000 bytes broadcast by rank 0
CALLS = [[[0, 0], [0, 0], 1100, 2, 100, 1], [[255, 0], [8, 0], 0, 0, 100, 1]]


def test_every_way_to_send_is_seen():
    assert json.loads(observed("calls", ranks=2).stdout) == [CALLS]


def test_monitoring_and_shim_see_the_same():
    if not find_library().has_monitoring or not shutil.which("cc"):
        pytest.skip("needs Open MPI 5, which has the monitoring, and a C compiler for the shim")
    assert json.loads(observed("both", ranks=2).stdout) == [CALLS, CALLS]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("late", "ask for it in a script's first run"),
        ("blind", "made with observed=True"),
        ("part", "only in runs on all ranks of the job"),
    ],
)
def test_what_cannot_be_observed_is_refused(what, said):
    """MPI has long been running; a transport that nobody observes; a part of the ranks."""
    assert observed(what).stderr.count(said) == 1
