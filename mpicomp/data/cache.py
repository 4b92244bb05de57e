"""The cache folder: parsed sets as memory-mappable arrays, computed constants as JSON.

Everything is written aside and renamed into place, so that a reader never sees half of it and any
number of ranks may write the same entry at once: the contents are equal, and one of them wins.
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
from numpy.typing import NDArray

from mpicomp.base.errors import DataError, RecordError
from mpicomp.base.files import cache_dir, write_json
from mpicomp.data.dataset import Dataset, content_sha256
from mpicomp.data.images import Images

Entry = TypeVar("Entry")

LARGE = 2**23  # bytes; the sum of fewer takes some hundredths of a second
FORMAT = 1  # of both kinds of entry; a new number starts an empty cache


def set_folder(key: str) -> Path:
    """Where the parsed set of that key is, or would be."""
    return cache_dir() / f"sets-{FORMAT}" / key


def images_key(name: str) -> str:
    """The key of images: of one name, digits, there is a set of both kinds."""
    return f"images-{name}"


def read_set(key: str, name: str) -> Dataset | None:
    """The cached set, its arrays memory-mapped; None if there is none.  ``DataError`` if it is damaged."""

    def build(arrays: list[Any], facts: dict[str, Any]) -> Dataset:
        data, indices, indptr, y = arrays
        _check(key, facts["sha256"], tuple(facts["shape"]), arrays)
        X = scipy.sparse.csr_array((data, indices, indptr), shape=tuple(facts["shape"]))
        X.has_sorted_indices = True  # as written; else scipy would read all of it to find out
        return Dataset(name, X, y, facts["sha256"])

    return _read(key, ("data", "indices", "indptr", "y"), build)


def write_set(key: str, dataset: Dataset) -> None:
    """Store a set under a key.  Raises ``OSError`` where the cache folder cannot be written."""
    X = dataset.X
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "y": dataset.y}
    _write(key, arrays, {"shape": X.shape, "sha256": dataset.sha256})


def read_images(key: str, name: str) -> Images | None:
    """``read_set`` for images."""

    def build(arrays: list[Any], facts: dict[str, Any]) -> Images:
        _check(key, facts["sha256"], (arrays[0].shape, facts["white"]), arrays)
        return Images(name, *arrays, **facts)

    return _read(key, ("pixels", "labels"), build)


def write_images(key: str, images: Images) -> None:
    """``write_set`` for images."""
    arrays = {"pixels": images.pixels, "labels": images.labels}
    _write(key, arrays, {"white": images.white, "classes": images.classes, "sha256": images.sha256})


def _read(
    key: str, arrays: tuple[str, ...], build: Callable[[list[Any], dict[str, Any]], Entry]
) -> Entry | None:
    """What ``build`` makes of an entry's arrays, memory-mapped, and its facts."""
    folder = set_folder(key)
    if not os.path.isdir(folder):
        return None
    try:
        facts = json.loads((folder / "meta.json").read_text())
        return build([np.load(folder / f"{array}.npy", mmap_mode="r") for array in arrays], facts)
    except PermissionError as error:
        raise DataError(
            f"cannot read the cached set {folder}: {error.strerror}. Set MPICOMP_CACHE to another folder."
        ) from None
    except (OSError, EOFError, TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"the cached set {folder} is damaged ({error}). Delete that folder; a set that was fetched is "
            "fetched again by `mpicomp data fetch`."
        ) from error


def _check(key: str, sha256: str, head: tuple[object, ...], arrays: list[Any]) -> None:
    """Refuse arrays that are not what was written: a wrong index would be read out of bounds.

    Of a large set the sum is taken once, and then only when its files' sizes or times have changed.
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


def _write(key: str, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
    folder = set_folder(key)
    aside = folder.with_name(f".{secrets.token_hex(8)}")
    aside.mkdir(parents=True)
    try:
        for array, values in arrays.items():
            np.save(aside / f"{array}.npy", values)
        (aside / "meta.json").write_text(json.dumps(facts))
        os.rename(aside, folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not folder.is_dir():  # if it is, another process was first
            raise


def remember(parts: tuple[str | int, ...], compute: Callable[[], Any]) -> Any:
    """``compute()``, a JSON value, computed once for these ``parts``, which must name all it depends on.

    The bits are the same either way: JSON keeps floats exactly.  A cache that cannot be read or
    written costs the time of computing again, nothing else.
    """
    text = json.dumps([FORMAT, *parts])
    path = cache_dir() / "constants" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads(path.read_text())["value"]
    value = compute()
    aside = path.with_name(f".{secrets.token_hex(8)}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps({"of": text, "value": value}))
        os.replace(aside, path)
    return value
