"""Choosing a step size: the one asked for times powers of two, the best kept.

Every step size is tried with the same seeds.  Best is the fewest bytes, both directions together, to the
target if there is one and some step size reaches it with all seeds; else the most seeds that reach it, then
the smallest f, the mean over the seeds and over the last tenth of the rounds, in which a stochastic method
moves about.  The gradient's norm does not choose: on a loss that saturates it is small where a run has blown
up.  For the same reason a step size is refused if f ends above f(x⁰) with any seed.

Seeds that choose a step and are reported as well flatter a method whose costs vary much.

Larger steps are tried first.  Once one has reached the target, no other is given more bytes than it took.
While the best step is the largest or the smallest tried, the range grows by one beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from mpicomp.base.errors import DivergedError
from mpicomp.methods import Method
from mpicomp.runtime.record import Row
from mpicomp.runtime.run import Run

GROWTH = 8  # powers of two that a range may grow by at either end
TAIL = 0.1  # the share of the rounds, the last ones, that what is left is averaged over

Attempt = Callable[[Method, int, int | None], Run]  # runs a method with a seed, within so many bytes


@dataclass(frozen=True)
class Trial:
    """What became of one step size, over ``seeds`` runs, ``reached`` of which reached the target.

    Bytes and f are means over the runs.

    ``status`` is "target" if all seeds reached it; "diverged" if one did; "rose" if f ended above f(x⁰) with
    one; else the reason for which the runs ended.
    """

    exponent: int
    gamma: str | float
    status: str
    seeds: int = 1
    reached: int = 0
    total_bytes: float = 0.0
    f: float = inf

    @property
    def refused(self) -> bool:
        """Whether it is no candidate."""
        return self.status in ("diverged", "rose")

    def rank(self) -> tuple[bool, bool, int, float]:
        """What the best trial has the least of."""
        all_did = self.status == "target"
        return self.refused, not all_did, -self.reached, self.total_bytes if all_did else self.f


@dataclass(frozen=True)
class Tuning:
    """The trials of one method, largest step first."""

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The best trial; the smallest step if all of them were refused."""
        return min(reversed(self.trials), key=Trial.rank)

    @property
    def at_edge(self) -> bool:
        """Whether the best step is the largest or smallest tried, so that one beyond may be better."""
        return self.best in (self.trials[0], self.trials[-1])

    @property
    def runs(self) -> int:
        """How many runs it took."""
        return sum(trial.seeds for trial in self.trials)

    def to_json(self) -> dict[str, Any]:
        """For people; ``trials`` is all that ``from_json`` needs."""
        trials = [asdict(t) | ({"f": None} if t.f == inf else {}) for t in self.trials]
        return {"gamma": self.best.gamma, "at_edge": self.at_edge, "trials": trials}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Tuning:
        """What ``to_json`` was given."""
        known = [{k: v for k, v in trial.items() if v is not None} for trial in content["trials"]]
        return cls(tuple(Trial(**trial) for trial in known))


def tune(
    method: Method,
    exponents: tuple[int, int],
    seeds: Sequence[int],
    max_bytes: int | None,
    attempt: Attempt,
) -> Tuning:
    """Try ``method`` with its step size times 2^lo .. 2^hi, and beyond while the best lies at an end."""
    lo, hi = exponents
    tried: dict[int, Trial] = {}

    def try_step(exponent: int) -> None:
        best = min((t.total_bytes for t in tried.values() if t.status == "target"), default=None)
        within = None if best is None else best * len(seeds)
        tried[exponent] = _try(scale_step(method, exponent), exponent, seeds, max_bytes, within, attempt)

    larger = -1 if method.inverse_step else 1  # the way to larger steps
    for exponent in sorted(range(lo, hi + 1), key=lambda e: -larger * e):
        try_step(exponent)
    while True:
        tuning = Tuning(tuple(tried[e] for e in sorted(tried, key=lambda e: -larger * e)))
        beyond = {tuning.trials[-1]: -larger, tuning.trials[0]: larger}.get(tuning.best)
        if beyond is None or not lo - GROWTH <= tuning.best.exponent + beyond <= hi + GROWTH:
            return tuning
        try_step(tuning.best.exponent + beyond)


def _try(
    method: Method,
    exponent: int,
    seeds: Sequence[int],
    max_bytes: int | None,
    within: float | None,
    attempt: Attempt,
) -> Trial:
    """One step size, with all seeds within so many bytes together; it ends with the seed that refuses it."""
    spent, f, statuses = 0, 0.0, []
    for done, seed in enumerate(seeds, 1):
        left = None if within is None else max(1, int(within) - spent)
        limits = [limit for limit in (max_bytes, left) if limit is not None]
        try:
            run = attempt(method, seed, min(limits, default=None))
        except DivergedError:
            return Trial(exponent, method.step, "diverged", done)
        last = tail(run.rows)
        if rose(run.rows):
            return Trial(exponent, method.step, "rose", done)
        spent += last[-1].up_bytes + last[-1].down_bytes
        f += sum(row.f for row in last) / len(last) / len(seeds)
        statuses.append(run.status)
        if within is not None and run.status != "target":
            return Trial(exponent, method.step, run.status, done, done - 1, spent / done)
    reached = statuses.count("target")
    status = next((status for status in statuses if status != "target"), "target")
    return Trial(exponent, method.step, status, len(seeds), reached, spent / len(seeds), f)


def tail(rows: Sequence[Row]) -> list[Row]:
    """The rows of the last tenth of the rounds."""
    return [row for row in rows if row.round >= (1 - TAIL) * rows[-1].round]


def rose(rows: Sequence[Row]) -> bool:
    """Whether f is above f(x⁰) throughout the last tenth of the rounds."""
    return min(row.f for row in tail(rows)) > rows[0].f


def scale_step(method: Method, exponent: int) -> Method:
    """``method`` with its step size, a number or "theory*NUMBER", times 2^exponent."""
    if not isinstance(method.step, str):
        return method.with_step(method.step * 2.0**exponent)
    _, _, factor = method.step.partition("*")
    return method.with_step(f"theory*{float(factor or 1) * 2.0**exponent!r}".removesuffix(".0"))
