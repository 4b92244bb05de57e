"""Find the parameters that a step does not use, on this rank or on all ranks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from mpicomp.transports import Transport


def in_backward() -> bool:
    """Whether this is called during a backward.  DDP's ``join`` calls hooks outside of one."""
    return torch._C._current_graph_task_id() >= 0


def reached(p: Tensor) -> bool:
    """Whether the current backward gives ``p`` a gradient; DDP then replaces p.grad on all ranks."""
    if p.grad is None or not in_backward():
        return False
    return torch._C._will_engine_execute_node(get_gradient_edge(p).node)


def unused_by_all(own: Collection[int], transport: Transport) -> list[int]:
    """The numbers that are in ``own`` on every rank, ascending; collective."""
    told: Any = transport.collect(set(own))
    return transport.ask_server(lambda: sorted(set.intersection(*told)))
