"""Entropy codes: bit-exact, close to the entropy, and safe with what is no message."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs import gaps
from mpicomp.codecs.entropy import (
    PACKED,
    TOTAL,
    bits,
    decode_model,
    decode_symbols,
    encode_model,
    encode_symbols,
    fit,
    smoothed,
)
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.compressors import (
    Coded,
    CodedGaps,
    Dithering,
    Natural,
    NaturalDithering,
    QuantizedTopK,
    RandK,
    Ternary,
    TopK,
)
from mpicomp.keys import Key
from tests.support.conformance import fuzz

rng = np.random.default_rng
QUANTIZERS = [
    Dithering(7),
    Dithering(7, p="inf"),
    Dithering(127, p="inf", values="f8"),
    Ternary(),
    Natural(),
    Natural("f8"),
    NaturalDithering(6),
]
every_quantizer = pytest.mark.parametrize("Q", QUANTIZERS, ids=str)
KEY = Key(3, 5, 2, 4)


def entropy(counts):
    """The least number of bits for symbols with these ``counts`` under any model: count times entropy."""
    p = counts[counts > 0] / counts.sum()
    return float(-np.sum(p * np.log2(p)) * counts.sum())


def counted(symbols, alphabet):
    return np.bincount(symbols, minlength=alphabet)


symbol_lists = st.lists(st.integers(0, 19), min_size=1, max_size=300)


@fuzz
@given(symbol_lists)
def test_symbols_come_back(values):
    symbols = np.array(values, dtype=np.int32)
    for model in (fit(counted(symbols, 20)), smoothed(counted(symbols, 20)), smoothed(np.arange(20))):
        assert sum(model) == TOTAL
        back = decode_symbols(encode_symbols(symbols, model), symbols.size, model)
        assert back.dtype == np.int32 and (back == symbols).all()


@fuzz
@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=40), st.integers(0, 2**16 - 40))
def test_a_model_is_nearest_to_its_counts(counts, rare):
    """Each frequency is within 1 of max(1, t n), n the count, for the t that has these sum to TOTAL."""
    n = np.array([*counts, *[1] * rare])
    if n.any():
        f, n = np.array(fit(n))[n > 0], n[n > 0]
        low, high = 0.0, float(TOTAL)
        for _ in range(100):
            t = (low + high) / 2
            low, high = (t, high) if np.maximum(1, t * n).sum() < TOTAL else (low, t)
        assert f.sum() == TOTAL and (f >= 1).all()
        assert (np.abs(f - np.maximum(1, low * n)) < 1 + 1e-6).all()


@fuzz
@given(symbol_lists)
def test_a_model_comes_back_from_its_header(values):
    model = fit(counted(np.array(values), 20))
    header = encode_model(model)
    assert decode_model(np.append(header, np.zeros(3, np.uint8)), 20) == (model, len(header))


@pytest.mark.parametrize("alphabet", [2, 15, 255, 511])
@pytest.mark.parametrize("decay", [0.0, 0.5, 3.0])
def test_the_words_take_the_entropy_and_little_more(alphabet, decay):
    """Within 0.1 % and the last word of what the model says, which is within 1 % of the entropy."""
    p = np.exp(-decay * np.arange(alphabet) / 10)
    symbols = rng(7).choice(alphabet, 50_000, p=p / p.sum()).astype(np.int32)
    counts = counted(symbols, alphabet)
    model = fit(counts)
    sent = 8 * len(encode_symbols(symbols, model))
    assert sent <= 1.001 * bits(counts, model) + 64
    assert entropy(counts) <= bits(counts, model) <= 1.01 * entropy(counts)
    # bits() is the sum over the symbols of the negative logarithms, entropy() its least value
    assert bits(counts, model) == pytest.approx(sum(np.log2(TOTAL / model[s]) for s in symbols))


def test_a_single_symbol_takes_no_bits():
    model = fit(counted(np.full(1000, 3), 5))
    assert model == (0, 0, 0, TOTAL, 0)
    assert len(encode_symbols(np.full(1000, 3, np.int32), model)) == 0
    assert (decode_symbols(np.empty(0, np.uint8), 4, model) == 3).all()
    with pytest.raises(MessageError, match="takes none"):
        decode_symbols(np.zeros(4, np.uint8), 4, model)


def test_a_rare_symbol_is_not_rounded_away():
    counts = np.array([10**9, 1, 0])
    assert fit(counts) == (TOTAL - 1, 1, 0)
    assert bits(np.array([0, 0, 1]), fit(counts)) == np.inf
    assert smoothed(counts)[2] == 1


def test_a_smoothed_model_has_half_a_count_more_of_each():
    assert smoothed(np.array([0, 1])) == (TOTAL // 4, 3 * TOTAL // 4)
    assert smoothed(np.array([0, 0])) == (TOTAL // 2, TOTAL // 2)


@fuzz
@given(st.binary(max_size=60), st.integers(0, 50))
def test_what_is_no_message_is_refused_or_decodes_to_the_right_shape(payload, count):
    buf = np.frombuffer(payload, np.uint8)
    model = smoothed(np.arange(9))
    try:
        symbols = decode_symbols(buf, count, model)
        assert symbols.shape == (count,) and ((0 <= symbols) & (symbols < 9)).all()
    except MessageError:
        pass
    try:
        found, end = decode_model(buf, 9)
        assert sum(found) == TOTAL and end <= len(buf)
    except MessageError:
        pass


@pytest.mark.parametrize("spoil", [lambda b: b[:-4], lambda b: b[:-1], lambda b: np.append(b, b[:4])])
def test_words_lost_or_added_are_noticed(spoil):
    symbols = rng(0).integers(0, 9, 400).astype(np.int32)
    model = fit(counted(symbols, 9))
    with pytest.raises(MessageError):
        decode_symbols(spoil(encode_symbols(symbols, model)), 400, model)


@fuzz
@given(st.integers(0, 2**63 - 1), st.binary(max_size=5))
def test_varints(value, rest):
    coded = varint(value)
    assert read_varint(np.frombuffer(coded + rest, np.uint8), 0) == (value, len(coded))
    with pytest.raises(MessageError):
        read_varint(np.frombuffer(coded[:-1], np.uint8), 0)


# --- the compressor ---


def decoded(C, buf, d):
    return C.decompress(buf, d, KEY)


@every_quantizer
def test_symbols_and_message_are_inverses(Q):
    x = rng(1).standard_t(3, 1001)
    buf = Q.compress(x, KEY)
    symbols = Q.symbols(buf, x.size)
    assert symbols.shape == x.shape and symbols.min() >= 0 and symbols.max() < Q.alphabet
    assert (Q.message(buf[: Q.head], symbols) == buf).all()


@every_quantizer
@pytest.mark.parametrize("d", [1, 7, 3000])
def test_coding_changes_no_bit_of_what_arrives(Q, d):
    x = rng(2).standard_t(3, d)
    plain = decoded(Q, Q.compress(x, KEY), d)
    fresh = Coded(Q)
    message = fresh.compress(x, KEY)
    assert (decoded(fresh, message, d) == plain).all()
    known = fresh.learned(message, d)
    again = known.compress(x, KEY)
    assert (decoded(known, again, d) == plain).all()
    for m in (message, again):
        assert len(m) <= 1 + Q.nbytes(d)
    assert fresh.paper_bits(message, d, KEY) == Q.paper_bits(Q.compress(x, KEY), d, KEY)


@every_quantizer
def test_next_to_no_entropy_takes_next_to_no_bytes(Q):
    """Of 10^5 Cauchy variables, all but a few round to 0: entropy, model, a word or two, head and flag."""
    x = rng(3).standard_cauchy(100_000)
    counts = counted(Q.symbols(Q.compress(x, KEY), x.size), Q.alphabet)
    assert (
        len(Coded(Q).compress(x, KEY))
        <= 1.01 * entropy(counts) / 8 + 5 * np.count_nonzero(counts) + 8 + Q.head + 1
    )


@every_quantizer
@pytest.mark.parametrize("distribution", ["normal", "standard_t", "laplace"])
def test_a_fitted_message_is_within_two_percent_of_the_empirical_entropy(Q, distribution):
    """At d = 10^5, head, model and flag included; or it is the packed form, which then was shorter."""
    draw = getattr(rng(3), distribution)
    x = draw(3, 100_000) if distribution == "standard_t" else draw(size=100_000)
    packed = Q.compress(x, KEY)
    least = entropy(counted(Q.symbols(packed, x.size), Q.alphabet)) / 8
    sent = len(Coded(Q).compress(x, KEY))
    assert sent <= 1.02 * least + Q.head + 1 or sent == len(packed) + 1
    # packing is what costs where it costs: dithering at 4 bits of a bell curve has 2.5 bits of entropy
    if isinstance(Q, Dithering | Natural) and distribution == "standard_t":
        assert sent < 0.8 * len(packed)


@pytest.mark.parametrize("s", [511, 1023, 4095, 2**15 - 1])
@pytest.mark.parametrize("distribution", ["normal", "random", "laplace"])
def test_alphabets_of_thousands(s, distribution):
    """With symbols that occur once: the numbers of Q's own message, in a byte more at most."""
    d = 100_000
    x = getattr(rng(8), distribution)(size=d)
    C = Coded(Dithering(s, p="inf"))
    packed = C.Q.compress(x, KEY)
    for c in (C, C.learned(C.compress(x, KEY), d)):
        message = c.compress(x, KEY)
        assert message[0] != PACKED if s < 5000 else len(message) <= len(packed) + 1
        assert np.array_equal(c.decompress(message, d, KEY), C.Q.decompress(packed, d, KEY))


