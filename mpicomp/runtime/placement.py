"""Where and how a run takes place: ranks, devices, and what happens when a rank stalls or dies."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError, unknown
from mpicomp.runtime.devices import DEVICES
from mpicomp.runtime.settings import setting
from mpicomp.transports import Transport, connect

# Whether the MPI library takes buffers on a GPU, as the user says; None: the library is asked.
CUDA_AWARE = {"ask": None, "yes": True, "no": False}
SERVERS = ("shared", "dedicated", "sharded", "allreduce")
MOST_SHARDS = 64  # where their number is left open
OF_COMPARISONS = ("server", "shards", "device", "cuda_aware")  # the settings that comparisons have, too
ON_FAILURE = {"end": False, "shrink": True}  # whether the other ranks survive a rank's death


@dataclass(frozen=True)
class Placement:
    """Where and how a run takes place.

    server         the ranks that average, one of ``SERVERS``.  "shared": rank 0, which hosts workers too.
                   "dedicated": rank 0, which hosts none (MPI).  "sharded": every rank serves its share of the
                   coordinates.  "allreduce": MPI_Allreduce, for methods whose workers send vectors or factors
                   whole
    shards         with "sharded", the number of blocks of the coordinates; None: one for each worker, 64 at
                   most.  Compressors act on each block alone, so iterates depend on it
    device         one of ``DEVICES``: where vectors, gradients and compression are
    cuda_aware     one of ``CUDA_AWARE``: whether MPI is given buffers on the GPU
    stall_timeout  seconds of waiting after which the silent rank is named and the job ended, or None
    verify_bytes   have the MPI library count the bytes too
    on_failure     one of ``ON_FAILURE``

    A field is also a keyword of ``run`` and an option of ``mpicomp run``, with the default given here.
    Raises ``ConfigError`` for a value, or a combination of values, that is not allowed.
    """

    server: str = setting(
        "shared",
        "The ranks that average: rank 0, with workers or none; every rank its share; or MPI_Allreduce.",
        SERVERS,
    )
    shards: int | None = setting(
        None,
        "With --server sharded, the number of blocks of the coordinates.  [default: --workers, 64 at most]",
    )
    device: str = setting(
        "cpu", "Where vectors, gradients and compression are; ranks on a host share its GPUs.", DEVICES
    )
    cuda_aware: str = setting(
        "ask",
        "With --device cuda, hand MPI the GPU's buffers: yes, no, or as the MPI library says of itself.",
        CUDA_AWARE,
    )
    stall_timeout: float | None = setting(
        None,
        "End the job, naming who is silent, when ranks have waited that long [off].",
        metavar="SECONDS",
    )
    verify_bytes: bool = setting(False, "Fail unless MPI's own count is the ledger's, byte for byte.")
    on_failure: str = setting(
        "end", "Whether the job ends when a rank dies, or goes on without it (Open MPI's ULFM).", ON_FAILURE
    )

    def __post_init__(self) -> None:
        if self.server not in SERVERS:
            raise unknown("server", str(self.server), SERVERS)
        if self.shards is not None:
            as_integer("shards", self.shards)
            if self.server != "sharded":
                raise ConfigError(
                    f"shards={self.shards} with server={self.server!r}; blocks are served by all ranks only "
                    "with server='sharded'."
                )
        if self.device not in DEVICES:
            raise unknown("device", str(self.device), DEVICES)
        if self.cuda_aware not in CUDA_AWARE:
            raise unknown("answer for cuda_aware", str(self.cuda_aware), CUDA_AWARE)
        timeout = self.stall_timeout
        if timeout is not None and not (isinstance(timeout, Real) and timeout > 0):
            raise ConfigError(f"stall_timeout={timeout!r}; allowed: a number of seconds above 0.")
        if self.on_failure not in ON_FAILURE:
            raise unknown("on_failure", str(self.on_failure), ON_FAILURE)
        if self.survive and self.server in ("sharded", "allreduce"):
            raise ConfigError(
                f"on_failure='shrink' cannot be combined with server={self.server!r}: a rank that dies takes "
                "a part of the server's state with it. Use server='shared', or checkpoints and --requeue."
            )
        if self.survive and (self.verify_bytes or timeout is not None):
            raise ConfigError(
                "on_failure='shrink' cannot be combined with stall_timeout, which ends the job, nor with "
                "verify_bytes: what was under way to a rank that dies is counted on one side only."
            )

    @property
    def survive(self) -> bool:
        """Whether the other ranks go on when one dies."""
        return ON_FAILURE[self.on_failure]

    @property
    def dedicated(self) -> bool:
        """Whether rank 0 hosts no worker."""
        return self.server == "dedicated"

    def blocks(self, workers: int) -> int:
        """The number of blocks of the coordinates for this many workers; 1 if they are not cut."""
        if self.server != "sharded":
            return 1
        return min(workers, MOST_SHARDS) if self.shards is None else self.shards

    def connect(self, workers: int, comm: Any = None) -> Transport:
        """The transport for this many workers, on the ranks of ``comm`` or on all; collective."""
        return connect(
            workers,
            dedicated=self.dedicated,
            stall_timeout=self.stall_timeout,
            observed=self.verify_bytes,
            survive=self.survive,
            cuda_aware=CUDA_AWARE[self.cuda_aware],
            comm=comm,
        )
