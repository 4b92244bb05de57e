"""Choose the rounds after which a run records a row, and the samples on which f and ∇f are evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.runtime.schedule import check_every, gap, is_observed
from mpicomp.runtime.settings import setting

FULL, NEVER = "full", "never"
EVERY = 10  # rounds between rows by default


@dataclass(frozen=True)
class Observation:
    """The rounds after which a row is recorded, and its samples.  Every run has a row at its start and end.

    every    a row is recorded after every so many rounds; "1%": after each of the first 256 rounds, then
             at gaps of at most 1 % of the rounds so far
    at       a list of the rounds after which a row is recorded, in place of ``every``; rounds beyond the end
             are ignored
    observe  "full": each row has f and ∇f on all samples.  "never": rows have neither.  A number m: f and ∇f
             on m samples of each worker, drawn once for the run; a worker with at most m samples uses all

    A field is also a keyword of ``run`` and an option of ``mpicomp run``, with the default given here.
    Raises ``ConfigError`` for a value that is not allowed, and for ``at`` beside an ``every`` other than the
    default.
    """

    every: int | str = setting(
        EVERY,
        "Record a row each time that this many rounds have passed.  1%: after each of the first 256 rounds, "
        "then at gaps of at most 1 % of the rounds so far.",
    )
    at: Sequence[int] | None = setting(
        None, "Record rows after these rounds, such as 1,2,10,100, in place of --every."
    )
    observe: int | str = setting(
        FULL,
        "Samples on which f and ∇f are evaluated for each row: all (full), a number of samples of each "
        "worker, such as 2000, or none (never).",
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
        """The number of samples of each worker on which f is observed; None: all, or f is not observed."""
        return self.observe if isinstance(self.observe, int) else None

    def is_due(self, round: int) -> bool:
        """Whether a row is recorded after ``round`` rounds, even if the run goes on."""
        if self.at is not None:
            return round == 0 or round in self.at
        return is_observed(round, self.every)

    def gap(self, round: int) -> int:
        """The rounds between the row after ``round`` rounds and the row before it."""
        if self.at is None:
            return gap(round, self.every)
        return round - max((k for k in self.at if k < round), default=0)

    def due(self, end: int) -> Iterator[int]:
        """The rounds below ``end`` that are due, in order."""
        if self.at is not None:
            yield from (round for round in sorted({0, *self.at}) if round < end)
            return
        round = 0
        while round < end:
            yield round
            round += gap(round, self.every)


def as_rounds(value: Any) -> tuple[int, ...]:
    """The rounds in ``value``, sorted, without repeats.  Raises ``ConfigError`` for any other value."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"at={value!r}; allowed: a list of rounds, such as [1, 2, 10, 100].")
    return tuple(sorted({as_integer("at", round, least=0) for round in value}))


def as_observed(value: Any) -> int | str:
    """Check ``value`` as a setting of ``observe`` and return it.  Raises ``ConfigError`` if it is none."""
    if isinstance(value, str):
        if value not in (FULL, NEVER):
            raise ConfigError(
                f"observe={value!r}; allowed: 'full', 'never', or a number of samples of each worker."
            )
        return value
    return as_integer("observe", value)
