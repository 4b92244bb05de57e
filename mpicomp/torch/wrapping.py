"""An optimiser around another one, whose parameter groups, state and hooks it shows as its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError

_STEPPED: list[Optimizer] = []  # the inner optimisers that a ``Wrapping`` is stepping


class Wrapping(Optimizer):
    """An ``Optimizer`` around ``inner``: schedules, parameter groups and ``GradScaler`` work with it."""

    _step_supports_amp_scaling = True  # GradScaler calls step on every rank, and sets grad_scale
    inner: Optimizer

    # Unused: without torch a type checker does not know the base class.
    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override, unused-ignore]
        """The parameter groups of the inner optimiser."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override, unused-ignore]
        """The state of the inner optimiser."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override, unused-ignore]
        """The default settings of the inner optimiser."""
        return self.inner.defaults

    def step_inner(self, *closure: Any) -> Any:
        """The inner optimiser's step; see ``refuse_own_steps``."""
        _STEPPED.append(self.inner)
        try:
            return self.inner.step(*closure)
        finally:
            _STEPPED.remove(self.inner)
            torch.clear_autocast_cache()  # as in ``Tensors.set_values``

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Call ``hook`` before each step of the inner optimiser, with that optimiser as its argument."""
        return self.inner.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> Any:
        """Call ``hook`` after each step of the inner optimiser, with that optimiser as its argument."""
        return self.inner.register_step_post_hook(hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> Any:
        """Call ``hook`` before the state of the inner optimiser is saved, with that optimiser."""
        return self.inner.register_state_dict_pre_hook(hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> Any:
        """Call ``hook`` after the state of the inner optimiser is saved, with it and that state."""
        return self.inner.register_state_dict_post_hook(hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> Any:
        """Call ``hook`` before the inner optimiser loads its state, with that optimiser and this state."""
        return self.inner.register_load_state_dict_pre_hook(hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> Any:
        """Call ``hook`` after the inner optimiser has loaded its state, with that optimiser."""
        return self.inner.register_load_state_dict_post_hook(hook, prepend)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise ``ConfigError``: the parameters in the compressed vector are fixed at the start."""
        raise ConfigError("give all parameter groups to the optimiser before Compressed is made.")


def refuse_own_steps(inner: Optimizer, at_close: Callable[[Callable[[], None]], None]) -> None:
    """Let ``inner.step`` raise ``ConfigError`` but in ``step_inner``, until ``at_close`` calls its argument.

    A program that still calls it would train each rank alone.
    """

    def refuse(optimiser: Optimizer, *_: Any) -> None:
        if not any(one is optimiser for one in _STEPPED):
            raise ConfigError(
                f"{type(optimiser).__name__}.step() would step along this rank's own gradients: call step() "
                "of the Compressed around it, or close that before, opt.aggregator.close()."
            )

    with suppress(AttributeError):  # one around others, as accelerate's, may not have begun as an Optimizer
        at_close(inner.register_step_pre_hook(refuse).remove)
