"""Messages forwarded in place of their mean: the same iterates, and in each round the fewer bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp import (
    ADIANA,
    DCGD,
    DIANA,
    EF21,
    EF21SGDM,
    EFSGD,
    MARINA,
    Aggregator,
    ARCTopK,
    Bernoulli,
    DCGDPlus,
    DoubleSqueeze,
    EF21Plus,
    HardThreshold,
    Identity,
    Layered,
    Lossless,
    Natural,
    PermK,
    PerturbedSGD,
    QuantizedTopK,
    RandK,
    Shrunk,
    TopK,
)
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.base.parts import Parts
from mpicomp.compressors.importance import Importance
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.forwarding import EQUAL, MIXED, is_forwarded, joined, split
from mpicomp.problems import Quadratics
from mpicomp.text.config import parse_method, to_text
from tests.support.method_cases import METHOD_CASES
from tests.support.running import interrupted, outcome, run
from tests.support.trajectories import Entropy, start

PROBLEM, N = Quadratics(d=60, noise=0.5, lam=0.1), 5
APART = Entropy(d=60)  # whose workers choose different coordinates
FORWARD = Lossless(forward=True)


def forwarding(method, forward: bool = True, values: str = "exact"):
    return replace(method, down=Lossless(values, forward))


def may(method) -> bool:
    return method.may_forward and "down" in method.__dataclass_fields__


SPARSE = [
    EF21(TopK(2), gamma=0.1),
    EF21SGDM(QuantizedTopK(3, Natural()), gamma=0.1),
    DIANA(RandK(2), gamma=0.05, alpha=0.3),
    DCGD(Bernoulli(0.05), gamma=0.05),
    MARINA(RandK(2), gamma=0.05, p=0.3),
    EFSGD(HardThreshold(0.3), gamma=0.1),
    EFSGD(TopK(2), gamma=0.1, decay=0.9, average="senders", clip_norm=True),
    EFSGD(Layered({"*": HardThreshold(0.2)}), gamma=0.1, average="senders"),
]


# --- the same iterates ---

SUPPORTING = [case.other for case in METHOD_CASES if may(case.other)]


@pytest.mark.parametrize("how", [{}, {"server": "sharded", "blocks": 3}], ids=["root", "sharded"])
@pytest.mark.parametrize("method", [*SUPPORTING, *SPARSE], ids=repr)
def test_iterates_are_the_same_and_bytes_are_no_more(method, how):
    problem = APART if method in SPARSE else PROBLEM
    plain, forward = (
        mpicomp.run(forwarding(method, f), problem, workers=N, rounds=12, seed=4, **how)
        for f in (False, True)
    )
    assert plain.iterates_sha256 == forward.iterates_sha256
    assert (plain.ledger.up == forward.ledger.up).all()
    assert (forward.ledger.down <= plain.ledger.down).all()
    assert forward.ledger.paper_bits_up == plain.ledger.paper_bits_up
    assert method not in SPARSE or forward.ledger.down_bytes < plain.ledger.down_bytes


def test_which_methods_may_forward():
    names = {type(m).__name__ for m in SUPPORTING}
    assert names == {
        *("DCGD", "DIANA", "VRDIANA", "MARINA", "VRMARINA", "PPMARINA", "EF14", "EFSGD", "EF21", "EF21SGDM"),
        *("EF21SGD2M", "EF21LMO", "EControl", "DASHA", "DASHAPAGE", "DASHAMVR", "LoCoDL"),
    }
    assert all(isinstance(m, AveragingMethod) for m in SUPPORTING)


@pytest.mark.parametrize("values", ["f8", "f4", "f2", "bf16"])
@pytest.mark.parametrize("method", SPARSE[:2], ids=repr)
def test_rounding_is_that_of_the_mean(method, values):
    runs = [
        mpicomp.run(forwarding(method, forward, values), APART, workers=N, rounds=12, seed=4)
        for forward in (False, True)
    ]
    assert runs[0].iterates_sha256 == runs[1].iterates_sha256


def test_an_aggregator_has_the_same_estimate():
    rng = np.random.default_rng(2)
    gradients = {i: rng.normal(size=60) for i in range(N)}
    found, down = [], []
    for forward in (False, True):
        with Aggregator(forwarding(SPARSE[0], forward), like=np.zeros(60), workers=N) as agg:
            found.append([agg(gradients).tobytes() for _ in range(3)])
            down.append(agg.ledger.down_bytes)
    assert found[0] == found[1] and down[1] < down[0]


@pytest.mark.parametrize("seed", range(2))
def test_resumed_runs_are_the_uninterrupted_one(seed, tmp_path):
    method = EF21SGDM(TopK(2), gamma=0.05, eta=0.5, down=FORWARD)
    whole = run(method, rounds=40)
    interrupted(7 + 12 * seed, method, out=tmp_path / "run", checkpoint_every=3)
    last = run(method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    assert outcome(last) == outcome(whole)


# --- the fewer bytes ---


def by_round(method, rounds: int = 12) -> list[tuple[np.ndarray, int, int, int]]:
    """Of each round: bytes up of each worker and down to each, and what the papers charge for both."""
    loop, rows = start(method, APART, N, seed=4), []
    before = np.zeros(N, int), 0, 0, 0
    for k in range(rounds):
        loop.step(k)
        book = loop.ledger
        now = book.up.copy(), int(book.down[0]), book.paper_bits_up, book.paper_bits_down // N
        rows.append(tuple(b - a for a, b in zip(before, now, strict=True)))
        before = now
    return rows


@pytest.mark.parametrize("method", SPARSE, ids=repr)
def test_each_round_sends_the_shorter_of_the_two(method):
    """By hand: a byte, a byte for each length below 128 where lengths differ, and the messages."""
    chosen = set()
    for plain, forward in zip(*(by_round(forwarding(method, f)) for f in (False, True)), strict=True):
        up = plain[0].tolist()
        lengths = 0 if len(set(up)) == 1 else sum(1 if u < 128 else 2 for u in up[:-1])
        messages = 1 + lengths + sum(up)
        assert forward[1] == min(plain[1], messages)
        forwards = messages < plain[1]
        assert forward[3] == (plain[2] if forwards else plain[3])
        chosen.add(forwards)
    assert True in chosen


def test_dense_rounds_are_not_forwarded():
    """MARINA's coin decides, round by round."""
    rows = by_round(forwarding(MARINA(RandK(2), gamma=0.05, p=0.4)), 20)
    sizes = {(int(up[0]) == 240, down == 1 + up.sum()) for up, down, *_ in rows}
    assert sizes == {(True, False), (False, True)}


