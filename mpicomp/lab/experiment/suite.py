"""A suite: one problem, several methods and seeds, and how the runs are shared among jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from mpicomp.base.errors import ConfigError
from mpicomp.methods import Method
from mpicomp.methods.parameters import is_auto
from mpicomp.problems import Problem
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.observation import Observation

# The quantities that a figure can show on its x and y axes; ``experiment.picture`` says what each is.
AXES = {
    "x": ("rounds", "up", "both", "seconds", "epochs"),
    "y": ("gradient", "f", "error"),
}
X = {**{name: name for name in AXES["x"]}, "bytes": "both"}  # a word for the x axis -> its name in ``AXES``


_LONGEST = 255  # letters of a folder's name


def slug(label: str) -> str:
    """A label as the name of a folder; one that would be too long is cut, and ends in its checksum."""
    name = re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{crc32(name.encode()):08x}"


@dataclass(frozen=True)
class Entry:
    """One method of a suite.  ``tune`` = (lo, hi): try its step size times 2^lo, .., 2^hi."""

    method: Method
    label: str
    tune: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` if the method sets its step size itself, and was to be tuned."""
        if self.tune is not None and is_auto(self.method.step):
            raise ConfigError(
                f"{self.label}: {self.method.step_name}={self.method.step!r} is not tuned: give another "
                "step, or no range."
            )

    @property
    def slug(self) -> str:
        """The label as the name of a folder."""
        return slug(self.label)

    @property
    def trials(self) -> int:
        """The number of step sizes to try."""
        return 0 if self.tune is None else self.tune[1] - self.tune[0] + 1


Task = tuple[Entry, tuple[int, ...]]  # a method, and the seeds to run it with


def parse_part(text: str) -> slice:
    """The share of a list of tasks that "2/8" names: every 8th, from the 2nd on.

    Raises ``ConfigError`` for a text that names none.
    """
    numbers = re.fullmatch(r"(\d+)/(\d+)", text)
    if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise ConfigError(f"part {text!r}; allowed: I/N with I from 1 to N, such as 1/4 .. 4/4.")
    return slice(int(numbers[1]) - 1, None, int(numbers[2]))


@dataclass(frozen=True)
class Suite:
    """A comparison to run; ``suite_file`` explains the fields.  ``source`` is the TOML text."""

    title: str
    problem: Problem
    workers: int
    entries: tuple[Entry, ...]
    limits: Limits
    observation: Observation
    seeds: tuple[int, ...] = (0,)
    down: str = "f4"
    x0: str | tuple[float, ...] | None = None  # a file, or the entries; None: the problem's own
    tuning_seeds: int | None = None
    x: tuple[str, ...] = field(default=("rounds", "up", "both", "seconds"), compare=False)
    y: str = field(default="gradient", compare=False)
    source: str = field(default="", compare=False, repr=False)

    def options(self) -> dict[str, Any]:
        """The arguments of ``run`` that say with how many workers, how long, and how often observed."""
        at = self.observation.at
        listed = {"at": None if at is None else list(at)}  # as a record has it
        return {"workers": self.workers, **vars(self.limits), **vars(self.observation), **listed}

    @property
    def target(self) -> float | None:
        """The |∇f|² at which a run ends, if there is such a target."""
        return self.limits.target_grad_norm_sq

    @property
    def seeds_to_tune(self) -> tuple[int, ...]:
        """The seeds used to choose step sizes."""
        return self.seeds[: self.tuning_seeds]

    def tasks(self) -> list[Task]:
        """The work as independent tasks.  A tuned method is one task: its seeds wait for its tuning."""
        work: list[Task] = []
        for entry in self.entries:
            work += [(entry, self.seeds)] if entry.tune else [(entry, (seed,)) for seed in self.seeds]
        return work
