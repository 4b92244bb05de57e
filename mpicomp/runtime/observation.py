"""What a run observes: after which rounds it records a row, and on which samples f and ∇f are computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.runtime.schedule import check_every, is_observed
from mpicomp.runtime.settings import setting

FULL, NEVER = "full", "never"
EVERY = 10  # rounds between rows by default


@dataclass(frozen=True)
class Observation:
    """After which rounds a row is recorded, and what it costs.  Every run has a row at its start and its end.

    every    rounds between rows, or "1%"; see ``schedule``
    at       the rounds after which there is a row, in place of ``every``; rounds beyond the end do not count
    observe  "full": f and ∇f in each row.  "never": neither.  A number m: f and ∇f of m samples of each
             worker, drawn once for the run; a worker with at most m samples takes all of them

    A field is also a keyword of ``run`` and an option of ``mpicomp run``, with the default given here.
    Raises ``ConfigError`` for a value that is not allowed, and for ``at`` beside an ``every`` other than the
    default.
    """

    every: int | str = setting(EVERY, "Rounds between rows, or 1%, as a fraction of those before.")
    at: Sequence[int] | None = setting(None, "Rounds to have rows after, such as 1,2,10,100.")
    observe: int | str = setting(
        FULL, "f and ∇f of rows: full, never, or of that many samples of each worker."
    )

    def __post_init__(self) -> None:
        if not isinstance(self.every, str):
            object.__setattr__(self, "every", as_integer("every", self.every))
        check_every(self.every)
        if self.at is not None:
            object.__setattr__(self, "at", as_rounds(self.at))
            if self.every != EVERY:
                raise ConfigError(
                    f"every={self.every!r} and at={list(self.at)}: both say when there is a row. Give one."
                )
        object.__setattr__(self, "observe", as_observed(self.observe))

    @property
    def observes(self) -> bool:
        """Whether rows have f and ∇f."""
        return self.observe != NEVER

    @property
    def samples(self) -> int | None:
        """The number of each worker's samples on which f is observed, None for all of them."""
        return self.observe if isinstance(self.observe, int) else None

    def is_due(self, round: int) -> bool:
        """Whether a row is recorded after ``round`` rounds, even if the run goes on."""
        if self.at is not None:
            return round == 0 or round in self.at
        return is_observed(round, self.every)


def as_rounds(value: Any) -> tuple[int, ...]:
    """The different rounds in ``value``, increasing.  Raises ``ConfigError`` if it is no list of rounds."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"at={value!r}; allowed: a list of rounds, such as [1, 2, 10, 100].")
    return tuple(sorted({as_integer("at", round, least=0) for round in value}))


def as_observed(value: Any) -> int | str:
    """``value`` as a setting of ``observe``.  Raises ``ConfigError`` if it is none."""
    if isinstance(value, str):
        if value not in (FULL, NEVER):
            raise ConfigError(
                f"observe={value!r}; allowed: 'full', 'never', or a number of samples of each worker."
            )
        return value
    return as_integer("observe", value)
