"""PNG files of every kind, written from their samples by the specification (W3C, PNG third edition).

It shares nothing with what reads them: no Pillow, and none of the package.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
# Of each pass the first column and row, and the steps to the next ones.
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int, height: int, bits: int = 8, colour: int = 0, interlaced: bool = False) -> bytes:
    return chunk(b"IHDR", struct.pack(">2I5B", width, height, bits, colour, 0, 0, interlaced))


def png(
    samples: np.ndarray,
    colour: int,
    bits: int = 8,
    interlaced: bool = False,
    before: bytes = b"",
    after: bytes = b"",
    filters: tuple[int, ...] = (0, 1, 2, 3, 4),
) -> bytes:
    """The file with ``samples``, (height, width, channels), and other chunks before and after the image's.

    The filters of the rows are ``filters`` in turn.
    """
    height, width, _ = samples.shape
    data = rows(samples, bits, interlaced, filters)
    packed = zlib.compress(data)
    half = len(packed) // 2
    image = chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:])
    head = header(width, height, bits, colour, interlaced)
    return SIGNATURE + head + before + image + after + chunk(b"IEND")


def rows(samples: np.ndarray, bits: int, interlaced: bool, filters: tuple[int, ...]) -> bytes:
    """All rows, filtered, each after the number of its filter."""
    out = bytearray()
    for x, y, dx, dy in PASSES if interlaced else [(0, 0, 1, 1)]:
        part = samples[y::dy, x::dx]
        if part.size == 0:
            continue
        step = max(1, part.shape[2] * bits // 8)  # bytes from a sample to the one on its left
        above = bytes(len(_packed(part[0], bits)))
        for number, row in enumerate(part):
            line = _packed(row, bits)
            kind = filters[number % len(filters)]
            out += bytes([kind]) + _filtered(kind, line, above, step)
            above = line
    return bytes(out)


def _packed(row: np.ndarray, bits: int) -> bytes:
    """A row of samples, the first one in the highest bits, filled up to a byte."""
    text = "".join(f"{int(sample):0{bits}b}" for sample in row.ravel())
    text += "0" * (-len(text) % 8)
    return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))


def _filtered(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    out = bytearray()
    for i, value in enumerate(line):
        a = line[i - step] if i >= step else 0
        b = above[i]
        c = above[i - step] if i >= step else 0
        guess = {0: 0, 1: a, 2: b, 3: (a + b) // 2, 4: _paeth(a, b, c)}.get(kind, 0)
        out.append((value - guess) % 256)
    return bytes(out)


def _paeth(a: int, b: int, c: int) -> int:
    """Of the neighbours, the one nearest to a + b - c; at a tie the left one, then the upper one."""
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
