"""Kernels: every backend gives the numpy definition's bytes, and no bytes make one read out of bounds.

The compiled kernels are called directly, on vectors of any length, whatever length the package takes
them from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from math import fsum, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp import kernels
from mpicomp.coding import bitmaps
from mpicomp.coding.bits import packed_nbytes
from mpicomp.compressors import (
    Dithering,
    HardThreshold,
    Identity,
    Natural,
    NaturalDithering,
    Sign,
    Ternary,
    TopK,
)
from mpicomp.errors import DivergedError, MessageError
from mpicomp.kernels import definition, reductions, threads
from mpicomp.kernels.loading import load
from mpicomp.kernels.permutation import SMALL
from tests.conformance import CASES, fuzz, golden

compiled = load()


FLOATS = (np.float32, np.float64)
STREAM = ((0x89ABCDEF, 0x1234), (3, 2**32 - 1, 0xDEADBEEF))


def test_there_are_compiled_kernels_under_the_same_names():
    assert compiled is not definition
    assert compiled.__all__ == definition.__all__


@st.composite
def vectors(draw, finite: bool = True, most: int = 300, dtype=None):
    """Vectors whose entries have all magnitudes, with ties, zeros of both signs and subnormals."""
    dtype = dtype or draw(st.sampled_from(FLOATS))
    d = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    info = np.finfo(dtype)
    tiny, huge = float(info.smallest_subnormal), float(info.max)
    kind = draw(st.sampled_from(["normal", "few values", "all magnitudes", "zero", "subnormal", "huge"]))
    x = {
        "normal": lambda: rng.standard_normal(d),
        "few values": lambda: rng.integers(-2, 3, d) * 0.75,
        "all magnitudes": lambda: np.ldexp(rng.standard_normal(d), rng.integers(-160, 120, d)),
        "zero": lambda: np.zeros(d),
        "subnormal": lambda: rng.integers(-5, 6, d) * tiny,
        "huge": lambda: rng.choice([-huge, huge, 0.0, 1.0], d),
    }[kind]().astype(dtype)
    special = [0.0, -0.0, tiny, -tiny, float(info.tiny), 1.0, -1.0, huge, -huge]
    if not finite:
        special += [np.inf, -np.inf, np.nan]
    for value in draw(st.lists(st.sampled_from(special), max_size=5)):
        x[draw(st.integers(0, d - 1))] = value
    return x


def assert_same(a, b) -> None:
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()


# --- random words and permutations ---


@fuzz
@given(st.integers(0, 2**33), st.integers(0, 300))
def test_words(start, count):
    assert_same(compiled.words(STREAM, start, count), definition.words(STREAM, start, count))


@fuzz
@given(st.integers(2, 2**40), st.integers(0, 300), st.floats(0, 1))
def test_permute(d, count, where):
    start = int((d - min(count, d)) * where)
    if d <= SMALL or count:
        window = (STREAM, d, start, min(start + count, d))
        assert_same(compiled.permute(*window), definition.permute(*window))


# --- vectors ---

SCALES = st.sampled_from([1.0, -1.0, 0.0, 0.1, -2.5e-3, 1e30, 2.0**-1030])


@fuzz
@given(vectors(), vectors(), SCALES)
def test_add_scaled(out, x, scale):
    d = min(out.size, x.size)
    with np.errstate(all="ignore"):
        expected, got = out[:d].copy(), out[:d].copy()
        definition.add_scaled(expected, x[:d], scale)
        compiled.add_scaled(got, x[:d], scale)
    assert_same(got, expected)


@fuzz
@given(vectors(), vectors(), SCALES, st.data())
def test_gather_and_scatter_add(out, x, scale, data):
    kept = np.array(data.draw(st.lists(st.integers(0, out.size - 1), unique=True, max_size=x.size)), np.int64)
    kept.setflags(write=False)
    values = np.frombuffer(b"." + x[: kept.size].tobytes(), np.uint8)[1:].view(x.dtype)  # unaligned
    with np.errstate(all="ignore"):
        expected, got = out.copy(), out.copy()
        definition.scatter_add(expected, kept, values, scale)
        compiled.scatter_add(got, kept, values, scale)
    assert_same(got, expected)
    assert_same(compiled.gather(out, kept), definition.gather(out, kept))


@pytest.mark.parametrize("index", [-1, 7, 2**62, -(2**63)])
def test_indices_outside_the_vector_are_refused(index):
    out, kept = np.zeros(7), np.array([1, index])
    with pytest.raises(IndexError):
        compiled.gather(out, kept)
    with pytest.raises(IndexError):
        compiled.scatter_add(out, kept, np.ones(2), 1.0)


@fuzz
@given(vectors(finite=False), st.sampled_from(["f8", "f4", "f2", "bf16"]))
def test_values(x, values):
    """What is refused is not sent, so its bytes are nobody's concern."""
    assert_rounds_alike(x, values)
    assert compiled.to_wire(x, values)[1] <= np.isfinite(x).all()


