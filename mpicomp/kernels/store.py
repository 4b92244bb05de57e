"""Keep machine code in a folder that no other user can write to, and check that it is complete.

Machine code is executed when it is loaded, so a user who may write to such a folder can run code as its
readers.  So the folder is made for its owner alone.  It is refused if it, or an entry, belongs to another
user or may be written by others.  While in use it is held open and reached by its descriptor (Linux): a user
who may write to the parent folder can rename it, but cannot replace it between check and use.

The file ``complete``, written last, has the SHA-256 of every entry, so a truncated entry is found before it
is loaded.
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
    """A folder is refused because it belongs to another user, or other users may write to it."""


@contextmanager
def ours(folder: Path) -> Iterator[Path]:
    """Make ``folder`` if it does not exist, hold it open, and yield a path that cannot be replaced meanwhile.

    Raises ``NotOurs`` if another user may write to it, and ``OSError`` if it cannot be made or opened.
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
    """Raise ``NotOurs`` if another user may write to an entry, as may be left from an earlier mode."""
    for entry in held.rglob("*"):
        _check(folder / entry.relative_to(held), entry.lstat())


def _check(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise NotOurs(f"{path} belongs to user {found.st_uid}, and code from there would run as another")
    if found.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(found.st_mode):
        raise NotOurs(f"{path} may be written by others than its owner (mode {found.st_mode & 0o777:o})")


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """In the ``with`` block, files made in ``folder`` are for its owner alone; at the end it is sealed.

    On an ``OSError`` all entries are removed, because an incomplete set is of no use.
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
    """ "whole", "unfinished", or "damaged": an entry has changed since it was sealed."""
    try:
        sealed = json.loads((folder / SEAL).read_text())
        return "whole" if sealed == _digests(folder) else "damaged"
    except FileNotFoundError:  # or removed while we look: somebody is making them again
        return "unfinished"
    except ValueError:
        return "damaged"


def clear(folder: Path) -> None:
    """Remove all entries, the seal first; the lock file stays, because others may wait for it."""
    (folder / SEAL).unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir():
            rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that one process compiles at a time; no lock if the file system has none."""
    import fcntl

    with open(folder / LOCK, "w", opener=partial(os.open, mode=0o600)) as file:
        with suppress(OSError):  # without it, compiled twice at worst: entries are renamed into place
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digests(folder: Path) -> dict[str, str]:
    entries = (p for p in folder.rglob("*") if p.is_file() and p.name not in (SEAL, LOCK))
    return {str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest() for p in entries}
