"""Rotated quantisers: y = H D x in blocks, the levels nearest to y, and a scale for each block.

A block has n = 2^k entries: ``block``, or in the last one the least power of two that holds what remains,
which zeros fill up.  D has the signs of a stream, a bit for each entry: 1 for a minus.  H is the
Walsh-Hadamard matrix with entries of 1 and -1, so H H = n and nothing has to be divided by the root of n.

All of it is float64.  H adds and subtracts entries that are 1, 2, 4, .., n/2 apart, in this order.  A sum
over a block is a tree: lane j takes lane j + w for w = n/2, n/4, .., 1.  So all backends have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Reals, StreamName
from mpicomp.base.bits import Bytes, expect_length, pack, packed_nbytes, unpack
from mpicomp.base.errors import DivergedError, MessageError, not_finite
from mpicomp.kernels.definition.philox import words

# The positive levels of Lloyd and Max's quantiser of a standard normal number with 2^bits levels: each level
# is the mean of the numbers nearest to it.  With one bit there is one magnitude, and the scale makes any of
# it.
LEVELS: dict[int, Reals] = {
    1: np.array([1.0]),
    2: np.array([0.452780034636492, 1.5104176084990955]),
    3: np.array([0.24509417894422167, 0.7560052812058773, 1.343909278505, 2.1519457045369874]),
    4: np.array(
        [
            *(0.128395029851147, 0.3880482994902902, 0.6567591185324634, 0.9423404564869614),
            *(1.2562311973471771, 1.6180463860218826, 2.0690172265313866, 2.732589570995163),
        ]
    ),
}

_TOGETHER = 2**14  # entries of blocks that are worked on together: some of a processor's cache


def rotated_pack(x: Array, bits: int, block: int, least: bool, stream: StreamName) -> Bytes:
    """The scales of the blocks as f4, rounded to nearest, then symbols of ``bits`` bits for their entries.

    An entry of y takes the level nearest to y_j/N, N the root mean square of the block.  Its symbol is the
    number of the level's magnitude, plus 2^(bits - 1) if y_j is negative.  With c the levels of a block, the
    scale is 2^(floor(k/2) - k) times

        |y|^2 / <c, y>    so that <x', x> = |x|^2 for what the receiver makes of it, x'; or, with ``least``,
        <c, y> / |c|^2    so that |x' - x| is least.  All magnitudes are the first if x' is then nearer to x.

    Raises ``DivergedError`` unless x is finite and each scale is in the range of f4.
    """
    scales = np.empty(rotations(x.size, block))
    symbols = np.empty(padded(x.size, block), dtype=np.uint8)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for first, rows, n in _groups(x.size, block):
            start, stop = first * block, first * block + rows * n
            y = np.zeros((rows, n))
            y.ravel()[: min(stop, x.size) - start] = x[start:stop]
            y = _hadamard(_flipped(y, stream, start))
            scales[first : first + rows], index = _quantised(y, LEVELS[bits], least)
            symbols[start:stop] = (index + ((y < 0) << (bits - 1))).ravel()
        wire = scales.astype("<f4")
    if not (wire < np.inf).all():
        raise beyond(x)
    return np.concatenate([wire.view(np.uint8), pack(symbols, bits)])


def add_rotated(buf: Bytes, out: Array, bits: int, block: int, scale: float, stream: StreamName) -> None:
    """out += scale * D H c times the scale on the wire times 2^-floor(k/2), block by block.

    Raises ``MessageError``, and adds nothing, on a wrong length or a scale that is not finite or negative.
    """
    count, size = rotations(out.size, block), padded(out.size, block)
    expect_length(buf, 4 * count + packed_nbytes(size, bits), "rotated levels")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        scales = buf[: 4 * count].view("<f4").astype(np.float64)
    if not ((scales >= 0) & (scales < np.inf)).all():
        raise no_scale(scales)
    symbols, half = unpack(buf[4 * count :], size, bits), 2 ** (bits - 1)
    for first, rows, n in _groups(out.size, block):
        start, stop = first * block, first * block + rows * n
        own = symbols[start:stop].reshape(rows, n)
        c = LEVELS[bits][own & (half - 1)] * np.where(own >= half, -1.0, 1.0)
        gain = np.ldexp(scales[first : first + rows], -(log2(n) // 2))[:, None]
        value = _flipped(_hadamard(c) * gain, stream, start).ravel()
        out[start:stop] += value[: out.size - start] * scale


def rotations(d: int, block: int) -> int:
    """The number of blocks of d entries."""
    return -(-d // block)


def padded(d: int, block: int) -> int:
    """The number of entries of all blocks, with those that fill up the last one."""
    whole, rest = divmod(d, block)
    return whole * block + (rest and length_of_last(rest))


def length_of_last(rest: int) -> int:
    """The least power of two that is not below ``rest``."""
    return 1 << (rest - 1).bit_length()


def log2(n: int) -> int:
    """k for n = 2^k."""
    return n.bit_length() - 1


def beyond(x: Array) -> DivergedError:
    """The error of an encoder for which a scale of x is not finite."""
    if not np.isfinite(x).all():
        return not_finite()
    return DivergedError(
        f"a vector with entries of up to {np.abs(x).max():.3g} does not fit rotated levels, whose scales "
        "have the format 'f4'."
    )


def no_scale(scales: Array) -> MessageError:
    """The error of a message one of whose ``scales`` is none."""
    bad = scales[~((scales >= 0) & (scales < np.inf))][0]
    return MessageError(f"a scale of {bad} before rotated levels; it must be finite and not negative.")


def _groups(d: int, block: int) -> Iterator[tuple[int, int, int]]:
    """(the number of the first block, how many there are, the entries of each) for blocks of equal length."""
    whole, rest = divmod(d, block)
    step = max(1, _TOGETHER // block)
    for first in range(0, whole, step):
        yield first, min(step, whole - first), block
    if rest:
        yield whole, 1, length_of_last(rest)


def _flipped(y: Reals, stream: StreamName, start: int) -> Reals:
    """D y, for blocks of which the first one begins at entry ``start``."""
    drawn = words(stream, start // 32, -(-y.size // 32)).astype("<u4").view(np.uint8)
    bits = np.unpackbits(drawn, count=y.size, bitorder="little").reshape(y.shape)
    return np.where(bits, -y, y)


def _hadamard(y: Reals) -> Reals:
    """H y, for each row y."""
    rows, n = y.shape
    h = 1
    while h < n:
        pairs = y.reshape(rows, n // (2 * h), 2, h)
        y = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        h *= 2
    return y.reshape(rows, n)


def _quantised(y: Reals, levels: Reals, least: bool) -> tuple[Reals, NDArray[np.uint8]]:
    """The scale of each row, and the numbers of the levels' magnitudes."""
    n = y.shape[1]
    magnitudes = np.abs(y)
    squares = _tree_sum(magnitudes * magnitudes)
    bounds = (levels[1:] + levels[:-1]) / 2 * np.sqrt(squares / n)[:, None]
    index = np.zeros(y.shape, dtype=np.uint8)
    for i in range(levels.size - 1):
        index += magnitudes > bounds[:, i, None]
    product, energy = _tree_sum(levels[index] * magnitudes), _tree_sum(np.square(levels[index]))
    shift = 2.0 ** (log2(n) // 2 - log2(n))
    if not least:
        return np.where(product > 0, squares / product, product) * shift, index
    if levels.size > 1:
        mass = _tree_sum(magnitudes)
        even = (mass * mass) * energy > (product * product) * n
        index[even] = 0
        product, energy = (
            np.where(even, levels[0] * mass, product),
            np.where(even, levels[0] * levels[0] * n, energy),
        )
    return product / energy * shift, index


def _tree_sum(terms: Reals) -> Reals:
    """The sum of each row."""
    while terms.shape[1] > 1:
        w = terms.shape[1] // 2
        terms = terms[:, :w] + terms[:, w:]
    return terms[:, 0]
