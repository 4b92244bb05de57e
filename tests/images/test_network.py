"""The network in integers: exact, near the network that was trained, and as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.images import IntegerNetwork
from mpicomp.images.local_images import LocalImages
from mpicomp.images.network import EXACT, LARGEST, WIDTH

BLACK = np.zeros((1, 4, 4), np.uint8)


def trained(seed: int = 0, **settings) -> tuple[LocalImages, np.ndarray]:
    problem = LocalImages(BLACK, seed=seed, **settings)
    return problem, problem.x0() + 0.1 * np.random.default_rng(seed).normal(size=problem.dimension())


def network(seed: int = 0, **settings) -> IntegerNetwork:
    return IntegerNetwork.of(*trained(seed, **settings))


def some(columns: int, count: int = 50) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, columns))


NETWORKS = [
    network(),
    network(hidden=48),
    network(hidden=7, blocks=0),
    network(horizon=5, blocks=3, hidden=9),
]


def in_python(net: IntegerNetwork, a: list[int]) -> list[int]:
    """The logits of one pixel in Python's integers."""

    def layer(k: int, values: list[int]) -> list[int]:
        one = net.layers[k]
        rows = zip(one.W.astype(int).tolist(), one.b.astype(int).tolist(), strict=True)
        return [(sum(w * v for w, v in zip(W, values, strict=True)) + b) >> one.shift for W, b in rows]

    h = [min(max(v, 0), LARGEST) for v in layer(0, a)]
    for k in range(1, len(net.layers) - 1, 2):
        inner = [min(max(v, 0), LARGEST) for v in layer(k, h)]
        h = [min(max(u + v, -LARGEST), LARGEST) for u, v in zip(h, layer(k + 1, inner), strict=True)]
    return layer(len(net.layers) - 1, h)


@pytest.mark.parametrize("net", NETWORKS)
def test_the_logits_are_exact(net):
    a = some(2 * net.horizon * (net.horizon + 1))
    a[0], a[1] = 0, 255
    expected = [in_python(net, row) for row in a.tolist()]
    assert net.logits(a.astype(np.float32)).tolist() == expected


@pytest.mark.parametrize("net", NETWORKS)
def test_no_sum_reaches_what_single_precision_cannot_hold(net):
    for k, layer in enumerate(net.layers):
        reach = np.abs(layer.W).sum(axis=1) * (LARGEST if k else 255) + np.abs(layer.b)
        assert reach.max() < EXACT and np.abs(layer.W).max() < 2 ** (WIDTH - 1)
        assert (layer.W == np.rint(layer.W)).all() and (layer.b == np.rint(layer.b)).all()


@pytest.mark.parametrize("bias", [0.5, 1.0, 1.5, 3.0, 15.0, -2.0])
def test_a_network_of_large_biases_and_small_weights_comes_back(bias):
    """Its biases take most of what single precision holds, and still have a width that can be decoded."""
    problem, x = trained()
    for part, where in problem.parts():
        x[where] = 0.01 * x[where] if len(part.shape) == 2 else bias
    net = IntegerNetwork.of(problem, x)
    back = IntegerNetwork.decoded(np.frombuffer(net.encoded(), dtype=np.uint8))
    for one, other in zip(net.layers, back.layers, strict=True):
        assert (one.W == other.W).all() and (one.b == other.b).all() and one.shift == other.shift


def test_the_logits_are_near_those_of_the_network_that_was_rounded():
    """Within some units of 1/256, of logits with a spread of hundreds."""
    problem, x = trained()
    views = [x[where].reshape(part.shape) for part, where in problem.parts()]
    (W1, b1), (W2, b2), (W3, b3), (W4, b4) = zip(views[::2], views[1::2], strict=True)
    a = some(24, 2000)
    h = np.maximum(a / 255 @ W1.T + b1, 0)
    h = h + np.maximum(h @ W2.T + b2, 0) @ W3.T + b3
    assert np.abs(h).max() < LARGEST / 256  # nothing is clipped
    z = 256 * (h @ W4.T + b4)
    error = IntegerNetwork.of(problem, x).logits(a.astype(np.float32)) - z
    assert np.abs(error).max() < 0.05 * z.std() and abs(error.mean()) < 0.01 * z.std()


@pytest.mark.parametrize("net", NETWORKS)
def test_the_bytes_are_the_network(net):
    buf = np.frombuffer(net.encoded(), np.uint8)
    back = IntegerNetwork.decoded(buf)
    assert back.horizon == net.horizon and back.encoded() == net.encoded()
    for ours, theirs in zip(net.layers, back.layers, strict=True):
        assert np.array_equal(ours.W, theirs.W) and np.array_equal(ours.b, theirs.b)
        assert ours.shift == theirs.shift


@pytest.mark.parametrize("net", NETWORKS)
def test_bytes_cut_or_added_to_are_refused(net):
    buf = np.frombuffer(net.encoded(), np.uint8)
    for cut in [*range(12), *range(20, buf.size, 997), buf.size - 1]:
        with pytest.raises(MessageError):
            IntegerNetwork.decoded(buf[:cut])
    with pytest.raises(MessageError, match="left over"):
        IntegerNetwork.decoded(np.append(buf, np.uint8(0)))


def test_bytes_of_no_network_are_refused():
    buf = np.frombuffer(NETWORKS[2].encoded(), np.uint8)
    for at, value in ((0, 1), (1, 0), (3, 16), (4, 0), (4, 25), (5, 40)):
        wrong = buf.copy()
        wrong[at] = value
        with pytest.raises(MessageError):
            IntegerNetwork.decoded(wrong)
    large = IntegerNetwork.of(*trained(hidden=7, blocks=0))
    large.layers[1].b[:], large.layers[1].W[:] = 2**23 - 1, 2**10
    with pytest.raises(MessageError, match="too large for exact"):
        IntegerNetwork.decoded(np.frombuffer(large.encoded(), np.uint8))


def test_weights_that_integers_cannot_hold_are_refused():
    problem, x = trained(hidden=7, blocks=0)
    with pytest.raises(ConfigError, match="too large for exact integers"):
        IntegerNetwork.of(problem, 1e4 * x)
    with pytest.raises(ConfigError, match="allowed: 807 finite numbers"):
        IntegerNetwork.of(problem, x[:-1])
    with pytest.raises(ConfigError, match="finite"):
        IntegerNetwork.of(problem, x * np.nan)
