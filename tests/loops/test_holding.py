"""Coordinates that a step leaves out: what each method remembers of them, and what it sends."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from mpicomp import Aggregator
from mpicomp.runtime.held import _records
from mpicomp.text.config import parse_method

D, HELD, OTHERS = 48, slice(0, 24), slice(24, 48)
LIKE = {"held": np.zeros((4, 6)), "other": np.zeros((4, 6))}


def vectors(agg, where):
    """The entries ``where`` of all vectors in R^d that this process remembers, by record and field."""
    found = {}
    for number, (record, block) in enumerate(_records(agg._play)):
        for f in fields(record):
            value = getattr(record, f.name)
            if getattr(value, "shape", None) == (block.stop - block.start,):
                whole = np.full(D, np.nan)
                whole[block] = value
                found[number, f.name] = whole[where].copy()
    return found


def brought(agg, draw, held):
    """A gradient for each worker, which is 0 in the first part if that is ``held``."""
    parts = {i: {name: draw.standard_normal((4, 6)) for name in LIKE} for i in agg.hosted}
    return {i: arrays | ({"held": np.zeros((4, 6))} if held else {}) for i, arrays in parts.items()}


METHODS = [
    "efsgd(topk(k=0.1))",
    "efsgd(sign)",
    "ef14(topk(k=0.1), gamma=0.1)",
    "doublesqueeze(topk(k=0.1), topk(k=0.1))",
    "onebitadam(warmup=2, C=topk(k=0.1), gamma=0.1)",
    "ef21(topk(k=0.1), gamma=0.1)",
    "ef21sgdm(topk(k=0.1), eta=0.3)",
    "diana(natural, gamma=0.1)",
    "diana(randk(k=0.2), gamma=0.1)",
    "dcgd(randk(k=0.2))",
]


@pytest.mark.parametrize("blocks", [None, 3])
def test_what_is_held_stays_bit_for_bit(blocks):
    """And the other coordinates move."""
    odd, options = [], {} if blocks is None else {"server": "sharded", "blocks": blocks}
    texts = METHODS + (["powersgd(r=1, gamma=0.1)", "dion(r=1, gamma=0.1)"] if blocks is None else [])
    for method in map(parse_method, texts):
        agg = Aggregator(method, LIKE, workers=3, **options)
        draw = np.random.default_rng(0)
        for _ in range(4):
            agg(brought(agg, draw, held=False))
        before, others = vectors(agg, HELD), vectors(agg, OTHERS)
        gradients = brought(agg, draw, held=True)
        with agg.holding([HELD]):
            agg(gradients)
        after = vectors(agg, HELD)
        if any(not np.array_equal(before[name], after[name], equal_nan=True) for name in before):
            odd.append((method, "held"))
        moved = vectors(agg, OTHERS)
        if all(np.array_equal(others[name], moved[name], equal_nan=True) for name in others):
            odd.append((method, "others"))
        agg.close()
    assert odd == []
