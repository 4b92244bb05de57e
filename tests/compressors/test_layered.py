"""Layered: which compressor a part gets, its kind, its constants and its bytes.

What every compressor promises: conformance.py.  "exact" is bit for bit.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.base.parts import Part, Parts
from mpicomp.codecs.varint import varint
from mpicomp.compressors import (
    Absolute,
    Bernoulli,
    Contractive,
    HardThreshold,
    Identity,
    Importance,
    Layered,
    Lazy,
    Lossless,
    Natural,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    RankR,
    Shrunk,
    TopK,
    Unbiased,
)
from mpicomp.keys import Key
from tests.support.sampling import KEY, apply

PARTS = Parts(
    (
        Part("conv1.weight", (8, 3, 3, 3)),
        Part("conv1.bias", (8,)),
        Part("fc.weight", (10, 72)),
        Part("fc.bias", (10,)),
        Part("scale", ()),
    )
)
X = np.random.default_rng(5).normal(size=PARTS.size)


def chosen(c: Layered, parts: Parts = PARTS) -> dict:
    return {m.name: m.C for m in c.bound(parts).members(parts.size)}


# --- parts ---


def test_parts_lie_one_after_the_other():
    assert PARTS.size == 216 + 8 + 720 + 10 + 1
    assert len(PARTS) == 5
    ends = [0, 216, 224, 944, 954, 955]
    assert [(part.name, where) for part, where in PARTS] == [
        (part.name, slice(start, stop))
        for part, start, stop in zip(PARTS.parts, ends[:-1], ends[1:], strict=True)
    ]
    assert Parts.single(7) == Parts((Part("x", (7,)),))
    assert (
        str(PARTS)
        == "conv1.weight (8, 3, 3, 3), conv1.bias (8,), fc.weight (10, 72), fc.bias (10,), scale ()"
    )


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Part("", (3,)), "named ''; allowed: a text that is not empty"),
        (lambda: Part(3, (3,)), "named 3; allowed: a text"),
        (lambda: Part("w", (3, 0)), r"'w' has the shape \(3, 0\); allowed: a tuple of positive integers"),
        (lambda: Part("w", (True,)), "allowed: a tuple of positive integers"),
        (lambda: Part("w", [3, 2]), r"\[3, 2\]; allowed: a tuple of positive integers"),
        (lambda: Part("w", 3), "shape 3; allowed: a tuple of positive integers"),
        (lambda: Parts(()), "a vector without parts"),
        (lambda: Parts((Part("w", (3,)), Part("w", (4,)))), "two parts are named 'w'"),
        (lambda: Parts([Part("w", (3,))]), "allowed: a tuple of Part"),
    ],
)
def test_parts_that_are_none_are_refused(build, match):
    with pytest.raises(ConfigError, match=match):
        build()


# --- rules ---


def test_the_first_pattern_that_matches_decides():
    c = Layered({"*.bias": Identity(), "conv*": TopK(0.05)}, default=RankR(4))
    assert chosen(c) == {
        "conv1.weight": TopK(0.05),
        "conv1.bias": Identity(),
        "fc.weight": RankR(4, rows=10),
        "fc.bias": Identity(),
        "scale": RankR(4, rows=1),
    }
    swapped = Layered({"conv*": TopK(0.05), "*.bias": Identity()}, default=RankR(4))
    assert chosen(swapped)["conv1.bias"] == TopK(0.05)
    assert swapped != c


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("ndim<2", ["conv1.bias", "fc.bias", "scale"]),
        ("ndim<=1", ["conv1.bias", "fc.bias", "scale"]),
        ("ndim == 0", ["scale"]),
        ("ndim>= 2", ["conv1.weight", "fc.weight"]),
        ("ndim >2", ["conv1.weight"]),
        ("size<2", ["scale"]),
        ("size > 1", ["conv1.weight", "conv1.bias", "fc.weight", "fc.bias"]),
    ],
)
def test_a_condition_on_the_axes(condition, names):
    found = chosen(Layered({condition: Natural()}, default=Identity()))
    assert [name for name, C in found.items() if C == Natural()] == names


def test_names_are_matched_in_the_case_in_which_they_are_written():
    with pytest.raises(ConfigError, match="'CONV\\*' matches no part"):
        Layered({"CONV*": TopK(1)}, TopK(2)).bound(PARTS)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Layered({}), "neither rules nor a default"),
        (
            lambda: Layered({"w": RandK(2), "b": TopK(1)}),
            r"RandK.* is unbiased, TopK.* is contractive; allowed",
        ),
        (
            lambda: Layered({"b": Identity()}, HardThreshold(1.0)),
            "is unbiased and contractive, HardThreshold",
        ),
        (lambda: Layered({"w": 3}), r"rules=\{'w': 3\}; allowed: a dict from patterns to compressors"),
        (lambda: Layered({3: TopK(1)}), "allowed: a dict from patterns"),
        (lambda: Layered(TopK(1)), "allowed: a dict from patterns"),
        (lambda: Layered((TopK(1),)), "allowed: a dict from patterns"),
        (lambda: Quantized(RandK(2), Layered({}, Natural())), "Q=Layered.*allowed: an unbiased quantiser"),
        (lambda: QuantizedTopK(2, Layered({}, Natural())), "Q=Layered.*allowed: an unbiased quantiser"),
        (lambda: Shrunk(Layered({}, TopK(2))), "U=Layered.*allowed: an unbiased compressor"),
    ],
)
def test_a_wrong_configuration_is_refused_with_what_is_allowed(build, match):
    with pytest.raises(ConfigError, match=match):
        build()


@pytest.mark.parametrize(
    ("c", "match"),
    [
        (
            Layered({"conv2*": TopK(1)}, TopK(2)),
            r"'conv2\*' matches no part; the parts are conv1.weight \(8, 3",
        ),
        (Layered({"ndim>4": TopK(1)}, TopK(2)), "'ndim>4' matches no part"),
        (
            Layered({"conv*": TopK(1)}),
            r"no pattern matches the part fc.weight \(10, 72\).*add a pattern, or def",
        ),
        (Layered({"conv*": TopK(1)}, TopK(9)), r"part scale \(\): k=9 exceeds the dimension d=1"),
        (Layered({}, RankR(2, rows=4)), r"part fc.bias \(10,\): rows=4 does not divide"),
    ],
)
def test_what_does_not_fit_the_parts_is_refused_when_it_is_bound(c, match):
    with pytest.raises(ConfigError, match=match):
        c.bound(PARTS)


def test_names_that_would_share_draws_are_refused():
    """The values of "w", quantised, and the part "w/quantized" were rounded by the same random numbers."""
    c = Layered({"w": Quantized(RandK(k=2), Natural())}, default=Natural())
    with pytest.raises(ConfigError, match=r"the parts 'w' and 'w/quantized' may have the same draws; rename"):
        c.bound(Parts((Part("w/quantized", (4,)), Part("w", (4,)))))
    c.bound(Parts((Part("w/bias", (4,)), Part("w", (4,)))))


def test_a_layered_that_is_not_bound_says_what_to_do():
    c = Layered({"*.bias": Identity()}, TopK(0.1))
    for use in (lambda: c.compress(X, KEY), lambda: c.nbytes(X.size), lambda: c.alpha(X.size, 1)):
        with pytest.raises(ConfigError, match=r"does not know the parts.*Layered\(..\).bound\(parts\)"):
            use()
    with pytest.raises(ConfigError, match=r"parts of 955 entries, not of the dimension d=7; bind it.*scale"):
        c.bound(PARTS).compress(X[:7], KEY)


def test_two_that_are_bound_differently_differ():
    c = Layered({"ndim>=1": TopK(2)}, TopK(1))
    here, there = c.bound(PARTS), c.bound(Parts.single(955))
    assert here != there != c != here
    assert repr(here) == repr(there) == repr(c)
    assert here == c.bound(PARTS)
    assert hash(here) == hash(c.bound(PARTS))
    assert here.bound(Parts.single(955)) == there
    for each in (c, here):
        again = pickle.loads(pickle.dumps(each))
        assert again == each
        assert type(again) is type(each)
    assert replace(here, default=TopK(1)) == here


def test_pairs_and_dicts_are_the_same_rules():
    pairs = Layered((("*.bias", Identity()), ("conv*", TopK(0.05))), RankR(4))
    assert pairs == Layered({"*.bias": Identity(), "conv*": TopK(0.05)}, RankR(4))
    assert eval(repr(pairs), globals()) == pairs


# --- kinds and constants ---


@pytest.mark.parametrize(
    ("c", "kinds"),
    [
        (Layered({"ndim<2": Identity()}, RandK(2)), [Unbiased]),
        (Layered({"ndim<2": Identity()}, TopK(0.1)), [Contractive]),
        (Layered({"ndim<2": Identity()}, Lossless()), [Unbiased, Contractive]),
        (Layered({"ndim<2": HardThreshold(0.1)}, HardThreshold(1.0)), [Absolute]),
        (Layered({"ndim<2": Layered({}, Identity())}, Layered({}, Shrunk(RandK(0.5)))), [Contractive]),
    ],
    ids=str,
)
def test_the_kinds_are_the_common_kinds_of_the_compressors(c, kinds):
    assert isinstance(c, Layered)
    for one in (c, c.bound(PARTS)):
        assert [kind for kind in (Unbiased, Contractive, Absolute) if isinstance(one, kind)] == kinds


def test_the_constants_are_the_worst_of_the_parts_or_their_sum():
    d, n = PARTS.size, 4
    q = Layered({"conv*": RandK(0.25), "*.bias": PermK()}, default=Natural()).bound(PARTS)
    assert q.omega(d, n) == max(RandK(0.25).omega(216, n), PermK().omega(10, n), 1 / 8)
    assert q.ab(d, n) == (1.0, 0.0)  # A is PermK's, B that of the others
    everywhere = Layered({}, PermK()).bound(Parts((Part("w", (3, 4)), Part("b", (6,)))))
    assert everywhere.ab(18, 2) == PermK().ab(12, 2) == PermK().ab(6, 2) == (1.0, 1.0)
    top = Layered({"conv*": TopK(2)}, default=RankR(2)).bound(PARTS)
    assert top.alpha(d, n) == TopK(2).alpha(216, n) == 2 / 216
    hard = Layered({"*.bias": HardThreshold(0.5)}, default=HardThreshold(2.0)).bound(PARTS)
    assert hard.delta(d) == 0.25 * 10 + 4.0 * (720 + 1) + 0.25 * 8 + 4.0 * 216


# --- values and bytes ---


def test_the_value_is_each_part_s_own_value_under_its_own_key():
    """Exact.  So parts of one shape draw independently, and a shared draw of a part is equal on all ranks."""
    c = Layered({"fc.*": RandK(3), "conv1.weight": Lazy(0.5)}, default=RandK(1, mask="shared")).bound(PARTS)
    for t in range(6):
        key = Key(1, t, 2, 4)
        value = apply(c, X, key)
        for m, (part, where) in zip(c.members(X.size), PARTS, strict=True):
            assert np.array_equal(value[where], apply(m.C, X[where], key.named(part.name)))
    twins = Parts((Part("a", (64,)), Part("b", (64,))))
    ones = Layered({}, RandK(8)).bound(twins)
    first, second = np.split(apply(ones, np.ones(128), KEY), 2)
    assert not np.array_equal(first, second)
    shared = Layered({}, RandK(8, mask="shared")).bound(twins)
    assert len({apply(shared, np.ones(128), KEY.of(i)).tobytes() for i in range(3)}) == 1


def test_the_difference_is_left_to_the_parts():
    c = Layered({"*.bias": Identity("f8")}, default=RandK(0.5, values="f8")).bound(PARTS)
    Y = X[::-1].copy()
    assert np.array_equal(c.compress_difference(X, Y, KEY), c.compress(X - Y, KEY))


@pytest.mark.parametrize("last", [Identity(), Lossless()], ids=str)
def test_only_messages_of_unknown_size_have_a_length_but_not_the_last(last):
    parts = Parts((Part("s", (300,)), Part("k", (5,)), Part("t", (4,)), Part("z", (3,))))
    c = Layered({"s": Lossless(), "k": TopK(2), "t": Lossless()}, last).bound(parts)
    x = np.random.default_rng(1).normal(size=parts.size)
    pieces = [m.C.compress(x[m.where], KEY.named(m.name)) for m in c.members(x.size)]
    s, k, t, z = (piece.tobytes() for piece in pieces)
    assert len(varint(len(s))) == 2
    message = c.compress(x, KEY)
    assert message.tobytes() == varint(len(s)) + s + k + varint(len(t)) + t + z
    assert c.nbytes(x.size) is None
    fixed = Layered({"k": TopK(2)}, Identity()).bound(parts)
    assert fixed.nbytes(x.size) == len(fixed.compress(x, KEY)) == TopK(2).nbytes(5) + 4 * 307
    counted = [m.C.paper_bits(p, m.size, KEY) for m, p in zip(c.members(x.size), pieces, strict=True)]
    assert c.paper_bits(message, x.size, KEY) == sum(counted)


def test_one_part_alone_has_its_own_message():
    for C in (TopK(0.1), Lossless(), RandK(0.1)):
        single = Layered({}, C).bound(Parts.single(100))
        assert np.array_equal(single.compress(X[:100], KEY), C.compress(X[:100], KEY.named("x")))


def test_the_mean_size_counts_lengths():
    parts = Parts((Part("a", (1000,)), Part("b", (1000,))))
    c = Layered({}, Bernoulli(0.5)).bound(parts)
    assert c.mean_nbytes(2000, 3) == 2 * 2000 + 2  # a length of 2000 bytes takes 2


def test_a_length_beyond_the_message_is_refused():
    parts = Parts((Part("a", (4,)), Part("b", (4,))))
    c = Layered({}, Lossless()).bound(parts)
    message = c.compress(np.arange(1.0, 9.0), KEY)
    for length in (len(message), 127):
        with pytest.raises(MessageError, match="truncated in part 'a'"):
            c.decompress(np.concatenate([np.array([length], np.uint8), message[1:]]), 8, KEY)
    with pytest.raises(MessageError, match="inside a length"):
        c.decompress(np.full(20, 255, np.uint8), 8, KEY)


def test_binding_reaches_through_what_hands_on_whole_vectors():
    c = Shrunk(Layered({"*.bias": Identity()}, RandK(0.5)))
    assert c.bound(PARTS) == Shrunk(c.U.bound(PARTS))
    assert apply(c.bound(PARTS), X).shape == X.shape
    for same in (TopK(3), Importance(3), Quantized(RandK(0.5), Natural())):
        assert same.bound(PARTS) is same


# --- RankR ---


def test_rankr_takes_its_rows_from_a_single_part():
    for shape, rows in [((6, 4), 6), ((6, 2, 2), 6), ((24,), 1), ((), 1)]:
        c = RankR(2).bound(Parts((Part("w", shape),)))
        assert c == RankR(2, rows=rows)
    assert RankR(2, 3).bound(PARTS) == RankR(2, 3)
    x = X[:24]
    assert np.array_equal(apply(RankR(2).bound(Parts.single(24)), x), x.astype(np.float32))
    with pytest.raises(
        ConfigError, match=r"Give rows, or take Layered\(\{\}, default=RankR\(r=2, .*'f2'\)\)"
    ):
        RankR(2, values="f2").bound(PARTS)
    for use in (
        lambda: RankR(2).compress(x, KEY),
        lambda: RankR(2).nbytes(24),
        lambda: RankR(2).alpha(24, 1),
    ):
        with pytest.raises(ConfigError, match="does not know the rows of the dimension d=24"):
            use()


def test_long_parts_take_the_compiled_kernels_and_give_the_same_bytes():
    parts = Parts((Part("long", (2, kernels.LONG)), Part("short", (9,))))
    c = Layered({}, TopK(0.1)).bound(parts)
    x = np.random.default_rng(0).normal(size=parts.size)
    long = TopK(0.1).compress(x[: 2 * kernels.LONG], KEY)
    assert c.compress(x, KEY)[: len(long)].tobytes() == long.tobytes()