def assert_rounds_alike(x, values) -> None:
    (got, finite), (expected, also) = compiled.to_wire(x, values), definition.to_wire(x, values)
    assert finite == also
    assert not finite or got.tobytes() == expected.tobytes()


SHORT = {"f2": 0x7C00, "bf16": 0x7F80}  # the code of infinity
# The largest number of a format, and where what rounds to it ends: half a unit more is a tie, and goes up.
LIMITS = {"f2": (65504.0, 65520.0), "bf16": (255 * 2.0**120, 511 * 2.0**119)}


@pytest.mark.parametrize("values", SHORT)
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_around_every_short_float(values, dtype):
    """Each number, each midpoint and a hair to either side of it, of the type's own: a double just off a
    midpoint becomes that midpoint as a single, and would then go the wrong way."""
    exact = definition.from_wire(np.arange(SHORT[values], dtype="<u2").view(np.uint8), values).astype(dtype)
    middle = exact[:-1] / 2 + exact[1:] / 2
    x = np.concatenate([exact, middle, np.nextafter(middle, dtype(0)), np.nextafter(middle, dtype(np.inf))])
    assert compiled.to_wire(x, values)[1]
    assert_rounds_alike(np.concatenate([x, -x]), values)


@fuzz
@given(st.data(), st.sampled_from(FLOATS), st.sampled_from(list(SHORT)))
def test_rounding_to_short_floats(data, dtype, values):
    """Any number, and numbers of the format with a tail: none, half a unit, or one that is nearly half."""
    any_number = st.floats(width=8 * np.dtype(dtype).itemsize, allow_nan=False)
    code = st.integers(0, SHORT[values] - 1)
    tail = st.tuples(code, st.sampled_from([0.0, 0.5, 0.5 - 2.0**-11, 0.5 + 2.0**-11, 0.5 + 2.0**-40]))
    x = np.array(data.draw(st.lists(any_number, max_size=8)), dtype=dtype)
    codes, tails = np.array(data.draw(st.lists(tail, max_size=8))).reshape(-1, 2).T
    low, high = (
        definition.from_wire((codes + up).astype("<u2").view(np.uint8), values).astype(np.float64)
        for up in (0, 1)
    )
    high[codes == SHORT[values] - 1] = 2 * LIMITS[values][1] - LIMITS[values][0]
    near = (low + tails * (high - low)).astype(dtype) * data.draw(st.sampled_from([1, -1]))
    for v in (x, near, *x[:, None], *near[:, None]):  # together, and alone: one may be refused
        assert_rounds_alike(v, values)


@pytest.mark.parametrize("values", SHORT)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_overflow_of_short_floats(values, dtype, sign):
    largest, limit = LIMITS[values]
    for x in (largest, np.nextafter(dtype(limit), dtype(0))):
        wire, finite = compiled.to_wire(np.array([0.0, sign * x], dtype=dtype), values)
        assert finite
        assert definition.from_wire(wire, values).tolist() == [0.0, sign * largest]
    for x in (limit, 2 * limit, np.finfo(dtype).max, np.inf, np.nan):
        with np.errstate(over="ignore"):
            bad = np.array([0.0, sign * x], dtype=dtype)
        assert not compiled.to_wire(bad, values)[1]
        assert not definition.to_wire(bad, values)[1]