def server(method, vectors: np.ndarray) -> np.ndarray:
    """The broadcast for the workers' vectors; each message is overwritten once it has been taken."""
    n, d = vectors.shape
    key, method = Key(0, 3, None, n), method.bound(Parts.single(d))
    step = method.server_step(None, method.replica(np.zeros(d)), key)
    for i, x in enumerate(vectors):
        message = method.uplink(key).compress(x, key.of(i))
        step.take(key.of(i), Message(message))
        message[:] = 0
    return step.close().m


def test_messages_are_kept_beyond_the_call_that_takes_them():
    vectors = np.random.default_rng(1).normal(size=(N, 60))
    method = forwarding(SPARSE[0])
    C, broadcast = method.C, server(method, vectors)
    sent = [C.compress(x, Key(0, 3, i, N)) for i, x in enumerate(vectors)]
    assert broadcast.tobytes() == joined(sent).tobytes()


def test_where_both_are_as_long_the_mean_is_sent():
    """Five blocks of PermK make up a dense float32 vector."""
    vectors = np.arange(300.0).reshape(N, 60)
    mean = server(forwarding(DCGD(PermK(), gamma=0.1)), vectors)
    assert len(mean) == 1 + 4 * 60 and not is_forwarded(mean)


def test_lengths_are_not_sent_where_all_are_the_same():
    same = [np.arange(k, k + 4, dtype=np.uint8) for k in range(3)]
    assert joined(same).tobytes() == bytes([EQUAL, 0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5])
    mixed = [*same[:1], np.zeros(200, np.uint8), same[2][:1]]
    assert joined(mixed).tobytes() == bytes([MIXED, 4, 200, 1, 0, 1, 2, 3]) + bytes(200) + bytes([2])
    for messages in (same, mixed, same[:1], [np.zeros(0, np.uint8)] * 3):
        again = split(joined(messages), len(messages))
        assert is_forwarded(joined(messages))
        assert [m.tobytes() for m in again] == [m.tobytes() for m in messages]


