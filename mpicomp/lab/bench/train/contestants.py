"""Ways to train on several ranks: torch's DistributedDataParallel, its hooks, its local SGD, and our methods.

They share the model, the batches, the learning rate, and the optimiser in the ranks: SGD with momentum 0.9,
or AdamW.  EF21-SGDM, Dion and 1-bit Adam have momentum of their own, and plain SGD with a multiple of the
learning rate; they do not train with AdamW.  Steps after local steps have a rate of their own, the outer
rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from mpicomp.compressors import BlockFloat, Identity, Lossless, Natural, QuantizedTopK, TopK, TwoMeans
from mpicomp.methods import (
    DCGD,
    EF14,
    EF21SGDM,
    EFSGD,
    Dion,
    DoubleSqueeze,
    Method,
    OneBitAdam,
    PowerSGD,
)
from mpicomp.torch import Compressed

MOMENTUM = 0.9
EVERY = 8  # steps from one exchange to the next, with local steps

Inner = Callable[[Iterable[nn.Parameter], float], Optimizer]  # (parameters, learning rate) -> optimiser


def _sgd(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)


INNER: dict[str, Inner] = {"sgd": _sgd, "adamw": torch.optim.AdamW}  # by their names in ``Ask``


class Trainer:
    """A model in training, one replica a rank.

    torch says nothing of the phases of a step and the bytes of messages, and keeps no second model.

    every  steps from one exchange to the next
    """

    model: nn.Module
    every: int
    _optimizer: Any

    def step(self, x: Tensor, y: Tensor) -> None:
        """One step on this rank's batch."""
        self._optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self._optimizer.step()

    def seconds(self) -> dict[str, float]:
        """This rank's seconds by phase so far; empty where they are not known."""
        return {}

    def common(self) -> AbstractContextManager[None]:
        """In the ``with`` block the model has the parameters that all ranks have in common."""
        return nullcontext()

    def payload(self) -> tuple[int, int]:
        """Bytes of messages so far, up and down, of all ranks, on rank 0; collective.  Zeros if not known."""
        return 0, 0


class TorchDDP(Trainer):
    """torch's DDP over gloo, with the given hook.

    one_bucket  all gradients in one bucket.  By default the first bucket is of 1 MiB, and where there is a
                second one the PowerSGD hook, which starts collectives in callbacks, may start them in another
                order on another rank
    """

    every = 1

    def __init__(
        self, model: nn.Module, lr: float, inner: Inner, hook: str | None = None, sync: bool = True
    ) -> None:
        one_bucket: dict[str, Any] = {"bucket_cap_mb": 1000} if hook == "powersgd" else {}
        self.model, self._ddp = model, DistributedDataParallel(model, **one_bucket)
        self._open: Callable[[], Any] = nullcontext if sync else self._ddp.no_sync
        if hook == "fp16":
            self._ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif hook == "powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            self._ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        self._optimizer = inner(model.parameters(), lr)

    def step(self, x: Tensor, y: Tensor) -> None:
        self._optimizer.zero_grad()
        with self._open():
            F.cross_entropy(self._ddp(x), y).backward()
        self._optimizer.step()


class TorchLocal(Trainer):
    """torch's local SGD: each rank steps for itself, ``PeriodicModelAverager`` averages the models over gloo.

    every  steps from one averaging to the next
    """

    def __init__(self, model: nn.Module, lr: float, inner: Inner, every: int) -> None:
        self.model, self.every = model, every
        self._optimizer = inner(model.parameters(), lr)
        # With these steps of "warm-up" the first averaging follows step ``every``, and not the first step.
        self._averager = PeriodicModelAverager(period=every, warmup_steps=every - 1)

    def step(self, x: Tensor, y: Tensor) -> None:
        super().step(x, y)
        self._averager.average_parameters(self.model.parameters())


