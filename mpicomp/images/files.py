"""Read images from files, and write them to files."""

from __future__ import annotations

import io
import struct
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, DataError, RecordError
from mpicomp.base.files import as_path, os_errors_as, present, refuse_endless, write_atomically
from mpicomp.data import as_name
from mpicomp.data.idx import UNSIGNED_BYTE
from mpicomp.data.loading import folder_of
from mpicomp.data.npy import read_npy
from mpicomp.images.archive import MAGIC, Stack
from mpicomp.images.grey import load_grey
from mpicomp.images.png import png_files, read_png, write_png

IDX = (".idx", ".ubyte", "-ubyte")
OUTPUTS = "a name that ends in .idx, -ubyte or .npy, in .png for one image, or a folder for PNG files"
NO_FOLDERS = (
    *(".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".jxl", ".pgm", ".ppm", ".npz"),
    *(".gz", ".bz2", ".xz", ".zip", ".mpi", ".csv"),
)


def read_images(source: str | Path) -> list[Stack]:
    """Read the images of a data set or of files, one stack for each shape.

    ``source`` is a name or path for ``load_grey``; or an array that numpy.save wrote, uint8 of shape (images,
    height, width) or (images, height, width, 3); or a PNG file, or a folder of PNG files; their names are
    kept.  Raises ``DataError`` for files that cannot be read.
    """
    path, name = as_path("source", source, "file"), as_name(source)
    if folder := folder_of(name):
        return _by_shape(png_files(folder))
    if path.suffix.lower() == ".png":
        return _by_shape([path])
    if path.suffix.lower() == ".npy":
        return [Stack(read_npy(path))]
    return [Stack(load_grey(name).pixels)]


def read_archive(path: Path) -> bytes:
    """The bytes of the archive ``path``; of another file only the first, which ``decompress`` refuses.

    Raises ``DataError`` for a file that cannot be read.
    """
    refuse_endless(path)
    with os_errors_as(DataError, f"cannot read {path}"), path.open("rb") as file:
        head = file.read(len(MAGIC))
        return head + file.read() if head == MAGIC else head


def _by_shape(paths: list[Path]) -> list[Stack]:
    found: dict[tuple[int, ...], list[tuple[str, NDArray[np.uint8]]]] = {}
    for path in paths:
        pixels = read_png(path)
        found.setdefault(pixels.shape, []).append((path.name, pixels))
    return [Stack(np.stack([p for _, p in group]), tuple(n for n, _ in group)) for group in found.values()]


def write_images(stacks: list[Stack], out: str | Path) -> list[Path]:
    """Write images in the format that the ending of ``out`` names; return the paths of the files written.

    A folder takes any images; images without names are numbered.  One file takes one stack, an IDX file only
    a grey one, and a PNG file one image.  Raises ``ConfigError`` if the images do not fit the format or the
    ending is unknown (see ``OUTPUTS``), and ``RecordError`` if a file exists already or cannot be written.
    """
    out = as_path("out", out, "file")
    name = out.name.lower()
    if not name.endswith((*IDX, ".npy", ".png")):
        if name.endswith(NO_FOLDERS):
            raise ConfigError(f"{out.name} is the name of no file that is written; allowed: {OUTPUTS}.")
        return _write_folder(stacks, out)
    shapes = [stack.pixels.shape for stack in stacks]
    many = len(stacks) != 1 or (name.endswith(".png") and shapes[0][0] > 1)
    if many or (name.endswith(IDX) and len(shapes[0]) == 4):
        raise ConfigError(
            f"images of shape {' and '.join(map(str, shapes))} do not fit into {out.name}; allowed: "
            f"{OUTPUTS}. Name a folder."
        )
    if present(out):
        raise RecordError(f"{out} is already there. Choose another name.")
    pixels = stacks[0].pixels
    if name.endswith(".png"):
        write_png(out, pixels[0])
    elif name.endswith(".npy"):
        buffer = io.BytesIO()
        np.save(buffer, pixels, allow_pickle=False)
        write_atomically(out, buffer.getvalue(), new=True)
    else:
        head = bytes([0, 0, UNSIGNED_BYTE, 3]) + struct.pack(">3I", *pixels.shape)
        write_atomically(out, head + pixels.tobytes(), new=True)
    return [out]


def _write_folder(stacks: list[Stack], out: Path) -> list[Path]:
    taken = {name for stack in stacks for name in stack.names}
    numbered = (name for number in count() if (name := f"{number:06}.png") not in taken)
    named = [
        (out / (stack.names[i] if stack.names else next(numbered)), pixels)
        for stack in stacks
        for i, pixels in enumerate(stack.pixels)
    ]
    if there := [path for path, _ in named if present(path)]:
        raise RecordError(f"{there[0]} is already there. Choose another folder.")
    with os_errors_as(RecordError, f"cannot make the folder {out}"):
        out.mkdir(parents=True, exist_ok=True)
    for path, pixels in named:
        write_png(path, pixels)
    return [path for path, _ in named]
