"""Classification of images by a neural network with one hidden layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.base.blas import one_thread_for_good
from mpicomp.base.checks import as_seed, check_at_least
from mpicomp.base.errors import DataError, unknown
from mpicomp.base.parts import Part, Parts
from mpicomp.keys import Key
from mpicomp.problems.dense import Classification, Labels, cross_entropy
from mpicomp.problems.objective import FiniteSum


@dataclass(frozen=True)
class Activation:
    """``value`` is h(z), ``slope`` is h'(z) as a function of h, elementwise; ``gain`` scales ``MLP.x0``."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    gain: float


ACTIVATIONS = {
    "tanh": Activation(np.tanh, lambda h: 1 - h * h, gain=1.0),
    "relu": Activation(lambda z: np.maximum(z, 0), lambda h: (h > 0).astype(h.dtype), gain=2.0),
}


@dataclass(frozen=True)
class MLP(Classification):
    """Cross-entropy of the logits W_2 h(W_1 a + b_1) + b_2, one hidden layer, in single precision.

    x = (W_1, b_1, W_2, b_2), matrices row by row, of shapes (hidden, p), (hidden,), (classes, hidden),
    (classes,); h is tanh or relu.  x0, drawn from ``seed``: biases 0, weights normal with variance
    gain / (columns of the matrix), gain 1 for tanh and 2 for relu.

    The constants are not known: give step sizes as numbers.

    hidden      the units of the hidden layer, 1 or above
    activation  h: "tanh" or "relu"
    """

    paper: ClassVar[str] = "none: a network with one hidden layer"

    hidden: int = 32
    activation: str = "tanh"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("hidden", self.hidden, 1, "the hidden layer has at least 1 unit")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise unknown("activation", str(self.activation), ACTIVATIONS)
        as_seed(self.seed)

    def dimension(self) -> int:
        images = self.images()
        return self.hidden * (images.shape[1] + 1) + images.classes * (self.hidden + 1)

    def parts(self) -> Parts:
        """W_1, b_1, W_2 and b_2."""
        p, classes = self.images().shape[1], self.images().classes
        return Parts(
            (
                Part("W_1", (self.hidden, p)),
                Part("b_1", (self.hidden,)),
                Part("W_2", (classes, self.hidden)),
                Part("b_2", (classes,)),
            )
        )

    def x0(self) -> Array:
        x = np.zeros(self.dimension())
        W1, _, W2, _ = layers(x, self.hidden, self.images().classes)
        key = Key(seed=self.seed, round=0, worker=None, n=1)
        for name, W in (("first", W1), ("second", W2)):
            scale = sqrt(ACTIVATIONS[self.activation].gain / W.shape[1])
            W[:] = scale * key.shared(f"mlp/{name} layer").normals(W.size).reshape(W.shape)
        return x.astype(np.float32)

    def objective(self, i: int, n: int) -> MLPObjective:
        one_thread_for_good()
        X, labels = self.shard(i, n)
        largest = max(X.max(), -X.min())
        if largest > np.finfo(np.float32).max:
            raise DataError(
                f"{self.name()} has features as large as {largest:.3g}; allowed: up to 3.4e38, as the "
                "network computes in single precision. Scale the features, to at most 1 say."
            )
        h = ACTIVATIONS[self.activation]
        return MLPObjective(X.astype(np.float32), labels, self.hidden, self.images().classes, h)


class MLPObjective(FiniteSum):
    """The f_i of ``MLP`` over rows of X, shape (m, p), in the precision of x."""

    def __init__(
        self, X: NDArray[np.float32], labels: Labels, hidden: int, classes: int, h: Activation
    ) -> None:
        self.X, self.labels, self.hidden, self.classes, self.h = X, labels, hidden, classes, h
        self.samples = len(labels)

    def part(self, rows: Indices) -> MLPObjective:
        return MLPObjective(self.X[rows], self.labels[rows], self.hidden, self.classes, self.h)

    def value(self, x: Array) -> float:
        return self._forward(x)[1]

    def grad(self, x: Array) -> Array:
        H, _, R = self._forward(x)
        return self._backward(x, H, R)

    def value_and_grad(self, x: Array) -> tuple[float, Array]:
        H, loss, R = self._forward(x)
        return loss, self._backward(x, H, R)

    def _backward(self, x: Array, H: Array, R: Array) -> Array:
        """The gradient at x, from the hidden layer H and the loss's gradient R in the logits."""
        _, _, W2, _ = layers(x, self.hidden, self.classes)
        g = np.empty_like(x)
        gW1, gb1, gW2, gb2 = layers(g, self.hidden, self.classes)
        gW2[:] = R.T @ H
        gb2[:] = R.sum(axis=0)
        back = (R @ W2) * self.h.slope(H)
        gW1[:] = back.T @ self.X
        gb1[:] = back.sum(axis=0)
        return g

    def _forward(self, x: Array) -> tuple[Array, float, Array]:
        """The hidden layer, shape (m, hidden); the loss; its gradient in the logits."""
        W1, b1, W2, b2 = layers(x, self.hidden, self.classes)
        H = self.h.value(self.X @ W1.T + b1)
        return H, *cross_entropy(H @ W2.T + b2, self.labels)


def layers(x: Array, hidden: int, classes: int) -> tuple[Array, Array, Array, Array]:
    """W_1, b_1, W_2, b_2 as views of x."""
    p = (x.size - classes * (hidden + 1)) // hidden - 1
    W1, b1, W2, b2 = np.split(x, [hidden * p, hidden * (p + 1), hidden * (p + 1 + classes)])
    return W1.reshape(hidden, p), b1, W2.reshape(classes, hidden), b2
