"""A suite: one problem, several methods and seeds, and how the runs are shared among jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mpicomp.base.errors import ConfigError
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.runtime.schedule import FINE

T = TypeVar("T")

# What a figure can show of a run, across and up; ``experiment.figure`` knows how.
AXES = {
    "x": ("rounds", "up", "both", "seconds", "epochs"),
    "y": ("gradient", "f", "error"),
}


def slug(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")


@dataclass(frozen=True)
class Entry:
    """One method of a suite.  ``tune`` is the range of powers of two to try its step size at."""

    method: Method
    label: str
    tune: tuple[int, int] | None = None

    @property
    def slug(self) -> str:
        """The label as the name of a folder."""
        return slug(self.label)

    @property
    def trials(self) -> int:
        """How many step sizes are to be tried."""
        return 0 if self.tune is None else self.tune[1] - self.tune[0] + 1


Task = tuple[Entry, tuple[int, ...]]  # a method, and some of the seeds to run it with


@dataclass(frozen=True)
class Part:
    """Share ``number`` of ``of``, counted from 1, of a comparison that several jobs work at."""

    number: int
    of: int

    def of_all(self, work: list[T]) -> list[T]:
        """This share of ``work``."""
        return work[self.number - 1 :: self.of]


def parse_part(text: str) -> Part:
    """The part that "2/8" names."""
    numbers = re.fullmatch(r"(\d+)/(\d+)", text)
    if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise ConfigError(f"part {text!r}; allowed: I/N with I from 1 to N, such as 1/4 .. 4/4.")
    return Part(int(numbers[1]), int(numbers[2]))


@dataclass(frozen=True)
class Suite:
    """What to compare.  ``source`` is the text it was read from."""

    title: str
    problem: Problem
    workers: int
    rounds: int
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...] = (0,)
    every: int | str = FINE
    down: str = "f4"
    tuning_seeds: int | None = None
    target_grad_norm_sq: float | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    x: tuple[str, ...] = field(default=("rounds", "up", "both", "seconds"), compare=False)
    y: str = field(default="gradient", compare=False)
    source: str = field(default="", compare=False, repr=False)

    def limits(self) -> dict[str, Any]:
        """What ``run`` is told about how long to go on and how often to look."""
        names = ("workers", "rounds", "every", "target_grad_norm_sq", "max_bytes", "max_seconds")
        return {name: getattr(self, name) for name in names}

    @property
    def seeds_to_tune(self) -> tuple[int, ...]:
        """The seeds that step sizes are chosen with."""
        return self.seeds[: self.tuning_seeds]

    def tasks(self) -> list[Task]:
        """The work as independent tasks.  A tuned method is one task: its seeds wait for its tuning."""
        work: list[Task] = []
        for entry in self.entries:
            work += [(entry, self.seeds)] if entry.tune else [(entry, (seed,)) for seed in self.seeds]
        return work
