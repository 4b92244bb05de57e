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

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from math import inf
from statistics import median
from typing import Any

from mpicomp.averaging.allreduce import sums
from mpicomp.base.cores import cores
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError
from mpicomp.base.units import human_rate
from mpicomp.compressors import Compressor, Identity, Lossless
from mpicomp.lab.bench.break_even import break_even, crossing
from mpicomp.lab.bench.cost_model import DUPLEX, Costs, Link, latency_of, model_of
from mpicomp.lab.bench.hosts import IN_FRAGMENTS, Hosts, open_mpi
from mpicomp.lab.bench.job import rows_of
from mpicomp.lab.bench.timed_run import costs, timed_run
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.lab.experiment.tuning import check_moves, tune
from mpicomp.methods import Method
from mpicomp.runtime.result import Run
from mpicomp.runtime.run import run
from mpicomp.text.config import to_text

Say = Callable[[str], None]  # shows a progress message
BY_ALLREDUCE = ", Allreduce"  # behind the label


@dataclass(frozen=True)
class Contender:
    """A method to time.

    plain   the label of its uncompressed version, None if it does not compress
    server  one of ``runtime.placement.SERVERS``
    added   True for an uncompressed version of a method of the suite that is not in the suite itself
    """

    label: str
    method: Method
    plain: str | None
    server: str
    added: bool = False


@dataclass(frozen=True)
class Timing:
    """A method at one rate: medians over the seeds.

    ``seconds`` is the time of the rounds up to the one after which the target is reached; ``predicted`` is
    the time that the cost model gives for that many rounds.
    Bytes are sums over all workers, from the ledger.
    """

    rate: float  # bits a second, each way
    latency: float  # seconds that the links add, one way
    label: str
    method: str
    plain: str | None
    server: str
    workers: int
    d: int
    status: str  # "target" if the runs reached it, else the status of a run that missed it
    rounds: int
    up_bytes: int
    down_bytes: int
    grad_norm_sq: float
    seconds: float
    predicted: float
    alpha: float  # seconds of an empty message between the hosts, measured after the run
    sharing: float  # hosts for each core of this machine, at least 1
    costs: Costs


@dataclass(frozen=True)
class BreakEven:
    """The rate, in bits a second, below which method ``label`` takes less time than ``against``.

    The measured rate lies between ``low`` and ``high``.  They are equal where the measured times cross.
    Otherwise they are 0 and the slowest rate, or the fastest rate and infinity.  ``predicted`` is the cost
    model's rate: infinite if ``label`` wins at every rate, 0 if it wins at none.
    """

    label: str
    against: str
    workers: int
    d: int
    low: float
    high: float
    predicted: float


def uncompressed(method: Method) -> Method | None:
    """``method`` with dense float32 messages; None if no field of it compresses."""
    held = {f.name: getattr(method, f.name) for f in fields(method)}
    lossless = Identity | Lossless
    lossy = {k: v for k, v in held.items() if isinstance(v, Compressor) and not isinstance(v, lossless)}
    if not lossy:
        return None
    plain: dict[str, Any] = dict.fromkeys(lossy, Identity())
    plain |= {name: Lossless("f4") for name, value in held.items() if isinstance(value, Lossless)}
    return replace(method, **plain)


def fastest(timings: list[Timing], name: str) -> Timing | None:
    """The fastest timing of the method ``name`` that reaches the target, whichever ranks average it.

    ``name`` is a label, or the name of an uncompressed method in texts: "gd" or "agd".  None if no timing
    reaches the target.
    """
    named = [t for t in timings if t.label in (name, name + BY_ALLREDUCE)]
    named += [t for t in timings if t.plain is None and t.method.startswith(f"{name}(")]
    return min((t for t in named if t.status == "target"), key=lambda t: t.seconds, default=None)


def contenders(suite: Suite, say: Say, server: str = "sharded") -> list[Contender]:
    """The suite's methods, and for each one that compresses the same method with dense float32 messages.

    Each is averaged as ``server`` says.  Methods that the suite asks to tune are tuned in this process, and
    averaged so too: TopK acts on each block, for which the best step may be another one.  A method without
    compression is also timed with MPI_Allreduce, if that can sum its messages.
    """
    methods = {entry.label: _tuned(suite, entry, say, server) for entry in suite.entries}
    added: list[Contender] = []
    for label, method in list(methods.items()):
        plain = uncompressed(method)
        if plain is None:
            added += _dense(label, method, server)
            continue
        known = next((name for name, other in methods.items() if other == plain), None)
        if known is None:
            known = f"{label}, uncompressed"
            methods[known] = plain
            added += (replace(c, added=True) for c in _dense(known, plain, server))
        added.append(Contender(label, method, known, server))
    return added


def _dense(label: str, method: Method, server: str) -> Iterator[Contender]:
    """A method that does not compress, by the server and by MPI_Allreduce, if that can sum its messages."""
    yield Contender(label, method, None, server)
    if sums(method):
        yield Contender(f"{label}{BY_ALLREDUCE}", method, None, "allreduce")


def _tuned(suite: Suite, entry: Entry, say: Say, server: str) -> Method:
    if entry.tune is None:
        return entry.method

    def attempt(method: Method, seed: int, max_bytes: int | None) -> Run:
        say(f"tuning {entry.label}: step {method.step}")
        options = suite.options() | {"max_bytes": max_bytes, "server": server}
        done = run(method, suite.problem, seed=seed, **options)
        if done.status == "interrupted":
            raise KeyboardInterrupt
        return done

    tuning = tune(entry.method, entry.tune, suite.seeds_to_tune, attempt, suite.limits)
    return entry.method.with_step(tuning.best.gamma)


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


def break_evens(timings: list[Timing]) -> list[BreakEven]:
    """Compare each compressing method with its uncompressed version, GD and AGD, if both reach the target.

    At each rate the uncompressed methods have their fastest time there, with or without MPI_Allreduce.
    """
    rates = sorted({t.rate for t in timings})
    at = [[t for t in timings if t.rate == rate] for rate in rates]
    found = []
    for label, plain in ((t.label, t.plain) for t in at[0] if t.plain is not None):
        for name in dict.fromkeys((plain, "gd", "agd")):
            own = [fastest(group, label) for group in at]
            other = [fastest(group, name) for group in at]
            if None not in own and None not in other:
                found.append(_break_even(own, other))
    return found


def _break_even(own: list[Any], other: list[Any]) -> BreakEven:
    """``own`` and ``other`` have a ``Timing`` for each rate; the model takes the servers of the first."""
    first, against = own[0], other[0]
    low, high = crossing([t.rate for t in own], [t.seconds for t in own], [t.seconds for t in other])
    predicted = break_even(
        (first.rounds, first.costs),
        (against.rounds, against.costs),
        latency=median(t.alpha for t in own + other),
        workers=first.workers,
        sharing=first.sharing,
        models=(model_of(first.server), model_of(against.server)),
    )
    return BreakEven(first.label, against.label, first.workers, first.d, low, high, predicted)
