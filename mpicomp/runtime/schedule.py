"""The rounds after which a run records a row: every N rounds, or "1%", often at first and then rarely."""

from __future__ import annotations

from mpicomp.base.errors import ConfigError

FINE = "1%"  # a row after each round up to 256, then at most 1 % of the rounds apart


def check_every(every: int | str) -> None:
    """Raise ``ConfigError`` unless ``every`` is a positive integer or "1%"."""
    if every == FINE:
        return
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise ConfigError(f"every={every!r}; allowed: a positive number of rounds, or {FINE!r}.")


def gap(round: int, every: int | str) -> int:
    """The number of rounds between rows at ``round``.  For "1%": 1 below 256, 2 below 512, 4 below 1024."""
    if isinstance(every, int):
        return every
    return 1 << max(0, (round >> 7).bit_length() - 1)


def is_observed(round: int, every: int | str) -> bool:
    """Whether a row is always recorded after ``round`` rounds, even in an uninterrupted run."""
    return round % gap(round, every) == 0
