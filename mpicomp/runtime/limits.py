"""The conditions that end a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from numbers import Integral, Real

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.runtime.observation import Observation
from mpicomp.runtime.rows import Row
from mpicomp.runtime.settings import setting


@dataclass(frozen=True)
class Limits:
    """The conditions that end a run.  All but ``rounds`` are checked whenever a row is recorded.

    rounds               the number of rounds after which a run ends in any case
    target_grad_norm_sq  end once |∇f(x)|² is at most this
    hold                 if every row from round k on meets the target, the run ends at the first row at or
                         after round (1 + hold) k; 0: at the first row that meets the target
    max_bytes            end once this many bytes were sent, both directions and all workers together
    max_seconds          end after this many seconds of the run, without the time of evaluating f for rows

    A field is also a keyword of ``run`` and an option of ``mpicomp run``, with the default given here.
    Raises ``ConfigError`` for a value that is not allowed.
    """

    rounds: int = setting(1000, "Stop after this many rounds.")
    target_grad_norm_sq: float | None = setting(
        None, "Stop at the first row where |∇f|² is at most this number and f is at most f(x⁰)."
    )
    hold: float = setting(
        0.0,
        "Go on after the target is met, to see whether it holds: if all rows from round k on meet it, stop "
        "at the first row in or after round (1 + HOLD) k.",
    )
    max_bytes: int | None = setting(
        None, "Stop at the first row after all workers together have sent and received this many bytes."
    )
    max_seconds: float | None = setting(
        None, "Stop at the first row after this many seconds, not counting the time of evaluating f for rows."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", as_integer("rounds", self.rounds))
        for name in ("target_grad_norm_sq", "hold", "max_bytes", "max_seconds"):
            value: float | None = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not (isinstance(value, Real) and value >= 0):
                raise ConfigError(f"{name}={value!r}; allowed: a number that is not negative.")
            if not isinstance(value, int):  # a number of numpy cannot be written to a record
                object.__setattr__(self, name, int(value) if isinstance(value, Integral) else float(value))
        if self.hold and self.target_grad_norm_sq is None:
            raise ConfigError(f"hold={self.hold!r} without a target to hold; give target_grad_norm_sq.")

    def check_observed(self, observation: Observation) -> None:
        """Raise ``ConfigError`` if there is a target for |∇f|² and rows do not observe it."""
        if self.target_grad_norm_sq is not None and not observation.observes:
            raise ConfigError(
                "observe='never' leaves |∇f|² out of the rows, so target_grad_norm_sq can never be reached. "
                "Give observe a number of samples, or end the run by rounds, max_bytes or max_seconds."
            )

    def reached(self, rows: Sequence[Row], start_f: float | None) -> str | None:
        """The name of the limit that the last of ``rows`` has reached, if any.

        ``start_f`` is f at the start of the run, and ``rows`` are all of its rows.
        """
        row, first = rows[-1], self.arrival(rows, start_f)
        hits = {
            "target": first is not None and row.round >= (1 + self.hold) * first.round,
            "max_bytes": self.max_bytes is not None and row.up_bytes + row.down_bytes >= self.max_bytes,
            "max_seconds": self.max_seconds is not None and row.seconds >= self.max_seconds,
        }
        return next((name for name, hit in hits.items() if hit), None)

    def arrival(self, rows: Sequence[Row], start_f: float | None) -> Row | None:
        """The row since which all rows meet the target; None if the last row does not.

        A row meets the target only if its f is at most ``start_f``: on a loss that saturates, the gradient of
        a run that has blown up is small too.
        """
        at = list(takewhile(lambda row: self._at_target(row, start_f), reversed(rows)))
        return at[-1] if at else None

    def row_of_costs(self, rows: Sequence[Row], status: str) -> Row:
        """The row whose bytes and seconds count as the costs of a run; ``rows`` are all of its rows.

        If the run ended with ``status`` "target": the row since which all rows meet the target, if there is
        one.  Else the last row.
        """
        arrival = self.arrival(rows, rows[0].f) if status == "target" else None
        return arrival or rows[-1]

    def _at_target(self, row: Row, start_f: float | None) -> bool:
        """Whether a row meets the target; a row without f never does."""
        if self.target_grad_norm_sq is None or row.f is None or row.grad_norm_sq is None or start_f is None:
            return False
        return row.grad_norm_sq <= self.target_grad_norm_sq and row.f <= start_f
