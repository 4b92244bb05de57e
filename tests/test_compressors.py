"""Compressors: every case of ``conformance.CASES`` keeps the promises of its class.

Statistical tests have fixed seeds and rest on the central limit theorem: means of ``ROUNDS`` rounds
(times workers where they are pooled) may be six of their standard deviations off, on both sides for
an equality, on one for a bound.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from functools import cache
from math import ceil, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp import compressors, kernels
from mpicomp.coding.indices import decode_indices, index_nbytes
from mpicomp.compressors import (
    COMPRESSORS,
    Absolute,
    Bernoulli,
    BlockSteps,
    Coded,
    CodedGaps,
    Contractive,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Lazy,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    RankR,
    Shrunk,
    Sign,
    Sparse,
    Ternary,
    TopK,
    Unbiased,
    VaryingSteps,
)
from mpicomp.compressors.sparsifier import Sparsifier
from mpicomp.errors import ConfigError, DivergedError, MessageError
from mpicomp.keys import Key
from tests.conformance import CASES, Case, fuzz, golden

ROUNDS = 600
SIGMAS = 6
GOLDEN = Path(__file__).parent / "golden"

each = pytest.mark.parametrize("case", CASES, ids=str)
KEY = Key(seed=5, round=2, worker=0, n=3)


def of(*kinds: type) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.c, kinds)], ids=str)


def apply(c, x, key=KEY):
    """C(x), by way of the bytes."""
    return c.decompress(c.compress(x, key), x.size, key)


def square(x) -> float:
    return float(np.sum(np.square(x)))


# --- what every compressor promises ---


def test_every_compressor_of_the_table_is_covered():
    assert {type(case.c) for case in CASES} == set(COMPRESSORS.values())
    assert len({str(case) for case in CASES}) == len(CASES)


@each
def test_a_compressor_is_its_repr(case):
    again = eval(repr(case.c), vars(compressors))
    assert again == case.c
    assert hash(again) == hash(case.c)


@each
def test_a_compressor_is_frozen(case):
    for field in fields(case.c):
        with pytest.raises(FrozenInstanceError):
            setattr(case.c, field.name, None)


@each
def test_the_message_is_a_function_of_the_vector_and_the_key(case):
    x = case.vectors()[0]
    before = x.copy()
    x.setflags(write=False)
    message = case.c.compress(x, case.key())
    assert message.dtype == np.uint8
    assert message.ndim == 1
    assert message.flags.c_contiguous
    assert not np.shares_memory(message, x)
    assert np.array_equal(x, before)
    assert np.array_equal(case.c.compress(x, case.key()), message)
    copy = message.copy()
    copy.setflags(write=False)
    first, second = (case.c.decompress(copy, case.d, case.key()) for _ in range(2))
    assert first.dtype == np.float64
    assert first.shape == (case.d,)
    assert np.array_equal(first, second)


@each
def test_the_draw_differs_between_rounds_and_workers_where_it_should(case):
    x = case.vectors()[0]
    by_round = {apply(case.c, x, case.key(t)).tobytes() for t in range(60)}
    assert (len(by_round) > 1) == (case.draws != "nothing")
    if case.n > 1:
        agree = all(
            np.array_equal(apply(case.c, x, case.key(t, 0)), apply(case.c, x, case.key(t, 1)))
            for t in range(60)
        )
        assert agree == (case.draws != "worker")


@each
def test_numpy_s_global_generator_is_never_touched(case):
    before = np.random.get_state(legacy=True)
    apply(case.c, case.vectors()[0], case.key())
    after = np.random.get_state(legacy=True)
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]


@each
def test_decompress_add_adds_the_scaled_vector(case):
    """Exactly for a power of two, to four units in the last place otherwise."""
    out = np.random.default_rng(3).integers(-8, 9, case.d) / 4
    for t in range(5):
        message = case.c.compress(case.vectors()[0], case.key(t))
        value = case.c.decompress(message, case.d, case.key(t))
        for scale, tolerance in ((1.0, 0.0), (0.5, 0.0), (-2.0, 0.0), (0.3, 1e-15)):
            got = out.copy()
            case.c.decompress_add(message, got, case.key(t), scale)
            atol = tolerance * np.abs(value).max()
            np.testing.assert_allclose(got, out + scale * value, rtol=tolerance, atol=atol)


@each
def test_decompress_add_works_in_single_precision(case):
    message = case.c.compress(case.vectors()[0], case.key())
    out = np.ones(case.d, dtype=np.float32)
    case.c.decompress_add(message, out, case.key())
    assert out.dtype == np.float32
    value = case.c.decompress(message, case.d, case.key())
    np.testing.assert_allclose(out, 1 + value, rtol=1e-6, atol=1e-6 * np.abs(value).max())


@each
def test_a_single_precision_vector_is_compressed_alike(case):
    """The data are exact in float32, so the value type of x changes nothing."""
    x = case.vectors()[0]
    single = apply(case.c, x.astype(np.float32), case.key())
    np.testing.assert_allclose(single, apply(case.c, x, case.key()), rtol=1e-6)


@each
def test_nbytes_is_the_length_of_the_message(case):
    expected = case.c.nbytes(case.d)
    for t in range(20):
        for i in range(case.n):
            message = case.c.compress(case.vectors()[i], case.key(t, i))
            assert expected is None or len(message) == expected
            assert case.c.paper_bits(message, case.d) >= 0
    if expected is not None:
        with suppress(ConfigError):
            assert case.c.mean_nbytes(case.d, case.n) == expected


@each
def test_mean_nbytes_is_the_mean_length(case):
    """Within six standard deviations, plus the byte of rounding that ``Quantized`` allows itself."""
    unknown = Sparse | HardThreshold | Coded | CodedGaps | VaryingSteps | BlockSteps
    parts = (case.c, getattr(case.c, "Q", None))
    if case.c.nbytes(case.d) is None and any(isinstance(c, unknown) for c in parts):
        with pytest.raises(ConfigError, match="no expected size"):
            case.c.mean_nbytes(case.d, case.n)
        return
    lengths = simulation(case).lengths
    slack = 1.0 if isinstance(case.c, Quantized) else 1e-9
    error = SIGMAS * lengths.std() / sqrt(lengths.size)
    assert abs(lengths.mean() - case.c.mean_nbytes(case.d, case.n)) <= error + slack


# --- edge cases ---


def edge_vectors(d: int) -> dict[str, np.ndarray]:
    j = np.arange(d)
    return {
        "zero": np.zeros(d),
        "signed zeros": np.where(j % 2, 0.0, -0.0),
        "one entry": np.where(j == d // 2, 2.0, 0.0),
        "ties": np.where(j % 3, 1.5, -1.5),
        "subnormal": np.where(j % 2, 5e-324, -3e-310),
        "single precision's subnormals": np.where(j % 2, 1.4e-45, -1e-40),
        "large": np.where(j % 2, 6e4, -6e4),
        "huge": np.where(j % 2, 3e38, -3e38),
        "beyond single precision": np.where(j % 2, 1e300, -1e300),
        "wide": np.where(j % 2, 1e30, 1e-30),
    }


@pytest.mark.parametrize("kind", edge_vectors(1))
@each
def test_edge_vectors(case, kind):
    """A legal message or, where a value does not fit, an error that names the format."""
    x = edge_vectors(case.d)[kind]
    top = np.abs(x).max()
    for t in range(3):
        try:
            message = case.c.compress(x, case.key(t))
        except DivergedError as error:
            assert top > 65504  # what the narrowest format holds
            assert any(f"'{values}'" in str(error) for values in ("f4", "f2", "bf16"))
            return
        value = case.c.decompress(message, case.d, case.key(t))
        assert np.isfinite(value).all()
        assert case.c.nbytes(case.d) in (None, len(message))
        if not isinstance(case.c, Sign | RankR):  # sign(0) = +1; RankR mixes entries
            assert (value[x == 0] == 0).all()
        if not isinstance(case.c, RankR):
            assert (value * np.sign(x) >= 0).all()
        # The largest gain, times a norm of up to sqrt(d) times the largest entry, times a rounding up.
        limit = 2 * (1 + case.d) * case.n * max(top, 2.0**-126)
        assert np.abs(value).max() <= (limit if top else 0.0)


NOT_FINITE = pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])


@NOT_FINITE
@each
def test_a_vector_of_what_is_not_finite_is_refused(case, value):
    """By whoever sends something of it; an empty message says nothing of any vector."""
    for dtype in (np.float64, np.float32):
        for t in range(5):
            if len(case.c.compress(case.vectors()[0], case.key(t))) or isinstance(case.c, HardThreshold):
                with pytest.raises(DivergedError):
                    case.c.compress(np.full(case.d, value, dtype=dtype), case.key(t))


def looks_everywhere(c) -> bool:
    """Sparsifiers, and what is made of them, look at what they send only."""
    return (
        looks_everywhere(c.U)
        if isinstance(c, Shrunk)
        else not isinstance(c, Sparsifier | Quantized | Importance)
    )


@NOT_FINITE
@pytest.mark.parametrize("case", [c for c in CASES if looks_everywhere(c.c)], ids=str)
def test_one_entry_that_is_not_finite_is_refused_wherever_it_is(case, value):
    for j in range(case.d):
        x = case.vectors()[0]
        x[j] = value
        with pytest.raises(DivergedError):
            case.c.compress(x, case.key())


@NOT_FINITE
@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.c, Sparsifier)], ids=str)
def test_sparsifiers_refuse_exactly_what_they_would_send(case, value):
    for j in range(case.d):
        x = np.ones(case.d)
        x[j] = value
        chosen = any(
            j in range(p.start, p.stop) if isinstance(p, slice) else j in p
            for p in case.c.support(case.d, case.key())
        )
        if chosen:
            with pytest.raises(DivergedError, match="not finite"):
                case.c.compress(x, case.key())
        else:
            case.c.compress(x, case.key())


@NOT_FINITE
@pytest.mark.parametrize(
    "c",
    [
        Sparse(),
        Identity(),
        Dithering(7),
        Dithering(7, "inf"),
        Ternary("f8"),
        Natural(),
        Natural("f8"),
        NaturalDithering(5),
        Sign(),
        TopK(0.01),
        HardThreshold(0.5),
    ],
    ids=str,
)
def test_long_vectors_that_are_not_finite_are_refused(c, value):
    d = 2 * kernels.LONG + 5
    for dtype in (np.float64, np.float32):
        for j in (0, 1023, d // 2, d - 1):
            x = np.random.default_rng(j).standard_normal(d, dtype=dtype)
            x[j] = value
            with pytest.raises(DivergedError):
                c.compress(x, KEY)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 3])
@each
def test_the_smallest_dimensions(case, d, n):
    """Whatever is legal works; a count above d is refused when it is used, and says so."""
    x = np.array([1.5, -2.0, 0.25])[:d]
    for t in range(10):
        for worker in range(n):
            key = Key(1, t, worker, n)
            try:
                message = case.c.compress(x, key)
            except ConfigError as error:
                assert f"the dimension d={d}" in str(error)  # that k exceeds, or rows does not divide
                return
            value = case.c.decompress(message, d, key)
            assert value.shape == (d,)
            assert np.isfinite(value).all()
            assert case.c.nbytes(d) in (None, len(message))


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize("d", [1, 7, 1030])
def test_k_equal_to_d_is_exact(d, layout):
    """Bit for bit, and no byte but the values crosses the wire."""
    x = np.random.default_rng(d).normal(size=d) * 10.0 ** np.random.default_rng(1).integers(-300, 300, d)
    for c in (
        RandK(d, layout, "f8"),
        TopK(d, "f8"),
        PermK(layout, "f8"),
        Bernoulli(1.0, "f8"),
        Lazy(1.0, "f8"),
    ):
        key = Key(1, 2, 0, 1)
        assert apply(c, x, key).tobytes() == x.tobytes()
        assert len(c.compress(x, key)) == 8 * d


# --- any bytes: a vector or MessageError ---


@each
def test_a_message_of_a_wrong_length_is_refused(case):
    for t in range(12):
        message = case.c.compress(case.vectors()[0], case.key(t))
        wrong = [np.append(message, np.uint8(0)), np.append(message, np.zeros(9, np.uint8))]
        wrong += [message[:-1], message[: len(message) // 2], message[:0]] if len(message) else []
        for buf in wrong:
            with pytest.raises(MessageError):
                case.c.decompress(buf, case.d, case.key(t))


@fuzz
@given(st.sampled_from(CASES), st.integers(0, 20), st.data())
def test_a_damaged_message_is_refused_or_some_vector(case, t, data):
    message = case.c.compress(case.vectors()[0], case.key(t)).copy()
    for _ in range(data.draw(st.integers(1, 3))):
        if len(message):
            bit = data.draw(st.integers(0, 8 * len(message) - 1))
            message[bit // 8] ^= 1 << (bit % 8)
    assert_vector_or_refused(case, message, t)


@fuzz
@given(st.sampled_from(CASES), st.integers(0, 20), st.binary(max_size=200))
def test_any_bytes_are_refused_or_some_vector(case, t, data):
    assert_vector_or_refused(case, np.frombuffer(data, dtype=np.uint8), t)


def assert_vector_or_refused(case, buf, t):
    # A flipped bit may make a number infinite; what numpy then says of sums is not the codec's.
    with np.errstate(all="ignore"), suppress(MessageError):
        assert case.c.decompress(buf, case.d, case.key(t)).shape == (case.d,)


@pytest.mark.parametrize(
    "malformed", json.loads((GOLDEN / "malformed.json").read_text()), ids=lambda m: m["why"]
)
def test_golden_malformed_messages_are_refused(malformed):
    c = eval(malformed["compressor"], vars(compressors))
    buf = np.frombuffer(bytes.fromhex(malformed["hex"]), dtype=np.uint8)
    with pytest.raises(MessageError, match=malformed["match"]):
        c.decompress(buf, malformed["d"], KEY)


def test_golden_messages():
    """The wire format does not change by accident; on purpose: ``python -m tests.golden.regenerate``."""
    recorded = json.loads((GOLDEN / "compressors.json").read_text())
    assert golden() == recorded


# --- moments ---


class Simulation:
    """C_i(a_i) over ``ROUNDS`` rounds on all workers: means, squared errors and lengths."""

    def __init__(self, case: Case) -> None:
        a, rounds = case.vectors(), ROUNDS if case.draws != "nothing" else 3
        self.x = a
        self.lengths = np.empty((rounds, case.n))
        self.errors = np.empty((rounds, case.n))  # |C_i(a_i) - a_i|^2
        self.joint = np.empty(rounds)  # |mean C_i(a_i) - mean a_i|^2
        total, squares = np.zeros_like(a), np.zeros_like(a)
        for t in range(rounds):
            mean = np.zeros(case.d)
            for i in range(case.n):
                message = case.c.compress(a[i], case.key(t, i))
                error = case.c.decompress(message, case.d, case.key(t, i)) - a[i]
                self.lengths[t, i] = len(message)
                self.errors[t, i] = square(error)
                total[i] += error
                squares[i] += error**2
                mean += error / case.n
            self.joint[t] = square(mean)
        self.bias = total / rounds
        self.deviation = np.sqrt(np.maximum(squares / rounds - self.bias**2, 0) / rounds)  # of the bias


@cache
def simulation(case: Case) -> Simulation:
    return Simulation(case)


def assert_mean(samples, expected: float, equality: bool) -> None:
    """The mean of ``samples`` is, or is at most, ``expected``."""
    excess = samples.mean() - expected
    allowed = SIGMAS * samples.std() / sqrt(samples.size) + 1e-12 * (1 + abs(expected))
    assert excess <= allowed
    assert not equality or excess >= -allowed


@of(Unbiased)
def test_unbiased(case):
    """Each coordinate on each worker.

    A coordinate just off a level is moved by roundings too rare to be seen in so few rounds.  So none
    counts as varying less than a third of what the vector's do in the root mean square: with a jump J
    and at most 20 chances in all, 20 J / ROUNDS < 6 (J/2) / (3 sqrt(ROUNDS)).  And 2^-22 of x_j goes to
    the rounding of a norm to float32, whose correction is rarer still.
    """
    s = simulation(case)
    typical = np.sqrt(np.mean(s.deviation**2, axis=1, keepdims=True))
    allowed = SIGMAS * np.maximum(s.deviation, typical / 3) + 2.0**-22 * np.abs(s.x)
    assert (np.abs(s.bias) <= allowed).all()


@of(Unbiased)
def test_omega_bounds_the_variance(case):
    """For sparsifiers with equality, whatever the vector: E |C(x) - x|^2 = (gain - 1) |x|^2."""
    s, omega = simulation(case), case.c.omega(case.d, case.n)
    for errors, x in zip(s.errors.T, s.x, strict=True):
        assert_mean(errors, omega * square(x), isinstance(case.c, Sparsifier))


@of(Unbiased)
def test_the_ab_inequality(case):
    """For sparsifiers with equality: independent ones A = omega/n, PermK A = B.

    A shared mask errs by omega |mean a_i|^2, as one worker with the mean would.
    """
    s, (a, b) = simulation(case), case.c.ab(case.d, case.n)
    squares, of_mean = np.mean(np.square(s.x).sum(axis=1)), square(s.x.mean(axis=0))
    assert a >= b >= 0
    shared = isinstance(case.c, RandK) and case.c.mask == "shared"
    assert_mean(s.joint, a * squares - b * of_mean, isinstance(case.c, Sparsifier) and not shared)
    if shared:
        assert_mean(s.joint, case.c.omega(case.d, case.n) * of_mean, equality=True)


@of(Contractive)
def test_alpha_bounds_the_error(case):
    s, alpha = simulation(case), case.c.alpha(case.d, case.n)
    assert 0 < alpha <= 1
    for errors, x in zip(s.errors.T, s.x, strict=True):
        assert_mean(errors, (1 - alpha) * square(x), equality=False)


@of(Absolute)
def test_delta_bounds_the_error(case):
    assert (simulation(case).errors <= case.c.delta(case.d)).all()


def mean_error(c, x, n=1, rounds=4000):
    """|C(x) - x|^2 / |x|^2 over fresh rounds."""
    return np.array([square(apply(c, x, Key(9, t, 0, n)) - x) for t in range(rounds)]) / square(x)


@pytest.mark.parametrize("d", [2, 9, 32])
def test_omega_of_ternary_is_attained(d):
    t = 1 / (sqrt(d) + 1)
    x = np.array([1.0] + [t] * (d - 1))
    assert_mean(mean_error(Ternary("f8"), x), (sqrt(d) - 1) / 2, equality=True)
    assert Ternary().omega(d, 1) == (sqrt(d) - 1) / 2


@pytest.mark.parametrize("values", ["f4", "f8"])
def test_omega_of_natural_compression_is_attained(values):
    x = 4 / 3 * 2.0 ** np.arange(-6, 6)
    assert_mean(mean_error(Natural(values), x), 1 / 8, equality=True)


def test_omega_of_natural_compression_is_nowhere_exceeded():
    """Its two roundings of m in [1, 2) err by (m - 1)(2 - m) in the mean, exactly."""
    for m in np.linspace(1, 2, 33):
        x = np.full(64, m)
        assert_mean(mean_error(Natural("f8"), x, rounds=200), (m - 1) * (2 - m) / m**2, equality=True)


def test_omega_of_dithering_is_attained_halfway_between_levels():
    """At the largest coordinate exact and the others half a level up, p = inf: (d-1)/4 (N/s)^2."""
    s, d = 3, 10
    x = np.array([1.0] + [0.5 / s] * (d - 1))
    expected = (d - 1) / (4 * s**2) / square(x)
    assert_mean(mean_error(Dithering(s, "inf", "f8"), x), expected, equality=True)
    assert expected <= Dithering(s, "inf").omega(d, 1)


@pytest.mark.parametrize(("c", "d"), [(Dithering(1), 16), (Dithering(4), 400), (Dithering(20), 7)])
def test_omega_of_qsgd_on_constant_vectors(c, d):
    """All |x_j| = N/sqrt(d): each coordinate errs by its Bernoulli variance, f (1 - f) (N/s)^2."""
    f = c.s / sqrt(d) % 1
    expected = d * f * (1 - f) / c.s**2
    assert_mean(mean_error(c, np.ones(d), rounds=2000), expected, equality=True)
    assert expected <= c.omega(d, 1) + 1e-12


@pytest.mark.parametrize("layout", ["uniform", "block"])
def test_omega_of_randk_holds_with_equality_on_a_single_entry(layout):
    """The heaviest tail there is: d^2/k^2 with probability k/d."""
    x = np.zeros(12)
    x[5] = 1.0
    assert_mean(mean_error(RandK(3, layout), x), 3.0, equality=True)


@pytest.mark.parametrize(
    ("n", "d", "a"), [(12, 4, 3 / 11), (13, 4, 10 / 36), (4, 13, 1.0), (5, 5, 1.0), (1, 3, 1.0)]
)
def test_the_ab_constants_of_permk(n, d, a):
    """For n = 13 it is (n - q)/(q (n - 1)), not (d - 1)/(n - 1): both sides are told apart."""
    assert PermK().ab(d, n) == pytest.approx((a, a), rel=1e-15)
    assert PermK("block").ab(d, n) == PermK().ab(d, n)


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize(("n", "d"), [(12, 4), (13, 4), (5, 13), (4, 4)])
def test_permk_attains_its_constants_on_opposed_workers(n, d, layout):
    """a_i of mean zero, where A alone counts."""
    a = np.zeros((n, d))
    a[0], a[1] = 1.0, -1.0
    c, errors = PermK(layout), []
    for t in range(1500):
        mean = sum(apply(c, a[i], Key(4, t, i, n)) for i in range(n)) / n
        errors.append(square(mean))
    assert_mean(np.array(errors), c.ab(d, n)[0] * 2 * d / n, equality=True)


def test_omega_of_a_composition_multiplies_and_is_attained():
    """1 + omega = (d/k)(1 + 1/8) at |x_j| = 4/3."""
    c, x = Quantized(RandK(4), Natural("f8")), np.full(12, 4 / 3)
    assert c.omega(12, 1) == pytest.approx(3 * 9 / 8 - 1, rel=1e-15)
    assert_mean(mean_error(c, x), 3 * 9 / 8 - 1, equality=True)


def test_omega_of_a_composition_takes_the_dimension_of_the_support():
    d, k = 100, 9
    assert Quantized(RandK(k), Ternary()).omega(d, 1) == pytest.approx(d / k * (1 + (sqrt(k) - 1) / 2) - 1)
    assert Quantized(PermK(), Ternary()).omega(d, 8) == pytest.approx(8 * (1 + (sqrt(13) - 1) / 2) - 1)
    assert QuantizedTopK(k, Ternary()).alpha(d, 1) == pytest.approx(k / (d * (1 + (sqrt(k) - 1) / 2)))


@pytest.mark.parametrize("k", [1, 3, 8])
def test_alpha_of_topk_is_attained_on_constant_magnitudes(k):
    x = np.array([1.0, -1.0] * 4)
    assert square(apply(TopK(k), x) - x) == (1 - TopK(k).alpha(8, 1)) * square(x)


@pytest.mark.parametrize("d", [1, 2, 8, 32])
def test_the_error_of_the_scaled_sign_is_exact(d):
    """|C(x) - x|^2 = |x|^2 - |x|_1^2 / d for each x; on integers and d a power of two to the last bit."""
    for seed in range(20):
        x = np.random.default_rng([d, seed]).integers(-9, 10, d).astype(float)
        assert square(apply(Sign(), x) - x) == square(x) - np.abs(x).sum() ** 2 / d


def test_alpha_of_the_scaled_sign_is_attained_on_a_single_entry():
    x = np.zeros(8)
    x[3] = -2.0
    assert square(apply(Sign(), x) - x) == (1 - Sign().alpha(8, 1)) * square(x)


def test_alpha_of_a_shrunk_randk_is_attained():
    """E |U/(1 + omega) - x|^2 = omega/(1 + omega) |x|^2, even draw by draw: k of d coordinates are right."""
    x = np.array([1.0, -1.0] * 6)
    c = Shrunk(RandK(3))
    assert c.alpha(12, 1) == 1 / 4
    for t in range(20):
        assert square(apply(c, x, Key(1, t, 0, 1)) - x) == 9.0


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
def test_sparse_is_lossless(x):
    """Every number comes back as it was; only the sign of a zero is not sent."""
    x = np.array(x) + 0.0  # -0.0 + 0.0 is 0.0
    assert apply(Sparse(), x).tobytes() == x.tobytes()
    single = np.where(np.abs(x) < 1e38, x, 1.0).astype(np.float32) + np.float32(0)
    assert apply(Sparse(), single).astype(np.float32).tobytes() == single.tobytes()


@pytest.mark.parametrize(("values", "width"), [("f8", 8), ("f4", 4), ("f2", 2), ("bf16", 2)])
def test_sparse_takes_the_smallest_layout(values, width):
    """One byte, then d values or count, index code and values, never more than the smaller of both."""
    d = 300
    for k in (0, 1, 10, 200, 270, 290, 299, 300):
        x = np.where(np.arange(d) < k, 1.5, 0.0)
        length = len(Sparse(values).compress(x, KEY))
        assert length == 1 + min(d * width, 2 + index_nbytes(d, k) + k * width)


def test_sparse_is_narrow_where_that_is_exact():
    assert len(Sparse().compress(np.full(9, 0.5), KEY)) == 1 + 4 * 9
    assert len(Sparse().compress(np.full(9, 0.1), KEY)) == 1 + 8 * 9
    assert len(Sparse().compress(np.full(9, 1e300), KEY)) == 1 + 8 * 9
    assert len(Sparse().compress(np.full(9, 0.1, dtype=np.float32), KEY)) == 1 + 4 * 9


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


def test_the_scaled_sign_of_the_largest_numbers_is_finite():
    """The mean of |x_j| is never above the largest, so neither may be its computation."""
    x = np.array([1.7e308, -1.7e308, 1.7e308])
    assert apply(Sign("f8"), x) == pytest.approx(x)


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
        (Sparse(), 32 * 40),
        (Shrunk(RandK(7)), 32 * 7),
    ]:
        assert c.paper_bits(c.compress(x, KEY), 40) == bits


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


# --- refused configurations ---

MISUSES = [
    (lambda: RandK(0), r"k=0; allowed: a count.* or a fraction"),
    (lambda: RandK(-3), r"k=-3; allowed"),
    (lambda: RandK(1.5), r"k=1\.5; allowed"),
    (lambda: RandK(1.0), r"k=1\.0; allowed"),
    (lambda: RandK(True), r"k=True; allowed"),
    (lambda: RandK("3"), r"k='3'; allowed"),
    (lambda: RandK(float("nan")), r"k=nan; allowed"),
    (lambda: TopK(0), r"k=0; allowed"),
    (lambda: TopK(-0.5), r"k=-0\.5; allowed"),
    (lambda: QuantizedTopK(0, Natural()), r"k=0; allowed"),
    (lambda: RandK(3, layout="blocks"), r"layout='blocks'; allowed: 'uniform', 'block'"),
    (lambda: RandK(3, mask="common"), r"mask='common'; allowed: 'independent', 'shared'"),
    (lambda: RandK(3, values="f16"), r"'f16'.*f8, f4, f2, bf16"),
    (lambda: PermK(layout="cyclic"), r"layout='cyclic'; allowed: 'uniform', 'block'"),
    (lambda: PermK(values="f16"), r"'f16'.*f8, f4, f2, bf16"),
    (lambda: Identity("double"), r"'double'.*f8, f4, f2, bf16"),
    (lambda: Sparse("half"), r"'half'.*'exact', 'f8', 'f4', 'f2', 'bf16'"),
    (lambda: Bernoulli(0.0), r"q=0\.0; allowed"),
    (lambda: Bernoulli(1.1), r"q=1\.1; allowed"),
    (lambda: Lazy(-0.1), r"q=-0\.1; allowed"),
    (lambda: Lazy(float("nan")), r"q=nan; allowed"),
    (lambda: Dithering(0), r"s=0; allowed: .* 1 to 32767"),
    (lambda: Dithering(2**15), r"s=32768; allowed: .* 1 to 32767"),
    (lambda: Dithering(2.0), r"s=2\.0; allowed"),
    (lambda: Dithering(3, p="1"), r"p='1'; allowed: '2', 'inf'"),
    (lambda: Dithering(3, values="f2"), r"values='f2'; allowed: 'f4', 'f8'"),
    (lambda: Ternary("bf16"), r"values='bf16'; allowed: 'f4', 'f8'"),
    (lambda: Natural("f2"), r"values='f2'; allowed: 'f4', 'f8'"),
    (lambda: NaturalDithering(128), r"s=128; allowed: .* 1 to 127"),
    (lambda: NaturalDithering(3, p="1"), r"p='1'; allowed: '2', 'inf'"),
    (lambda: Sign("f2"), r"values='f2'; allowed: 'f4', 'f8'"),
    (lambda: HardThreshold(-1.0), r"lam=-1\.0; allowed"),
    (lambda: HardThreshold(float("nan")), r"lam=nan; allowed"),
    (lambda: HardThreshold(1.0, "f16"), r"'f16'.*f8, f4, f2, bf16"),
    (lambda: Quantized(TopK(3), Natural()), r"S=TopK.*allowed: RandK, PermK.*QuantizedTopK"),
    (lambda: Quantized(Natural(), Natural()), r"S=Natural.*allowed: RandK"),
    (lambda: Quantized(RandK(3), RandK(2)), r"Q=RandK.*allowed: an unbiased quantiser"),
    (lambda: Quantized(RandK(3), Sign()), r"Q=Sign.*allowed: an unbiased quantiser"),
    (
        lambda: Quantized(RandK(3), Quantized(RandK(2), Natural())),
        r"Q=Quantized.*allowed: an unbiased quantiser",
    ),
    (lambda: QuantizedTopK(3, PermK()), r"Q=PermK.*allowed: an unbiased quantiser"),
    (lambda: Shrunk(TopK(3)), r"U=TopK.*allowed: an unbiased compressor"),
    (lambda: Shrunk(Shrunk(RandK(3))), r"U=Shrunk.*allowed: an unbiased compressor"),
]


@pytest.mark.parametrize(("build", "match"), MISUSES, ids=[match for _, match in MISUSES])
def test_a_wrong_configuration_is_refused_with_what_is_allowed(build, match):
    with pytest.raises(ConfigError, match=match):
        build()


@pytest.mark.parametrize(
    "c", [RandK(6), TopK(6), QuantizedTopK(6, Natural()), Quantized(RandK(6), Natural())], ids=str
)
def test_k_above_d_is_refused_at_use(c):
    with pytest.raises(ConfigError, match="k=6 exceeds the dimension d=5; allowed: 1 to 5"):
        c.compress(np.ones(5), KEY)
    with pytest.raises(ConfigError, match="k=6 exceeds the dimension d=5; allowed: 1 to 5"):
        c.nbytes(5)


@pytest.mark.parametrize("c", [PermK(), Quantized(PermK(), Natural()), Shrunk(PermK("block"))], ids=str)
def test_permk_cannot_serve_the_server(c):
    with pytest.raises(ConfigError, match="PermK"):
        c.compress(np.ones(5), Key(1, 0, None, 3))


@pytest.mark.parametrize("c", [RandK(2), Bernoulli(0.5), Ternary(), Natural(), TopK(2), Sparse()], ids=str)
def test_the_others_can(c):
    key = Key(1, 0, None, 3)
    assert c.decompress(c.compress(np.ones(5), key), 5, key).shape == (5,)
