"""Where and how a run takes place: ranks, devices, and what happens when a rank stalls or dies."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.runtime.devices import DEVICES
from mpicomp.transports import Transport, connect

# Whether the MPI library takes buffers on a GPU, as the user says; None: the library is asked.
CUDA_AWARE = {"ask": None, "yes": True, "no": False}
ON_FAILURE = {"end": False, "shrink": True}  # whether the other ranks survive a rank's death


@dataclass(frozen=True)
class Placement:
    """Where and how a run takes place.

    dedicated      rank 0 is the server only (MPI)
    device         one of ``DEVICES``: where vectors, gradients and compression are
    cuda_aware     one of ``CUDA_AWARE``: whether MPI is given buffers on the GPU
    stall_timeout  seconds of waiting after which the silent rank is named and the job ended, or None
    verify_bytes   have the MPI library count the bytes too
    on_failure     one of ``ON_FAILURE``

    A field is also a keyword of ``run`` and, as ``--server`` for ``dedicated``, an option of
    ``mpicomp run``, with the default given here.  Raises ``ConfigError`` for a value, or a combination of
    values, that is not allowed.
    """

    dedicated: bool = False
    device: str = "cpu"
    cuda_aware: str = "ask"
    stall_timeout: float | None = None
    verify_bytes: bool = False
    on_failure: str = "end"

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise unknown("device", str(self.device), DEVICES)
        if self.cuda_aware not in CUDA_AWARE:
            raise unknown("answer for cuda_aware", str(self.cuda_aware), CUDA_AWARE)
        timeout = self.stall_timeout
        if timeout is not None and not (isinstance(timeout, Real) and timeout > 0):
            raise ConfigError(f"stall_timeout={timeout!r}; allowed: a number of seconds above 0.")
        if self.on_failure not in ON_FAILURE:
            raise unknown("on_failure", str(self.on_failure), ON_FAILURE)
        if self.survive and (self.verify_bytes or timeout is not None):
            raise ConfigError(
                "on_failure='shrink' cannot be combined with stall_timeout, which ends the job, nor with "
                "verify_bytes: what was under way to a rank that dies is counted on one side only."
            )

    @property
    def survive(self) -> bool:
        """Whether the other ranks go on when one dies."""
        return ON_FAILURE[self.on_failure]

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
