"""Messages: records of payloads and numbers as bytes, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp import DCGD, EF21, GD
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs import messages
from mpicomp.compressors import Identity, RandK, TopK
from mpicomp.transports.local import Local
from tests.support.running import N, run


@dataclass
class One:
    m: Bytes


@dataclass
class Two:
    a: Bytes
    b: Bytes


@dataclass
class Mixed:
    """Floats go first whatever the order of the fields."""

    first: Bytes
    rho: float
    second: Bytes
    sigma: float
    third: Bytes


@dataclass
class Numbers:
    rho: float
    sigma: float


@dataclass
class Shorts:
    sigma: messages.Short
    rho: float
    count: messages.Natural
    tau: messages.Short
    m: Bytes


payload = st.binary(max_size=400).map(lambda b: np.frombuffer(b, np.uint8))
number = st.floats(allow_nan=False)
records = st.one_of(
    st.builds(One, payload),
    st.builds(Two, payload, payload),
    st.builds(Mixed, payload, number, payload, number, payload),
    st.builds(Numbers, number, number),
    st.builds(
        Shorts,
        number.map(messages.short),
        number,
        st.integers(0, 2**63 - 1),
        number.map(messages.short),
        payload,
    ),
)


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


@given(records)
def test_records_survive_the_wire(record):
    assert same(messages.decode(type(record), messages.encode(record)), record)


def test_a_single_payload_is_the_message_itself():
    m = np.arange(1000, dtype=np.uint32).view(np.uint8)
    assert messages.encode(One(m)) is m
    assert np.shares_memory(messages.decode(One, m).m, m)


@pytest.mark.parametrize(("length", "header"), [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3)])
def test_each_earlier_payload_costs_its_length(length, header):
    """In LEB128; a float has 8 bytes."""
    a, b = np.full(length, 7, np.uint8), np.full(11, 9, np.uint8)
    assert len(messages.encode(Two(a, b))) == header + length + 11
    assert len(messages.encode(Mixed(a, 0.5, b, 1.5, b))) == 16 + header + length + 1 + 22
    assert same(messages.decode(Two, messages.encode(Two(a, b))), Two(a, b))


@pytest.mark.parametrize(
    ("record", "fixed"),
    [
        (Two(np.zeros(300, np.uint8), np.zeros(5, np.uint8)), 302),
        (Mixed(np.full(3, 255, np.uint8), 1.0, np.full(200, 255, np.uint8), 2.0, np.zeros(5, np.uint8)), 222),
        (Numbers(1.0, 2.0), 16),
        (Shorts(messages.short(0.3), 2.0, 300, messages.short(-7.0), np.zeros(9, np.uint8)), 14),
    ],
    ids=["two", "mixed", "numbers", "shorts"],
)
def test_a_truncated_record_is_refused(record, fixed):
    """Anywhere before its last payload, whose length only its compressor knows."""
    message = messages.encode(record)
    assert same(messages.decode(type(record), message), record)
    for end in range(fixed):
        with pytest.raises(MessageError, match="truncated"):
            messages.decode(type(record), message[:end])


def test_a_record_of_numbers_that_is_too_long_is_refused():
    with pytest.raises(MessageError, match="too long"):
        messages.decode(Numbers, np.zeros(17, np.uint8))


def test_a_length_without_end_is_refused():
    with pytest.raises(MessageError):
        messages.decode(Two, np.full(30, 0xFF, np.uint8))
    with pytest.raises(MessageError):
        messages.decode(Two, np.array([*[0xFF] * 8, 0x7F, 0, 0], np.uint8))


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: 1e-300 < abs(x) < 1e308))
def test_a_short_number_is_the_nearest_of_its_kind(x):
    """Of the numbers ±m 2^e with 16 <= m < 32, all of which are kept, no other is nearer."""
    e = np.frexp(x)[1] - 5
    grid = np.copysign(np.ldexp(np.arange(16.0, 33.0), e), x)
    assert [messages.short(v) for v in grid] == list(grid)
    assert abs(messages.short(x) - x) == np.abs(grid - x).min() <= abs(x) / 32


def test_short_numbers_at_the_edges():
    assert [messages.short(x) for x in (0.0, 5e-324, 33 / 32, -33 / 32)] == [0, 0, 17 / 16, -17 / 16]
    assert [messages.short(x) for x in (np.inf, -np.inf, 1.79e308)] == [np.inf, -np.inf, np.inf]
    m = np.zeros(3, np.uint8)
    for x in (messages.short(np.nan), messages.short(-1e-5), messages.short(np.inf)):
        message = messages.encode(Shorts(x, 2.5, 7, x, m))
        assert len(message) == 2 + 8 + 1 + 2 + 3
        assert np.array_equal(messages.decode(Shorts, message).tau, x, equal_nan=True)


MISTAKES = {  # what compress returns instead, and what is said of it
    "floats": (lambda m: m.view(np.float32), r"returned an array of shape \(13,\) and type float32"),
    "a matrix": (lambda m: m[None], r"returned an array of shape \(1, 52\) and type uint8"),
    "every second byte": (
        lambda m: np.repeat(m, 2)[::2],
        r"returned an array of shape \(52,\) and type uint8; expected a contiguous",
    ),
    "a string": (
        lambda m: m.tobytes(),
        "Careless.compress returned a bytes; expected a contiguous vector of uint8",
    ),
    "nothing": (lambda m: None, "Careless.compress returned a NoneType; expected a contiguous vector"),
}


@dataclass(frozen=True)
class Careless(Identity):
    """A compressor whose messages are not what they should be."""

    mistake: str = ""

    def compress(self, x, key):
        return MISTAKES[self.mistake][0](super().compress(x, key))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_message_that_is_not_bytes_is_refused_not_counted(mistake):
    """Nothing else has a length that is the number of bytes sent."""
    with pytest.raises(ConfigError, match=MISTAKES[mistake][1]):
        run(DCGD(Careless(mistake=mistake), 0.1))


@pytest.mark.parametrize("sent", [np.zeros(3), Numbers, 7, None], ids=["an array", "a class", "int", "None"])
def test_what_is_no_record_is_refused(sent):
    with pytest.raises(ConfigError, match="what is sent is a record"):
        messages.encode(sent)


def test_a_record_of_something_else_is_refused():
    @dataclass
    class Counted:
        rounds: int

    with pytest.raises(ConfigError, match="Counted was to be sent; what is sent is a record"):
        messages.encode(Counted(3))


@pytest.mark.parametrize("damage", [lambda m: m[:-1], lambda m: np.append(m, m[:1])], ids=["short", "long"])
@pytest.mark.parametrize(
    "method", [GD(0.1), DCGD(RandK(5), 0.1), EF21(TopK(3), 0.1)], ids=lambda m: type(m).__name__
)
def test_a_message_damaged_on_its_way_is_refused(method, damage):
    """The compressor that decodes the last payload checks its length."""

    class Noisy(Local):
        def gather(self, senders, take):
            return super().gather(senders, lambda i, m: take(i, damage(m) if i == 2 else m))

    with pytest.raises(MessageError):
        run(method, transport=Noisy(N))
