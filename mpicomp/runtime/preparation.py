"""Load the compiled kernels before the first round, on all ranks or on none."""

from __future__ import annotations

import sys

from mpicomp import kernels
from mpicomp.transports import Transport


def load_kernels(t: Transport, count: int, length: int) -> None:
    """Load the compiled kernels on all ranks; on none if some rank cannot, for the others would wait for it.

    count   the number of messages that the run will compress
    length  the number of entries of a vector
    """
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
