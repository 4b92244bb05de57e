"""A folder of machine code, which is executed when it is read: it must be ours alone, and whole.

A user who may write to such a folder can run code as its readers.  So it is made for its owner alone, and is
refused if it, or an entry, belongs to somebody else or may be written by others.  While it is in use it is
held open and reached by its descriptor (Linux): a user who may write to the folder around it can rename it,
but cannot put another in its place between check and use.

``complete``, written last, has the SHA-256 of every entry: one that was cut off is found before it is read.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

from mpicomp.base.errors import RecordError
from mpicomp.base.files import write_json

SEAL, LOCK = "complete", "lock"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotOurs(OSError):
    """A folder is refused because other users may write to it, or could."""


@contextmanager
def ours(folder: Path) -> Iterator[Path]:
    """A path of ``folder``, made if need be, that stays its own while it is held.

    Raises ``NotOurs`` if anybody else may write to it, else ``OSError`` if it cannot be had.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check(folder, os.fstat(descriptor))
        held = Path(f"/proc/self/fd/{descriptor}")
        yield held if held.is_dir() else folder
    finally:
        os.close(descriptor)


def check(folder: Path, held: Path) -> None:
    """Raise ``NotOurs`` if anybody else may write to an entry, from when the folder was open to them."""
    for entry in held.rglob("*"):
        _check(folder / entry.relative_to(held), entry.lstat())


def _check(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise NotOurs(f"{path} belongs to user {found.st_uid}, and code from there would run as another")
    if found.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(found.st_mode):
        raise NotOurs(f"{path} may be written by others than its owner (mode {found.st_mode & 0o777:o})")


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Within, what is made in ``folder`` is its owner's alone, whatever the umask; then it is sealed.

    Where that fails with an ``OSError`` nothing is left: a part takes room, and serves nobody.
    """
    umask = os.umask(0o077)
    try:
        clear(folder)
        yield
        write_json(folder / SEAL, _digests(folder))
    except (OSError, RecordError) as error:
        with suppress(OSError):
            clear(folder)
        raise error if isinstance(error, OSError) else OSError(str(error)) from None
    finally:
        os.umask(umask)


def state(folder: Path) -> str:
    """ "whole", "unfinished", or "damaged": an entry is not what it was when it was sealed."""
    try:
        sealed = json.loads((folder / SEAL).read_text())
        return "whole" if sealed == _digests(folder) else "damaged"
    except FileNotFoundError:  # or removed while we look: somebody is making them again
        return "unfinished"
    except ValueError:
        return "damaged"


def clear(folder: Path) -> None:
    """Remove all entries, the seal first; the lock stays, for others wait for it."""
    (folder / SEAL).unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir():
            rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, where the file system has locks: one process of the machine at a time."""
    import fcntl

    with open(folder / LOCK, "w", opener=partial(os.open, mode=0o600)) as file:
        with suppress(OSError):  # without it, compiled twice at worst: entries are renamed into place
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digests(folder: Path) -> dict[str, str]:
    entries = (p for p in folder.rglob("*") if p.is_file() and p.name not in (SEAL, LOCK))
    return {str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest() for p in entries}