@pytest.mark.parametrize("values", SHORT)
def test_every_short_float_is_read_alike(values):
    """NaNs as NaNs: whether numpy keeps a signalling one depends on the machine."""
    codes = np.arange(2**16, dtype="<u2")
    got, expected = (on.from_wire(codes.view(np.uint8), values) for on in (compiled, definition))
    number = codes & 0x7FFF <= SHORT[values]
    assert_same(got[number], expected[number])
    assert np.isnan(got[~number]).all()
    assert np.isnan(expected[~number]).all()
    for dtype in FLOATS:
        for scale in (1.0, -0.1, 1e-310):
            outs = np.full((2, number.sum()), -0.0, dtype=dtype)
            for on, out in zip((compiled, definition), outs, strict=True):
                with np.errstate(all="ignore"):
                    on.wire_add(codes[number].view(np.uint8), out, values, scale)
            assert_same(*outs)


@fuzz
@given(vectors(), vectors(), st.sampled_from(["f8", "f4", "f2", "bf16"]), SCALES)
def test_values_are_added_alike(out, x, values, scale):
    d = min(out.size, x.size)
    wire, _ = definition.to_wire(x[:d], values)
    buf = np.frombuffer(b"." + wire.tobytes(), np.uint8)[1:]  # unaligned, and may not be written
    expected, got = out[:d].copy(), out[:d].copy()
    with np.errstate(all="ignore"):
        definition.wire_add(buf, expected, values, scale)
        compiled.wire_add(buf, got, values, scale)
    assert_same(got, expected)
    assert_same(compiled.from_wire(buf, values), definition.from_wire(buf, values))


@pytest.mark.parametrize("values", ["f8", "f4", "f2", "bf16"])
def test_as_many_values_are_added_as_there_are_coordinates(values):
    buf, _ = definition.to_wire(np.ones(3), values)
    with pytest.raises(ValueError, match="3"):
        compiled.wire_add(buf, np.ones(7), values, 1.0)


# --- selection ---


@fuzz
@given(vectors(finite=False), st.floats(0, 1))
def test_top_k(x, share):
    k = max(1, round(share * x.size))
    assert_same(compiled.top_k(x, k), definition.top_k(x, k))


@fuzz
@given(vectors(finite=False), st.one_of(st.floats(0, width=32), st.floats(0)))
def test_at_least_and_nonzero(x, lam):
    assert_same(compiled.at_least(x, lam), definition.at_least(x, lam))
    assert_same(compiled.nonzero(x), definition.nonzero(x))
    with np.errstate(all="ignore"):
        wide = np.abs(x.astype(np.float64))
        expected = np.flatnonzero(~(wide < lam) & (x != 0))
    assert_same(definition.at_least(x, lam), expected)


LONG = {
    "normal": lambda rng, d: rng.standard_normal(d),
    "sparse": lambda rng, d: np.where(rng.random(d) < 1e-3, rng.standard_normal(d), 0.0),
    "ties": lambda rng, d: rng.integers(-2, 3, d) * 1.0,
    "two values": lambda rng, d: np.where(rng.random(d) < 0.5, 1.0, 2.0),
    "sorted": lambda rng, d: np.arange(d) / 7,
    "at the end": lambda rng, d: np.where(np.arange(d) > 0.99 * d, 1.0, 1e-9) * rng.random(d),
    "where no sample is taken": lambda rng, d: np.where(np.arange(d) % 25, 3.0, 1e-3) + rng.random(d),
}


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("dtype", FLOATS)
def test_top_k_of_long_vectors(kind, dtype):
    x = LONG[kind](np.random.default_rng(1), 100_003).astype(dtype)
    for k in (1, 5, 1000, 30_000, 100_000):
        assert_same(compiled.top_k(x, k), definition.top_k(x, k))


# --- sets of positions ---


@st.composite
def subsets(draw):
    d = draw(st.integers(1, 3000))
    k = round(draw(st.floats(0, 1)) ** 2 * d)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return d, np.sort(rng.choice(d, k, replace=False))


LAYOUTS = ["raw", "bitmap", *range(13)]


