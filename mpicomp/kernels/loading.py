"""Loading the compiled kernels: once a process, and compiled once a machine.

Machine code is kept on disk in a folder named by a hash of the kernels' source and one of the versions of
Python and numba, of the processor and of whether indices are checked, so what is there is never stale and a
folder shared between unlike machines is safe.  It lies in the package's ``__pycache__``, or in the user's
cache where the package cannot be written.  The first process compiles, a lock keeps others from doing the
same at the same time, and from then on everybody loads.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import Any

from mpicomp.files import cache_dir
from mpicomp.kernels import definition

_SOURCE = Path(__file__).parent
_BESIDE = _SOURCE / "__pycache__"


@cache
def load() -> ModuleType:
    """The compiled kernels; numpy's if no folder can be written to keep them in."""
    folder = _folder()
    if folder is None:
        return definition
    complete = folder / "complete"
    if not complete.exists():
        with _locked(folder / "lock"):
            if not complete.exists():
                sys.stderr.write("mpicomp: compiling the kernels, once on this machine: some 30 seconds.\n")
                _import(folder)
                complete.touch()
                _remove_superseded(folder)
    return _import(folder)


def loaded() -> bool:
    """Whether the compiled kernels are there to be called."""
    return "mpicomp.kernels.compiled" in sys.modules


def _import(folder: Path) -> ModuleType:
    import numba

    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return import_module("mpicomp.kernels.compiled")
    finally:
        config.CACHE_DIR = before


def _folder() -> Path | None:
    """Where this machine's kernels are or will be; the first place that can be written."""
    name = f"kernels-{_source()}-{_machine()}"
    for place in (_BESIDE, cache_dir()):
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "lock").touch()
        except OSError:
            continue
        return folder
    return None


def _remove_superseded(folder: Path) -> None:
    """What the package's source made before it was changed, on a machine like this one.

    Only beside the package, whose source is this one: in the user's cache there may be those of other
    installations.  Nobody still reads them, because kernels are read when a process starts.
    """
    if folder.parent == _BESIDE:
        for other in _BESIDE.glob(f"kernels-*-{_machine()}"):
            if other != folder and (other / "complete").exists():
                rmtree(other, ignore_errors=True)


def _source() -> str:
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _machine() -> str:
    """All that the machine code depends on, the source apart."""
    import numba
    from llvmlite import binding

    config: Any = numba.config
    cpu = binding.get_host_cpu_name(), sorted(binding.get_host_cpu_features().items())
    made_for = repr((sys.version, numba.__version__, cpu, bool(config.BOUNDSCHECK)))
    return hashlib.sha256(made_for.encode()).hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among the machine's processes, where the file system has locks."""
    import fcntl

    with open(path, "w") as file:
        with suppress(OSError):  # without it, compiled twice at worst: entries are renamed into place
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
