"""One of two processes that torchrun has started: some steps of a method over gloo.

The arguments are the number of steps, and who averages.  Rank 0 prints what the ledger says that each rank
has sent to the other.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch.distributed as dist

from mpicomp import Aggregator, Artemis, Natural

D = 20_000


def main(steps: int, server: str) -> None:
    dist.init_process_group("gloo")
    gradient = np.random.default_rng(dist.get_rank()).standard_normal(D, dtype=np.float32)
    with Aggregator(Artemis(Natural(), Natural(), gamma=0.01), np.zeros(D, np.float32), server=server) as agg:
        for _ in range(steps):
            agg(gradient)
        agg.settle()
        # By rank 0 alone: what it broadcasts, and what worker 1 sends.  By both: half of either from each.
        up, down = agg.ledger.up.tolist(), agg.ledger.down_bytes // 2
        if dist.get_rank() == 0:
            print(json.dumps([down, up[1]] if server == "shared" else [(down + own) // 2 for own in up]))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
