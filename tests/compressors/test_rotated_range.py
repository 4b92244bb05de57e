"""Rotated quantisers: the range of their scales, and messages that are refused."""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest

from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.compressors import EDEN, RotatedSign
from tests.support.sampling import KEY, apply, square

INNER = "inner_product"
EVERY = [RotatedSign(), RotatedSign(3), EDEN(2), EDEN(4, INNER)]
each = pytest.mark.parametrize("C", EVERY, ids=repr)


@each
def test_a_power_of_two_times_a_vector_has_that_times_the_result(C):
    x = np.random.default_rng(3).normal(size=77)
    for power in (2.0**-90, 2.0**60):
        assert np.array_equal(apply(C, power * x), power * apply(C, x))


@each
def test_the_ends_of_the_range(C):
    """The largest numbers of single precision, subnormal ones, and those of double precision below them."""
    top = float(np.finfo(np.float32).max)
    for d in (1, 2, 5, 300):
        assert not apply(C, np.zeros(d)).any() and not apply(C, np.full(d, -0.0)).any()
        assert not apply(C, np.full(d, 5e-324)).any()
        value = apply(C, np.full(d, top / 4))
        assert np.isfinite(value).all() and square(value / top - 0.25) <= 1.01 * d / 16
        coarse = apply(C, np.full(d, 2.0**-147))  # a scale of few bits
        assert np.abs(coarse).max() <= 2 * sqrt(d) * 2.0**-147
        for beyond in (1e300, 1.7e308):
            with pytest.raises(
                DivergedError, match=r"entries of up to 1.*e\+30.* whose scales have the format 'f4'"
            ):
                C.compress(np.full(d, beyond), KEY)
    assert apply(RotatedSign(), np.array([-top]))[0] == -top


@each
@pytest.mark.parametrize("value", [inf, -inf, np.nan])
def test_what_is_not_finite_is_refused_as_such(C, value):
    """Also beside an entry that is too large."""
    for j in (0, 40):
        x = np.ones(41)
        x[7], x[j] = 1e300, value
        with pytest.raises(DivergedError, match="not finite"):
            C.compress(x, KEY)


@each
def test_a_scale_that_is_none_is_refused_wherever_it_is(C):
    """And nothing is added."""
    C = replace(C, block=128)
    x = np.random.default_rng(2).normal(size=300)
    message = C.compress(x, KEY)
    stages = C.b if isinstance(C, RotatedSign) else 1
    length = len(message) // stages
    for stage in range(stages):
        for block in range(3):
            for value in (np.nan, inf, -inf, -1.0, -1e-45):
                damaged, out = message.copy(), np.ones(300)
                at = stage * length + 4 * block
                damaged[at : at + 4] = np.array([value], "<f4").view(np.uint8)
                with pytest.raises(MessageError, match=r"a scale of .*; it must be finite and not negative"):
                    C.decompress_add(damaged, out, KEY)
                assert (out == 1).all()


@each
def test_the_bits_that_fill_up_the_last_byte_are_ignored(C):
    """Of a single entry, in the last stage."""
    message = C.compress(np.array([-1.5]), KEY)
    wanted, bits = C.decompress(message, 1, KEY), C.bits if isinstance(C, EDEN) else 1
    for filling in range(0, 256, 1 << bits):
        damaged = message.copy()
        damaged[-1] |= filling
        assert np.array_equal(C.decompress(damaged, 1, KEY), wanted)
