"""The step sizes that were tried for one method, and the best of them: the result of ``tuning.tune``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any

from mpicomp.base.html import html_table
from mpicomp.base.units import human_bytes
from mpicomp.runtime.frames import frame

if TYPE_CHECKING:
    from pandas import DataFrame

REFUSED = ("diverged", "rose")  # the statuses of steps that are not chosen


@dataclass(frozen=True)
class Trial:
    """The outcome of one step size, the given one times 2^exponent.

    seeds    the number of runs; ``reached`` of them reached the target
    status   "target" if all runs reached it, "diverged" if one diverged, "rose" if f ended above f(x⁰) in
             one; else the status of the first run that missed the target

    ``total_bytes`` and ``f`` are means over the runs.
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
        """Whether this step size cannot be chosen."""
        return self.status in REFUSED

    def rank(self) -> tuple[bool, bool, int, float]:
        """The sort key of trials: the best trial has the smallest."""
        all_did = self.status == "target"
        return self.refused, not all_did, -self.reached, self.total_bytes if all_did else self.f


# The types in a file of a ``Trial``'s fields: JSON does not tell 1.0 from 1.
_HELD = {"int": (int,), "str": (str,), "float": (int, float), "str | float": (str, int, float)}


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
        """Whether the best step is the largest or smallest tried, so that a step beyond may be better."""
        return self.best in (self.trials[0], self.trials[-1])

    @property
    def runs(self) -> int:
        """The number of runs that tuning took."""
        return sum(trial.seeds for trial in self.trials)

    @property
    def doubt(self) -> str | None:
        """Why the best step is no good one, if so: all were refused, all ended alike, or it is at an end."""
        if self.best.refused:
            return (
                f"every step size that was tried was refused, the smallest, {self.best.gamma}, too: runs "
                "diverged, or f rose. Try smaller ones, and check that grad is the gradient of value."
            )
        if len(self.trials) > 1 and len({trial.rank() for trial in self.trials}) == 1:
            return (
                f"all step sizes that were tried ended alike, at f = {self.best.f:.6g}, so nothing tells "
                "the best. Check that value depends on x."
            )
        if self.at_edge:
            return (
                f"the best step, {self.best.gamma}, is at the end of those that were tried, and one beyond "
                "may be better. Try a range around it."
            )
        return None

    def to_frame(self) -> DataFrame:
        """The trials as a pandas DataFrame, with the columns of ``Trial``.

        Raises ``ConfigError`` if pandas is not installed.
        """
        return frame((((), trial) for trial in self.trials), kind=Trial)

    def __repr__(self) -> str:
        if not self.trials:
            return "<Tuning: no step tried>"
        tried = ", ".join(str(trial.gamma) for trial in self.trials)
        return f"<Tuning: the best step is {self.best.gamma}, of {tried}>"

    def _repr_html_(self) -> str:
        header = ("step size", "status", "f", "bytes up + down", "seeds", "")
        return html_table(
            "Step sizes that were tried, the largest first", header, map(self._cells, self.trials)
        )

    def _cells(self, trial: Trial) -> tuple[str, ...]:
        measured = ("", "") if trial.f == inf else (f"{trial.f:.6g}", human_bytes(trial.total_bytes))
        best = "best" if trial is self.best else ""
        return (str(trial.gamma), trial.status, *measured, str(trial.seeds), best)

    def to_json(self) -> dict[str, Any]:
        """The trials, and the best step for human readers; ``from_json`` reads ``trials`` alone."""
        trials = [asdict(t) | ({"f": None} if t.f == inf else {}) for t in self.trials]
        return {"gamma": self.best.gamma, "at_edge": self.at_edge, "trials": trials}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Tuning:
        """The tuning that ``to_json`` has written.

        Raises ``TypeError``, ``KeyError`` or ``AttributeError`` for anything else.
        """
        known = [{k: v for k, v in trial.items() if v is not None} for trial in content["trials"]]
        trials = tuple(Trial(**trial) for trial in known)
        for trial in trials:
            for f in fields(Trial):
                if type(getattr(trial, f.name)) not in _HELD[str(f.type)]:
                    raise TypeError(f"{f.name} of a trial")
        if not trials:
            raise TypeError("no trials")
        return cls(trials)
