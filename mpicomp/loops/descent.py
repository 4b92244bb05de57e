"""A method in a user's own loop, which says where it wants gradients."""

from __future__ import annotations

from typing import Any, ClassVar

from mpicomp import kernels
from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import refuse_nonfinite
from mpicomp.compressors.base import Array
from mpicomp.loops.resumable import Resumable
from mpicomp.loops.stepping import operation
from mpicomp.methods.base import Method
from mpicomp.text.config import as_method
from mpicomp.transports.calls import Operation


class Descent(Resumable):
    """Any method, step by step; it chooses the points at which gradients are taken::

        descent = Descent(AGD(gamma=0.1, mu=0), x0)
        for _ in range(100):
            descent.step(gradient(descent.point))
        x = descent.x

    The iterates are those of ``mpicomp.run`` from the same x0, bit for bit.  Step sizes are numbers, for
    "theory" has no constants here.  ADIANA and 2Direction, which take gradients at two points in one step,
    and the methods that compare gradients of one f_i need a function: ``descent.step(gradient)``.

    ``method`` may be its text, as on the command line.  x0 is rank 0's.  For the other arguments see
    ``Stepping``.
    """

    _like: ClassVar[str] = "x0"

    def __init__(self, method: Method | str, x0: Any, **options: Any) -> None:
        method = as_method(method)
        if not isinstance(method, Method):
            raise ConfigError(f"{method!r} is no method; allowed: one such as AGD(gamma=0.1).")
        super().__init__(method, x0, **options)

    @property
    def point(self) -> Any:
        """Where the next step asks for a gradient, new arrays like ``x0``."""
        with kernels.using(self.device):
            return self._packing.unpack(self._point())

    @property
    def x(self) -> Any:
        """The iterate, as every rank holds it; new arrays like ``x0``."""
        return self._packing.unpack(self._play.x)

    @operation
    def model(self) -> Any:
        """The server's own model, for the methods that keep one (EF21-P, MCM), else ``x``; collective."""
        self._agreement.begin(Operation.MODEL, lambda: None)
        if self.method.model is None:
            return self.x
        own = self._play.model()
        told = self.transport.ask_server(lambda: kernels.to_host(own))
        return self._packing.unpack(kernels.to_device(told))

    def step(self, gradient: Any) -> bool:
        """One step; collective.

        gradient  this rank's gradient at ``point``; or a function that takes a point and returns the
                  gradient there, or an ``Objective``.  With ``workers=``: a dict of them, for each worker in
                  ``hosted``

        Returns False where on_nonfinite="skip" leaves the step out.
        Raises ``ConfigError`` for wrong names, shapes or types, and ``DivergedError`` if a gradient is not
        finite: on every rank, before any state changes.
        """
        return self._step(gradient)

    def _start(self, like: Any) -> Array:
        own = self.transport.raise_on_all(lambda: self._packing.pack(like, "x0"))

        def checked() -> Array:
            refuse_nonfinite("x0", x0 := kernels.to_host(own))
            return x0

        return kernels.to_device(self.transport.ask_server(checked))
