"""Hosts of network namespaces: runs really cross their links, at their speed, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.lab.bench.hosts import Hosts, Traffic, why_not
from mpicomp.runtime.run import run
from mpicomp.text.config import parse_method, parse_problem
from tests.support.launching import LIMIT, mpicomp

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

# Below 2^14 coordinates, in few rounds, no compiled kernels have to be loaded, by every rank of every job.
PROBLEM, METHOD = "quadratics(d=16000, lam=0.1)", "ef21(topk(k=0.3), gamma=0.05)"
RATE = 2e7


def mpicomp_on(hosts: Hosts, *arguments: str, ranks_per_host: int = 1) -> dict:
    """The outcome of ``mpicomp`` with these arguments across the hosts."""
    command = [*hosts.mpirun(ranks_per_host), sys.executable, "-m", "mpicomp", *arguments, "--json"]
    done = subprocess.run(command, env=hosts.environment(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_on(hosts: Hosts, rounds: int, **options: int) -> dict:
    arguments = ("--problem", PROBLEM, "--method", METHOD, "--workers", "4", "--rounds", str(rounds))
    return mpicomp_on(hosts, "run", *arguments, "--every", str(rounds), **options)


def processes_of(lab: int) -> list[int]:
    """All processes in the PID namespace that process ``lab`` has made for its children."""
    namespace = os.readlink(f"/proc/{lab}/ns/pid_for_children")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns" / "pid") == namespace:
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_a_run_across_hosts_is_the_run_in_one_process():
    """The same iterates; and what the links have carried is the payload, and headers for it."""
    rounds = 10
    method, problem = parse_method(METHOD), parse_problem(PROBLEM)
    alone = run(method, problem, workers=4, rounds=rounds, every=rounds)
    with Hosts(4, rate=RATE) as hosts:
        before = hosts.traffic()
        across = run_on(hosts, rounds)
        crossed = [now - then for now, then in zip(hosts.traffic(), before, strict=True)]
    assert across["iterates_sha256"] == alone.iterates_sha256
    up = alone.ledger.up[1:]  # worker 0 shares the server's host
    for host, payload in zip(crossed[1:], up, strict=True):
        assert host.sent > payload
        assert host.received > alone.ledger.down[0]
    assert crossed[0].received > up.sum()
    for host in crossed:
        assert host.sent > 54 * host.frames_sent and host.received > 54 * host.frames_received


def test_where_every_rank_serves_a_run_across_hosts_is_the_run_in_one_process():
    """Blocks of 80 KB: they travel whole to the other rank on a host, and in two pieces to other hosts."""
    problem, method = "quadratics(d=80000, lam=0.1)", "gd(gamma=0.05)"
    alone = run(
        parse_method(method), parse_problem(problem), workers=4, rounds=2, every=2, server="sharded", blocks=4
    )
    arguments = ("--problem", problem, "--method", method, "--workers", "4", "--rounds", "2", "--every", "2")
    with Hosts(2, rate=RATE) as hosts:
        across = mpicomp_on(hosts, "run", *arguments, "--server", "sharded", ranks_per_host=2)
    assert across["ranks"] == 4
    assert across["iterates_sha256"] == alone.iterates_sha256


def test_the_links_are_as_slow_as_they_say():
    """No time is asserted but what physics asks: the bytes into one host, at its link's rate."""
    with Hosts(2, rate=RATE) as hosts:
        across = run_on(hosts, 10)
    payload = sum(across["mpi_bytes_sent"][1:])
    assert payload > 10**5
    assert across["seconds"] >= 0.8 * 8 * payload / RATE


def test_a_delay_is_that_of_every_message():
    """A round is a journey up and one down."""
    rounds, delay = 5, 0.02
    with Hosts(2, rate=RATE, delay=delay) as hosts:
        across = run_on(hosts, rounds)
    assert across["seconds"] >= rounds * 2 * delay


def test_several_ranks_a_host_in_order():
    with Hosts(2) as hosts:
        show = "import os; from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.rank, os.uname().nodename)"
        command = [*hosts.mpirun(ranks_per_host=2), sys.executable, "-c", show]
        done = subprocess.run(command, env=hosts.environment(), capture_output=True, text=True, timeout=LIMIT)
    assert sorted(done.stdout.split("\n"))[1:] == ["0 host1", "1 host1", "2 host2", "3 host2"], done.stderr


def test_two_labs_do_not_meet():
    with Hosts(2) as one, Hosts(2) as other:
        quiet = other.traffic()
        run_on(one, 2)
        assert sum(host.sent for host in one.traffic()) > 10**5
        after = other.traffic()
    assert all(now.sent - then.sent < 10**4 for now, then in zip(after, quiet, strict=True))


