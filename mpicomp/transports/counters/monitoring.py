"""Open MPI's monitoring component as the counter.

It wraps the layer through which every message goes (pml) and the collectives (coll), and shows its
counters as performance variables of MPI's tools interface, MPI_T, which mpi4py does not cover: hence
ctypes.  The counters of the pml layer are bound to MPI_COMM_WORLD: they count all communicators
together, by rank in MPI_COMM_WORLD.  The counters of the collectives are bound to one communicator
each.  They count a broadcast at its root, once for each receiver, and a sum on each rank, once for each
other rank.
"""

from __future__ import annotations

import os
from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

from mpicomp.base.errors import ConfigError
from mpicomp.transports.counters.base import ByteCounter, Counted

# Variables and their classes: MPI_T_PVAR_CLASS_SIZE, _COUNTER, _AGGREGATE in Open MPI's mpi.h.
_TO_EACH = {"pml_monitoring_messages_size": 2, "pml_monitoring_messages_count": 2}
_AS_ROOT = {"coll_monitoring_o2a_size": 7, "coll_monitoring_o2a_count": 6}
_BY_ALL = {"coll_monitoring_a2a_size": 7, "coll_monitoring_a2a_count": 6}


# Open MPI's parameters, as it reads them from the environment.
_ENABLE, _LAYERS = "OMPI_MCA_pml_monitoring_enable", "OMPI_MCA_pml"


def switch_on() -> None:
    """Ask Open MPI, through the environment, to load the component when it starts."""
    os.environ[_ENABLE] = "2"  # messages inside collectives apart from others
    layers = os.environ.get(_LAYERS, "")
    if layers and not layers.startswith("^") and "monitoring" not in layers:
        os.environ[_LAYERS] = f"{layers},monitoring"  # the user listed the allowed components; add ours


class Monitoring(ByteCounter):
    """The counts of the MPI library ``mpi``, by its monitoring component.

    ``world`` and ``messages`` are the addresses of the handles of MPI_COMM_WORLD and of the communicator
    named ``MESSAGES``; ``ranks`` is the number of ranks.

    Raises ``ConfigError`` if the library has no such counters, or has not switched them on.
    """

    name = "Open MPI's monitoring"

    def __init__(self, mpi: CDLL, world: int, messages: int, ranks: int) -> None:
        self._mpi, self._ranks = mpi, ranks
        self._session = c_void_p()
        mpi.MPI_T_pvar_read.argtypes = [c_void_p, c_void_p, POINTER(c_size_t)]
        self._do("init_thread", c_int(0), byref(c_int()))
        self._do("pvar_session_create", byref(self._session))
        self._to_each = [self._open(name, kind, world) for name, kind in _TO_EACH.items()]
        self._collective = [self._open(name, kind, messages) for name, kind in (_AS_ROOT | _BY_ALL).items()]

    def counted(self) -> Counted:
        sizes, counts = (self._read(variable, self._ranks) for variable in self._to_each)
        broadcast, broadcasts, summed, sums = (self._read(variable, 1)[0] for variable in self._collective)
        others = max(self._ranks - 1, 1)  # each collective is counted once for each of them
        return Counted(sizes, counts, broadcast // others, broadcasts, summed // others, sums)

    def set_paused(self, paused: bool) -> None:
        for variable in self._to_each:
            self._do("pvar_stop" if paused else "pvar_start", self._session, variable)

    def close(self) -> None:
        for variable in [*self._to_each, *self._collective]:
            self._do("pvar_handle_free", self._session, byref(variable))
        self._do("pvar_session_free", byref(self._session))
        self._do("finalize")

    def _open(self, name: str, kind: int, communicator: int) -> c_void_p:
        index, length, variable = c_int(), c_int(), c_void_p()
        self._do("pvar_get_index", c_char_p(name.encode()), c_int(kind), byref(index))
        self._do(
            "pvar_handle_alloc", self._session, index, c_void_p(communicator), byref(variable), byref(length)
        )
        self._do("pvar_start", self._session, variable)
        return variable

    def _read(self, variable: c_void_p, length: int) -> list[int]:
        values = (c_size_t * length)()
        self._do("pvar_read", self._session, variable, values)
        return list(values)

    def _do(self, call: str, *arguments: object) -> None:
        if status := getattr(self._mpi, f"MPI_T_{call}")(*arguments):
            raise ConfigError(
                f"Open MPI's monitoring cannot be read (MPI_T_{call}: error {status}). Either MPI was "
                "running before the run that asks for it: ask for it in a script's first run, or call "
                "mpicomp.transports.counters.prepare() before MPI is imported. Or this Open "
                "MPI was built or configured without; `ompi_info` lists what monitoring it has."
            )