def coders(on, layout, d, k):
    """Encoder of indices, and decoder of a buffer, of one layout; and the buffer's length."""
    if layout == "raw":
        width = (d - 1).bit_length()
        return (
            lambda s: on.encode_raw(s, width),
            lambda b: on.decode_raw(b, d, k, width),
            packed_nbytes(k, width),
        )
    if layout == "bitmap":
        return lambda s: on.encode_bitmap(s, d), lambda b: on.decode_bitmap(b, d, k), packed_nbytes(d, 1)
    size = packed_nbytes(k, layout) + packed_nbytes(k + ((d - 1) >> layout), 1)
    return (
        lambda s: on.encode_elias_fano(s, d, layout),
        lambda b: on.decode_elias_fano(b, d, k, layout),
        size,
    )


@fuzz
@given(subsets(), st.sampled_from(LAYOUTS))
def test_sets_of_positions(subset, layout):
    d, indices = subset
    encode, decode, size = coders(compiled, layout, d, indices.size)
    expected, _, _ = coders(definition, layout, d, indices.size)
    buf = encode(indices)
    assert len(buf) == size
    assert_same(buf, expected(indices))
    buf.setflags(write=False)
    assert_same(decode(buf), indices)
    assert_same(compiled.complement(indices, d), definition.complement(indices, d))


