"""Base of the autoregressive models of grey images: a network on earlier pixels; a sample is a pixel."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.arrays import Array, Indices
from mpicomp.base.blas import one_thread_for_good
from mpicomp.base.checks import as_seed, check_at_least
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.data import Split, rows_of, shard_sizes
from mpicomp.images.experts import EXPERTS, NEAR, TOTAL, about_a_prediction, fixed, predictions, seen
from mpicomp.images.grey import GreyImages, load_grey
from mpicomp.keys import Key
from mpicomp.problems.base import Problem
from mpicomp.problems.held_data import hold_data
from mpicomp.problems.objective import FiniteSum

BLOCKS = 1000  # of a network at most: two layers each
AT_ONCE = 2**13  # pixels whose hidden layers are in memory at one time


@dataclass(frozen=True)
class PixelModel(Problem):
    """A network that gives each pixel's distribution; with ``positions`` it also gets row and column.

    horizon  how far a pixel's neighbours are, 2 or above
    hidden   the entries of h, 1 or above
    blocks   the number of blocks, from 0 to 1000
    """

    positions: ClassVar[bool] = False
    paper: ClassVar[str] = "Zhang, Zhang, McDonagh, OOD generalization of image models (NeurIPS 2021)"

    data: Any
    split: Split = "shuffled"
    horizon: int = 3
    hidden: int = 32
    blocks: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        hold_data(self, GreyImages, GreyImages.of)
        check_at_least("horizon", self.horizon, 2, "predictions look 2 pixels away")
        check_at_least("hidden", self.hidden, 1, "the hidden layer has at least 1 unit")
        check_at_least("blocks", self.blocks, 0, "the network has 0 blocks or more")
        if self.blocks > BLOCKS:
            raise ConfigError(f"blocks = {self.blocks}: the network has {BLOCKS} blocks at most.")
        as_seed(self.seed)

    def images(self) -> GreyImages:
        return self.data if isinstance(self.data, GreyImages) else load_grey(self.data)

    def dimension(self) -> int:
        return self.parts().size

    def parts(self) -> Parts:
        """W_1, b_1, W_2, b_2, ..., one pair a layer."""
        inputs = 2 * self.horizon * (self.horizon + 1)
        if self.positions:
            inputs += sum(self.images().pixels.shape[1:])
        units = [inputs, *[self.hidden] * (1 + 2 * self.blocks), EXPERTS]
        parts = []
        for layer in range(1, len(units)):
            parts.append(Part(f"W_{layer}", (units[layer], units[layer - 1])))
            parts.append(Part(f"b_{layer}", (units[layer],)))
        return Parts(tuple(parts))

    def fingerprint(self) -> str:
        return self.images().sha256

    def shard_sizes(self, n: int) -> list[int]:
        images = self.images()
        return [size * images.shape[1] for size in shard_sizes(n, images.labels, self.split)]

    def x0(self) -> Array:
        key = Key(seed=self.seed, round=0, worker=None, n=1)
        x, last = np.zeros(self.dimension()), 2 * self.blocks + 2
        for part, where in self.parts():
            if len(part.shape) == 2:
                layer = int(part.name.removeprefix("W_"))
                factor = 0.1 if layer == last else 0.3 if layer > 1 and layer % 2 else 1.0
                stream = key.shared(f"local_images/layer {layer}")
                x[where] = factor * sqrt(2 / part.shape[1]) * stream.normals(part.size)
        return x.astype(np.float32)

    def objective(self, i: int, n: int) -> PixelObjective:
        images = self.images()
        return self._objective(images.pixels[rows_of(i, n, images.labels, self.split)])

    def log_likelihoods(self, x: Array) -> NDArray[np.float64]:
        """log p(image) for each image, in nats, shape (images,), in the order of ``data``.

        It computes in the precision of x.  Raises ``ConfigError`` if x does not have d entries.
        """
        if x.shape != (self.dimension(),):
            raise ConfigError(
                f"x has shape {x.shape}; expected ({self.dimension()},). Give the x that this problem's run "
                "returned, and the same horizon, hidden and blocks."
            )
        return -self._objective(self.images().pixels).image_values(x)

    def _objective(self, pixels: NDArray[np.uint8]) -> PixelObjective:
        one_thread_for_good()
        h = self.horizon
        padded = np.pad(pixels, ((0, 0), (h, 0), (h, h)))
        return PixelObjective(padded.ravel(), padded.shape, h, self.parts(), self.positions)


class PixelObjective(FiniteSum):
    """The f_i of a ``PixelModel`` in the precision of x, over the pixels numbered ``pixels``; None is all.

    ``padded`` has the images' values with ``horizon`` zeros above and on both sides of each image, flat; its
    shape was ``shape``.  Pixels are numbered image by image and row by row, without the zeros.  With
    ``positions`` the network's inputs end with height + width entries, 1 at the pixel's row and column.
    """

    pixels: Indices | None = None

    def __init__(
        self,
        padded: NDArray[np.uint8],
        shape: tuple[int, ...],
        horizon: int,
        parts: Parts,
        positions: bool = False,
    ) -> None:
        self.padded, self.shape, self.horizon, self.parts = padded, shape, horizon, parts
        m, tall, wide = shape
        self.height, self.width = tall - horizon, wide - 2 * horizon
        self.samples = m * self.height * self.width
        self.neighbours = np.array([self._offset(*to) for to in seen(horizon)])
        self.rows, self.columns = np.arange(self.height), np.arange(self.width)
        self.positions = positions
        self.about, self.fixed = _log_tables()

    def part(self, rows: Indices) -> PixelObjective:
        chosen = copy(self)
        chosen.pixels = rows if self.pixels is None else self.pixels[rows]
        chosen.samples = len(rows)
        return chosen

    def value(self, x: Array) -> float:
        total = 0.0
        for A, log_e in self._pieces(x):
            total += float(np.sum(self._forward(x, A, log_e)[0], dtype=np.float64))
        return total / self.samples

    def image_values(self, x: Array) -> NDArray[np.float64]:
        """-log p(image) for each image of f_i, in nats, shape (images,).  Raises ``TypeError`` in a part."""
        if self.pixels is not None:
            raise TypeError("some pixels of an image have no probability of the image; ask the whole f_i.")
        losses = np.empty(self.samples)
        for k, (A, log_e) in enumerate(self._pieces(x)):
            found = kernels.to_host(self._forward(x, A, log_e)[0])
            losses[k * AT_ONCE : k * AT_ONCE + len(found)] = found
        return losses.reshape(self.shape[0], -1).sum(axis=1)

    def grad(self, x: Array) -> Array:
        g, piece = np.zeros_like(x), np.empty_like(x)
        for A, log_e in self._pieces(x):
            self._backward(x, A, log_e, piece)
            g += piece
        return g

    def _pieces(self, x: Array) -> Iterator[tuple[Array, Array]]:
        """Yield, for at most ``AT_ONCE`` pixels each, the inputs, (b, inputs), and log e_k, (b, 79)."""
        for start in range(0, self.samples, AT_ONCE):
            stop = min(start + AT_ONCE, self.samples)
            if self.pixels is None:
                pixels = kernels.to_device(np.arange(start, stop))
            else:
                pixels = self.pixels[start:stop]
            yield self._inputs(pixels, x.dtype)

    def _inputs(self, pixels: Indices, dtype: Any) -> tuple[Array, Array]:
        _, tall, wide = self.shape
        image, within = pixels // (self.height * self.width), pixels % (self.height * self.width)
        row, column = within // self.width, within % self.width
        at = (image * tall + row + self.horizon) * wide + column + self.horizon
        A = self.padded[at[:, None] + self.neighbours].astype(dtype) / dtype.type(255)
        if self.positions:
            A = np.concatenate([A, row[:, None] == self.rows, column[:, None] == self.columns], axis=1)
        near = {name: self.padded[at + self._offset(*to)].astype(np.int64) for name, to in NEAR.items()}
        value = self.padded[at].astype(np.int64)
        experts = [self.about[p * 256 + value] for p in predictions(near)] + [self.fixed[value]]
        return A, np.concatenate(experts, axis=1).astype(dtype)

    def _offset(self, down: int, right: int) -> int:
        return down * self.shape[2] + right

    def _forward(self, x: Array, A: Array, log_e: Array) -> tuple[Array, list[Array], Array]:
        """The losses, (b,); the outputs of all rectified layers and blocks; the gradient in z."""
        layers = self._layers(x)
        W, b = layers[0]
        outputs = [np.maximum(A @ W.T + b, 0)]
        for k in range(1, len(layers) - 1, 2):
            (W, b), (V, c) = layers[k], layers[k + 1]
            inner = np.maximum(outputs[-1] @ W.T + b, 0)
            outputs += [inner, outputs[-1] + inner @ V.T + c]
        W, b = layers[-1]
        z = outputs[-1] @ W.T + b
        z -= z.max(axis=1, keepdims=True)  # so that log_e counts beside a z of any size
        prior, log_prior = _softmax(z)
        posterior, log_posterior = _softmax(z + log_e)
        return log_prior - log_posterior, outputs, prior - posterior

    def _backward(self, x: Array, A: Array, log_e: Array, g: Array) -> None:
        """Write the part of the gradient that these pixels contribute into g."""
        layers, slopes = self._layers(x), self._layers(g)
        _, outputs, R = self._forward(x, A, log_e)
        R /= self.samples
        _set(slopes[-1], R, outputs[-1])
        R = R @ layers[-1][0]
        for k in reversed(range(1, len(layers) - 1, 2)):
            before, inner = outputs[k - 1], outputs[k]
            _set(slopes[k + 1], R, inner)
            back = (R @ layers[k + 1][0]) * (inner > 0)
            _set(slopes[k], back, before)
            R = R + back @ layers[k][0]
        _set(slopes[0], R * (outputs[0] > 0), A)

    def _layers(self, x: Array) -> list[tuple[Array, Array]]:
        """The matrix and the bias of each layer, as views of x."""
        views = [x[where].reshape(part.shape) for part, where in self.parts]
        return list(zip(views[::2], views[1::2], strict=True))


def _set(slope: tuple[Array, Array], R: Array, inputs: Array) -> None:
    """Set the gradient in a layer's matrix and bias, from that in its outputs, R, and from its inputs."""
    W, b = slope
    W[:] = R.T @ inputs
    b[:] = R.sum(axis=0)


def _softmax(z: Array) -> tuple[Array, Array]:
    """softmax of each row of z, which may hold -inf but not alone, and the logarithm of sum exp z."""
    top = z.max(axis=1, keepdims=True)
    E = np.exp(z - top)
    total = E.sum(axis=1, keepdims=True)
    return E / total, (top + np.log(total))[:, 0]


@cache
def _log_tables() -> tuple[Array, Array]:
    """log e_k for the experts of a prediction, shape (65536, 6), and for the others, shape (256, 19)."""
    with np.errstate(divide="ignore"):  # a point mass has probability 0 elsewhere
        return np.log(about_a_prediction() / TOTAL).reshape(2**16, -1), np.log(fixed() / TOTAL)
