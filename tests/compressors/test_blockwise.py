"""Compressors that act on each block alone."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp import Bernoulli, HardThreshold, Identity, Layered, Natural, PermK, RandK, Shrunk, Sign, TopK
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors.base import Absolute, Contractive, Unbiased
from mpicomp.compressors.blockwise import Blockwise
from mpicomp.keys import Key

D, S, N = 50, 4, 3
BLOCKS = Blocks.cut(Parts.single(D), S)
KEY = Key(5, 3, 1, N)
x = np.random.default_rng(0).normal(size=D)


@pytest.mark.parametrize(
    "C",
    [Identity(), TopK(0.3), RandK(3), PermK(), Natural(), Sign(), HardThreshold(0.5), Shrunk(Bernoulli(0.5))],
    ids=repr,
)
def test_a_block_is_compressed_alone_under_its_own_name(C):
    """Its message, and what is decoded from it, are C's for that block; the server of the block agrees."""
    whole = Blockwise(C, BLOCKS)
    message = whole.compress(x, KEY)
    decoded = whole.decompress(message, D, KEY)
    for b, where in enumerate(BLOCKS.slices(D)):
        name, size = KEY.named(f"block {b}"), where.stop - where.start
        alone = C.compress(x[where], name)
        assert np.array_equal(message.of_blocks[b], alone)
        assert np.array_equal(decoded[where], C.decompress(alone, size, name))
        served = Blockwise(C, BLOCKS, only=b)
        assert np.array_equal(served.compress(x[where], KEY), alone)
        assert np.array_equal(served.decompress(alone, size, KEY), decoded[where])
    assert len(message) == sum(map(len, message.of_blocks))
    y = np.arange(D) / D
    difference = whole.compress_difference(x, y, KEY)
    expected = whole.compress(x - y, KEY)
    assert [m.tobytes() for m in difference.of_blocks] == [m.tobytes() for m in expected.of_blocks]
    bits = [
        C.paper_bits(m, w.stop - w.start, KEY.named(f"block {b}"))
        for b, (m, w) in enumerate(zip(message.of_blocks, BLOCKS.slices(D), strict=True))
    ]
    assert whole.paper_bits(message, D, KEY) == sum(bits)


@pytest.mark.parametrize(
    "C", [Identity(), TopK(0.3), RandK(3), PermK(), Sign(), HardThreshold(0.5)], ids=repr
)
def test_its_constants_are_the_worst_of_the_blocks_on_every_server_too(C):
    sizes = [w.stop - w.start for w in BLOCKS.slices(D)]
    for served in (Blockwise(C, BLOCKS), Blockwise(C, BLOCKS, only=2)):
        assert {k for k in (Unbiased, Contractive, Absolute) if isinstance(served, k)} == {
            k for k in (Unbiased, Contractive, Absolute) if isinstance(C, k)
        }
        if isinstance(C, Unbiased):
            assert served.omega(D, N) == max(C.omega(m, N) for m in sizes)
            assert served.ab(D, N)[0] == max(C.ab(m, N)[0] for m in sizes)
            assert served.ab(D, N)[1] == min(C.ab(m, N)[1] for m in sizes)
        if isinstance(C, Contractive):
            assert served.alpha(D, N) == min(C.alpha(m, N) for m in sizes)
        if isinstance(C, Absolute):
            assert served.delta(D) == sum(C.delta(m) for m in sizes)


def test_rules_by_layer_hold_in_every_block():
    """A pattern need not match in each block; one that matches no part of the vector is still refused."""
    net = Parts((Part("w", (6, 8)), Part("w.bias", (6,)), Part("v", (4, 8))))
    C = Layered({"*.bias": Identity()}, default=TopK(0.25))
    served = Blockwise(C, Blocks.cut(net, 3))
    v = np.arange(1.0, net.size + 1)
    decoded = served.decompress(served.compress(v, KEY), net.size, KEY)
    assert np.array_equal(decoded[48:54], v[48:54])  # the biases, whole
    for part in Blocks.cut(net, 3).parts:
        assert part.whole == net
    with pytest.raises(ConfigError, match="matches no part"):
        Blockwise(Layered({"u": Identity()}, default=TopK(0.25)), Blocks.cut(net, 3))


def test_a_count_above_a_block_is_refused_at_once():
    with pytest.raises(ConfigError, match="block 0 of 4: k=20 exceeds the dimension d=12"):
        Blockwise(TopK(20), BLOCKS)
