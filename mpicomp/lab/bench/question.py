"""A user's question for a method: workers, dimension, link, gradients, and the kind of f."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import human_rate, human_time, one_line, parse_rate, parse_time
from mpicomp.lab.bench.cost_model import Link
from mpicomp.lab.bench.predict import Forecast
from mpicomp.lab.bench.situation import Situation
from mpicomp.methods import Method
from mpicomp.text.config import parse_method

MOST_WORKERS = 10_000  # the tables go up to 256


@dataclass(frozen=True)
class Question:
    """The setting of a user who asks for a method; ``advice.advise`` explains the fields."""

    n: int
    d: int
    link: Link
    step_seconds: float
    convex: bool
    batch: int | None
    mu: float | None
    up_only: bool
    alike: bool

    def suits(self, row: Situation) -> bool:
        """Whether a situation's line may be advised."""
        return (
            row.advised
            and row.batches == (self.batch is not None)
            and row.convex in (None, self.convex)
            and row.up in (None, self.up_only)
            and self.n >= (max(row.n, self.d) if row.as_many else row.n)
            and (self.alike or not row.alike)
            and (self.mu is not None or not row.mu)
        )

    def method(self, row: Situation) -> Method:
        """The method of a situation's line, with the user's batch and μ."""
        method = parse_method(row.line)
        mine = {"batch": self.batch} if row.batches else {"mu": self.mu} if row.mu else {}
        return replace(method, **mine) if mine else method

    def seconds(self, forecast: Forecast) -> float:
        """The seconds of a round's messages that count."""
        return forecast.round.up if self.up_only else forecast.round.total

    def __str__(self) -> str:
        kind = "full gradients" if self.batch is None else f"batches of {self.batch}"
        f = "convex f" if self.convex else "an f that need not be convex"
        return (
            f"{self.n} workers, d = {self.d}, {kind} of {f}, {human_time(self.step_seconds)} each; links of "
            f"{human_rate(self.link.rate)} each way, {human_time(self.link.latency)} one way."
            f"{' The way down does not count.' * self.up_only}"
        )


def question(
    n: Any,
    d: Any,
    link: Any,
    step_seconds: Any,
    latency: Any,
    convex: Any,
    batch: Any,
    mu: Any,
    up_only: Any,
    alike: Any,
) -> Question:
    """The checked question of these values.  Raises ``ConfigError`` for a value that is not allowed."""
    n, d = as_integer("n", n, least=2, most=MOST_WORKERS), as_integer("d", d, most=10**15)
    for name, text, such in (("link", link, "100mbit"), ("latency", latency, "50us")):
        if not isinstance(text, str):
            raise ConfigError(f'{name} is {one_line(text)}; allowed: a text such as "{such}".')
    network = Link(parse_rate(link), parse_time(latency))
    seconds = _positive("step_seconds", step_seconds)
    if mu is not None:
        mu = _positive("mu", mu)
        if batch is not None:
            raise ConfigError(f"mu={mu} and batch={batch}: mu is for full gradients. Leave one of them out.")
    if batch is not None:
        batch = as_integer("batch", batch)
    convex = mu is not None if convex is None else convex
    for name, value in (("convex", convex), ("up_only", up_only), ("alike", alike)):
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {one_line(value)}; allowed: True or False.")
    if mu is not None and not convex:
        raise ConfigError(f"mu={mu} says that every f_i is convex, and convex=False that not: leave one out.")
    return Question(n, d, network, seconds, convex, batch, mu, up_only, alike)


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e300:
        raise ConfigError(f"{name} is {one_line(value)}; allowed: a positive number.")
    return float(value)
