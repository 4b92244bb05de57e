"""Keys and Philox: every random draw is a function of its name, and looks random.

Statistical tests have fixed seeds and state their significance: chi-square at 1e-6 on either side,
counts at six standard deviations.
"""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from mpicomp.base.errors import ConfigError
from mpicomp.kernels.definition.permutation import SMALL
from mpicomp.kernels.definition.philox import words
from mpicomp.keys import Key, Stream, cached_draw, clear_cached_draws, odds
from tests.support.conformance import fuzz

# Random123, kat_vectors, philox4x32-10: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
KEY = Key(seed=0x1234_5678_9ABC, round=7, worker=2, n=5)
SIZES = [*range(1, 41), *range(SMALL - 1, SMALL + 7), 5000, 2**17 + 3]
PAIRED = [SMALL, SMALL + 1, 5000]


def hexadecimal(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def assert_chi_square(counts, expected) -> None:
    """Pearson's statistic lies between the 1e-6 quantiles on both sides."""
    statistic = np.sum((counts - expected) ** 2 / expected)
    low, high = chi2.isf([1 - 1e-6, 1e-6], np.size(counts) - 1)
    assert low < statistic < high


# --- Philox ---


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
@pytest.mark.parametrize("before", [0, 9], ids=["scalars", "arrays"])
def test_known_answers(counter, key, result, before):
    """The published vectors, on both code paths: nine blocks more make it the array one."""
    block, *upper = hexadecimal(counter)
    after = 0 if block else before
    before = before if block else 0
    stream = tuple(hexadecimal(key)), tuple(upper)
    got = words(stream, 4 * (block - before), 4 * (before + 1 + after))
    assert got.dtype == np.uint32
    assert got[4 * before : 4 * before + 4].tolist() == hexadecimal(result)


@fuzz
@given(start=st.integers(0, 2**20), count=st.integers(0, 70))
def test_any_window_is_a_slice_of_the_whole(start, count):
    stream = KEY.private("window")
    base = max(0, start - 13)
    whole = stream.words(start - base + count + 5, base)
    assert np.array_equal(stream.words(count, start), whole[start - base : start - base + count])


def test_one_word_at_a_time_is_the_whole():
    stream = KEY.shared("word")
    assert [int(stream.words(1, i)[0]) for i in range(100)] == stream.words(100).tolist()


# --- names ---

DIFFERENT = {
    "this": KEY.private("a"),
    "tag": KEY.private("b"),
    "message": KEY.named("m").private("a"),
    "nested message": KEY.named("m").named("m").private("a"),
    "worker": KEY.of(3).private("a"),
    "server": Key(KEY.seed, KEY.round, None, KEY.n).private("a"),
    "shared": KEY.shared("a"),
    "round": Key(KEY.seed, KEY.round + 1, KEY.worker, KEY.n).private("a"),
    "seed": Key(KEY.seed + 1, KEY.round, KEY.worker, KEY.n).private("a"),
    "upper half of the seed": Key(KEY.seed + 2**32, KEY.round, KEY.worker, KEY.n).private("a"),
}


@pytest.mark.parametrize(("a", "b"), list(combinations(DIFFERENT, 2)), ids="-".join)
def test_streams_of_different_names_are_uncorrelated(a, b):
    """Of N bits, N/2 agree: six standard deviations.  Neighbouring words are compared too."""
    u, v = DIFFERENT[a].words(4001), DIFFERENT[b].words(4001)
    for left, right in ((u, v), (u[1:], v[:-1]), (u[:-1], v[1:])):
        n = 32 * left.size
        agreeing = n - int(np.bitwise_count(left ^ right).sum())
        assert abs(agreeing - n / 2) < 6 * np.sqrt(n / 4)


def test_shared_streams_are_the_same_on_every_rank():
    drawn = {tuple(KEY.of(i).shared("coin").words(8).tolist()) for i in range(KEY.n)}
    server = Key(KEY.seed, KEY.round, None, KEY.n).shared("coin").words(8).tolist()
    assert drawn == {tuple(server)}


def test_private_streams_differ_from_worker_to_worker():
    drawn = {tuple(KEY.of(i).private("coin").words(8).tolist()) for i in range(KEY.n)}
    assert len(drawn) == KEY.n


def test_keys_derived_from_a_message_are_of_that_message():
    named = KEY.named("m").named("n")
    assert named == Key(KEY.seed, KEY.round, KEY.worker, KEY.n, "/m/n")
    assert named.of(3) == Key(KEY.seed, KEY.round, 3, KEY.n, "/m/n")
    assert named.before() == Key(KEY.seed, KEY.round - 1, KEY.worker, KEY.n, "/m/n")


def test_what_is_drawn_for_several_cannot_be_written_to():
    stream = KEY.private("support")
    for drawn in (stream.positions(40, 3, 9), stream.positions(5000, 3, 9), stream.heads(5000, 0.3)):
        assert not drawn.flags.writeable


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"seed": 2**64}, f"seed={2**64}; allowed: an integer from 0 to {2**64 - 1}."),
        ({"seed": True}, f"seed=True; allowed: an integer from 0 to {2**64 - 1}."),
        ({"round": -2}, f"round=-2; allowed: an integer from -1 to {2**32 - 2}."),
        ({"round": 2**32}, f"round={2**32}; allowed: an integer from -1 to {2**32 - 2}."),
        ({"round": "0"}, f"round='0'; allowed: an integer from -1 to {2**32 - 2}."),
        ({"worker": 4}, "worker=4; allowed: an integer from 0 to 3."),
        ({"worker": 1.5}, "worker=1.5; allowed: an integer from 0 to 3."),
        ({"n": "4"}, "n='4'; allowed: an integer from 0 to 10000000."),
    ],
)
def test_a_number_that_would_name_the_draws_of_another_key_is_refused(given, refused):
    """Seed 2^64 and round 2^32 drew what seed 0 and round 0 draw."""
    with pytest.raises(ConfigError) as raised:
        Key(**{"seed": 0, "round": 0, "worker": 0, "n": 4} | given)
    assert str(raised.value) == refused


