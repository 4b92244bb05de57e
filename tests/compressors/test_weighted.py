"""Varying-step and block quantisation: closed forms, bounds, bytes; and weights, those of sampling too.

The closed forms are those of docs/methods.md, VaryingSteps and BlockSteps.
Statistical tests have fixed seeds and allow six standard deviations, on one side for a bound.
"""

from __future__ import annotations

import copy
import pickle
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.base.bits import pack
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.codecs.indices import encode_indices
from mpicomp.codecs.levels import (
    CODES,
    MOST,
    bounds_of,
    decode_fixed,
    decode_sparse,
    encode_fixed,
    encode_sparse,
)
from mpicomp.codecs.widths import pack_widths, unpack_widths, widths_nbytes
from mpicomp.compressors import (
    BlockSteps,
    Dithering,
    Importance,
    Quantized,
    QuantizedTopK,
    RandK,
    Shrunk,
    VaryingSteps,
)
from mpicomp.keys import Key
from tests.support.conformance import fuzz
from tests.support.sampling import KEY, errors
from tests.support.smoothness_matrices import matrix, weights

rng = np.random.default_rng

# --- the steps ---


@pytest.mark.parametrize("beta", [0.5, 7.0, 300.0])
def test_varying_steps_have_the_closed_form_and_spend_the_budget(beta):
    """h_j = sqrt(tr L / L_jj) / beta, so that |1/h| = beta, and |Diag(L) h| = tr(L)/beta."""
    L = matrix(17, seed=1)
    h = VaryingSteps(beta, weights(L)).steps(17)
    assert h == pytest.approx(np.sqrt(np.trace(L) / np.diagonal(L)) / beta, rel=1e-14)
    assert sqrt(np.sum(h**-2)) == pytest.approx(beta, rel=1e-14)
    assert sqrt(np.sum((np.diagonal(L) * h) ** 2)) == pytest.approx(np.trace(L) / beta, rel=1e-14)


@pytest.mark.parametrize(("d", "blocks"), [(17, 1), (17, 4), (16, 4), (17, 17)])
def test_block_steps_have_the_closed_form_and_spend_the_budget(d, blocks):
    """h_l = sum_k sqrt(d_k) |Diag L_kk| / (beta |Diag L_ll|), so that sum_l sqrt(d_l)/h_l = beta; and then
    h_l |Diag L_ll| is the same for all blocks, sum_k sqrt(d_k) |Diag L_kk| / beta."""
    L, beta = matrix(d, seed=2), 9.0
    parts = np.array_split(np.diagonal(L), blocks)  # the longer ones first
    total = sum(sqrt(part.size) * sqrt(np.sum(part**2)) for part in parts)
    wanted = [total / (beta * sqrt(np.sum(part**2))) for part in parts]
    h = BlockSteps(beta, blocks, weights(L)).steps(d)
    assert h == pytest.approx(np.repeat(wanted, [part.size for part in parts]), rel=1e-14)
    assert sum(sqrt(part.size) / step for part, step in zip(parts, wanted, strict=True)) == pytest.approx(
        beta
    )
    for part, step in zip(parts, wanted, strict=True):
        assert step * sqrt(np.sum(part**2)) == pytest.approx(total / beta)


def test_no_other_steps_of_the_budget_have_a_smaller_bound():
    """At |1/h| = beta the closed form has the least |Diag(L) h|; that of the blocks has their least bound."""
    L = matrix(12, seed=3)
    w, beta = np.diagonal(L), 5.0
    best = np.trace(L) / beta
    for seed in range(200):
        h = np.exp(rng(seed).normal(size=12) * rng(seed).uniform(0, 1.5)) / np.sqrt(w)
        h *= sqrt(np.sum(h**-2)) / beta
        assert sqrt(np.sum((w * h) ** 2)) >= best
    parts = np.split(w, 3)
    best = sum(2 * sqrt(np.sum(part**2)) for part in parts) / beta
    for seed in range(200):
        h = np.exp(rng(seed).normal(size=3))
        h *= sum(2 / step for step in h) / beta
        assert max(step * sqrt(np.sum(part**2)) for step, part in zip(h, parts, strict=True)) >= best


