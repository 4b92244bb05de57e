"""Compile the kernels in two processes: this one, and a second one that compiles a part of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mpicomp.base.cores import cores
from mpicomp.base.errors import ConfigError
from mpicomp.base.interpreter import interpreter

PACKAGE = "mpicomp.kernels.compiled"

_NO_COLOURS = "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"
_SECOND = "import sys; from mpicomp.kernels import compiling; compiling.second(*sys.argv[1:])"


def compile_all(folder: Path) -> ModuleType:
    """Compile the kernels of ``PACKAGE`` into ``folder``; returns the module that has them all.

    Where this process has two cores or more, a second process compiles one part.  What it does not get done,
    for whatever reason, is compiled here.
    """
    here, there = ([f"{PACKAGE}.{name}" for name in part] for part in import_module(PACKAGE).PARTS)
    if there and len(cores()) > 1:
        with _second_process(folder, there):
            imported(folder, here)
    return everything(folder)


def everything(folder: Path) -> ModuleType:
    """All kernels of ``PACKAGE``, which are in ``folder`` or are compiled into it, as one module.

    Raises ``OSError`` if they cannot be kept there.
    """
    return imported(folder, [f"{PACKAGE}.all"])


def imported(folder: Path, modules: Sequence[str]) -> ModuleType:
    """Import ``modules``, whose kernels are in ``folder`` or are compiled into it; returns the last one."""
    numba = _plain_numba()
    config: Any = numba.config
    ours = {"CACHE_DIR": str(folder), "CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}  # and no other
    before = {name: getattr(config, name, "") for name in ours}
    try:
        vars(config).update(ours)
        return [import_module(name) for name in modules][-1]
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        raise OSError(f"{folder} cannot be written") from None
    finally:
        vars(config).update(before)


def _plain_numba() -> Any:
    """numba, imported without colours unless the user chose some, and settled in its configuration.

    Where colorama is installed, colours end each process with an escape code on standard output, which
    mpirun writes into files too.  Raises ``ConfigError`` for a number of threads that numba cannot take.
    """
    given = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not given.strip().isdecimal() or int(given) < 1:
        raise ConfigError(f"NUMBA_NUM_THREADS={given}; allowed: a positive integer. Or unset it.")
    plain = "numba" not in sys.modules and not {"NUMBA_COLOR_SCHEME", _NO_COLOURS} & os.environ.keys()
    if plain:
        os.environ[_NO_COLOURS] = "1"
    try:
        numba = import_module("numba")
    finally:
        if plain:
            del os.environ[_NO_COLOURS]
    # Where its variables have changed, numba does this as it compiles, and forgets what was set meanwhile.
    numba.config.reload_config()
    return numba


def compiles() -> bool:
    """Whether numba compiles at all, and not under NUMBA_DISABLE_JIT, as for a debugger."""
    config: Any = _plain_numba().config
    return not config.DISABLE_JIT


def made_for() -> str:
    """The conditions of machine code besides its source: Python, numba, the processor, checked indices."""
    from llvmlite import binding

    numba = _plain_numba()
    config: Any = numba.config
    cpu = binding.get_host_cpu_name(), sorted(binding.get_host_cpu_features().items())
    return repr((sys.version, numba.__version__, cpu, bool(config.BOUNDSCHECK)))


def second(folder: str, source: str, target: str, *modules: str) -> None:
    """Import ``modules`` in the second process, if it has the source and the target of the first."""
    status = 1
    try:
        if (str(Path(__file__).parent), made_for()) == (source, target):
            imported(Path(folder), modules)
            status = 0
    finally:
        os._exit(status)  # no traceback: the first process meets the same error, and reports it


@contextmanager
def _second_process(folder: Path, modules: Sequence[str]) -> Iterator[None]:
    """In the ``with`` block a second process, if one can start, compiles ``modules``; its end is awaited."""
    descriptor = [int(folder.name)] if folder.parent == Path("/proc/self/fd") else []
    path = {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    command = interpreter("-c", _SECOND, str(folder), str(Path(__file__).parent), made_for(), *modules)
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, env=os.environ | path, pass_fds=descriptor, stdin=null, stdout=null, stderr=null
        )
    except OSError:  # no memory for a process, or no file of this Python
        yield
        return
    try:
        yield
        process.wait()
    finally:
        process.kill()
        process.wait()
