"""One rank of a training with mpicomp.torch; what it does is named by the first argument.

Prints a line of JSON on rank 0, where it comes to its end.
"""

from __future__ import annotations

import json
import sys

import torch

from tests.torch.jobs import hooks, local_steps, steps, unlike
from tests.torch.jobs.common import WORLD

WITH_ARGUMENTS = ("saved", "streamed", "interrupted", "other_outer", "other_memory")

if __name__ == "__main__":
    name, *given = sys.argv[1:]
    (job,) = (getattr(module, name) for module in (steps, hooks, local_steps, unlike) if name in vars(module))
    told = job(*given if name in WITH_ARGUMENTS else [])
    if WORLD.rank == 0:
        print(json.dumps(told))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