@pytest.mark.filterwarnings("error")
def test_integers_of_numpy_name_the_same_draws():
    """Those of 32 bits overflowed, and those of 64 bits warned."""
    plain = Key(seed=5, round=3, worker=2, n=4)
    assert eval(repr(first := Key(5, 0, 2, 4).before())) == first
    for kind in (np.uint8, np.int32, np.int64, np.array):
        assert (key := Key(kind(5), kind(3), kind(2), kind(4))) == plain
        assert np.array_equal(key.private("a").words(9), plain.private("a").words(9))


def test_a_draw_does_not_depend_on_the_number_of_workers():
    more = Key(KEY.seed, KEY.round, KEY.worker, KEY.n + 1)
    assert np.array_equal(more.private("a").words(8), KEY.private("a").words(8))


def test_a_stream_has_no_state():
    stream = KEY.private("a")
    first = stream.words(5)
    stream.uniform(3), stream.below(10), stream.coin(0.5), stream.permutation(9, 0, 9)
    assert np.array_equal(stream.words(5), first)


def test_the_global_generator_of_numpy_is_never_touched():
    before = np.random.get_state(legacy=True)
    stream = KEY.private("a")
    stream.words(100), stream.uniform(100), stream.below(10), stream.coin(0.5)
    stream.permutation(9, 0, 9), stream.permutation(SMALL + 9, 0, 9)
    after = np.random.get_state(legacy=True)
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]


# --- numbers ---


class Constant(Stream):
    """A stream whose words are all the same: the extremes of what can be drawn."""

    def words(self, count, start=0):
        return np.full(count, self.seed, dtype=np.uint32)


@pytest.mark.parametrize(("word", "expected"), [(0, 2**-53), (2**32 - 1, 1 - 2**-53)])
def test_uniform_numbers_lie_in_the_open_interval(word, expected):
    (u,) = Constant(word, (0, 0, 0)).uniform(1)
    assert u == expected


