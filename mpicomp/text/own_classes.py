"""Import a user's own classes by texts such as ``my_module:MyMethod`` or ``./my_file.py:MyProblem``.

The part before the colon is a module or, if it ends in ``.py``, the path of a file.  A module is searched for
on Python's path and in the current folder.  A relative path starts at the current folder.  This also holds in
the TOML file of a suite, wherever that file is, as it does for the paths of data sets: a comparison's folder
holds a copy of its suite.  Slurm starts a job in the folder in which it was submitted.

Importing a module executes it.  Nothing else in a text is executed.  So only a text of the user's own causes
an import: one that was typed, or a suite that is run.  Folders of results are read ``without_imports``.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_type_hints

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.base.files import present
from mpicomp.compressors import Compressor
from mpicomp.methods import Method
from mpicomp.methods.parameters import checks_of
from mpicomp.problems import Problem

_INSTALLED = tuple(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))  # folders
KINDS: dict[str, type] = {"method": Method, "problem": Problem, "compressor": Compressor}

_texts: dict[type, str] = {}  # the text from which each class was imported
_may_import = ContextVar("_may_import", default=True)


class NotImported(ConfigError):
    """A text names a class that is not imported yet, inside ``without_imports``."""


@contextmanager
def without_imports() -> Iterator[None]:
    """In the ``with`` block nothing is imported: a class not imported before raises ``NotImported``."""
    before = _may_import.set(False)
    try:
        yield
    finally:
        _may_import.reset(before)


def is_reference(name: str) -> bool:
    """Whether ``name`` has the form ``module:Class`` or ``file.py:Class``."""
    place, _, cls = name.rpartition(":")
    return bool(place) and cls.isidentifier()


def import_class(reference: str, kind: str | None = None) -> type:
    """Import the class that ``reference`` names, such as ``./my_file.py:MyMethod``.

    kind  "method", "problem" or "compressor", one of ``KINDS``; None allows all of them

    Raises ``ConfigError`` if the class cannot be imported, is of another kind, or is no dataclass.
    """
    place, _, name = reference.rpartition(":")
    module = _imported(place)
    if not _may_import.get():
        cls: Any = None if module is None else vars(module).get(name)  # a module's getattr may import, too
        if cls is None:
            raise NotImported(f"{reference} is not imported here, where a folder names it.")
    else:
        module = module or _module(place)
        cls = getattr(module, name, None)
        if cls is None:
            raise unknown(f"class of {place}", name, [n for n, c in vars(module).items() if _kind(c)])
    expected = [kind] if kind else list(KINDS)
    if _kind(cls) not in expected:
        what = _kind(cls) or ("class of another kind" if isinstance(cls, type) else type(cls).__name__)
        wanted = ", ".join(f"a subclass of mpicomp's {KINDS[k].__name__}" for k in expected)
        raise ConfigError(f"{reference} is a {what}; a {' or '.join(expected)} is expected: {wanted}.")
    if inspect.isabstract(cls):
        raise ConfigError(f"{reference} is abstract: it lacks {', '.join(sorted(cls.__abstractmethods__))}.")
    if not is_dataclass(cast(object, cls)):
        raise ConfigError(
            f"{reference} is no dataclass. Write @dataclass(frozen=True) above it: its fields are parameters."
        )
    try:
        get_type_hints(cls)
    except Exception as error:
        raise ConfigError(f"{reference}: the types of its fields cannot be read: {error}.") from None
    try:
        if _kind(cls) == "method":
            checks_of(cls)
    except TypeError as error:
        raise ConfigError(f"{reference} is no method: {error}") from None
    _texts.setdefault(cls, reference)
    return cls


def reference(cls: type) -> str | None:
    """The import text of ``cls``, a class in no table; None if another process could not import it.

    A class that was not imported from a text is named by its module or, in a script, by the script's file.
    """
    if cls in _texts:
        return _texts[cls]
    module = sys.modules.get(cls.__module__)
    if _kind(cls) is None or not is_dataclass(cls) or getattr(module, cls.__name__, None) is not cls:
        return None
    if cls.__module__ != "__main__":
        return f"{cls.__module__}:{cls.__name__}"
    script = getattr(module, "__file__", None)
    return None if script is None else f"{os.path.relpath(script)}:{cls.__name__}"


def classes_of_ones_own(known: object) -> set[type]:
    """The user's own classes in ``known``: of a method, problem or compressor, and of those in its fields."""
    found: set[type] = set()
    if isinstance(known, Problem | Method | Compressor):
        if type(known).__module__.partition(".")[0] != "mpicomp":
            found = {type(known)}
        known = vars(known)
    inside = known.values() if isinstance(known, dict) else known if isinstance(known, tuple) else ()
    return found.union(*map(classes_of_ones_own, inside))