SUITE = """
title = "Two hosts"
problem = "quadratics(d=16000, lam=0.1)"
workers = 2
rounds = 60
every = 5
target_grad_norm_sq = 10.0
[[method]]
label = "dense"
method = "ef21(identity, gamma=0.5, down=lossless(values=f4))"
[[method]]
label = "TopK"
method = "ef21(topk(k=0.1), gamma=0.5)"
"""


# The share of all bytes that passes the busiest link, in its busier direction.  Of two hosts, worker 0 shares
# the root's; where both serve, each sends half of its message and half of the mean.
@pytest.mark.parametrize(("server", "share"), [("shared", 1 / 2), ("sharded", 1 / 4)])
def test_time_to_accuracy_on_two_rates(tmp_path, server, share):
    """`mpicomp bench link`: the same rounds and bytes at every rate, and never faster than the link."""
    (tmp_path / "suite.toml").write_text(SUITE)
    done = mpicomp(
        *("bench", "link", str(tmp_path / "suite.toml"), "--rate", "1gbit,20mbit"),
        *("--out", str(tmp_path / "out"), "--json", "--server", server),
    )
    assert done.returncode == 0, done.stderr
    *timings, even = [json.loads(line) for line in done.stdout.splitlines()]
    labels = ["dense", "dense, Allreduce", "TopK"]
    assert [(t["rate"], t["label"]) for t in timings] == [(r, label) for r in (2e7, 1e9) for label in labels]
    assert all(t["status"] == "target" and t["grad_norm_sq"] <= 10 for t in timings)
    for slow, fast in zip(timings[:3], timings[3:], strict=True):
        for same in ("rounds", "up_bytes", "down_bytes", "method", "costs"):
            assert slow[same] == fast[same], same
        crossed = (slow["up_bytes"] + slow["down_bytes"]) * (1 / 4 if "Allreduce" in slow["label"] else share)
        assert slow["seconds"] >= 0.8 * 8 * crossed / 2e7
    assert (even["kind"], even["label"]) == ("break-even", "TopK") and even["against"] in labels[:2]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"link.jsonl", "link.md", "link.png"}


def test_a_comparison_without_an_accuracy_is_refused(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE.replace("target_grad_norm_sq", "max_seconds"))
    done = mpicomp("bench", "link", str(tmp_path / "suite.toml"))
    assert done.returncode == 1 and "give the suite a target_grad_norm_sq" in done.stderr


def test_nothing_is_left_when_the_lab_is_left():
    with pytest.raises(ZeroDivisionError), Hosts(2) as hosts:
        lab = hosts._lab.pid
        sleeping = subprocess.Popen(hosts.command(1, "sleep", "1000"))
        while len(processes_of(lab)) < 2:
            time.sleep(0.01)
        members = processes_of(lab)
        raise ZeroDivisionError
    assert sleeping.wait(LIMIT) != 0
    assert not any(Path(f"/proc/{process}").exists() for process in members)
    assert "messages1" not in subprocess.run(["ip", "link"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_its_owner_is_killed(end):
    """Not even a handler runs after SIGKILL: the kernel closes the pipe."""
    code = """
import subprocess, sys
from mpicomp.lab.bench.hosts import Hosts
with Hosts(2, delay=0.001) as hosts:
    subprocess.Popen(hosts.command(1, "sleep", "1000"))
    print(hosts._lab.pid, flush=True)
    sys.stdin.read()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        lab = int(owner.stdout.readline())
        while len(processes_of(lab)) < 3:  # the script's, the relay, and what sleeps
            time.sleep(0.01)
        members = processes_of(lab)
        owner.send_signal(end)
    deadline = time.monotonic() + LIMIT
    while any(Path(f"/proc/{process}").exists() for process in members):
        assert time.monotonic() < deadline, f"still there: {members}"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((1,), "1 hosts; allowed"), ((2, 10.0), "100 kbit/s or more"), ((2, None, -1.0), "delay = -1 seconds")],
)
def test_what_cannot_be_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        Hosts(*arguments)


def test_an_mpi_that_would_not_cross_is_refused(monkeypatch, tmp_path):
    fake = tmp_path / "mpirun"
    fake.write_text("#!/bin/sh\necho HYDRA build details:\n")
    fake.chmod(0o755)
    monkeypatch.setenv("MPICOMP_MPIRUN", str(fake))
    with Hosts(2) as hosts, pytest.raises(ConfigError, match="not Open MPI 5"):
        hosts.mpirun()


def test_traffic_is_a_difference():
    assert astuple(Traffic(5, 6, 7, 8, 9) - Traffic(1, 2, 3, 4, 5)) == (4, 4, 4, 4, 4)