def test_a_model_learned_on_another_vector_costs_its_divergence():
    """What a model fitted to p codes q with: the cross entropy, and never more than packed."""
    Q, d = Dithering(7, p="inf"), 50_000
    bell, spread = rng(4).normal(size=d), rng(4).uniform(-1, 1, d)
    known = Coded(Q).learned(Coded(Q).compress(bell, KEY), d)
    counts = counted(Q.symbols(Q.compress(bell, KEY), d), Q.alphabet)
    other = counted(Q.symbols(Q.compress(spread, KEY), d), Q.alphabet)
    assert bits(counts, known.model) <= 1.001 * entropy(counts) + 1
    assert bits(other, known.model) > 1.2 * entropy(other)  # the wrong model
    assert len(known.compress(spread, KEY)) <= len(Coded(Q).compress(spread, KEY))  # so it is not used


def spoiled(buf, kind, data):
    if kind == "cut":
        return buf[: data.draw(st.integers(0, len(buf) - 1))]
    if kind == "long":
        return np.append(buf, np.frombuffer(data.draw(st.binary(min_size=1, max_size=9)), np.uint8))
    if kind == "junk":
        return np.frombuffer(data.draw(st.binary(max_size=40)), np.uint8)
    buf = buf.copy()
    buf[data.draw(st.integers(0, len(buf) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return buf


@every_quantizer
@fuzz
@given(data=st.data())
def test_a_spoiled_message_is_refused_or_has_the_right_shape(Q, data):
    d = 200
    C = Coded(Q)
    if data.draw(st.booleans()):
        C = C.learned(C.compress(rng(6).normal(size=d), KEY), d)
    kind = data.draw(st.sampled_from(["cut", "long", "flip", "junk"]))
    buf = spoiled(C.compress(rng(5).normal(size=d), KEY), kind, data)
    with suppress(MessageError):
        assert decoded(C, buf, d).shape == (d,)


def test_what_cannot_be_coded_is_refused():
    with pytest.raises(ConfigError, match=r"RandK.*allowed: a quantiser: Dithering"):
        Coded(RandK(3))
    with pytest.raises(
        ConfigError, match=r"2 frequencies that sum to 65536; allowed: .* each of the 3 symbols"
    ):
        Coded(Ternary(), model=(65535, 1))
    with pytest.raises(ConfigError, match=r"3 frequencies that sum to 3; allowed: .* that sum to 65536"):
        Coded(Ternary(), model=(1, 1, 1))
    for model in (3, "abc", (0.5, 0.5, 65535.0), (-1, 1, 65536)):
        with pytest.raises(ConfigError, match=r"model: .*; allowed: integers of 0 or above that sum"):
            Coded(Ternary(), model=model)
    with pytest.raises(ConfigError, match=r"RandK.*allowed: TopK or QuantizedTopK"):
        CodedGaps(RandK(3))
    with pytest.raises(
        ConfigError, match=r"1 frequencies that sum to 65536; allowed: .* the 256 symbols of a gap"
    ):
        CodedGaps(TopK(3), model=(65536,))


# --- gaps between positions ---


@st.composite
def position_sets(draw):
    d = draw(st.sampled_from([1, 2, 17, 40, 3000, 2**25 + 1, 2**52]))
    return d, np.array(sorted(draw(st.sets(st.integers(0, d - 1), min_size=1, max_size=60))))


@fuzz
@given(position_sets())
def test_positions_come_back_from_their_gaps(drawn):
    d, indices = drawn
    symbols, remainders = gaps.symbols_of(indices)
    widths = gaps.widths_of(symbols)
    assert ((0 <= symbols) & (symbols < gaps.used(d))).all()
    assert all(int(r) < 2 ** int(w) for r, w in zip(remainders, widths, strict=True))
    assert (gaps.indices_of(symbols, remainders, d) == indices).all()


def test_gap_symbols_are_exact_below_16_and_four_an_octave_above():
    gap = np.array([0, 1, 15, 16, 19, 20, 31, 32, 39, 40, 2**20, 2**21 - 1])
    symbols, remainders = gaps.symbols_of(np.cumsum(gap + 1) - 1)
    assert symbols.tolist() == [0, 1, 15, 16, 16, 17, 19, 20, 20, 21, 80, 83]
    assert gaps.widths_of(symbols).tolist() == [0, 0, 0, 2, 2, 2, 2, 3, 3, 3, 18, 18]
    assert remainders.tolist() == [0, 0, 0, 0, 3, 0, 3, 0, 7, 0, 0, 2**18 - 1]
    assert gaps.used(2**62) <= gaps.ALPHABET


@fuzz
@given(st.lists(st.integers(0, 255), min_size=1, max_size=40), st.integers(1, 2**62), st.data())
def test_any_gaps_are_refused_or_positions(values, d, data):
    symbols = np.array(values, dtype=np.int32)
    widths = gaps.widths_of(symbols)
    remainders = np.array([data.draw(st.integers(0, 2 ** int(w) - 1)) for w in widths], dtype=np.uint64)
    with suppress(MessageError):
        indices = gaps.indices_of(symbols, remainders, d)
        assert indices[0] >= 0 and indices[-1] < d and (indices[1:] > indices[:-1]).all()


def clustered(d: int, seed: int) -> np.ndarray:
    """Large entries in a few runs, as in rows of a weight matrix."""
    scale = np.repeat(rng(seed).choice([0.02, 1.0], d // 50, p=[0.9, 0.1]), 50)
    return scale * rng(seed + 1).normal(size=d)


POSITIONED = [
    TopK(0.03),
    TopK(0.3, "f2"),
    QuantizedTopK(0.1, Dithering(7)),
    QuantizedTopK(0.1, Coded(Natural())),
]


@pytest.mark.parametrize("C", POSITIONED, ids=str)
@pytest.mark.parametrize("d", [50, 10_000])
def test_coding_gaps_changes_no_bit_of_what_arrives(C, d):
    x = clustered(d, 1)
    packed = C.compress(x, KEY)
    fresh = CodedGaps(C)
    message = fresh.compress(x, KEY)
    known = fresh.learned(message, d)
    again = known.compress(x, KEY)
    for c, m in ((fresh, message), (known, again)):
        assert (decoded(c, m, d) == decoded(C, packed, d)).all()
        assert len(m) <= 1 + len(packed)
        assert c.paper_bits(m, d, KEY) == C.paper_bits(packed, d, KEY)
    assert len(again) <= len(message)
    if d == 10_000:
        assert [message[0], again[0]] == [1, 2]
        assert len(message) < len(packed)


def test_coded_gaps_are_within_two_percent_of_the_empirical_entropy():
    """Of symbols and open bits, with the model; the index code, log2 C(d, k) bits, is far longer."""
    d, k, C = 500_000, 50_000, TopK(50_000)
    x = clustered(d, 2)
    symbols, _ = gaps.symbols_of(np.flatnonzero(C.decompress(C.compress(x, KEY), d, KEY)))
    least = entropy(counted(symbols, gaps.ALPHABET)) + gaps.widths_of(symbols).sum()
    sent = 8 * (len(CodedGaps(C).compress(x, KEY)) - 4 * k)
    assert least <= sent <= 1.02 * least
    assert sent < 0.7 * 8 * (C.nbytes(d) - 4 * k)


@fuzz
@given(st.booleans(), st.sampled_from(["cut", "long", "flip", "junk"]), st.data())
def test_a_spoiled_message_of_gaps_is_refused_or_has_the_right_shape(learned, kind, data):
    d = 1000
    C = CodedGaps(QuantizedTopK(0.1, Ternary()))
    if learned:
        C = C.learned(C.compress(clustered(d, 3), KEY), d)
    with suppress(MessageError):
        assert decoded(C, spoiled(C.compress(clustered(d, 5), KEY), kind, data), d).shape == (d,)