def code_of(*known: object) -> dict[str, str]:
    """A hash of the code of each file that has one of the ``classes_of_ones_own``, or a base class of one.

    The hashes are by the file's name.  Base classes of this package, of Python and of installed packages
    have none.  Blank lines and lines of comments do not change a hash, nor does the version of Python.  Files
    of one name have one hash together.  Other files that such a file imports are not in it.
    """
    classes = set().union(*map(classes_of_ones_own, known))
    files = {_file_of(cls) for cls in classes}
    bases = {base for cls in classes for base in cls.__mro__ if not base.__module__.startswith("mpicomp.")}
    files |= {file for file in map(_file_of, bases) if not file.startswith(_INSTALLED)}
    code: dict[str, bytes] = {}
    for file in map(Path, sorted(filter(os.path.isfile, files))):
        with suppress(OSError):
            lines = map(bytes.rstrip, file.read_bytes().splitlines())
            kept = b"".join(line + b"\n" for line in lines if line and not line.lstrip().startswith(b"#"))
            code[file.name] = code.get(file.name, b"") + kept
    return {name: sha256(text).hexdigest() for name, text in code.items()}


def _file_of(cls: type) -> str:
    """The file of the module of ``cls``; "" if there is none."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or ""


def _kind(cls: object) -> str | None:
    """ "method", "problem" or "compressor" if ``cls`` is such a class, else None."""
    return next((k for k, base in KINDS.items() if isinstance(cls, type) and issubclass(cls, base)), None)


def _imported(place: str) -> ModuleType | None:
    """The module ``place``, a name or the path of a file, if this process has imported it; else None."""
    if not place.endswith(".py"):
        return sys.modules.get(place)
    try:
        path = _path(place)
    except (OSError, ValueError, RuntimeError):  # no path of a file, such as ~nobody/mine.py
        return None
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is not None and Path(main).resolve() == path:
        return sys.modules["__main__"]
    return sys.modules.get(_name_of(path))


def _module(place: str) -> ModuleType:
    """Import the module ``place``, a name or the path of a file.  Raises ``ConfigError`` if that fails."""
    if not place.endswith(".py"):
        return _executed(place, lambda: import_module(place), Path.cwd())
    path = _path(place)
    if not present(path, ConfigError) or not path.is_file():
        raise ConfigError(
            f"no such file: {place}. A relative path starts at the current folder, {Path.cwd()}."
        )
    return _executed(place, lambda: _import_file(_name_of(path), path), path.parent)


def _path(place: str) -> Path:
    return Path(place).expanduser().resolve()


def _name_of(path: Path) -> str:
    """A module name made from the file's path: unique, and equal on every rank, as pickle needs."""
    return str(path).replace(".", "_")


def _import_file(name: str, path: Path) -> ModuleType:
    """Import the file at ``path`` as the module ``name``."""
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _executed(place: str, load: Callable[[], ModuleType], folder: Path) -> ModuleType:
    """Run ``load``, which imports the module ``place``; it may import other modules in ``folder``.

    Raises ``ConfigError`` with the last line of the traceback if the module raises anything.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last: a file of the user's must not hide a library
    try:
        return load()
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name != place.partition(".")[0] and error.name != place:
            raise _failed(place, folder, error) from None
        raise ConfigError(
            f"no module {place!r} on Python's path or in the current folder, {folder}. A file is named by "
            f"its path: ./{place.replace('.', '/')}.py."
        ) from None
    except BaseException as error:  # SystemExit too
        raise _failed(place, folder, error) from None


def _failed(place: str, folder: Path, error: BaseException) -> ConfigError:
    """The error for a module that raised ``error``: the traceback's last line, and the user's line in it."""
    last = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if folder in Path(frame.filename).parents] or frames
    file, line = own[-1].filename, own[-1].lineno
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    return ConfigError(f"cannot import {place}: {last} (line {line} of {file})")
