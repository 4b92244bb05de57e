"""A step that is sent in a thread: ``begin`` and ``finish`` are a call, bit for bit."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from mpicomp import (
    EF21SGDM,
    EFSGD,
    MARINA,
    Aggregator,
    ConfigError,
    DivergedError,
    DoubleSqueeze,
    MpicompError,
    PowerSGD,
    RandK,
    TopK,
)

SHAPE = (12, 7)
METHODS = [
    EFSGD(TopK(k=0.1)),
    EF21SGDM(TopK(k=5), eta=0.3),
    DoubleSqueeze(TopK(k=0.2), TopK(k=0.2)),
    PowerSGD(2),
]


def gradient(step, worker=0):
    return np.random.default_rng([step, worker]).normal(size=SHAPE)


def made(method=METHODS[0], **options):
    return Aggregator(method, np.zeros(SHAPE), **options)


@pytest.mark.parametrize("options", [{}, {"server": "sharded", "blocks": 3}], ids=["root", "sharded"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_begin_and_finish_are_a_call(method, options):
    workers = range(3)
    called, begun = (made(method, workers=3, **options) for _ in range(2))
    for k in range(6):
        g = {i: gradient(k, i) for i in workers}
        expected = called(g)
        begun.begin(g)
        for one in g.values():
            one[:] = np.nan  # the caller may use its memory again
        assert np.array_equal(begun.finish(), expected)
    begun.settle(), called.settle()
    assert begun.ledger.up.tolist() == called.ledger.up.tolist()
    assert begun.ledger.down.tolist() == called.ledger.down.tolist()
    assert begun.steps == called.steps == 6


@pytest.mark.parametrize("how", ["save", "state"])
def test_a_step_under_way_is_saved_with_its_estimate(how, tmp_path):
    whole, one, two = made(), made(), made()
    for k in range(3):
        whole(gradient(k))
        one(gradient(k))
    expected = [whole(gradient(3)), whole(gradient(4))]
    one.begin(gradient(3))
    if how == "save":
        one.save(tmp_path)
        two.load(tmp_path)
    else:
        two.restore(one.state())
    assert np.array_equal(two.finish(), expected[0])
    assert np.array_equal(two(gradient(4)), expected[1])
    assert np.array_equal(one.finish(), expected[0])


def test_a_state_without_a_step_under_way_has_none(tmp_path):
    one, two = made(), made()
    one.save(tmp_path)
    two.begin(gradient(0))
    two.load(tmp_path)
    with pytest.raises(ConfigError, match="none is under way"):
        two.finish()


@pytest.mark.parametrize("options", [{}, {"server": "sharded", "blocks": 3}], ids=["root", "sharded"])
def test_several_are_saved_in_one_folder(options, tmp_path):
    """All or none: the second's state does not fit, and the first is as it was."""
    pair, again = ([made(m, **options) for m in METHODS[:2]] for _ in range(2))
    for k in range(3):
        for one in pair[: 1 + k % 2]:
            one(gradient(k))
    pair[1].begin(gradient(7))
    pair[0].save(tmp_path, pair[1:])
    other = Aggregator(METHODS[1], np.zeros(40), **options)
    fresh = made(**options)
    with pytest.raises(MpicompError, match=r"1\..*shape"):
        fresh.load(tmp_path, [other])
    assert fresh.steps == 0 and not fresh._play.replica.g.any()
    with pytest.raises(MpicompError, match="others"):
        fresh.load(tmp_path)
    again[0].load(tmp_path, again[1:])
    assert [one.steps for one in again] == [one.steps for one in pair]
    assert np.array_equal(again[1].finish(), pair[1].finish())
    for one, other in zip(pair, again, strict=True):
        assert np.array_equal(one(gradient(9)), other(gradient(9)))
        one.settle(), other.settle()
        assert other.ledger.up.tolist() == one.ledger.up.tolist()


