"""Links that are cut, disks that fill up or turn read-only, and silence where a round is not under way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpicomp
from mpicomp import MARINA, PermK
from mpicomp.base.errors import RecordError
from mpicomp.lab.bench.hosts import AGENT, CONTROL, MESSAGES, Hosts, why_not
from mpicomp.problems import Quadratics
from mpicomp.runtime.rows import read_rows
from mpicomp.text.config import parse_method, parse_problem
from tests.support.fault_injection import METHODS, Strike, check_resumed, expect_gone, struck
from tests.support.launching import LIMIT

# --- a rank falls silent, but not in a round ---


@pytest.mark.parametrize(
    ("phase", "how", "rank", "said"),
    [
        ("observe", "hang", 1, r"observation after round 16: rank 1 on \S+ has been computing"),
        ("data", "stop", 1, r"at the start of the run: rank 1 on \S+ has been silent"),
    ],
)
def test_silence_is_noticed_wherever_ranks_wait(phase, how, rank, said, tmp_path):
    strike = Strike(METHODS["ef21"], phase, how, rank, round=13)
    outcome = struck(strike, tmp_path / "run", stall_timeout=2.0)
    assert outcome.status != 0
    assert len(re.findall(f"mpicomp: {said}", outcome.said)) == 1, outcome.said
    check_resumed(strike, tmp_path / "run")


# --- a link is cut ---

PROBLEM = "quadratics(d=20000, lam=0.1)"


def start_across(hosts: Hosts, folder: Path, launched: bool) -> subprocess.Popen:
    """A long run, a rank a host, with rows and checkpoints in ``folder``; by mpirun or `mpicomp run`."""
    arguments = ["-m", "mpicomp", "run", "--problem", PROBLEM, "--method", METHODS["ef21"]]
    arguments += ["--workers", "8", "--rounds", "1000000", "--every", "5", "--checkpoint-every", "5"]
    arguments += ["--out", str(folder), "--stall-timeout", "2"]
    environment = hosts.environment()
    command = [*hosts.mpirun(), sys.executable, *arguments]
    if launched:  # what ``hosts.mpirun`` gives mpirun on its command line
        addresses = folder.with_name("hostfile")
        addresses.write_text("".join(f"{CONTROL}.{i + 1} slots=1\n" for i in range(hosts.n)))
        environment |= {
            "PRTE_MCA_plm_ssh_agent": AGENT,
            "PRTE_MCA_prte_if_include": f"{CONTROL}.0/24",
            "PRTE_MCA_prte_default_hostfile": str(addresses),
            "PRTE_MCA_rmaps_default_mapping_policy": "slot",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_if_include": f"{MESSAGES}.0/24",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        command = hosts.command(None, sys.executable, *arguments, "--ranks", str(hosts.n))
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(
    ("launched", "links", "rank", "named"),
    [
        (False, ["eth0"], 2, "rank 2 on host3 has"),
        (False, ["eth0"], 0, "rank 1 on host2, rank 2 on host3, rank 3 on host4 have"),
        (True, ["eth0", "eth1"], 2, "rank 2 on host3 has"),  # mpirun does not reach that host either
    ],
)
def test_a_cut_link_ends_the_job_and_names_who_is_behind_it(launched, links, rank, named, tmp_path):
    folder = tmp_path / "run"
    with Hosts(4) as hosts:
        job = start_across(hosts, folder, launched)
        try:
            deadline = time.monotonic() + LIMIT
            while len(list(folder.glob("checkpoint/*/manifest.json"))) < 2:
                assert time.monotonic() < deadline and job.poll() is None, job.stderr.read()
                time.sleep(0.01)
            for link in links:
                subprocess.run(hosts.command(rank, "ip", "link", "set", link, "down"), check=True)
            _, said = job.communicate(timeout=LIMIT)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
    assert job.returncode != 0
    assert re.search(rf"mpicomp: .*round \d+: {named} been silent for", said), said
    expect_gone(str(folder))
    method, problem = parse_method(METHODS["ef21"]), parse_problem(PROBLEM)
    rounds = read_rows(folder / "rows.csv")[-1].round + 10
    begun = []
    options = {"workers": 8, "rounds": rounds, "every": 5}
    again = mpicomp.run(
        method, problem, out=folder, resume=True, progress=lambda k, row: begun.append(k), **options
    )
    assert begun[0] > 10
    assert again.iterates_sha256 == mpicomp.run(method, problem, **options).iterates_sha256


# --- the disk fills up, or turns read-only ---


@pytest.fixture
def disk(tmp_path):
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "mpicomp-test", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def run(**options):
    method = MARINA(PermK(), gamma=0.1, p=0.3)
    return mpicomp.run(method, Quadratics(d=2000), workers=4, rounds=60, every=2, **options)


def fill(disk):
    with pytest.raises(OSError), open(disk / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def free(disk):
    (disk / "ballast").unlink()


def protect(disk):
    """The folder of checkpoints only: the kernel refuses to, where a file is open for writing."""
    place = str(disk / "run" / "checkpoint")
    subprocess.run(["mount", "--bind", place, place], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)


def unprotect(disk):
    subprocess.run(["umount", str(disk / "run" / "checkpoint")], check=True)


@pytest.mark.parametrize(
    ("harm", "repair", "checkpoint_every", "said"),
    [
        (fill, free, 10, "No space left on device"),
        (fill, free, None, "No space left on device"),
        (protect, unprotect, 10, "Read-only file system"),
    ],
    ids=["full", "full, no checkpoint", "read-only"],
)
def test_a_disk_that_fails_ends_the_run_and_keeps_what_was_recorded(
    harm, repair, checkpoint_every, said, disk
):
    """In round 25; the rows up to there are kept, and repaired it goes on from the last checkpoint."""
    out, begun = disk / "run", []

    def look(k, row):
        if k == 25:
            harm(disk)

    with pytest.raises(RecordError, match=f"cannot write .*{said}"):
        run(out=out, checkpoint_every=checkpoint_every, progress=look)
    kept = [row.round for row in read_rows(out / "rows.csv")]
    assert kept == list(range(0, kept[-1] + 1, 2)) and kept[-1] >= 24
    repair(disk)
    if checkpoint_every:
        again = run(
            out=out,
            resume=True,
            checkpoint_every=checkpoint_every,
            progress=lambda k, row: begun.append(k),
        )
        assert begun[0] - 1 in (20, 30)
        assert again.iterates_sha256 == run().iterates_sha256
