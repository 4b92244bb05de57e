"""Kernels of sets of positions: their layouts and coded bitmaps, and any bytes in place of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.base.bits import packed_nbytes
from mpicomp.base.errors import MessageError
from mpicomp.kernels import coded_bitmaps as bitmaps
from mpicomp.kernels import definition
from mpicomp.kernels.definition.ans import RUN, table_nbytes
from tests.support.backends import assert_same, compiled, damaged
from tests.support.conformance import fuzz

# --- sets of positions ---


@st.composite
def subsets(draw):
    d = draw(st.integers(1, 3000))
    k = round(draw(st.floats(0, 1)) ** 2 * d)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return d, np.sort(rng.choice(d, k, replace=False))


LOW = range(13)
FLOATS = st.sampled_from(["<f4", "<f8"])
LAYOUTS = ["raw", "bitmap", *LOW]


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


@fuzz
@given(subsets(), st.sampled_from(LOW), FLOATS, FLOATS, st.data())
def test_entries_are_added_alike_or_not_at_all(subset, low, of_out, of_values, data):
    """At the indices of a code, of which a few bits may be flipped, at any address."""
    d, indices = subset
    buf = definition.encode_elias_fano(indices, d, low)
    for _ in range(data.draw(st.integers(0, 2))):
        if buf.size:
            bit = data.draw(st.integers(0, 8 * buf.size - 1))
            buf[bit // 8] ^= 1 << (bit % 8)
    draw = np.random.default_rng(indices.size)
    values = draw.standard_normal(indices.size).astype(of_values)
    odd = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(of_values)
    start = draw.standard_normal(d).astype(of_out)
    want, got = start.copy(), start.copy()
    try:
        definition.add_elias_fano(buf, want, values, low, 0.3)
    except MessageError as error:
        with pytest.raises(MessageError, match=str(error)):
            compiled.add_elias_fano(buf, got, odd, low, 0.3)
        assert_same(got, start)
    else:
        compiled.add_elias_fano(buf, got, odd, low, 0.3)
    assert_same(got, want)


@fuzz
@given(subsets(), st.integers(0, 4), st.sampled_from(LOW), FLOATS, FLOATS, st.data())
def test_a_stack_is_added_as_its_codes_one_by_one(subset, count, low, of_out, of_values, data):
    """Up to the first that is no set, if bits in some are flipped."""
    d, indices = subset
    k = indices.size
    if k == 0:
        return
    draw = np.random.default_rng(k)
    sets = [np.sort(draw.choice(d, k, replace=False)) for _ in range(count)]
    codes = [damaged(data, definition.encode_elias_fano(s, d, low)) for s in sets]
    values = draw.standard_normal(k * count).astype(of_values)
    start = draw.standard_normal(d).astype(of_out)
    want, added = start.copy(), 0
    for code, row in zip(codes, values.reshape(count, k), strict=True):
        try:
            compiled.add_elias_fano(code, want, row, low, 0.3)
        except MessageError:
            break
        added += 1
    stack = np.concatenate([np.empty(0, np.uint8), *codes])
    stack.setflags(write=False)
    for on in (definition, compiled):
        out = start.copy()
        assert on.add_elias_fano_stack(stack, out, values, k, low, 0.3) == added
        assert_same(out, want)


@pytest.mark.parametrize("count", [0, 3])
def test_a_stack_of_another_length_is_refused(count):
    stack = np.zeros(count * 7 + 1, np.uint8)
    for on in (definition, compiled):
        with pytest.raises(MessageError, match="bytes where"):
            on.add_elias_fano_stack(stack, np.zeros(100), np.ones(10 * count), 10, 3, 1.0)


@pytest.mark.parametrize("cut", [-1, 1])
def test_entries_of_a_code_of_another_length_are_refused(cut):
    code = definition.encode_elias_fano(np.arange(0, 90, 9), 100, 3)
    code = code[:-1] if cut < 0 else np.append(code, np.uint8(0))
    for on in (definition, compiled):
        with pytest.raises(MessageError, match="bytes where"):
            on.add_elias_fano(code, np.zeros(100), np.ones(10), 3, 1.0)


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
@given(st.binary(max_size=60), st.sampled_from([0, 7, 60, RUN, RUN + 1, 5 * RUN]), st.integers(1, 50))
def test_any_bytes_as_coded_bitmaps(data, count, k):
    assert_decoded_alike(np.frombuffer(data, np.uint8), count, bitmaps.frequencies(100, k))


@pytest.mark.parametrize("count", [RUN, RUN + 1, 2 * RUN, 3 * RUN + 7, 4 * RUN, 5 * RUN - 1, 9 * RUN + 1])
def test_bitmaps_of_many_runs(count):
    """Of as many as are coded at once, and of fewer and more; damaged in the table, in a run, at the end."""
    frequencies, rng = bitmaps.frequencies(8 * count, count), np.random.default_rng(count)
    symbols = np.packbits(rng.random(8 * count) < 1 / 8)
    head, size = table_nbytes(count), 2 * count + 1000
    buf = compiled.ans_encode(symbols, frequencies, size)
    assert_same(buf, definition.ans_encode(symbols, frequencies, size))
    counts = buf[:head].view("<u2")
    used = head + 4 * int(counts.sum()) if head else int(np.flatnonzero(buf)[-1]) + 1
    for on in (compiled, definition):
        assert_same(on.ans_decode(buf[:used], count, frequencies), symbols)
        assert_same(on.ans_decode(np.append(buf[:used], np.zeros(5, np.uint8)), count, frequencies), symbols)
    for at in {0, head // 2, head - 1, head, head + 1000, used - 1} - {-1}:
        wrong = buf[:used].copy()
        wrong[at] ^= 16
        assert_decoded_alike(wrong, count, frequencies)
    for cut in (0, 1, head // 2, head, used // 2):
        with pytest.raises(MessageError):
            compiled.ans_decode(buf[:cut], count, frequencies)
        assert_decoded_alike(buf[:cut], count, frequencies)


def assert_decoded_alike(buf, count, frequencies):
    try:
        want = definition.ans_decode(buf, count, frequencies)
    except MessageError as error:
        with pytest.raises(MessageError, match=str(error)):
            compiled.ans_decode(buf, count, frequencies)
    else:
        assert want.shape == (count,)
        assert_same(compiled.ans_decode(buf, count, frequencies), want)