def test_without_weights_the_steps_are_equal():
    assert VaryingSteps(8.0).steps(16) == pytest.approx(np.full(16, sqrt(16) / 8))
    assert BlockSteps(8.0, 4).steps(16) == pytest.approx(np.full(16, 16 / (8 * sqrt(4))))


def test_only_the_ratios_of_weights_matter():
    w, x = weights(matrix(9, seed=4)), rng(1).normal(size=9)
    for make in (lambda w: VaryingSteps(6.0, w), lambda w: BlockSteps(6.0, 3, w), lambda w: Importance(3, w)):
        once, fourfold = (make(tuple(f * v for v in w)).compress(x, KEY) for f in (1.0, 4.0))
        assert np.array_equal(once, fourfold)


@pytest.mark.parametrize("make", [lambda w: VaryingSteps(6.0, w), lambda w: Importance(2, w)])
def test_weights_are_those_given(make):
    """Whatever a compressor keeps of them: written down, copied, and read from a pickle."""
    w = (0.5, 2.0, 0.0, 1.0)
    c, other = make(w), make((0.5, 2.0, 0.0, 2.0))
    assert c.weights == w and hash(c) == hash(make(w)) and c != other
    for same in (eval(repr(c)), copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert same == c and hash(same) == hash(c)
    assert b"_hash" not in pickle.dumps(c).replace(b"_HashedOnce", b"")


# --- QSGD as a special case ---


@pytest.mark.parametrize("values", ["f4", "f8"])
@pytest.mark.parametrize("s", [1, 3, 7, 100])
@pytest.mark.parametrize("d", [16, 17, 300, 100_000])
def test_equal_steps_are_random_dithering_bit_for_bit(d, s, values):
    """h = 1/s: the messages of ``Dithering(s)``, and what is read from them.  |1/h| is sqrt(d) s.

    In floating point sqrt(d) s / sqrt(d) is not s for every d: for d = 300 and s = 7 it is an ulp more.
    """
    x = rng(s).normal(size=d)
    qsgd = Dithering(s, values=values)
    for Q in (
        VaryingSteps(sqrt(d) * s, values=values),
        VaryingSteps(sqrt(d) * s, (2.0,) * d, values),
        BlockSteps(sqrt(d) * s, 1, values=values),
    ):
        assert Q.steps(d).tolist() == [1 / s] * d
        assert Q.nbytes(d) == qsgd.nbytes(d)
        coarse = s <= sqrt(d) / 2  # else the steps' omega is a bound, which Dithering's is near to
        assert Q.omega(d, 3) == pytest.approx(qsgd.omega(d, 3), rel=1e-12 if coarse else 1.5 / (d * s**2))
        for key in (Key(1, t, 0, 3) for t in range(5 if d > 1000 else 20)):
            message = Q.compress(x, key)
            assert np.array_equal(message, qsgd.compress(x, key))
            assert np.array_equal(Q.decompress(message, d, key), qsgd.decompress(message, d, key))


# --- variances ---


@pytest.mark.parametrize(
    "c", [VaryingSteps(20.0), VaryingSteps(3.0), BlockSteps(20.0, 3), BlockSteps(4.0, 12)], ids=repr
)
def test_the_bound_of_the_quantisers(c):
    """E |C(x) - x|^2_L <= c |x|^2, with c at most min{tr(L)/beta, d tr(L)/(4 beta^2)} for varying steps, and
    at most the blocks' bound."""
    L = matrix(12, seed=5)
    fitted, beta = c.fitted(np.diagonal(L)), c.beta
    if isinstance(c, VaryingSteps):
        most = min(np.trace(L) / beta, 12 * np.trace(L) / (4 * beta**2))
    else:
        parts, h = np.split(np.diagonal(L), c.blocks), fitted.steps(12)[:: 12 // c.blocks]
        most = max(
            min(step * sqrt(np.sum(part**2)), step**2 * np.sum(part) / 4)
            for step, part in zip(h, parts, strict=True)
        )
    wanted = fitted.variance(np.diagonal(L))
    assert most / 2 <= wanted <= most * (1 + 1e-12)
    for seed in range(2):
        x = rng(seed).normal(size=12)
        e = errors(fitted, x, 2000)
        squares = np.sum(e @ L * e, axis=1) / np.sum(x**2)
        assert squares.mean() <= wanted + 6 * squares.std() / sqrt(squares.size)


@pytest.mark.parametrize("blocks", [None, 3])
def test_the_bound_is_attained_halfway_between_levels(blocks):
    """|x_j| = h_j |x|/2 in each block: a coordinate's variance is D^2/4, so E |C(x) - x|^2_L is
    sum_j L_jj h_j^2/4 |x|^2 (one block), or the worst block's where only that one is not 0."""
    L = matrix(12, seed=6)
    w = np.diagonal(L)
    if blocks is None:  # |h| = 2, so that h/2 is of norm 1
        c, x = VaryingSteps(sqrt(np.sum(w) * np.sum(1 / w)) / 2, weights(L), "f8"), np.empty(12)
        x[:] = c.steps(12) / 2
    else:  # sqrt(4) h_l = 2 in the first block
        total = sum(2 * sqrt(np.sum(part**2)) for part in np.split(w, 3))
        c, x = BlockSteps(total / sqrt(np.sum(w[:4] ** 2)), 3, weights(L), "f8"), np.zeros(12)
        x[:4] = 0.5
    assert np.sum(x**2) == pytest.approx(1)
    e = errors(c, x, 4000)
    squares = np.sum(e @ L * e, axis=1)
    wanted = np.sum((w * c.steps(12) ** 2)[x != 0]) / 4
    assert abs(squares.mean() - wanted) <= 6 * squares.std() / sqrt(squares.size)


def test_the_expected_number_of_non_zeros_is_within_the_budget():
    L = matrix(20, seed=7)
    for c in (VaryingSteps(5.0, weights(L)), BlockSteps(5.0, 4, weights(L))):
        for x in (rng(1).normal(size=20), rng(2).normal(size=20) * np.sqrt(np.diagonal(L)), np.ones(20)):
            counts = np.array([np.count_nonzero(e) for e in errors(c, x, 800) + x])
            assert counts.mean() <= 5.0 + 6 * counts.std() / sqrt(counts.size)


def test_more_budget_never_means_less_precision():
    w = np.diagonal(matrix(12, seed=8))
    for make in (lambda b: VaryingSteps(b), lambda b: BlockSteps(b, 3)):
        bounds = [make(beta).fitted(w).variance(w) for beta in (1.0, 3.0, 10.0, 30.0)]
        assert bounds == sorted(bounds, reverse=True)


# --- a coordinate of weight 0 ---


@pytest.mark.parametrize("make", [lambda w: VaryingSteps(3.0, w), lambda w: Importance(2, w)])
def test_what_weighs_nothing_is_never_sent(make):
    c, x = make((1.0, 0.0, 4.0, 1.0, 0.0)), np.array([1.0, 5.0, 1.0, -1.0, 5.0])
    assert (errors(c, x, 100)[:, [1, 4]] == -5).all()
    assert c.variance(np.ones(5)) == make((1.0, 4.0, 1.0)).variance(np.ones(3))
    if isinstance(c, VaryingSteps):
        assert np.isinf(c.steps(5)[[1, 4]]).all()
        assert c.nbytes(5) == make((1.0, 4.0, 1.0)).nbytes(3)


def test_a_block_that_weighs_nothing_is_never_sent():
    c = BlockSteps(3.0, 2, (1.0, 2.0, 0.0, 0.0), "f8")
    x = np.array([1.0, 1.0, 5.0, 5.0])
    assert (errors(c, x, 50)[:, 2:] == -5).all()
    assert np.isfinite(c.variance(np.ones(4)))


@pytest.mark.parametrize("code", CODES)
def test_what_weighs_next_to_nothing_is_not_sent_and_adds_nothing(code):
    """Two coordinates have a 1/h that is 1e-310 of the other two's, so that N h is not a number there."""
    c = BlockSteps(2.0, 2, (1.0, 1.0, 1e-310, 1e-310), code=code)
    out = np.full(4, 0.5, dtype=np.float32)
    c.decompress_add(c.compress(np.array([1.0, 1.0, 7.0, 7.0]), KEY), out, KEY, -2.0)
    assert np.isfinite(out).all() and (out[2:] == 0.5).all()


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0x7F800000, 0xBF800000])
def test_a_norm_that_is_none_is_refused(bits):
    """A NaN of either kind, infinity, -1."""
    for c in (VaryingSteps(6.0), BlockSteps(6.0, 3)):
        message = c.compress(np.ones(9), KEY)
        message[c.block_count(9) * 4 - 4 : c.block_count(9) * 4] = np.array([bits], dtype="<u4").view(
            np.uint8
        )
        with pytest.raises(MessageError, match="a norm of"):
            c.decompress(message, 9, KEY)


