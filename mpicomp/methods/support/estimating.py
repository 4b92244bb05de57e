"""Methods that step along an estimate of the mean gradient: x^{k+1} = x^k - γ g^k."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.kernels import add_scaled
from mpicomp.keys import Key
from mpicomp.methods.base import Method


@dataclass
class Estimate:
    """The replica of a method that keeps nothing but the iterate and the estimate on every rank."""

    x: Array
    g: Array


@dataclass
class TwoPoints(Estimate):
    """The replica of a method whose workers ask for gradients at the iterate before x, too."""

    previous: Array


class EstimatingMethod(Method):
    """A method whose messages update an estimate g^k of the mean gradient; x then takes a step along -g^k.

    ``Replica`` has the fields x and g.  The estimate does not depend on the rule of the step: an
    ``Aggregator`` returns g, and the user's own optimiser takes the step.
    """

    Replica: ClassVar[type] = Estimate
    elsewhere: ClassVar[str] = ""  # the option by which gradients are asked for elsewhere than at x, if any

    @property
    def steps_plainly(self) -> bool:
        kind = type(self)
        steps = kind.replica_step, kind.ends_step
        return steps == (EstimatingMethod.replica_step, Method.ends_step)

    @abstractmethod
    def estimate(self, r: Any, broadcast: Any, key: Key) -> None:
        """Update ``r.g`` to g^k from the broadcast; ``r.x`` stays.  Every rank calls this."""

    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        before = (r.x, r.x.copy()) if self.of_ones_own else None
        self.estimate(r, broadcast, key)
        if before is not None and _differs(r.x, *before):
            raise ConfigError(
                f"{type(self).__name__}.estimate changes x, or puts another array into r.x. The step x - γ g "
                "follows it, so it has to leave both alone: give a copy another name, as in x = r.x.copy(); "
                "for another step, define replica_step."
            )
        if self.ends_step(r, key):
            add_scaled(r.x, r.g, -self.step)  # x^{k+1} = x^k - γ g^k


class TwoPointEstimate(EstimatingMethod):
    """A method whose workers ask for gradients at x^k and at x^{k-1}; its other base has ``estimate``."""

    Replica: ClassVar[type] = TwoPoints
    needs_function: ClassVar[bool] = True  # at two points

    def estimate(self, r: Any, broadcast: Any, key: Key) -> None:
        super().estimate(r, broadcast, key)  # type: ignore[safe-super]
        r.previous[:] = r.x


def _differs(x: Array, same: Array, value: Array) -> bool:
    """Whether x is another array than ``same``, or has another number than ``value`` in an entry."""
    return x is not same or bool(((x != value) & (x == x)).any())
