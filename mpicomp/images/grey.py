"""Load grey 8-bit images as (m, height, width): a known set, a file of images, or an array."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.base.files import refuse_endless
from mpicomp.base.given_arrays import as_array
from mpicomp.data.dataset import Named, content_sha256
from mpicomp.data.idx import read_idx
from mpicomp.data.images import Images
from mpicomp.data.loading import Stamp, folder_of, load_images, stamp_of
from mpicomp.data.npy import read_npy
from mpicomp.images.colour import to_planes
from mpicomp.images.png import png_files, read_png

IDX = re.compile(r".+([.-]ubyte|\.idx)(\.gz|\.bz2|\.xz)?", flags=re.IGNORECASE | re.DOTALL)
_FILES = "IDX, .npy, .png, or a folder of PNG files as in ./folder"  # in error messages


@dataclass(frozen=True, eq=False, repr=False)
class GreyImages(Named):
    """``pixels`` uint8 of shape (m, height, width), ``labels`` of shape (m,); both are read-only."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.integer]
    sha256: str

    @staticmethod
    def of(pixels: Any, labels: Any = None) -> GreyImages:
        """The images of an array of shape (m, height, width) of integers from 0 to 255, which is copied.

        Without ``labels`` all images have the label 0.  Raises ``DataError`` for any other array.
        """
        array = as_array("data", pixels, DataError)
        if array.ndim != 3 or 0 in array.shape or array.dtype.kind not in "iu":
            raise DataError(
                f"images of type {array.dtype} and shape {array.shape}; allowed: integers of shape "
                "(images, height, width), at least 1 of each. Reshape the array, as in "
                "X.reshape(len(X), 28, 28)."
            )
        if array.dtype != np.uint8 and (array.min() < 0 or array.max() > 255):
            raise DataError(
                f"pixels from {array.min()} to {array.max()}; allowed: 0 to 255. Scale the images to 8 bits."
            )
        kept = np.array(array, dtype=np.uint8, order="C")
        classes = np.zeros(len(kept), dtype=np.uint8) if labels is None else np.array(labels)
        kept.flags.writeable = classes.flags.writeable = False
        return GreyImages(kept, classes, content_sha256(kept.shape, kept, classes))

    @property
    def shape(self) -> tuple[int, int]:
        """(m, p): the numbers of images and of pixels in an image."""
        m, height, width = self.pixels.shape
        return m, height * width


def load_grey(name: str) -> GreyImages:
    """Load the images ``name``: a set of square images, an IDX, .npy or PNG file, or a folder of PNG files.

    The name of an IDX file ends in -ubyte, .ubyte or .idx, and perhaps .gz, .bz2 or .xz after it.  The files
    of a folder have one height and width; a colour file counts as three images, see ``to_planes``.  Raises
    ``ConfigError`` if ``name`` is no set, and ``DataError`` for a set that was not fetched and for files
    that cannot be used.
    """
    if "/" in name and (folder := folder_of(name)):
        return _of_png(png_files(folder))
    suffix = Path(name).suffix.lower()
    if suffix == ".png":
        return _of_png([Path(name)])
    if suffix == ".npy" or IDX.fullmatch(name):
        found = stamp_of(name)
        if found is None:
            refuse_endless(Path(name))
            raise DataError(f"no such file: {name}")
        return _read(name, found)
    images = load_images(name, labelled=False, files=_FILES)
    if not isinstance(images, Images):
        raise DataError(
            f"{name} holds rows without height and width; allowed: the name of a set of images, an IDX file, "
            "whose name ends in -ubyte or .idx, a .npy or .png file, a folder of PNG files, or an array of "
            "shape (images, height, width)."
        )
    return _square(images)


@lru_cache(maxsize=4)  # a process may host many workers
def _read(name: str, stamp: Stamp) -> GreyImages:
    path = Path(name)
    array = read_npy(path) if path.suffix.lower() == ".npy" else read_idx(path)
    try:
        return GreyImages.of(array)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _of_png(paths: list[Path]) -> GreyImages:
    planes: list[NDArray[np.uint8]] = []
    for path in paths:
        pixels = read_png(path)[None]
        planes.append(pixels if pixels.ndim == 3 else to_planes(pixels))
        (height, width), (first, wide) = planes[-1].shape[1:], planes[0].shape[1:]
        if (height, width) != (first, wide):
            raise DataError(
                f"{path} has {height} x {width} pixels, and the first file of the folder {first} x {wide}; "
                "allowed: one shape. Cut the images to one."
            )
    return GreyImages.of(np.concatenate(planes))


@lru_cache(maxsize=4)
def _square(images: Images) -> GreyImages:
    m, p = images.pixels.shape
    side = int(np.sqrt(p))
    return GreyImages.of(images.pixels.reshape(m, side, side), images.labels)
