"""Time to accuracy on links of several speeds, and the speed below which compression wins.

Each method of a suite first runs in this process.  That gives the number of rounds, the sizes of the
messages, and the time to make and to decode them.  Then it runs as many rounds at every rate on hosts joined
by links of that rate; the iterates must be bitwise equal.  There it is observed at the end alone: after an
observation the ranks go on some delays apart, and the next round would be charged for that.  A method that
compresses is also run uncompressed: with ``Identity`` in place of its compressors, float32 in both
directions, and the same step size.  Every rank serves its share, or the root does.  A method that sends whole
vectors is also run by MPI_Allreduce, whose sums, and so the last bits of iterates, depend on the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from math import inf
from statistics import median
from typing import Any

from mpicomp.base.cores import cores
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError
from mpicomp.base.units import human_rate
from mpicomp.lab.bench.contenders import Contender, Say, contenders
from mpicomp.lab.bench.cost_model import DUPLEX, Costs, Link, latency_of, model_of
from mpicomp.lab.bench.hosts import IN_FRAGMENTS, Hosts, open_mpi
from mpicomp.lab.bench.job import rows_of
from mpicomp.lab.bench.timed_run import costs, timed_run
from mpicomp.lab.bench.timings import Timing
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.tuning import check_moves
from mpicomp.runtime.result import Run
from mpicomp.text.config import to_text


def time_on_links(
    suite: Suite, rates: list[float], latency: float, say: Say, server: str = "sharded"
) -> Iterator[Timing]:
    """Yield the timings, rate by rate.  ``rates`` are in bits a second, ``latency`` in seconds.

    Raises ``ConfigError`` if the suite has no target or the machine cannot make hosts, and ``MpicompError``
    if a run across the hosts fails, does not use the links, or has other iterates than the run in this
    process.
    """
    if suite.target is None:
        raise ConfigError("time to accuracy needs an accuracy: give the suite a target_grad_norm_sq.")
    if suite.x0 is not None:
        raise ConfigError("runs on links start where the problem says: leave x0 out of the suite.")
    n, ends = suite.workers, replace(suite.limits, max_seconds=None, hold=0.0)  # they vary with the machine
    suite = replace(suite, limits=ends)
    Hosts(n, min(rates), latency)  # raises now, not after minutes, if hosts cannot be made
    open_mpi()
    runners = runs_alone(suite, contenders(suite, say, server), say)
    for rate in sorted(rates):
        with Hosts(n, rate, latency) as hosts:
            for c, known in runners:
                say(f"{c.label}: {human_rate(rate)}")
                pairs = [
                    (alone, _across(hosts, suite, c, seed, alone.rows[-1].round))
                    for seed, alone in known.items()
                ]
                yield _timing(hosts, c, pairs)


def runs_alone(suite: Suite, runners: list[Contender], say: Say) -> list[tuple[Contender, dict[int, Run]]]:
    """Each of ``runners`` with its runs in this process, by seed.

    An uncompressed version that diverges with the step of the compressed one is left out.  Raises
    ``DivergedError`` if a method of the suite diverges, and ``ConfigError`` if a run ends at its start.
    """
    found = []
    for c in runners:
        say(f"{c.label}: rounds and costs, in one process")
        known: dict[int, Run] = {}
        options = suite.options() | {"server": c.server}
        try:
            for seed in suite.seeds:
                known[seed] = timed_run(c.method, suite.problem, seed=seed, **options)
                check_moves(known[seed], seed, f"{c.label} is not timed")
        except DivergedError as error:
            if not c.added:
                raise DivergedError(f"{c.label}: {error}") from None
            say(f"{c.label}: diverged, and is left out")
        else:
            found.append((c, known))
    return found


def _across(hosts: Hosts, suite: Suite, c: Contender, seed: int, rounds: int) -> dict[str, Any]:
    """The summary of a run on the hosts, one rank a host.  Raises ``MpicompError``."""
    asked: dict[str, Any] = {"method": to_text(c.method), "problem": to_text(suite.problem)}
    asked |= {"workers": suite.workers, "rounds": rounds, "every": rounds, "seed": seed, "server": c.server}
    before = sum(link.received for link in hosts.traffic())
    (summary,) = rows_of("timed_run", asked, hosts.n, hosts, f"{c.label}: across the hosts it")
    received = sum(link.received for link in hosts.traffic()) - before
    if received < sum(summary["mpi_bytes_sent"]):
        raise MpicompError(f"{c.label}: the messages did not go over the links between the hosts.")
    return summary


def _timing(hosts: Hosts, c: Contender, pairs: list[tuple[Run, dict[str, Any]]]) -> Timing:
    for alone, across in pairs:
        if c.server != "allreduce" and across["iterates_sha256"] != alone.iterates_sha256:
            raise MpicompError(f"{c.label}: across the hosts the iterates are not those of one process.")
    last = [alone.rows[-1] for alone, _ in pairs]
    rate, share = hosts.rate or inf, max(1.0, hosts.n / len(cores()))
    alpha = latency_of(median(across["empty_round_seconds"] for _, across in pairs), hosts.n)
    typical = Costs(
        *(median(values) for values in zip(*(astuple(costs(alone)) for alone, _ in pairs), strict=True))
    )
    rounds = round(median(across["rounds"] for _, across in pairs))
    return Timing(
        rate=rate,
        latency=hosts.delay,
        label=c.label,
        method=to_text(c.method),
        plain=c.plain,
        server=c.server,
        workers=hosts.n,
        d=pairs[0][0].x.size,
        status=next((alone.status for alone, _ in pairs if alone.status != "target"), "target"),
        rounds=rounds,
        up_bytes=round(median(row.up_bytes for row in last)),
        down_bytes=round(median(row.down_bytes for row in last)),
        grad_norm_sq=median(row.grad_norm_sq or 0.0 for row in last),
        seconds=median(across["seconds"] for _, across in pairs),
        predicted=rounds * model_of(c.server).time(typical, between_hosts(rate, alpha), hosts.n, share).total,
        alpha=alpha,
        sharing=share,
        costs=typical,
    )


def between_hosts(rate: float, latency: float) -> Link:
    """The model of a link between ``Hosts``."""
    return Link(rate, latency, duplex=1.0 if rate <= IN_FRAGMENTS else DUPLEX)
