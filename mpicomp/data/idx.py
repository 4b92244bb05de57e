"""Read the IDX format of MNIST: an array of unsigned bytes of any shape, plain, or in bzip2 or gzip."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.data.opening import opened

UNSIGNED_BYTE = 0x08
AXES = 64  # of numpy's arrays at most
EXPANSION = 2**12  # bytes of an array for each byte of its file: of images, bzip2 saves less
PIECE = 2**20  # bytes read at a time, so that memory grows with the file and not with the announced shape


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """The array in an IDX file, in the shape that the file gives.

    The file holds two bytes 0, the type of the values (one byte; only 8, unsigned bytes, is read), the number
    of axes (one byte), the length of each axis as a big-endian 32-bit number, then the values, last axis
    fastest.  Raises ``DataError`` naming the file and what is wrong with it.  Memory and time are bounded by
    ``EXPANSION`` times the file's size.
    """
    with opened(Path(path)) as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != bytes([0, 0, UNSIGNED_BYTE]) or head[3] > AXES:
            raise DataError(
                f"{path} starts with {head.hex(' ') or 'nothing'}; an IDX file of unsigned bytes starts with "
                f"00 00 08 and its number of axes, at most {AXES}."
            )
        lengths = file.read(4 * head[3])
        if len(lengths) < 4 * head[3]:
            raise DataError(
                f"{path} is truncated within its header of {4 + 4 * head[3]} bytes. Get the file again."
            )
        shape = struct.unpack(f">{head[3]}I", lengths)
        announced = f"{path} announces {' x '.join(map(str, shape))} values"
        expected, held = math.prod(shape), Path(path).stat().st_size
        if expected > EXPANSION * held:
            raise DataError(
                f"{announced} in {held} bytes; allowed: {EXPANSION} a byte. Get the file again, or "
                "decompress it first if it really holds them."
            )
        values = bytearray()
        while len(values) <= expected and (piece := file.read(min(PIECE, expected + 1 - len(values)))):
            values += piece
    if len(values) != expected:
        holds = len(values) if len(values) < expected else "more"
        raise DataError(f"{announced} and holds {holds}. Get the file again.")
    try:
        return np.frombuffer(values, np.uint8).reshape(shape)
    except ValueError:  # 0 times lengths beyond numpy's
        raise DataError(f"{announced}, a shape that no array can have. Get the file again.") from None
