"""Choose how to train over a link: whole or 8-bit gradients, local steps (whole or 4 bits), or SparseLoCo."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from sys import float_info
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from mpicomp.base.checks import as_integer, plain_value
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import human_bytes, human_time, one_line, parse_rate
from mpicomp.compressors import BlockFloat, Identity, QuantizedTopK, TwoMeans
from mpicomp.methods import DCGD, DoubleSqueeze
from mpicomp.methods.base import Method
from mpicomp.torch.alike import numbered
from mpicomp.torch.optimiser import Compressed

EVERY = 8  # local steps
SERVER: dict[str, Any] = {"server": "sharded"}  # every rank averages its share, so all links are equally busy
EIGHT_BITS, FOUR_BITS = (DoubleSqueeze(BlockFloat(bits=b), BlockFloat(bits=b)) for b in (8, 4))


def _sparse_loco(up: float, down: float) -> DoubleSqueeze:
    """SparseLoCo both ways; ``up`` and ``down`` of the change, as signs with two magnitudes."""
    C, D = (QuantizedTopK(k=k, Q=TwoMeans()) for k in (up, down))
    return DoubleSqueeze(C, D, decay=0.95, average="senders")


SPARSE_LOCO = _sparse_loco(0.05, 0.2)  # more of a mean is worth sending than of one rank's change
FEWER_BYTES = _sparse_loco(0.02, 0.06)
NEGLIGIBLE = 0.05  # of the time: an exchange that takes less is not worth compressing
# DiLoCo's outer steps; of the rates 0.2, 0.3, 0.5, 0.7 and 1 the best in docs/results/local-steps.md.
NESTEROV = {"lr": 0.3, "momentum": 0.9, "nesterov": True}
AT_A_CONSTANT_RATE = (
    "The outer momentum is for a constant learning rate: where that decays, leave outer out, which adds the "
    "mean change (docs/results/local-steps.md)."
)
HALF_AHEAD: dict[str, Any] = {"ahead": 0.5}  # of 0, 0.25, 0.5 and 1 the best on that transformer
PLAIN = {"lr": 0.7}  # SparseLoCo's outer steps; of 0.5, 0.7 and 1 the best on a transformer there; 1 on a CNN


@dataclass(frozen=True)
class Recipe:
    """A method and options for training, with the reasons for their choice.

    method   the method that averages gradients or changes
    options  options of ``Compressed``: the server, and the settings of local steps
    outer    the settings of the outer SGD; None without local steps
    reasons  one sentence each
    """

    method: Method
    options: dict[str, Any]
    outer: dict[str, Any] | None
    reasons: tuple[str, ...]

    def compressed(self, optimiser: Optimizer, module: nn.Module, **options: Any) -> Compressed:
        """Put ``optimiser`` in a ``Compressed`` by this recipe.

        The outer optimiser has the parameters of ``optimiser`` that need gradients.  ``options`` are further
        ones of ``Compressed``, or others in the place of the recipe's.
        """
        local = dict(self.options)
        if self.outer is not None and isinstance(optimiser, Optimizer):  # Compressed refuses others
            trained = [p for _, _, p in numbered(optimiser) if p.requires_grad]
            local["outer"] = torch.optim.SGD(trained, **self.outer) if trained else None
        return Compressed(optimiser, self.method, module=module, **local | options)

    def __str__(self) -> str:
        local = "".join(f", {name}={value!r}" for name, value in self.options.items())
        settings = "".join(f", {name}={value!r}" for name, value in (self.outer or {}).items())
        outer = f", outer=torch.optim.SGD(model.parameters(){settings})" if settings else ""
        reasons = "".join(f"\n* {reason}" for reason in self.reasons)
        return f"Compressed(optimiser, {self.method!r}, module=model{local}{outer}){reasons}"


def recipe(model: nn.Module, *, link: str, step_seconds: float, ranks: int = 4) -> Recipe:
    """Recommend how to train ``model`` on ``ranks`` hosts, each with a link of rate ``link`` both ways.

    link          the rate, such as "100mbit" or "10gbit"
    step_seconds  the time of a training step without communication

    Returns a ``Recipe``: print it for the call of ``Compressed`` and the reasons.

    The time of an exchange is the bytes through a rank's link over the rate; each rank averages its blocks
    of the coordinates.  The recipe is the first of these whose exchange takes at most 5 % of the time of the
    steps between two exchanges:

    * whole gradients in each step;
    * gradients of 8 bits in each step, in both directions, with error feedback.  They ended where whole
      gradients did in five programs (docs/training.md);
    * whole changes of the parameters, every 8 steps, with outer momentum;
    * changes of 4 bits, in both directions, every 8 steps.  They ended within 0.006 nats of whole changes at
      the same rates, constant with outer momentum and decaying without (a transformer of 120,576 parameters,
      docs/results/local-steps.md);
    * SparseLoCo, every 8 steps, compressed up and down, half ahead.  At a rate that decays its loss was 0.007
      nats below to 0.003 above that of the best whole changes (the same transformer).

    If even SparseLoCo's exchange takes longer, its messages travel during as many of the next steps as they
    need, at most 4; if 4 are too few, 2 % go up and 6 % down, 2.3 times fewer bytes, and the loss was 0.02
    to 0.03 nats higher.
    Raises ``ConfigError`` for a number that is not positive, and for parameters without a shape.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model is {one_line(model)}; allowed: a torch Module.")
    if not isinstance(link, str):
        raise ConfigError(f'link is {one_line(link)}; allowed: a text such as "100mbit".')
    step_seconds = plain_value(step_seconds)
    given = isinstance(step_seconds, int | float) and not isinstance(step_seconds, bool)
    if not given or not 0 < step_seconds <= float_info.max:
        raise ConfigError(f"step_seconds is {one_line(step_seconds)}; allowed: a positive number.")
    ranks, step_seconds = as_integer("ranks", ranks), float(step_seconds)
    for name, p in model.named_parameters():
        if is_lazy(p):
            raise ConfigError(f"parameter {name!r} has no shape yet: call the model once before recipe.")
    d = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if not d:
        raise ConfigError("the model has no parameter that needs a gradient.")
    bits = parse_rate(link)

    def seconds(nbytes: float) -> float:
        """The time through a rank's link of messages of ``nbytes``, up and down together."""
        return 8 * nbytes * (ranks - 1) / ranks / bits

    def sizes(method: DoubleSqueeze) -> tuple[float, float]:
        """The mean bytes of a message, up and down."""
        return method.C.mean_nbytes(d, ranks), method.down.mean_nbytes(d, ranks)

    dense = seconds(2 * 4 * d)
    told = (
        f"{d} parameters in float32 take {human_time(dense)}, up and down, between {ranks} hosts with "
        f"links of {link}, and a step takes {human_time(step_seconds)}."
    )
    if dense <= NEGLIGIBLE * step_seconds:
        return Recipe(DCGD(Identity()), SERVER, None, (told, "That is below 5 % of a step: nothing to gain."))
    up, down = sizes(EIGHT_BITS)
    eight = seconds(up + down)
    if eight <= NEGLIGIBLE * step_seconds:
        why = f"In 8 bits, {human_bytes(up)}, it is {human_time(eight)}, below 5 % of a step."
        return Recipe(EIGHT_BITS, SERVER, None, (told, why))
    local = SERVER | {"sync_every": EVERY}
    if dense <= NEGLIGIBLE * EVERY * step_seconds:
        why = f"That is below 5 % of {EVERY} steps: whole changes every {EVERY} steps, as in DiLoCo."
        return Recipe(DCGD(Identity()), local, NESTEROV, (told, why, AT_A_CONSTANT_RATE))
    up, down = sizes(FOUR_BITS)
    four = seconds(up + down)
    if four <= NEGLIGIBLE * EVERY * step_seconds:
        why = f"In 4 bits, {human_bytes(up)}, it is {human_time(four)}, below 5 % of {EVERY} steps."
        return Recipe(FOUR_BITS, local, NESTEROV, (told, why, AT_A_CONSTANT_RATE))
    local |= HALF_AHEAD
    for method in (SPARSE_LOCO, FEWER_BYTES):
        up, down = sizes(method)
        sparse = seconds(up + down)
        if sparse <= EVERY // 2 * step_seconds:
            break
    size = f"about {human_bytes(up)} up and {human_bytes(down)} down"
    reasons = [told, f"SparseLoCo's messages, {size}, take {human_time(sparse)}."]
    if sparse > NEGLIGIBLE * EVERY * step_seconds:
        local |= {"delay": ceil(min(sparse / step_seconds, EVERY // 2)), "keep": "delay"}
        reasons.append(
            f"That is above 5 % of {EVERY} steps: they travel during {local['delay']} of the steps."
        )
    return Recipe(method, local, PLAIN, tuple(reasons))
