"""Block floats: the definition in exact fractions, the constants, the ends of the range, bad messages."""

from __future__ import annotations

import re
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, Artemis, DoubleSqueeze
from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.compressors import BlockDithering, BlockFloat
from mpicomp.problems import Quadratics
from tests.support.sampling import KEY, apply, assert_mean, mean_error, square

FORMS = [(bits, block) for bits in (4, 8) for block in (16, 32, 64, 128)]
every_form = pytest.mark.parametrize(("bits", "block"), FORMS)


def transcribed(x, bits: int, block: int) -> bytes:
    """The message, by integers and fractions of Python's, whose ``round`` takes ties to even."""
    top, bias = 2 ** (bits - 1) - 1, {4: 129, 8: 133}[bits]
    codes, symbols = [], []
    for start in range(0, len(x), block):
        entries = [Fraction(float(v)) for v in x[start : start + block]]
        e, largest = -bias, max(map(abs, entries))
        while largest > top * Fraction(2) ** e:
            e += 1
        codes.append(e + bias)
        symbols += [round(v / Fraction(2) ** e) % 2**bits for v in entries]
    if bits == 4:
        symbols += [0] * (len(symbols) % 2)
        symbols = [low + 16 * high for low, high in zip(symbols[::2], symbols[1::2], strict=True)]
    return bytes(codes + symbols)


