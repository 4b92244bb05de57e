"""Whether all ranks hold the same: parameters, settings such as the learning rate, and momenta."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError
from mpicomp.torch.content import Content
from mpicomp.transports import Transport


@dataclass(frozen=True)
class Fact:
    """What a rank holds under ``name``, as a text, and what to do where it differs between ranks."""

    name: str
    text: str
    remedy: str


def compare(facts: list[Fact], transport: Transport) -> None:
    """Raise ``ConfigError`` on all ranks where one of ``facts`` differs from rank 0's; collective."""
    told: Any = transport.collect(facts)

    def refuse() -> None:
        for rank, theirs in enumerate(told):
            for own, other in zip(told[0], theirs, strict=True):
                if own.text != other.text:
                    raise ConfigError(f"{own.name} on rank {rank} differ from rank 0's: {own.remedy}")

    transport.ask_server(refuse)


def refuse_alone(transport: Transport) -> None:
    """Raise ``ConfigError`` where torch has several processes, and MPI this one alone."""
    processes = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if transport.ranks == 1 < processes:
        raise ConfigError(
            f"torch.distributed has {processes} processes, and MPI knows of this one alone, so each would "
            f"train alone: start the program with `mpirun -n {processes} python ..`."
        )


def numbered(optimiser: Optimizer) -> Iterator[tuple[int, int, nn.Parameter]]:
    """The parameters of ``optimiser``, each with the number of its group and its own there."""
    for i, group in enumerate(optimiser.param_groups):
        for j, p in enumerate(group["params"]):
            yield i, j, p


def settings(optimiser: Optimizer) -> str:
    """A hash of what the groups of ``optimiser`` say beside their parameters, such as learning rates."""
    digest = sha256()
    for i, group in enumerate(optimiser.param_groups):
        for name, value in sorted(group.items()):
            if name != "params":
                digest.update(f"{i}.{name}".encode() + _as_bytes(value))
    return digest.hexdigest()


def memory(optimiser: Optimizer) -> str:
    """A hash of what ``optimiser`` remembers of each parameter, such as momenta."""
    digest = sha256()
    for i, j, p in numbered(optimiser):
        for name, value in sorted(optimiser.state.get(p, {}).items()):
            digest.update(f"{i}.{j}.{name}".encode() + _as_bytes(value))
    return digest.hexdigest()


def _as_bytes(value: object) -> bytes:
    """What is compared of ``value``: of functions and other objects, which have addresses, the type alone."""
    if isinstance(value, Tensor):
        return Content.of(value).data
    if isinstance(value, tuple | list):
        return b"".join(_as_bytes(one) for one in value)
    plain = value is None or isinstance(value, bool | int | float | str)
    return (repr(value) if plain else type(value).__name__).encode()
