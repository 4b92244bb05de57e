"""Entropy coding: code symbols in about as many bits as the entropy of their distribution.

A model is a tuple of frequencies, one for each symbol of the alphabet, that sum to ``TOTAL``.  A symbol of
frequency f takes log2(TOTAL/f) bits, by asymmetric numeral systems (constriction's coder).  Sender and
receiver must hold the same model.  It is either fitted to the symbols of the message and sent before them::

    first, last   the smallest and the largest symbol that occurs, LEB128
    frequencies   of first .. last, LEB128 each; a 0, for one that does not occur, is followed by the
                  number of zeros that follow it
    words         32 bits each, little-endian, to the end

or both ends know it beforehand, and then only the words are sent.  A fitted model can code only the symbols
that occur.  A model for later messages is ``smoothed``, so that it can code every symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import constriction
import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Symbols32
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs.varint import read_varint, varint

PACKED, FITTED, KNOWN = range(3)  # the first byte of a message names its form; the smallest form is sent

TOTAL = 2**16  # the rarest symbol that can be coded occurs once in 65536; constriction works with 2^24

Model = tuple[int, ...]


def fit(counts: NDArray[np.int64]) -> Model:
    """The model nearest to ``counts``: frequencies in proportion, at least 1 for a symbol that occurs."""
    used = np.flatnonzero(counts)
    n = counts[used]
    shares = n * (TOTAL / n.sum())
    while (shares < 1).any():  # such a symbol takes 1, which leaves less for the others
        rare = shares <= 1
        shares = np.where(rare, 1.0, n * ((TOTAL - rare.sum()) / n[~rare].sum()))
    frequencies = np.floor(shares).astype(np.int64)
    left = TOTAL - frequencies.sum()
    frequencies[np.argsort(frequencies - shares, kind="stable")[:left]] += 1  # the largest remainders
    model = np.zeros(counts.size, dtype=np.int64)
    model[used] = frequencies
    return tuple(model.tolist())


def smoothed(counts: NDArray[np.int64]) -> Model:
    """``fit`` with half a count added to every symbol (Krichevsky and Trofimov)."""
    return fit(2 * counts + 1)


def checked_model(model: Sequence[int], alphabet: int, of: str) -> Model:
    """``model`` as a tuple.  Raises ``ConfigError`` unless it is a model of ``of`` symbols."""
    whole = isinstance(model, Sequence) and all(type(f) is int and f >= 0 for f in model)
    if not whole or len(model) != alphabet or sum(model) != TOTAL:
        came = f"{len(model)} frequencies that sum to {sum(model)}" if whole else repr(model)[:80]
        raise ConfigError(
            f"model: {came}; allowed: integers of 0 or above that sum to {TOTAL}, one for each of the "
            f"{alphabet} symbols of {of}, such as ``learned`` gives."
        )
    return tuple(model)


def bits(counts: NDArray[np.int64], model: Sequence[int]) -> float:
    """The bits that symbols with these ``counts`` take under ``model``; infinite if it lacks one of them."""
    used = np.flatnonzero(counts)
    frequencies = np.asarray(model, dtype=np.float64)[used]
    if not frequencies.all():
        return np.inf
    return float(np.sum(counts[used] * (np.log2(TOTAL) - np.log2(frequencies))))


def encode_model(model: Model) -> Bytes:
    """The bytes of a fitted model, the header of its message."""
    used = np.flatnonzero(model).tolist()
    numbers = [used[0], used[-1], model[used[0]]]
    for before, symbol in pairwise(used):
        zeros = symbol - before - 1
        numbers += [0, zeros - 1] * (zeros > 0) + [model[symbol]]
    return np.frombuffer(b"".join(varint(v) for v in numbers), dtype=np.uint8)


def decode_model(buf: Bytes, alphabet: int) -> tuple[Model, int]:
    """Read the model at the start of ``buf``; return it and the position after it.

    Raises ``MessageError`` if there is none.
    """
    first, start = read_varint(buf, 0)
    last, start = read_varint(buf, start)
    if not first <= last < alphabet:
        raise MessageError(f"a model of the symbols {first} to {last} of an alphabet of {alphabet}.")
    frequencies = [0] * alphabet
    symbol = first
    while symbol <= last:
        frequencies[symbol], start = read_varint(buf, start)
        if frequencies[symbol] == 0:
            zeros, start = read_varint(buf, start)
            symbol += zeros
        symbol += 1
    if sum(frequencies) != TOTAL:
        raise MessageError(f"a model whose frequencies sum to {sum(frequencies)} and not to {TOTAL}.")
    return tuple(frequencies), start


def choose(counts: NDArray[np.int64], known: Model | None) -> tuple[int, Model, Bytes]:
    """(form, model, header) with the fewest bits: the known model, or a model that is fitted and sent."""
    model = fit(counts)
    header = encode_model(model)
    if known is not None and bits(counts, known) <= bits(counts, model) + 8 * len(header):
        return KNOWN, known, header[:0]
    return FITTED, model, header


def model_of(form: int, buf: Bytes, known: Model | None, alphabet: int, by: object) -> tuple[Model, int]:
    """The model of a message of form ``form``, and the position in ``buf`` after it.

    A fitted model stands at the start of ``buf``; a known one takes no bytes.  ``by`` names the compressor in
    the error.  Raises ``MessageError`` if there is no model.
    """
    if form == FITTED:
        return decode_model(buf, alphabet)
    if form == KNOWN and known is not None:
        return known, 0
    allowed = f"{PACKED}, {FITTED}" + (f", {KNOWN}" if known is not None else "")
    raise MessageError(f"{by}: a message that starts with the byte {form}; allowed: {allowed}.")


def encode_symbols(symbols: Symbols32, model: Model) -> Bytes:
    """Code ``symbols`` as words; none of them may have frequency 0 in ``model``."""
    if len(model) - model.count(0) == 1:
        return np.empty(0, dtype=np.uint8)  # a certain symbol takes no bits
    coder = constriction.stream.stack.AnsCoder()
    coder.encode_reverse(symbols, _categorical(model))
    return coder.get_compressed().astype("<u4").view(np.uint8)


def decode_symbols(buf: Bytes, count: int, model: Model) -> Symbols32:
    """The ``count`` symbols in ``buf``.  Raises ``MessageError`` unless it holds exactly that many."""
    if len(model) - model.count(0) == 1:
        if len(buf):
            raise MessageError(f"{len(buf)} bytes where a single possible symbol takes none.")
        return np.full(count, model.index(TOTAL), dtype=np.int32)
    if len(buf) % 4:
        raise MessageError(f"{len(buf)} bytes of entropy-coded words of 4.")
    try:
        coder = constriction.stream.stack.AnsCoder(buf.copy().view("<u4").astype(np.uint32))
        symbols = coder.decode(_categorical(model), count)
    except ValueError as error:
        raise MessageError(f"entropy-coded words that do not end as they should: {error}.") from None
    if not coder.is_empty():
        raise MessageError("entropy-coded words left over after the last symbol.")
    return symbols


@lru_cache(maxsize=16)
def _categorical(model: Model) -> Any:
    """constriction's form of ``model``; its zeros become the least probability it can tell."""
    return constriction.stream.model.Categorical(np.array(model, dtype=np.float64) / TOTAL, perfect=False)
