"""Local steps: average the change that the ranks' own steps made, at once or some steps later.

With ``fragments`` the parameters are cut into fragments, and each has an exchange and an Aggregator of its
own: a period of H steps then has an exchange every H / P steps, each of about 1 / P of the bytes.  With
``delay`` an exchange begins some steps before its end, and its messages travel during these steps.  It ends
at the same step on every rank, whatever the network did, so results do not depend on the network.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.compressors.base import Array
from mpicomp.loops.aggregator import Aggregator
from mpicomp.methods.base import Method
from mpicomp.torch.alike import numbered
from mpicomp.torch.tensors import Tensors

DELAY = "delay"  # a value of ``keep``


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
        return self._due(step + self.delay)

    def end(self, step: int) -> list[int]:
        """The fragments whose exchange ends after local step ``step``."""
        return self._due(step)

    def _due(self, step: int) -> list[int]:
        every, P = self.every, self.fragments
        return [p for p in range(P) if (step - p * every // P) % every == 0] if step else []


def as_keep(keep: Any) -> float | str:
    """``keep`` as a float, or "delay".  Raises ``ConfigError`` for anything else."""
    if isinstance(keep, str) and keep == DELAY:
        return keep
    if isinstance(keep, int | float) and not isinstance(keep, bool) and 0 <= keep <= 1:
        return float(keep)
    raise ConfigError(f'keep is {one_line(keep)}; allowed: a number from 0 to 1, or "delay".')


class Fragment:
    """Some of the parameters, and the Aggregator of their change.

    start  θ^p, the values after the last exchange, the same on all ranks
    begun  this rank's values when the exchange under way began; before the first one, at the start
    """

    def __init__(self, tensors: Tensors, aggregator: Aggregator) -> None:
        self.tensors, self.aggregator = tensors, aggregator
        self.start = tensors.values()
        self.begun = self.start

    def change(self) -> Array:
        """What the local steps have changed as an exchange begins, start - values."""
        self.begun = self.tensors.values()
        return self.start - self.begun


class LocalSteps:
    """The exchanges of the change that local steps made; ``outer`` steps along each.

    fragment p, when its exchange begins   Δ_i = θ^p - θ_i^p
    delay steps later                      θ^p = Outer(θ^p, mean Δ_i);  θ_i^p = θ^p + keep (θ_i^p - θ^p)

    Source: Streaming DiLoCo, arXiv 2501.18512, for delay, keep (its α) and fragments.

    keep  what is kept of a rank's own values at the end of an exchange, from 0 to 1.  With error feedback a
          change that was not sent is in the memory already, and what is kept of it is sent twice.  "delay"
          keeps what the steps since the exchange began have changed, and nothing else: if these are the
          values θ_i' there, θ_i^p = θ^p + θ_i^p - θ_i'
    """

    def __init__(
        self, fragments: Sequence[Fragment], schedule: Schedule, outer: Optimizer, keep: float | str = 0.0
    ) -> None:
        self.fragments, self.schedule, self.outer, self.keep = fragments, schedule, outer, keep
        self.steps = 0
        self.exchanged = 0  # the step whose exchanges are done; below ``steps`` if an interrupt came between

    def exchange(self) -> bool:
        """Begin and end the exchanges that are due, unless they are done; collective if there are any.

        Returns whether fragment 0, and with it a period of H steps, has ended.  If it is interrupted, call it
        again: what was done is not done twice.
        """
        if self.exchanged == self.steps:
            return False
        ending = [self.fragments[p] for p in self.schedule.end(self.steps)]
        for f in (self.fragments[p] for p in self.schedule.begin(self.steps)):
            if not self.schedule.delay:
                self._outer_step(f, f.aggregator(f.change()))
            elif not f.aggregator.pending:
                f.aggregator.begin(f.change())
        if self.schedule.delay:
            for f in ending:
                self._outer_step(f, f.aggregator.finish())
        self.exchanged = self.steps
        return self.fragments[0] in ending

    def restart(self) -> None:
        """Take the present values as those after the last exchange; they are the same on all ranks."""
        for f in self.fragments:
            f.start = f.tensors.values()

    @contextmanager
    def common(self) -> Iterator[None]:
        """In the ``with`` block the parameters are ``start``, the same on all ranks; then this rank's own."""
        own = [f.tensors.values() for f in self.fragments]
        try:
            for f in self.fragments:
                f.tensors.set_values(f.start)
            yield
        finally:
            for f, values in zip(self.fragments, own, strict=True):
                f.tensors.set_values(values)

    def _outer_step(self, fragment: Fragment, estimate: Any) -> None:
        """Let ``outer`` step from the fragment's start along ``estimate``, the mean of the ranks' changes."""
        tensors = fragment.tensors
        own = tensors.values()
        tensors.set_values(fragment.start)
        with _without_gradients(self._others(fragment)):
            tensors.set_gradients(estimate)
            self.outer.step()
        fragment.start = tensors.values()
        if isinstance(self.keep, str):  # DELAY
            tensors.set_values(fragment.start + (own - fragment.begun))
        elif self.keep:
            tensors.set_values(fragment.start + self.keep * (own - fragment.start))

    def _others(self, fragment: Fragment) -> list[nn.Parameter]:
        """All other parameters of ``outer``, which may have more than the optimiser has."""
        own = {id(p) for p in fragment.tensors.parameters}
        return [p for _, _, p in numbered(self.outer) if id(p) not in own]

    @property
    def start(self) -> torch.Tensor:
        """The parameters after each fragment's last exchange, the same on all ranks; shape (d,)."""
        return self._joined("start")

    def state(self) -> dict[str, Any]:
        """The number of local steps so far, and the fragments' ``start`` and ``begun``, by name.

        Call it after ``exchange``.
        """
        return {"local_steps": self.steps, "start": self.start, "begun": self._joined("begun")}

    def resume(self, local_steps: int, start: torch.Tensor, begun: torch.Tensor) -> None:
        """Go on from what ``state`` returned."""
        self.steps = self.exchanged = local_steps
        sizes = [f.tensors.parts.size for f in self.fragments]
        for f, *saved in zip(self.fragments, start.split(sizes), begun.split(sizes), strict=True):
            f.start, f.begun = (f.tensors.vector(f.tensors.empty().copy_(part)) for part in saved)

    def _joined(self, name: str) -> torch.Tensor:
        return torch.cat([f.tensors.tensor(getattr(f, name)) for f in self.fragments])


@contextmanager
def _without_gradients(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """In the ``with`` block the parameters have no gradients, so that an optimiser's step skips them."""
    kept = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    try:
        yield
    finally:
        for p, gradient in zip(parameters, kept, strict=True):
            p.grad = gradient


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


@contextmanager
def in_fragment(p: int, fragments: int) -> Iterator[None]:
    """In the ``with`` block, name fragment p in a ``ConfigError``, if there are several."""
    try:
        yield
    except ConfigError as error:
        if fragments == 1:
            raise
        raise ConfigError(
            f"fragment {p} of {fragments}: {error} Fewer fragments have more parameters each."
        ) from None


def warn_of_momentum(method: Method, outer: Optimizer) -> None:
    """Warn if ``outer`` has momentum and ``method`` has error feedback: both repeat earlier changes."""
    remembers = type(method).residual is not Method.residual
    if remembers and any(group.get("momentum") for group in outer.param_groups):
        warnings.warn(
            f"outer has momentum, and {type(method).__name__} sends later what it leaves out now: together "
            "they overshoot. Take torch.optim.SGD without momentum for outer; docs/torch.md has the losses.",
            stacklevel=4,
        )