# --- bytes ---


def test_the_wire_of_varying_steps_by_hand():
    """w = (9, 0, 4, 3), beta = 4: 1/h = 4 sqrt(w/16) = 3, 0, 2, sqrt 3, so that s = 3, 0, 2, 2 takes 3, 0, 3
    and 3 bits.  x = 2 (1/3, 0, 1/2, sqrt(23)/6), N = 2: t = 1, 0, 1, 1.38, so the last level is 1 or 2."""
    c = VaryingSteps(4.0, (9.0, 0.0, 4.0, 3.0))
    x = np.array([2 / 3, 0.0, -1.0, sqrt(23) / 3])
    seen = set()
    for t in range(40):
        key = Key(1, t, 0, 1)
        message = c.compress(x, key)
        assert message[:4].tobytes() in (
            np.float32(2).tobytes(),
            np.nextafter(np.float32(2), np.float32(3)).tobytes(),
        )
        bits = int.from_bytes(message[4:].tobytes(), "little")
        assert len(message) == 4 + 2 == c.nbytes(4)
        symbols = bits & 7, bits >> 3 & 7, bits >> 6
        seen.add(symbols)
        step = float(message[:4].view("<f4")[0]) / np.array([3, 2, sqrt(3)])
        wanted = (np.array(symbols) - [3, 2, 2]) * step
        assert c.decompress(message, 4, key)[[0, 2, 3]] == pytest.approx(wanted, rel=1e-15)
    assert {symbols[2] for symbols in seen} == {3, 4}
    assert all(symbols[0] in (3, 4) and symbols[1] in (1, 2) for symbols in seen)


