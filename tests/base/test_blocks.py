"""Vectors cut into blocks."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.blocks import Blocks
from mpicomp.base.parts import Part, Parts

NET = Parts((Part("w", (10, 7)), Part("b", (10,)), Part("v", (3, 40)), Part("s", ())))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 500])
def test_blocks_are_the_vector_cut_at_rows(count):
    """In order and without a gap, none empty; a cut is at a row, and as near to b d / S as rows allow."""
    blocks = Blocks.cut(NET, count)
    slices = blocks.slices(NET.size)
    assert np.concatenate([np.arange(NET.size)[s] for s in slices]).tolist() == list(range(NET.size))
    assert all(parts.size == s.stop - s.start > 0 for parts, s in zip(blocks.parts, slices, strict=True))
    rows = {0, *range(0, 71, 7), *range(70, 81), *range(80, 201, 40), NET.size}
    ends = {s.stop for s in slices}
    assert ends <= rows
    for b in range(1, count):
        wanted = b * NET.size // count
        assert min(abs(wanted - end) for end in ends | {0}) == min(abs(wanted - row) for row in rows)


def test_pieces_of_parts_have_their_names_and_the_other_axes():
    first, second = Blocks.cut(NET, 2).parts
    assert [str(part) for part, _ in first] == ["w (10, 7)", "b (10,)", "v (1, 40)"]
    assert [str(part) for part, _ in second] == ["v (2, 40)", "s ()"]
    assert first.whole == second.whole == NET


def test_a_vector_without_parts_is_cut_evenly():
    sizes = [parts.size for parts in Blocks.cut(Parts.single(100), 7).parts]
    assert sum(sizes) == 100 and max(sizes) - min(sizes) <= 1


def test_a_vector_of_another_length_is_cut_evenly():
    """Such as the factors of a matrix; a block may have none of it."""
    blocks = Blocks.cut(Parts.single(100), 4)
    assert [s.stop - s.start for s in blocks.slices(10)] == [2, 3, 2, 3]
    assert [s.stop - s.start for s in blocks.slices(2)] == [0, 1, 0, 1]