def test_uniform_numbers_are_uniform():
    u = KEY.private("uniform").uniform(100_000)
    assert_chi_square(np.bincount((u * 1000).astype(int), minlength=1000), 100.0)
    low_bits = (u * 2**40 % 1 * 512).astype(int)
    assert_chi_square(np.bincount(low_bits, minlength=512), 100_000 / 512)


def test_normals_are_normal():
    """Finite at either end; with the normal distribution function they are the uniform numbers again."""
    z = KEY.private("uniform").normals(100_000)
    np.testing.assert_allclose(norm.cdf(z), KEY.private("uniform").uniform(100_000), rtol=1e-12)
    assert_chi_square(np.bincount((norm.cdf(z) * 1000).astype(int), minlength=1000), 100.0)
    assert all(np.isfinite(Constant(word, (0, 0, 0)).normals(1)) for word in (0, 2**32 - 1))


@pytest.mark.parametrize("bound", [1, 2, 7, 1000, 2**40])
def test_below_stays_below(bound):
    assert Constant(0, (0, 0, 0)).below(bound) == 0
    assert Constant(2**32 - 1, (0, 0, 0)).below(bound) == bound - 1


@pytest.mark.parametrize("draw", [lambda s: s.below(0), lambda s: s.coin(math.nan), lambda s: s.coin(1.1)])
def test_a_draw_from_nothing_is_refused(draw):
    with pytest.raises(ConfigError, match="allowed: "):
        draw(Key(seed=0, round=0, worker=None, n=1).shared("nothing"))


def test_below_is_uniform():
    drawn = [KEY.private(f"below {t}").below(7) for t in range(7000)]
    assert_chi_square(np.bincount(drawn, minlength=7), 1000.0)


def test_a_coin_falls_at_its_probability():
    heads = sum(KEY.private(f"coin {t}").coin(0.3) for t in range(10_000))
    assert abs(heads - 3000) < 6 * np.sqrt(10_000 * 0.3 * 0.7)
    assert Constant(2**32 - 1, (0, 0, 0)).coin(1.0)
    assert not Constant(0, (0, 0, 0)).coin(0.0)
    assert Constant(2**31 - 1, (0, 0, 0)).coin(0.5)
    assert not Constant(2**31, (0, 0, 0)).coin(0.5)


@pytest.mark.parametrize("p", [1e-12, 2.0**-32, 1e-9, 0.1, 1 / 3, 1 - 1e-12, 1.0])
def test_odds_are_those_of_the_coin(p):
    """The nearest there are: of the 2^32 words the first ``odds(p)`` 2^32 fall on heads, and no other."""
    q = float(odds(p))
    words = round(q * 2**32)
    assert words == max(1, round(p * 2**32)) and words / 2**32 == q
    for word in {words - 1, min(words, 2**32 - 1)}:
        coin = Constant(word, (0, 0, 0))
        assert coin.heads(3, q).size == (3 if word < words else 0)
        assert coin.heads(3, np.full(3, q)).size == (3 if word < words else 0)


def test_what_is_never_to_happen_has_no_odds():
    assert odds(np.array([0.0, 1e-300, 1.0])).tolist() == [0.0, 2.0**-32, 1.0]


# --- permutations ---


