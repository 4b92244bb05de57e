"""``Compressed``: a torch optimiser that steps with the compressed mean gradient of all workers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mpicomp.base.checks import as_integer, check_switch
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
from mpicomp.torch.fragments import Fragment, Schedule, cut, in_fragment, seed_of
from mpicomp.torch.late import LateBackward
from mpicomp.torch.local_settings import (
    as_ahead,
    as_keep,
    check_local_steps,
    warn_of_length,
    warn_of_momentum,
)
from mpicomp.torch.local_steps import LocalSteps
from mpicomp.torch.opening import with_group
from mpicomp.torch.overlap import Overlap, release
from mpicomp.torch.parameters import named, trained
from mpicomp.torch.stateful import Stateful
from mpicomp.torch.tensors import Tensors


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
        kinds = (
            ("optimiser", optimiser, Optimizer),
            ("module", module, nn.Module),
            ("outer", outer, Optimizer),
        )
        for name, given, kind in kinds:
            if not isinstance(given, kind) and (given is not None or name == "optimiser"):
                raise ConfigError(f"{name} is {one_line(given)}; allowed: a torch {kind.__name__}.")
        if isinstance(optimiser, Compressed) or isinstance(outer, Compressed):
            raise ConfigError(
                "a Compressed around a Compressed averages twice; allowed: an optimiser of torch."
            )
        check_switch("overlap", overlap)
        check_options(options, Compressed.__init__)
        method, options = as_estimating(method), with_group(options | {"group": group})
        sync_every = as_integer("sync_every", sync_every)
        schedule, keep = Schedule(sync_every, delay, fragments), as_keep(keep)
        ahead = as_ahead(ahead, method, keep)
        if sync_every > 1:
            check_local_steps(method, workers, overlap, options)
        elif outer is not None or keep != 0 or ahead:
            raise ConfigError("outer, keep and ahead are for local steps: give sync_every too.")
        self.start_after = as_integer("start_after", start_after, least=0)
        without_closure = [outer, optimiser if sync_every == 1 or start_after else None]
        if any(isinstance(one, torch.optim.LBFGS) for one in without_closure):
            raise ConfigError("LBFGS calls a closure in its step; allowed: optimisers such as SGD and AdamW.")
        if start_after and (overlap or method.needs_function):
            why = "overlap" if overlap else f"{type(method).__name__}, which compares gradients at two points"
            raise ConfigError(f"start_after does not go with {why}: leave it out.")
        self.inner = optimiser
        self._tensors = Tensors(trained(optimiser, module))
        self._known = {id(p) for p in self._tensors.parameters}
        if outer is not None and not self._known <= {id(p) for _, _, p in numbered(outer)}:
            raise ConfigError("outer lacks some of the optimiser's parameters: give it the same ones.")
        pieces = [self._tensors]
        if fragments > 1:
            pieces = [Tensors(one, self._tensors.parts) for one in cut(trained(optimiser, module), fragments)]
        local: dict[str, object] = {"sync_every": sync_every, "delay": delay, "keep": keep}
        local |= {"fragments": fragments, "start_after": self.start_after}
        # Ranks with others would make other calls.
        pieces[0].settings = local | {
            "ahead": ahead,
            "overlap": overlap,
            "module": None if module is None else "given",
        }
        with in_fragment(0, fragments):
            self.aggregator = Aggregator(method, pieces[0], workers=workers, **options)
        self.aggregator.add_to_config(**local | ({"ahead": ahead} if ahead else {}))  # older states lack it
        self.aggregators = [self.aggregator]
        for p, tensors in enumerate(pieces[1:], 1):
            own = options | seed_of(p, options)
            with in_fragment(p, fragments):
                self.aggregators.append(Aggregator(method, tensors, workers=workers, **own))
        self._whole, self._compared = None, [self._tensors]
        if start_after:
            stepped = Tensors(trained(optimiser, module))  # by the inner optimiser, also with local steps
            stepped.optimiser = optimiser
            self._compared.append(stepped)
            self._whole = Aggregator(DCGD(Identity()), stepped, workers=workers, **options)
            self.aggregators.append(self._whole)
        t = self.aggregator.transport
        refuse_alone(t, options.get("comm"))
        if t.is_server:
            warn_of_ddp(module)
        if module is None:
            warn_of_buffers(self._tensors.parameters, t)
        else:
            share(named(optimiser, module), t)
        self.buffers = Buffers(module, t, options.get("server") == "dedicated")
        self.outer = outer
        self.local = None
        if sync_every > 1:
            self.outer = outer or torch.optim.SGD(self._tensors.parameters, lr=1.0)
            exchanged = [Fragment(*pair, ahead) for pair in zip(pieces, self.aggregators, strict=False)]
            if t.is_server:
                warn_of_momentum(exchanged, self.outer)
                if outer is None:
                    warn_of_length(method)
            self.local = LocalSteps(exchanged, schedule, self.outer, keep)
        for tensors in pieces:
            tensors.optimiser = self.outer or optimiser
        self._brought, self._lacking, self._ready = {}, {}, None
        release(self._known)
        self._overlap = Overlap(self._tensors, self.aggregator) if overlap else None
        self._clipping = ClippingWatch(self._tensors.parameters, t)
        self._late = LateBackward(self._tensors.parameters)
        start = "give module=model, which shares rank 0's, or seed torch alike on all ranks."
        # Compared in the first step too, as the program may set values until then.
        self._outside = Outside(self._tensors.parameters, optimiser)
        self._compare(start, self._optimisers, self._tensors.parameters)

    def __repr__(self) -> str:
        return f"Compressed({self.inner!r}, {self.aggregator.method!r})"
