"""Data sets by name or by path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, DataError, MpicompError, unknown
from mpicomp.data.bundled import BUNDLED, BUNDLED_IMAGES, read_bundled, read_bundled_images
from mpicomp.data.cache import cache_dir, images_key, read_images, read_set, write_images, write_set
from mpicomp.data.dataset import Dataset
from mpicomp.data.images import Images
from mpicomp.data.libsvm import read_libsvm
from mpicomp.data.sets import KNOWN, KNOWN_IMAGES

Stamp = tuple[Path, int, int]  # a file, its size, and the time of its last change


def load(name: str | Dataset) -> Dataset:
    """The data set ``name``: itself, a bundled set, a known set that was fetched, or a LIBSVM file's path.

    Bundled sets and files are parsed on first use.  Raises ``ConfigError`` if ``name`` is none of these,
    ``DataError`` for a known set that was not fetched and for a file that cannot be used.
    """
    if isinstance(name, Dataset):
        return name
    stamp = None
    if name not in BUNDLED and name not in KNOWN:
        stamp = _stamp(name)
        if stamp is None:
            raise _no_set(name)
    return _load(name, cache_dir(), stamp)


def _stamp(name: str) -> Stamp | None:
    """The file at the path ``name`` with its size and time; None if there is none."""
    try:
        path = Path(name)
        if not path.is_file():
            return None
        status = path.stat()
        return path.resolve(), status.st_size, status.st_mtime_ns
    except OSError as error:  # access is denied, or the name is no valid path
        raise DataError(f"cannot read data {name!r}: {error.strerror}.") from None


def _no_set(name: str) -> MpicompError:
    if "/" in name:
        return DataError(f"no such file: {name}")
    if name in KNOWN_IMAGES:
        return ConfigError(
            f"{name} is a set of images in ten classes: a problem for autoencoder, softmax and mlp."
        )
    return ConfigError(
        f"{unknown('data set', name, (*BUNDLED, *KNOWN))} A LIBSVM file of your own is given by its "
        f"path. Sets other than {' and '.join(BUNDLED)} need `mpicomp data fetch NAME` once."
    )


@lru_cache(maxsize=8)
def _load(name: str, cache: Path, stamp: Stamp | None) -> Dataset:
    """As ``load``, once per process and state of the file, because a process may host many workers."""
    if stamp:
        try:
            with stamp[0].open("rb") as file:
                key = f"file-{hashlib.file_digest(file, 'sha256').hexdigest()}"
        except OSError as error:
            raise DataError(f"cannot read data {name!r}: {error.strerror}.") from None
        return _cached(key, name, lambda: read_libsvm(stamp[0]))
    if name in BUNDLED:
        return _cached(name, name, lambda: read_bundled(name))
    dataset = read_set(name, name)
    if dataset is None:
        raise _absent(name, cache)
    return dataset


def _cached(
    key: str, name: str, parse: Callable[[], tuple[scipy.sparse.csr_array, NDArray[np.float64]]]
) -> Dataset:
    """The cached set ``key``; if absent, it is parsed and cached, or kept in memory if caching fails."""
    dataset = read_set(key, name)
    if dataset is None:
        dataset = Dataset.of(name, *parse())
        try:
            write_set(key, dataset)
        except OSError:
            return dataset
    return read_set(key, name) or dataset


def load_images(name: str) -> Images:
    """The images ``name``: a bundled set, or a known set that was fetched.

    Raises ``ConfigError`` if ``name`` is neither, ``DataError`` for a known set that was not fetched.
    """
    if name not in BUNDLED_IMAGES and name not in KNOWN_IMAGES:
        raise unknown("set of images", name, (*BUNDLED_IMAGES, *KNOWN_IMAGES))
    return _load_images(name, cache_dir())


@lru_cache(maxsize=8)
def _load_images(name: str, cache: Path) -> Images:
    images = read_images(images_key(name), name)
    if images is None and name in KNOWN_IMAGES:
        raise _absent(name, cache)
    if images is None:
        images = Images.of(name, *read_bundled_images(name))
        with suppress(OSError):  # without a cache the set is parsed again next time
            write_images(images_key(name), images)
    return images


def _absent(name: str, cache: Path) -> DataError:
    return DataError(f"{name} is not in the cache ({cache}). Run `mpicomp data fetch {name}` once.")
