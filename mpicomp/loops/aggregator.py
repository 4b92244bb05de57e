"""The mean of the workers' gradients, compressed: one call in a user's own loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from mpicomp import kernels
from mpicomp.averaging.sharded import Sharded
from mpicomp.base.errors import ConfigError
from mpicomp.compressors.base import Array
from mpicomp.keys import Key
from mpicomp.loops.early import Early
from mpicomp.loops.packing import Packing
from mpicomp.loops.resumable import Resumable
from mpicomp.loops.start import digest
from mpicomp.loops.stepping import operation
from mpicomp.methods.base import Method
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.runtime.held import held
from mpicomp.text.config import as_method
from mpicomp.transports.calls import Operation


class Aggregator(Resumable):
    """An estimate g of the mean gradient, by a method of the form x - γ g::

        agg = Aggregator(EF21SGDM(TopK(k=0.01), eta=0.1), like=x)
        for batch in batches:
            g = agg(gradient(x, batch))  # the same bits on every rank
            x -= lr * g

    The step is the caller's: any learning rate, schedule or optimiser.  With ``x -= γ * g`` in float64 the x
    are those of ``mpicomp.run``, bit for bit.  The method's own step size is not used, and may be left at
    "theory"; EF14 and Dore have it in their memories, and take 1 for "theory".

    ``method`` may be its text, as on the command line.  For the other arguments see ``Stepping``.
    """

    def __init__(self, method: Method | str, like: Any, **options: Any) -> None:
        method = as_method(method)
        if not isinstance(method, EstimatingMethod):
            name = type(method).__name__ if isinstance(method, Method) else repr(method)
            also = " chooses the points where gradients are taken" if isinstance(method, Method) else ""
            raise ConfigError(
                f"{name}{also or ' is no method'}; allowed: a method of the form x - γ g, such as EF21SGDM. "
                "For the others: mpicomp.Descent(method, x0)."
            )
        super().__init__(method, like, **options)

    def __call__(self, gradient: Any, at: Any = None) -> Any:
        """The estimate of the mean gradient, new arrays like ``like``; collective.

        gradient  this rank's gradient, arrays like ``like``; or a function that takes a point and returns the
                  gradient there, or an ``Objective``.  With ``workers=``: a dict of them, for each worker in
                  ``hosted``
        at        the point x of this step, the same on all ranks; needed for functions.  The first one
                  is compared

        Returns None where on_nonfinite="skip" leaves the step out.
        Raises ``ConfigError`` for wrong names, shapes or types, and if ranks train different x;
        ``DivergedError`` if a gradient is not finite: on every rank, before any state changes.
        """
        return self._packing.unpack(self._play.replica.g) if self._step(gradient, at) else None

    def holding(self, slices: Sequence[slice]) -> AbstractContextManager[None]:
        """In its ``with`` block, a step leaves out the coordinates in ``slices``, the same on all ranks.

        Gradients are 0 there, nothing is sent of them, and what the method remembers of them stays.  The
        estimate there is not to be used.  Raises ``ConfigError`` after ``overlap``.
        """
        if self._early is not None:
            raise ConfigError("holding leaves coordinates out of whole steps: it does not go with overlap().")
        return held(self._play, slices)

    @operation
    def tell_all(self, number: int) -> list[int]:
        """Each rank's ``number``, below 2³², in rank order, or one where they are alike; collective."""
        return self._agreement.begin(Operation.TELL, lambda: number)

    @operation
    def start(self, x: Any) -> Any:
        """Rank 0's x on every rank, new arrays like ``like``; collective.

        Where ranks have made x each for itself, by seeds of their own or from a file on one host.
        Raises ``ConfigError`` for wrong names, shapes or types.
        """
        own: list[Array] = []
        self._agreement.begin(Operation.START, lambda: own.append(self._packing.pack(x, "x")))
        told = self.transport.ask_server(lambda: kernels.to_host(own[0]))
        self._watch.settle()
        return self._packing.unpack(kernels.to_device(told))

    @operation
    def overlap(self) -> list[slice]:
        """Have gradients leave block by block, before the call that takes the whole; returns the blocks.

        From now on each step is ``bring`` for each block, from the last to the first, and then the call with
        the whole gradient.  Results and bytes are as without.
        Raises ``ConfigError`` unless every rank serves its share and has one worker, and for a method whose
        workers need more than a block of the gradient at a time.
        """
        if not (self.one_each and isinstance(self._play.averaging, Sharded)):
            raise ConfigError(
                "gradients leave block by block where each rank serves blocks and has one worker: "
                "server='sharded', shards=2 or more, and no workers."
            )
        self._early = Early(self._play, self._play.averaging)
        return self._early.slices

    @operation
    def bring(self, block: int, gradient: Array) -> None:
        """Compress and send this rank's gradient in the slice ``overlap()[block]`` of the vector.

        The blocks are brought in the order from the last to the first; any other is a ``ConfigError``, and so
        is a block without ``overlap`` before.
        """
        if self._early is None:
            raise ConfigError("bring sends one of the blocks that overlap() returns: call overlap() first.")
        if not self._early.begun:
            self._early.begin(self._key())
        self._early.bring(block, gradient)

    def _values(self, like: Any) -> int:
        if isinstance(like, Packing):  # its maker compares what it stands for
            return 0
        with kernels.using(self.device):
            return digest(self._packing.pack(like))

    def _place(self, at: Any, functions: bool) -> None:
        if at is not None:
            self._play.replica.x[:] = self._packing.pack(at, "at")
        elif functions:
            raise ConfigError("a function of x needs the point of this step: agg(function, at=x).")

    def _resolve(self, method: Method, packing: Packing, n: int) -> Method:
        if isinstance(method.step, str):
            method = method.with_step(1.0)
        return super()._resolve(method, packing, n)

    def _follow(self, method: Method, replica: Any, broadcast: Any, key: Key) -> None:
        assert isinstance(method, EstimatingMethod)
        method.estimate(replica, broadcast, key)
