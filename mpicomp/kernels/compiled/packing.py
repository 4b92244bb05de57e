"""Symbols of any width up to 16 bits, packed and unpacked 1024 at a time; of up to 8 bits, 8 at a time.

Four symbols of 16 bits, or eight of 8, lie in a word of 64; shifting its halves together leaves 4 w bits, or
8 w, which are put one behind the other.  Halves of bytes, and bytes, need no such shifts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes, expect_length, packed_nbytes
from mpicomp.kernels.compiled.jit import int64, kernel, read, uint8, uint16, uint64, void, write

CHUNK = 1024  # symbols; w bits each fill 16 w words
_U1, _U8, _U16, _U32, _U63 = (np.uint64(n) for n in (1, 8, 16, 32, 63))
_BYTES, _ONES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)
_PAIR = np.uint64(0x0000FFFF0000FFFF)
_LOW = np.uint64(0xFFFFFFFF)


def packed(count: int, width: int) -> NDArray[np.uint64]:
    """Room for ``count`` symbols, in whole chunks."""
    return np.empty(-(-count // CHUNK) * (CHUNK // 64) * width, dtype=np.uint64)


def message(words: NDArray[np.uint64], count: int, width: int) -> Bytes:
    """The bytes that ``count`` symbols take."""
    return words.view(np.uint8)[: packed_nbytes(count, width)]


def padded(buf: Bytes, width: int, count: int) -> NDArray[np.uint64]:
    """The bytes of ``count`` symbols in whole chunks, a word to spare; ``MessageError`` on a wrong length."""
    expect_length(buf, packed_nbytes(count, width), "packed symbols")
    words = np.empty(-(-count // CHUNK) * (CHUNK // 64) * width + 1, dtype=np.uint64)
    room = words.view(np.uint8)
    room[: buf.size] = buf
    room[buf.size :] = 0
    if fill := 8 * buf.size - count * width:  # bits that are ignored
        room[buf.size - 1] &= 0xFF >> fill
    return words


@kernel(void(write(uint16), uint64, write(uint64), write(uint64)))
def pack(symbols, width, work, out):
    """The 1024 ``symbols`` below 2^width; ``work`` has 256 words, ``out`` 16 width."""
    room = out.view(np.uint8)
    if width == 4:
        for i in range(CHUNK // 2):
            room[i] = symbols[2 * i] | (symbols[2 * i + 1] << np.uint16(4))
    elif width == 8:
        for i in range(CHUNK):
            room[i] = symbols[i]
    else:
        fours = symbols.view(np.uint64)
        two, four = width + width, np.uint64(4) * width
        for i in range(256):
            x = (fours[i] & _PAIR) | ((fours[i] & ~_PAIR) >> (_U16 - width))
            work[i] = (x & _LOW) | ((x >> _U32) << two)
        word, filled, n = np.uint64(0), np.uint64(0), 0
        for i in range(256):
            word |= work[i] << filled
            filled += four
            if filled >= np.uint64(64):
                out[n] = word
                n += 1
                filled -= np.uint64(64)
                word = (work[i] >> _U1) >> (four - filled - _U1)


@kernel(void(read(uint64), uint64, write(uint64), write(uint16)))
def unpack(words, width, work, symbols):
    """The 1024 symbols in the first 16 width ``words``, of which there is one more."""
    room = words.view(np.uint8)
    if width == 4:
        for i in range(CHUNK // 2):
            symbols[2 * i] = room[i] & np.uint8(15)
            symbols[2 * i + 1] = room[i] >> np.uint8(4)
    elif width == 8:
        for i in range(CHUNK):
            symbols[i] = room[i]
    else:
        two, four = width + width, np.uint64(4) * width
        for i in range(256):
            bit = np.uint64(i) * four
            at, shift = bit >> np.uint64(6), bit & _U63
            work[i] = (words[at] >> shift) | ((words[at + _U1] << _U1) << (_U63 - shift))
        fours = symbols.view(np.uint64)
        pair = (_U1 << two) - _U1
        one = ((_U1 << width) - _U1) * np.uint64(0x0000000100000001)
        for i in range(256):
            x = (work[i] & pair) | (((work[i] >> two) & pair) << _U32)
            fours[i] = (x & one) | (((x >> width) & one) << _U16)


@kernel(void(write(uint8), int64, write(uint8)))
def pack_eights(symbols, width, out):
    """Symbols below 2^width, 8 or a multiple of 8, which are overwritten; ``out`` may end before the last."""
    eights, one = symbols.view(np.uint64), np.uint64(width)
    two, four = one + one, np.uint64(4) * one
    for i in range(eights.size):
        x = eights[i]
        x = (x & _BYTES) | ((x >> _U8 & _BYTES) << one)
        x = (x & _PAIR) | ((x >> _U16 & _PAIR) << two)
        eights[i] = (x & _LOW) | ((x >> _U32) << four)
    for r in range(min(width, out.size)):
        for i in range(eights.size):
            out[i * width + r] = eights[i] >> np.uint64(8 * r)


@kernel(void(read(uint8), int64, write(uint8)))
def unpack_eights(buf, width, symbols):
    """The inverse: 8 symbols, or a multiple of 8; bits beyond ``buf`` are 0."""
    eights, one = symbols.view(np.uint64), np.uint64(width)
    two, four = one + one, np.uint64(4) * one
    eights[:] = 0
    for r in range(min(width, buf.size)):
        for i in range(eights.size):
            eights[i] |= np.uint64(buf[i * width + r]) << np.uint64(8 * r)
    m4, m2, m1 = (_U1 << four) - _U1, (_U1 << two) - _U1, (_U1 << one) - _U1
    for i in range(eights.size):
        x = eights[i]
        x = (x & m4) | ((x >> four & m4) << _U32)
        x = (x & (m2 | m2 << _U32)) | ((x >> two & (m2 | m2 << _U32)) << _U16)
        eights[i] = (x & (m1 * _ONES)) | ((x >> one & (m1 * _ONES)) << _U8)


@kernel(uint64(read(uint64), uint64, int64))
def largest(words, width, count):
    """The largest of ``count`` symbols; those that fill up the last chunk are 0."""
    if width == 4 or width == 8:
        low, high = np.uint8(0), np.uint8(0)
        nibbles = width == 4
        for byte in words[:-1].view(np.uint8):
            low = max(low, np.uint8(byte & np.uint8(15)) if nibbles else byte)
            high = max(high, np.uint8(byte >> np.uint8(4)) if nibbles else byte)
        return np.uint64(max(low, high))
    work, symbols = np.empty(256, dtype=np.uint64), np.empty(CHUNK, dtype=np.uint16)
    top, step = np.uint16(0), 16 * np.int64(width)
    for c in range((count + CHUNK - 1) // CHUNK):
        unpack(words[c * step : (c + 1) * step + 1], width, work, symbols)
        for j in range(CHUNK):
            top = max(top, symbols[j])
    return np.uint64(top)
