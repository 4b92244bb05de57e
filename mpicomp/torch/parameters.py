"""The parameters of an optimiser by name."""

from __future__ import annotations

import warnings

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
    Raises ``ConfigError`` if one of the module's has the name of another.
    """
    of_module = {} if module is None else dict(module.named_parameters())
    known = set(of_module.values())
    others = {(i, j): p for i, j, p in numbered(optimiser) if p not in known}
    given = {
        (i, j): name
        for i, group in enumerate(optimiser.param_groups)
        for j, name in enumerate(group.get("param_names", ()))
    }
    names = [given.get(place, "") for place in others]
    if "" in names or len({*names, *of_module}) < len(names) + len(of_module):
        names = [f"group{i}.{j}" for i, j in others]
    if taken := of_module.keys() & set(names):
        raise ConfigError(
            "the optimiser has parameters beside the module's, which would be named "
            f"{min(taken)!r}, as one of the module's is: rename that one."
        )
    return of_module | dict(zip(names, others.values(), strict=True))


def warn_of_another_model(optimiser: Optimizer, module: nn.Module | None) -> None:
    """Warn if ``module`` has parameters that need gradients, and the optimiser none of them."""
    own = {p for p in ([] if module is None else module.parameters()) if p.requires_grad}
    if own and own.isdisjoint(p for _, _, p in numbered(optimiser)):
        warnings.warn(
            "the optimiser has none of the parameters of module, as where module is a copy of the model: the "
            "ranks share the buffers of module, and not those of the model that is trained. Give that model.",
            stacklevel=4,
        )
