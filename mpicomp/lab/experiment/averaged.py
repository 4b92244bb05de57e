"""How the messages of a run are averaged, as far as its iterates and bytes depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpicomp.base.blocks import Blocks
from mpicomp.base.former import present_config
from mpicomp.problems import Problem
from mpicomp.problems.base import parts_of
from mpicomp.runtime.placement import Placement

ALLREDUCE = "allreduce"


def averaged(server: str, blocks: int | str) -> str:
    """The text "server 'allreduce'", or else the number of blocks of the coordinates.

    Runs with any other ``server`` of ``placement.SERVERS`` have one text, since they visit the same iterates.
    """
    if server == ALLREDUCE:
        return f"server {ALLREDUCE!r}"
    return f"{blocks} block{'' if str(blocks) == '1' else 's'} of the coordinates"


def averaged_by(placement: Placement, problem: Problem, n: int) -> str:
    """``averaged`` of the runs of ``problem`` with n workers that ``placement`` would make."""
    count = placement.block_count(n)
    return averaged(placement.server, len(Blocks.cut(parts_of(problem), count)) if count > 1 else 1)


def averaged_in(config: Mapping[str, Any]) -> str:
    """``averaged`` of a recorded run, by the ``config`` of its run.json."""
    held = present_config(config)
    return averaged(held.get("server", ""), held.get("blocks", "1"))
