"""Load data sets by name or by path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from mpicomp.base.errors import ConfigError, DataError, MpicompError, unknown
from mpicomp.base.files import is_file, is_folder, os_errors_as, refuse_endless
from mpicomp.data.bundled import BUNDLED, BUNDLED_IMAGES, read_bundled, read_bundled_images
from mpicomp.data.cache import Entry, cache_dir, images_key, read_entry, write_entry
from mpicomp.data.dataset import Dataset
from mpicomp.data.files import DataFile
from mpicomp.data.images import Images
from mpicomp.data.own import ClassRows, own_dataset
from mpicomp.data.sets import KNOWN, KNOWN_IMAGES

READERS = 8  # the version of the readers of files: with another number all files are parsed again
Made = TypeVar("Made")
Stamp = tuple[Path, int, int]  # a file, its size, and the time of its last change


def load_dataset(name: str | Dataset, real_targets: bool = False) -> Dataset:
    """Load the data set ``name``: a bundled set, a known set that was fetched, or a file (see ``DataFile``).

    A ``Dataset`` is returned itself.  Bundled sets and files are parsed on first use.  With ``real_targets``
    y is unchanged, but for two labels of a LIBSVM file; else y must have two values.  Two values become -1
    and 1.  Raises ``ConfigError`` if ``name`` is none of these, and ``DataError`` for a known set that was
    not fetched or a file that cannot be used.
    """
    if isinstance(name, Dataset):
        return name
    stamp = None
    if name not in BUNDLED and name not in KNOWN:
        stamp = stamp_of(name)
        if stamp is None:
            raise _no_set(name)
    return _load(name, cache_dir(), stamp, real_targets)


def stamp_of(name: str) -> Stamp | None:
    """(path, size in bytes, time of last change in ns) of the file ``name``; None if there is none."""
    with os_errors_as(DataError, f"cannot read data {name!r}"):
        path = DataFile.of(name).path
        if not is_file(path):
            before = Path(name.rpartition(":")[0])
            if is_file(before):
                raise DataError(
                    f"{name!r} names a column of {before}, and only files whose names end in .csv or .tsv, "
                    "perhaps with .gz, .bz2 or .xz after it, have columns. If it is such a file, rename it; "
                    f"a .npz or LIBSVM file has its own y: write {str(before)!r}."
                )
            return None
        status = path.stat()
        return path.resolve(), status.st_size, status.st_mtime_ns


def folder_of(name: str) -> Path | None:
    """The folder ``name``; None if there is none."""
    with os_errors_as(DataError, f"cannot read data {name!r}"):
        return Path(name) if is_folder(Path(name)) else None


def _is_path(name: str) -> bool:
    """Whether ``name`` can only be a file: it has a folder, or the ending .npz, .csv or .tsv."""
    return "/" in name or DataFile.of(name).form != "libsvm"


def _no_set(name: str) -> MpicompError:
    if _is_path(name):
        path = DataFile.of(name).path
        refuse_endless(path)
        return DataError(f"no such file: {path}")
    if name in KNOWN_IMAGES:
        return ConfigError(
            f"{name} is a set of images in ten classes: a problem for autoencoder, softmax and mlp."
        )
    return ConfigError(
        f"{unknown('data set', name, (*BUNDLED, *KNOWN))} A file of your own is given by its path: LIBSVM, "
        ".npz, or CSV as in data.csv:label. "
        f"Sets other than {' and '.join(BUNDLED)} need `mpicomp data fetch NAME` once."
    )


@lru_cache(maxsize=8)
def _load(name: str, cache: Path, stamp: Stamp | None, real_targets: bool) -> Dataset:
    """``load``, cached in this process for each state of the file: a process may host many workers."""
    if stamp:
        file = DataFile.of(name)
        if file.form == "libsvm":
            key = _key(name, stamp, *["real targets"] * real_targets)
            return _cached(Dataset, key, name, lambda: Dataset.of(name, *file.read(), real_targets))
        key = _key(name, stamp, file.form, file.column, real_targets)
        make = partial(own_dataset, real_targets=real_targets, name=name)
        return _cached(Dataset, key, name, lambda: _made(file, make))
    if name in BUNDLED:
        return _cached(Dataset, name, name, lambda: Dataset.of(name, *read_bundled(name)))
    return _fetched(Dataset, name, name)


def _key(name: str, stamp: Stamp, *manner: object) -> str:
    """The cache key of a file: the SHA-256 of its content, and of the options ``manner`` of reading it."""
    with os_errors_as(DataError, f"cannot read data {name!r}"), stamp[0].open("rb") as file:
        key = f"file{READERS}-{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return f"{key}-{hashlib.sha256(repr(manner).encode()).hexdigest()[:16]}" if manner else key


def _made(file: DataFile, make: Callable[[Any], Made], labelled: bool = True) -> Made:
    """``make((X, y))`` of the content of ``file``; its error messages begin with the file's path."""
    pair = file.read(labelled)
    try:
        return make(pair)
    except DataError as error:
        raise DataError(f"{file.path}: {error}") from None


def _cached(kind: type[Entry], key: str, name: str, parse: Callable[[], Entry]) -> Entry:
    """The cached entry ``key``; if absent, it is parsed and cached, or kept in memory if caching fails."""
    if (cached := read_entry(kind, key, name)) is not None:
        return cached
    entry = parse()
    try:
        write_entry(key, entry)
    except OSError:
        return entry
    return read_entry(kind, key, name) or entry


def _fetched(kind: type[Entry], key: str, name: str) -> Entry:
    """The cached entry of a known set.  Raises ``DataError`` if it was not fetched."""
    if (cached := read_entry(kind, key, name)) is not None:
        return cached
    raise DataError(f"{name} is not in the cache ({cache_dir()}). Run `mpicomp data fetch {name}` once.")


def load_images(
    name: str, labelled: bool = True, files: str = "LIBSVM, .npz, or CSV as in data.csv:label"
) -> Images | ClassRows:
    """Load the images ``name``, a bundled set or a known set that was fetched, or the rows of a file.

    Unless ``labelled``, y of a file is not read.  Raises ``ConfigError`` if ``name`` is none of these, which
    says that ``files`` are read; ``DataError`` for a known set that was not fetched and for a file that
    cannot be used.
    """
    if name in BUNDLED_IMAGES or name in KNOWN_IMAGES:
        return _load_images(name, cache_dir())
    stamp = None if name in BUNDLED or name in KNOWN else stamp_of(name)
    if stamp is not None:
        return _load_rows(name, cache_dir(), stamp, labelled)
    if _is_path(name):
        raise _no_set(name)
    raise ConfigError(
        f"{unknown('set of images', name, (*BUNDLED_IMAGES, *KNOWN_IMAGES))} A file of your own is given by "
        f"its path: {files}."
    )


@lru_cache(maxsize=8)
def _load_rows(name: str, cache: Path, stamp: Stamp, labelled: bool) -> ClassRows:
    file = DataFile.of(name)
    key = _key(name, stamp, "rows", file.form, file.column, labelled)
    return _cached(ClassRows, key, name, lambda: _made(file, ClassRows.of, labelled))


@lru_cache(maxsize=8)
def _load_images(name: str, cache: Path) -> Images:
    key = images_key(name)
    if name in KNOWN_IMAGES:
        return _fetched(Images, key, name)
    return _cached(Images, key, name, lambda: Images.of(name, *read_bundled_images(name)))
