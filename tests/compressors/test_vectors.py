"""What compressors take: vectors of real numbers.  Anything else is refused, or converted without a loss."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors import (
    EDEN,
    BlockFloat,
    Compressor,
    Dithering,
    HardThreshold,
    Identity,
    Layered,
    Lossless,
    Natural,
    Quantized,
    RandK,
    Shrunk,
    Sign,
    TopK,
)
from mpicomp.keys import Key

KEY = Key(seed=0, round=0, worker=0, n=2)
X = np.array([3.0, -1.0, 0.0, 2.0, -128.0, 1.0])

COMPRESSORS: list[Compressor] = [
    Identity(),
    Lossless(),
    TopK(k=3),
    RandK(k=3),
    HardThreshold(0.5),
    Sign(),
    Natural(),
    Dithering(s=3),
    BlockFloat(),
    EDEN(),
    Shrunk(RandK(k=2)),
    Quantized(RandK(k=4), Natural()),
    Layered({}, default=TopK(k=2)).bound(Parts.single(X.size)),
]

REFUSED = {
    "complex": (X + 1j, "type complex128"),
    "single complex": ((X + 1j).astype(np.complex64), "type complex64"),
    "a mask": (np.ma.array(X, mask=X > 0), "x has a mask"),
    "two axes": (X.reshape(2, 3), r"shape \(2, 3\)"),
    "no axis": (np.array(1.0), r"shape \(\)"),
    "texts": (X.astype(str), "type <U32"),
    "times": (np.arange(6).astype("M8[s]"), r"type datetime64\[s\]"),
    "objects": (X.astype(object), "type object"),
    "records": (X.view([("x", float)]), "type "),
    "a list": (X.tolist(), "x is a list"),
    "a number": (3.0, "x is a float"),
}


@pytest.mark.parametrize("C", COMPRESSORS, ids=str)
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_vector_of_real_numbers_is_refused(C, what):
    given, said = REFUSED[what]
    with pytest.raises(ConfigError, match=said):
        C.compress(given, KEY)
    with pytest.raises(ConfigError, match=said):
        C.compress_difference(given, X, KEY)
    with pytest.raises(ConfigError, match=said.replace("x ", "y ")):
        C.compress_difference(X, given, KEY)


@pytest.mark.parametrize("C", COMPRESSORS, ids=str)
@pytest.mark.parametrize("dtype", ["int64", "int8", "float16", ">f8", ">f4"])
def test_vectors_of_other_types_have_the_message_of_the_same_numbers_in_double_precision(C, dtype):
    x = X.astype(dtype)
    assert C.decompress(C.compress(x, KEY), X.size, KEY).tolist() == _decoded(C, X).tolist()
    assert C.compress(np.ascontiguousarray(x[::-1])[::-1], KEY).tobytes() == C.compress(x, KEY).tobytes()


@pytest.mark.parametrize("C", COMPRESSORS, ids=str)
def test_a_difference_of_unsigned_integers_may_be_negative(C):
    x, y = np.abs(X).astype(np.uint8), np.full(X.size, 3, np.uint8)
    message = C.compress_difference(x, y, KEY)
    assert C.decompress(message, X.size, KEY).tolist() == _decoded(C, np.abs(X) - 3.0).tolist()


def _decoded(C: Compressor, x: np.ndarray) -> np.ndarray:
    return C.decompress(C.compress(x, KEY), x.size, KEY)


class Doubles(Compressor):
    """A user's compressor: all numbers, as they are."""

    def compress(self, x, key):
        return x.astype(np.float64).view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * d

    def paper_bits(self, buf, d, key):
        return 64 * d


def test_a_compressor_of_one_s_own_gets_vectors_of_real_numbers():
    C = Doubles()
    assert C.decompress(C.compress(X.astype(np.int8), KEY), X.size, KEY).tolist() == X.tolist()
    for given, said in REFUSED.values():
        with pytest.raises(ConfigError, match=said):
            C.compress(given, KEY)
    with pytest.raises(ConfigError, match="x has 6 entries and y has 1"):
        C.compress_difference(X, X[:1], KEY)