@fuzz
@given(subsets(), st.sampled_from(LAYOUTS), st.data())
def test_damaged_sets_of_positions(subset, layout, data):
    """A few bits flipped: both backends refuse, or both decode to the same set."""
    d, indices = subset
    encode, decode, _ = coders(compiled, layout, d, indices.size)
    _, expected, _ = coders(definition, layout, d, indices.size)
    buf = encode(indices)
    for _ in range(data.draw(st.integers(1, 3))):
        if buf.size:
            bit = data.draw(st.integers(0, 8 * buf.size - 1))
            buf[bit // 8] ^= 1 << (bit % 8)
    try:
        want = expected(buf)
    except MessageError as error:
        with pytest.raises(MessageError, match=str(error)):
            decode(buf)
    else:
        assert_same(decode(buf), want)


@fuzz
@given(st.integers(1, 200), st.integers(0, 100), st.sampled_from(LAYOUTS), st.data())
def test_any_bytes_as_sets_of_positions(d, k, layout, data):
    k = min(k, d)
    _, decode, size = coders(compiled, layout, d, k)
    _, expected, _ = coders(definition, layout, d, k)
    buf = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    try:
        want = expected(buf)
    except MessageError:
        with pytest.raises(MessageError):
            decode(buf)
    else:
        assert_same(decode(buf), want)


@pytest.mark.parametrize("index", [200, 2**62, -(2**40)])
@pytest.mark.parametrize("layout", ["bitmap", 0, 3])
def test_encoders_set_no_bit_outside(layout, index):
    encode, _, _ = coders(compiled, layout, 100, 3)
    with pytest.raises(IndexError):
        encode(np.array([1, 2, index]))


@pytest.mark.parametrize(
    "indices", [[1, 2, 3, 9], [0, 1, 2, 2**62], [-3, 0, 1, 2], [0, 2, 1, 3], [1, 1, 2, 3]]
)
def test_no_complement_is_written_outside(indices):
    with pytest.raises(IndexError):
        compiled.complement(np.array(indices), 6)


# --- coded bitmaps ---


@st.composite
def coded_bitmaps(draw):
    """A model of bitmaps and some bytes, few or many bits set, that need not look like it at all."""
    d = draw(st.integers(2, 3000))
    k = draw(st.integers(1, d // 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bits = rng.random(8 * -(-d // 8)) < draw(st.sampled_from([k / d, 0.0, 0.03, 0.5, 1.0]))
    return bitmaps.frequencies(d, k), np.packbits(bits)


@fuzz
@given(coded_bitmaps(), st.data())
def test_coded_bitmaps(drawn, data):
    frequencies, symbols = drawn
    size = 2 * symbols.size + 8
    buf = compiled.ans_encode(symbols, frequencies, size)
    assert_same(buf, definition.ans_encode(symbols, frequencies, size))
    used = int(np.flatnonzero(buf)[-1]) + 1
    for room in (used, used + 1, size):
        tight = compiled.ans_encode(symbols, frequencies, room)
        tight.setflags(write=False)
        for on in (compiled, definition):
            assert_same(on.ans_decode(tight, symbols.size, frequencies), symbols)
    for on in (compiled, definition):
        with pytest.raises(ValueError, match="not enough"):
            on.ans_encode(symbols, frequencies, used - 1)
    assert_decoded_alike(damaged(data, tight), symbols.size, frequencies)


@fuzz
@given(st.binary(max_size=60), st.integers(0, 60), st.integers(1, 50))
def test_any_bytes_as_coded_bitmaps(data, count, k):
    assert_decoded_alike(np.frombuffer(data, np.uint8), count, bitmaps.frequencies(100, k))


def assert_decoded_alike(buf, count, frequencies):
    try:
        want = definition.ans_decode(buf, count, frequencies)
    except MessageError as error:
        with pytest.raises(MessageError, match=str(error)):
            compiled.ans_decode(buf, count, frequencies)
    else:
        assert want.shape == (count,)
        assert_same(compiled.ans_decode(buf, count, frequencies), want)


# --- norms ---


def tree(x: list[float]) -> float:
    """The definition of the sum's order, one addition at a time."""
    while len(x) > 1:
        x = x + [0.0] * (-len(x) % 1024)
        sums = []
        for start in range(0, len(x), 1024):
            lanes, w = x[start : start + 1024], 1024
            while w > 1:
                w //= 2
                lanes = [lanes[j] + lanes[j + w] for j in range(w)]
            sums += lanes
        x = sums
    return x[0]


@pytest.mark.parametrize("d", [1, 2, 3, 5, 512, 513, 1023, 1024, 1025, 5000, 2**20 + 3])
def test_the_order_of_a_sum(d):
    x = np.abs(np.random.default_rng(d).standard_normal(d))
    assert reductions.tree_sum(x) == tree(x.tolist())
    assert reductions_compiled().tree_sum(x) == tree(x.tolist())


def reductions_compiled():
    from mpicomp.kernels.compiled import reductions

    return reductions


@fuzz
@given(vectors(finite=False, most=5000), st.sampled_from(["2", "inf"]))
def test_norms(x, p):
    with np.errstate(all="ignore"):
        got, expected = compiled.norm(x, p), definition.norm(x, p)
        mean, _ = compiled.sign_pack(x)
    assert got == expected or (np.isnan(got) and np.isnan(expected))
    assert np.isfinite(got) or not np.isfinite(x).all() or np.abs(x).max() > 1e307
    assert mean == definition.sign_pack(x)[0] or not np.isfinite(x).all()
    assert np.isfinite(mean) == np.isfinite(x).all()


@pytest.mark.parametrize("size", [1e-320, 1e-300, 1e-160, 1e-120, 1.0, 1e120, 1e160, 1e290, 1e307])
def test_norms_neither_overflow_nor_underflow(size):
    x = np.random.default_rng(0).uniform(-1, 1, 20_000) * size
    exact = sqrt(fsum((v / size) ** 2 for v in x))
    for on in (definition, compiled):
        assert on.norm(x, "2") == pytest.approx(exact * size, rel=1e-11, abs=1e-320)
        assert on.sign_pack(x)[0] == pytest.approx(
            fsum(np.abs(x) / size) / x.size * size, rel=1e-11, abs=1e-320
        )
    assert compiled.norm(x, "2") == definition.norm(x, "2")
    assert compiled.sign_pack(x)[0] == definition.sign_pack(x)[0]


# --- dense kinds: pack, and unpack and add ---


def assert_adds_alike(add, buf, out) -> None:
    """``add(on, buf, out)`` changes ``out`` alike on both backends; if it refuses, nothing."""
    expected, got = out.copy(), out.copy()
    with np.errstate(all="ignore"):
        try:
            add(definition, buf, expected)
        except MessageError as error:
            with pytest.raises(MessageError, match=str(error)):
                add(compiled, buf, got)
            expected = out
        else:
            add(compiled, buf, got)
    assert_same(got, expected)


def damaged(data, buf):
    """The buffer with up to three bits flipped."""
    buf = buf.copy()
    for _ in range(data.draw(st.integers(0, 3))):
        bit = data.draw(st.integers(0, 8 * buf.size - 1))
        buf[bit // 8] ^= 1 << (bit % 8)
    buf.setflags(write=False)
    return buf


@st.composite
def outs(draw, d):
    return np.random.default_rng(d).standard_normal(d).astype(draw(st.sampled_from(FLOATS)))


@fuzz
@given(vectors(most=3000), SCALES, st.data())
def test_sign(x, step, data):
    _, bits = compiled.sign_pack(x)
    assert_same(bits, definition.sign_pack(x)[1])
    add = lambda on, buf, out: on.sign_add(buf, out, step)  # noqa: E731
    assert_adds_alike(add, damaged(data, bits), data.draw(outs(x.size)))


@fuzz
@given(vectors(most=3000), st.sampled_from([(127, 8), (1023, 11)]), SCALES, st.data())
def test_natural(x, form, scale, data):
    buf = compiled.natural_pack(x, *form, STREAM)
    assert_same(buf, definition.natural_pack(x, *form, STREAM))
    add = lambda on, buf, out: on.natural_add(buf, out, *form, scale)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


def scale_of(data, x) -> float:
    """A norm of x as it may travel: its largest entry or more."""
    with np.errstate(all="ignore"):
        scale = definition.norm(x, data.draw(st.sampled_from(["2", "inf"])))
    return min(scale, float(np.finfo(np.float64).max))


@fuzz
@given(vectors(most=3000), st.sampled_from([1, 2, 3, 7, 8, 127, 128, 1000, 2**15 - 1]), SCALES, st.data())
def test_dithering(x, s, step, data):
    width, scale = (2 * s).bit_length(), scale_of(data, x)
    buf = compiled.dither_pack(x, scale, s, width, STREAM)
    assert_same(buf, definition.dither_pack(x, scale, s, width, STREAM))
    add = lambda on, buf, out: on.dither_add(buf, out, s, width, step)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


@fuzz
@given(vectors(most=3000), SCALES, st.data())
def test_ternary(x, step, data):
    scale = scale_of(data, x)
    buf = compiled.ternary_pack(x, scale, STREAM)
    assert_same(buf, definition.ternary_pack(x, scale, STREAM))
    add = lambda on, buf, out: on.ternary_add(buf, out, step)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


@fuzz
@given(vectors(most=3000), st.sampled_from([1, 2, 3, 7, 8, 64, 127]), SCALES, st.data())
def test_natural_dithering(x, s, step, data):
    width, scale = (2 * s).bit_length(), scale_of(data, x)
    buf = compiled.natural_dither_pack(x, scale, s, width, STREAM)
    assert_same(buf, definition.natural_dither_pack(x, scale, s, width, STREAM))
    add = lambda on, buf, out: on.natural_dither_add(buf, out, s, width, step)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


@pytest.mark.parametrize(("d", "s", "width"), [(9, 3, 3), (11, 7, 4), (1033, 7, 4), (1027, 300, 10)])
def test_the_bits_that_fill_up_the_last_byte_are_ignored(d, s, width):
    for on in (definition, compiled):
        buf = np.zeros(packed_nbytes(d, width), np.uint8)
        expected, got = np.zeros(d), np.zeros(d)
        on.dither_add(buf, expected, s, width, 1.0)
        buf[-1] |= 0xFF << (8 - (8 * buf.size - d * width)) & 0xFF
        on.dither_add(buf, got, s, width, 1.0)
        assert_same(got, expected)


DECODERS = {
    "signs": lambda on, buf, out: on.sign_add(buf, out, 1.0),
    "natural": lambda on, buf, out: on.natural_add(buf, out, 127, 8, 1.0),
    "natural, double": lambda on, buf, out: on.natural_add(buf, out, 1023, 11, 1.0),
    "dithering": lambda on, buf, out: on.dither_add(buf, out, 7, 4, 1.0),
    "wide dithering": lambda on, buf, out: on.dither_add(buf, out, 300, 10, 1.0),
    "ternary": lambda on, buf, out: on.ternary_add(buf, out, 1.0),
    "natural dithering": lambda on, buf, out: on.natural_dither_add(buf, out, 9, 5, 1.0),
    "raw": lambda on, buf, out: on.decode_raw(buf, out.size, 7, 12),
    "bitmap": lambda on, buf, out: on.decode_bitmap(buf, out.size, 7),
    "Elias-Fano": lambda on, buf, out: on.decode_elias_fano(buf, out.size, 100, 4),
    "Elias-Fano, nothing below": lambda on, buf, out: on.decode_elias_fano(buf, out.size, 100, 0),
}
LENGTHS = dict(
    zip(
        DECODERS,
        [282, 282 + 2250, 282 + 3094, 1125, 2813, 450, 1407, 11, 282, 50 + 30, 294],
        strict=True,
    )
)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("on", [definition, compiled], ids=["numpy", "compiled"])
def test_kernels_themselves_refuse_a_wrong_length(kind, on):
    out = np.zeros(2250)
    right = LENGTHS[kind]
    for length in (0, 1, right // 2, right - 1, right + 1, right + 8, 3 * right):
        for byte in (0, 85, 170):
            with pytest.raises(MessageError, match="truncated" if length < right else "too long"):
                DECODERS[kind](on, np.full(length, byte, np.uint8), out)
    assert not out.any()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", [(127, 8), (1023, 11)])
@pytest.mark.parametrize("at", [0, 1023, 1024, 2499])
def test_natural_refuses_what_is_not_finite(value, dtype, form, at):
    x = np.ones(2500, dtype=dtype)
    x[at] = value
    for on in (definition, compiled):
        with pytest.raises(DivergedError, match="not finite"):
            on.natural_pack(x, *form, STREAM)


# --- whole compressors ---


@pytest.fixture
def everything_compiled(monkeypatch):
    """Vectors of any length are long."""
    monkeypatch.setattr(kernels, "LONG", 0)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_compressors_send_and_add_the_same(case, dtype, monkeypatch):
    x, key = case.vectors()[0].astype(dtype), case.key(t=5)
    messages, added = [], []
    for long in (0, 2**62):
        monkeypatch.setattr(kernels, "LONG", long)
        messages.append(case.c.compress(x, key))
        for out in (np.ones(case.d), np.ones(case.d, np.float32)):
            case.c.decompress_add(messages[-1], out, key, 0.3)
            added.append(out)
    assert_same(messages[0], messages[1])
    assert_same(added[0], added[2])
    assert_same(added[1], added[3])


@pytest.mark.usefixtures("everything_compiled")
def test_golden_messages():
    """The bytes on the wire, as recorded from the definition."""
    recorded = json.loads((Path(__file__).parent / "golden" / "compressors.json").read_text())
    assert golden() == recorded


@fuzz
@given(st.sampled_from(CASES), st.integers(0, 20), st.data())
def test_damaged_messages(case, t, data):
    """Bits flipped, bytes cut off or added: refused, or some vector; never a crash."""
    x, key = case.vectors()[0], case.key(t)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(kernels, "LONG", 0)
        message = case.c.compress(x, key)
        wrong = message[: data.draw(st.integers(0, len(message)))]
        wrong = np.append(wrong, np.frombuffer(data.draw(st.binary(max_size=9)), np.uint8))
        for buf in (damaged(data, message) if len(message) else message, wrong):
            with suppress(MessageError):
                assert case.c.decompress(buf, case.d, key).shape == (case.d,)


# --- threads ---


@pytest.mark.parametrize("count", [1, 163_839, 163_840, 163_841, 10**6, 3 * 10**6 + 1])
@pytest.mark.parametrize("number", [1, 2, 3, 16])
def test_slices_are_everything_in_order_and_start_at_whole_chunks(number, count, monkeypatch):
    monkeypatch.setattr(threads, "threads", lambda: number)
    slices = threads.sliced(lambda a, b: (a, b), count)
    assert len(slices) <= number
    assert [a for a, _ in slices] == [0, *(b for _, b in slices[:-1])]
    assert slices[-1][1] == count
    assert all(a % 1024 == a % 1280 == 0 and a < b for a, b in slices)


THREADED = [
    *(
        Sign(),
        Natural(),
        Natural("f8"),
        Ternary(),
        NaturalDithering(7),
        NaturalDithering(60),
        HardThreshold(1.0),
    ),
    *(Identity("f2"), Identity("bf16")),
    *(Dithering(7, "inf"), Dithering(7), Dithering(300), TopK(0.01), TopK(0.4), TopK(25_000)),
]


@pytest.mark.parametrize("C", THREADED, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("d", [5120 * 5 + 77, 5120 * 6])
def test_any_number_of_threads_gives_the_same_bytes(C, dtype, d, monkeypatch):
    key = CASES[0].key()
    x = np.random.default_rng(7).standard_normal(d).astype(dtype)
    x[:: d // 50] = 3.0  # ties
    results = []
    for number in (1, 3):
        monkeypatch.setattr(threads, "threads", lambda number=number: number)
        monkeypatch.setattr(threads, "UNIT", 5120)
        out = x.copy()
        message = C.compress(x, key)
        C.decompress_add(message, out, key, 0.3)
        kernels.add_scaled(out, x, 0.1)
        results.append((message.tobytes(), out.tobytes()))
    assert results[0] == results[1]
    assert threads.sliced(lambda a, b: 1, d) == [1, 1, 1]


def test_a_number_of_threads_that_is_none_is_refused():
    code = """
from mpicomp.errors import ConfigError
from mpicomp.kernels.threads import threads
try:
    print(threads())
except ConfigError as error:
    print(error)
"""
    assert run_python(code, MPICOMP_NUM_THREADS="3") == "3"
    assert "MPICOMP_NUM_THREADS=-1; allowed: a positive" in run_python(code, MPICOMP_NUM_THREADS="-1")


# --- loading ---


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout.strip()


def test_nothing_is_compiled_a_second_time():
    """This process has loaded the kernels, so another one finds all of them on disk."""
    code = """
from mpicomp.kernels.loading import load
on = load()
from mpicomp.kernels import compiled
from numba.core.dispatcher import Dispatcher
import sys
kernels = {
    v for name, m in sys.modules.items() if name.startswith("mpicomp.kernels.compiled")
    for v in vars(m).values() if isinstance(v, Dispatcher)
}
print(len(kernels) > 20, sum(sum(k.stats.cache_misses.values()) for k in kernels))
"""
    assert run_python(code) == "True 0"


def test_where_no_folder_can_be_written_numpy_serves(tmp_path):
    """Neither beside the package nor in the user's cache: a file is where the folder would be."""
    (tmp_path / "package").write_text("")
    (tmp_path / "cache").write_text("")
    code = f"""
from pathlib import Path
from mpicomp.kernels import definition, loading
loading._BESIDE = Path({str(tmp_path / "package")!r})
print(loading.load() is definition)
"""
    assert run_python(code, MPICOMP_CACHE=str(tmp_path / "cache")) == "True"


def test_the_users_cache_serves_a_package_that_cannot_be_written(tmp_path):
    (tmp_path / "package").write_text("")
    code = f"""
from pathlib import Path
from mpicomp.kernels import loading
loading._BESIDE = Path({str(tmp_path / "package")!r})
print(loading._folder())
"""
    folder = Path(run_python(code, MPICOMP_CACHE=str(tmp_path / "cache")))
    assert folder.parent == tmp_path / "cache"
    assert folder.is_dir()


def test_what_an_earlier_source_made_is_removed_and_nothing_else(tmp_path):
    from mpicomp.kernels import loading

    machine = loading._machine()
    new, old, others, unfinished = (
        tmp_path / f"kernels-{name}" for name in (f"b-{machine}", f"a-{machine}", "a-0", f"c-{machine}")
    )
    for folder in (new, old, others, unfinished):
        folder.mkdir()
        if folder != unfinished:  # somebody is compiling it
            (folder / "complete").touch()
    with pytest.MonkeyPatch.context() as patch:
        loading._remove_superseded(new)  # in the user's cache
        assert old.exists()
        patch.setattr(loading, "_BESIDE", tmp_path)
        loading._remove_superseded(new)
    assert set(tmp_path.iterdir()) == {new, others, unfinished}
