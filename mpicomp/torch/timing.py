"""``Timing``: when the ranks of a ``Compressed`` average, and the share of its own that each keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from mpicomp.base.checks import as_integer, check_switch, plain_value
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.methods.base import Method
from mpicomp.methods.support.memory import MemoryMethod
from mpicomp.torch.fragments import Schedule

DELAY = "delay"  # a value of ``keep``


@dataclass(frozen=True)
class Timing:
    """The arguments of ``Compressed`` by these names.  Raises ``ConfigError`` for values of another kind."""

    sync_every: int
    delay: int
    keep: float | str
    ahead: float
    fragments: int
    start_after: int
    overlap: bool

    def __post_init__(self) -> None:
        check_switch("overlap", self.overlap)
        numbers = {
            "sync_every": as_integer("sync_every", self.sync_every),
            "keep": _as_keep(self.keep),
            "ahead": _as_share("ahead", self.ahead, "a number from 0 to 1"),
            "start_after": as_integer("start_after", self.start_after, least=0),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        self.schedule()  # which checks the others

    def schedule(self) -> Schedule:
        """The local steps at which exchanges begin and end."""
        return Schedule(self.sync_every, self.delay, self.fragments)

    @property
    def local(self) -> bool:
        """Whether the ranks take local steps."""
        return self.sync_every > 1

    def facts(self) -> dict[str, object]:
        """The settings by name that a saved state must have been made with."""
        names = ("sync_every", "delay", "keep", "fragments", "start_after")
        facts: dict[str, object] = {name: getattr(self, name) for name in names}
        return facts | ({"ahead": self.ahead} if self.ahead else {})  # older states lack it

    def check(
        self,
        method: Method,
        optimiser: Optimizer,
        outer: Optimizer | None,
        workers: int | None,
        options: dict[str, Any],
    ) -> None:
        """Raise ``ConfigError`` unless the settings go with the other arguments of ``Compressed``."""
        self._check_ahead(method)
        if self.local:
            self._check_local_steps(method, workers, options)
        elif outer is not None or self.keep != 0 or self.ahead:
            raise ConfigError("outer, keep and ahead are for local steps: give sync_every too.")
        without_closure = [outer, optimiser if self.start_after or not self.local else None]
        if any(isinstance(one, torch.optim.LBFGS) for one in without_closure):
            raise ConfigError("LBFGS calls a closure in its step; allowed: optimisers such as SGD and AdamW.")
        if self.start_after and (self.overlap or method.needs_function):
            name = type(method).__name__
            why = "overlap" if self.overlap else f"{name}, which compares gradients at two points"
            raise ConfigError(f"start_after does not go with {why}: leave it out.")

    def _check_ahead(self, method: Method) -> None:
        if self.ahead and not isinstance(method, MemoryMethod):
            raise ConfigError(
                "ahead is a share of a memory that is added to the next message, and "
                f"{type(method).__name__} keeps none; allowed with EFSGD and DoubleSqueeze."
            )
        if self.ahead and self.keep not in (0, DELAY):
            raise ConfigError(
                f"ahead does not go with keep={self.keep}, which also keeps what is in the memory; allowed: "
                '0 or "delay".'
            )

    def _check_local_steps(self, method: Method, workers: int | None, options: dict[str, Any]) -> None:
        if workers is not None:
            raise ConfigError("sync_every takes local steps, which need a rank each: leave workers out.")
        if method.needs_function:
            raise ConfigError(f"sync_every: {type(method).__name__} compares gradients at two points.")
        if self.overlap:
            raise ConfigError("overlap sends gradients, and sync_every sends none: give one of the two.")
        if options.get("on_nonfinite") == "skip":
            raise ConfigError(
                "on_nonfinite='skip' with sync_every: the ranks decide after the local steps, when momenta "
                "are not finite either. Leave it out; opt.zero_grad() before opt.step() leaves a bad local "
                "step out."
            )


def _as_keep(keep: Any) -> float | str:
    if isinstance(keep, str) and keep == DELAY:
        return keep
    return _as_share("keep", keep, 'a number from 0 to 1, or "delay"')


def _as_share(name: str, value: Any, allowed: str) -> float:
    number = plain_value(value)
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1:
        return float(number)
    raise ConfigError(f"{name} is {one_line(value)}; allowed: {allowed}.")
