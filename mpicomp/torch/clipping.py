"""Find gradients that were clipped before they are averaged."""

from __future__ import annotations

import warnings
from math import isfinite

import torch
from torch import Tensor, nn

from mpicomp.transports import Transport


class ClippingWatch:
    """Warn once if gradients are changed between backward and ``step``, as by ``clip_grad_norm_``.

    That clips the gradient of each worker, and not their mean.  The watch looks at one parameter, the
    smallest, on the rank of worker 0, so that it costs some microseconds a step.  A division by an integer is
    no reason to warn: it may be the number of batches that were accumulated, or a scale.
    """

    def __init__(self, parameters: list[nn.Parameter], transport: Transport) -> None:
        self._made: tuple[int, int, Tensor] | None = None  # the gradient as backward has left it
        self._watched: nn.Parameter | None = None
        if parameters and transport.n > 1 and 0 in transport.hosted:
            self._watched = min(parameters, key=lambda p: p.numel())
            self._handle = self._watched.register_post_accumulate_grad_hook(self._note)

    def _note(self, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        if gradient is not None and gradient.layout is torch.strided:
            self._made = gradient.data_ptr(), gradient._version, _first(gradient)

    def forget(self) -> None:
        """The gradients are cleared."""
        self._made = None

    def look(self) -> None:
        """Compare the gradient that is to be averaged with what backward has left."""
        made, self._made = self._made, None
        gradient = None if self._watched is None else self._watched.grad
        if made is None or gradient is None or (gradient.data_ptr(), gradient._version) == made[:2]:
            return
        before, after = float(made[2]), float(_first(gradient))
        factor = before / after if after else 0.0
        if isfinite(factor) and factor > 1.5 and abs(factor - round(factor)) < 0.01:
            return
        self._handle.remove()
        self._watched = None
        warnings.warn(
            "gradients were changed between backward and opt.step(): clip_grad_norm_ there clips the "
            "gradient of each worker, and not their mean. To clip the mean: opt.aggregate(), "
            "clip_grad_norm_, opt.step().",
            stacklevel=4,
        )


def _first(gradient: Tensor) -> Tensor:
    """A copy of its first entry; on a GPU nobody waits for it."""
    return gradient[(0,) * gradient.dim()].detach().clone()
