"""Load the compiled kernels: once in a process, compiled once on a machine.

Machine code is kept on disk.  Its folder is named by three things: a hash of the kernels' source and its
path; a hash of the versions of Python and numba, of the processor, and of whether indices are checked; and
the owner.  So the code is never stale, and different machines may share the folder above.  The folder is in
the package's ``__pycache__``, or in the cache if the package cannot be written.  ``mpicomp.kernels.store``
refuses a folder in which others could place their code.  The first process compiles; a lock keeps others from
compiling at the same time; all later processes load.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree
from threading import Lock
from types import ModuleType

from mpicomp.base.errors import RecordError
from mpicomp.base.files import cache_dir, user_cache
from mpicomp.kernels import compiling, definition, store

_SOURCE = Path(__file__).parent
_BESIDE = _SOURCE / "__pycache__"

_refused: dict[Path, OSError] = {}  # places that could not be used, with the reason, in the order tried
_watching: list[Callable[[], None]] = []
_one_at_a_time = Lock()


@contextmanager
def telling(tell: Callable[[], None]) -> Iterator[None]:
    """In the ``with`` block, call ``tell`` when this process starts to compile, or to wait for a compiler."""
    _watching.append(tell)
    try:
        yield
    finally:
        _watching.remove(tell)


def load_compiled() -> ModuleType:
    """Load the compiled kernels; numpy's if no folder can keep compiled ones (``refusal`` says why).

    Also numpy's where numba is told to compile nothing, by NUMBA_DISABLE_JIT.

    Threads load one after the other: two at once would restore each other's configuration of numba.
    """
    with _one_at_a_time:
        return _load()


@cache
def _load() -> ModuleType:
    if not compiling.compiles():
        return definition
    for folder in _folders():
        try:
            return _load_from(folder)
        except OSError as error:
            _refused[folder.parent] = error
            for module in [m for m in sys.modules if m.startswith(compiling.PACKAGE)]:
                del sys.modules[module]  # compiled for another place
    return definition


def compiled_before() -> bool:
    """Whether some process has compiled the kernels on this machine, so that loading takes a second."""
    with suppress(OSError):
        return any(store.state(folder) == "whole" for folder in _folders())
    return False


def loaded() -> bool:
    """Whether this process has loaded the compiled kernels."""
    return f"{compiling.PACKAGE}.all" in sys.modules


def refusal() -> str | None:
    """The reason why numpy's kernels are used although the compiled ones were asked for; else None."""
    if not _refused or loaded():
        return None
    return "; ".join(f"{place}: {error.strerror or error}" for place, error in _refused.items())


def _folders() -> list[Path]:
    """The folders that may have the kernels, in the order tried."""
    name = f"kernels-{_source()}-{_machine()}-{os.geteuid()}"
    return [place / name for place in dict.fromkeys((_BESIDE, cache_dir(), user_cache()))]


def _load_from(folder: Path) -> ModuleType:
    """Load the kernels in ``folder``, after compiling them into it if it has none.

    Raises ``OSError`` if the folder cannot be used, and ``RecordError`` if the kernels cannot be loaded.
    """
    with store.ours(folder) as held:
        if store.state(held) != "whole":
            for tell in _watching:
                tell()
            with store.locked(held):
                if (found := store.state(held)) != "whole":
                    _announce(folder, found)
                    return _compile(folder, held)
        store.check(folder, held)
        try:
            return compiling.everything(held)
        except OSError:
            raise
        except Exception as error:
            raise RecordError(
                f"the compiled kernels in {folder} cannot be loaded: {error!r}. Delete that folder."
            ) from error


def _compile(folder: Path, held: Path) -> ModuleType:
    with store.filling(held):
        compiled = compiling.compile_all(held)
    _remove_superseded(folder)
    return compiled


def _announce(folder: Path, found: str) -> None:
    """Print that kernels are compiled, which takes 20 to 40 seconds, and which folders were refused."""
    for error in _refused.values():
        if isinstance(error, store.NotOurs):
            sys.stderr.write(f"mpicomp: {error}; the compiled kernels are kept in {folder.parent}.\n")
    if found == "damaged":
        sys.stderr.write(f"mpicomp: the compiled kernels in {folder} are damaged, and made again.\n")
    sys.stderr.write("mpicomp: compiling the kernels, once on this machine: 20 to 40 seconds.\n")


def _remove_superseded(folder: Path) -> None:
    """Remove kernels compiled for this kind of machine from an earlier version of the package's source.

    This is done only in the package's own ``__pycache__``: the user's cache may hold kernels of other
    installations.  No process still reads the removed ones, because kernels are read at its start.
    """
    if folder.parent == _BESIDE:
        for other in _BESIDE.glob(f"kernels-*-{_machine()}-{os.geteuid()}"):
            if other != folder and (other / store.SEAL).exists():
                rmtree(other, ignore_errors=True)


def _source() -> str:
    digest = hashlib.sha256(str(_SOURCE).encode())  # numba finds its entries by the path as well
    for path in sorted(_SOURCE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _machine() -> str:
    """A hash of the conditions of machine code besides its source."""
    return hashlib.sha256(compiling.made_for().encode()).hexdigest()[:16]
