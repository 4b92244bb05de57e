"""When a run ends, and how often it is observed."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.runtime.record import Row
from mpicomp.runtime.schedule import check_every


@dataclass(frozen=True)
class Limits:
    """When a run ends.  Every limit but ``rounds`` is checked whenever a row is recorded.

    rounds               the number of rounds after which a run ends in any case
    every                rounds between rows; see ``schedule``
    target_grad_norm_sq  end at a squared gradient norm of at most this
    max_bytes            end at this many bytes, of both directions and all workers
    max_seconds          end after this many seconds of the run

    A field is also a keyword of ``run`` and an option of ``mpicomp run``, with the default given here.
    Raises ``ConfigError`` for a value that is not allowed.
    """

    rounds: int = 1000
    every: int | str = 10
    target_grad_norm_sq: float | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", as_integer("rounds", self.rounds))
        if not isinstance(self.every, str):
            object.__setattr__(self, "every", as_integer("every", self.every))
        check_every(self.every)
        for name in ("target_grad_norm_sq", "max_bytes", "max_seconds"):
            value: float | None = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and value >= 0):
                raise ConfigError(f"{name}={value!r}; allowed: a number that is not negative.")

    def reached(self, row: Row, start_f: float) -> str | None:
        """The name of the limit that ``row`` has reached, if any.  The run began at f = ``start_f``.

        The target counts only where f is at most ``start_f``: on a loss that saturates, the gradient of a
        run that has blown up is small too.
        """
        small = self.target_grad_norm_sq is not None and row.grad_norm_sq <= self.target_grad_norm_sq
        hits = {
            "target": small and row.f <= start_f,
            "max_bytes": self.max_bytes is not None and row.up_bytes + row.down_bytes >= self.max_bytes,
            "max_seconds": self.max_seconds is not None and row.seconds >= self.max_seconds,
        }
        return next((name for name, hit in hits.items() if hit), None)
