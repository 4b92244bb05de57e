"""Read PNG files of 8 bits a channel, grey or RGB, exactly, or refuse them; and write them.

Pillow alone would read 16-bit RGB as 8 bits, scale 2- and 4-bit grey, read only the first frame of an
animation, and fill in black pixels if the data end early; and it does not check the checksums of the data.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.base.extras import needed_by
from mpicomp.base.files import os_errors_as, refuse_endless, write_atomically

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
MODES = {(0, 8): "L", (2, 8): "RGB"}  # Pillow's names, by colour type and bits a sample
BESIDE = {b"tRNS": "with transparent pixels (tRNS)", b"acTL": "with the frames of an animation (acTL)"}
CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
INFLATED = 1032  # bytes that a byte of deflate makes at most
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png_files(folder: Path) -> list[Path]:
    """The PNG files in ``folder``, by name.

    Raises ``DataError`` if there is none.
    """
    with os_errors_as(DataError, f"cannot look into {folder}"):
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".png")
    if not found:
        raise DataError(f"{folder} holds no PNG file; allowed: a folder with files that end in .png.")
    return found


def read_png(path: Path) -> NDArray[np.uint8]:
    """The samples of the file, (height, width) if grey, else (height, width, 3).

    Texts, colour profiles and other chunks beside the samples are not read.  Raises ``DataError`` unless the
    file is whole and undamaged, 8-bit grey or RGB, one image, without transparency.  Memory and time are
    bounded by the file's size.
    """
    refuse_endless(path)
    try:
        return _decoded(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise DataError(f"{path} {error}.") from None
    except zlib.error as error:
        raise DataError(f"{path} is damaged: {error}. Get the file again.") from None


def _decoded(content: bytes) -> NDArray[np.uint8]:
    """The samples of the file with this content.  The message of a ``ValueError`` follows the file's name."""
    with needed_by("PNG", "images"):
        from PIL import Image

    if not content.startswith(SIGNATURE):
        raise ValueError(f"is no PNG file: it starts with {content[:8]!r}")
    chunks = list(_chunks(content))
    names = [name for name, _ in chunks]
    if names[0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise ValueError(f"is no PNG file: it begins with the chunk {_text(names[0])}")
    if names.count(b"IHDR") > 1:
        raise ValueError("is damaged: it has more than one header (IHDR)")
    if unknown := [name for name in names if not name[0] & 32 and name not in CRITICAL]:
        raise ValueError(f"has the chunk {_text(unknown[0])}, which changes the image and is not known here")
    width, height, bits, colour, *ways, interlaced = struct.unpack(">2I5B", chunks[0][1])
    if any(ways) or interlaced > 1 or colour not in COLOURS or not width or not height:
        raise ValueError("has a damaged header: its sizes or methods are none of PNG")
    if (colour, bits) not in MODES or not BESIDE.keys().isdisjoint(names):
        kind = " ".join([f"{bits}-bit", COLOURS[colour], *(BESIDE[name] for name in BESIDE if name in names)])
        raise ValueError(
            f"is a PNG file of {kind}; allowed: one image of 8-bit grey or 8-bit RGB without transparency. "
            "Convert it to one of these"
        )
    data = b"".join(body for name, body in chunks if name == b"IDAT")
    mode = MODES[colour, bits]
    rows = zlib.compress(_rows(data, width, height, len(mode), bool(interlaced)), 0)  # stored, so it is quick
    try:
        return np.array(Image.frombytes(mode, (width, height), rows, "zip", mode, interlaced))
    except ValueError:
        raise ValueError("is damaged: a row of pixels has a filter that PNG does not have") from None


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The name and the body of each chunk, up to the last one."""
    at, name = len(SIGNATURE), b""
    while name != b"IEND":
        if len(content) < at + 12:
            raise ValueError("is cut off: it ends without the chunk IEND. Get the file again")
        length, name = struct.unpack_from(">I4s", content, at)
        body, at = content[at + 8 : at + 8 + length], at + 12 + length
        if at > len(content):
            raise ValueError(f"is cut off within its chunk {_text(name)}. Get the file again")
        if zlib.crc32(body, zlib.crc32(name)) != int.from_bytes(content[at - 4 : at]):
            raise ValueError(f"is damaged: the sum of its chunk {_text(name)} is wrong. Get the file again")
        yield name, body
    if at < len(content):
        raise ValueError(f"holds {len(content) - at} bytes after the image's end. Save the image anew")


def _rows(data: bytes, width: int, height: int, channels: int, interlaced: bool) -> bytes:
    """The rows of pixels, each after its filter's byte.  ``ValueError`` unless ``data`` inflates to them."""
    expected = 0
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        columns, rows = -(-(width - x) // dx), -(-(height - y) // dy)
        expected += rows * (1 + channels * columns) if columns else 0
    inflate, found = zlib.decompressobj(), b""
    if expected <= INFLATED * len(data):
        found = inflate.decompress(data, expected + 1)
    if len(found) != expected or not inflate.eof:
        raise ValueError(
            f"is damaged: its {len(data)} bytes of data are not those of {width} x {height} pixels. "
            "Get the file again"
        )
    if more := len(inflate.unused_data):
        raise ValueError(f"holds {more} bytes after its compressed pixels, in IDAT. Save the image anew")
    return found


def _text(name: bytes) -> str:
    return repr(name)[2:-1]


def write_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write (height, width), grey, or (height, width, 3), to a new file.

    Raises ``RecordError`` if it is there, or cannot be written.
    """
    with needed_by("PNG", "images"):
        from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    write_atomically(path, buffer.getvalue(), new=True)