def vectors(d: int):
    draw = np.random.default_rng(d)
    yield draw.normal(size=d)
    yield draw.integers(-20, 21, d) / 2  # ties, and zeros
    yield np.ldexp(draw.normal(size=d), draw.integers(-150, 120, d))
    yield np.zeros(d)
    yield np.where(np.arange(d) < d // 2, 0.0, draw.normal(size=d))  # blocks of zeros
    yield draw.choice([-1.0, 1.0, 0.5, -0.0], d) * float(np.finfo(np.float32).max)
    yield draw.integers(-9, 10, d) * 2.0**-149  # subnormal float32


@every_form
@pytest.mark.parametrize("d", [1, 2, 15, 16, 17, 33, 128, 301])
def test_the_message_is_the_transcription(bits, block, d):
    C = BlockFloat(bits, block)
    for x in vectors(d):
        message = C.compress(x, KEY)
        assert message.tobytes() == transcribed(x, bits, block)
        single = x.astype(np.float32)
        assert C.compress(single, KEY).tobytes() == transcribed(single, bits, block)


@every_form
def test_both_round_to_one_of_the_two_nearest_multiples(bits, block):
    """And each power of two times a vector has that power times the result, exactly."""
    draw = np.random.default_rng(bits)
    for _ in range(20):
        x = draw.normal(size=70) * np.where(draw.random(70) < 0.5, 1.0, 0.01)
        nearest, drawn = (apply(C(bits, block), x) for C in (BlockFloat, BlockDithering))
        codes = BlockFloat(bits, block).compress(x, KEY)[: -(-70 // block)]
        unit = np.repeat(np.ldexp(1.0, codes.astype(int) - 125 - bits), block)[:70]
        top = 2 ** (bits - 1) - 1
        assert (np.abs(nearest - x) <= unit / 2).all() and (np.abs(nearest - x) <= np.abs(x)).all()
        assert (np.abs(drawn - x) < unit).all() and (np.abs(drawn) <= top * unit).all()
        for start in range(0, 70, block):  # the least unit that clips nothing
            largest = np.abs(x[start : start + block]).max()
            assert top * unit[start] / 2 < largest <= top * unit[start]
        for C, found in ((BlockFloat, nearest), (BlockDithering, drawn)):
            assert np.array_equal(apply(C(bits, block), 2.0**40 * x), 2.0**40 * found)


# --- the constants ---


@every_form
@pytest.mark.parametrize("d", [1, 7, 1000])
def test_alpha_is_approached(bits, block, d):
    """By an entry just above T/2 in units of 2^e, and others of 1/2, which become 0, in each block."""
    C, top = BlockFloat(bits, block), 2 ** (bits - 1) - 1
    b, alpha = min(block, d), C.alpha(d, 1)
    assert alpha == pytest.approx(1 - b / (top**2 + b - 1), rel=1e-14)
    x = np.full(b, 0.5)
    x[b // 2] = -top / 2 * (1 + 2.0**-40)
    error = square(apply(C, x) - x) / square(x)
    assert (1 - alpha) * (1 - 1e-9) < error <= 1 - alpha


@every_form
def test_alpha_is_not_exceeded(bits, block):
    draw, C = np.random.default_rng(block), BlockFloat(bits, block)
    for _ in range(300):
        d = int(draw.integers(1, 2 * block))
        x = draw.normal(size=d) ** int(draw.integers(1, 8))
        assert square(apply(C, x) - x) <= (1 - C.alpha(d, 1)) * square(x)


@every_form
@pytest.mark.parametrize("d", [1, 7, 1000])
def test_omega_is_approached(bits, block, d):
    """By an entry just above T/2, and others of f = 1/(2 (1 + ω)), whose variances are f (1 - f)."""
    C, top = BlockDithering(bits, block), 2 ** (bits - 1) - 1
    b, omega = min(block, d), C.omega(d, 1)

    def relative(f):
        return (1 / 4 + (b - 1) * f * (1 - f)) / (top**2 / 4 + (b - 1) * f**2)

    assert relative(1 / (2 * (1 + omega))) == pytest.approx(omega, rel=1e-9)
    assert (relative(np.linspace(0, 1, 100)) <= omega * (1 + 1e-9)).all()


@pytest.mark.parametrize(("bits", "d"), [(4, 16), (8, 16), (4, 3)])
def test_the_variance_is_that_of_the_fractions(bits, d):
    C, top = BlockDithering(bits, 16), 2 ** (bits - 1) - 1
    f = 1 / (2 * (1 + C.omega(d, 1)))
    x = np.full(d, f)
    x[0] = top / 2 * (1 + 2.0**-30)
    expected = (1 / 4 + (d - 1) * f * (1 - f)) / square(x)
    assert_mean(mean_error(C, x), expected, equality=True)
    assert expected == pytest.approx(C.omega(d, 1), rel=1e-6)


def test_the_constants_by_hand():
    assert BlockFloat().alpha(1000, 1) == 16128 / 16160
    assert BlockFloat(4).alpha(1000, 1) == 48 / 80
    assert BlockFloat(4, 64).alpha(1000, 1) == 48 / 112
    assert BlockFloat(4).alpha(1, 1) == 48 / 49
    assert BlockDithering(4).omega(1000, 1) == pytest.approx((sqrt(48**2 + 4 * 49 * 32) - 48) / 98)


# --- the range ---


def test_the_least_and_the_largest_exponents():
    """Normal numbers of single precision have their relative precision; code 0 and code 255 are used."""
    tiny, huge = 2.0**-126, float(np.finfo(np.float32).max)
    for bits in (4, 8):
        C = BlockFloat(bits)
        top = 2 ** (bits - 1) - 1
        for x in (tiny, 1.0, 2.0**127, huge):
            assert abs(apply(C, np.array([x]))[0] - x) <= x / top
        assert C.compress(np.array([tiny / 2]), KEY)[0] == 0
        assert C.compress(np.array([huge]), KEY)[0] == 255
        assert C.compress(np.zeros(3), KEY).tolist() == [0] * (1 + (3 if bits == 8 else 2))
        most = top * 2.0 ** (130 - bits)
        assert apply(C, np.array([-most]))[0] == -most
        for beyond in (np.nextafter(most, np.inf), 1e300):
            with pytest.raises(
                DivergedError, match=r"a value of magnitude .* does not fit block floats.*'f4'"
            ):
                C.compress(np.array([0.0, -beyond]), KEY)
        assert apply(C, np.array([5e-324, 2.0**-140])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("C", [BlockFloat(), BlockDithering(4)], ids=repr)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused_as_such(C, value):
    """Also beside an entry that is too large."""
    for j in (0, 40):
        x = np.ones(41)
        x[7], x[j] = 1e300, value
        with pytest.raises(DivergedError, match="not finite"):
            C.compress(x, KEY)


# --- messages ---


def test_the_bytes_by_hand():
    """Blocks of 16 in 4 bits: with 7, 1/2 becomes 0; 1.5 is 6 times 2^-2; 100 becomes 6 times 2^4."""
    x = np.zeros(33)
    x[0], x[1], x[2], x[31], x[32] = 7.0, -3.0, 0.5, 1.5, 100.0
    message = BlockFloat(4, 16).compress(x, KEY).tolist()
    assert message == [129, 127, 133, 0xD7, 0x00, *[0] * 13, 0x60, 0x06]
    assert apply(BlockFloat(4, 16), x)[[0, 1, 2, 31, 32]].tolist() == [7.0, -3.0, 0.0, 1.5, 96.0]
    assert BlockFloat(8, 16).compress(x[:3], KEY).tolist() == [129, 112, 256 - 48, 8]


@pytest.mark.parametrize(("bits", "symbol"), [(4, 8), (8, 128)])
def test_the_integer_without_a_negative_is_refused_wherever_it_is(bits, symbol):
    C = BlockFloat(bits, 16)
    for j in range(19):
        codes = np.zeros(19 if bits == 8 else 10, np.uint8)
        codes[j * bits // 8] = symbol << (4 if bits == 4 and j % 2 else 0)
        out = np.ones(19)
        with pytest.raises(MessageError, match=rf"the integer -{symbol} in block floats, where {bits} bits"):
            C.decompress_add(np.concatenate([np.full(2, 130, np.uint8), codes]), out, KEY)
        assert (out == 1).all()


def test_the_bits_that_fill_up_the_last_byte_are_ignored():
    C, x = BlockFloat(4, 16), np.arange(-3.0, 4)
    message = C.compress(x, KEY)
    wanted = C.decompress(message, 7, KEY)
    for filling in range(16):
        damaged = message.copy()
        damaged[-1] |= filling << 4
        assert np.array_equal(C.decompress(damaged, 7, KEY), wanted)


@pytest.mark.parametrize("C", [BlockFloat(4), BlockDithering(8, 64)], ids=repr)
def test_a_truncated_message_is_refused_by_the_name_of_its_compressor(C):
    with pytest.raises(MessageError, match=re.escape(f"{C}: message truncated, 0 bytes")):
        C.decompress_add(np.zeros(0, np.uint8), np.ones(3), KEY)


@pytest.mark.parametrize("C", [BlockFloat(4), BlockDithering(8, 64)], ids=repr)
def test_messages_of_any_bytes(C):
    """Refused, or the vector that they stand for."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        d = int(draw.integers(1, 150))
        buf = draw.integers(0, 256, C.nbytes(d)).astype(np.uint8)
        symbols = buf[-(-d // C.block) :]
        integers = (symbols[:, None] >> np.arange(0, 8, C.bits)).astype(int).ravel()[:d] % 2**C.bits
        if (integers == 2 ** (C.bits - 1)).any():
            with pytest.raises(MessageError):
                C.decompress(buf, d, KEY)
        else:
            signed = np.where(integers > 2 ** (C.bits - 1), integers - 2**C.bits, integers)
            unit = np.ldexp(1.0, buf[np.arange(d) // C.block].astype(int) - 125 - C.bits)
            assert np.array_equal(C.decompress(buf, d, KEY), signed * unit)


# --- methods with them ---


@pytest.mark.parametrize(
    "method",
    [
        DoubleSqueeze(BlockFloat(4, 16), BlockFloat(8), gamma="theory*8"),
        DIANA(BlockDithering(4)),
        Artemis(BlockDithering(4), BlockDithering(8)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_methods_converge_with_block_floats_up_and_down(method):
    run = mpicomp.run(method, Quadratics(d=70, noise=0.3, lam=0.1), workers=4, rounds=300, every=100)
    f = [row.f for row in run.rows]
    assert f[3] < f[2] < f[1] < f[0] and run.rows[-1].grad_norm_sq < 1e-2 * run.rows[0].grad_norm_sq
