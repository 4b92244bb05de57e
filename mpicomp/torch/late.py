"""Notice gradients that backward computes after they were averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn


class LateBackward:
    """Whether a backward has given one of ``parameters`` a gradient since ``watch`` was called.

    came  whether it has; False after ``forget``

    The parameters have hooks from ``watch`` to ``forget`` only, so that other backwards take no longer.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._handles: list[Any] = []
        self.came = False

    def watch(self) -> None:
        """Notice each backward from here on."""
        self.forget()
        trained = [p for p in self._parameters if p.requires_grad]  # torch refuses hooks on the others
        self._handles = [p.register_post_accumulate_grad_hook(self._note) for p in trained]

    def forget(self) -> None:
        """Forget a backward that came, and notice none from here on."""
        for handle in self._handles:
            handle.remove()
        self._handles, self.came = [], False

    def _note(self, parameter: nn.Parameter) -> None:
        self.came = True
