"""Choosing a step size: the one asked for times powers of two, the best kept.

Best is the fewest bytes, both directions together, to the target if there is one and some step size
reaches it; else the smallest final gradient.  Larger steps are tried first, and once one has reached
the target, no other is given more bytes than it took.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from mpicomp.errors import DivergedError
from mpicomp.methods import Method
from mpicomp.run import Run


@dataclass(frozen=True)
class Trial:
    """What became of one step size.  ``status`` is that of the run, or "diverged"."""

    exponent: int
    gamma: str | float
    status: str
    rounds: int = 0
    total_bytes: int = 0
    grad_norm_sq: float = float("inf")

    def rank(self) -> tuple[bool, float]:
        """What the best trial has the least of."""
        reached = self.status == "target"
        return not reached, self.total_bytes if reached else self.grad_norm_sq


@dataclass(frozen=True)
class Tuning:
    """The trials of one method, largest step first."""

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The best trial; the smallest step if all of them diverged."""
        return min(reversed(self.trials), key=Trial.rank)

    @property
    def at_edge(self) -> bool:
        """Whether the best step is the largest or smallest tried, so that one beyond may be better."""
        return self.best in (self.trials[0], self.trials[-1])

    def to_json(self) -> dict[str, Any]:
        """For people; ``trials`` is all that ``from_json`` needs."""
        trials = [asdict(t) | ({"grad_norm_sq": None} if t.status == "diverged" else {}) for t in self.trials]
        return {"gamma": self.best.gamma, "at_edge": self.at_edge, "trials": trials}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Tuning:
        """What ``to_json`` was given."""
        known = [{k: v for k, v in trial.items() if v is not None} for trial in content["trials"]]
        return cls(tuple(Trial(**trial) for trial in known))


def tune(
    method: Method,
    exponents: tuple[int, int],
    max_bytes: int | None,
    attempt: Callable[[Method, int | None], Run],
) -> Tuning:
    """Try ``method`` with its step size times 2^lo .. 2^hi.  ``attempt`` runs it within so many bytes."""
    lo, hi = exponents
    trials: list[Trial] = []
    for exponent in range(hi, lo - 1, -1):
        scaled = scale_step(method, exponent)
        gamma = scaled.step
        try:
            run = attempt(scaled, max_bytes)
        except DivergedError:
            trials.append(Trial(exponent, gamma, "diverged"))
            continue
        last = run.rows[-1]
        trial = Trial(
            exponent, gamma, run.status, last.round, last.up_bytes + last.down_bytes, last.grad_norm_sq
        )
        trials.append(trial)
        if trial.status == "target":
            max_bytes = min(trial.total_bytes, max_bytes or trial.total_bytes)
    return Tuning(tuple(trials))


def scale_step(method: Method, exponent: int) -> Method:
    """``method`` with its step size, a number or "theory*NUMBER", times 2^exponent."""
    if not isinstance(method.step, str):
        return method.with_step(method.step * 2.0**exponent)
    _, _, factor = method.step.partition("*")
    return method.with_step(f"theory*{float(factor or 1) * 2.0**exponent!r}".removesuffix(".0"))
