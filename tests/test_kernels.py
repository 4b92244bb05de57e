"""Kernels: every backend gives the numpy definition's bytes, and no bytes make one read out of bounds.

The compiled kernels are called directly, on vectors of any length, whatever length the package takes
them from.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.coding.bits import packed_nbytes
from mpicomp.errors import MessageError
from mpicomp.kernels import definition
from mpicomp.kernels.loading import load
from mpicomp.kernels.permutation import SMALL
from tests.conformance import fuzz

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


LAYOUTS = ["raw", "bitmap", "threes", *range(13)]


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
    if layout == "threes":
        size = -(-k // 5) + packed_nbytes(k + (d - 1) // 3, 1)
        return lambda s: on.encode_threes(s, d), lambda b: on.decode_threes(b, d, k), size
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
@pytest.mark.parametrize("layout", ["bitmap", "threes", 0, 3])
def test_encoders_set_no_bit_outside(layout, index):
    encode, _, _ = coders(compiled, layout, 100, 3)
    with pytest.raises(IndexError):
        encode(np.array([1, 2, index]))
