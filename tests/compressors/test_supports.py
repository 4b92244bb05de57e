"""The coordinates that a message has values at, as ``coordinates`` tells them."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.compressors import (
    CodedGaps,
    Dithering,
    HardThreshold,
    Identity,
    Layered,
    Lossless,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    TopK,
)
from tests.support.conformance import CASES
from tests.support.sampling import KEY

SELECTING = [case for case in CASES if case.c.selects]


def told(c, message, d, key=KEY) -> list[int]:
    """The coordinates, as a list."""
    return [int(j) for where in c.coordinates(message, d, key) for j in np.arange(d)[where]]


@pytest.mark.parametrize("case", SELECTING, ids=str)
def test_values_are_at_the_coordinates_and_nowhere_else(case):
    """With no zero in x, C(x) is not 0 at each of them; no coordinate comes twice."""
    x = np.where(case.vectors() == 0, 1.25, case.vectors())
    for i in range(case.n):
        key = case.key(3, i)
        message = case.c.compress(x[i], key)
        found = told(case.c, message, case.d, key)
        quantises = any(Q in repr(case.c) for Q in ("Dithering", "Ternary", "EDEN"))
        value = case.c.decompress(message, case.d, key)
        assert len(set(found)) == len(found)
        assert set(np.flatnonzero(value)) <= set(found)
        assert quantises or "weights" in repr(case.c) or set(np.flatnonzero(value)) == set(found)


def test_which_compressors_choose_coordinates():
    classes = {type(case.c).__name__ for case in CASES if case.c.selects}
    assert classes >= {"TopK", "QuantizedTopK", "CodedGaps", "HardThreshold", "RandK", "Bernoulli", "Shrunk"}
    for c in (Sign(), Dithering(3), Lossless(), Shrunk(Dithering(3)), Layered({"*": Sign()})):
        assert not c.selects
        with pytest.raises(ConfigError, match=r"does not choose coordinates"):
            (c.U if isinstance(c, Shrunk) else Sign() if isinstance(c, Layered) else c).coordinates(
                np.zeros(9, np.uint8), 8, KEY
            )


def test_a_zero_that_is_sent_is_among_them():
    x = np.array([0.0, 0.0, 0.0, 5.0])
    for c in (TopK(3), QuantizedTopK(3, Identity()), CodedGaps(TopK(3))):
        assert told(c, c.compress(x, KEY), 4) == [0, 1, 3]
    c = HardThreshold(0.0)
    assert told(c, c.compress(x, KEY), 4) == [3]
    c = Shrunk(RandK(2))
    assert told(c, c.compress(x, KEY), 4) == told(RandK(2), np.zeros(8, np.uint8), 4)


@pytest.mark.parametrize("c", [TopK(3), HardThreshold(0.5), CodedGaps(TopK(3))], ids=repr)
def test_a_message_that_can_be_none_is_refused(c):
    message = c.compress(np.arange(100.0), KEY)
    for bad in (message[:0], message[:1], np.full(len(message), 255, np.uint8)):
        with pytest.raises(MessageError):
            c.coordinates(bad, 100, KEY)
