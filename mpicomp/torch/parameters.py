"""The parameters of an optimiser by name."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError
from mpicomp.torch.alike import numbered


def trained(optimiser: Optimizer, module: nn.Module | None) -> dict[str, nn.Parameter]:
    """The optimiser's parameters that need gradients, by their names (``named``).

    Raises ``ConfigError`` if there are none.
    """
    names = {p: name for name, p in named(optimiser, module).items()}
    found = {names[p]: p for _, _, p in numbered(optimiser) if p.requires_grad}
    if not found:
        raise ConfigError("no parameter of the optimiser needs a gradient.")
    return found


def named(optimiser: Optimizer, module: nn.Module | None) -> dict[str, nn.Parameter]:
    """All parameters of ``module`` by their names there, and the optimiser's others.

    Those have the names that the optimiser was given (``SGD(model.named_parameters(), ..)``) if each has one
    and no two are the same, and else group and number.
    """
    of_module = {} if module is None else dict(module.named_parameters())
    known = set(of_module.values())
    others = [(i, j, p) for i, j, p in numbered(optimiser) if p not in known]
    given = [optimiser.param_groups[i].get("param_names", ()) for i, _, _ in others]
    names = [of_group[j] for of_group, (_, j, _) in zip(given, others, strict=True) if of_group]
    if len({*names, *of_module}) < len(others) + len(of_module):
        names = [f"group{i}.{j}" for i, j, _ in others]
    return of_module | {name: p for name, (_, _, p) in zip(names, others, strict=True)}
