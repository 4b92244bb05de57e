"""Warn if gradients are clipped before they are averaged."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from mpicomp.transports import Transport


class ClippingWatch:
    """Warn once if gradients are changed between backward and ``step``, as by ``clip_grad_norm_``.

    Such clipping acts on the gradient of each worker, and not on their mean.  Only the smallest parameter is
    checked, on the rank of worker 0, so the check costs some microseconds a step.  A division by an integer
    raises no warning: it may be the number of accumulated batches, or a scale.
    """

    def __init__(self, parameters: list[nn.Parameter], transport: Transport) -> None:
        self._made: tuple[int, int, Tensor] | None = None  # the gradient as backward left it
        self._watched: nn.Parameter | None = None
        if transport.n > 1 and 0 in transport.hosted:
            self._watched = min(parameters, key=lambda p: p.numel())
            self._handle = self._watched.register_post_accumulate_grad_hook(self._note)

    def _note(self, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        if gradient is not None and gradient.layout is torch.strided:
            self._made = gradient.data_ptr(), gradient._version, _first(gradient)

    def forget(self) -> None:
        """Forget the noted gradient, because the gradients were cleared."""
        self._made = None

    def look(self) -> None:
        """Warn if the gradient to be averaged is not the one that backward left."""
        made, self._made = self._made, None
        gradient = None if self._watched is None else self._watched.grad
        if made is None or gradient is None or (gradient.data_ptr(), gradient._version) == made[:2]:
            return
        if _is_mean(made[2], _first(gradient)):
            return
        self._handle.remove()
        warnings.warn(
            "gradients were changed between backward and opt.step(): clip_grad_norm_ there clips the "
            "gradient of each worker, and not their mean. To clip the mean: opt.aggregate(), "
            "clip_grad_norm_, opt.step().",
            stacklevel=4,
        )


def _is_mean(total: Tensor, entry: Tensor) -> bool:
    """Whether ``entry`` is ``total`` divided by an integer from 2 on, in the tensors' own arithmetic."""
    quotient = float(total / entry)
    if not 1.5 < quotient < 1e9:
        return False
    batches = round(quotient)
    return bool(entry == total / batches) or bool(entry == total * (1 / batches))


def _first(gradient: Tensor) -> Tensor:
    """A copy of the gradient's first entry, on the same device, without waiting for a GPU."""
    return gradient[(0,) * gradient.dim()].detach().clone()
