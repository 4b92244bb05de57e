"""Write files atomically, so that they exist in full or not at all; and read JSON files."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, DataError, MpicompError, RecordError
from mpicomp.base.units import one_line

_ABSENT = errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP
DEEPEST = 200  # parts of a path: pathlib makes folders by recursion


def as_path(name: str, value: Any, what: str = "folder", also: str = "") -> Path:
    """``value``, the argument ``name``, as the path of a file or folder.

    Raises ``ConfigError`` unless it is a text or a ``pathlib.Path``, of ``DEEPEST`` parts at most; an empty
    text names nothing.  ``also`` names what else the argument may be.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        here = "; '.' is the current folder" if what == "folder" else ""
        raise ConfigError(
            f"{name}={one_line(value)} names no {what}; allowed: a path, as a text or a pathlib.Path"
            f"{also}{here}."
        )
    path = Path(text)
    if (depth := len(path.parts)) > DEEPEST:
        raise ConfigError(
            f"{name} names a {what} inside {depth - 1} folders; allowed: {DEEPEST - 1}. Give a shorter path."
        )
    return path


def as_path_or_none(name: str, value: Any) -> Path | None:
    """``as_path`` of a folder, or None for none."""
    return None if value is None else as_path(name, value, also=", or None")


def cache_dir() -> Path:
    """The cache folder: $MPICOMP_CACHE, which several users may share; else ``user_cache``."""
    own = os.environ.get("MPICOMP_CACHE")
    return Path(own) if own else user_cache()


def user_cache() -> Path:
    """The user's own cache folder: $XDG_CACHE_HOME/mpicomp, else ~/.cache/mpicomp."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "mpicomp"


@contextmanager
def os_errors_as(kind: type[MpicompError], what: str) -> Iterator[None]:
    """In the ``with`` block an ``OSError`` becomes an error of this ``kind``: ``what``, then the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}.") from None


def write_atomically(path: Path, content: bytes, new: bool = False) -> None:
    """Write ``content`` under a temporary name, flush it to the disk, and rename it into place.

    Creates the folder if needed.  Raises ``RecordError``, naming the file, if it cannot be written, or if it
    is to be ``new`` and is there: of two processes that write it at once, one is refused.
    """
    # Random, not the process number: processes on other hosts or in other containers may share it.
    begin = path.name.encode(errors="ignore")[:200].decode(errors="ignore")  # a name has 255 bytes at most
    temporary = path.with_name(f".{begin}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with _claimed(path) if new else nullcontext():
            os.replace(temporary, path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def _claimed(path: Path) -> Iterator[None]:
    """Hold ``path`` by an empty file, which is removed if the ``with`` block does not replace it.

    Raises ``RecordError`` if the file is there.
    """
    try:
        path.touch(exist_ok=False)  # not a hard link: some file systems have none
    except FileExistsError:
        raise RecordError(f"{path} is already there. Choose another name.") from None
    try:
        yield
    except BaseException:
        path.unlink()
        raise


def refuse_unwritable(folder: Path) -> None:
    """Raise ``RecordError`` if no file can be written in ``folder``, which is made: before long work."""
    trial = folder / f".{secrets.token_hex(8)}"
    write_atomically(trial, b"")
    with suppress(OSError):
        trial.unlink()


def flush_folder(folder: Path) -> None:
    """Flush the entries of ``folder`` to the disk: files renamed before it survive a power cut.

    Does nothing on a file system that cannot flush folders.  Raises ``RecordError`` if it fails otherwise.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise RecordError(f"cannot write {folder}: {error.strerror}.") from None


def mode_of(path: Path) -> int:
    """The ``st_mode`` of the file or folder, or of the one that a link leads to; 0 if there is none.

    Raises ``OSError`` if one may not look there; ``Path.exists`` of Python 3.14 says then that there is none.
    """
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise
    except ValueError:  # no file can have this name
        return 0


def is_file(path: Path) -> bool:
    """Whether the file exists, and is neither a folder, a pipe nor a device.  Raises as ``mode_of``."""
    return stat.S_ISREG(mode_of(path))


def is_folder(path: Path) -> bool:
    """Whether the folder exists.  Raises as ``mode_of``."""
    return stat.S_ISDIR(mode_of(path))


def refuse_endless(path: Path) -> None:
    """Raise ``DataError`` if ``path`` is a folder, a pipe or a device, or a link to one: none can be read."""
    with os_errors_as(DataError, f"cannot read {path}"):
        if mode_of(path) and not is_file(path):
            raise DataError(f"{path} is a folder, a pipe or a device; allowed: a file, or a link to one.")


def present(path: Path, denied: type[MpicompError] = RecordError) -> bool:
    """Whether the file or folder exists.

    Raises ``denied`` if access to its parent is denied, or if no file can have this name.
    """
    try:
        return mode_of(path) != 0
    except OSError as error:
        where = f"into {path.parent}" if isinstance(error, PermissionError) else f"for {path}"
        raise denied(f"cannot look {where}: {error.strerror}.") from None


def check_own(path: Path) -> None:
    """Raise ``RecordError`` if ``path`` exists but is no regular file inside its folder (a pipe, a link)."""
    if present(path) and not (is_file(path) and path.resolve().parent == path.parent.resolve()):
        raise RecordError(
            f"cannot read {path}: it is no file of its folder, but a folder, a device, a pipe, or a link out "
            "of it. Put a copy of the file there."
        )


def write_text(path: Path, content: str, new: bool = False) -> None:
    """``write_atomically`` a text in UTF-8; a file name in it that is not UTF-8 keeps its bytes."""
    write_atomically(path, content.encode(errors="surrogateescape"), new)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, {} if there is no file.  Raises ``RecordError`` if it cannot be read."""
    check_own(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RecordError(f"cannot read {path}: {error}.") from None
    except RecursionError:
        raise RecordError(f"cannot read {path}: it is nested too deeply.") from None
    if not isinstance(content, dict):
        raise RecordError(f"cannot read {path}: it holds no JSON object.")
    return content
