"""Read and write the cache folder: parsed data sets as memory-mapped arrays, computed constants as JSON.

Each entry is written under a temporary name and renamed into place, so that a reader never sees half an
entry.  Several ranks may write one entry at once: their contents are equal, and one of them is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy

from mpicomp.base.errors import DataError, RecordError
from mpicomp.base.files import cache_dir, write_json
from mpicomp.data.dataset import Dataset, content_sha256
from mpicomp.data.images import Images
from mpicomp.data.own import ClassRows

Entry = TypeVar("Entry", bound=Dataset | Images | ClassRows)

LARGE = 2**23  # bytes; hashing a smaller set takes some hundredths of a second
FORMAT = 1  # version of both kinds of entry; a new number starts an empty cache
ARRAYS: dict[type, tuple[str, ...]] = {  # the names of an entry's arrays, each of them a file
    Dataset: ("data", "indices", "indptr", "y"),
    Images: ("pixels", "labels"),
    ClassRows: ("X", "labels"),
}


def set_folder(key: str) -> Path:
    """The folder of the parsed set ``key``, whether it exists or not."""
    return cache_dir() / f"sets-{FORMAT}" / key


def images_key(name: str) -> str:
    """The key of a set of images; it differs from ``name`` because digits is also a set of rows."""
    return f"images-{name}"


def read_entry(kind: type[Entry], key: str, name: str) -> Entry | None:
    """The cached entry ``key``, memory-mapped, under the name ``name``; None if it is not cached.

    Rows with class labels have no name.  Raises ``DataError`` if the entry is damaged or cannot be read.
    """
    folder = set_folder(key)
    if not os.path.isdir(folder):
        return None
    try:
        facts = json.loads((folder / "meta.json").read_text())
        arrays = [np.load(folder / f"{array}.npy", mmap_mode="r") for array in ARRAYS[kind]]
        _check(key, facts["sha256"], _head(kind, arrays, facts), arrays)
        return _whole(kind, name, arrays, facts)
    except PermissionError as error:
        raise DataError(
            f"cannot read the cached set {folder}: {error.strerror}. Set MPICOMP_CACHE to another folder."
        ) from None
    except (OSError, EOFError, TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"the cached set {folder} is damaged ({error}). Delete that folder; a set that was fetched is "
            "fetched again by `mpicomp data fetch`."
        ) from error


def _head(kind: type, arrays: list[Any], facts: dict[str, Any]) -> tuple[object, ...]:
    """What the entry's ``sha256`` is of beside its arrays."""
    if kind is Dataset:
        return tuple(facts["shape"])
    shape = arrays[0].shape
    return (shape, facts["white"]) if kind is Images else shape


def _whole(kind: Any, name: str, arrays: list[Any], facts: dict[str, Any]) -> Any:
    """The entry with these arrays and facts."""
    if kind is ClassRows:
        return kind(*arrays, **facts)
    if kind is Images:
        return kind(name, *arrays, **facts)
    *sparse, y = arrays
    X = scipy.sparse.csr_array(tuple(sparse), shape=tuple(facts["shape"]))
    X.has_sorted_indices = True  # they were when written; scipy would read all of them to check
    return kind(name, X, y, facts["sha256"])


def _check(key: str, sha256: str, head: tuple[object, ...], arrays: list[Any]) -> None:
    """Raise ``ValueError`` if the arrays differ from those written: a wrong index reads out of bounds.

    They are compared by ``sha256``.  A large set is hashed once, and again only if the size or the time of
    one of its files has changed.
    """
    stamp = [[a.filename.name, a.filename.stat().st_size, a.filename.stat().st_mtime_ns] for a in arrays]
    large = sum(a.nbytes for a in arrays) > LARGE
    path = set_folder(key) / "checked.json"
    if large:
        with suppress(OSError, ValueError):
            if json.loads(path.read_text()) == stamp:
                return
    if (found := content_sha256(head, *arrays)) != sha256:
        raise ValueError(f"its SHA-256 is {found}, and was {sha256} when it was written")
    if large:
        with suppress(RecordError):
            write_json(path, stamp)


def write_entry(key: str, entry: Dataset | Images | ClassRows) -> None:
    """Cache ``entry`` under ``key``.  Raises ``OSError`` if the cache folder cannot be written."""
    arrays: tuple[Any, ...]
    facts: dict[str, Any]
    if isinstance(entry, Dataset):
        X = entry.X
        arrays, facts = (X.data, X.indices, X.indptr, entry.y), {"shape": X.shape}
    elif isinstance(entry, Images):
        arrays, facts = (entry.pixels, entry.labels), {"white": entry.white, "classes": entry.classes}
    else:
        arrays, facts = (entry.X, entry.labels), {"classes": entry.classes}
    folder = set_folder(key)
    aside = folder.with_name(f".{secrets.token_hex(8)}")
    aside.mkdir(parents=True)
    try:
        for array, values in zip(ARRAYS[type(entry)], arrays, strict=True):
            np.save(aside / f"{array}.npy", values)
        (aside / "meta.json").write_text(json.dumps(facts | {"sha256": entry.sha256}))
        os.rename(aside, folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not folder.is_dir():  # if it is, another process was first
            raise


def remember(parts: tuple[str | int | tuple[int, ...], ...], compute: Callable[[], Any]) -> Any:
    """Return ``compute()``, a JSON value, or its cached result; the result may depend on ``parts`` only.

    The cached value has the same bits, because JSON keeps floats exactly.  If the cache cannot be read or
    written, the value is computed again.
    """
    text = json.dumps([FORMAT, *parts])
    path = cache_dir() / "constants" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads(path.read_text())["value"]
    value = compute()
    with suppress(RecordError):  # a value that cannot be kept is computed again
        write_json(path, {"of": text, "value": value})
    return value
