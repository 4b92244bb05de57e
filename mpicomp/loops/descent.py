"""``Descent``: step any method from your own loop; ``point`` is where it needs the next gradient."""

from __future__ import annotations

from typing import Any, ClassVar

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import refuse_nonfinite
from mpicomp.loops.resumable import Resumable
from mpicomp.loops.stepping import operation
from mpicomp.methods.base import Method
from mpicomp.text.config import as_method
from mpicomp.transports.calls import Operation


class Descent(Resumable):
    """Run any method one step at a time; the method chooses the points at which you compute gradients::

        descent = Descent(AGD(gamma=0.1, mu=0), x0)
        for _ in range(100):
            descent.step(gradient(descent.point))
        x = descent.x

    The iterates are those of ``mpicomp.run`` from the same x0, bit for bit.  Give step sizes as numbers:
    "theory" needs constants of the problem, which are unknown here.  Some methods need gradients at other
    points than ``point``: ADIANA, LoCoDL, MARINA-P, M3 and 2Direction.  Others compare gradients of the same
    f_i at two points.  Give both a function: ``descent.step(gradient)``.

    ``method`` may be its text, as on the command line.  Rank 0's x0 is used on all ranks.  The options
    (workers, seed, comm, server, ..) are explained by: python -m pydoc mpicomp.loops.stepping.Stepping
    """

    _like: ClassVar[str] = "x0"

    def __init__(self, method: Method | str, x0: Any, **options: Any) -> None:
        method = as_method(method)
        if not isinstance(method, Method):
            raise ConfigError(f"{method!r} is no method; allowed: one such as AGD(gamma=0.1).")
        super().__init__(method, x0, **options)

    @property
    def point(self) -> Any:
        """The point at which the next step needs a gradient, new arrays like ``x0``."""
        with kernels.using(self.device):
            return self._packing.unpack(self._point())

    @property
    def x(self) -> Any:
        """The iterate, equal on all ranks, new arrays like ``x0``.

        For MARINA-P and M3 it is the last model that went to all workers.
        """
        return self._packing.unpack(self._play.x)

    @operation
    def model(self) -> Any:
        """The server's own model, of EF21-P, MARINA-P, M3 and MCM, which keep one, else ``x``; collective."""
        self._agreement.begin(Operation.MODEL, lambda: None)
        return self._packing.unpack(self._play.model_everywhere())

    def step(self, gradient: Any) -> bool:
        """Make one step of the method; collective.

        gradient  this rank's gradient at ``point``; or a function that takes a point and returns the
                  gradient there; or an ``Objective``.  With ``workers=``: a dict with one of these for each
                  worker in ``hosted``

        Returns False if on_nonfinite="skip" leaves the step out, else True.
        Raises ``ConfigError`` for wrong names, shapes or types, and ``DivergedError`` if a gradient is not
        finite: on every rank.  For a gradient at ``point``, no state has changed then, unless ``gradient`` is
        an ``Objective``.  For one at a later point states may have changed: load a saved one.
        """
        return self._step(gradient)

    def _start(self, like: Any) -> Array:
        own = self.transport.raise_on_all(lambda: self._packing.pack(like, "x0"))

        def checked() -> Array:
            refuse_nonfinite("x0", x0 := kernels.to_host(own))
            return x0

        return kernels.to_device(self.transport.ask_server(checked))
