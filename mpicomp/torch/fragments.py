"""Fragments of a model: consecutive parameters that are exchanged together, and when each is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from torch import nn

from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_integer, as_seed
from mpicomp.base.errors import ConfigError
from mpicomp.loops.aggregator import Aggregator
from mpicomp.torch.tensors import Tensors


@dataclass(frozen=True)
class Schedule:
    """The local steps at which exchanges begin and end.

    every      H: the steps from one exchange of a fragment to its next
    delay      the steps from the begin of an exchange to its end
    fragments  P: fragment p is due at the steps t with t = p H // P modulo H

    Raises ``ConfigError`` unless at most one exchange is under way at a time.
    """

    every: int
    delay: int = 0
    fragments: int = 1

    def __post_init__(self) -> None:
        as_integer("fragments", self.fragments)
        as_integer("delay", self.delay, least=0)
        if self.fragments > self.every:
            raise ConfigError(
                f"fragments is {self.fragments}; allowed: at most sync_every = {self.every}, as each "
                "fragment has an exchange at a step of its own."
            )
        if self.delay and self.delay >= self.every // self.fragments:
            raise ConfigError(
                f"delay is {self.delay}; allowed: below sync_every // fragments = "
                f"{self.every // self.fragments}, so that an exchange ends before the next one begins."
            )

    def begin(self, step: int) -> list[int]:
        """The fragments whose exchange begins after local step ``step``."""
        return self.end(step + self.delay)

    def end(self, step: int) -> list[int]:
        """The fragments whose exchange ends after local step ``step``."""
        every, P = self.every, self.fragments
        return [p for p in range(P) if (step - p * every // P) % every == 0] if step else []


class Fragment:
    """Some of the parameters, and the Aggregator of their change.

    ahead     the share of this rank's error memory that its local steps start ahead of θ^p
    start     θ^p, the values after the last exchange, the same on all ranks
    begun     this rank's values when the exchange under way began; before the first one, at the start
    estimate  the mean of the changes, until the outer optimiser has stepped along it; then None
    """

    def __init__(self, tensors: Tensors, aggregator: Aggregator, ahead: float = 0.0) -> None:
        self.tensors, self.aggregator, self.ahead = tensors, aggregator, ahead
        self.start = tensors.values()
        self.begun = self.start
        self.estimate: Any = None

    def own_start(self) -> Array:
        """s_i = θ^p - a e_i, the values from which this rank's local steps go on after an exchange."""
        hosted = self.aggregator.hosted  # empty on a dedicated server
        memory = self.aggregator.residual(hosted.start) if self.ahead and hosted else None
        if memory is None:
            return self.start
        # Rounded, or what a parameter of 16 bits cannot hold would count as a step back from there.
        return self.tensors.rounded(self.start - self.ahead * memory)

    def exchange(self) -> Array:
        """The mean over the ranks of the changes by local steps, own_start - values; collective."""
        values = self.tensors.values()
        mean = self.aggregator(self._change(values))
        self.begun = values
        return mean

    def begin(self) -> None:
        """Begin the exchange, which ``aggregator.finish`` ends; collective."""
        values = self.tensors.values()
        self.aggregator.begin(self._change(values))
        self.begun = values

    def _change(self, values: Array) -> Array | None:
        """The change by local steps to ``values``; None on a dedicated server, whose change is left out."""
        change = self.own_start() - values
        if self.aggregator.hosted or not self.aggregator.one_each:
            return change
        if change.any():
            self.aggregator.warn_of_left_out()
        return None


def cut(parameters: Mapping[str, nn.Parameter], fragments: int) -> list[dict[str, nn.Parameter]]:
    """Cut named parameters into consecutive fragments of about equal numbers of entries.

    Raises ``ConfigError`` if there are fewer parameters than fragments.
    """
    if fragments > len(parameters):
        raise ConfigError(
            f"fragments is {fragments}; allowed: at most the number of parameters that are trained, "
            f"{len(parameters)}."
        )
    names = list(parameters)
    ends = list(accumulate(parameters[name].numel() for name in names))
    bounds = [0]
    for p in range(1, fragments):
        aim = p * ends[-1] / fragments
        first, last = bounds[-1] + 1, len(names) - (fragments - p)
        bounds.append(min(range(first, last + 1), key=lambda k: abs(ends[k - 1] - aim)))
    bounds.append(len(names))
    return [{name: parameters[name] for name in names[a:b]} for a, b in pairwise(bounds)]


def seed_of(fragment: int, options: dict[str, Any]) -> dict[str, int]:
    """The seed of a fragment's random draws, as an option: each fragment draws independently."""
    return {"seed": (as_seed(options.get("seed", 0)) + fragment) % 2**64}


@contextmanager
def in_fragment(p: int, fragments: int) -> Iterator[None]:
    """In the ``with`` block, name fragment p in a ``ConfigError``, if there are several.

    Ranks that differ may do so in their number of fragments, so such an error stays as it is.
    """
    try:
        yield
    except ConfigError as error:
        if fragments == 1 or error.unlike:
            raise
        raise ConfigError(
            f"fragment {p} of {fragments}: {error} Fewer fragments have more parameters each."
        ) from None
