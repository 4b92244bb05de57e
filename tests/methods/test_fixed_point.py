"""Numbers with an absolute precision as naturals: the nearest multiple, in few bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.codecs.varint import varint
from mpicomp.methods.support.fixed_point import UNIT, of_natural, to_natural


@given(st.floats(-5e14, 5e14))
def test_the_nearest_multiple(x):
    assert abs(of_natural(to_natural(x)) - x) <= UNIT / 2
    assert of_natural(to_natural(-x)) == -of_natural(to_natural(x))


@given(st.integers(-(2**61) + 1, 2**61 - 1))
def test_multiples_of_the_unit_are_kept_and_each_has_its_code(m):
    code = to_natural(m * UNIT) if abs(m) < 2**53 else 2 * m if m > 0 else 1 - 2 * m
    assert code == (2 * m if m > 0 else 1 + 2 * -m)
    assert of_natural(code) == m * UNIT


def test_the_first_codes():
    assert [to_natural(m * UNIT) for m in (0, 1, -1, 2, -2)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("x", "size"), [(0.0, 1), (0.015, 1), (0.016, 2), (1.99, 2), (2.0, 3), (-1.99, 2), (255.0, 3)]
)
def test_its_bytes(x, size):
    assert len(varint(to_natural(x))) == size


def test_what_is_no_number_and_what_is_too_large():
    assert math.isnan(of_natural(to_natural(math.nan))) and to_natural(math.nan) == 0
    assert [of_natural(to_natural(x)) for x in (1e16, -1e300, math.inf, -math.inf)] == [
        math.inf,
        -math.inf,
        math.inf,
        -math.inf,
    ]
    assert to_natural(math.inf) < 2**63 and to_natural(-math.inf) < 2**63
