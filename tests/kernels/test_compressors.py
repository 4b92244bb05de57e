"""Kernels of compressors that send every coordinate, and whole compressors with either backend."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.base.bits import pack, packed_nbytes
from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.kernels import definition
from mpicomp.kernels.definition.steps import block_ends
from tests.support.backends import FLOATS, SCALES, STREAM, assert_same, compiled, damaged, only, vectors
from tests.support.conformance import CASES, fuzz, golden
from tests.support.running import every_method, run

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


@st.composite
def outs(draw, d):
    out = np.random.default_rng(d).standard_normal(d)
    return np.where(np.arange(d) % 5 == 0, -0.0, out).astype(draw(st.sampled_from(FLOATS)))


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
    try:
        buf = definition.natural_pack(x, *form, STREAM)
    except DivergedError as error:  # beyond the range of single precision
        with pytest.raises(DivergedError, match=re.escape(str(error))):
            compiled.natural_pack(x, *form, STREAM)
        return
    assert_same(compiled.natural_pack(x, *form, STREAM), buf)
    add = lambda on, buf, out: on.natural_add(buf, out, *form, scale)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


NORMS = ["2", "inf"]


def norm_of(x, kind) -> float:
    """A norm of x as it may travel: its largest entry or more."""
    with np.errstate(all="ignore"):
        return min(definition.norm(x, kind), float(np.finfo(np.float64).max))


def scale_of(data, x) -> float:
    return norm_of(x, data.draw(st.sampled_from(NORMS)))


@fuzz
@given(vectors(most=3000), st.sampled_from([1, 2, 3, 7, 8, 127, 128, 1000, 2**15 - 1]), SCALES, st.data())
def test_dithering(x, s, step, data):
    width, scale = (2 * s).bit_length(), scale_of(data, x)
    buf = compiled.dither_pack(x, scale, s, width, STREAM)
    assert_same(buf, definition.dither_pack(x, scale, s, width, STREAM))
    add = lambda on, buf, out: on.dither_add(buf, out, s, width, step)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


ZERO = ((0, 0), (34443125, 0, 0)), 230  # a stream, and the place where its word is 0: it rounds all up


@pytest.mark.parametrize("s", [3, 7, 127, 2**15 - 1])
def test_nothing_is_rounded_above_the_largest_level(s):
    """By rounding, s |x| / |x| may exceed s, which a word of 0 would round up to s + 1."""
    stream, place = ZERO
    assert definition.words(stream, place, 1)[0] == 0
    draw, width = np.random.default_rng(s), (2 * s).bit_length()
    scale = next(v for v in draw.uniform(0.5, 1, 1000) if v * (s * (2.0**32 / v)) > s * 2.0**32)
    x = np.zeros(place + 1)
    x[place] = scale
    for on in (definition, compiled):
        got = np.zeros(x.size)
        on.dither_add(on.dither_pack(x, scale, s, width, stream), got, s, width, 1.0)
        assert got[place] == s
        symbols = on.step_symbols(x, np.array([scale]), np.full(x.size, float(s)), stream)
        assert symbols[place] == 2 * s


ONE, FOURS = np.ones(1), np.full(ZERO[1] + 1, 4.0)
ROUNDED_UP = {  # what packs, what adds, and the step from 0 and from 1/4 to the next level
    "dithering": (
        lambda on, x, stream: on.dither_pack(x, 1.0, 4, 4, stream),
        lambda on, buf, out: on.dither_add(buf, out, 4, 4, 0.25),
        (0.25, 0.25),
    ),
    "steps": (
        lambda on, x, stream: on.step_symbols(x, ONE, FOURS, stream),
        lambda on, buf, out: on.add_steps(buf, out, ONE, FOURS, 1.0),
        (0.25, 0.25),
    ),
    "ternary": (
        lambda on, x, stream: on.ternary_pack(x, 1.0, stream),
        lambda on, buf, out: on.ternary_add(buf, out, 1.0),
        (1.0, 0.75),
    ),
    "natural dithering": (
        lambda on, x, stream: on.natural_dither_pack(x, 1.0, 4, 4, stream),
        lambda on, buf, out: on.natural_dither_add(buf, out, 4, 4, 1.0),
        (0.125, 0.25),
    ),
    "natural": (
        lambda on, x, stream: on.natural_pack(x, 127, 8, stream),
        lambda on, buf, out: on.natural_add(buf, out, 127, 8, 1.0),
        (2.0**-126, 0.25),
    ),
    "block floats": (
        lambda on, x, stream: on.block_float_pack(x, 8, 16, stream),
        lambda on, buf, out: on.add_block_floats(buf, out, 8, 16, 1.0),
        (2.0**-6, 2.0**-6),
    ),
}


@pytest.mark.parametrize("kind", ROUNDED_UP)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_least_word_rounds_up_all_that_is_above_a_level(kind, dtype, sign):
    """The odds of what is hardly above a level are not 0, nor are those of a level itself above 0."""
    pack, add, (first, second) = ROUNDED_UP[kind]
    (stream, place), low = ZERO, dtype(0.25)
    above = {0.0: 0.0, float(np.finfo(dtype).tiny) / 8: first, 1.0: 1.0}
    above |= {float(np.nextafter(low, dtype(1))): 0.25 + second}
    above |= {} if kind == "ternary" else {0.25: 0.25}
    for on in (definition, compiled):
        for value, expected in above.items():
            x, out = np.ones(place + 1, dtype), np.zeros(place + 1)
            x[place] = sign * value
            add(on, pack(on, x, stream), out)
            assert out[place] == sign * expected


@fuzz
@given(
    vectors(most=3000),
    st.sampled_from([4, 8]),
    st.sampled_from([16, 32, 64, 128]),
    st.sampled_from([None, STREAM]),
    SCALES,
    st.data(),
)
def test_block_floats(x, bits, block, stream, scale, data):
    try:
        buf = definition.block_float_pack(x, bits, block, stream)
    except DivergedError as error:  # beyond the range of single precision
        with pytest.raises(DivergedError, match=re.escape(str(error))):
            compiled.block_float_pack(x, bits, block, stream)
        return
    assert_same(compiled.block_float_pack(x, bits, block, stream), buf)
    add = lambda on, buf, out: on.add_block_floats(buf, out, bits, block, scale)  # noqa: E731
    assert_adds_alike(add, damaged(data, buf), data.draw(outs(x.size)))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("d", [1, 15, 16, 33, 1025])
def test_block_floats_at_the_ends(bits, d):
    """Largest entries of T 2^k, and next to that; the refused integer in each of the last two places."""
    top, draw = 2.0 ** (bits - 1) - 1, np.random.default_rng(d)
    for largest in (top, np.nextafter(top, 0), np.nextafter(top, 9999), top / 2):
        for stream in (None, STREAM):
            x = np.ldexp(draw.choice([-1.0, 1.0, 0.5, 0.1], d) * largest, draw.integers(-140, 110))
            buf = definition.block_float_pack(x, bits, 16, stream)
            assert_same(compiled.block_float_pack(x, bits, 16, stream), buf)
    for j in range(max(0, d - 2), d):
        symbols = np.zeros(d, np.uint64)
        symbols[j] = 2 ** (bits - 1)
        buf = np.concatenate([np.zeros(-(-d // 16), np.uint8), pack(symbols, bits)])
        for on in (definition, compiled):
            with pytest.raises(MessageError, match="the integer -"):
                on.add_block_floats(buf, np.zeros(d), bits, 16, 1.0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("stream", [None, STREAM])
def test_block_floats_at_the_end_of_their_range(bits, stream):
    """T 2^e with the largest code of e fits; what is above has no code."""
    most = (2.0 ** (bits - 1) - 1) * 2.0 ** (130 - bits)
    for on in (definition, compiled):
        x = np.array([-most, most / 2])
        assert on.block_float_pack(x, bits, 16, stream)[0] == 255
        for beyond in (np.nextafter(most, np.inf), 2 * most, 4 * most):
            with pytest.raises(DivergedError, match="does not fit"):
                on.block_float_pack(np.array([1.0, -beyond]), bits, 16, stream)


@fuzz
@given(
    vectors(most=3000),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([128, 512, 4096]),
    st.booleans(),
    SCALES,
    st.data(),
)
def test_rotated_levels(x, bits, block, least, scale, data):
    try:
        buf = definition.rotated_pack(x, bits, block, least, STREAM)
    except DivergedError as error:  # beyond the range of single precision
        with pytest.raises(DivergedError, match=re.escape(str(error))):
            compiled.rotated_pack(x, bits, block, least, STREAM)
        return
    assert_same(compiled.rotated_pack(x, bits, block, least, STREAM), buf)
    add = lambda on, buf, out: on.add_rotated(buf, out, bits, block, scale, STREAM)  # noqa: E731
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


@st.composite
def resolutions(draw, d):
    """Real numbers from 0 to 2^15 - 1: whole ones, ones near them, and 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    r = rng.choice([0.0, 1e-300, 0.3, 1.0, np.nextafter(1.0, 2.0), 7.0, 127.5, 2.0**15 - 1], d)
    return np.where(rng.random(d) < 0.5, r, r * rng.random(d))