class Ours(Trainer):
    """An optimiser of torch in ``Compressed``, with the mean gradient as ``method`` estimates it.

    every    steps of a rank's own from one exchange to the next, ``sync_every``
    outer    the settings of the outer SGD; None where each step is exchanged
    options  others of ``Compressed``
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: Optimizer,
        method: Method,
        every: int,
        outer: dict[str, Any] | None,
        **options: Any,
    ) -> None:
        self.model, self.every = model, every
        if outer is not None:
            options["outer"] = torch.optim.SGD(model.parameters(), **outer)
        self._optimizer = Compressed(optimiser, method, module=model, sync_every=every, **options)

    def seconds(self) -> dict[str, float]:
        return self._optimizer.seconds

    def common(self) -> AbstractContextManager[None]:
        return self._optimizer.common()

    def payload(self) -> tuple[int, int]:
        for one in self._optimizer.aggregators:
            one.settle()
        ledger = self._optimizer.ledger
        return int(np.sum(ledger.up)), int(np.sum(ledger.down))


Make = Callable[[nn.Module, float, float, Inner], Trainer]  # (model, learning rate, outer rate, optimiser)


@dataclass(frozen=True)
class Contestant:
    """A way to train, by name.

    side   "torch", "ours", or "floor": no communication, so its ranks' models differ
    timed  True if only its steps are timed, because another contestant trains in the same way
    outer  outer rates to choose from, the usual one first
    own    whether its steps are its method's own, whatever optimiser is asked for
    """

    label: str
    side: str
    trainer: Make
    timed: bool = False
    outer: tuple[float, ...] = (1.0,)
    own: bool = False

    @property
    def competes(self) -> bool:
        """Whether it trains to a target."""
        return self.side != "floor" and not self.timed


def _torch(**options: Any) -> Make:
    return lambda model, lr, _, inner: TorchDDP(model, lr, inner, **options)


def _ours(
    method: Method,
    every: int = 1,
    server: str = "sharded",
    times: float | None = None,
    outer_momentum: float = 0.0,
    **options: Any,
) -> Make:
    """Ours; with ``times`` by plain SGD with that multiple of the learning rate.

    outer_momentum  Nesterov's, of the steps after local steps
    """

    def make(model: nn.Module, lr: float, outer: float, inner: Inner) -> Trainer:
        settings = {"lr": outer, "momentum": outer_momentum, "nesterov": outer_momentum > 0}
        local = None if every == 1 else settings
        parameters = model.parameters()
        optimiser = inner(parameters, lr) if times is None else torch.optim.SGD(parameters, times * lr)
        return Ours(model, optimiser, method, every, local, server=server, **options)

    return make


_DENSE = DCGD(Identity(), gamma=1.0)
_TOP = TopK(k=0.01)
_EF21 = EF21SGDM(_TOP, gamma=1.0, eta=1 - MOMENTUM, start="compressed")
# With 1/η times the rate, steps as long as the others', EF21-SGDM diverges.
_TWICE = 2.0
_OF_ADAM = 0.02  # Adam's steps are as long whatever the gradient
_SQUEEZED = DoubleSqueeze(_TOP, down=_TOP, gamma=1.0)


def _of_bits(bits: int) -> DoubleSqueeze:
    return DoubleSqueeze(BlockFloat(bits), BlockFloat(bits), 1.0)


def _few_bits(k: float) -> QuantizedTopK:
    return QuantizedTopK(k=k, Q=TwoMeans())


_SPARSE_LOCO = EFSGD(_few_bits(0.03), 1.0, down=Lossless(forward=True), decay=0.95, average="senders")
_BOTH_WAYS = DoubleSqueeze(_few_bits(0.05), _few_bits(0.2), 1.0, decay=0.95, average="senders")
_DELAYED: dict[str, Any] = {"delay": 2, "keep": "delay"}
_LOCAL = f"every {EVERY} steps"


def _ef21(label: str, timed: bool = False, **options: Any) -> Contestant:
    """EF21-SGDM, which has a momentum of its own, by plain SGD with twice the learning rate."""
    return Contestant(label, "ours", _ours(_EF21, times=_TWICE, **options), timed, own=True)


def _diloco(label: str, method: Method) -> Contestant:
    """Local steps, then an outer one with momentum."""
    trainer = _ours(method, EVERY, outer_momentum=MOMENTUM)
    return Contestant(label, "ours", trainer, outer=(0.7, 0.5, 0.3))


def _sparse(label: str, method: Method, **options: Any) -> Contestant:
    """Local steps, then an outer one without momentum, of SparseLoCo's rates."""
    return Contestant(label, "ours", _ours(method, EVERY, **options), outer=(0.7, 0.5, 1.0))


