"""Whether the MPI that the program has loaded may be used.  Does not load MPI."""

from __future__ import annotations

import sys

from mpicomp.base.errors import ConfigError


def mpi_is_down() -> bool:
    """Whether the program has loaded MPI and not initialised it, or has finalised it."""
    loaded = sys.modules.get("mpi4py.MPI")
    return loaded is not None and (not loaded.Is_initialized() or loaded.Is_finalized())


def refuse_mpi_that_is_down() -> None:
    """Raise ``ConfigError`` if ``mpi_is_down``: any use of MPI would then end the process."""
    if mpi_is_down():
        raise ConfigError(
            "MPI is not initialised, as with mpi4py.rc.initialize = False, or has been finalised. Call "
            "MPI.Init() before the first call here, and MPI.Finalize() after the last."
        )
