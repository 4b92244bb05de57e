"""Times of methods on links, and the speed of a link below which one method takes less time than another."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from mpicomp.lab.bench.break_even import break_even, crossing
from mpicomp.lab.bench.contenders import BY_ALLREDUCE
from mpicomp.lab.bench.cost_model import Costs, model_of


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


def fastest(timings: list[Timing], name: str) -> Timing | None:
    """The fastest timing of the method ``name`` that reaches the target, whichever ranks average it.

    ``name`` is a label, or the name of an uncompressed method in texts: "gd" or "agd".  None if no timing
    reaches the target.
    """
    named = [t for t in timings if t.label in (name, name + BY_ALLREDUCE)]
    named += [t for t in timings if t.plain is None and t.method.startswith(f"{name}(")]
    return min((t for t in named if t.status == "target"), key=lambda t: t.seconds, default=None)


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