def test_a_step_that_is_left_out_has_no_estimate():
    agg = made(on_nonfinite="skip")
    agg.begin(np.full(SHAPE, np.nan))
    assert agg.finish() is None and agg.skipped == 1
    agg.begin(gradient(0))
    assert agg.finish() is not None


def test_an_error_of_the_thread_is_raised_by_finish():
    """A value beyond the wire's format: the step has ended half-way, as in a call."""
    agg = made(EFSGD(TopK(k=0.1, values="f2")))
    agg.begin(np.full(SHAPE, 1e9))
    with pytest.raises(DivergedError, match="step 0"):
        agg.finish()
    assert not agg.sound
    with pytest.raises(MpicompError, match="half-way"):
        agg.begin(gradient(0))


def held_back(agg):
    """``agg``, whose thread does its work when somebody waits for it, and not before."""
    go, play, background = Event(), agg._play_step, agg._background
    wait = background.wait

    def when_waited_for():
        if background._thread is not None:  # else this is a call, without a thread
            go.wait()
        play()

    def let_go_and_wait():
        if background._thread is not None:
            go.set()
        wait()
        go.clear()

    agg._play_step, background.wait = when_waited_for, let_go_and_wait
    return agg


def test_a_state_is_restored_after_the_steps_under_way_have_ended():
    """The thread of each of several Aggregators would go on with the state that was restored."""
    pair, fresh = [made(), made(METHODS[1])], made(METHODS[1])
    states = [one.state() for one in pair]
    held_back(pair[1]).begin(gradient(0))
    pair[0].restore(states[0], others=[(pair[1], states[1])])
    assert pair[1].steps == 0
    with pytest.raises(ConfigError, match="none is under way"):
        pair[1].finish()
    assert np.array_equal(pair[1](gradient(3)), fresh(gradient(3)))


@pytest.mark.parametrize("how", ["save", "state"])
def test_an_error_of_the_thread_is_gone_with_its_state(how, tmp_path):
    method = EFSGD(TopK(k=0.1, values="f2"))
    agg, other = made(method), made(method)
    other.begin(gradient(0))
    other.save(tmp_path)
    agg.begin(np.full(SHAPE, 1e9))
    if how == "save":
        agg.load(tmp_path)
    else:
        agg.restore(other.state())
    assert np.array_equal(agg.finish(), other.finish())


def test_a_step_that_holds_coordinates_ends_before_these_are_back():
    slices = [slice(0, 7)]
    called, begun = made(), held_back(made())
    for k in range(3):
        g = gradient(k)
        called(g), begun(g)
        g[0] = 0.0
        with called.holding(slices):
            expected = called(g)
        with begun.holding(slices):
            begun.begin(g)
        assert np.array_equal(begun.finish()[1:], expected[1:])
    assert np.array_equal(begun(gradient(9)), called(gradient(9)))


def test_what_is_wrong_is_said():
    agg = made()
    with pytest.raises(ConfigError, match="none is under way"):
        agg.finish()
    agg.begin(gradient(0))
    for call in (agg, agg.begin):
        with pytest.raises(ConfigError, match=r"is under way: finish\(\) ends it"):
            call(gradient(1))
    assert agg.finish() is not None
    with pytest.raises(ConfigError, match="the shape"):
        agg.begin(np.zeros(3))
    with pytest.raises(ConfigError, match="needs the point"):
        agg.begin(lambda x: x)
    with pytest.raises(ConfigError, match="several points"):
        made(MARINA(RandK(k=2), p=0.5)).begin(gradient(0))
    early = made(server="sharded", blocks=2)
    early.overlap()
    with pytest.raises(ConfigError, match="during backward"):
        early.begin(gradient(0))
    agg.transport.any_thread = False
    with pytest.raises(ConfigError, match="MPI_THREAD_MULTIPLE"):
        agg.begin(gradient(0))
    agg.transport.any_thread = True
    agg.begin(gradient(1))
    agg.close()  # waits for the thread
    with pytest.raises(MpicompError, match="is closed"):
        agg.begin(gradient(2))