# --- messages that can be none ---


def opened(method, broadcast: np.ndarray):
    method = method.bound(Parts.single(60))
    return method.received(Message(broadcast), method.replica(np.zeros(60)), Key(0, 3, None, N))


@pytest.mark.parametrize("method", [forwarding(SPARSE[0]), forwarding(SPARSE[5])], ids=repr)
def test_malformed_broadcasts_are_refused(method):
    key = Key(0, 3, None, N)
    x = np.random.default_rng(1).normal(size=(N, 60))
    messages = [method.C.compress(x[i], key.of(i)) for i in range(N)]
    whole = joined(messages)
    mean = Lossless().compress(np.mean([method.C.decompress(m, 60, key) for m in messages], axis=0), key)
    assert np.allclose(
        *(Lossless().decompress(m, 60, key) for m in (mean, opened(method, whole).m)), atol=1e-7
    )
    head = bytes(whole[:1])
    bad = {
        "nothing but the layout": whole[:1],
        "truncated": whole[:-1],
        "one message less": joined(messages[:-1]),
        "one message more": joined([*messages, messages[0]]),
        "a trailing byte": np.append(whole, np.uint8(0)),
        "lengths beyond the buffer": np.frombuffer(bytes([MIXED, 3, 250, 1, 3, 3]) + bytes(20), np.uint8),
        "a length that does not end": np.frombuffer(bytes([MIXED]) + bytes([255] * 20), np.uint8),
        "another layout": np.append(np.uint8(10), whole[1:]),
        "nothing": whole[:0],
    }
    with pytest.raises(MessageError, match="it is truncated"):
        split(bad["lengths beyond the buffer"], N)
    for name, broadcast in bad.items():
        with pytest.raises(MessageError):
            method.down.decompress(opened(method, broadcast).m, 60, key)
            pytest.fail(f"{name} {head}")


def test_forwarded_messages_that_are_not_finite_are_refused():
    bad = np.full(8, 0xFF, np.uint8)  # two NaN
    for method in (DCGD(RandK(2), gamma=0.1), EFSGD(Shrunk(RandK(2)), gamma=0.1, clip_norm=True)):
        with pytest.raises(MessageError, match="forwarded messages"):
            opened(forwarding(method), joined([bad] * N))


# --- what is refused, and text ---


def test_only_the_mean_of_the_messages_can_be_forwarded():
    makes = [
        lambda: DoubleSqueeze(TopK(2), FORWARD),
        lambda: EF21Plus(TopK(2), down=FORWARD),
        lambda: PerturbedSGD(TopK(2), eta=0.1, r=0.1, down=FORWARD),
        lambda: ADIANA(RandK(2), down=FORWARD),
        lambda: DCGDPlus(Importance(0.3), down=FORWARD),
        lambda: ARCTopK(2, r=1, width=3, down=FORWARD),
        lambda: DCGD(FORWARD),
        lambda: EF21(Layered({"*": FORWARD})),
        lambda: EF21(Shrunk(FORWARD)),
    ]
    for make in makes:
        with pytest.raises(ConfigError, match=r"forward=True.*leave forward out"):
            make()
    with pytest.raises(ConfigError, match=r"allreduce.*leave forward out"):
        mpicomp.run(
            DCGD(Identity(), gamma=0.1, down=FORWARD), PROBLEM, workers=N, rounds=1, server="allreduce"
        )
    for value in (1, "true", None):
        with pytest.raises(ConfigError, match=r"forward=.*True or False"):
            Lossless(forward=value)


def test_the_text_and_the_object_are_the_same():
    method = EF21(TopK(k=0.01), gamma=0.1, down=FORWARD)
    assert to_text(method) == "ef21(C=topk(k=0.01), gamma=0.1, down=lossless(forward=True))"
    assert parse_method(to_text(method)) == method
    assert repr(Lossless()) == "Lossless(values='exact')" and eval(repr(FORWARD)) == FORWARD
