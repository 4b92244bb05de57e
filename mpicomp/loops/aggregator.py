"""``Aggregator``: the compressed mean of the workers' gradients, by one call in your own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from mpicomp import kernels
from mpicomp.averaging.sharded import Sharded
from mpicomp.base.arrays import Array
from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.keys import Key
from mpicomp.loops.early import Early
from mpicomp.loops.packing import Packing
from mpicomp.loops.resumable import Resumable
from mpicomp.loops.start import digest
from mpicomp.loops.stepping import NONE, SENT, SKIPPED, operation
from mpicomp.methods.base import Method
from mpicomp.methods.support.estimating import EstimatingMethod
from mpicomp.runtime.left_out import left_out
from mpicomp.text.config import as_method
from mpicomp.transports.calls import Operation


def as_estimating(method: Any) -> EstimatingMethod:
    """``method``, or that of a text.  Raises ``ConfigError`` for one that ``Aggregator`` does not take."""
    method = as_method(method)
    if not isinstance(method, EstimatingMethod):
        name = type(method).__name__ if isinstance(method, Method) else one_line(method)
        also = " chooses the points where gradients are taken" if isinstance(method, Method) else ""
        raise ConfigError(
            f"{name}{also or ' is no method'}; allowed: a method of the form x - γ g, such as EF21SGDM. "
            "For the others: mpicomp.Descent(method, x0)."
        )
    if method.elsewhere:
        raise ConfigError(
            f"{type(method).__name__} with {method.elsewhere} chooses the points where gradients are "
            "taken; allowed: a method that takes them at x. For others: mpicomp.Descent(method, x0)."
        )
    return method


class Aggregator(Resumable):
    """Estimate the mean gradient g over all workers, by a compressed method of the form x⁺ = x - γ g::

        agg = Aggregator(EF21SGDM(TopK(k=0.01), eta=0.1), like=x)
        for batch in batches:
            g = agg(gradient(x, batch))  # the same bits on every rank
            x -= lr * g

    You take the step yourself: any learning rate, schedule or optimiser.  With ``x -= γ * g`` in float64 the
    iterates x are those of ``mpicomp.run``, bit for bit.  The method's own step size is not used, and may be
    left at "theory".  (EF14 and Dore scale their memories by it; for them "theory" means 1.)

    ``method`` may be its text, as on the command line.  The options (workers, seed, comm, server, blocks,
    device, ..) are explained by: python -m pydoc mpicomp.loops.stepping.Stepping
    Raises ``ConfigError`` for a method of another form; ``Descent`` takes those.
    """

    def __init__(self, method: Method | str, like: Any, **options: Any) -> None:
        super().__init__(as_estimating(method), like, **options)
        # The method's own step is not used.
        self._play.books.advice = "The steps that your loop takes may be too large; or scale the gradients."

    def __call__(self, gradient: Any, at: Any = None) -> Any:
        """The estimate of the mean gradient, new arrays like ``like``; collective.

        gradient  this rank's gradient, arrays like ``like``; or a function that takes a point and returns the
                  gradient there; or an ``Objective``.  With ``workers=``: a dict with one of these for each
                  worker in ``hosted``
        at        the point x of this step, the same on all ranks; needed if ``gradient`` is a function.  In
                  the first call the ranks compare it

        Returns None if on_nonfinite="skip" leaves the step out.
        Raises ``ConfigError`` for wrong names, shapes or types, and if ranks train different x;
        ``DivergedError`` if a gradient is not finite: on every rank.  For a gradient at ``at``, no state has
        changed then, unless ``gradient`` is an ``Objective``, which the method calls in the middle of its
        step.  States may then have changed: ``load`` or ``restore`` a saved one before the next call.
        """
        return self._estimate() if self._step(gradient, at) else None

    @operation
    def begin(self, gradient: Any) -> None:
        """Begin a step whose messages travel while the program goes on; ``finish`` returns its estimate::

            agg.begin(g)
            ...  # work that needs no estimate
            g = agg.finish()

        gradient  arrays like ``like``; with ``workers=``, a dict of these by worker, as in a call.  Not a
                  function

        A thread compresses, sends and averages; results and bytes are those of a call.  Collective: the ranks
        compare their calls here.  Any other call on this object waits for the thread.

        Raises ``ConfigError`` and ``DivergedError`` as a call does; ``ConfigError`` also if a step is under
        way, after ``overlap``, with device="cuda", and if only one thread may call MPI.
        """
        if (reason := self._bound_to_one_thread()) is not None:
            raise ConfigError(f"begin sends in a thread, and {reason}: use agg(gradient) in its place.")
        taken = self._begin_step(gradient)
        self.pending = SENT if taken else SKIPPED
        if taken:
            self._background.start(self._play_step)

    def finish(self) -> Any:
        """Wait for the step that ``begin`` began; return its estimate, as a call does.

        Raises the step's own errors, on all ranks; ``ConfigError`` if no step is under way.
        """
        if self.pending == NONE:
            raise ConfigError("finish ends the step that begin has begun, and none is under way.")
        self._background.wait()  # if this is interrupted, the step is still under way
        pending, self.pending = self.pending, NONE
        self._background.finish()
        return self._estimate() if pending == SENT else None

    def _estimate(self) -> Any:
        g = self._play.replica.g
        kept = getattr(g, "shape", None), getattr(g, "dtype", None)
        if kept != ((self._packing.parts.size,), self._packing.dtype):  # of a user's method, on all ranks
            self._play.books.check()
        return self._packing.unpack(g)

    def _bound_to_one_thread(self) -> str | None:
        """The reason why a step cannot be sent in a thread, the same on all ranks; None if it can."""
        if self._early is not None:
            return "after overlap() blocks are sent during backward"
        if self.device is not None:
            return "with device='cuda' all work is done in one thread"
        return None if self.transport.any_thread else "this MPI is for one thread (no MPI_THREAD_MULTIPLE)"

    def holding(self, slices: Sequence[slice]) -> AbstractContextManager[None]:
        """In the ``with`` block, a step leaves out the coordinates in ``slices``, the same on all ranks.

        The gradients you give are 0 there, and the method's state there is kept.  A compressor that sends all
        coordinates sends zeros there.  Do not use the estimate there.  Raises ``ConfigError`` after
        ``overlap``, and for slices that are not within the vector.  In the block a step raises it for a
        gradient that is not 0 there, and saving or loading a state does.  On all ranks a step raises it, or
        ``MpicompError``, if they have other slices.
        """
        d = self._packing.parts.size
        if isinstance(slices, str) or not isinstance(slices, Iterable):
            raise ConfigError(f"holding was given {one_line(slices)}; allowed: slices in a list.")
        slices = [*slices]
        for where in slices:
            if not _is_within(where, d):
                raise ConfigError(
                    f"holding has {one_line(where)}; allowed: slices from 0 to {d}, such as slice(0, {d})."
                )
        return self._hold(slices)

    @contextmanager
    def _hold(self, slices: list[slice]) -> Iterator[None]:
        if self._early is not None:  # perhaps since ``holding`` was called
            raise ConfigError("holding leaves coordinates out of whole steps: it does not go with overlap().")
        with left_out(self._play, slices, self._background.wait), self._holding.block(slices):
            yield

    @operation
    def tell_all(self, number: int, asks: Operation = Operation.TELL) -> list[int]:
        """Gather a ``number`` below 2³² from each rank, in rank order; a single entry if all are equal.

        It belongs to the step that comes, which an error names.

        asks  what the ranks do with it: a rank that does something else meanwhile is named
        """
        self.transport.activity = f"step {self.steps}"
        checked = partial(as_integer, "number", number, least=0, most=2**32 - 1)
        return self._agreement.begin(asks, checked, self._drop_early)

    @operation
    def start(self, x: Any) -> Any:
        """Rank 0's x on every rank, new arrays like ``like``; collective.

        Call it before the first step if the ranks may have made different x, for example by random seeds.
        Raises ``ConfigError`` for wrong names, shapes or types.
        """
        own: list[Array] = []
        self._agreement.begin(Operation.START, lambda: own.append(self._packing.pack(x, "x")))
        told = self.transport.ask_server(lambda: kernels.to_host(own[0]))
        self._watch.settle()
        return self._packing.unpack(kernels.to_device(told))

    @operation
    def overlap(self, at_drop: Callable[[], None] | None = None) -> list[slice]:
        """Let each step send the gradient block by block, while backpropagation goes on; return the blocks.

        From now on, a step is ``bring`` for each block, from the last to the first, and then the call with
        the whole gradient; results and bytes are the same as without ``overlap``::

            blocks = agg.overlap()  # once; slices of the flat gradient, for server="sharded", blocks=8
            for b in reversed(range(len(blocks))):
                agg.bring(b, g[blocks[b]])  # as soon as backpropagation has this block
            estimate = agg(g)

        at_drop  called when a step of which blocks have been brought is given up

        Raises ``ConfigError`` unless server="sharded" has at least 2 blocks and each rank is one worker, for
        a method whose workers need more than one block of the gradient at a time, and in ``holding``.
        """
        if not (self.one_each and isinstance(self._play.averaging, Sharded)):
            raise ConfigError(
                "gradients leave block by block where each rank serves blocks and has one worker: "
                "server='sharded', blocks=2 or more, and no workers."
            )
        if self._holding:
            raise ConfigError("overlap() in agg.holding(..), which is for whole steps: use one of the two.")
        if self._early is None:  # a second one would not know the blocks that have been sent
            self._early = Early(self._play, self._play.averaging)
        if at_drop is not None:
            self._early.at_drop = at_drop
        return self._early.slices

    @operation
    def bring(self, block: int, gradient: Array) -> None:
        """Compress and send one block: this rank's gradient in slice number ``block`` of ``overlap``, 1-D.

        Call it for all blocks, from the last to the first.  Raises ``ConfigError`` for another order, and
        without ``overlap`` before.
        """
        if self._early is None:
            raise ConfigError("bring sends one of the blocks that overlap() returns: call overlap() first.")
        if not self._early.begun:
            self._early.begin(self._key())
        with self.together(told=True):
            self._early.bring(block, gradient)

    @operation
    def drop(self) -> None:
        """Give up the step of which some ranks have brought blocks, in place of the call that would end it.

        States stay as they were; the bytes sent are counted.  Collective.
        """
        self._agreement.begin(Operation.DROP, lambda: None)
        self._drop_early()

    def _take(self, gradient: Any, at: Any) -> int:
        if self.pending != NONE:
            raise ConfigError("a step that begin has begun is under way: finish() ends it.")
        taken = super()._take(gradient, at)
        for i in self.hosted:
            if (given := self._given[i].gradient) is not None:
                self._holding.check(i, given)
        return taken

    def _hash(self, like: Any) -> int:
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

    def _update(self, method: Method, replica: Any, broadcast: Any, key: Key) -> None:
        assert isinstance(method, EstimatingMethod)
        method.estimate(replica, broadcast, key)


def _is_within(where: Any, d: int) -> bool:
    """Whether ``where`` is a slice of whole numbers from 0 to d."""
    if not isinstance(where, slice) or where.step not in (None, 1):
        return False
    ends = where.start, where.stop
    return all(hasattr(end, "__index__") for end in ends) and 0 <= ends[0] <= ends[1] <= d