def test_golden_messages_with_weights():
    """The bytes of a message, so that a change of the wire is noticed."""
    x = np.array([0.75, -3.0, 0.0, 3.0, -0.0, 1.0, -1.0])
    w, key = (1.0, 16.0, 0.5, 4.0, 0.0, 9.0, 1.0), Key(11, 3, 2, 4)
    wire = {
        VaryingSteps(9.0, w): "5b1b914012d905",
        BlockSteps(9.0, 3, w, "f8"): "8ae3071a17bd08400000000000000840cd3b7f669ea0f63f156404",
        Importance(3, w, "f2"): "003a00c2",
    }
    for c, message in wire.items():
        assert c.compress(x, key).tobytes().hex() == message


def test_the_sparse_code_by_hand():
    """Levels 0, 2, 0, -1, 3 within 4, 2, 0, 3, 5: three positions, then 2 (2 - 1) = 2 of 2 bits, 2 · 0 + 1
    = 1 of 3 bits and 2 (3 - 1) = 4 of 4 bits."""
    levels, s = np.array([0, 2, 0, -1, 3]), np.array([4, 2, 0, 3, 5])
    bounds = bounds_of(s)
    message = encode_sparse((s + levels).astype(np.uint16), bounds)
    positions = encode_indices(np.array([1, 3, 4]), 5)
    symbols = 2 | 1 << 2 | 4 << 5
    assert message.tolist() == [3, *positions.tolist(), symbols & 255, symbols >> 8]
    kept, found = decode_sparse(message, bounds)
    assert kept.tolist() == [1, 3, 4] and (found - s[kept]).tolist() == [2, -1, 3]
    assert encode_sparse(s.astype(np.uint16), bounds).tolist() == [0]


