"""Ctrl-C in a script under ``mpicomp launch``, and what mpirun says when a job ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mpicomp.lab.jobs import stderr
from mpicomp.runtime import interrupts
from tests.support.launching import TESTS, finish


def launched(tmp_path, script: str) -> subprocess.Popen[str]:
    """``mpicomp launch`` of ``script`` on two ranks."""
    (tmp_path / "script.py").write_text(script)
    return subprocess.Popen(
        [sys.executable, "-m", "mpicomp", "launch", "--ranks", "2", "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


LOOP = """
import json, time
import numpy as np
from mpi4py import MPI
from mpicomp import EF21, Aggregator, TopK

rank, x = MPI.COMM_WORLD.rank, np.zeros(50)
agg = Aggregator(EF21(TopK(k=5)), like=x)
try:
    while True:
        x -= 0.1 * agg(x - np.arange(50.0) - rank)
        if rank == 0 and agg.steps == 3:
            print("ready", flush=True)
        time.sleep(0.01 * rank)
except KeyboardInterrupt:
    agg.save("state")
    print(json.dumps([agg.steps, x.tobytes().hex()]), flush=True)
    raise
finally:
    print("finally", flush=True)
"""


def test_all_ranks_are_interrupted_at_the_same_call_and_their_handlers_run(tmp_path):
    """They save together, hold the same x, and the status is that of an interrupt which nobody ends."""
    job = launched(tmp_path, LOOP)
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    done = finish(job)
    assert done.returncode == 130, done.stderr
    lines = done.stdout.split("\n")
    first, second = [json.loads(line) for line in lines if line.startswith("[")]
    assert first == second and first[0] >= 3
    assert lines.count("finally") == 2
    assert [place.name for place in (tmp_path / "state").iterdir()] == [f"round-{first[0]}"]
    assert done.stderr.count("KeyboardInterrupt") == 1
    assert "signal" not in done.stderr.replace("signal.raise_signal(signal.SIGINT)", "")


RUN = """
import mpicomp

