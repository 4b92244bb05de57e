"""Warn of gradients that backward left otherwise: clipped, averaged by DDP before, or left out."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from mpicomp.base.program import level_of_program
from mpicomp.torch.ddp import AROUND, is_in_ddp
from mpicomp.transports import Transport

_CLIPPED = (
    "gradients were changed between backward and opt.step(): clip_grad_norm_ there clips the gradient of "
    "each worker, and not their mean. To clip the mean: opt.aggregate(), clip_grad_norm_, opt.step()."
)


class ClippingWatch:
    """Warn once if gradients are changed between backward and ``step``.

    ``clip_grad_norm_`` there clips the gradient of each worker, and not their mean; and DDP, which may have
    been put around the model after ``Compressed`` was made, has averaged them.  Only the smallest parameter
    is checked, on the rank of worker 0, so the check costs some microseconds a step.  A division by an
    integer raises no warning: it may be the number of accumulated batches, or a scale.
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
        first = _first(gradient)
        if _is_mean(made[2], first):
            return
        if gradient._is_view() and torch.allclose(first, made[2], rtol=0, atol=0, equal_nan=True):
            return  # of a buffer of all gradients, whose version counts what backward wrote to the others
        self._handle.remove()
        assert self._watched is not None
        warnings.warn(AROUND if is_in_ddp(self._watched) else _CLIPPED, stacklevel=level_of_program())


def warn_of_frozen(name: str, gradient: Tensor) -> None:
    """Warn that the ``gradient`` of a frozen parameter, along which torch would step, is left out.

    Not if it is 0, as ``zero_grad(set_to_none=False)`` leaves it.
    """
    if gradient.layout is not torch.strided or gradient.any():
        warnings.warn(
            f"the gradient of {name} is left out, because the parameter is frozen (requires_grad is False). "
            "To have it averaged, unfreeze the parameter, before Compressed is made if it was frozen then; "
            "else set the gradient to None.",
            stacklevel=level_of_program(),
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
