"""Openers, which make a transport over the communicators of other libraries than MPI.

A package above registers an opener and the library whose communicators it takes.  It is imported only in a
program that has loaded this library.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from mpicomp.base.errors import ConfigError
from mpicomp.base.lazy import found
from mpicomp.base.units import one_line
from mpicomp.transports.base import Transport
from mpicomp.transports.launcher import launched_by_mpi
from mpicomp.transports.mpi_state import mpi_is_down, refuse_mpi_that_is_down

_PLACES: dict[str, str] = {}  # a library's module -> "module:object", its opener


class Options(NamedTuple):
    """The features that ``transports.connect`` is asked for."""

    dedicated: bool
    stall_timeout: float | None
    observed: bool
    survive: bool
    cuda_aware: bool | None


class Opener(ABC):
    """Opens transports over the communicators of one library."""

    @abstractmethod
    def takes(self, comm: Any) -> bool:
        """Whether ``comm`` is a communicator of this library."""

    @abstractmethod
    def default(self) -> Any:
        """The communicator of all processes of the program; None if the library has not joined them."""

    @abstractmethod
    def size(self, comm: Any) -> int:
        """The number of ranks of ``comm``.  Raises ``ConfigError`` if this process is none of them."""

    @abstractmethod
    def open(self, n: int, comm: Any, options: Options) -> Transport:
        """The transport for n workers on the ranks of ``comm``, of which there are several; collective.

        Raises ``ConfigError`` for options that need MPI.
        """


def register(library: str, place: str) -> None:
    """Let the opener "module:object" at ``place`` open transports in programs that load ``library``."""
    _PLACES[library] = place


def opener_of(comm: Any) -> Opener | None:
    """The opener that takes ``comm``; None for a communicator of MPI.

    Raises ``ConfigError`` for anything else, for MPI_COMM_NULL and for an intercommunicator.
    """
    for opener in _openers():
        if opener.takes(comm):
            return opener
    is_group = hasattr(comm, "Translate_ranks")  # the ranks of a communicator, without messages
    if isinstance(comm, type) or is_group or not hasattr(comm, "Get_size"):
        raise ConfigError(
            f"comm is {one_line(comm)}; allowed: a communicator of mpi4py, or a process group of "
            "torch.distributed."
        )
    if not comm:
        raise ConfigError(
            "comm is MPI_COMM_NULL: it was freed, or this rank is not in it, as after a Split by "
            "MPI.UNDEFINED. Only the ranks of a communicator make these calls."
        )
    refuse_mpi_that_is_down()
    if getattr(comm, "is_inter", False):
        raise ConfigError(
            "comm is an intercommunicator; allowed: an intracommunicator, as its Merge() returns."
        )
    return None


def default_communicator() -> Any:
    """The communicator of all processes, of a library other than MPI; None if MPI, or nothing, joins them."""
    loaded = sys.modules.get("mpi4py.MPI")
    if not launched_by_mpi() and (loaded is None or mpi_is_down() or loaded.COMM_WORLD.size == 1):
        for opener in _openers():
            if (comm := opener.default()) is not None:
                return comm
    return None


def _openers() -> list[Opener]:
    return [found(place) for library, place in _PLACES.items() if library in sys.modules]
