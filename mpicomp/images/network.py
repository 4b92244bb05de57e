"""The network of a local image model in integer arithmetic, so that every machine computes the same.

Hidden values and logits are multiples of ``UNIT``; hidden values are clipped at ``LARGEST`` units.  A layer
is an integer matrix W and an integer vector b, both 2^shift times as fine as its outputs::

    layer(a) = floor((W a + b) / 2^shift)

    h = relu(layer_1(a));   per block: h = clip(h + layer_3(relu(layer_2(h))));   z = layer_4(h)

relu clips to 0 .. LARGEST, clip to -LARGEST .. LARGEST; a are the neighbours, from 0 to 255.  Shifts are such
that no sum that occurs on the way, in whatever order it is taken, reaches 2^24.  So the matrix products are
exact in single precision, and the processor, the library and the number of threads do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.bits import Bytes, pack, packed_nbytes, unpack
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.images.experts import EXPERTS
from mpicomp.images.local_images import LocalImages

UNIT = 2.0**-8
LARGEST = 2**11 - 1  # units: hidden values up to 8
EXACT = 2**24  # single precision holds all smaller integers
WIDTH, BIAS_WIDTH = 12, 24  # bits of an entry of W, and of b, at most
SHIFTS = 16

Matrix = NDArray[np.float32]  # of integers


@dataclass(frozen=True, eq=False)
class Layer:
    """W (rows, columns) and b (rows,), float32 arrays of integers, and the shift."""

    W: Matrix
    b: Matrix
    shift: int

    def __call__(self, a: Matrix) -> Matrix:
        """The outputs for each row of a."""
        sums = a @ self.W.T
        sums += self.b
        sums *= np.float32(2.0**-self.shift)
        return np.floor(sums, out=sums)


@dataclass(frozen=True, eq=False)
class IntegerNetwork:
    """An integer network, from a pixel's 2 horizon (horizon + 1) neighbours to its 79 experts' logits.

    ``of`` rounds a trained model to such a network; ``logits`` evaluates it.
    """

    horizon: int
    layers: tuple[Layer, ...]

    @staticmethod
    def of(problem: LocalImages, x: Any) -> IntegerNetwork:
        """The network of a trained model, rounded.

        Raises ``ConfigError`` if x does not belong to ``problem``, or has weights too large for integers.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape != (problem.dimension(),) or not np.isfinite(x).all():
            raise ConfigError(
                f"parameters of shape {x.shape}; allowed: {problem.dimension()} finite numbers for "
                f"{problem!r}."
            )
        views = [x[where].reshape(part.shape) for part, where in problem.parts()]
        pairs = list(zip(views[::2], views[1::2], strict=True))
        layers = [_rounded(W / 255 if k == 0 else W * UNIT, b, _largest(k)) for k, (W, b) in enumerate(pairs)]
        return IntegerNetwork(problem.horizon, tuple(layers))

    def logits(self, neighbours: Matrix) -> NDArray[np.int32]:
        """The logits, (pixels, 79), for the neighbours, integers, (pixels, columns)."""
        first, *blocks, last = self.layers
        h = first(neighbours)
        np.clip(h, 0, LARGEST, out=h)
        for inner, outer in zip(blocks[::2], blocks[1::2], strict=True):
            a = inner(h)
            h += outer(np.clip(a, 0, LARGEST, out=a))
            np.clip(h, -LARGEST, LARGEST, out=h)
        return last(h).astype(np.int32)

    def encoded(self) -> bytes:
        """The network as bytes: horizon, units of the hidden layer, blocks; then each layer.

        The numbers are LEB128.  A layer has three bytes, its shift and the widths of the entries of W and
        of b, then the entries of W, row by row, and those of b, each plus 2^(width - 1), packed without gaps.
        """
        first = self.layers[0]
        head = varint(self.horizon) + varint(len(first.b)) + varint(len(self.layers) // 2 - 1)
        return head + b"".join(_encoded(layer) for layer in self.layers)

    @staticmethod
    def decoded(buf: Bytes) -> IntegerNetwork:
        """Decode the network in ``buf``.  Raises ``MessageError`` unless ``buf`` is exactly one network."""
        horizon, at = read_varint(buf, 0)
        hidden, at = read_varint(buf, at)
        blocks, at = read_varint(buf, at)
        if horizon < 2 or not hidden or (1 + 2 * blocks) * hidden > 8 * len(buf) or horizon**2 > 8 * len(buf):
            raise MessageError(
                f"a network of horizon {horizon}, {hidden} hidden units and {blocks} blocks in {len(buf)} "
                "bytes."
            )
        units = [2 * horizon * (horizon + 1), *[hidden] * (1 + 2 * blocks), EXPERTS]
        layers = []
        for k, (columns, rows) in enumerate(pairwise(units)):
            layer, at = _decoded(buf, at, rows, columns)
            if _reach(layer.W, layer.b, _largest(k)) >= EXACT:
                raise MessageError("a network whose sums are too large for exact arithmetic.")
            layers.append(layer)
        if at != len(buf):
            raise MessageError(f"{len(buf) - at} bytes left over after the last layer.")
        return IntegerNetwork(horizon, tuple(layers))


def _largest(k: int) -> int:
    """The largest input of layer k, counted from 0."""
    return LARGEST if k else 255


def _rounded(W: NDArray[np.float64], b: NDArray[np.float64], largest: int) -> Layer:
    """Round W and b to an integer layer, with the finest shift for which its sums are exact."""
    most = 2 ** (BIAS_WIDTH - 1)
    for shift in reversed(range(SHIFTS)):
        fine = 2.0**shift / UNIT
        # Half a unit of the output, for ``Layer`` takes the floor: rounded, outputs have no bias.
        V, c = np.rint(W * fine), np.rint(b * fine + 2.0**shift / 2)
        narrow = np.abs(V).max() < 2 ** (WIDTH - 1) and -most <= c.min() and c.max() < most
        if narrow and _reach(V, c, largest) < EXACT:
            return Layer(V.astype(np.float32), c.astype(np.float32), shift)
    raise ConfigError(
        f"a layer has weights up to {np.abs(W).max():.3g} and biases up to {np.abs(b).max():.3g}, too large "
        "for exact integers. Train with a smaller step, or with fewer hidden units."
    )


def _reach(W: NDArray[Any], b: NDArray[Any], largest: int) -> float:
    """No partial sum of W a + b is larger in magnitude, if |a| <= largest."""
    return float((np.abs(W).sum(axis=1, dtype=np.float64) * largest + np.abs(b)).max())


def _encoded(layer: Layer) -> bytes:
    W, b = layer.W.ravel().astype(np.int64), layer.b.astype(np.int64)
    widths = [int(max(a.max(), -a.min() - 1, 0)).bit_length() + 1 for a in (W, b)]
    packed = [
        pack((a + 2 ** (w - 1)).astype(np.uint64), w).tobytes() for a, w in zip((W, b), widths, strict=True)
    ]
    return bytes([layer.shift, *widths]) + b"".join(packed)


def _decoded(buf: Bytes, at: int, rows: int, columns: int) -> tuple[Layer, int]:
    """The layer that starts there, and where it ends."""
    shift, *widths = buf[at : at + 3].tolist() + [255] * 3
    if shift >= SHIFTS or max(widths[:2]) > BIAS_WIDTH or not min(widths[:2]):
        raise MessageError("a layer with a shift or width that does not occur.")
    at, arrays = at + 3, []
    for count, width in zip((rows * columns, rows), widths, strict=False):
        stop = at + packed_nbytes(count, width)
        if stop > len(buf):
            raise MessageError("a network truncated inside a layer.")
        arrays.append(unpack(buf[at:stop], count, width).astype(np.float32) - np.float32(2 ** (width - 1)))
        at = stop
    return Layer(arrays[0].reshape(rows, columns), arrays[1], shift), at
