"""A communication hook for torch's DistributedDataParallel.

DDP reads the annotations of ``hook`` as classes, so here they are not put off.
"""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from mpicomp.base.errors import ConfigError
from mpicomp.config import as_method
from mpicomp.embedded.aggregator import Aggregator
from mpicomp.methods.base import Method
from mpicomp.torch.alike import refuse_alone
from mpicomp.torch.tensors import Tensors


class Hook:
    """The state of ``hook``: a method at work on the gradients of all parameters::

        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(mpicomp.torch.Hook(method), mpicomp.torch.hook)

    options  those of ``Aggregator``, but not workers: a rank is a worker; nor on_nonfinite="skip": torch's
             optimiser steps whatever the hook gives, and on a gradient of zeros its momentum still moves the
             parameters.  ``Compressed`` takes both

    DDP hands over gradients in buckets, which it makes anew after the first step.  What the method remembers
    belongs to parameters, not to buckets, so nothing is lost.  The messages leave when the last bucket is
    there.  Raises ``ConfigError`` for these two options.
    """

    def __init__(self, method: Method | str, **options: Any) -> None:
        if options.get("workers") is not None:
            raise ConfigError(
                f"workers={options['workers']!r} in a hook of DDP, where each rank is a worker. Leave "
                "workers out, or take mpicomp.torch.Compressed in place of DDP."
            )
        if options.get("on_nonfinite") == "skip":
            raise ConfigError(
                "on_nonfinite='skip' in a hook of DDP; allowed: 'raise', as a hook cannot keep the optimiser "
                "from its step. mpicomp.torch.Compressed in place of DDP leaves the step out on all ranks."
            )
        self._method, self._options = as_method(method), options
        self._buckets: list[tuple[list[Tensor], list[Tensor], Tensor, Future[Tensor]]] = []
        self._aggregator: Aggregator | None = None
        self._tensors: Tensors | None = None
        self._to_load: str | Path | None = None

    @property
    def aggregator(self) -> Aggregator:
        """What compresses, from the first step on; it has the ``ledger``."""
        if self._aggregator is None:
            raise RuntimeError("the hook knows the parameters from the first backward on.")
        return self._aggregator

    @property
    def parameters(self) -> list[Any]:
        """The parameters in the order in which DDP gave their gradients first."""
        return [] if self._tensors is None else self._tensors.parameters

    def save(self, folder: str | Path) -> None:
        """Save what the method remembers, of all ranks, between two steps; collective."""
        self.aggregator.save(folder)

    def load(self, folder: str | Path) -> None:
        """Go on, from the next step, with what ``save`` saved, on as many ranks; collective.

        DDP has the options that it had then: the order of its buckets in the first step names the parameters.
        The parameters are known in the first step alone, so ``folder`` is read in the next step.  Its
        ``backward`` raises ``RecordError``, on all ranks, if what was saved is damaged, or of another method,
        seed, model or number of ranks.
        """
        self._to_load = folder

    def take(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """One bucket of this step; its future is fulfilled after the last."""
        future: Future[Tensor] = Future()
        self._buckets.append((bucket.parameters(), bucket.gradients(), bucket.buffer(), future))
        if bucket.is_last():
            self._aggregate()
        return future

    def _aggregate(self) -> None:
        gradients: dict[Any, Tensor] = {
            p: g
            for parameters, theirs, _, _ in self._buckets
            for p, g in zip(parameters, theirs, strict=True)
        }
        if self._tensors is None:
            self._tensors = Tensors({str(i): p for i, p in enumerate(gradients)})
            self._aggregator = Aggregator(self._method, self._tensors, **self._options)
            refuse_alone(self._aggregator.transport)
        if self._to_load is not None:
            self.aggregator.load(self._to_load)
            self._to_load = None
        own = [gradients.get(p) for p in self._tensors.parameters]
        estimate = self.aggregator(self._tensors.gradient(own))
        for p, g in zip(self._tensors.parameters, self._tensors.views(estimate), strict=True):
            if p in gradients:
                gradients[p].copy_(g)
        buckets, self._buckets = self._buckets, []
        for _, _, buffer, future in buckets:
            future.set_result(buffer)


def hook(state: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The compressed mean of the gradients in ``bucket``, for ``register_comm_hook``."""
    return state.take(bucket)
