"""Rotated quantisers: the definition in exact fractions, fewer bits than one, sizes."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from itertools import pairwise
from math import comb, sqrt

import numpy as np
import pytest

from mpicomp.compressors import EDEN, RotatedSign
from mpicomp.kernels import definition
from mpicomp.kernels.definition.rotated import LEVELS
from mpicomp.keys import Key
from tests.support.backends import compiled, only
from tests.support.sampling import KEY, apply

LEAST, INNER = "least_error", "inner_product"
BITS = (1, 2, 3, 4)
FORMS = [(bits, scale) for bits in BITS for scale in (LEAST, INNER)]
every_form = pytest.mark.parametrize(("bits", "scale"), FORMS)


# --- the definition, in exact fractions ---


def hadamard(v: list) -> list:
    """H v: the matrix of size 2n has H, H in its upper half, and H, -H in the lower one."""
    if len(v) == 1:
        return v
    a, b = hadamard(v[: len(v) // 2]), hadamard(v[len(v) // 2 :])
    return [p + q for p, q in zip(a, b, strict=True)] + [p - q for p, q in zip(a, b, strict=True)]


def diagonal(key: Key, stage: int, start: int, n: int) -> list[int]:
    """D for the entries start, .., start + n - 1: bit i of a word is for its i-th entry; 1 is a minus."""
    words = key.private(f"rotation {stage}").words(-(-n // 32), start // 32)
    return [-1 if int(words[j // 32]) >> (j % 32) & 1 else 1 for j in range(n)]


def nearest_single(value: Fraction) -> Fraction:
    return Fraction(float(np.float32(float(value))))


def quantised(r, block: int, bits: int, scale: str, key: Key, stage: int):
    """(scales, symbols, the vector that they stand for) of one stage."""
    scales, symbols, result = [], [], []
    levels = [Fraction(float(c)) for c in LEVELS[bits]]
    for start in range(0, len(r), block):
        own = r[start : start + block]
        k = (len(own) - 1).bit_length()
        n = 2**k
        D = diagonal(key, stage, start, n)
        padded = own + [Fraction(0)] * (n - len(own))
        y = hadamard([s * v for s, v in zip(D, padded, strict=True)])  # sqrt(n) R r
        squares = sum(v * v for v in y)
        bounds = [(a + b) / 2 for a, b in pairwise(levels)]
        index = [sum(v * v * n > bound * bound * squares for bound in bounds) for v in y]
        c = [levels[i] for i in index]

        def inner(c, y=y):
            return sum(a * abs(v) for a, v in zip(c, y, strict=True))

        energy = sum(a * a for a in c)
        if scale == LEAST and bits > 1 and inner([1] * n) ** 2 / n > inner(c) ** 2 / energy:
            index, c, energy = [0] * n, [levels[0]] * n, n * levels[0] ** 2
        S = inner(c) / energy if scale == LEAST else squares / (inner(c) or 1)
        wire = nearest_single(S / n * 2 ** (k // 2))
        signed = [-a if v < 0 else a for a, v in zip(c, y, strict=True)]
        back = [s * v for s, v in zip(D, hadamard(signed), strict=True)]
        result += [v * wire / 2 ** (k // 2) for v in back[: len(own)]]
        scales.append(float(wire))
        symbols += [i + (v < 0) * 2 ** (bits - 1) for i, v in zip(index, y, strict=True)]
    return scales, symbols, result


def packed(scales, symbols, bits: int) -> bytes:
    total = sum(symbol << (bits * i) for i, symbol in enumerate(symbols))
    return np.array(scales, "<f4").tobytes() + total.to_bytes(-(-len(symbols) * bits // 8), "little")


def vectors(d: int):
    """Multiples of 1/4, so that sums over entries of y are exact in floating point."""
    draw = np.random.default_rng(d)
    yield draw.integers(-16, 17, d) / 4
    yield np.where(draw.random(d) < 0.1, 3.0, 0.0)
    yield np.where(np.arange(d) < 2, 1.0, 0.0)
    yield np.where(np.arange(d) < 2, 16.0 ** -np.arange(d), 0.0)  # better as signs, with 2 and 3 bits
    yield np.zeros(d)
    yield np.full(d, -0.25)


@every_form
@pytest.mark.parametrize("d", [1, 2, 3, 8, 29, 64, 150])
def test_eden_is_the_transcription(bits, scale, d, monkeypatch):
    """Its bytes; and its result, for one bit exactly, else as far as sums of levels are rounded."""
    C = EDEN(bits, scale, 128)
    for x in vectors(d):
        scales, symbols, result = quantised([Fraction(v) for v in x], 128, bits, scale, KEY, 0)
        message = C.compress(x, KEY)
        assert message.tobytes() == packed(scales, symbols, bits)
        assert C.compress(x.astype(np.float32), KEY).tobytes() == message.tobytes()
        value, wanted = C.decompress(message, d, KEY), np.array(result, float)
        if bits == 1:
            assert np.array_equal(value, wanted)
        else:
            np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-14 * (1 + np.abs(x).sum()))


@pytest.mark.parametrize("b", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 7, 32, 140])
def test_rotated_signs_are_the_transcription(b, d):
    """Exact: the rests are multiples of small powers of two."""
    C = RotatedSign(b, 128)
    for x in vectors(d):
        rest, total, wanted = [Fraction(v) for v in x], [Fraction(0)] * d, b""
        for stage in range(b):
            scales, symbols, q = quantised(rest, 128, 1, LEAST, KEY, stage)
            wanted += packed(scales, symbols, 1)
            rest = [r - v for r, v in zip(rest, q, strict=True)]
            total = [t + v for t, v in zip(total, q, strict=True)]
        assert C.compress(x, KEY).tobytes() == wanted
        assert np.array_equal(apply(C, x), np.array(total, float))


def test_blocks_of_4096():
    """Each has a scale and signs of its own; exact, as x has small integers."""
    x = np.random.default_rng(0).integers(-8, 9, 2 * 4096 + 5).astype(np.float32)
    message, j = RotatedSign().compress(x, KEY), np.arange(4096)
    H = 1 - 2 * (np.bitwise_count(j[:, None] & j) % 2).astype(np.float32)
    symbols = np.unpackbits(message[12:], bitorder="little")
    for block, (start, n) in enumerate([(0, 4096), (4096, 4096), (8192, 8)]):
        own = np.zeros(n, dtype=np.float32)
        own[: x.size - start] = x[start : start + n]
        y = H[:n, :n] @ (own * diagonal(KEY, 0, start, n)).astype(np.float32)
        assert np.array_equal(symbols[start : start + n], y < 0)
        mean = np.abs(y).sum(dtype=float) / n / (64 if n == 4096 else 4)  # 2^(k/2), and 2^2 for k = 3
        assert message[4 * block : 4 * block + 4].view("<f4")[0] == np.float32(mean)


def test_one_bit_with_the_least_error_is_rotated_sign():
    x = np.random.default_rng(1).normal(size=300)
    for block in (128, 4096):
        one, same = RotatedSign(1, block), EDEN(1, block=block)
        assert np.array_equal(one.compress(x, KEY), same.compress(x, KEY))
        assert one.alpha(300, 1) == same.alpha(300, 1) == 1 / 2


# --- fewer than one bit ---


@pytest.mark.parametrize("scale", [LEAST, INNER])
def test_below_one_bit_a_part_of_the_coordinates_is_sent(scale):
    """Those of ``coordinates``, as EDEN(1) sends them under the same key, and times 1/bits or as they are."""
    C, d = EDEN(0.3, scale), 200
    x = np.random.default_rng(4).normal(size=d)
    counts = []
    for t in range(50):
        key = Key(8, t, 0, 1)
        message = C.compress(x, key)
        (kept,) = C.coordinates(message, d, key)
        counts.append(kept.size)
        assert len(message) == EDEN(1).nbytes(kept.size)
        alone = EDEN(1, scale)
        assert np.array_equal(message, alone.compress(x[kept], key))
        value, gain = C.decompress(message, d, key), 1.0 if scale == LEAST else 1 / 0.3
        np.testing.assert_allclose(value[kept], gain * alone.decompress(message, kept.size, key), rtol=1e-9)
        assert np.count_nonzero(value) <= kept.size
    assert abs(np.mean(counts) - 60) < 4 * sqrt(200 * 0.3 * 0.7 / 50)
    assert EDEN(0.3).alpha(d, 1) == 0.15
    assert EDEN(1).alpha(d, 1) == EDEN(4).alpha(d, 1) == 0.5
    assert EDEN(0.3).selects and not EDEN(1).selects


def test_without_a_kept_coordinate_the_message_is_empty():
    C = EDEN(0.1)
    messages = [C.compress(np.ones(3), Key(1, t, 0, 1)) for t in range(30)]
    assert {len(m) for m in messages} >= {0, 5}
    empty = next(t for t, m in enumerate(messages) if not len(m))
    assert C.decompress(messages[empty], 3, Key(1, empty, 0, 1)).tolist() == [0, 0, 0]
    for c in (RotatedSign(3), EDEN(4), EDEN(2, INNER)):  # of no coordinates at all
        assert len(c.compress(np.zeros(0), KEY)) == 0 == c.decompress(np.zeros(0, np.uint8), 0, KEY).size


@pytest.mark.parametrize(("p", "d"), [(0.5, 10), (0.25, 300)])
def test_the_expected_size_below_one_bit(p, d):
    wanted = sum(comb(d, k) * p**k * (1 - p) ** (d - k) * EDEN(1, block=128).nbytes(k) for k in range(d + 1))
    assert EDEN(p, block=128).mean_nbytes(d, 1) == pytest.approx(wanted, rel=1e-9)


# --- sizes ---


def test_sizes():
    """4 bytes for each block, and bits for its entries, the last block's filled up to a power of two."""
    for d, blocks, entries in (
        *((1, 1, 1), (2, 1, 2), (3, 1, 4), (11, 1, 16), (4095, 1, 4096), (4096, 1, 4096), (4097, 2, 4097)),
        *((6144, 2, 6144), (6145, 2, 8192), (10**8, 24415, 24414 * 4096 + 256)),
    ):
        for bits in BITS:
            assert EDEN(bits).nbytes(d) == EDEN(bits, INNER).nbytes(d) == 4 * blocks + -(-bits * entries // 8)
        for b in (1, 2, 5):
            assert RotatedSign(b).nbytes(d) == b * (4 * blocks + -(-entries // 8))
    assert RotatedSign(2, 128).nbytes(200) == 2 * (2 * 4 + (128 + 128) // 8)
    assert EDEN(0.5).nbytes(40) is None


@pytest.mark.parametrize(
    ("C", "backend"),
    [(EDEN(4), definition), (EDEN(3, INNER), compiled), (RotatedSign(3), compiled)],
    ids=["numpy", "compiled", "stages"],
)
def test_at_most_six_copies_of_the_vector_are_in_memory(C, backend, monkeypatch):
    """The vector itself, its message and ``out`` among them; what is longer has the same share, or less."""
    only(monkeypatch, backend)
    d = 2**20
    x = np.random.default_rng(0).standard_normal(d, dtype=np.float32)
    out = np.zeros(d, dtype=np.float32)
    tracemalloc.start()
    try:
        C.decompress_add(C.compress(x, KEY), out, KEY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak + x.nbytes + out.nbytes <= 6 * x.nbytes
