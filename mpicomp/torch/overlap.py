"""Send each block of the gradient during backward, as soon as it is complete."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from weakref import WeakSet

import torch
from torch import Tensor, nn

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.program import level_of_program
from mpicomp.loops.aggregator import Aggregator
from mpicomp.torch.tensors import Tensors


class Leaving:
    """The gradient of one step after the other, of which each block leaves as soon as it is complete.

    Blocks are sent from the last to the first, which is about the order in which backward computes them.
    Raises ``ConfigError`` if the Aggregator cannot take single blocks (see ``Aggregator.overlap``).
    """

    def __init__(self, tensors: Tensors, aggregator: Aggregator) -> None:
        self._tensors, self._aggregator = tensors, aggregator
        self._blocks = aggregator.overlap()
        # For each block, the numbers of the parameters that have entries in it.
        self._parameters = [
            {j for j, p in enumerate(tensors.slices) if p.start < b.stop and b.start < p.stop}
            for b in self._blocks
        ]
        self.restart()

    def restart(self) -> None:
        """Begin a new step, of which no gradient is here yet."""
        self._flat = self._tensors.empty()
        self.here: set[int] = set()  # the parameters whose gradients are here, by number
        self._left = len(self._blocks)  # blocks that have not been brought

    def take(self, j: int, gradient: Tensor) -> None:
        """Take the gradient of parameter j, and send the blocks that are complete by it."""
        self._tensors.set_part(self._flat, j, gradient)
        self.here.add(j)
        while self._left and self._parameters[self._left - 1] <= self.here:
            self._left -= 1
            block = self._flat[self._blocks[self._left]]
            self._aggregator.bring(self._left, self._tensors.vector(block))

    def left_as(self, j: int, gradient: Tensor) -> bool:
        """Whether ``gradient`` is what was taken of parameter j, here or in a message that has left."""
        taken = self._flat[self._tensors.slices[j]]
        now = gradient.detach().reshape(-1).to(taken)
        return torch.allclose(taken, now, rtol=0, atol=0, equal_nan=True)

    def whole(self) -> Array:
        """The gradient, shape (d,), with zeros for parameters that are not here; the next step begins."""
        for j, p in enumerate(self._tensors.parameters):
            if j not in self.here:
                self.take(j, p.new_zeros(p.shape))
        flat = self._flat
        self.restart()
        return self._tensors.vector(flat)


_OVERLAPS: WeakSet[Overlap] = WeakSet()


def release(parameters: Collection[int]) -> None:
    """Let no Overlap take gradients of ``parameters``, given by their ids: a new optimiser has them."""
    for overlap in [*_OVERLAPS]:
        if overlap.has_some_of(parameters):
            overlap.release()


class Overlap:
    """Take each gradient as soon as backward has accumulated it, and let its blocks leave.

    Raises ``ConfigError`` as ``Leaving`` does.
    """

    def __init__(self, tensors: Tensors, aggregator: Aggregator) -> None:
        self._tensors, self._leaving = tensors, Leaving(tensors, aggregator)
        self._keeps = aggregator.method.keeps_residual  # and has not warned yet
        # Number of a parameter -> the place and the version of the gradient taken from it.
        self._taken: dict[int, tuple[int, int]] = {}
        self._handles = [
            p.register_post_accumulate_grad_hook(lambda p, j=j: self._take(j, p))
            for j, p in enumerate(tensors.parameters)
        ]
        aggregator.at_close(self.release)
        _OVERLAPS.add(self)

    def has_some_of(self, parameters: Collection[int]) -> bool:
        """Whether it takes gradients of some of ``parameters``, given by their ids."""
        return any(id(p) in parameters for p in self._tensors.parameters)

    def release(self) -> None:
        """Take no more gradients in backward."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @torch.compiler.disable
    def _take(self, j: int, parameter: nn.Parameter) -> None:
        """Take the gradient of parameter j."""
        if j in self._taken:
            raise ConfigError(
                f"overlap: {self._name(j)!r} has got a second gradient before opt.step(); allowed: one "
                "backward for each step. To accumulate gradients, leave overlap out."
            )
        gradient = parameter.grad
        assert gradient is not None
        self._leaving.take(j, gradient)
        self._taken[j] = gradient.data_ptr(), gradient._version

    def whole(self) -> Array:
        """Send the blocks that are left, and return the whole gradient of this step, shape (d,).

        A parameter that backward has not reached contributes its ``grad``, or zeros if that is None.
        Raises ``ConfigError`` if a gradient has been changed since backward.
        """
        if self._keeps and (frozen := self._tensors.frozen()):
            self._keeps = False
            warnings.warn(
                f"overlap: {self._name(min(frozen))!r} was frozen, and the error feedback's memory of it is "
                "sent and lost. Leave overlap out to keep it until the parameter is unfrozen.",
                stacklevel=level_of_program(),
            )
        changed = None
        for j, parameter in enumerate(self._tensors.parameters):
            gradient = parameter.grad
            if j not in self._taken:
                if gradient is not None:
                    self._take(j, parameter)
            elif gradient is None or self._is_other(j, gradient):
                changed = j
        self._taken = {}
        whole = self._leaving.whole()
        if changed is not None:
            raise ConfigError(
                f"overlap: the gradient of {self._name(changed)!r} was changed after backward, when it had "
                "left already: change gradients between opt.aggregate() and opt.step(), or leave overlap out."
            )
        return whole

    def _is_other(self, j: int, gradient: Tensor) -> bool:
        """Whether ``gradient`` is another than what was taken of parameter j: it was replaced, or changed.

        A view's version counts what backward wrote to other views, as in a buffer of all gradients.
        """
        place, version = self._taken[j]
        replaced = gradient.data_ptr() != place
        if not replaced and gradient._version == version:
            return False
        return not ((replaced or gradient._is_view()) and self._leaving.left_as(j, gradient))

    def _name(self, j: int) -> str:
        return self._tensors.parts.parts[j].name
