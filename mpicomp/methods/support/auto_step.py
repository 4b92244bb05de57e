"""``gamma="auto"``: the server sets the step size in every round, by slopes of f that the workers send.

Every worker adds a number to its message, and the server adds one to its broadcast::

    worker i   sends a slope a_i of f_i too, 1 to 9 bytes (``support.fixed_point``)
    server     sets γ by mean a_i, and broadcasts γ too, 2 bytes
    all        x^{k+1} = x^k - γ g^k

s_i^k is the gradient at x^k that the method asks for anyway, on all samples or on a batch.  With full
gradients a_i = <s_i^k, g^{k-1}>/|g^{k-1}|², the slope along the last step (``support.control``).  Where
estimates are noisy (``Method.noisy``), a_i = <s_i^k, x^0 - x^k>/(|x^k - x^0| |g^{k-1}|), the slope towards
x^0, whose noise averages out (``support.distance``).  The a_i may be far larger than their mean: they have an
absolute precision.  In round 0 a worker sends log2(|s_i^0|/max(1, |x^0|)) in place of a slope; the first γ is
1/100 of the inverse of the mean of these lengths.  Noisy estimates may be 0 at first, if no worker takes
part or none draws a coordinate that counts; so workers send such lengths until x has moved.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import field, fields, make_dataclass
from functools import cache
from math import nan
from typing import Any, ClassVar

from mpicomp.base.errors import ConfigError
from mpicomp.codecs.messages import Natural, Short, short
from mpicomp.kernels import add_scaled
from mpicomp.keys import Key
from mpicomp.methods.base import Accumulator, Method
from mpicomp.methods.parameters import is_auto
from mpicomp.methods.support.control import StepControl
from mpicomp.methods.support.distance import DistanceControl
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.methods.support.fixed_point import of_natural, to_natural
from mpicomp.methods.support.recording import Recording, dot, norm
from mpicomp.problems.objective import Objective


def with_auto_step(method: Method) -> Method:
    """The method as it plays rounds: ``method`` itself, unless its step size is "auto"."""
    if not is_auto(method.step):
        return method
    adapting = copy(method)
    object.__setattr__(adapting, "__class__", _adapting(type(method), method.noisy))
    return adapting


@cache
def _adapting(method: type[Method], noisy: bool) -> type[Method]:
    """The subclass of a method's class whose messages carry slopes and step sizes."""
    control = DistanceControl if noisy else StepControl
    _refuse_clashes(method, "Server", {f.name for f in fields(control)})
    _refuse_clashes(method, "Up", {"slope"})
    _refuse_clashes(method, "Down", {"gamma"})
    members: dict[str, Any] = {
        "plain": method,
        "Server": make_dataclass("Server", [], bases=(control, method.Server)),
        "Up": make_dataclass("Up", [("slope", Natural, field(default=Natural(0)))], bases=(method.Up,)),
        "Down": make_dataclass("Down", [("gamma", Short, field(default=Short(nan)))], bases=(method.Down,)),
    }
    if not noisy:
        return type(method.__name__, (_ByTheLastStep, method), members)
    _refuse_clashes(method, "Replica", {"origin", "moved", "length"})
    for record in ("Server", "Worker"):
        _refuse_clashes(method, record, {"origin"})  # which ``starts_at_x0`` names
    more = [("moved", float, field(default=0.0)), ("length", float, field(default=0.0))]
    members["Replica"] = make_dataclass("Replica", ["origin", *more], bases=(method.Replica,), kw_only=True)
    members["starts_at_x0"] = (*method.starts_at_x0, "origin")
    return type(method.__name__, (_ByTheDistance, method), members)


def _refuse_clashes(method: type[Method], record: str, added: set[str]) -> None:
    """Raise ``ConfigError`` if a record of the method has a field with a name in ``added``."""
    for name in sorted(added & {f.name for f in fields(getattr(method, record))}):
        raise ConfigError(
            f"{method.__name__}.{record} has a field {name}, a name that gamma='auto' needs: give the field "
            "another name, or the step size as a number."
        )


