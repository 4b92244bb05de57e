"""The settings of a run's ranks: how messages are averaged, the device, and the end if a rank fails."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from mpicomp.base.checks import as_integer, as_switch
from mpicomp.base.errors import ConfigError, check_known
from mpicomp.runtime.devices import DEVICES
from mpicomp.runtime.settings import setting
from mpicomp.transports import Transport, connect

# The user's word on whether the MPI library takes buffers on a GPU; None: ask the library.
CUDA_AWARE = {"ask": None, "yes": True, "no": False}
SERVERS = ("shared", "dedicated", "sharded", "allreduce")
MOST_BLOCKS = 64  # the most blocks, if the user gives no number
OF_COMPARISONS = ("server", "blocks", "device", "cuda_aware")  # the settings that comparisons have, too
ON_FAILURE = {"end": False, "shrink": True}  # whether the other ranks survive a rank's death


@dataclass(frozen=True)
class Placement:
    """The ranks, the server and the device of a run, and its behaviour on failures.

    server         how messages are averaged, one of ``SERVERS``.  "shared": rank 0, which also hosts workers.
                   "dedicated": rank 0, which hosts no worker (needs MPI).  "sharded": every rank, its blocks
                   of the coordinates.  "allreduce": MPI_Allreduce, for methods whose workers send
                   uncompressed vectors or low-rank factors
    blocks         with "sharded", the number of blocks of the coordinates; None: one for each worker, at
                   most 64.  Compressors act on each block alone, so iterates depend on this number
    device         one of ``DEVICES``: where vectors are kept and gradients and messages are computed
    cuda_aware     one of ``CUDA_AWARE``: pass GPU buffers to MPI: "yes", "no", or "ask" the library
    stall_timeout  seconds of waiting after which the job names the silent rank and ends; None: never
    verify_bytes   also count the bytes in MPI, independently of the ledger
    on_failure     one of ``ON_FAILURE``.  "end": the job ends if a rank dies.  "shrink": the others go on

    A field is also a keyword of ``run`` and an option of ``mpicomp run``, with the default given here.
    Raises ``ConfigError`` for a value, or a combination of values, that is not allowed.
    """

    server: str = setting(
        "shared",
        "Average the messages on rank 0, which also hosts workers (shared); on rank 0, which hosts none "
        "(dedicated); on every rank, each for its blocks of the coordinates (sharded); or by MPI_Allreduce "
        "(allreduce: for uncompressed or low-rank messages).",
        SERVERS,
    )
    blocks: int | None = setting(
        None,
        "With --server sharded, the number of blocks of the coordinates; iterates depend on it.  "
        "[default: one for each worker, at most 64]",
    )
    device: str = setting(
        "cpu",
        "Processor that stores the vectors and computes gradients and messages; ranks on one host share its "
        "GPUs.",
        DEVICES,
    )
    cuda_aware: str = setting(
        "ask",
        "With --device cuda, pass GPU buffers to MPI: yes, no, or ask the MPI library.",
        CUDA_AWARE,
    )
    stall_timeout: float | None = setting(
        None,
        "If the other ranks wait this long for a hung or busy rank, name it and end the job.  Give more than "
        "the time of a rank's longest computation [off].",
        metavar="SECONDS",
    )
    verify_bytes: bool = setting(
        False, "Also count the bytes that are passed to MPI, and fail if the run's own count differs."
    )
    on_failure: str = setting(
        "end",
        "If a rank dies, end the job (end), or go on with the other ranks (shrink: needs Open MPI's "
        "ULFM, and a --server that averages on rank 0).",
        ON_FAILURE,
    )

    def __post_init__(self) -> None:
        check_known("server", self.server, SERVERS)
        if self.blocks is not None:
            object.__setattr__(self, "blocks", as_integer("blocks", self.blocks))  # of numpy too
            if self.server != "sharded":
                raise ConfigError(
                    f"blocks={self.blocks} with server={self.server!r}; blocks are served by all ranks only "
                    "with server='sharded'."
                )
        object.__setattr__(self, "verify_bytes", as_switch("verify_bytes", self.verify_bytes))
        check_known("device", self.device, DEVICES)
        check_known("answer for cuda_aware", self.cuda_aware, CUDA_AWARE)
        timeout = self.stall_timeout
        is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and timeout > 0):
            raise ConfigError(f"stall_timeout={timeout!r}; allowed: a number of seconds above 0.")
        check_known("on_failure", self.on_failure, ON_FAILURE)
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
        """Whether the other ranks go on when a rank dies."""
        return ON_FAILURE[self.on_failure]

    @property
    def dedicated(self) -> bool:
        """Whether rank 0 hosts no worker."""
        return self.server == "dedicated"

    def block_count(self, workers: int) -> int:
        """The number of blocks of the coordinates for this many workers; 1 unless server="sharded"."""
        if self.server != "sharded":
            return 1
        return min(workers, MOST_BLOCKS) if self.blocks is None else self.blocks

    def connect(self, workers: int, comm: Any = None) -> Transport:
        """Make the transport for this many workers on the ranks of ``comm``; None: all ranks.  Collective."""
        return connect(
            workers,
            dedicated=self.dedicated,
            stall_timeout=self.stall_timeout,
            observed=self.verify_bytes,
            survive=self.survive,
            cuda_aware=CUDA_AWARE[self.cuda_aware],
            comm=comm,
        )
