"""What is true of one kind of compressor: supports, lossless kinds, sizes, what other libraries got wrong."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpicomp
from mpicomp.base.errors import DivergedError, MessageError
from mpicomp.codecs.indices import decode_indices
from mpicomp.compressors import (
    Bernoulli,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Lazy,
    Lossless,
    Natural,
    NaturalDithering,
    PermK,
    RandK,
    RankR,
    Shrunk,
    Sign,
    Ternary,
    TopK,
    TwoMeans,
)
from mpicomp.kernels import definition
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.keys import Key
from mpicomp.methods import Artemis
from tests.support.backends import compiled
from tests.support.conformance import fuzz
from tests.support.sampling import KEY, SIGMAS, apply, square

# --- supports ---


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 7), (4, 4), (4, 24), (5, 13), (7, 8), (4, 1030), (3, 2)])
def test_permk_partitions_the_coordinates(n, d, layout):
    c = PermK(layout, "f8")
    x = np.random.default_rng(d).integers(1, 9, d).astype(float)
    previous = None
    for t in range(6):
        parts = np.array([apply(c, x, Key(6, t, i, n)) != 0 for i in range(n)])
        if d >= n:
            assert (parts.sum(axis=0) == 1).all()  # disjoint, and together everything
            assert set(parts.sum(axis=1)) <= {d // n, -(-d // n)}
        else:
            assert (parts.sum(axis=0) == n // d).all()
            assert (parts.sum(axis=1) <= 1).all()
        if d >= 24:
            assert previous is None or not np.array_equal(parts, previous)
        previous = parts


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize(("n", "d"), [(1, 7), (4, 24), (8, 13), (2, 1030), (8, 4), (12, 3), (5, 2)])
def test_permk_of_equal_vectors_is_that_vector(n, d, layout):
    """sum C_i(x)/n = x, exactly: n/q is a power of two or x/q an integer."""
    c = PermK(layout, "f8")
    x = np.random.default_rng(d).integers(-9, 10, d) * 60.0
    for t in range(6):
        total = np.zeros(d)
        for i in range(n):
            total += apply(c, x, Key(6, t, i, n))
        assert np.array_equal(total / n, x)


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize("d", [10, 1030])
def test_randk_keeps_k_distinct_coordinates_and_block_layout_a_window(d, layout):
    x = np.arange(1.0, d + 1)
    for t in range(20):
        kept = np.flatnonzero(apply(RandK(4, layout, "f8"), x, Key(1, t, 0, 1)))
        assert kept.size == 4
        if layout == "block":
            gaps = np.diff(np.append(kept, kept[0] + d))
            assert sorted(gaps) == [1, 1, 1, d - 3]


@pytest.mark.parametrize("c", [PermK("block"), RandK(3, "block")], ids=str)
def test_windows_start_everywhere_alike(c):
    """In 1300 rounds about 100 times at each of 13 coordinates."""
    x, starts = np.arange(1.0, 14), []
    for t in range(1300):
        kept = apply(c, x, Key(8, t, 0, 5)) != 0
        starts.append(int(np.flatnonzero(kept & ~np.roll(kept, 1))[0]))
    assert np.abs(np.bincount(starts, minlength=13) - 100).max() < SIGMAS * sqrt(1300 / 13)


def test_a_shared_mask_is_the_same_on_every_worker():
    x = np.arange(1.0, 31)
    for layout in ("uniform", "block"):
        c = RandK(5, layout, mask="shared")
        assert len({apply(c, x, KEY.of(i)).tobytes() for i in range(3)}) == 1
        c = RandK(5, layout)
        assert len({apply(c, x, KEY.of(i)).tobytes() for i in range(3)}) == 3


@pytest.mark.parametrize("layout", ["uniform", "block"])
def test_a_shared_mask_of_workers_is_not_that_of_the_broadcast(layout):
    """In both directions it was one mask: the mean of Artemis was d/k times too large."""
    x, c, n = np.arange(1.0, 31), RandK(3, layout, mask="shared"), 4
    server = [apply(c, x, Key(8, t, None, n)) for t in range(300)]
    workers = [apply(c, x, Key(8, t, 0, n)) for t in range(300)]
    both = sum(np.count_nonzero(a * b) for a, b in zip(server, workers, strict=True))
    assert abs(both - 90) < 60  # of 300 times 3 coordinates each is in the other mask with probability 1/10
    agg, mean, rounds = mpicomp.Aggregator(Artemis(c, c, gamma=1.0, alpha=0), like=x, workers=n), 0.0, 400
    for _ in range(rounds):
        mean += agg(dict.fromkeys(range(n), x)) @ x / (x @ x) / rounds
    assert abs(mean - 1) < 1  # its standard deviation is at most 0.2; under one mask it is 10


def test_several_messages_of_one_round_have_independent_supports():
    x = np.arange(1.0, 31)
    assert not np.array_equal(apply(RandK(5), x, KEY), apply(RandK(5), x, KEY.named("second")))


def kept_by(c, x):
    """The coordinates in a TopK message, zeros included."""
    message = c.compress(x, KEY)
    return decode_indices(message[: index_nbytes(x.size, c.k)], x.size, c.k).tolist()


def test_topk_keeps_the_largest_and_gives_ties_to_the_lowest_index():
    x = np.array([1.0, -3.0, 3.0, 0.5, -3.0, 2.0, 3.0])
    assert apply(TopK(3), x).tolist() == [0, -3, 3, 0, -3, 0, 0]
    assert apply(TopK(5), x).tolist() == [0, -3, 3, 0, -3, 2, 3]
    assert apply(TopK(2), np.zeros(4)).tolist() == [0, 0, 0, 0]
    assert kept_by(TopK(2), np.array([0.0, -0.0, 0.0, 0.0])) == [0, 1]


@pytest.mark.parametrize("seed", range(10))
def test_topk_is_a_stable_sort_by_magnitude(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-5, 6, 50).astype(float)
    for k in (1, 7, 25, 49, 50):
        expected = np.zeros(50)
        largest = np.argsort(-np.abs(x), kind="stable")[:k]
        expected[largest] = x[largest]
        assert np.array_equal(apply(TopK(k), x), expected)
        assert kept_by(TopK(k), x) == sorted(largest.tolist())


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0, 10.0])
def test_the_hard_threshold_errs_by_less_than_lam_in_each_coordinate(lam):
    x = np.append(np.random.default_rng(2).normal(size=40), [lam, -lam, 0.0])
    value = apply(HardThreshold(lam, "f8"), x)
    error = np.abs(value - x)
    assert (error[value != x] < lam).all()
    assert np.array_equal(value, np.where(np.abs(x) >= lam, x, 0.0))


def test_the_empty_message_of_the_hard_threshold_is_legal():
    message = HardThreshold(1.0).compress(np.full(300, 0.5), KEY)
    assert message.tolist() == [0, 0]
    assert not HardThreshold(1.0).decompress(message, 300, KEY).any()


# --- lossless ---


@fuzz
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_lossless_gives_every_number_back(x):
    """Every number comes back as it was; only the sign of a zero is not sent."""
    x = np.array(x) + 0.0  # -0.0 + 0.0 is 0.0
    assert apply(Lossless(), x).tobytes() == x.tobytes()
    single = np.where(np.abs(x) < 1e38, x, 1.0).astype(np.float32) + np.float32(0)
    assert apply(Lossless(), single).astype(np.float32).tobytes() == single.tobytes()


@pytest.mark.parametrize(("values", "width"), [("f8", 8), ("f4", 4), ("f2", 2), ("bf16", 2)])
def test_lossless_takes_the_smallest_layout(values, width):
    """One byte, then d values or count, index code and values, never more than the smaller of both."""
    d = 300
    for k in (0, 1, 10, 200, 270, 290, 299, 300):
        x = np.where(np.arange(d) < k, 1.5, 0.0)
        length = len(Lossless(values).compress(x, KEY))
        assert length == 1 + min(d * width, 2 + index_nbytes(d, k) + k * width)


def test_sparse_is_narrow_where_that_is_exact():
    assert len(Lossless().compress(np.full(9, 0.5), KEY)) == 1 + 4 * 9
    assert len(Lossless().compress(np.full(9, 0.1), KEY)) == 1 + 8 * 9
    assert len(Lossless().compress(np.full(9, 1e300), KEY)) == 1 + 8 * 9
    assert len(Lossless().compress(np.full(9, 0.1, dtype=np.float32), KEY)) == 1 + 4 * 9


@pytest.mark.parametrize("values", ["f4", "f8"])
def test_natural_compression_keeps_powers_of_two_and_zero(values):
    lowest, highest = {"f4": (-126, 127), "f8": (-1022, 1023)}[values]
    exponents = np.array([lowest, lowest + 1, -1, 0, 1, highest - 1, highest])
    x = np.concatenate([[0.0], np.ldexp(1.0, exponents), -np.ldexp(1.0, exponents)])
    for t in range(50):
        assert np.array_equal(apply(Natural(values), x, Key(1, t, 0, 1)), x)


@pytest.mark.parametrize(("values", "top"), [("f4", 2.0**127), ("f8", 2.0**1023)])
def test_natural_compression_saturates_in_the_top_binade(values, top):
    x = np.array([1.5 * top, -1.99 * top])
    for t in range(20):
        assert apply(Natural(values), x, Key(1, t, 0, 1)).tolist() == [top, -top]


@pytest.mark.parametrize("d", [1, 2000])
def test_natural_compression_refuses_what_its_format_does_not_hold(d):
    x = np.linspace(-1.0, 1.0, d)
    for on in (definition, compiled):
        for large in (2.0**128, -1e300):
            x[-1] = large
            with pytest.raises(DivergedError, match=r"does not fit exponents .* 'f4'"):
                on.natural_pack(x, 127, 8, KEY.private("natural").name)
        on.natural_pack(x, 1023, 11, KEY.private("natural").name)
        x[-1] = np.nextafter(2.0**128, 0.0)
        on.natural_pack(x, 127, 8, KEY.private("natural").name)
    with pytest.raises(DivergedError, match="does not fit"):
        Natural().compress(np.full(d, 1e39), KEY)


def test_natural_compression_rounds_below_the_range_without_bias():
    x = np.full(20_000, 2.0**-126 / 4)
    value = apply(Natural(), x)
    assert set(value) == {0.0, 2.0**-126}
    share = np.mean(value > 0)
    assert abs(share - 1 / 4) < SIGMAS * sqrt(3 / 16 / x.size)


@pytest.mark.parametrize(
    "c", [Dithering(5), Dithering(5, "inf"), NaturalDithering(5), NaturalDithering(5, "inf")]
)
def test_dithering_gives_levels_of_the_norm(c):
    x = np.random.default_rng(3).integers(-9, 10, 40).astype(float)
    scale = float(np.float32(np.max(np.abs(x)) if c.p == "inf" else np.sqrt(square(x))))
    levels = np.arange(6) / 5 if isinstance(c, Dithering) else np.array([0, *2.0 ** np.arange(-4, 1)])
    value = np.abs(apply(c, x))
    nearest = np.min(np.abs(value[:, None] - scale * levels), axis=1)
    assert (nearest <= 1e-6 * scale).all()


@pytest.mark.parametrize("values", ["f4", "f8"])
def test_the_norm_on_the_wire_is_never_below_the_norm(values):
    for seed in range(50):
        x = np.random.default_rng(seed).normal(size=17)
        for c, norm in ((Dithering(3, "2", values), np.sqrt(square(x))), (Ternary(values), np.abs(x).max())):
            wire = float(c.compress(x, KEY)[: int(values[1])].view(f"<{values}")[0])
            assert norm * (1 - 1e-15) <= wire <= norm * (1 + 2.0**-23)


@pytest.mark.parametrize("c", [Dithering(3), Dithering(3, "inf"), Ternary(), NaturalDithering(3)], ids=str)
def test_a_norm_that_rounds_up_beyond_the_format_is_refused(c):
    """Just above the largest number of float32, to which it is rounded; upwards there is only infinity."""
    x = np.array([np.float64(np.finfo(np.float32).max) * (1 + 2.0**-27)])
    with pytest.raises(DivergedError, match="'f4'"):
        c.compress(x, KEY)


@pytest.mark.parametrize("c", [Dithering(3, values="f8"), NaturalDithering(3, values="f8")], ids=str)
def test_a_norm_beyond_double_precision_is_refused(c):
    with pytest.raises(DivergedError, match="'f8'"):
        c.compress(np.full(4, 1.7e308), KEY)


def test_two_means_add_nothing_of_a_message_whose_second_mean_is_refused():
    x, out = np.arange(1.0, 12.0), np.ones(11)
    message = TwoMeans().compress(x, KEY)
    second = message.size - Sign().nbytes(x.size - 3)  # of the group of small magnitudes
    message[second : second + 4] = np.array([-1.0], "<f4").view(np.uint8)
    with pytest.raises(MessageError, match="a norm of -1"):
        TwoMeans().decompress_add(message, out, KEY)
    assert (out == 1).all()


def test_the_scaled_sign_of_the_largest_numbers_is_finite():
    """The mean of |x_j| is never above the largest, so neither may be its computation."""
    x = np.array([1.7e308, -1.7e308, 1.7e308])
    assert apply(Sign("f8"), x) == pytest.approx(x)


@pytest.mark.parametrize(
    "c", [Identity(), RandK(4), Bernoulli(1.0), Lazy(1.0), Importance(4), RankR(1, 4)], ids=str
)
def test_a_signalling_nan_is_read_as_one_without_a_warning(c):
    """Any bytes are some numbers; a receiver warns of none of them."""
    message = c.compress(np.arange(1.0, 17.0), KEY)
    message[:] = np.frombuffer(b"\x01\x00\x80\x7f" * (len(message) // 4), np.uint8)
    assert np.isnan(c.decompress(message, 16, KEY)).any()


# --- sizes, as the papers and the design state them ---


@pytest.mark.parametrize("d", [1, 5, 11, 1000])
def test_sizes(d):
    for s in (1, 2, 3, 7, 8, 127, 128):
        width = ceil(np.log2(2 * s + 1))
        assert Dithering(s).nbytes(d) == 4 + ceil(d * width / 8)
        assert Dithering(s, values="f8").nbytes(d) == 8 + ceil(d * width / 8)
        if s <= 127:
            assert NaturalDithering(s).nbytes(d) == 4 + ceil(d * width / 8)
    assert Ternary().nbytes(d) == 4 + ceil(d / 5)  # 1.6 bits
    assert Ternary("f8").nbytes(d) == 8 + ceil(d / 5)
    assert Sign().nbytes(d) == 4 + ceil(d / 8)
    assert Natural().nbytes(d) == d + ceil(d / 8)  # 9 bits
    assert Natural("f8").nbytes(d) == ceil(11 * d / 8) + ceil(d / 8)  # 12 bits
    for values, width in (("f8", 8), ("f4", 4), ("f2", 2), ("bf16", 2)):
        assert Identity(values).nbytes(d) == d * width
        assert RandK(1, values=values).nbytes(d) == width
        assert TopK(1, values).nbytes(d) == width + ceil((d - 1).bit_length() / 8)


def test_the_papers_count():
    x = np.arange(1.0, 41)
    for c, bits in [
        (Identity("f8"), 32 * 40),
        (RandK(7, values="f2"), 32 * 7),
        (TopK(7, "f8"), 32 * 7),
        (Dithering(3), 32 + 3 * 40),
        (Ternary(), 32 + 2 * 40),
        (Natural(), 9 * 40),
        (Sign(), 32 + 40),
        (HardThreshold(31.0), 32 * 10),
        (Lossless(), 32 * 40),
        (Shrunk(RandK(7)), 32 * 7),
    ]:
        assert c.paper_bits(c.compress(x, KEY), 40, KEY) == bits


# --- defects that were found in other libraries ---


BIASED = [Dithering(1), Dithering(4), Dithering(15, "inf", "f8"), Ternary("f8"), NaturalDithering(3)]


@pytest.mark.parametrize("c", BIASED, ids=str)
def test_qsgd_is_unbiased_where_atomo_s_was_not(c):
    """The mean of 20,000 decodes of [.3, .8, -.1, .5] was [.031, .860, -.232, .493]; here by z-test."""
    x = np.array([0.3, 0.8, -0.1, 0.5])
    values = np.array([apply(c, x, Key(1, t, 0, 1)) for t in range(5000)])
    assert (np.abs(values.mean(axis=0) - x) <= SIGMAS * values.std(axis=0) / sqrt(5000) + 1e-9).all()


def test_natural_dithering_is_really_lossy():
    """It sends the nine levels that it is billed for, not x."""
    x = np.random.default_rng(1).normal(size=1000)
    c = NaturalDithering(8)
    value = apply(c, x)
    assert len(np.unique(np.abs(value))) <= 9
    assert np.abs(value - x).max() > 1e-3
    assert c.nbytes(1000) == 4 + 5 * 1000 / 8


def test_one_bit_decoding_takes_the_logical_complement():
    """An arithmetic one made the relative error 43,829; on normal data it is near 1 - 2/pi = 0.363."""
    x = np.random.default_rng(0).normal(size=10_000)
    relative = square(apply(Sign(), x) - x) / square(x)
    assert relative == pytest.approx(1 - np.abs(x).sum() ** 2 / (x.size * square(x)), rel=1e-6)
    assert abs(relative - (1 - 2 / np.pi)) < 0.02


def test_randk_scales_and_draws_without_replacement():
    """The mean of C(1) is 1, where without d/k it was k/d, and 100 kept coordinates are 100."""
    x = np.ones(1000)
    for t in range(50):
        value = apply(RandK(100), x, Key(1, t, 0, 1))
        assert np.count_nonzero(value) == 100
        assert value.mean() == 1.0


def test_indices_are_exact_where_float32_has_no_odd_numbers():
    d = 2**25 + 3
    x = np.zeros(d, dtype=np.float32)
    kept = np.array([1, 2**24 + 1, 2**25 + 1, 2**25 + 2])
    x[kept] = [1.0, -2.0, 3.0, -4.0]
    message = TopK(4).compress(x, KEY)
    assert len(message) == TopK(4).nbytes(d) <= 4 * 4 + 4 * 26 / 8
    out = np.zeros(d, dtype=np.float32)
    TopK(4).decompress_add(message, out, KEY)
    assert np.array_equal(np.flatnonzero(out), kept)
    assert out[kept].tolist() == [1.0, -2.0, 3.0, -4.0]


@pytest.mark.parametrize(
    ("c", "most"),
    [
        (RandK(10), 40),
        (TopK(10), 40 + 14),
        (PermK(), 1000),
        (Ternary(), 204),
        (Sign(), 129),
        (Natural(), 1125),
    ],
    ids=str,
)
def test_what_is_sent_is_the_compressed_message_not_the_dense_vector(c, most):
    """d = 1000 float64, 8000 bytes dense."""
    message = c.compress(np.random.default_rng(0).normal(size=1000), Key(1, 0, 0, 4))
    assert len(message) <= most