@pytest.mark.parametrize("d", SIZES)
def test_a_permutation_is_one_and_any_window_is_a_slice_of_it(d):
    stream = KEY.private("pi")
    whole = stream.permutation(d, 0, d)
    assert whole.dtype == np.int64
    assert np.array_equal(np.sort(whole), np.arange(d))
    for start, stop in ((0, 0), (0, 1), (0, d // 2), (d // 3, d - d // 4), (d - 1, d)):
        assert np.array_equal(stream.permutation(d, start, stop), whole[start:stop])


@pytest.mark.parametrize("d", [40, SMALL, SMALL + 1, 5000])
def test_permutations_of_different_streams_differ(d):
    a, b = (KEY.private(tag).permutation(d, 0, d) for tag in "ab")
    assert np.mean(a == b) < 0.25  # about one fixed point is expected


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_all_permutations_are_equally_likely(d):
    number = {pi: i for i, pi in enumerate(permutations(range(d)))}
    draws = 20 * len(number) + 400
    drawn = [number[tuple(KEY.private(f"all {t}").permutation(d, 0, d).tolist())] for t in range(draws)]
    assert_chi_square(np.bincount(drawn, minlength=len(number)), draws / len(number))


@pytest.mark.parametrize("d", PAIRED)
def test_single_images_and_pairs_of_images_are_uniform(d):
    """Ordered pairs of distinct images, binned by their high and by their low bits."""
    draws, bins = 4000, 16
    # Positions that share either half of the Feistel network's block, and two that share none.
    positions = (0, 1, 64, d - 1)
    images = np.empty((draws, len(positions)), dtype=np.int64)
    for t in range(draws):
        stream = Stream(t, (1, 2, 3))
        if d <= SMALL:
            images[t] = stream.permutation(d, 0, d)[list(positions)]
        else:
            images[t] = [stream.permutation(d, p, p + 1)[0] for p in positions]
    for bin_of in (np.arange(d) * bins // d, np.arange(d) % bins):
        size = np.bincount(bin_of)
        for column in images.T:
            assert_chi_square(np.bincount(bin_of[column], minlength=bins), draws * size / d)
        expected = draws * (np.outer(size, size) - np.diag(size)) / (d * (d - 1))
        for a, b in combinations(images.T, 2):
            joint = np.bincount(bins * bin_of[a] + bin_of[b], minlength=bins**2)
            assert_chi_square(joint, expected.ravel())
    for a, b in combinations(images.T, 2):
        gaps = (a - b) % d * bins // d
        size = np.bincount(np.arange(1, d) * bins // d)
        assert_chi_square(np.bincount(gaps, minlength=bins), draws * size / (d - 1))


@pytest.mark.parametrize(("d", "k"), [(12, 5), (SMALL + 6, 100)])
def test_inclusion_in_a_random_subset_is_uniform(d, k):
    """The counts of a k-subset's members have variance N (k/d)(1 - k/d) and sum to N k."""
    draws = 3000
    counts = np.zeros(d)
    for t in range(draws):
        counts[Stream(t, (4, 5, 6)).permutation(d, 0, k)] += 1
    share = k / d
    statistic = np.sum((counts - draws * share) ** 2) / (draws * share * (1 - share)) * (d - 1) / d
    low, high = chi2.isf([1 - 1e-6, 1e-6], d - 1)
    assert low < statistic < high


def test_inclusion_of_pairs_in_a_random_subset_is_uniform():
    """Each pair of a 4-subset of 8, 28 pairs, six a draw; the subsets themselves are 70 equal cells."""
    draws = 7000
    subsets = [tuple(sorted(Stream(t, (7, 8, 9)).permutation(8, 0, 4).tolist())) for t in range(draws)]
    number = {s: i for i, s in enumerate(combinations(range(8), 4))}
    assert_chi_square(np.bincount([number[s] for s in subsets], minlength=70), draws / 70)
    share = 4 * 3 / (8 * 7)
    for pair in combinations(range(8), 2):
        count = sum(set(pair) <= set(s) for s in subsets)
        assert abs(count - draws * share) < 6 * np.sqrt(draws * share * (1 - share))


def test_a_cached_draw_is_cleared():
    drawn = []

    @cached_draw(2)
    def draw(name: str) -> int:
        drawn.append(name)
        return len(drawn)

    assert [draw("a"), draw("b"), draw("a")] == [1, 2, 1]
    clear_cached_draws()
    assert [draw("b"), draw("a")] == [3, 4]
    assert [draw("c"), draw("b")] == [5, 6]
