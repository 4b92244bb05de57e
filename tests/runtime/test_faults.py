"""Ranks that fail, die or fall silent, files that are torn, folders that vanish, bytes that flip.

Whatever happens, a run ends, says once why, leaves no process, and can be resumed from its last checkpoint.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import mpicomp
from mpicomp import MARINA, PermK
from mpicomp.base import files
from mpicomp.base.errors import RecordError
from mpicomp.lab.jobs import launch
from mpicomp.lab.jobs.launcher import find_launcher
from mpicomp.problems import Quadratics
from mpicomp.transports.orphan import segments
from tests.support import byte_flips
from tests.support.every_combination import every_pair
from tests.support.fault_injection import METHODS, Strike, check, check_resumed, expect_gone, struck
from tests.support.launching import LIMIT, TESTS, mpirun


def openmpi() -> bool:
    return find_launcher().vendor == "openmpi"


# --- a rank fails or dies ---

STRIKES = [  # the rest of them in tests/cluster/kills.py
    ("data", "raise", 1, "diana"),
    ("gradient", "kill", 2, "marina"),
    ("compress", "exit", 1, "ef21sgdm"),
    ("server", "kill", 0, "ef21"),
    ("replica_step", "leave", 2, "ef21"),
    ("part", "kill", 1, "diana"),
    ("receive", "kill", 2, "marinap"),
]


@pytest.mark.parametrize(("phase", "how", "rank", "method"), STRIKES)
def test_a_struck_rank_ends_the_job_which_can_be_resumed(phase, how, rank, method, tmp_path):
    strike = Strike(METHODS[method], phase, how, rank, round=13)
    check(strike, struck(strike, tmp_path / "run", launched=how == "leave"))  # MPICH's mpirun ends with 0
    check_resumed(strike, tmp_path / "run")


SHARDED_STRIKES = [
    ("gradient", "raise", 1, "marina"),
    ("compress", "kill", 2, "diana"),
    ("server", "kill", 2, "ef21"),  # it serves the last block
    ("server", "raise", 0, "ef21p"),
    ("replica_step", "exit", 1, "ef21"),
    ("part", "kill", 1, "ef21p"),  # with the server's state of its block
]


@pytest.mark.parametrize(("phase", "how", "rank", "method"), SHARDED_STRIKES)
def test_a_struck_rank_of_those_that_all_serve(phase, how, rank, method, tmp_path):
    strike = Strike(METHODS[method], phase, how, rank, round=13, sharded=True)
    check(strike, struck(strike, tmp_path / "run"))
    check_resumed(strike, tmp_path / "run")


# --- a rank falls silent ---


@pytest.mark.parametrize(
    ("phase", "how", "rank", "sharded", "said"),
    [
        ("gradient", "stop", 2, False, r"round 1\d: rank 2 on \S+ has been silent"),
        ("replica_step", "stop", 0, False, r"round 1\d: rank 0 on \S+ has been silent, or computing"),
        ("server", "stop", 1, True, r"round 1\d: rank 1 on \S+ has been silent"),
        ("own_message", "stop", 0, False, r"round 1\d: rank 0 on \S+ has been silent, or computing"),
    ],
)
def test_a_silent_rank_is_named_and_the_job_ended(phase, how, rank, sharded, said, tmp_path):
    """Under `mpicomp launch`, and with nothing left of it: not the stopped rank either."""
    method = METHODS["marinap" if phase == "own_message" else "ef21"]
    strike = Strike(method, phase, how, rank, round=13, sharded=sharded)
    outcome = struck(strike, tmp_path / "run", stall_timeout=3.0, launched=True)
    assert outcome.status == 1, outcome.said
    lines = [line for line in outcome.said.splitlines() if line.startswith("mpicomp: ")]
    assert len(lines) == 1 and re.match(f"mpicomp: {said}", lines[0]), outcome.said
    check_resumed(strike, tmp_path / "run")


def test_a_silent_server_is_reported_by_one_rank():
    """Though the others have waited as long before the job ends."""
    done = mpirun(4, str(TESTS / "mpi" / "stalled.py"), PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0
    assert len(re.findall(r"mpicomp: round 5: rank 0 on \S+ has been silent", done.stderr)) == 1, done.stderr


def test_a_rank_that_has_left_is_missed_at_the_start_of_a_run():
    """It ended in good order, so no launcher minds; the others waited for it for ever."""
    done = mpirun(3, str(TESTS / "mpi" / "faulty.py"), "leave", PYTHONPATH=str(TESTS.parent))
    assert done.returncode != 0
    said = (
        "rank 0 begins another run, Aggregator or Descent, and rank 1 has come to the end of its program: all"
    )
    assert done.stderr.count(said) == 1


@pytest.mark.parametrize("made", ["run", "aggregator"])
def test_a_status_that_is_not_0_ends_the_job_though_others_never_call_again(tmp_path, made):
    """As without mpicomp; the rank waited at its end for the one that waits for its message, for ever."""
    script = tmp_path / "script.py"
    script.write_text(EXITS)
    options = {"PYTHONPATH": str(TESTS.parent)}
    assert mpirun(2, "-m", "mpi4py", str(script), made, **options).returncode == 7
    launch = [sys.executable, "-m", "mpicomp", "launch", "--ranks", "2", str(script), made]
    done = subprocess.run(launch, env=os.environ | options, stdin=subprocess.DEVNULL, timeout=LIMIT)
    assert done.returncode == 7


EXITS = """
import sys
import numpy as np
from mpi4py import MPI
import mpicomp

