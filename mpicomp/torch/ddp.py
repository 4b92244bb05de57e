"""Find the DDP object that has a hook, because DDP gives a hook only buckets; warn of one without a hook."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mpicomp.base.errors import ConfigError

AROUND = (
    "the model is in a DistributedDataParallel, whose backward averages whole gradients in every step: these "
    "bytes are not saved, and the ledger does not count them. Train the model inside it, ddp.module, or give "
    "DDP mpicomp.torch.Hook. Ignore this if DDP's group is smaller."
)


def group_of(state: Any, overlap: bool) -> Any:
    """The process group of the DDP object whose hook has this ``state``; it is searched for in memory.

    Raises ``ConfigError`` if DDP has the option skip_all_reduce_unused_params or, with ``overlap``,
    find_unused_parameters or static_graph.
    """
    ddps = [m for m in _in_memory() if any(its is state for _, its in getattr(m, "_comm_hooks", ()))]
    if any(getattr(ddp, "skip_all_reduce_unused_params", False) for ddp in ddps):
        raise ConfigError(
            "DDP with skip_all_reduce_unused_params=True leaves buckets out, and the hook waits for the "
            "last: leave this option out. The hook takes the gradient 0 for parameters that no rank uses."
        )
    for option in ("find_unused_parameters", "static_graph"):
        if overlap and any(getattr(ddp, option, False) for ddp in ddps):
            raise ConfigError(
                f"overlap in the hook of a DDP with {option}=True, by which parameters may be left out, and "
                "blocks leave with all their entries: leave one of the two out."
            )
    groups = [ddp.process_group for ddp in ddps]
    return max(groups, key=dist.get_world_size, default=dist.group.WORLD)


def is_in_ddp(parameter: nn.Parameter) -> bool:
    """Whether a DDP object, which is searched for in memory, trains this parameter."""
    return any(p is parameter for ddp in _in_memory() for p in ddp.parameters())


def warn_of_ddp(module: nn.Module | None) -> None:
    """Warn if ``module`` is a DDP: its backward sends whole gradients, whatever an optimiser sends."""
    if isinstance(module, DistributedDataParallel):
        warnings.warn(AROUND, stacklevel=4)


def _in_memory() -> list[DistributedDataParallel]:
    return [m for m in gc.get_objects() if issubclass(type(m), DistributedDataParallel)]
