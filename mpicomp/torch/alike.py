"""Check that parameters, settings such as the learning rate, and momenta are equal on all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from mpicomp.base.checks import plain_value
from mpicomp.base.errors import ConfigError
from mpicomp.loops.agreement import other_rank
from mpicomp.torch.content import Content
from mpicomp.torch.opening import OPENER
from mpicomp.transports import Transport


@dataclass(frozen=True)
class Fact:
    """A rank's value of ``name``, as a hash in hex, and the remedy to print if ranks have different ones."""

    name: str
    digest: str
    remedy: str


def check_same(facts: list[Fact], tell_all: Callable[[int], list[int]]) -> None:
    """Raise ``ConfigError`` on all ranks if one of a rank's ``facts`` differs from rank 0's; collective.

    Of each hash 32 bits are told, by ``Aggregator.tell_all``: blocks of a gradient may be under way.
    """
    for fact in facts:
        if (other := other_rank(tell_all(int(fact.digest[:8], 16)))) is not None:
            raise ConfigError(f"{fact.name} on rank {other} differ from rank 0's: {fact.remedy}")


def refuse_alone(transport: Transport, comm: Any) -> None:
    """Raise ``ConfigError`` if there are several processes, and ``transport`` has only this one.

    Where ``comm`` is a process group, its processes are those that were asked for.
    """
    joined = dist.is_available() and dist.is_initialized()
    processes = dist.get_world_size() if joined else 1
    if transport.ranks == 1 < processes and not OPENER.takes(comm):
        raise ConfigError(
            f"torch.distributed has {processes} processes, and MPI knows of this one alone, so each would "
            f"train alone: give group=torch.distributed.group.WORLD, or start with `mpirun -n {processes}`."
        )
    if transport.ranks == 1 and not joined and comm is None and (said := _said_processes()) > 1:
        raise ConfigError(
            f"WORLD_SIZE, RANK and MASTER_ADDR say that {said} processes were started, and each would train "
            'alone: first call torch.distributed.init_process_group("gloo"), or unset WORLD_SIZE.'
        )


def _said_processes() -> int:
    """How many processes the variables of torch's rendezvous say there are; 1 unless all are set.

    Launchers other than torchrun set them too, such as DeepSpeed's and Kubernetes' operators.
    """
    given = [os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR")]
    return int(given[0]) if all(given) and given[0].isdecimal() else 1


def numbered(optimiser: Optimizer) -> Iterator[tuple[int, int, nn.Parameter]]:
    """(number of the group, number in the group, parameter) for each parameter of ``optimiser``."""
    for i, group in enumerate(optimiser.param_groups):
        for j, p in enumerate(group["params"]):
            yield i, j, p


def settings(optimiser: Optimizer) -> str:
    """A hash of the class of ``optimiser`` and the settings of its groups, such as learning rates."""
    digest = sha256(type(optimiser).__qualname__.encode())
    for i, group in enumerate(optimiser.param_groups):
        for name, value in sorted(group.items()):
            if name != "params":
                _hash(digest, f"{i}.{name}")
                _hash(digest, value)
    return digest.hexdigest()


def memory(optimiser: Optimizer) -> str:
    """A hash of the state that ``optimiser`` keeps for each parameter, such as momenta."""
    digest = sha256()
    for i, j, p in numbered(optimiser):
        _hash(digest, f"{i}.{j}")
        _hash(digest, optimiser.state.get(p, {}))
    return digest.hexdigest()


def _hash(digest: Any, value: object) -> None:
    """Add ``value`` to ``digest``; of functions and other objects only the type counts.

    One tensor after another: together they may be larger than the free memory.
    """
    if isinstance(value, Tensor):
        digest.update(Content.of(value).data)
    elif isinstance(value, dict):
        # Objects, whose text may hold an address, stay in the order in which they came.
        texts = {name: str(name) if isinstance(name, str | int) else "" for name in value}
        for name in sorted(value, key=texts.__getitem__):
            _hash(digest, name)
            _hash(digest, value[name])
    elif isinstance(value, tuple | list):
        for one in value:
            _hash(digest, one)
    elif isinstance(value, np.ndarray):
        _hash(digest, value.tolist())
    else:
        value = plain_value(value)
        plain = value is None or isinstance(value, bool | int | float | str)
        digest.update((repr(value) if plain else type(value).__name__).encode())
