"""``Compressed``: a torch optimiser that steps with the compressed mean gradient of all workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.compressors import Identity
from mpicomp.loops.aggregator import Aggregator, as_estimating
from mpicomp.loops.stepping import check_options
from mpicomp.methods import DCGD
from mpicomp.methods.base import Method
from mpicomp.torch.alike import numbered, refuse_alone
from mpicomp.torch.buffers import Buffers, share, warn_of_buffers
from mpicomp.torch.clipping import ClippingWatch
from mpicomp.torch.comparing import Outside
from mpicomp.torch.ddp import warn_of_ddp
from mpicomp.torch.fragments import Fragment, cut, in_fragment, seed_of
from mpicomp.torch.late import LateBackward
from mpicomp.torch.local_steps import LocalSteps
from mpicomp.torch.local_warnings import warn_of_length, warn_of_momentum
from mpicomp.torch.opening import with_group
from mpicomp.torch.overlap import Overlap, release
from mpicomp.torch.parameters import named, trained, warn_of_another_model
from mpicomp.torch.stateful import Stateful
from mpicomp.torch.tensors import Tensors
from mpicomp.torch.timing import Timing
from mpicomp.torch.wrapping import refuse_own_steps


class Compressed(Stateful):
    """A torch optimiser that steps with the compressed mean gradient of all workers in place of its own::

        opt = Compressed(torch.optim.AdamW(model.parameters(), lr=1e-3), method, module=model)
        loss(model, batch).backward()  # this rank's batch
        opt.step()

    It is an ``Optimizer``, so learning-rate schedules and parameter groups work with it.  ``GradScaler`` does
    too, but not with ``sync_every`` above 1 or ``overlap``.

    optimiser   a torch optimiser whose step needs no closure.  Do not add parameters to it, or unfreeze any,
                afterwards
    method      a method for ``Aggregator``, or its text
    module      the model.  At the start its parameters and buffers, and all parameters of ``optimiser``, are
                set to rank 0's.  In each step its buffers, such as BatchNorm's running means, are set to
                worker 0's, as in torch's DDP.  None: parameters that differ between ranks raise
                ``ConfigError``, and buffers cause a warning
    workers     the number of workers; None: each rank is one.  If it is given, call for each worker i in
                ``hosted``: ``zero_grad``, backward of the loss of worker i, ``collect(i)``.  Then ``step``
    sync_every  H: the optimiser takes H local steps, and then the change of the parameters is averaged.  The
                parameters go back to where they were, and ``outer`` steps along the change (as in DiLoCo)
    outer       a torch optimiser that has at least the trained parameters of ``optimiser``.  None: SGD with
                lr=1
    delay       with ``sync_every``: the local steps from the start of an exchange to its end, fewer than
                sync_every // fragments.  The messages travel meanwhile; see ``mpicomp.torch.local_steps``
    keep        with ``sync_every``: the share, from 0 to 1, of a rank's own values that stays at the end of
                an exchange; or "delay": keep only what the steps during the exchange have changed
    ahead       with ``sync_every`` and error feedback, EFSGD or DoubleSqueeze: the share, from 0 to 1, of the
                change a rank has not sent yet that its parameters keep after an exchange
    fragments   with ``sync_every``: cut the parameters into so many fragments, which are exchanged in turn,
                each every H steps.  Each has an Aggregator of its own
    start_after the number of first steps that average whole gradients, as DDP does; then ``method`` begins
    overlap     compress and send each block of the gradient as soon as backward has it.  It needs
                server="sharded", one worker on each rank, and one backward for each step.  Results are the
                same as without, but for parameters that no worker uses in a step: these have the gradient 0.
                Do not change gradients between backward and ``aggregate``
    group       the process group of torch.distributed whose ranks take part, in place of ``comm``; None: all
                ranks that mpirun has started, or, without an MPI launcher, those of the default group
    options     the other options of ``Aggregator``: seed, comm, server, blocks, device, cuda_aware,
                stall_timeout, verify_bytes and on_nonfinite

    With device="cuda" parameters on a GPU stay there; without it, their gradients are copied to the host and
    the estimate is copied back.
    Parameters that need no gradient are left out.  One that no worker uses in a step is left alone, as by the
    optimiser itself, and the method's state for it is kept until its next gradient.  float16 and bfloat16
    gradients are averaged in float32.
    The constructor, ``step`` and ``aggregate`` are collective: all ranks call them together.
    """

    def __init__(
        self,
        optimiser: Optimizer,
        method: Method | str,
        *,
        module: nn.Module | None = None,
        workers: int | None = None,
        sync_every: int = 1,
        outer: Optimizer | None = None,
        delay: int = 0,
        keep: float | str = 0.0,
        ahead: float = 0.0,
        fragments: int = 1,
        start_after: int = 0,
        overlap: bool = False,
        group: Any = None,
        **options: Any,
    ) -> None:
        _check_optimisers(optimiser, module, outer)
        check_options(options, Compressed.__init__)
        method, options = as_estimating(method), with_group(options, group)
        timing = Timing(sync_every, delay, keep, ahead, fragments, start_after, overlap)
        timing.check(method, optimiser, outer, workers, options)
        parameters = trained(optimiser, module)
        self.inner, self.start_after = optimiser, timing.start_after
        self._tensors = Tensors(parameters)
        self._known = {id(p) for p in self._tensors.parameters}
        if outer is not None and not self._known <= {id(p) for _, _, p in numbered(outer)}:
            raise ConfigError("outer lacks some of the optimiser's parameters: give it the same ones.")
        pieces = [self._tensors]
        if fragments > 1:
            pieces = [Tensors(one, self._tensors.parts) for one in cut(parameters, fragments)]
        # Ranks with others would make other calls.
        pieces[0].settings = asdict(timing) | {"module": None if module is None else "given"}
        self.aggregators = []
        for p, tensors in enumerate(pieces):
            seeded = options | (seed_of(p, options) if p else {})
            with in_fragment(p, fragments):
                self.aggregators.append(Aggregator(method, tensors, workers=workers, **seeded))
        self.aggregator = self.aggregators[0]
        self.aggregator.add_to_config(**timing.facts())
        self._whole, self._compared = None, [self._tensors]
        if start_after:
            stepped = Tensors(parameters)  # by the inner optimiser, also with local steps
            stepped.optimiser = optimiser
            self._compared.append(stepped)
            self._whole = Aggregator(DCGD(Identity()), stepped, workers=workers, **options)
            self.aggregators.append(self._whole)
        refuse_alone(self.aggregator.transport, options.get("comm"))
        self._share_model(module, options.get("server") == "dedicated")
        self.outer, self.local = outer, None
        if timing.local:
            self.outer = outer or torch.optim.SGD(self._tensors.parameters, lr=1.0)
            own = zip(pieces, self.aggregators, strict=False)  # without that of the first steps
            exchanged = [Fragment(*pair, timing.ahead) for pair in own]
            if self.aggregator.transport.is_server:
                warn_of_momentum(exchanged, self.outer)
                if outer is None:
                    warn_of_length(method)
            self.local = LocalSteps(exchanged, timing.schedule(), self.outer, timing.keep)
        for tensors in pieces:
            tensors.optimiser = self.outer or optimiser
        self._brought, self._lacking, self._ready = {}, {}, None
        self._watch(overlap)

    def _share_model(self, module: nn.Module | None, dedicated: bool) -> None:
        """Set all parameters and buffers to rank 0's; without ``module`` warn of buffers.  Collective."""
        t = self.aggregator.transport
        if t.is_server:
            warn_of_ddp(module)
            warn_of_another_model(self.inner, module)
        if module is None:
            warn_of_buffers(self._tensors.parameters, t)
        else:
            share(named(self.inner, module), t)
        self.buffers = Buffers(module, t, dedicated)

    def _watch(self, overlap: bool) -> None:
        """Watch the parameters from now on, and compare them between the ranks; collective."""
        parameters = self._tensors.parameters
        release(self._known)
        self._overlap = Overlap(self._tensors, self.aggregator) if overlap else None
        self._clipping = ClippingWatch(parameters, self.aggregator.transport)
        self._late = LateBackward(parameters)
        # Compared in the first step too, as the program may set values until then.
        self._outside = Outside(parameters, self.inner)
        start = "give module=model, which shares rank 0's, or seed torch alike on all ranks."
        frozen_too = [p for _, _, p in numbered(self.inner) if not (p.is_meta or is_lazy(p))]
        self._compare(start, self._optimisers, frozen_too)
        if self.aggregator.transport.ranks > 1:  # last: a program may go on without what was refused
            refuse_own_steps(self.inner, self.aggregator.at_close)

    def __repr__(self) -> str:
        return f"Compressed({self.inner!r}, {self.aggregator.method!r})"


def _check_optimisers(optimiser: Any, module: Any, outer: Any) -> None:
    """Raise ``ConfigError`` for other objects than torch's, and for a ``Compressed`` within another."""
    kinds = (("optimiser", optimiser, Optimizer), ("module", module, nn.Module), ("outer", outer, Optimizer))
    for name, given, kind in kinds:
        if not isinstance(given, kind) and (given is not None or name == "optimiser"):
            raise ConfigError(f"{name} is {one_line(given)}; allowed: a torch {kind.__name__}.")
    if isinstance(optimiser, Compressed) or isinstance(outer, Compressed):
        raise ConfigError("a Compressed around a Compressed averages twice; allowed: an optimiser of torch.")