def test_the_sparse_code_refuses_what_it_cannot_be():
    s = np.array([4, 2, 0, 3, 5])
    for levels in ([0, 0, 1, 0, 0], [0, 0, 0, 4, 0]):  # where there are no levels; beyond the bound
        wider = np.maximum(s, levels)
        message = encode_sparse((wider + levels).astype(np.uint16), bounds_of(wider))
        with pytest.raises(MessageError):
            decode_sparse(message, bounds_of(s))
    with pytest.raises(MessageError, match="announces 6 entries of a vector in R"):
        decode_sparse(np.array([6, 0, 0], np.uint8), bounds_of(s))
    with pytest.raises(MessageError):
        decode_sparse(np.empty(0, np.uint8), bounds_of(s))


@fuzz
@given(st.lists(st.tuples(st.integers(0, MOST), st.integers(0, 2**16)), min_size=1, max_size=40))
def test_levels_come_back_in_either_code(pairs):
    bounds = bounds_of(np.array([bound for bound, _ in pairs]))
    symbols = np.array([symbol % (2 * bound + 1) for bound, symbol in pairs], dtype=np.uint16)
    message = encode_fixed(symbols, bounds)
    assert len(message) == bounds.nbytes == -(-sum((2 * bound).bit_length() for bound, _ in pairs) // 8)
    assert np.array_equal(decode_fixed(message, bounds), symbols)
    kept, found = decode_sparse(encode_sparse(symbols, bounds), bounds)
    assert np.array_equal(kept, np.flatnonzero(symbols != bounds.most // 2))
    assert np.array_equal(found, symbols[kept])


@pytest.mark.parametrize("make", [lambda **k: VaryingSteps(6.0, **k), lambda **k: BlockSteps(6.0, 3, **k)])
def test_the_code_changes_bytes_and_nothing_else(make):
    x, long = rng(1).normal(size=200), rng(2).normal(size=200)
    for key in (Key(1, t, 0, 3) for t in range(10)):
        values = []
        for code in CODES:
            c = make(code=code)
            values.append(c.decompress(c.compress(x, key), 200, key))
        assert np.array_equal(*values)
    fixed, sparse = (len(make(code=code).compress(long, KEY)) for code in CODES)
    assert sparse < fixed / 2  # 6 levels or so of 200


def test_a_block_has_a_norm_of_its_own():
    c = BlockSteps(1000.0, 3, values="f8")
    x = np.array([3.0, 4.0, 5.0, 12.0, 0.0, 0.0])
    assert c.compress(x, KEY)[:24].view("<f8").tolist() == [5.0, 13.0, 0.0]
    assert c.nbytes(6) == 24 + 7  # 1/h = 1000 sqrt(2)/6, so s = 236 and 6 symbols of 9 bits


def test_a_symbol_beyond_the_levels_is_refused():
    c = VaryingSteps(4.0, (9.0, 0.0, 4.0, 3.0))  # symbols up to 6, 4 and 4
    for symbols in ((7, 0, 0), (0, 5, 0), (0, 0, 5)):
        bits = symbols[0] | symbols[1] << 3 | symbols[2] << 6
        message = np.concatenate(
            [np.float32([1]).view(np.uint8), np.array([bits & 255, bits >> 8], np.uint8)]
        )
        with pytest.raises(MessageError, match="symbol"):
            c.decompress(message, 4, KEY)


@fuzz
@given(
    st.sampled_from([(np.uint64, 63), (np.uint16, 16)]),
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 2**63 - 1)), max_size=40),
)
def test_symbols_of_any_widths_come_back(kind, pairs):
    dtype, most = kind
    widths = np.array([min(width, most) for width, _ in pairs], dtype=np.uint8)
    values = [value % 2**width for width, (_, value) in zip(widths.tolist(), pairs, strict=True)]
    symbols, nbytes = np.array(values, dtype=dtype), widths_nbytes(widths)
    message = pack_widths(symbols, widths, nbytes)
    assert len(message) == nbytes == -(-sum(widths.tolist()) // 8)
    assert np.array_equal(unpack_widths(message, widths, nbytes, dtype), symbols)
    number = 0
    for width, value in reversed(list(zip(widths.tolist(), values, strict=True))):
        number = number << width | value
    assert int.from_bytes(message.tobytes(), "little") == number  # one after the other, lowest bit first
    for wrong in (np.append(message, np.uint8(0)), message[:-1]):
        if len(wrong) != len(message):
            with pytest.raises(MessageError):
                unpack_widths(wrong, widths, nbytes, dtype)


@pytest.mark.parametrize("width", [1, 3, 8, 16])
def test_equal_widths_are_packed_as_ever(width):
    symbols, widths = rng(width).integers(0, 2**width, 37).astype(np.uint64), np.full(37, width, np.uint8)
    assert np.array_equal(pack_widths(symbols, widths, widths_nbytes(widths)), pack(symbols, width))


# --- what is refused ---


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: VaryingSteps(0.0), "beta"),
        (lambda: VaryingSteps(float("nan")), "beta"),
        (lambda: VaryingSteps(2.0**15), "beta"),
        (lambda: VaryingSteps(True), "beta"),
        (lambda: VaryingSteps("8"), "beta"),
        (lambda: VaryingSteps(8.0, values="f2"), "values"),
        (lambda: VaryingSteps(8.0, code="dense"), "code='dense'; allowed: 'fixed', 'sparse'"),
        (lambda: VaryingSteps(8.0, [1.0, 2.0]), "tuple"),
        (lambda: VaryingSteps(8.0, (1.0, "2")), "tuple"),
        (lambda: VaryingSteps(8.0, (1.0, -1.0)), "not negative"),
        (lambda: VaryingSteps(8.0, (1.0, float("inf"))), "finite"),
        (lambda: VaryingSteps(8.0, (0.0, 0.0)), "above 0"),
        (lambda: BlockSteps(8.0, 0), "blocks"),
        (lambda: BlockSteps(8.0, 2.0), "blocks"),
        (lambda: BlockSteps(8.0, True), "blocks"),
        (lambda: Importance(0), "k=0"),
        (lambda: Importance(0.5, (1.0, float("nan"))), "finite"),
        (lambda: Importance(0.5, values="f5"), "f5"),
        (lambda: VaryingSteps(8.0, (1.0, 10**400)), "finite"),
        (lambda: Shrunk(VaryingSteps(8.0, (1.0, 0.0))), r"U=VaryingSteps\(..\) has weights of 0"),
        (lambda: Shrunk(Importance(1, (1.0, 0.0))), r"U=Importance\(..\) has weights of 0"),
        (lambda: QuantizedTopK(2, VaryingSteps(8.0, (1.0, 0.0))), "weights of 0.*allowed: weights above 0"),
        (lambda: Quantized(RandK(2), VaryingSteps(8.0, (1.0, 0.0))), "weights of 0"),
        (lambda: Quantized(RandK(2), Importance(1)), "an unbiased quantiser"),
    ],
)
def test_a_wrong_configuration_is_refused_with_what_is_allowed(build, match):
    with pytest.raises(ConfigError, match=match):
        build()


def test_weights_of_numpy_s_are_written_as_python_s():
    c = VaryingSteps(2.0, tuple(np.array([1.0, 0.5])))
    assert repr(c) == repr(VaryingSteps(2.0, (1, 0.5))) and "np" not in repr(c)


@pytest.mark.parametrize(
    "make", [lambda w: VaryingSteps(3.0, w), lambda w: BlockSteps(3.0, 2, w), lambda w: Importance(2, w)]
)
def test_weights_are_of_one_dimension(make):
    c = make((1.0, 2.0, 3.0))
    for d, relation in ((2, "exceeds"), (4, "falls short of")):
        with pytest.raises(ConfigError, match=f"3, {relation} the dimension d={d}"):
            c.compress(np.ones(d), KEY)


def test_blocks_are_no_more_than_coordinates():
    with pytest.raises(ConfigError, match="blocks=5 exceeds the dimension d=4; allowed: 1 to 4"):
        BlockSteps(3.0, 5).compress(np.ones(4), KEY)
