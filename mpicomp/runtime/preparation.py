"""What all ranks do before the first round."""

from __future__ import annotations

import sys

from mpicomp import kernels
from mpicomp.transports import Transport


def load_kernels(t: Transport, count: int, length: int) -> None:
    """Load the compiled kernels on all ranks or, where they wait for one that cannot, on none."""
    reasons = t.collect(t.raise_on_all(lambda: kernels.preload(count, length)))
    missing = {rank: why for rank, why in enumerate(reasons or []) if why is not None}
    if t.ask_server(lambda: bool(missing)):
        kernels.forgo()
    if missing:
        rank, why = next(iter(missing.items()))
        sys.stderr.write(
            f"mpicomp: rank {rank} can keep no compiled kernels ({why}): numpy's serve, with the same "
            "results, slower. Set MPICOMP_CACHE to a folder of your own with 20 MB to spare.\n"
        )