CONTESTANTS = [
    Contestant("no communication", "floor", _torch(sync=False)),
    Contestant("DDP", "torch", _torch()),
    Contestant("DDP, fp16 hook", "torch", _torch(hook="fp16")),
    Contestant("DDP, PowerSGD hook, rank 2", "torch", _torch(hook="powersgd")),
    Contestant(
        f"local SGD, {_LOCAL}", "torch", lambda model, lr, _, inner: TorchLocal(model, lr, inner, EVERY)
    ),
    Contestant("dense", "ours", _ours(_DENSE)),
    Contestant("Natural", "ours", _ours(DCGD(Natural(), gamma=1.0))),
    Contestant("EF14, TopK 1 %", "ours", _ours(EF14(_TOP, gamma=1.0))),
    _ef21("EF21-SGDM, TopK 1 %"),
    _ef21("EF21-SGDM, TopK 1 %, overlapped", timed=True, overlap=True),
    _ef21("EF21-SGDM, TopK 1 %, by the root", timed=True, server="shared"),
    Contestant("DoubleSqueeze, TopK 1 %", "ours", _ours(_SQUEEZED)),
    Contestant("DoubleSqueeze, TopK 1 %, overlapped", "ours", _ours(_SQUEEZED, overlap=True), True),
    Contestant("PowerSGD, rank 2", "ours", _ours(PowerSGD(r=2, gamma=1.0))),
    Contestant(
        "PowerSGD, rank 2, by Allreduce", "ours", _ours(PowerSGD(r=2, gamma=1.0), server="allreduce"), True
    ),
    Contestant(f"dense, {_LOCAL}", "ours", _ours(_DENSE, EVERY)),
    Contestant(f"DoubleSqueeze, {_LOCAL}", "ours", _ours(_SQUEEZED, EVERY)),
    _diloco(f"DiLoCo, {_LOCAL}", _DENSE),
    _diloco(f"DiLoCo, 8 bits both ways, {_LOCAL}", _of_bits(8)),
    _diloco(f"DiLoCo, 4 bits both ways, {_LOCAL}", _of_bits(4)),
    _sparse(f"SparseLoCo, {_LOCAL}", _SPARSE_LOCO),
    _sparse(f"SparseLoCo, {_LOCAL}, delayed by 2", _SPARSE_LOCO, **_DELAYED),
    _sparse(f"SparseLoCo, {_LOCAL}, delayed by 2, in 2 fragments", _SPARSE_LOCO, fragments=2, **_DELAYED),
    _sparse(f"SparseLoCo both ways, {_LOCAL}", _BOTH_WAYS),
    _sparse(f"SparseLoCo both ways, half ahead, {_LOCAL}", _BOTH_WAYS, ahead=0.5),
    _sparse(f"SparseLoCo both ways, {_LOCAL}, delayed by 2", _BOTH_WAYS, **_DELAYED),
    Contestant("Dion, rank 1/4", "ours", _ours(Dion(r=0.25, gamma=1.0), times=0.2), own=True),
    Contestant("1-bit Adam", "ours", _ours(OneBitAdam(warmup=80, gamma=1.0), times=_OF_ADAM), own=True),
]
