"""The rate of the links at which two methods take the same time, by the model or from measured times.

By the model a round takes a + b / rate seconds, so methods that need K and K' rounds take the same time at

    rate = (K' b' - K b) / (K a - K' a').
"""

from __future__ import annotations

from math import inf, log

from mpicomp.lab.bench.cost_model import ByRoot, Costs, Link, RoundModel


def break_even(
    compressed: tuple[int, Costs],
    plain: tuple[int, Costs],
    latency: float,
    workers: int,
    sharing: float,
    models: tuple[RoundModel, RoundModel] = (ByRoot(), ByRoot()),
) -> float:
    """The rate, in bits a second, below which ``compressed`` takes less time than ``plain``.

    Each method is given as (rounds, costs).  ``models`` are those of their rounds, ``compressed`` first;
    ``latency`` is alpha in seconds, and ``sharing`` is c, the ranks for each core.  The result is inf if
    ``compressed`` is faster at every rate, 0 if at none.
    """
    a, b = _affine(models[0], *compressed, latency, workers, sharing)
    a_plain, b_plain = _affine(models[1], *plain, latency, workers, sharing)
    if b >= b_plain:
        return 0.0
    return (b_plain - b) / (a - a_plain) if a > a_plain else inf


def _affine(
    model: RoundModel, rounds: int, costs: Costs, latency: float, workers: int, sharing: float
) -> tuple[float, float]:
    """(a, b) such that all rounds together take a + b / rate seconds."""
    fixed = rounds * model.time(costs, Link(inf, latency), workers, sharing).total
    at_one = rounds * model.time(costs, Link(1.0, latency), workers, sharing).total
    return fixed, at_one - fixed


def crossing(rates: list[float], compressed: list[float], plain: list[float]) -> tuple[float, float]:
    """Bounds (low, high) on the break-even rate from times measured at increasing ``rates``.

    low = high where the times cross.  Between two rates, log(compressed/plain) is interpolated linearly in
    log(rate).  (0, slowest rate) if ``compressed`` never wins, (fastest rate, inf) if it always does.
    """
    ratios = [log(c / p) for c, p in zip(compressed, plain, strict=True)]
    if ratios[0] >= 0:
        return 0.0, rates[0]
    for i in range(1, len(rates)):
        if ratios[i] >= 0:
            share = -ratios[i - 1] / (ratios[i] - ratios[i - 1])
            rate = rates[i - 1] * (rates[i] / rates[i - 1]) ** share
            return rate, rate
    return rates[-1], inf
