"""Choosing a step size: try the given step times powers of two, keep the best.

Every step size is tried with the same seeds.  If some step size reaches the target with all seeds, the best
one is the one that does so with the fewest bytes, both directions together.  Otherwise it is the one with
which most seeds reach the target; ties, and suites without a target, are decided by the smallest f.  That f
is the mean over the seeds and over the last tenth of the rounds, because a stochastic method fluctuates.

The gradient's norm does not choose: on a loss that saturates, it is small where a run has blown up.  For
the same reason a step size is refused if f ends above f(x⁰) with any seed.

A method whose costs vary much is flattered if the seeds that chose its step are reported as well.

Larger steps are tried first.  A step that misses the target with one seed is tried with the next seeds only
if no step reaches it with all of them.  Once a step has reached the target, later steps get no more
bytes than the best one took, with the rounds in which the target has to hold.  While the best step is
the largest or the smallest tried, the next one beyond it is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from mpicomp.base.errors import ConfigError, DivergedError, keeping
from mpicomp.lab.experiment.trials import REFUSED, Trial, Tuning
from mpicomp.methods import Method
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.result import Run
from mpicomp.runtime.rows import Row

GROWTH = 8  # the most powers of two that are added at either end of a range
TAIL = 0.1  # the last share of the rounds, over which f is averaged

Attempt = Callable[[Method, int, int | None], Run]  # (method, seed, byte limit or None) -> run


def tune(
    method: Method,
    exponents: tuple[int, int],
    seeds: Sequence[int],
    attempt: Attempt,
    limits: Limits,
) -> Tuning:
    """Try ``method`` with its step size times 2^lo, .., 2^hi, and beyond while the best is at an end.

    ``exponents`` is (lo, hi).  ``attempt`` runs a method with a seed and a limit of bytes, and else with
    ``limits``.
    """
    lo, hi = exponents
    tried: dict[int, _Step] = {}
    larger = -1 if method.inverse_step else 1  # the way to larger steps

    def try_step(exponent: int) -> None:
        tried[exponent] = _Step(scale_step(method, exponent), exponent, seeds, attempt, limits)
        best = min((t.total_bytes for t in so_far().trials if t.status == "target"), default=None)
        tried[exponent].run(None if best is None else best * len(seeds) * (1 + limits.hold))

    def so_far() -> Tuning:
        ended = (exponent for exponent, step in tried.items() if step.ended)
        return Tuning(tuple(tried[e].trial() for e in sorted(ended, key=lambda e: -larger * e)))

    with keeping(so_far):
        for exponent in sorted(range(lo, hi + 1), key=lambda e: -larger * e):
            try_step(exponent)
        while True:
            if all(trial.status != "target" for trial in so_far().trials):
                for step in tried.values():
                    step.run(past_a_miss=True)
            tuning = so_far()
            beyond = {tuning.trials[-1]: -larger, tuning.trials[0]: larger}.get(tuning.best)
            if beyond is None or not lo - GROWTH <= tuning.best.exponent + beyond <= hi + GROWTH:
                return tuning
            try_step(tuning.best.exponent + beyond)


@dataclass(frozen=True)
class _End:
    """How the run of one seed ended: its bytes in all, those it took to the target, and its last f."""

    status: str
    spent: int = 0
    costs: int = 0
    f: float = inf


class _Step:
    """The runs of one step size, a seed after the other."""

    def __init__(
        self, method: Method, exponent: int, seeds: Sequence[int], attempt: Attempt, limits: Limits
    ) -> None:
        self.method, self.exponent, self.seeds = method, exponent, seeds
        self.attempt, self.limits, self.ends = attempt, limits, list[_End]()

    def run(self, within: float | None = None, past_a_miss: bool = False) -> None:
        """Run the seeds that are left, up to one that refuses the step, or that misses a target.

        ``past_a_miss`` goes on after a miss.  ``within`` limits the bytes of all runs together.
        """
        while not self.ended or (past_a_miss and self.left and not self.refused):
            left = None if within is None else max(1, int(within) - sum(end.spent for end in self.ends))
            most = min((limit for limit in (self.limits.max_bytes, left) if limit is not None), default=None)
            self.ends.append(self._ended(self.seeds[len(self.ends)], most))

    @property
    def left(self) -> int:
        """The number of seeds that are left."""
        return len(self.seeds) - len(self.ends)

    @property
    def refused(self) -> bool:
        """Whether the last run refused the step."""
        return bool(self.ends) and self.ends[-1].status in REFUSED

    @property
    def ended(self) -> bool:
        """Whether no seed is left, or the last run refused the step or missed the target."""
        has_target = self.limits.target_grad_norm_sq is not None
        missed = any(end.status != "target" for end in self.ends)
        return not self.left or self.refused or (has_target and missed)

    def _ended(self, seed: int, max_bytes: int | None) -> _End:
        try:
            run = self.attempt(self.method, seed, max_bytes)
        except DivergedError:
            return _End("diverged")
        check_moves(run, seed, f"{type(self.method).__name__} is not tuned")
        if rose(run.rows):
            return _End("rose")
        last = tail(run.rows)
        row = self.limits.row_of_costs(run.rows, run.status)
        spent, costs = last[-1].up_bytes + last[-1].down_bytes, row.up_bytes + row.down_bytes
        return _End(run.status, spent, costs, sum(row.value for row in last) / len(last))

    def trial(self) -> Trial:
        """The trial that the runs are so far; f only if no run is left out."""
        step, done = self.method.step, len(self.ends)
        if self.refused:
            return Trial(self.exponent, step, self.ends[-1].status, done)
        statuses = [end.status for end in self.ends]
        status = next((status for status in statuses if status != "target"), "target")
        costs = sum(end.costs for end in self.ends) / done
        f = sum(end.f / done for end in self.ends) if done == len(self.seeds) else inf
        return Trial(self.exponent, step, status, done, statuses.count("target"), costs, f)


def check_moves(run: Run, seed: int, what: str) -> None:
    """Raise ``ConfigError``, which begins with ``what``, if the run has no round: any step does the same."""
    if run.rows[-1].round == 0:
        raise ConfigError(
            f"{what}: its run with seed {seed} ends at its start, by {run.status}, where "
            f"|∇f|² = {run.rows[0].grad_norm_sq:.3g}. Give limits that leave it steps to take."
        )


def tail(rows: Sequence[Row]) -> list[Row]:
    """The rows of the last tenth of the rounds."""
    return [row for row in rows if row.round >= (1 - TAIL) * rows[-1].round]


def rose(rows: Sequence[Row]) -> bool:
    """Whether f is above f(x⁰) throughout the last tenth of the rounds."""
    return min(row.value for row in tail(rows)) > rows[0].value


def scale_step(method: Method, exponent: int) -> Method:
    """``method`` with its step size, a number or "theory*NUMBER", times 2^exponent."""
    if not isinstance(method.step, str):
        return method.with_step(method.step * 2.0**exponent)
    _, _, factor = method.step.partition("*")
    return method.with_step(f"theory*{float(factor or 1) * 2.0**exponent!r}".removesuffix(".0"))