def add_steps(norms, r, scale, on, symbols, out):
    on.add_steps(symbols, out, norms, r, scale)


@fuzz
@given(vectors(most=3000), st.integers(1, 9), SCALES, st.data())
def test_steps(x, blocks, scale, data):
    """Blocks of one coordinate too, with norms that are 0, tiny or huge, and symbols of any kind."""
    blocks = min(blocks, x.size) if data.draw(st.booleans()) else x.size
    r, ends = data.draw(resolutions(x.size)), block_ends(x.size, blocks)
    kinds = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).choice(NORMS, blocks)
    norms = np.array([norm_of(*each) for each in zip(np.split(x, ends[:-1]), kinds, strict=True)])
    symbols = compiled.step_symbols(x, norms, r, STREAM)
    assert_same(symbols, definition.step_symbols(x, norms, r, STREAM))
    assert (symbols <= 2 * np.ceil(r)).all()
    for some in (symbols, np.random.default_rng(blocks).integers(0, 2**16, x.size).astype(np.uint16)):
        assert_adds_alike(partial(add_steps, norms, r, scale), some, data.draw(outs(x.size)))


@fuzz
@given(
    st.sampled_from([(np.uint16, 16), (np.uint64, 63)]),
    st.integers(0, 3000),
    st.integers(0, 2**32 - 1),
)
def test_symbols_of_different_widths(kind, count, seed):
    dtype, most = kind
    rng = np.random.default_rng(seed)
    widths = rng.integers(0, most + 1, count).astype(np.uint8) * (rng.random(count) < rng.random())
    symbols = (rng.integers(0, 2**63, count) & (2 ** widths.astype(np.int64) - 1)).astype(dtype)
    nbytes = -(-int(widths.sum()) // 8)
    buf = compiled.pack_widths(symbols, widths, nbytes)
    assert_same(buf, definition.pack_widths(symbols, widths, nbytes))
    buf = rng.integers(0, 256, nbytes).astype(np.uint8)  # bits that fill up the last byte are ignored
    assert_same(compiled.unpack_widths(buf, widths, dtype), definition.unpack_widths(buf, widths, dtype))


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
    "block floats": lambda on, buf, out: on.add_block_floats(buf, out, 4, 32, 1.0),
    "rotated levels": lambda on, buf, out: on.add_rotated(buf, out, 3, 512, 1.0, STREAM),
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
        [282, 282 + 2250, 282 + 3094, 1125, 2813, 71 + 1125, 20 + 864, 450, 1407, 11, 282, 50 + 30, 294],
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
    only(monkeypatch, compiled)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_compressors_send_and_add_the_same(case, dtype, monkeypatch):
    x, key = case.vectors()[0].astype(dtype), case.key(t=5)
    messages, added = [], []
    for backend in (compiled, definition):
        only(monkeypatch, backend)
        messages.append(case.c.compress(x, key))
        for out in (np.ones(case.d), np.ones(case.d, np.float32)):
            case.c.decompress_add(messages[-1], out, key, 0.3)
            added.append(out)
    assert_same(messages[0], messages[1])
    assert_same(added[0], added[2])
    assert_same(added[1], added[3])


FOREIGN = {
    "the other order of bytes": lambda a: a.astype(a.dtype.newbyteorder()),
    "each third of an array": lambda a: np.repeat(a, 3)[::3],
    "from back to front": lambda a: a[::-1].copy()[::-1],
}


@pytest.mark.usefixtures("everything_compiled")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("form", FOREIGN)
def test_vectors_that_compiled_kernels_cannot_read(case, form):
    """numba would take bytes in the other order for native ones, without a word."""
    key = case.key()
    for dtype in FLOATS:
        x, expected = case.vectors()[0].astype(dtype), np.ones(case.d, dtype)
        message, out = case.c.compress(x, key), FOREIGN[form](expected)
        assert_same(case.c.compress(FOREIGN[form](x), key), message)
        case.c.decompress_add(message, expected, key, 0.3)
        case.c.decompress_add(message, out, key, 0.3)
        assert out.tolist() == expected.tolist()


@every_method
def test_runs_are_the_same(method, monkeypatch):
    """To the last bit of each iterate, and byte by byte."""
    runs = []
    for backend in (compiled, definition):
        only(monkeypatch, backend)
        runs.append(run(method, rounds=6))
    assert runs[0].iterates_sha256 == runs[1].iterates_sha256
    assert (runs[0].ledger.up == runs[1].ledger.up).all()
    assert (runs[0].ledger.down == runs[1].ledger.down).all()


@pytest.mark.usefixtures("everything_compiled")
def test_golden_messages():
    """The bytes on the wire, as recorded from the definition."""
    recorded = json.loads((Path(__file__).parents[1] / "golden" / "compressors.json").read_text())
    assert golden() == recorded


@fuzz
@given(st.sampled_from(CASES), st.integers(0, 20), st.data())
def test_damaged_messages(case, t, data):
    """Bits flipped, bytes cut off or added: refused, or some vector; never a crash."""
    x, key = case.vectors()[0], case.key(t)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        only(patch, compiled)
        message = case.c.compress(x, key)
        wrong = message[: data.draw(st.integers(0, len(message)))]
        wrong = np.append(wrong, np.frombuffer(data.draw(st.binary(max_size=9)), np.uint8))
        for buf in (damaged(data, message) if len(message) else message, wrong):
            with suppress(MessageError):
                assert case.c.decompress(buf, case.d, key).shape == (case.d,)
