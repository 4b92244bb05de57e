"""The state of a ``Compressed`` as torch's dicts of tensors: made, checked and loaded."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line, shortened
from mpicomp.torch.content import is_plain
from mpicomp.torch.tensors import Tensors

# What a state says of local steps if there are none.
NO_LOCAL_STEPS: dict[str, Any] = {"local_steps": 0, "start": None, "begun": None}
_KEYS = {"inner", "outer", "aggregators", *NO_LOCAL_STEPS}  # of ``Compressed.state_dict``


def as_tensor(value: Any) -> Any:
    """Convert an array to a tensor, which torch.load reads without pickled code; keep anything else."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def aggregators_in(state: Any, fragments: int) -> list[Any]:
    """The aggregators' states in ``state``, with arrays in the place of tensors; None for a missing state."""
    given = state.get("aggregators") if isinstance(state, dict) else None
    states = [*given] if isinstance(given, list) else []
    states = (states + [None] * fragments)[:fragments]
    return [
        {name: _array(value) for name, value in one.items()} if isinstance(one, dict) else one
        for one in states
    ]


def _array(value: Any) -> Any:
    """The inverse of ``as_tensor``, on any device; keep a tensor without values or of a type numpy lacks."""
    if isinstance(value, torch.Tensor):
        with suppress(TypeError, RuntimeError):
            return value.detach().cpu().numpy().copy()
    return value


def check_kind(state: Any, inner: Optimizer) -> None:
    """Raise ``ConfigError`` unless ``state`` is of a Compressed with the parameter groups of ``inner``."""
    if not isinstance(state, dict) or state.keys() != _KEYS:
        shown = f"the keys {shortened(state)}" if isinstance(state, dict) else type(state).__name__
        raise ConfigError(
            f"a state with {shown} is none of Compressed, whose opt.state_dict() has "
            f"{shortened(sorted(_KEYS))}. For that of a plain optimiser: opt.inner.load_state_dict(state)."
        )
    try:
        there = [len(group["params"]) for group in state["inner"]["param_groups"]]
    except Exception:  # of what is no list or dict, such as an array
        raise ConfigError(f"inner of the state, {one_line(state['inner'])}, is of no optimiser.") from None
    here = [len(group["params"]) for group in inner.param_groups]
    if there != here:
        raise ConfigError(
            f"the state has parameter groups of {there} parameters, and the optimiser of {here}."
        )


def check_local(state: dict[str, Any], here: Tensors, local: bool) -> None:
    """Raise ``ConfigError`` unless the entries of ``state`` on local steps can be those of a saved state.

    here   the parameters
    local  whether there are local steps
    """
    steps = state["local_steps"]
    if type(steps) is not int or steps < 0 or (steps and not local):
        allowed = "0 and above" if local else "0, with sync_every=1"
        raise ConfigError(f"the state has local_steps = {one_line(steps)}; allowed: {allowed}.")
    for name in ("start", "begun"):
        values = state[name]
        if not local and values is None:
            continue
        there = isinstance(values, torch.Tensor) and is_plain(values) and not values.is_meta
        shape = tuple(values.shape) if there else None
        if not local or shape != (here.parts.size,) or values.dtype != here.empty().dtype:
            allowed = f"{here.dtype} of shape ({here.parts.size},)" if local else "None, with sync_every=1"
            raise ConfigError(f"the state has {name} = {one_line(values)}; allowed: {allowed}.")
        if not values.isfinite().all():
            raise ConfigError(f"the state has a {name} that is not finite.")


def load_into(name: str, optimiser: Optimizer, state: Any) -> None:
    """Load ``state`` into ``optimiser``.

    Raises ``ConfigError``, naming it ``name``, if torch cannot, or if the groups then lack a setting that
    ``optimiser`` has: torch loads the state of another class as well, and fails in the next step.
    """
    try:
        optimiser.load_state_dict(state)
        for group in optimiser.param_groups:
            if lacking := sorted(optimiser.defaults.keys() - group.keys()):
                raise ValueError(f"its groups have no {', '.join(lacking)}")
    except Exception as error:  # torch raises many types
        reason = one_line(str(error) or type(error).__name__, 200)
        raise ConfigError(
            f"{name} of the state, {one_line(state)}, is not of this {type(optimiser).__name__}: {reason}."
        ) from None
