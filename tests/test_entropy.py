"""Entropy codes: bit-exact, close to the entropy, and safe with what is no message."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.coding.entropy import (
    TOTAL,
    bits,
    decode_model,
    decode_symbols,
    encode_model,
    encode_symbols,
    entropy,
    fit,
    smoothed,
)
from mpicomp.coding.varint import read_varint, varint
from mpicomp.errors import MessageError
from tests.conformance import fuzz

rng = np.random.default_rng


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
