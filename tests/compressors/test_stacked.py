"""Messages of many senders, added many in a call: to the bits as one by one, and refused as one by one."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, Quadratics, TopK
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors.blockwise import Blockwise
from mpicomp.compressors.support.stacked import FULL, SHORT
from mpicomp.kernels import definition
from mpicomp.keys import Key
from mpicomp.transports.exchange import LocalExchange
from mpicomp.transports.local import Local
from tests.support.backends import assert_same, compiled, only

KEY = Key(7, 3, None, 50)
BACKENDS = pytest.mark.parametrize("backend", [definition, compiled], ids=["numpy", "compiled"])


def messages_of(c, d, count, seed=0):
    """``count`` workers' messages, the workers neither from 0 on nor without gaps."""
    draw = np.random.default_rng(seed)
    return [(2 * i + 5, c.compress(draw.standard_normal(d), KEY.of(2 * i + 5))) for i in range(count)]


def in_one_buffer(messages):
    """The messages, each of which overwrites the one before it, as those from MPI do."""
    buffer = np.empty(max(len(m) for _, m in messages), np.uint8)
    for i, m in messages:
        buffer[:] = 0xA5
        buffer[: len(m)] = m
        yield i, buffer[: len(m)]


def one_by_one(c, messages, out):
    for i, m in messages:
        c.decompress_add(m, out, KEY.of(i), 1 / 3)


def is_set(c, d, message):
    try:
        c.decompress(message, d, KEY)
    except MessageError:
        return False
    return True


