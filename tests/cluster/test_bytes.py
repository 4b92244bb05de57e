"""What crosses the links between hosts exceeds the ledger by no more than headers explain.

A host that sends M messages of P bytes in all to another, and receives M' of P' bytes from it, by TCP on a
network with frames of 1500 bytes, puts on the wire at least P bytes, and at most

    P + 22 M + 66 (S + S'),   S = M + (P + 22 M) / 1448,   S' likewise of M' and P':

Open MPI adds 22 bytes to a message; a frame of at most 1448 bytes of the stream has 66 of headers
(Ethernet 14, IP 20, TCP with time stamps 32); a message begins a frame at most; and what is received
is acknowledged with at most a frame of headers for each that came.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from mpicomp.lab.bench.hosts import Hosts, why_not
from tests.cluster.conftest import ROOT
from tests.support.launching import LIMIT

with_hosts = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

RUN = (
    "run",
    "--problem",
    "quadratics(d=10000, lam=0.1)",
    "--method",
    "artemis(natural, natural, gamma=0.01)",
)
HEADER = 16  # bytes broadcast before each broadcast: length and status


GLOO_STEPS = 200
CONTROL = (
    1200  # bytes a step and rank besides messages: gloo's 48 for each of its operations, lengths, agreement
)


def most(payload: int, messages: int, received: int, messages_received: int) -> float:
    """The formula above."""
    segments = messages + (payload + 22 * messages) / 1448
    acknowledged = messages_received + (received + 22 * messages_received) / 1448
    return payload + 22 * messages + 66 * (segments + acknowledged)


def crossing(hosts: Hosts, rounds: int) -> np.ndarray:
    """A run on two hosts with a worker each.  Gives a row for each count, with a column for each host:

    what the ledger says it sent; bytes of the frames that left its end of the link; bytes that its
    interfaces sent, as the run's summary says (segments that are not yet cut into frames).
    """
    before = hosts.traffic()
    command = [*hosts.mpirun(), sys.executable, "-m", "mpicomp", *RUN, "--workers", "2", "--verify-bytes"]
    command += ["--rounds", str(rounds), "--every", str(rounds), "--json"]
    done = subprocess.run(command, env=hosts.environment(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["verified_by"] == "Open MPI's monitoring"
    assert outcome["mpi_messages_counted"] == [rounds, rounds]
    crossed = [now - then for now, then in zip(hosts.traffic(), before, strict=True)]
    assert not any(host.dropped for host in crossed)
    payload = [outcome["down_bytes"] // 2, outcome["up_bytes_by_worker"][1]]
    wire = outcome["wire_bytes_sent"]
    return np.array([payload, [host.sent for host in crossed], [wire["host1"], wire["host2"]]])


@with_hosts
def test_the_wire_carries_the_payload_and_its_headers():
    """A long run less a short one has the bytes of 200 rounds: both begin and end alike."""
    with Hosts(2) as hosts:
        (down, up), frames, interfaces = (crossing(hosts, 210) - crossing(hosts, 10)).tolist()
    assert min(down, up) > 10**6
    # The server's messages are two a round, since a header is broadcast before each.
    sent_down, sent_up = (down + 200 * HEADER, 400), (up, 200)
    for wire_down, wire_up in (frames, interfaces):
        assert down <= wire_down <= most(*sent_down, *sent_up)
        assert up <= wire_up <= most(*sent_up, *sent_down)


@with_hosts
def test_the_command_says_what_the_wire_carried():
    with Hosts(2) as hosts:
        command = [*hosts.mpirun(), sys.executable, "-m", "mpicomp", *RUN, "--rounds", "3", "--verify-bytes"]
        done = subprocess.run(command, env=hosts.environment(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert "all that 2 hosts sent meanwhile, headers included" in done.stdout


def crossing_by_gloo(hosts: Hosts, steps: int, server: str) -> np.ndarray:
    """A program that torchrun starts on two hosts.  Gives two rows, with a column for each host:

    what the ledger says it sent; bytes of the streams that left it, which are those of its frames less 66
    of headers for each.  The processes meet by the other network.
    """
    before = hosts.traffic()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += ["--master-addr=10.78.0.1", "--master-port=29511"]
    started = [
        subprocess.Popen(
            hosts.command(
                i, *torchrun, f"--node-rank={i}", "-m", "tests.cluster.gloo_job", str(steps), server
            ),
            env=hosts.environment() | {"GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    said, _ = [one.communicate(timeout=LIMIT)[0] for one in started]
    assert not any(one.returncode for one in started)
    crossed = [now - then for now, then in zip(hosts.traffic(), before, strict=True)]
    assert not any(host.dropped for host in crossed)
    return np.array([json.loads(said), [host.sent - 66 * host.frames_sent for host in crossed]])


@with_hosts
@pytest.mark.parametrize("server", ["shared", "sharded"])
def test_gloo_carries_the_payload_of_the_ledger(server):
    """Without MPI nobody else counts messages but the links."""
    pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")
    with Hosts(2) as hosts:
        long, short = (crossing_by_gloo(hosts, steps, server) for steps in (GLOO_STEPS + 10, 10))
    payload, streams = long - short
    assert min(payload) > 4 * 10**6
    assert all(payload <= streams) and all(streams <= payload + CONTROL * GLOO_STEPS), streams - payload


@pytest.mark.skipif(shutil.which("cc") is None, reason="the shim needs a C compiler")
def test_ranks_that_srun_started(slurm, mpich):
    """Without mpirun nothing but the library itself says whose it is; MPICH's bytes the shim counts."""
    command = ("mpicomp", *RUN, "--workers", "4", "--rounds", "3", "--verify-bytes", "--json")
    done = slurm.run("srun", "--mpi=pmi2", "--nodes=2", "--ntasks=2", *command, **mpich)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert outcome["verified_by"] == "a PMPI shim"
    assert outcome["mpi_messages_counted"] == [3, 6]
