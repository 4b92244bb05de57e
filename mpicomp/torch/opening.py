"""Open a transport over a process group of torch.distributed, and say which options need MPI."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.base.units import one_line
from mpicomp.torch.process_group import ProcessGroup
from mpicomp.transports import Transport
from mpicomp.transports.openers import Opener, Options


class GroupOpener(Opener):
    """Opens transports over process groups."""

    def takes(self, comm: Any) -> bool:
        return dist.is_available() and (isinstance(comm, dist.ProcessGroup) or _is_of_others(comm))

    def default(self) -> Any:
        return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None

    def size(self, comm: Any) -> int:
        if _is_of_others(comm):
            raise ConfigError(
                "this process is none of the process group's: only its ranks make an optimiser on it."
            )
        return comm.size()

    def open(self, n: int, comm: Any, options: Options) -> Transport:
        made = ProcessGroup(n, comm, options.dedicated, options.stall_timeout)

        def refuse() -> None:
            needs_mpi = {
                "verify_bytes": options.observed,
                "on_failure='shrink'": options.survive,
                "cuda_aware='yes'": options.cuda_aware,
            }
            for name, asked in needs_mpi.items():
                if asked:
                    raise ConfigError(
                        f"{name} needs MPI, and these ranks are of a process group of torch.distributed: "
                        "leave it out, or start the program with mpirun."
                    )

        try:
            made.raise_on_all(refuse)
        except MpicompError:  # the same on all ranks
            made.close()
            raise
        return made


OPENER = GroupOpener()


def with_group(options: dict[str, Any], group: Any) -> dict[str, Any]:
    """``options`` for ``Aggregator``, with ``group`` as their ``comm`` unless it is None.

    Raises ``ConfigError`` if both are given, or if ``group`` is no process group.
    """
    if group is None:
        return options
    if options.get("comm") is not None:
        raise ConfigError("comm and group both say which ranks take part: give one of the two.")
    if not OPENER.takes(group):
        raise ConfigError(
            f"group is {one_line(group)}; allowed: a process group of torch.distributed, such as "
            "torch.distributed.group.WORLD."
        )
    return options | {"comm": group}


def _is_of_others(comm: Any) -> bool:
    """Whether ``comm`` is what torch's ``new_group`` returns to processes that are not in it."""
    return type(comm) is type(dist.GroupMember.NON_GROUP_MEMBER) and comm == dist.GroupMember.NON_GROUP_MEMBER
