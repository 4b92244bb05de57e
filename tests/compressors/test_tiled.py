"""TiledTopK: a sort of each tile, both codes of its positions, and what is refused.

What every compressor promises: conformance.py.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, EFSGD, Layered, Natural, Sign, TiledTopK, TopK, TwoMeans
from mpicomp.base.errors import ConfigError, DivergedError, MessageError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import Dithering, Identity, RandK
from mpicomp.kernels.index_layouts import index_nbytes
from tests.support.every_combination import TO_CUT
from tests.support.sampling import KEY, apply, square

WHOLE = Identity("f8")


def pieces(m: int, t: int) -> list[range]:
    """m entries in ceil(m/t) pieces, the longer ones first."""
    count, found, start = ceil(m / t), [], 0
    for i in range(count):
        length = m // count + (i < m % count)
        found.append(range(start, start + length))
        start += length
    return found


def by_sorting(x: np.ndarray, shape: tuple[int, int], k: int | float, t: int) -> np.ndarray:
    """C(x), tile by tile: the indices by falling magnitude, and at ties rising."""
    rows, columns = shape
    value, tall = np.zeros_like(x), pieces(rows, t)
    wide = pieces(columns, t)
    if 1 in shape:
        rows, columns, tall, wide = 1, x.size, [range(1)], pieces(x.size, t * t)
    for down in tall:
        for across in wide:
            tile = [i * columns + j for i in down for j in across]
            count = min(k, len(tile)) if isinstance(k, int) else max(1, round(k * len(tile)))
            kept = sorted(tile, key=lambda j: (-abs(x[j]), j))[:count]
            value[kept] = x[kept]
    return value


SHAPES = [(4, 4), (6, 9), (7, 5), (5, 7), (1, 30), (30, 1), (1, 1), (2, 3)]


@pytest.mark.parametrize("k", [1, 3, 64, 0.1, 0.999])
@pytest.mark.parametrize("t", [1, 2, 3, 4, 64])
def test_it_is_a_sort_of_each_tile(k, t):
    """Exactly, at ties too: magnitudes are small integers."""
    for shape in [*SHAPES, *([(64, 64), (65, 70), (1, 4100)] if t == 64 else [])]:
        d, c = shape[0] * shape[1], TiledTopK(k, WHOLE, tile=t, rows=shape[0])
        for top in (2, 10**6):
            x = np.random.default_rng([*shape, top]).integers(-top, top + 1, d).astype(float)
            assert np.array_equal(apply(c, x), by_sorting(x, shape, k, t)), (shape, top)


# --- the wire ---


def test_symbols_by_hand():
    """Four tiles of 2 x 2: positions 3, 0, 1, 2 of two bits each, then the values."""
    x = np.array([[1, 2, 9, 3], [0, 5, 1, 1], [0, 8, 1, 2], [4, 7, 6, 0]], float).ravel()
    message = TiledTopK(1, Identity(), tile=2, rows=4).compress(x, KEY)
    assert message[:1].tolist() == [3 | 0 << 2 | 1 << 4 | 2 << 6]
    assert message[1:].view("<f4").tolist() == [5, 9, 8, 6]


def test_the_index_code_of_the_tiles_in_their_order():
    """One matrix of 2 x 2 tiles of 64 x 64, and 64 entries of each: 8 bits a position."""
    x = np.random.default_rng(3).normal(size=128 * 128)
    c = TiledTopK(64, WHOLE, rows=128)
    ordered = x.reshape(2, 64, 2, 64).swapaxes(1, 2).ravel()
    kept = np.flatnonzero(by_sorting(ordered, (1, ordered.size), 64, 64))
    message, top = c.compress(x, KEY), TopK(256, "f8")
    split = index_nbytes(x.size, 256)
    marked = np.zeros(x.size)
    marked[kept] = 1
    assert message[:split].tobytes() == top.compress(marked, KEY)[:split].tobytes()
    assert np.array_equal(message[split:].view("<f8"), ordered[kept])
    assert len(message) == c.nbytes(x.size) == split + 256 * 8 and split == 256


@pytest.mark.parametrize("k", [1, 2, 3, 8, 64, 0.5])
def test_the_shorter_code_is_sent(k):
    for rows, columns, t in ((64, 64, 64), (128, 192, 64), (30, 50, 8), (12, 12, 3)):
        c, d = TiledTopK(k, WHOLE, tile=t, rows=rows), rows * columns
        shapes = {}
        for down in pieces(rows, t):
            for across in pieces(columns, t):
                shapes[len(down), len(across)] = shapes.get((len(down), len(across)), 0) + 1
        symbols = K = 0
        for (r, w), count in shapes.items():
            each = min(k, r * w) if isinstance(k, int) else max(1, round(k * r * w))
            symbols += ceil(count * each * ceil(log2(r * w)) / 8)
            K += count * each
        assert c.nbytes(d) == min(symbols, index_nbytes(d, K)) + 8 * K


@pytest.mark.parametrize(
    ("c", "d", "K", "split"),
    [
        (TiledTopK(2, tile=15, rows=60), 3600, 32, 32),  # symbols of 8 bits for tiles of 225 entries
        (TiledTopK(64, rows=64), 64 * 128, 128, index_nbytes(64 * 128, 128)),
    ],
    ids=repr,
)
def test_positions_that_are_no_sets_are_refused(c, d, K, split):
    x = np.random.default_rng(2).normal(size=d)
    message = c.compress(x, KEY)
    for bad in (message[:-1], message[:1], message[:0], np.append(message, np.uint8(0))):
        with pytest.raises(MessageError):
            c.decompress(bad, d, KEY)
    assert len(message) == split + 4 * K
    for first in (b"\x11" * split, b"\xee" * split, b"\x00" * split, b"\xff" * split):
        bad = np.concatenate([np.frombuffer(first, np.uint8), message[split:]])
        with pytest.raises(MessageError):
            c.decompress(bad, d, KEY)
        with pytest.raises(MessageError):
            c.coordinates(bad, d, KEY)


def test_a_position_beyond_its_tile_is_refused():
    """Increasing symbols of 8 bits, in tiles of 225 entries."""
    c, d = TiledTopK(2, tile=15, rows=60), 3600
    message = c.compress(np.ones(d), KEY)
    assert message[:32].tolist() == [0, 1] * 16
    message[31] = 224
    assert c.decompress(message, d, KEY)[-1] == 1
    message[31] = 225
    with pytest.raises(MessageError, match="tiles of 225 entries"):
        c.decompress(message, d, KEY)


def test_of_codes_as_long_the_index_code_is_sent():
    """Eight of 36 positions: symbols of 4 bits and the index code both take 4 bytes."""
    c, x = TiledTopK(2, WHOLE, tile=3, rows=6), np.arange(36.0)
    ordered = x.reshape(2, 3, 2, 3).swapaxes(1, 2).ravel()
    kept = np.sort(np.concatenate([9 * t + np.argsort(ordered[9 * t : 9 * t + 9])[-2:] for t in range(4)]))
    marked = np.zeros(36)
    marked[kept] = 1
    assert index_nbytes(36, 8) == 4
    assert c.compress(x, KEY)[:4].tobytes() == TopK(8).compress(marked, KEY)[:4].tobytes()


def test_an_index_code_with_two_in_one_tile_and_none_in_another_is_refused():
    c, d = TiledTopK(64, rows=64), 64 * 128
    message = c.compress(np.ones(d), KEY)
    wrong = np.zeros(d)
    wrong[:128] = 1  # all in the first tile
    split = index_nbytes(d, 128)
    bad = np.concatenate([TopK(128).compress(wrong, KEY)[:split], message[split:]])
    with pytest.raises(MessageError, match="not 64 in each of the tiles of 4096"):
        c.decompress(bad, d, KEY)


# --- the error ---


@pytest.mark.parametrize(
    "Q", [WHOLE, Natural("f8"), Sign("f8"), TwoMeans("f8"), Dithering(4, values="f8")], ids=repr
)
def test_the_error_is_at_most_that_of_alpha(Q):
    rng = np.random.default_rng(4)
    for rows, d, t in ((5, 35, 3), (8, 64, 4), (1, 40, 3)):
        c = TiledTopK(2, Q, tile=t, rows=rows)
        for x in (rng.normal(size=d), rng.normal(size=d) ** 5, np.ones(d)):
            error = np.mean([square(apply(c, x, KEY.of(0).named(str(i))) - x) for i in range(40)])
            assert error <= (1 - c.alpha(d, 4)) * square(x) * (1 + 1e-9)


def test_alpha_is_attained_at_equal_magnitudes():
    for k, t, share in ((3, 4, 3 / 16), (0.5, 2, 0.5), (100, 4, 1.0)):
        c, x = TiledTopK(k, WHOLE, tile=t, rows=8), np.where(np.arange(64) % 3, 1.0, -1.0)
        assert c.alpha(64, 1) == share
        assert square(apply(c, x) - x) == (1 - share) * 64
    assert TiledTopK(3, Natural(), tile=4, rows=8).alpha(64, 1) == pytest.approx(3 / 16 / (1 + 1 / 8))
    assert TiledTopK(5, TwoMeans(), tile=4, rows=1).alpha(32, 1) == 5 / 16 * TwoMeans().alpha(10, 1)
    assert TiledTopK(3, tile=4, rows=5).alpha(30, 1) == 3 / 9  # of 5 x 6: the largest tile is 3 x 3


def test_the_largest_tile_decides():
    assert TiledTopK(3, tile=2, rows=3).alpha(15, 1) == 3 / 4  # pieces 2 and 1 by 2, 2 and 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_wherever_it_is(value):
    for j in (0, 17, 34):
        x = np.arange(35.0)
        x[j] = value
        with pytest.raises(DivergedError):
            TiledTopK(1, tile=3, rows=5).compress(x, KEY)


# --- parts, and what is refused ---


def test_a_part_has_the_tiles_of_its_shape():
    shapes = {(4, 6): 4, (4, 2, 3): 4, (24,): 1, (): 1}
    for shape, rows in shapes.items():
        c = TiledTopK(2, tile=2).bound(Parts((Part("w", shape),)))
        assert c == TiledTopK(2, tile=2, rows=rows)
    x = np.random.default_rng(1).normal(size=(30,))
    parts = Parts((Part("w", (4, 6)), Part("b", (5,)), Part("s", ())))
    c = Layered({}, TiledTopK(2, WHOLE, tile=2)).bound(parts)
    wanted = [by_sorting(x[:24], (4, 6), 2, 2), by_sorting(x[24:29], (1, 5), 2, 2), x[29:]]
    assert np.array_equal(apply(c, x), np.concatenate(wanted))


def test_it_runs_layer_by_layer_and_in_blocks():
    C = Layered({"ndim<2": Identity()}, TiledTopK(4, TwoMeans(), tile=8))
    hashes = set()
    for how in ({}, {"server": "sharded", "blocks": 3}):
        for method in (EF21(C, gamma=0.05), EFSGD(C, gamma=0.05, decay=0.9, average="senders")):
            run = mpicomp.run(method, TO_CUT, workers=4, rounds=6, every=6, **how)
            assert run.rows[-1].f < run.rows[0].f
            hashes.add(run.iterates_sha256)
    assert len(hashes) == 4


def test_what_is_refused():
    parts = Parts((Part("w", (4, 6)), Part("b", (5,))))
    makes = [
        (lambda: TiledTopK(0), r"k=0; allowed"),
        (lambda: TiledTopK(1.5), r"k=1\.5; allowed"),
        (lambda: TiledTopK(4, tile=0), r"tile=0; allowed: a positive integer"),
        (lambda: TiledTopK(4, rows=-1), r"rows=-1; allowed: a positive integer"),
        (lambda: TiledTopK(4, TopK(2)), r"Q=TopK.*or Sign\(\) or TwoMeans\(\)"),
        (lambda: TiledTopK(4, RandK(2)), r"Q=RandK.*allowed: an unbiased quantiser"),
        (lambda: TiledTopK(4).bound(parts), r"Give rows, or take Layered\(\{\}, default=TiledTopK"),
        (lambda: TiledTopK(4).compress(np.ones(8), KEY), r"does not know the rows of the dimension d=8"),
        (lambda: TiledTopK(4, rows=3).compress(np.ones(8), KEY), r"rows=3 does not divide the dimension d=8"),
    ]
    for make, match in makes:
        with pytest.raises(ConfigError, match=match):
            make()
