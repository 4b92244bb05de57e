"""Codes: every symbol comes back, sizes are exact, and no bytes whatever do harm."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import ceil, lgamma, log, log2
from struct import pack as struct_pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.base.bits import pack, pack_trits, packed_nbytes, unpack, unpack_trits
from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.count import count_nbytes, decode_count
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.sparse import add_sparse, encode_sparse, sparse_nbytes
from mpicomp.codecs.values import add_values, decode_values, encode_values
from mpicomp.kernels import coded_bitmaps as bitmaps
from mpicomp.kernels.index_layouts import index_nbytes
from tests.support.backends import compiled
from tests.support.conformance import fuzz

# --- bits and trits ---


@st.composite
def symbols(draw):
    width = draw(st.integers(0, 64))
    return width, draw(st.lists(st.integers(0, 2**width - 1), max_size=40))


@fuzz
@given(symbols())
def test_symbols_are_the_digits_of_one_little_endian_number(drawn):
    width, values = drawn
    buf = pack(np.array(values, dtype=np.uint64), width)
    assert buf.dtype == np.uint8
    assert len(buf) == packed_nbytes(len(values), width) == ceil(len(values) * width / 8)
    number = sum(v << (i * width) for i, v in enumerate(values))
    assert int.from_bytes(buf.tobytes(), "little") == number
    assert unpack(buf, len(values), width).tolist() == values


@fuzz
@given(st.lists(st.integers(0, 2), max_size=40))
def test_trits_are_five_digits_a_byte(trits):
    buf = pack_trits(np.array(trits, dtype=np.uint8))
    padded = trits + [0] * (-len(trits) % 5)
    assert buf.tolist() == [
        sum(t * 3**j for j, t in enumerate(padded[i : i + 5])) for i in range(0, len(padded), 5)
    ]
    assert len(buf) == ceil(len(trits) / 5)
    assert unpack_trits(buf, len(trits)).tolist() == trits


@fuzz
@given(st.binary(max_size=12), st.integers(0, 40), st.integers(0, 64))
def test_any_bytes_are_refused_or_unpacked(data, count, width):
    buf = np.frombuffer(data, dtype=np.uint8)
    if len(data) == packed_nbytes(count, width):
        out = unpack(buf, count, width)
        assert out.shape == (count,)
        assert all(int(v) < 2**width for v in out)
    else:
        with pytest.raises(MessageError, match="truncated" if len(data) < count * width / 8 else "too long"):
            unpack(buf, count, width)


@fuzz
@given(st.binary(max_size=12), st.integers(0, 60))
def test_any_bytes_are_refused_or_trits(data, count):
    buf = np.frombuffer(data, dtype=np.uint8)
    if len(data) == ceil(count / 5) and max(data, default=0) < 243:
        out = unpack_trits(buf, count)
        assert out.shape == (count,)
        assert out.max(initial=0) <= 2
    else:
        with pytest.raises(MessageError):
            unpack_trits(buf, count)


# --- indices ---


def log2_binomial(d: int, k: int) -> float:
    return (lgamma(d + 1) - lgamma(k + 1) - lgamma(d - k + 1)) / log(2)


def some_subset(d: int, k: int) -> np.ndarray:
    return np.sort(np.random.default_rng([d, k]).choice(d, k, replace=False))


@pytest.mark.parametrize("d", range(1, 10))
def test_every_subset_comes_back(d):
    for k in range(d + 1):
        for subset in combinations(range(d), k):
            buf = encode_indices(np.array(subset, dtype=np.int64), d)
            assert len(buf) == index_nbytes(d, k)
            assert decode_indices(buf, d, k).tolist() == list(subset)


@fuzz
@given(st.integers(1, 3000), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_subsets_come_back(d, share, seed):
    k = round(share * d)
    subset = np.sort(np.random.default_rng(seed).choice(d, k, replace=False))
    buf = encode_indices(subset, d)
    assert len(buf) == index_nbytes(d, k)
    assert np.array_equal(decode_indices(buf, d, k), subset)


@pytest.mark.parametrize("d", [2**24 + 1, 2**25 + 7, 2**32 + 5, 2**40])
def test_indices_are_exact_beyond_float32_and_int32(d):
    subset = np.array([0, 1, d // 2, 2**24, d - 2, d - 1], dtype=np.int64)
    subset = np.unique(subset)
    buf = encode_indices(subset, d)
    assert decode_indices(buf, d, subset.size).tolist() == subset.tolist()


@pytest.mark.parametrize("extreme", ["first", "last", "ends"])
@pytest.mark.parametrize(("d", "k"), [(1000, 1), (1000, 10), (1000, 300), (1000, 700), (10**5, 50)])
def test_extreme_subsets_come_back(d, k, extreme):
    chosen = {"first": range(k), "last": range(d - k, d), "ends": [*range(k // 2), *range(d - k + k // 2, d)]}
    subset = np.array(chosen[extreme], dtype=np.int64)
    assert np.array_equal(decode_indices(encode_indices(subset, d), d, k), subset)


@fuzz
@given(st.integers(1, 10**7), st.floats(0, 1))
def test_index_codes_keep_to_the_elias_fano_bound(d, share):
    """j ceil(log2(d/j)) + 2 j bits, j = min(k, d - k), in two runs of whole bytes; never above a bitmap."""
    k = round(share**3 * d)
    j = min(k, d - k)
    assert index_nbytes(d, k) <= ceil(d / 8)
    if j:
        assert index_nbytes(d, k) <= ceil(j * ceil(log2(d / j)) / 8) + ceil(2 * j / 8)
        assert index_nbytes(d, k) <= ceil(j * (d - 1).bit_length() / 8)
    else:
        assert index_nbytes(d, k) == 0
    assert index_nbytes(d, k) == index_nbytes(d, d - k)


@pytest.mark.parametrize("d", [112, 1000, 10**4, 10**6])
def test_topk_messages_come_within_2_percent_of_the_optimum(d):
    """k 32-bit values and the index code, against 32 k + log2 C(d, k) bits.

    The index code is two runs of bits, each filled up to whole bytes: at most 16 bits on top.
    """
    shares = np.concatenate([np.geomspace(1e-4, 0.9, 400), np.linspace(0.01, 0.9, 400)])
    too_long = []
    for k in sorted({max(1, round(d * share)) for share in shares}):
        optimum = 32 * k + log2_binomial(d, k)
        bits = 8 * (index_nbytes(d, k) + k * WIDTH["f4"])
        if bits > 1.02 * optimum + 16:
            too_long.append(f"k/d={k / d:.4f}: {100 * (bits / optimum - 1):.2f}%")
    assert not too_long


@pytest.mark.parametrize("d", [100, 1000, 10**4, 10**6, 25 * 10**6])
def test_index_codes_come_within_10_percent_of_the_optimum(d):
    """At most 24 bits on top: two runs of bits in whole bytes, or what the entropy coder starts from."""
    shares = np.concatenate([np.geomspace(1e-5, 0.9, 400), np.linspace(0.01, 0.99, 300)])
    for k in sorted({max(1, round(d * share)) for share in shares}):
        assert 8 * index_nbytes(d, k) <= 1.10 * log2_binomial(d, k) + 24, k / d


# --- coded bitmaps ---


@fuzz
@given(st.integers(2, 10**7), st.floats(0, 1))
def test_the_model_of_a_bitmaps_bytes_is_the_binomial_one(d, share):
    """Rounded up to units of 2^-16, but for the byte that is seldom at its own probability: 0."""
    k = max(1, round(share * (d // 2)))
    model = bitmaps.frequencies(d, k).tolist()
    p = Fraction(k, d)
    for byte in range(1, 256):
        ones = byte.bit_count()
        assert model[byte] == ceil(2**16 * p**ones * (1 - p) ** (8 - ones))
    assert sum(model) == 2**16
    assert model[0] >= 1


@fuzz
@given(st.integers(1, 2**40), st.floats(0, 1))
def test_sizes_are_computed_from_logarithms_that_are_hardly_too_large(a, share):
    b = max(1, round(share * a))
    error = bitmaps._log2(a, b) / 2**32 - log2(a / b)
    assert -1e-12 <= error <= 2.0**-30


def packed_together(d: int, k: int, a_byte: int) -> np.ndarray:
    """The first k positions of which no more than ``a_byte`` lie in one byte, first filling gaps later."""
    ones = [8 * byte + bit for byte in range(-(-d // 8)) for bit in range(a_byte) if 8 * byte + bit < d]
    rest = sorted(set(range(d)) - set(ones))
    return np.sort(np.array((ones + rest)[:k], dtype=np.int64))


@pytest.mark.parametrize("a_byte", range(1, 9))
@pytest.mark.parametrize(("d", "step"), [(300, 7), (1000, 25), (9999, 249), (70_000, 10_500)])
def test_a_coded_bitmap_has_room_for_every_set(d, step, a_byte):
    """Sets of every kind of byte: of one element, of two together, .., of eight; at either end."""
    for k in range(max(1, d // 20), d // 2 + 1, step):
        together = packed_together(d, k, a_byte)
        for subset in (together, d - 1 - together[::-1]):
            bitmap = np.packbits(np.isin(np.arange(d), subset), bitorder="little")
            frequencies = bitmaps.frequencies(d, k)
            coded = compiled.ans_encode(bitmap, frequencies, bitmaps.nbytes(d, k))
            assert np.array_equal(compiled.ans_decode(coded, bitmap.size, frequencies), bitmap)


@pytest.mark.parametrize("d", [32769, 32770, 32775, 32777, 65537, 65545, 131_073])
def test_a_last_run_of_a_byte_or_two_has_room(d):
    """Its words are whole ones, and little is in them."""
    for k in range(d // 20 + 1, d // 2, d // 150):
        for subset in (np.arange(k), np.arange(k) * (d // k), d - 1 - np.arange(k)[::-1], some_subset(d, k)):
            assert np.array_equal(decode_indices(encode_indices(subset, d), d, k), subset)
    subset = 16 * np.arange(1683)
    assert np.array_equal(decode_indices(encode_indices(subset, 32769), 32769, 1683), subset)


@pytest.mark.parametrize(("d", "k", "nbytes"), [(300, 40, 24), (70_000, 9000, 4876)])
def test_the_bytes_of_a_coded_bitmap(d, k, nbytes):
    """By the description in docs/wire.md, with exact integers; of one run, and of three."""
    subset = some_subset(d, k)
    buf = encode_indices(subset, d)
    assert len(buf) == bitmaps.nbytes(d, k) == nbytes < index_nbytes(d, d // 4)
    f = [ceil(2**16 * Fraction(k, d) ** c * Fraction(d - k, d) ** (8 - c)) for c in range(9)]
    of = [f[byte.bit_count()] for byte in range(256)]
    of[0] = 2**16 - sum(of[1:])
    count = -(-d // 8)
    runs = -(-count // 4096)
    head = 4 * -(-runs // 2) if runs > 1 else 0
    words = [int.from_bytes(buf[i : i + 4].tobytes(), "little") for i in range(head, len(buf), 4)]
    counts = buf[:head].view("<u2").tolist()[:runs] if runs > 1 else [len(words)]
    bits = []
    for run in range(runs):
        stack, words = words[: counts[run]], words[counts[run] :]
        state = 0
        for _ in range(min(4096, count - 4096 * run)):
            while state < 2**32 and stack:
                state = 2**32 * state + stack.pop()
            slot, byte = state % 2**16, 0
            while slot >= of[byte]:
                slot -= of[byte]
                byte += 1
            bits += [byte >> bit & 1 for bit in range(8)]
            state = of[byte] * (state // 2**16) + slot
        assert state == 2**16 and not stack
    assert not any(words)
    assert np.flatnonzero(bits).tolist() == subset.tolist()


def assert_indices(decode, d: int, k: int) -> None:
    """Either ``MessageError``, or k strictly increasing numbers from 0 to d - 1."""
    try:
        out = decode()
    except MessageError:
        return
    assert out.shape == (k,)
    assert np.issubdtype(out.dtype, np.integer)
    assert (np.diff(out) > 0).all()
    assert k == 0 or (out[0] >= 0 and out[-1] < d)


@pytest.mark.parametrize("d", range(1, 8))
def test_every_byte_is_refused_or_a_subset(d):
    for k in range(d + 1):
        for byte in range(256):
            for data in ([], [byte], [byte, 0], [byte, byte]):
                assert_indices(lambda data=data, k=k: decode_indices(np.array(data, np.uint8), d, k), d, k)


@fuzz
@given(st.integers(1, 400), st.floats(0, 1), st.data())
def test_any_bytes_are_refused_or_a_subset(d, share, data):
    k = round(share * d)
    size = index_nbytes(d, k)
    buf = np.frombuffer(data.draw(st.binary(min_size=max(0, size - 1), max_size=size + 1)), dtype=np.uint8)
    assert_indices(lambda: decode_indices(buf, d, k), d, k)
    if len(buf) != size:
        with pytest.raises(MessageError, match="truncated" if len(buf) < size else "too long"):
            decode_indices(buf, d, k)


@fuzz
@given(
    st.sampled_from([(5, 2), (1000, 3), (1000, 40), (1000, 200), (1000, 400), (1000, 900), (1029, 5)]),
    st.data(),
)
def test_a_flipped_bit_is_refused_or_a_subset(shape, data):
    d, k = shape
    buf = encode_indices(some_subset(d, k), d)
    bit = data.draw(st.integers(0, 8 * len(buf) - 1))
    flipped = buf.copy()
    flipped[bit // 8] ^= 1 << (bit % 8)
    assert_indices(lambda: decode_indices(flipped, d, k), d, k)


# --- values ---


def to_bf16(x: float) -> float:
    """The nearest bfloat16 in exact rational arithmetic: ties to the even significand."""
    exact = abs(Fraction(x))
    exponent = -126  # of the leading bit; subnormals share the lowest
    while exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    quantum = Fraction(2) ** (exponent - 7)  # eight significant bits
    value = float(round(exact / quantum) * quantum)  # Fraction rounds half to even
    return -value if np.signbit(x) else value


BF16_EDGES = [
    *(
        s * v
        for s in (1.0, -1.0)
        for v in (0.0, 1.0, 1 + 2**-7, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20)
    ),
    *(255.5, 255.25, 257.0, 2.0**-126, 2.0**-133, 2.0**-134, 3 * 2.0**-134, 2.0**-149, 3.3895314e38, 1 / 3),
]


@pytest.mark.parametrize("x", BF16_EDGES)
def test_bf16_rounds_to_nearest_even(x):
    (got,) = decode_values(encode_values(np.array([x]), "bf16"), 1, "bf16")
    assert got == to_bf16(x)
    assert np.signbit(got) == np.signbit(x)


@fuzz
@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_bf16_of_single_precision_rounds_to_nearest_even(x):
    (got,) = decode_values(encode_values(np.array([x], dtype=np.float32), "bf16"), 1, "bf16")
    assert got == to_bf16(x)


@pytest.mark.parametrize("x", [1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40, -(1 + 2**-8 + 2**-52)])
def test_bf16_of_double_precision_is_rounded_once(x):
    """Just off a tie: by way of float32 it becomes one, and goes the wrong way."""
    (got,) = decode_values(encode_values(np.array([x]), "bf16"), 1, "bf16")
    assert got == to_bf16(x)


@fuzz
@given(st.lists(st.floats(-6e4, 6e4), max_size=8))
def test_values_are_little_endian_ieee(x):
    for values, letter in (("f8", "d"), ("f4", "f"), ("f2", "e")):
        buf = encode_values(np.array(x, dtype=np.float64), values)
        assert buf.dtype == np.uint8
        assert buf.tobytes() == b"".join(struct_pack(f"<{letter}", v) for v in x)


@fuzz
@given(st.sampled_from(list(WIDTH)), st.data())
def test_numbers_of_the_format_come_back_bit_for_bit(values, data):
    width = WIDTH[values]
    raw = data.draw(st.lists(st.integers(0, 2 ** (8 * width) - 1), max_size=8))
    buf = np.array(raw, dtype=f"<u{width}").view(np.uint8)
    x = decode_values(buf, len(raw), values)
    if np.isfinite(x).all():
        again = encode_values(x, values)
        assert len(again) == width * len(raw)
        assert again.tobytes() == buf.tobytes()


@pytest.mark.parametrize("values", WIDTH)
def test_the_sign_of_zero_comes_back(values):
    x = decode_values(encode_values(np.array([0.0, -0.0]), values), 2, values)
    assert np.signbit(x).tolist() == [False, True]


@pytest.mark.parametrize("values", WIDTH)
def test_encoded_values_are_no_view_of_the_vector(values):
    x = np.ones(3, dtype="f4" if values == "bf16" else values)
    encode_values(x, values)[:] = 0xAB
    assert (x == 1).all()


LARGEST = {"f4": 3.4028234663852886e38, "f2": 65504.0, "bf16": 3.3895313892515355e38}


@pytest.mark.parametrize(("values", "largest"), LARGEST.items())
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_refused_and_the_format_named(values, largest, sign):
    (back,) = decode_values(encode_values(np.array([sign * largest]), values), 1, values)
    assert back == sign * largest
    for beyond in (largest * 1.01, 1e300):
        with pytest.raises(DivergedError, match=rf"'{values}'.*allowed: f8, f4, f2, bf16"):
            encode_values(np.array([0.0, sign * beyond]), values)


@pytest.mark.parametrize("values", WIDTH)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_that_are_not_finite_are_refused(values, value, dtype):
    with pytest.raises(DivergedError, match="not finite"):
        encode_values(np.array([1.0, value, 2.0], dtype=dtype), values)


@fuzz
@given(st.sampled_from(list(WIDTH)), st.integers(0, 6), st.binary(max_size=50))
def test_values_of_a_wrong_length_are_refused(values, count, data):
    buf = np.frombuffer(data, dtype=np.uint8)
    if len(buf) == count * WIDTH[values]:
        assert decode_values(buf, count, values).shape == (count,)
    else:
        with pytest.raises(MessageError, match=values):
            decode_values(buf, count, values)
        out = np.ones(count)
        with pytest.raises(MessageError, match=values):
            add_values(buf, out, values, 1.0)
        assert (out == 1).all()


# --- sparse vectors ---


@fuzz
@given(st.integers(1, 700), st.floats(0, 1), st.sampled_from(list(WIDTH)))
def test_sparse_vectors_come_back(d, share, values):
    k = round(share * d)
    kept = some_subset(d, k)
    x = np.random.default_rng(k).integers(-128, 129, k) / 4  # exact in every format
    buf = encode_sparse(kept, x, d, values)
    assert len(buf) == sparse_nbytes(d, k, values)
    out = np.ones(d)
    add_sparse(buf, out, values, 2.0)
    expected = np.ones(d)
    expected[kept] += 2 * x
    assert np.array_equal(out, expected)


@pytest.mark.parametrize(("d", "width"), [(1, 1), (255, 1), (256, 2), (65535, 2), (65536, 3), (2**24, 4)])
def test_the_count_takes_as_many_bytes_as_d(d, width):
    assert sparse_nbytes(d, 0, "f4") == width
    out = np.zeros(d)
    add_sparse(encode_sparse(np.array([], np.int64), np.array([]), d, "f4"), out, "f4", 1.0)
    assert not out.any()


def assert_refused_or_added(buf, d, values):
    """Nothing is added, or the values behind the positions at these positions."""
    out = np.zeros(d)
    try:
        add_sparse(buf, out, values, 1.0)
    except MessageError:
        assert not out.any()
        return
    head, k = count_nbytes(d), decode_count(buf, d)
    split = head + index_nbytes(d, k)
    kept = decode_indices(buf[head:split], d, k)
    assert_indices(lambda: kept, d, k)
    expected = np.zeros(d)
    expected[kept] = decode_values(buf[split:], k, values)
    assert np.array_equal(out, expected, equal_nan=True)


@fuzz
@given(st.integers(1, 300), st.binary(max_size=60), st.sampled_from(list(WIDTH)))
def test_any_bytes_are_refused_or_a_sparse_vector(d, data, values):
    assert_refused_or_added(np.frombuffer(data, dtype=np.uint8), d, values)


@fuzz
@given(st.integers(1, 300), st.floats(0, 1), st.data())
def test_a_damaged_sparse_vector_is_refused_or_one(d, share, data):
    k = round(share * d)
    buf = encode_sparse(some_subset(d, k), np.ones(k), d, "f2").copy()
    for wrong in (buf[:-1], np.append(buf, np.uint8(0))):
        with pytest.raises(MessageError):
            add_sparse(wrong, np.zeros(d), "f2", 1.0)
    bit = data.draw(st.integers(0, 8 * len(buf) - 1))
    buf[bit // 8] ^= 1 << (bit % 8)
    assert_refused_or_added(buf, d, "f2")