def no_set(c, d, message, seed=0):
    """The message with one bit flipped so that it holds no set of positions."""
    draw = np.random.default_rng(seed)
    while True:
        bad, bit = message.copy(), draw.integers(8 * (c.nbytes(d) - 4 * c.k))
        bad[bit // 8] ^= 1 << (bit % 8)
        if not is_set(c, d, bad):
            return bad


def add_all(C, messages, out, scale):
    """out += scale times the sum of the messages, as a server does it."""
    total = C.sum(out, KEY, scale)
    try:
        for i, message in messages:
            total.take(i, message)
    finally:
        total.flush()


SIZES = [
    (1000, 10),  # Elias-Fano
    (3281, 33),
    (1, 1),  # k = d
    (40, 40),
    (64, 8),
    (11, 2),  # raw
    (300, 40),  # a bitmap, and coded bitmaps
    (1000, 200),
    (1000, 930),  # the complement
    (300_000, 2100),  # messages that are long, with more than 2048 entries
]


@BACKENDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", ["f8", "f4", "f2", "bf16"])
@pytest.mark.parametrize(("d", "k"), SIZES)
def test_all_are_added_as_one_by_one(d, k, values, dtype, backend, monkeypatch):
    only(monkeypatch, backend)
    c, count = TopK(k, values), 2 if d > 10**5 else 7
    messages = messages_of(c, d, count)
    start = np.random.default_rng(1).standard_normal(d).astype(dtype)
    want, out, strided = start.copy(), start.copy(), np.repeat(start, 2)[::2]
    one_by_one(c, messages, want)
    add_all(c, in_one_buffer(messages), out, 1 / 3)
    assert_same(out, want)
    add_all(c, in_one_buffer(messages), strided, 1 / 3)
    assert_same(strided.copy(), want)


def test_more_than_a_stack_s():
    c, d = TopK(100), 5000
    messages = messages_of(c, d, 2 * FULL // c.nbytes(d) + 3)
    assert c.nbytes(d) < SHORT
    want, out = np.zeros(d), np.zeros(d)
    one_by_one(c, messages, want)
    add_all(c, in_one_buffer(messages), out, 1 / 3)
    assert_same(out, want)


@BACKENDS
def test_none_are_added(backend, monkeypatch):
    only(monkeypatch, backend)
    out = np.ones(100)
    add_all(TopK(3), iter([]), out, 1 / 3)
    assert (out == 1).all()


def test_sums_are_taken_in_worker_order():
    """Of 2^60, 1 and -2^60 the order shows in the sum."""
    c, d = TopK(1, "f8"), 50
    large, one = (c.compress(np.eye(1, d, 7)[0] * x, KEY) for x in (2.0**60, 1.0))
    less = c.compress(np.eye(1, d, 7)[0] * -(2.0**60), KEY)
    for order, sum_ in (((large, one, less), 0.0), ((large, less, one), 1.0)):
        out = np.zeros(d)
        add_all(c, enumerate(order), out, 1.0)
        assert out[7] == sum_


@BACKENDS
@pytest.mark.parametrize("bad", [0, 4, 11])
def test_a_bad_message_is_named_and_what_precedes_it_is_added(bad, backend, monkeypatch):
    only(monkeypatch, backend)
    c, d = TopK(10), 1000
    messages = messages_of(c, d, 12)
    want, out = np.zeros(d), np.zeros(d)
    one_by_one(c, messages[:bad], want)
    worker, message = messages[bad]
    messages[bad] = worker, no_set(c, d, message)
    with pytest.raises(MessageError) as alone:
        c.decompress_add(messages[bad][1], np.zeros(d), KEY.of(worker))
    with pytest.raises(MessageError) as refused:
        add_all(c, in_one_buffer(messages), out, 1 / 3)
    assert str(refused.value) == str(alone.value) and refused.value.worker == worker
    assert_same(out, want)


@pytest.mark.parametrize("cut", [-1, 1])
def test_a_message_of_another_length_ends_the_others(cut):
    c, d = TopK(10), 1000
    messages = messages_of(c, d, 6)
    want, out, taken = np.zeros(d), np.zeros(d), []
    one_by_one(c, messages[:3], want)
    worker, message = messages[3]
    messages[3] = worker, message[:-1] if cut < 0 else np.append(message, np.uint8(0))
    with pytest.raises(MessageError) as alone:
        c.decompress_add(messages[3][1], np.zeros(d), KEY.of(worker))
    with pytest.raises(MessageError) as refused:
        add_all(c, (taken.append(i) or (i, m) for i, m in messages), out, 1 / 3)
    assert str(refused.value) == str(alone.value) and "TopK" in str(alone.value)
    assert refused.value.worker is None and taken[-1] == worker
    assert_same(out, want)


def test_the_first_error_is_raised_whatever_comes_after_it():
    """A worker that failed, and one whose message is short: a bad message before them comes first."""
    c, d = TopK(10), 1000
    messages = messages_of(c, d, 6)

    def until_one_fails():
        yield from messages[:5]
        raise DivergedError("worker 15")

    want, out = np.zeros(d), np.zeros(d)
    one_by_one(c, messages[:5], want)
    with pytest.raises(DivergedError, match="worker 15"):
        add_all(c, until_one_fails(), out, 1 / 3)
    assert_same(out, want)
    messages[2] = messages[2][0], no_set(c, d, messages[2][1])
    messages[4] = messages[4][0], messages[4][1][:-1]
    for later in (until_one_fails(), messages):
        with pytest.raises(MessageError, match="increasing indices") as refused:
            add_all(c, later, np.zeros(d), 1 / 3)
        assert refused.value.worker == messages[2][0]


def test_a_block_s_messages_are_under_the_key_of_the_block():
    """A sparsifier that draws, too, which is added one by one."""
    d = 90
    blocks = Blocks.cut(Parts((Part("x", (d,)),)), 3)
    for plain in (TopK(4), mpicomp.RandK(4)):
        whole = Blockwise(plain, blocks)
        messages = messages_of(whole, d, 5)
        want, out = np.zeros(d), np.zeros(d)
        one_by_one(whole, messages, want)
        add_all(whole, messages, out, 1 / 3)
        assert_same(out, want)
        block = np.zeros(30)
        add_all(whole.of_block(1), [(i, m.of_blocks[1]) for i, m in messages], block, 1 / 3)
        assert_same(block, want[30:60])


# --- in a run ---


class OneBad(Local):
    """The message of worker 2 in round 3, or its block 1, is no message."""

    def __init__(self, n, spoil):
        super().__init__(n)
        self.spoil, self.round = spoil, 0

    @contextmanager
    def gather(self, senders, take):
        yield lambda i, m: take(i, self.spoil(m) if i == 2 and self.round == 3 else m)
        self.round += 1

    def exchange(self, blocks):
        outer = self

        class Spoilt(LocalExchange):
            @contextmanager
            def receive(self, block, senders):
                with super().receive(block, senders) as received:
                    yield (
                        (i, outer.spoil(m) if (i, block, outer.round) == (2, 1, 3) else m)
                        for i, m in received
                    )
                outer.round += block == 0

        return Spoilt(blocks, self.hosted, lambda: self.stop)


@pytest.mark.parametrize("server", [{}, {"server": "sharded", "blocks": 3}], ids=["root", "sharded"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda m: np.full_like(m, 0xFF), "increasing indices"),
        (lambda m: m[:-1], "truncated"),
        (lambda m: np.append(m, m[:1]), "too long"),
    ],
    ids=["no set", "truncated", "too long"],
)
def test_a_run_names_the_worker(server, spoil, said):
    problem = Quadratics(d=300, noise=0.3, lam=0.1)
    with pytest.raises(MessageError, match=rf"round 3: worker 2: .*{said}"):
        mpicomp.run(
            EF21(TopK(3), gamma=0.1), problem, workers=5, rounds=6, transport=OneBad(5, spoil), **server
        )
