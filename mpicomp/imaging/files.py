"""Images from files, and back to files."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, DataError, RecordError
from mpicomp.base.files import present, write_atomically
from mpicomp.data import load_grey, png_files, read_png, write_png
from mpicomp.data.idx import UNSIGNED_BYTE
from mpicomp.data.loading import folder_of
from mpicomp.imaging.archive import Stack

OUTPUTS = "a name that ends in .idx, -ubyte or .npy, or a folder for PNG files"


def read_images(source: str) -> list[Stack]:
    """The images of a set or of files, one stack for each shape.

    ``source`` is a name or path for ``load_grey``; or an array that numpy.save wrote, uint8 of shape (images,
    height, width) or (images, height, width, 3); or a PNG file, or a folder with some, whose names are kept.
    Raises ``DataError`` for what cannot be read.
    """
    path = Path(source)
    if folder := folder_of(source):
        return _by_shape(png_files(folder))
    if path.suffix.lower() == ".png":
        return _by_shape([path])
    if path.suffix.lower() == ".npy":
        try:
            return [Stack(np.load(path, allow_pickle=False))]
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    return [Stack(load_grey(source).pixels)]


def _by_shape(paths: list[Path]) -> list[Stack]:
    found: dict[tuple[int, ...], list[tuple[str, NDArray[np.uint8]]]] = {}
    for path in paths:
        pixels = read_png(path)
        found.setdefault(pixels.shape, []).append((path.name, pixels))
    return [Stack(np.stack([p for _, p in group]), tuple(n for n, _ in group)) for group in found.values()]


def write_images(stacks: list[Stack], out: Path) -> list[Path]:
    """Write images as ``out`` says by its name, and return what was written: ``OUTPUTS``.

    A folder takes any images; those without names are numbered.  One file takes one stack, and an IDX file
    only grey ones.  Raises ``ConfigError`` where the images do not fit, and ``RecordError`` where a file is
    already there or cannot be written.
    """
    suffix = out.name.lower()
    one = suffix.endswith((".idx", "-ubyte", ".npy"))
    if not one:
        return _write_folder(stacks, out)
    if len(stacks) != 1 or (stacks[0].pixels.ndim == 4 and not suffix.endswith(".npy")):
        shapes = " and ".join(str(stack.pixels.shape) for stack in stacks)
        raise ConfigError(
            f"images of shape {shapes} do not fit into {out.name}; allowed: {OUTPUTS}. Name a folder."
        )
    if present(out):
        raise RecordError(f"{out} is already there. Choose another name.")
    pixels = stacks[0].pixels
    if suffix.endswith(".npy"):
        buffer = io.BytesIO()
        np.save(buffer, pixels, allow_pickle=False)
        write_atomically(out, buffer.getvalue())
    else:
        head = bytes([0, 0, UNSIGNED_BYTE, 3]) + struct.pack(">3I", *pixels.shape)
        write_atomically(out, head + pixels.tobytes())
    return [out]


def _write_folder(stacks: list[Stack], out: Path) -> list[Path]:
    numbers = iter(range(sum(len(stack.pixels) for stack in stacks)))
    named = [
        (out / (stack.names[i] if stack.names else f"{next(numbers):06}.png"), pixels)
        for stack in stacks
        for i, pixels in enumerate(stack.pixels)
    ]
    if there := [path for path, _ in named if present(path)]:
        raise RecordError(f"{there[0]} is already there. Choose another folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make the folder {out}: {error.strerror}.") from None
    for path, pixels in named:
        write_png(path, pixels)
    return [path for path, _ in named]
