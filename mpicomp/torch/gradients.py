"""Take the workers' gradients, and put the estimate of their mean in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from zlib import crc32

import torch
from torch import nn

from mpicomp.averaging.ledger import Ledger
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.units import shortened
from mpicomp.loops.aggregator import Aggregator
from mpicomp.torch.alike import numbered
from mpicomp.torch.buffers import Buffers
from mpicomp.torch.clipping import ClippingWatch, warn_of_frozen
from mpicomp.torch.comparing import Comparing
from mpicomp.torch.late import LateBackward
from mpicomp.torch.overlap import Overlap
from mpicomp.torch.tensors import Tensors
from mpicomp.torch.unused import unused_by_all
from mpicomp.transports.calls import Operation

Closure = Callable[..., Any]
_UNUSED, _CHANGED = 1, 2  # flags of a rank: some parameters have no gradient; the program has changed some


class Gradients(Comparing):
    """The gradients of an optimiser's parameters, averaged by an ``Aggregator``.

    aggregator   that of the gradients; with several fragments, of the first one's change
    aggregators  that of each fragment, and last that of the first steps, if there are any
    _whole       the Aggregator of the first ``start_after`` steps, or None
    _compared    the packings whose gradients ``step`` takes
    _known       the parameters that are averaged, by id
    _brought     gradients by worker
    _lacking     by worker, the numbers of the parameters that its backward has not used
    _ready       whether there is an estimate that ``step`` has not used yet
    """

    aggregators: list[Aggregator]
    buffers: Buffers
    start_after: int
    _compared: list[Tensors]
    _whole: Aggregator | None
    _known: set[int]
    _brought: dict[int, Array]
    _lacking: dict[int, set[int]]
    _ready: bool | None
    _overlap: Overlap | None
    _clipping: ClippingWatch
    _late: LateBackward

    @property
    def _begun(self) -> bool:
        """Whether the first steps, which average whole gradients, are over."""
        whole = self._whole
        return whole is None or whole.steps + whole.skipped >= self.start_after

    @property
    def hosted(self) -> range:
        """The workers whose gradients this rank computes."""
        return self.aggregator.hosted

    @property
    def ledger(self) -> Ledger:
        """The bytes of the messages so far; bytes of buffers are in ``buffers.nbytes``.

        With server="sharded" rank 0's has those of all ranks only after ``settle()`` of each of
        ``aggregators``, or after ``mpicomp.torch.save``.
        """
        return Ledger.sum([one.ledger for one in self.aggregators])

    @property
    def seconds(self) -> dict[str, float]:
        """This rank's seconds by phase; see ``Aggregator``."""
        total: Counter[str] = Counter()
        for one in self.aggregators:
            total.update(one.seconds)
        return dict(total)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._forget()  # an estimate that was not stepped with is gone too
        if len(self._brought) in (0, len(self.hosted)):  # a step begins
            self.buffers.begin()
        self._clipping.forget()
        self.inner.zero_grad(set_to_none)

    def lacking(self, model: nn.Module) -> list[str]:
        """The names of the parameters that are averaged and are not in ``model``."""
        there = {id(p) for p in model.parameters()}
        pairs = zip(self._tensors.parts.parts, self._tensors.parameters, strict=True)
        return [part.name for part, p in pairs if id(p) not in there]

    @torch.compiler.disable
    def collect(self, worker: int) -> None:
        """Take the present gradients, p.grad, as those of ``worker``.

        Raises ``ConfigError`` if this rank does not host it, or for a gradient that would not be averaged.
        """
        if worker not in self.hosted:
            raise ConfigError(f"worker {worker} is not hosted here; allowed: {shortened(self.hosted)}.")
        self._refuse_others()
        if self._overlap is None:
            self._brought[worker] = self._own_gradient()
            self._lacking[worker] = self._tensors.without_gradient()
        elif hasattr(self, "grad_scale"):
            raise ConfigError("GradScaler scales gradients that have left already: leave overlap out.")
        else:
            self._brought[worker] = self._overlap.whole()
        self.buffers.collect(worker)

    @torch.compiler.disable
    def aggregate(self) -> bool:
        """Replace the gradients by the estimate of their mean over all workers, for ``step`` to use.

        Call it to change the mean before the step, for example to clip it; else ``step`` does it.  After a
        further backward ``step`` averages anew.  A second call does nothing if no rank has changed a
        gradient.  Returns False if the step is left out.  Collective.

        Raises ``ConfigError`` with ``sync_every`` above 1, and for a method that needs gradients at points of
        its own choice: such a method takes ``step(closure)``.
        """
        if self._ready is not None:  # sending the mean again would drop what was sent
            untouched = not self._brought and self._late.untouched
            if all(self.aggregator.tell_all(int(untouched))):
                return self._ready
        ready = self._average()
        self._late.watch()
        return ready

    def _average(self) -> bool:
        if self.local is not None and self._begun:
            raise ConfigError("with sync_every, step aggregates the change of the parameters: no aggregate.")
        if self.aggregator.method.needs_function:
            name = type(self.aggregator.method).__name__
            raise ConfigError(f"{name} compares gradients at two points: opt.step(closure).")
        if self.aggregator.one_each and self.hosted:
            self.collect(self.hosted.start)
        first = not (self._whole or self.aggregator).steps  # later p.grad is the estimate
        if first and not self.hosted and any(p.grad is not None for p in self._tensors.parameters):
            self.aggregator.warn_of_left_out()
        return self._aggregate(dict(self._brought), None)

    def _note_step(self) -> None:
        """Note that a step is taken, and with which gradients, for the next call to compare between ranks."""
        for tensors in self._compared:
            tensors.taken = crc32(self._late.changes(), tensors.taken + 1)

    def _forget(self) -> None:
        """Forget the estimate, so that ``step`` averages the gradients that are there then."""
        self._ready = None
        self._late.forget()

    def _evaluate(self, closure: Closure | None) -> Any:
        """Average the gradients that ``closure`` computes or, without one, the present ones."""
        if closure is None:
            self._average()
            return None
        losses: dict[int, Any] = {}  # of the workers here, at the point of this step

        def evaluate(i: int) -> None:
            with torch.enable_grad():
                loss = closure() if self.aggregator.one_each else closure(i)
            losses.setdefault(i, loss)

        if self.aggregator.method.needs_function:
            self._aggregate_functions(evaluate, losses)
        else:
            self.buffers.begin()
            for i in self.hosted:
                evaluate(i)
                if not self.aggregator.one_each:
                    self.collect(i)
            self._average()
        return next(iter(losses.values()), None) if self.aggregator.one_each else list(losses.values())

    def _aggregate_functions(self, evaluate: Callable[[int], None], losses: dict[int, Any]) -> None:
        """Let the method ask for gradients at points of its choice; ``evaluate`` makes those of a worker."""
        here = self._tensors.values()

        def gradient(i: int, point: Array) -> Array:
            self._tensors.set_values(point)
            first = i not in losses
            evaluate(i)
            self._refuse_others()
            found = self._own_gradient()
            if first:
                self.buffers.collect(i)
            self.buffers.rewind()  # each point, on any number of ranks, has those of the step's start
            return found

        self.buffers.begin(always=True)

        try:
            self._aggregate({i: partial(gradient, i) for i in self.hosted}, here)
        finally:
            self._tensors.set_values(here)
        self._outside.note()  # the method has moved the parameters, and back
        self.buffers.restore()

    def _aggregate(self, gradient: Any, at: Array | None) -> bool:
        aggregator = self.aggregator if self._begun or self._whole is None else self._whole
        with aggregator.together():
            unused = self._meet(aggregator)
            estimate = self._estimate(aggregator, gradient, at, unused)
            self._brought.clear()
            self._lacking.clear()
            self.buffers.step()
        if estimate is not None:
            self._tensors.set_gradients(estimate, self._tensors.frozen().union(unused))
        self._ready = estimate is not None
        self._outside.note()
        return self._ready

    def _estimate(self, aggregator: Aggregator, gradient: Any, at: Array | None, unused: list[int]) -> Any:
        """The estimate of the mean of the gradients; None if the step is left out."""
        try:
            if self.aggregator.one_each:
                gradient = next(iter(gradient.values()), None)  # none on a rank that is the server only
            with aggregator.holding([self._tensors.slices[j] for j in unused]) if unused else nullcontext():
                return aggregator(gradient, at)
        except DivergedError:
            # GradScaler takes what is not finite for a scale too large; a step that ended half-way is lost.
            if not (hasattr(self, "grad_scale") and aggregator.sound):
                raise
            aggregator.skipped += 1
            return None

    def _meet(self, aggregator: Aggregator) -> list[int]:
        """Begin a step on all ranks: the numbers of the parameters that no worker has used, with p.grad None.

        [] with ``overlap``, where their blocks have left as zeros, and if the method asks for gradients.
        Raises ``ConfigError``, on all ranks, if the program has made the ranks' parameters different.
        """
        own: set[int] = set()
        if self._overlap is None and not self.aggregator.method.needs_function:
            own = set(range(len(self._tensors.parameters))).intersection(*self._lacking.values())
        flags = _UNUSED * bool(own) | _CHANGED * self._outside.changed
        told = aggregator.tell_all(flags, Operation.USED)
        if any(number & _CHANGED for number in told):
            try:
                self._compare_again(self._tensors.parameters)
            except ConfigError:
                if self._overlap is not None:
                    aggregator.drop()
                raise
        if not all(number & _UNUSED for number in told):
            return []
        return unused_by_all(own, aggregator.transport)

    def _go_on(self) -> None:
        """Go on from a state that was loaded on all ranks; gradients of before are no part of it."""
        self._forget()
        self._brought.clear()
        self._lacking.clear()
        fragments = [] if self.local is None else self.local.fragments
        for tensors in [*self._compared, *(f.tensors for f in fragments)]:
            tensors.taken = 0
        self.buffers.restart()
        self._outside.forget()

    def _refuse_others(self) -> None:
        """Raise ``ConfigError`` for a gradient that is not averaged: ranks would get other parameters.

        Gradients of frozen parameters are left out, with a warning unless they are 0.
        """
        # In local steps, after ``start_after``, the inner optimiser steps along every gradient that it finds.
        steps_alone = self.local is not None and self._begun
        for i, j, p in numbered(self.inner):
            known = id(p) in self._known
            if p.grad is None or (known and (p.requires_grad or steps_alone)):
                continue
            if p.requires_grad:
                raise ConfigError(
                    f"parameter {j} of group {i} has a gradient; when Compressed was made, it was not in the "
                    "optimiser or needed none. Make Compressed anew after such a change."
                )
            warn_of_frozen(f"parameter {j} of group {i}", p.grad)
            if not known:
                p.grad = None  # of before it was frozen

    def _own_gradient(self) -> Array:
        """The present gradient as a vector, shape (d,), divided by the scale of a GradScaler."""
        self._clipping.look()
        gradient = self._tensors.gradient()
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            gradient *= 1.0 / float(scale)
        return gradient
