"""Kernels on vectors: every backend gives the numpy definition's bytes, at any length."""

from __future__ import annotations

from math import fsum, gcd, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.kernels import definition
from mpicomp.kernels.definition import reductions
from mpicomp.kernels.definition.permutation import SMALL
from mpicomp.kernels.tiles import tiles_of
from tests.support.backends import FLOATS, SCALES, STREAM, assert_same, compiled, vectors
from tests.support.conformance import fuzz


def test_there_are_compiled_kernels_under_the_same_names():
    assert compiled is not definition
    names = [{name for name, value in vars(m).items() if callable(value)} for m in (compiled, definition)]
    assert names[0] == names[1] and len(names[0]) > 40


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


# --- products with thin matrices ---


def with_zeros(rng, *shape):
    """A matrix whose entries have many magnitudes; a fifth of them are zeros of both signs."""
    A = np.ldexp(rng.standard_normal(shape), rng.integers(-60, 60, shape))
    return np.where(rng.random(shape) < 0.2, np.copysign(0.0, A), A)


@fuzz
@given(
    st.integers(1, 6), st.integers(1, 700), st.integers(1, 3), st.sampled_from(FLOATS), st.integers(0, 2**32)
)
def test_products_with_thin_matrices(m, k, r, dtype, seed):
    """The order of numpy's sums, along the rows and across them."""
    rng = np.random.default_rng(seed)
    A, B, P = with_zeros(rng, m, k).astype(dtype), with_zeros(rng, k, r), with_zeros(rng, m, r)
    A.setflags(write=False)
    assert_same(compiled.times(A, B), definition.times(A, B))
    assert_same(compiled.times(A.T, P), definition.times(A.T, P))
    for order in "CF":
        expected, got = A.copy(order), A.copy(order)
        definition.add_outer(expected, P, B, -0.7)
        compiled.add_outer(got, P, B, -0.7)
        assert_same(got, expected)


@fuzz
@given(st.integers(1, 700), st.integers(0, 4), st.integers(0, 2**32))
def test_projecting_out(m, j, seed):
    """Each projection is that of what the ones before have left."""
    rng = np.random.default_rng(seed)
    v, basis = with_zeros(rng, m), with_zeros(rng, j, m)
    expected, got = v.copy(), v.copy()
    definition.project_out(expected, basis)
    compiled.project_out(got, basis)
    assert_same(got, expected)


# --- vectors ---


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


# --- values on the wire ---


@fuzz
@given(vectors(finite=False), st.sampled_from(["f8", "f4", "f2", "bf16"]))
def test_values(x, values):
    """What is refused is not sent, so its bytes are nobody's concern."""
    assert_rounds_alike(x, values)
    assert compiled.to_wire(x, values)[1] <= np.isfinite(x).all()


@fuzz
@given(vectors(finite=False))
def test_are_singles(x):
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float32).astype(x.dtype)
    for y in (x, rounded):
        expected = x.dtype == np.float32 or np.array_equal(y.astype(np.float64), rounded)
        assert compiled.are_singles(y) == definition.are_singles(y) == expected


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
    assert compiled.count_nonzero(x) == definition.count_nonzero(x) == np.count_nonzero(x)
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


@fuzz
@given(vectors(finite=False), st.integers(1, 9), st.integers(1, 80), st.floats(0, 1))
def test_top_k_of_tiles(x, rows, t, share):
    """Of a matrix of ``rows`` rows, or as many as divide the length."""
    rows = gcd(rows, x.size)
    for tiles in tiles_of(rows, x.size // rows, t):
        k = max(1, round(share * tiles.size))
        assert_same(compiled.top_k_of_tiles(x, tiles, k), definition.top_k_of_tiles(x, tiles, k))


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("dtype", FLOATS)
def test_top_k_of_tiles_is_top_k_of_each(kind, dtype):
    """Of a matrix with tiles of four shapes, whose sides are no multiples of 64."""
    matrix = LONG[kind](np.random.default_rng(1), 71 * 333).astype(dtype).reshape(71, 333)
    for tiles in tiles_of(71, 333, 64):
        assert tiles.down == 1
        down = slice(tiles.top, tiles.top + tiles.rows)
        across = range(tiles.left, tiles.left + tiles.across * tiles.columns, tiles.columns)
        for k in (1, 50, 1000):
            each = [matrix[down, left : left + tiles.columns].ravel() for left in across]
            found = [i * tiles.size + definition.top_k(tile, k) for i, tile in enumerate(each)]
            ours = compiled.top_k_of_tiles(matrix.ravel(), tiles, k)
            assert_same(ours, np.concatenate(found))
            assert_same(ours, definition.top_k_of_tiles(matrix.ravel(), tiles, k))


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
