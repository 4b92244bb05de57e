"""Compress images into an archive, one file with the model and the coded images, and decompress it.

::

    "mpicomp images 1\\n"
    model      its length, then the network, see ``network``
    stacks     their number; then of each stack of images of one shape:
               the number of images, height, width, and 1 (grey) or 3 (colour);
               the length of the names, then the names;
               the length of the message, then the message, see ``coder``
    sums       16 bytes BLAKE2b of the images, then 16 bytes BLAKE2b of all bytes before these

All lengths and numbers are LEB128.  Names are those of files, in UTF-8, each ended by a 0 byte, all
compressed by zlib; of images without names they take no bytes.  Colour images are coded as planes, see
``colour``.  The first sum is taken over the shape (eight bytes a number, little-endian), the names and the
pixels of each stack.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes
from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError, DataError, MessageError
from mpicomp.base.given_arrays import refuse_mask
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.images import coder
from mpicomp.images.colour import from_planes, to_planes
from mpicomp.images.network import IntegerNetwork

MAGIC = b"mpicomp images 1\n"
SUM = 16  # bytes
LONGEST_NAME = 255
PIXELS_A_BYTE = 2**17  # more do not fit: a pixel takes at least 22 - log2(2^22 - 255) bits
PLANES = (1, 3)

# What decoding may cost without being asked for more, in pixels, see ``coder.cost``.  Usual archives cost
# less than 32 a byte.  Narrow and blank images cost more: a small archive may cost what deflate may.
COST_A_BYTE = 2**6
COST_A_BYTE_OF_SMALL = 2**10
COST_OF_SMALL = 2**28


@dataclass(frozen=True, eq=False)
class Stack:
    """Images of one shape: (m, height, width) if grey, (m, height, width, 3) in red, green, blue; uint8.

    ``names`` are the names of their files, one for each image, or ().
    """

    pixels: NDArray[np.uint8]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_mask("pixels", self.pixels, DataError)
        if not isinstance(self.pixels, np.ndarray):
            raise DataError(
                f"pixels is of type {type(self.pixels).__name__}; allowed: an array of numpy, of uint8."
            )


@dataclass(frozen=True)
class Sizes:
    """The bytes of an archive: of its model, of the coded images, and of the rest."""

    model: int
    images: int
    rest: int


def compress(stacks: Sequence[Stack], network: IntegerNetwork) -> tuple[bytes, Sizes]:
    """Compress ``stacks`` with the model ``network``; return the archive and its ``Sizes``.

    Raises ``DataError`` for an invalid stack, or if its names cannot be those of files in one folder.
    """
    if not isinstance(stacks, Sequence) or not all(isinstance(stack, Stack) for stack in stacks):
        raise ConfigError("stacks is no list of stacks; allowed: such as [Stack(pixels)].")
    model = network.encoded()
    out = bytearray(MAGIC + varint(len(model)) + model + varint(len(stacks)))
    images = 0
    for stack in stacks:
        _check(stack)
    _check_names(stacks)
    for stack in stacks:
        colours = 1 if stack.pixels.ndim == 3 else 3
        message = coder.encode(stack.pixels if colours == 1 else to_planes(stack.pixels), network)
        names = zlib.compress(_names(stack), 9) if stack.names else b""
        for number in (*stack.pixels.shape[:3], colours, len(names)):
            out += varint(number)
        out += names + varint(message.size) + message.tobytes()
        images += message.size
    out += _sum_of(stacks)
    out += blake2b(out, digest_size=SUM).digest()
    return bytes(out), Sizes(len(model), images, len(out) - len(model) - images)


def decompress(archive: bytes, max_pixels: int | None = None) -> list[Stack]:
    """Decompress the images in an archive.

    ``max_pixels`` limits the cost of decoding, in pixels of usual images under a small network; narrow images
    and large networks cost more (see ``coder.cost``).  The default is 64 for each byte of the archive, or
    1024 for each byte up to 2^28 in all.  If the cost is higher, nothing is decoded.

    Raises ``MessageError`` unless ``archive`` is an archive, undamaged and complete, with nothing after it,
    and of allowed cost.
    """
    if not isinstance(archive, bytes | bytearray | memoryview):
        kind = type(archive).__name__
        raise ConfigError(f"archive is of type {kind}; allowed: bytes. Give Path(FILE).read_bytes().")
    archive = bytes(archive)
    if max_pixels is not None:
        as_integer("max_pixels", max_pixels)
    if not archive.startswith(MAGIC):
        raise MessageError(f"an archive starts with {MAGIC!r}; this starts with {archive[: len(MAGIC)]!r}.")
    if (
        len(archive) < len(MAGIC) + 2 * SUM
        or blake2b(archive[:-SUM], digest_size=SUM).digest() != archive[-SUM:]
    ):
        raise MessageError("an archive that is damaged or incomplete: its sum is wrong. Get it again.")
    reader = _Reader(np.frombuffer(archive, dtype=np.uint8, count=len(archive) - 2 * SUM), len(MAGIC))
    network = IntegerNetwork.decoded(reader.take(reader.number()))
    coded = [_coded(reader) for _ in range(reader.number())]
    if reader.at != reader.buf.size:
        raise MessageError(
            f"{reader.buf.size - reader.at} bytes left over after the last images of an archive."
        )
    _check_cost(sum(coder.cost(one.planes, network) for one in coded), len(archive), max_pixels)
    stacks = [_decoded(one, network) for one in coded]
    _check_names(stacks)
    if _sum_of(stacks) != archive[-2 * SUM : -SUM]:
        raise MessageError("an archive whose images are not those that were compressed.")
    return stacks


class _Reader:
    def __init__(self, buf: Bytes, at: int) -> None:
        self.buf, self.at = buf, at

    def number(self) -> int:
        value, self.at = read_varint(self.buf, self.at)
        return value

    def take(self, count: int) -> Bytes:
        if count > self.buf.size - self.at:
            raise MessageError(f"an archive that lacks {count - self.buf.size + self.at} bytes.")
        self.at += count
        return self.buf[self.at - count : self.at]


class _Coded(NamedTuple):
    """A stack in the archive: its shape (images, height, width, colours), its names and its message."""

    shape: tuple[int, int, int, int]
    names: Bytes
    message: Bytes

    @property
    def planes(self) -> tuple[int, int, int]:
        """The shape of the coded grey images; a colour image is coded as three."""
        m, height, width, colours = self.shape
        return m * colours, height, width


def _coded(reader: _Reader) -> _Coded:
    m, height, width, colours = (reader.number() for _ in range(4))
    names = reader.take(reader.number())
    message = reader.take(reader.number())
    if colours not in PLANES or not 0 < m * height * width * colours <= PIXELS_A_BYTE * message.size:
        raise MessageError(
            f"an archive with {m} images of {height} x {width} pixels and {colours} colours in "
            f"{message.size} bytes."
        )
    return _Coded((m, height, width, colours), names, message)


def _check_cost(cost: int, size: int, max_pixels: int | None) -> None:
    usual = max(COST_A_BYTE * size, min(COST_A_BYTE_OF_SMALL * size, COST_OF_SMALL))
    allowed = usual if max_pixels is None else max_pixels
    if cost > allowed:
        raise MessageError(
            f"an archive of {size} bytes whose images cost as much to decode as {cost} pixels; allowed: "
            f"{allowed}. If you trust it, allow more by --max-pixels {cost}, in Python max_pixels={cost}."
        )


def _decoded(coded: _Coded, network: IntegerNetwork) -> Stack:
    m, *_, colours = coded.shape
    names = _read_names(coded.names, m) if coded.names.size else ()
    try:
        decoded = coder.decode(coded.message, coded.planes, network)
        return Stack(decoded if colours == 1 else from_planes(decoded), names)
    except MemoryError:
        pixels = math.prod(coded.shape)
        raise MessageError(f"an archive with {pixels} pixels, more than the memory holds.") from None


def _check(stack: Stack) -> None:
    pixels = stack.pixels
    if (
        pixels.dtype != np.uint8
        or pixels.ndim not in (3, 4)
        or 0 in pixels.shape
        or pixels.shape[3:] not in ((), (3,))
    ):
        raise DataError(
            f"images of type {pixels.dtype} and shape {pixels.shape}; allowed: uint8 of shape (images, "
            "height, width), or (images, height, width, 3) in red, green, blue."
        )
    if stack.names and len(stack.names) != len(pixels):
        raise DataError(f"{len(stack.names)} names for {len(pixels)} images; allowed: one each, or none.")


def _check_names(stacks: Sequence[Stack]) -> None:
    """Raise ``DataError`` unless all names can be those of files in one folder."""
    seen: set[str] = set()
    for name in (name for stack in stacks for name in stack.names):
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise DataError(f"an image named {name[:80]!r}, which is not UTF-8. Rename the file.") from None
        if name in ("", ".", "..") or set(name) & set("/\\\0") or size > LONGEST_NAME:
            raise DataError(f"an image named {name[:80]!r}; allowed: names of files, without a folder.")
        if name in seen:
            raise DataError(f"two images named {name!r}; allowed: a name for one image.")
        seen.add(name)


def _names(stack: Stack) -> bytes:
    return b"".join(name.encode() + b"\0" for name in stack.names)


def _read_names(packed: Bytes, count: int) -> tuple[str, ...]:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(packed.tobytes(), count * (LONGEST_NAME + 1))
        *names, end = text.decode().split("\0")
    except (zlib.error, UnicodeDecodeError) as error:
        raise MessageError(f"an archive whose names cannot be read: {error}.") from None
    if not inflate.eof or inflate.unused_data or end or len(names) != count:
        raise MessageError(f"an archive without a name for each of {count} images.")
    return tuple(names)


def _sum_of(stacks: Sequence[Stack]) -> bytes:
    digest = blake2b(digest_size=SUM)
    for stack in stacks:
        shape = (*stack.pixels.shape[:3], math.prod(stack.pixels.shape[3:]))
        digest.update(np.array(shape, dtype="<u8").tobytes() + _names(stack))
        digest.update(stack.pixels.tobytes())
    return digest.digest()