if sys.argv[1] == "run":
    mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.Quadratics(d=4), workers=2, rounds=2)
else:
    agg = mpicomp.Aggregator(mpicomp.GD(gamma=0.1), like=np.zeros(4))
    agg(np.ones(4))
if MPI.COMM_WORLD.rank == 1:
    sys.exit(7)
MPI.COMM_WORLD.recv(source=1)
"""


# --- the launcher is killed ---


@pytest.fixture
def running(tmp_path):
    """`mpicomp run --ranks 3` with some rows; all its processes have ``tmp_path`` in their command."""
    folder = tmp_path / "run"
    options = ("--rounds", "100000000", "--every", "5", "--checkpoint-every", "5", "--out", str(folder))
    problem = ("--problem", "quadratics(d=40, lam=0.1)", "--method", METHODS["ef21"])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    job = subprocess.Popen(
        [sys.executable, "-m", "mpicomp", "run", *problem, *options, "--ranks", "3"],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + LIMIT
    while len(list(folder.glob("checkpoint/*/manifest.json"))) < 2:
        assert time.monotonic() < deadline and job.poll() is None, "the run recorded nothing"
        time.sleep(0.01)
    yield job
    job.kill()
    job.wait()
    expect_gone(str(tmp_path))


def test_no_rank_outlives_a_killed_command(running, tmp_path):
    running.kill()
    running.wait()
    expect_gone(str(tmp_path))


def test_neither_rank_nor_file_outlives_a_killed_mpirun(running, tmp_path):
    """A folder that mpirun left behind would stop a later mpirun with the same process number."""
    (mpirun_of_it,) = children(running.pid)
    shared = set().union(*map(segments, children(mpirun_of_it)))
    os.kill(mpirun_of_it, signal.SIGKILL)
    assert running.wait(LIMIT) == 128 + signal.SIGKILL
    expect_gone(str(tmp_path))
    if openmpi():
        assert len(shared) == 3 and not any(file.exists() for file in shared)
    assert not list((tmp_path / "temporary").glob("ompi.[0-9]*"))


LAUNCH = """
import sys
from mpicomp.lab.jobs import launch
launch._ENDING, launch._SHARING = 2, 0
sys.exit(launch.launch(2, sys.argv[1:]))
"""


@pytest.mark.skipif(not openmpi(), reason="MPICH removes its files as soon as they are open")
def test_a_mpirun_that_does_not_end_is_killed_and_no_file_of_its_ranks_is_left():
    script = str(TESTS / "mpi" / "leaving.py")
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, script],
        cwd=TESTS.parent,
        env=os.environ | {"PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mpirun has not, for 2 s; it is killed") == 1, done.stderr
    shared = done.stdout.split()
    assert len(shared) == 2 and not any(Path(file).exists() for file in shared)


def test_mpirun_has_longer_to_end_where_ranks_share_cores():
    """Sixty-four of them on two cores took more than ten seconds."""
    cores = os.cpu_count()
    assert launch._patience(cores) < launch._patience(8 * cores) < launch._patience(32 * cores)
    assert launch._patience(32 * cores) > 60


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


# --- a file is torn, a folder vanishes ---


class Killed(BaseException):
    """What no handler of ours catches: the process is gone."""


def run(out, **options):
    method = MARINA(PermK(), gamma=0.1, p=0.3)
    return mpicomp.run(method, Quadratics(d=30, noise=0.3, lam=0.1), workers=4, rounds=40, out=out, **options)


def resumed(folder) -> tuple[int, str]:
    """After which round the run in ``folder`` goes on, and the hash over all its iterates at the end."""
    begun = []
    again = run(folder, resume=True, checkpoint_every=10, progress=lambda k, row: begun.append(k))
    return begun[0] - 1, again.iterates_sha256


def test_a_torn_or_damaged_checkpoint_is_cleared_away(tmp_path):
    """By the first one that is written after it, so that they do not pile up, nor push out a sound one."""
    folder = tmp_path / "run"
    run(folder, checkpoint_every=10)
    (part,) = (folder / "checkpoint" / "round-40").glob("part-0-*.npz")
    torn = folder / "checkpoint" / "round-33"
    torn.mkdir()
    (torn / part.name).write_bytes(part.read_bytes())
    (torn / f".{part.name}.{'0' * 16}.tmp").write_bytes(b"half a part")
    part.write_bytes(b"")
    run(folder, resume=True, checkpoint_every=4)
    assert generations(folder) == [36, 40]


def generations(folder) -> list[int]:
    return sorted(int(place.name[6:]) for place in (folder / "checkpoint").iterdir())


class Torn:
    """A file of which ``keep`` bytes arrive before the process is gone; all of them but no more, if None."""

    def __init__(self, path, mode, keep):
        self.file, self.keep = open(path, mode), keep  # noqa: SIM115 (closed with this one)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, content):
        self.file.write(content[: self.keep])
        self.file.flush()
        raise Killed


def tear(monkeypatch, name, generation, keep):
    """From here on, only ``keep`` bytes of the file ``name`` of the checkpoint ``generation`` are written."""

    def opened(path, mode):
        meant = path.parent.name == f"round-{generation}" and name in path.name
        return Torn(path, mode, keep) if meant else open(path, mode)

    monkeypatch.setattr(files, "open", opened, raising=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing happens to, and the lengths of a checkpoint's files."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = run(folder, checkpoint_every=10)
    lengths = {
        f.name.partition("-")[0]: f.stat().st_size for f in (folder / "checkpoint" / "round-30").iterdir()
    }
    return result.iterates_sha256, lengths


def positions(length: int, count: int) -> list[int]:
    """The first bytes and the last, and some between."""
    return sorted({0, 1, length - 1, length, *random.Random(length).sample(range(length), count)})


@pytest.mark.parametrize("name", ["part", "manifest.json"])
def test_killed_while_a_checkpoint_is_written_the_previous_one_is_used(name, whole, tmp_path, monkeypatch):
    """At the first and last bytes of each file, and others between; after the last, before the rename."""
    for keep in positions(whole[1][name], 12):
        folder = tmp_path / str(keep)
        with monkeypatch.context() as torn, pytest.raises(Killed):
            tear(torn, name, 30, keep)
            run(folder, checkpoint_every=10)
        assert resumed(folder) == (20, whole[0])


@pytest.mark.parametrize("name", ["part", "manifest.json"])
def test_a_checkpoint_cut_off_anywhere_gives_way_to_the_previous_one(name, whole, tmp_path):
    """What a file system may leave of a file after a power cut, though it was renamed into place."""
    folder, sound = tmp_path / "run", tmp_path / "sound"
    run(sound, checkpoint_every=10)
    (path,) = (found.relative_to(sound) for found in sound.glob(f"checkpoint/round-40/{name}*"))
    content = (sound / path).read_bytes()
    for keep in positions(len(content) - 2, 12):  # the manifest's last byte is a newline: nothing is lost
        shutil.copytree(sound, folder)
        (folder / path).write_bytes(content[:keep])
        assert resumed(folder) == (30, whole[0])
        shutil.rmtree(folder)


@pytest.mark.parametrize("checkpoint_every", [5, None])
@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_folder_that_vanishes_ends_the_run(how, checkpoint_every, tmp_path):
    """Where it would go on, a removed table's rows would be lost, and a new folder hold half a record."""
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def vanish(k, row):
        if k == 13:
            shutil.rmtree(folder) if how == "removed" else folder.rename(elsewhere)
            if how == "replaced":
                shutil.copytree(elsewhere, folder)

    with pytest.raises(RecordError, match=r"rows\.csv was removed, moved or replaced"):
        run(folder, every=10, checkpoint_every=checkpoint_every, progress=vanish)
    assert folder.exists() == (how == "replaced")
    if how != "removed" and checkpoint_every:
        assert resumed(elsewhere)[0] == 10


# --- a byte flips ---


def test_a_wrong_byte_is_refused_or_decoded_but_never_a_crash():
    """One byte of one message of every fourth; `python -m tests.support.byte_flips` flips more."""
    draw = random.Random(2)
    seen = Counter(byte_flips.outcome(method, draw) for method in every_pair()[::4])
    assert set(seen) == {"refused", "diverged", "went on"}


@pytest.mark.parametrize(
    ("at", "said"),
    [(0, "round 7: the broadcast, on rank 1: "), (-1, r"the replicas on ranks \[1\] differ from rank 0's")],
)
def test_a_broadcast_that_one_rank_receives_differently_ends_all(at, said):
    done = mpirun(3, str(TESTS / "mpi" / "faulty.py"), f"flip {at}", PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 1
    assert len(re.findall(said, done.stderr)) == 1 and "Traceback" not in done.stderr
