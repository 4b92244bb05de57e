"""Notice gradients that backward computes, or the program sets, after they were averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mpicomp.torch.content import Content


class LateBackward:
    """Whether ``parameters`` have got other gradients since ``watch`` was called, by backward or otherwise.

    came  whether a backward has given one of them a gradient; False after ``forget``

    The parameters have hooks from ``watch`` to ``forget`` only, so that other backwards take no longer.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._handles: list[Any] = []
        self._means: list[Tensor | None] = []  # the gradients as ``watch`` has found them
        self._smallest: tuple[int, Tensor] | None = None  # the number of the smallest one, and its entries
        self._versions: list[int | None] = []  # and their versions, of those that have one
        self.came = False

    def watch(self) -> None:
        """Notice each backward from here on."""
        self.forget()
        trained = [p for p in self._parameters if p.requires_grad]  # torch refuses hooks on the others
        self._handles = [p.register_post_accumulate_grad_hook(self._note) for p in trained]
        self._means = [p.grad for p in self._parameters]
        self._versions = [_version(g) for g in self._means]
        given = [(j, g) for j, g in enumerate(self._means) if g is not None]
        if given:
            j, smallest = min(given, key=lambda pair: pair[1].numel())
            self._smallest = j, smallest.detach().clone()

    def forget(self) -> None:
        """Forget a backward that came, and notice none from here on."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._means, self._versions, self.came = [], [], [], False
        self._smallest = None

    @property
    def untouched(self) -> bool:
        """Whether the gradients are what ``watch`` has found, not even changed in place."""
        now = [p.grad for p in self._parameters]
        same = bool(self._means) and all(g is mean for g, mean in zip(now, self._means, strict=True))
        return same and not self.came and [_version(g) for g in now] == self._versions

    def changes(self) -> bytes:
        """What the program has made of the gradients since ``watch``, for the ranks to compare; b"": nothing.

        Of gradients that it has replaced, their places and the smallest one.  Of those that it has changed in
        place, as by clipping, whether the smallest one has other entries.
        """
        pairs = enumerate(zip(self._parameters, self._means, strict=False))  # no means without ``watch``
        there = {j: p.grad for j, (p, mean) in pairs if p.grad is not mean}
        given = [g for g in there.values() if g is not None]
        smallest = Content.of(min(given, key=lambda g: g.numel())).data if given else b""
        replaced = repr([*there]).encode() + smallest if there else b""
        return replaced + b"changed" * self._is_changed()

    def _is_changed(self) -> bool:
        """Whether the smallest gradient is the tensor that ``watch`` has found, with other entries."""
        if self._smallest is None:
            return False
        j, before = self._smallest
        now, version = self._parameters[j].grad, self._versions[j]
        if now is None or now is not self._means[j] or (version is not None and version == _version(now)):
            return False
        return not torch.allclose(now, before, rtol=0, atol=0, equal_nan=True)

    def _note(self, parameter: nn.Parameter) -> None:
        self.came = True


def _version(gradient: Tensor | None) -> int | None:
    return None if gradient is None or gradient.is_inference() else gradient._version