try:
    mpicomp.run("gd(gamma=0.1)", "quadratics(d=20)", workers=2, rounds=10**8, every=10**4, out="run")
    print("goes on", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
finally:
    print("finally", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_saved_before_the_script_is_interrupted(number, tmp_path):
    """On all ranks; it is no failure of theirs, after which no handler would run."""
    job = launched(tmp_path, RUN)
    while job.poll() is None and not (tmp_path / "run" / "rows.csv").exists():
        time.sleep(0.05)
    job.send_signal(number)
    done = finish(job)
    assert done.returncode == 130, done.stderr
    assert sorted(done.stdout.split()) == ["finally"] * 2 + ["interrupted"] * 2
    assert done.stderr.count("Traceback") == 1 and "failed" not in done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"
    assert len([*tmp_path.glob("run/checkpoint/round-*/manifest.json")]) == 1


ALONE = """
import time
from mpi4py import MPI

try:
    MPI.COMM_WORLD.Barrier()  # from here on both would catch it
    if MPI.COMM_WORLD.rank == 0:
        print("ready", flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print(f"rank {MPI.COMM_WORLD.rank} ends", flush=True)
"""


def test_without_an_aggregator_each_rank_is_interrupted_where_it_is(tmp_path):
    job = launched(tmp_path, ALONE)
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    done = finish(job)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 ends", "rank 1 ends"] and done.stderr == ""


STUCK = """
import time
from mpi4py import MPI

ready = False
while True:
    try:
        if not ready:
            ready = True
            MPI.COMM_WORLD.Barrier()  # from here on both would catch it
            if MPI.COMM_WORLD.rank == 0:
                print("ready", flush=True)
        time.sleep(1000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_a_second_request_ends_a_script_that_goes_on(tmp_path):
    job = launched(tmp_path, STUCK)
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    assert job.stdout.readline() == job.stdout.readline() == "interrupted\n"
    time.sleep(0.3)  # what comes within 0.2 s is the same request
    job.send_signal(signal.SIGINT)
    done = finish(job)
    assert done.returncode == 130 and done.stderr == ""


@pytest.mark.parametrize(
    ("script", "last"),
    [
        (
            "import numpy as np\nfrom mpicomp import GD, Aggregator\n"
            "Aggregator(GD(), like=np.zeros(3))(np.zeros(4))\n",
            "mpicomp.base.errors.ConfigError: the gradient has the shape (4,) in part 'x'; expected (3,), as "
            "at the start.",
        ),
        (
            "from mpi4py import MPI\n[0][1 - MPI.COMM_WORLD.rank]\nMPI.COMM_WORLD.Barrier()\n",
            "IndexError: list index out of range",
        ),
    ],
    ids=["of all ranks", "of one rank, before an aggregator"],
)
def test_an_error_is_said_once_and_last(script, last, tmp_path):
    done = finish(launched(tmp_path, script))
    lines = done.stderr.split("\n")
    assert done.returncode == 1 and lines[-2:] == [last, ""] and done.stderr.count(last) == 1
    assert lines[0] == "Traceback (most recent call last):" and "script.py" in lines[1]


# --- in one process ---


@pytest.fixture
def sent(monkeypatch):
    """Has SIGUSR1 be an interrupt in this process; what its own handler of SIGINT is called with."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGUSR1)}
    got = []
    signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
    for name, value in (("_open", 0), ("_asked", False), ("_ahead", False)):
        monkeypatch.setattr(interrupts, name, value)
    interrupts.obey()
    yield got
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_handler_of_ones_own_is_called_at_once_where_no_ranks_work_together(sent):
    signal.raise_signal(signal.SIGUSR1)
    assert sent == [signal.SIGINT] and not interrupts.asked()


def test_while_ranks_work_together_an_interrupt_waits_for_their_call(sent):
    interrupts.hold()
    signal.raise_signal(signal.SIGUSR1)
    assert sent == [] and interrupts.asked()
    interrupts.heed()
    assert sent == [signal.SIGINT] and not interrupts.asked()
    signal.raise_signal(signal.SIGUSR1)
    interrupts.let_go()  # no call has come
    assert sent == [signal.SIGINT] * 2


def test_a_signal_that_another_rank_has_told_of_is_heeded_once(sent):
    interrupts.hold()
    interrupts.heed()
    signal.raise_signal(signal.SIGUSR1)  # its own, late
    assert sent == [signal.SIGINT] and not interrupts.asked()
    signal.raise_signal(signal.SIGUSR1)
    assert interrupts.asked()


def test_a_shell_that_ignores_ctrl_c_in_the_background_does_not_hide_it(sent):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.obey()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGUSR1)


ABORT = b"""--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
  Proc: [[38976,1],0]
  Errorcode: 1
--------------------------------------------------------------------------
"""
ENDED = b"""--------------------------------------------------------------------------
prterun has exited due to process rank 0 with PID 0 on node vm calling
"abort". This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).
--------------------------------------------------------------------------
\0"""
HYDRA = (
    b"Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0\n"
)
OWN = b"-" * 74 + b"\nstep  loss\n" + b"-" * 74 + b"\n"


def test_what_mpirun_says_is_left_out_once_a_rank_has_said_it():
    for known, expected in (
        ([True] * 9, b"error\n" + OWN + b"more\nprogress 1\r"),
        ([False] * 9, b"error\n" + OWN + ABORT + b"more\n" + ENDED + b"progress 1\r"),
        ([False, False, *[True] * 9], b"error\n" + OWN + b"more\nprogress 1\r"),
    ):
        for chunks in ([b"error\n", OWN, ABORT + b"more\n", ENDED + b"progress 1\r"],):
            assert copied(chunks, known) == expected, known
    own = b"error\nAbort(3) is mine\n"
    assert copied([own, HYDRA + b"more\n"], [True] * 9) == own + b"more\n"
    assert copied([own, HYDRA + b"more\n"], [False] * 9) == own + HYDRA + b"more\n"


def test_before_the_end_each_byte_passes_at_once():
    """A progress bar has no line ends."""
    source, into = os.pipe()
    out, target = os.pipe()
    os.write(into, b"progress 1\r")
    os.close(into)
    stderr.pass_on(source, target, lambda: False)
    assert os.read(out, 100) == b"progress 1\r"
    for end in (source, out, target):
        os.close(end)


def copied(chunks: list[bytes], known: list[bool]) -> bytes:
    """What ``pass_on`` makes of chunks, each read by itself, if ``known`` is what is known at each."""
    written, reads, answers = [], iter([*chunks, b""]), iter(known)
    patch = pytest.MonkeyPatch()
    patch.setattr(stderr.os, "read", lambda source, most: next(reads))
    patch.setattr(stderr.os, "write", lambda target, text: written.append(text) or len(text))
    try:
        stderr.pass_on(0, 2, lambda: next(answers))
    finally:
        patch.undo()
    return b"".join(written)