class _AutoStep(EstimatingMethod):
    """The steps of a method with the step size "auto": those of its own class ``plain``, and γ."""

    plain: ClassVar[Any]

    @abstractmethod
    def begins(self, r: Any, key: Key) -> bool:
        """Whether workers send log2 of a length in the round of ``key``, in place of a slope."""

    @abstractmethod
    def slope(self, recording: Recording, r: Any) -> float:
        """The slope that a worker sends."""

    @abstractmethod
    def adapt(self, control: Any, slope: float, r: Any) -> None:
        """Set the next γ of ``control`` by the mean of the slopes."""

    def worker_step(self, w: Any, r: Any, f: Objective, key: Key) -> Any:
        recording = Recording(f, self.point(r, key))
        up = self.plain.worker_step(self, w, r, recording, key)
        number = recording.log_size() if self.begins(r, key) else self.slope(recording, r)
        return self.Up(**_values(up) | {"slope": to_natural(number)})

    def server_step(self, s: Any, r: Any, key: Key) -> Accumulator:
        return _Adapting(self, s, r, self.plain.server_step(self, s, r, key), self.begins(r, key))

    def received(self, broadcast: Any, r: Any, key: Key) -> Any:
        return self.Down(**_values(super().received(broadcast, r, key)) | {"gamma": broadcast.gamma})

    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        self.estimate(r, broadcast, key)
        add_scaled(r.x, r.g, -broadcast.gamma)

    def paper_bits(self, up: Any, d: int, key: Key) -> int:
        return self.plain.paper_bits(self, up, d, key) + 32

    def paper_bits_down(self, broadcast: Any, d: int, key: Key) -> int:
        return self.plain.paper_bits_down(self, broadcast, d, key) + 32


class _ByTheLastStep(_AutoStep):
    """γ follows the slope along the last step."""

    def begins(self, r: Any, key: Key) -> bool:
        return key.round == 0

    def slope(self, recording: Recording, r: Any) -> float:
        return recording.slope(r.g, dot(r.g, r.g))

    def adapt(self, control: Any, slope: float, r: Any) -> None:
        control.update(slope)


class _ByTheDistance(_AutoStep):
    """γ follows the slope towards x^0; the replica has x^0 too, |x - x^0| and |g|."""

    def begins(self, r: Any, key: Key) -> bool:
        return r.moved == 0

    def slope(self, recording: Recording, r: Any) -> float:
        return recording.slope(r.origin - r.x, r.moved * r.length)

    def adapt(self, control: Any, slope: float, r: Any) -> None:
        control.update(slope, r.moved, r.length)

    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        super().replica_step(r, broadcast, key)
        r.moved, r.length = norm(r.x - r.origin), norm(r.g)


class _Adapting(Accumulator):
    """The server step of ``method``, which takes the workers' slopes too, and adds γ to the broadcast."""

    def __init__(self, method: _AutoStep, control: Any, r: Any, step: Accumulator, begins: bool) -> None:
        self._method, self._control, self._replica, self._step = method, control, r, step
        self._begins = begins
        self._sum, self._count = 0.0, 0

    def take(self, key: Key, up: Any) -> None:
        self._step.take(key, up)
        number = of_natural(up.slope)
        if self._begins:
            number = 2.0 ** min(number, 1023.0)  # which may be infinite
        self._sum += number
        self._count += 1

    def flush(self) -> None:
        self._step.flush()

    def close(self) -> Any:
        down, mean = self._step.close(), self._sum / self._count if self._count else nan
        if self._begins:
            self._control.begin(mean)
        else:
            self._method.adapt(self._control, mean, self._replica)
        return self._method.Down(**_values(down) | {"gamma": short(self._control.gamma)})


def _values(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}
