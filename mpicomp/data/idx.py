"""The IDX format of MNIST: unsigned bytes in an array of any shape, plain or compressed by bzip2 or gzip."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.data.opening import opened

UNSIGNED_BYTE = 0x08


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """The array in an IDX file, in the shape that the file gives.

    The file holds two bytes 0, the type of the values (one byte; only 8, unsigned bytes, is read), the number
    of axes (one byte), the length of each axis as a big-endian 32-bit number, then the values, last axis
    fastest.  Raises ``DataError`` naming the file and what is wrong with it.
    """
    with opened(Path(path)) as file:
        content = file.read()
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise DataError(
            f"{path} starts with {content[:4].hex(' ') or 'nothing'}; an IDX file of unsigned bytes starts "
            "with 00 00 08 and its number of axes."
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path} is truncated within its header of {start} bytes. Get the file again.")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} announces {' x '.join(map(str, shape))} values and holds {len(content) - start}. "
            "Get the file again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
