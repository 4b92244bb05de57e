"""The parameters of an optimiser by name."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError
from mpicomp.torch.alike import numbered


def trained(optimiser: Optimizer, module: nn.Module | None) -> dict[str, nn.Parameter]:
    """The optimiser's parameters that need gradients, by name in ``module``, or by group and number.

    Raises ``ConfigError`` if there are none.
    """
    names = {p: name for name, p in named(optimiser, module).items()}
    found = {names[p]: p for _, _, p in numbered(optimiser) if p.requires_grad}
    if not found:
        raise ConfigError("no parameter of the optimiser needs a gradient.")
    return found


def named(optimiser: Optimizer, module: nn.Module | None) -> dict[str, nn.Parameter]:
    """All parameters of ``module`` by their names, and the optimiser's others by group and number."""
    of_module = {} if module is None else dict(module.named_parameters())
    known = set(of_module.values())
    return of_module | {f"group{i}.{j}": p for i, j, p in numbered(optimiser) if p not in known}
