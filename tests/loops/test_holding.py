"""Coordinates that a step leaves out: what each method remembers of them, and what it sends."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from mpicomp import Aggregator, ConfigError
from mpicomp.runtime.left_out import _records, left_out
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


@pytest.mark.parametrize("blocks", [None, 3])
@pytest.mark.parametrize(
    "method", ["diana(natural, gamma=0.1)", "doublesqueeze(shrunk(natural), shrunk(natural), gamma=0.1)"]
)
def test_the_others_move_as_without_it(method, blocks):
    """Where no coordinate acts on another: the estimate and what is remembered, bit for bit."""
    options = {} if blocks is None else {"server": "sharded", "blocks": blocks}
    plain, agg = (Aggregator(parse_method(method), LIKE, workers=3, **options) for _ in range(2))
    draw = np.random.default_rng(0)
    first, then = brought(agg, draw, held=False), brought(agg, draw, held=True)
    for one in (plain, agg):
        one(first)
    with agg.holding([HELD]):
        estimate = agg(then)
    assert np.array_equal(estimate["other"], plain(then)["other"])
    moved, expected = vectors(agg, OTHERS), vectors(plain, OTHERS)
    assert all(np.array_equal(moved[name], expected[name], equal_nan=True) for name in expected)


def test_both_ends_of_the_block_wait_for_a_step_under_way():
    """A thread may play it: before a record is changed at the beginning, and before it is at the end."""
    agg = Aggregator(parse_method("ef21(identity, gamma=0.1)"), LIKE)
    agg(brought(agg, np.random.default_rng(0), held=False)[0])
    (worker,) = agg._play.workers.values()
    seen = []
    with left_out(agg._play, [HELD], lambda: seen.append(worker.g[HELD].any())):
        assert seen == [True]
    assert seen == [True, False] and worker.g[HELD].any()


@pytest.mark.parametrize("blocks", [None, 3])
def test_the_rows_of_a_server_are_held_too(blocks):
    """Byz-VR-MARINA keeps a vector for each worker: a dense round leaves what is held, and moves the rest."""
    options = {} if blocks is None else {"server": "sharded", "blocks": blocks}
    agg = Aggregator(parse_method("byzvrmarina(Q=natural, p=1.0)"), LIKE, workers=3, **options)
    draw, at = np.random.default_rng(0), LIKE

    def rows(where):
        servers = [(record.g, block) for record, block in _records(agg._play) if hasattr(record, "g")]
        stacks = [(g, block) for g, block in servers if g.ndim == 2]
        return np.concatenate([g for g, _ in sorted(stacks, key=lambda s: s[1].start)], axis=1)[:, where]

    def told(held):
        return {i: (lambda _, g=g: g) for i, g in brought(agg, draw, held).items()}

    agg(told(held=False), at=at)
    before, others = rows(HELD).copy(), rows(OTHERS).copy()
    with agg.holding([HELD]):
        assert not rows(HELD).any()
        agg(told(held=True), at=at)
    assert np.array_equal(rows(HELD), before) and before.any()
    assert not np.array_equal(rows(OTHERS), others)
    agg.close()


@pytest.mark.parametrize(
    "where",
    [
        slice(0, 49),
        slice(-2, 48),
        slice(3, 1),
        slice(None),
        slice(0, 4, 2),
        slice(0.0, 2.0),
        slice("a", "b"),
        0,
    ],
    ids=str,
)
def test_slices_that_are_none_of_the_vector_are_refused(where):
    with pytest.raises(ConfigError, match=r"holding has .*; allowed: slices from 0 to 48"):
        Aggregator(parse_method("ef21(topk(k=1), gamma=0.1)"), LIKE).holding([where])


@pytest.mark.parametrize("slices", [None, 3, slice(0, 3), "ab"])
def test_slices_are_in_a_list(slices):
    with pytest.raises(ConfigError, match=r"holding was given .*; allowed: slices in a list"):
        Aggregator(parse_method("ef21(topk(k=1), gamma=0.1)"), LIKE).holding(slices)


def test_in_the_block_no_state_is_saved_or_loaded(tmp_path):
    """It would lack what is put aside, and what is loaded would be overwritten at the block's end."""
    agg = Aggregator(parse_method("efsgd(topk(k=0.1))"), LIKE)
    draw = np.random.default_rng(0)
    agg(brought(agg, draw, held=False)[0])
    state = agg.state()
    agg.save(tmp_path / "before")
    for _ in range(2):  # also after an error
        with agg.holding([HELD]):
            for call in (
                agg.state,
                lambda: agg.restore(state),
                lambda: agg.save(tmp_path / "s"),
                lambda: agg.load(tmp_path / "before"),
            ):
                with pytest.raises(ConfigError, match="outside of the block"):
                    call()
        with pytest.raises(ZeroDivisionError), agg.holding([HELD]):
            raise ZeroDivisionError
    for name, value in agg.state().items():
        assert np.array_equal(value, state[name]), name
    agg.restore(state)


def test_a_gradient_that_is_not_0_where_it_is_left_out_is_refused():
    agg = Aggregator(parse_method("efsgd(topk(k=0.1))"), LIKE)
    draw = np.random.default_rng(0)
    for call in (agg, agg.begin):
        with agg.holding([HELD]), pytest.raises(ConfigError, match=r"not 0 in slice\(0, 24, None\)"):
            call(brought(agg, draw, held=False)[0])
    with agg.holding([HELD]):
        agg(brought(agg, draw, held=True)[0])
