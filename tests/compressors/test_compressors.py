"""Compressors: every case of ``conformance.CASES`` keeps the promises of its class."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp import compressors, kernels
from mpicomp.base.errors import ConfigError, DivergedError, MessageError
from mpicomp.compressors import (
    COMPRESSORS,
    EDEN,
    Bernoulli,
    BlockDithering,
    BlockFloat,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Layered,
    Lazy,
    Lossless,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    RotatedSign,
    Shrunk,
    Sign,
    Ternary,
    TopK,
    TwoMeans,
)
from mpicomp.compressors.support.sparsifier import Sparsifier
from mpicomp.keys import Key
from tests.support.conformance import CASES, fuzz, golden
from tests.support.sampling import KEY, apply, each

GOLDEN = Path(__file__).parents[1] / "golden"


# --- what every compressor promises ---


def test_every_compressor_of_the_table_is_covered():
    kinds = [[cls for cls in COMPRESSORS.values() if isinstance(case.c, cls)] for case in CASES]
    assert all(len(found) == 1 for found in kinds)
    assert {cls for (cls,) in kinds} == set(COMPRESSORS.values())
    assert len({str(case) for case in CASES}) == len(CASES)


@each
def test_a_compressor_is_its_repr(case):
    again = case.bound(eval(repr(case.c), vars(compressors)))
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
            assert case.c.paper_bits(message, case.d, case.key(t, i)) >= 0
    if expected is not None:
        with suppress(ConfigError):
            assert case.c.mean_nbytes(case.d, case.n) == expected


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


@each
def test_edge_vectors(case, subtests):
    """A legal message or, where a value does not fit, an error that names the format."""
    for kind, x in edge_vectors(case.d).items():
        with subtests.test(kind):
            check_edge(case, x)


def check_edge(case, x):
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
        if "zeros" in case.keeps:
            assert (value[x == 0] == 0).all()
        if "signs" in case.keeps:
            assert (value * np.sign(x) >= 0).all()
        # The largest gain, times a norm of up to sqrt(d) times the largest entry, times a rounding up.
        limit = 2 * (1 + case.d) * case.n * max(top, 2.0**-126)
        assert np.abs(value).max() <= (limit if top else 0.0)


NOT_FINITE = np.inf, -np.inf, np.nan


@each
def test_a_vector_of_what_is_not_finite_is_refused(case):
    """Every message that has something of the vector is refused; an empty message has nothing of it."""
    for value, dtype in product(NOT_FINITE, (np.float64, np.float32)):
        for t in range(5):
            if len(case.c.compress(case.vectors()[0], case.key(t))) or isinstance(case.c, HardThreshold):
                with pytest.raises(DivergedError):
                    case.c.compress(np.full(case.d, value, dtype=dtype), case.key(t))


def looks_everywhere(c) -> bool:
    """Sparsifiers, and what is made of them, look at what they send only."""
    if isinstance(c, EDEN):
        return c.bits >= 1
    if isinstance(c, Layered):
        return all(looks_everywhere(m.C) for m in c.members(c.parts.size))
    return (
        looks_everywhere(c.U)
        if isinstance(c, Shrunk)
        else not isinstance(c, Sparsifier | Quantized | Importance)
    )


@pytest.mark.parametrize("case", [c for c in CASES if looks_everywhere(c.c)], ids=str)
def test_one_entry_that_is_not_finite_is_refused_wherever_it_is(case):
    for value, j in product(NOT_FINITE, range(case.d)):
        x = case.vectors()[0]
        x[j] = value
        with pytest.raises(DivergedError):
            case.c.compress(x, case.key())


@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.c, Sparsifier)], ids=str)
def test_sparsifiers_refuse_exactly_what_they_would_send(case):
    sent = np.zeros(case.d, bool)
    for positions in case.c.support(case.d, case.key()):
        sent[positions] = True
    for value, j in product(NOT_FINITE, range(case.d)):
        x = np.ones(case.d)
        x[j] = value
        if sent[j]:
            with pytest.raises(DivergedError, match="not finite"):
                case.c.compress(x, case.key())
        else:
            case.c.compress(x, case.key())


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize(
    "c",
    [
        Lossless(),
        Identity(),
        Dithering(7),
        Dithering(7, "inf"),
        Ternary("f8"),
        Natural(),
        Natural("f8"),
        NaturalDithering(5),
        BlockDithering(),
        BlockFloat(4),
        Sign(),
        RotatedSign(2),
        EDEN(),
        EDEN(3, "inner_product"),
        TwoMeans(),
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


@each
def test_the_smallest_dimensions(case, subtests):
    """Whatever is legal works; a count above d is refused when it is used, and says so."""
    for d, n in product((1, 2, 3), (1, 3)):
        with subtests.test(d=d, n=n):
            check_dimension(case, d, n)


def check_dimension(case, d, n):
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
    (lambda: TopK(0.0), r"k=0\.0; allowed"),
    (lambda: TopK(-0.5), r"k=-0\.5; allowed"),
    (lambda: QuantizedTopK(0, Natural()), r"k=0; allowed"),
    (lambda: RandK(3, layout="blocks"), r"layout='blocks'; allowed: 'uniform', 'block'"),
    (lambda: RandK(3, mask="common"), r"mask='common'; allowed: 'independent', 'shared'"),
    (lambda: RandK(3, values="f16"), r"'f16'.*f8, f4, f2, bf16"),
    (lambda: PermK(layout="cyclic"), r"layout='cyclic'; allowed: 'uniform', 'block'"),
    (lambda: PermK(values="f16"), r"'f16'.*f8, f4, f2, bf16"),
    (lambda: Identity("double"), r"'double'.*f8, f4, f2, bf16"),
    (lambda: Lossless("half"), r"'half'.*'exact', 'f8', 'f4', 'f2', 'bf16'"),
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
    (lambda: BlockFloat(6), r"bits=6; allowed: 4, 8"),
    (lambda: BlockFloat(8.0), r"bits=8\.0; allowed: 4, 8"),
    (lambda: BlockFloat(block=True), r"block=True; allowed: 16, 32, 64, 128"),
    (lambda: BlockDithering(4, 24), r"block=24; allowed: 16, 32, 64, 128"),
    (lambda: BlockDithering("4"), r"bits='4'; allowed: 4, 8"),
    (lambda: NaturalDithering(128), r"s=128; allowed: .* 1 to 127"),
    (lambda: NaturalDithering(3, p="1"), r"p='1'; allowed: '2', 'inf'"),
    (lambda: Sign("f2"), r"values='f2'; allowed: 'f4', 'f8'"),
    (lambda: RotatedSign(0), r"b=0; allowed: an integer from 1 to 16"),
    (lambda: RotatedSign(17), r"b=17; allowed: an integer from 1 to 16"),
    (lambda: RotatedSign(1.0), r"b=1\.0; allowed: an integer from 1 to 16"),
    (lambda: RotatedSign(True), r"b=True; allowed: an integer from 1 to 16"),
    (lambda: RotatedSign(block=64), r"block=64; allowed: 128, 256, 512, 1024, 2048, 4096"),
    (lambda: EDEN(5), r"bits=5; allowed: 1, 2, 3, 4, or a fraction"),
    (lambda: EDEN(1.0), r"bits=1\.0; allowed: 1, 2, 3, 4, or a fraction"),
    (lambda: EDEN(0.0), r"bits=0\.0; allowed: 1, 2, 3, 4, or a fraction"),
    (lambda: EDEN(float("nan")), r"bits=nan; allowed: 1, 2, 3, 4, or a fraction"),
    (lambda: EDEN(True), r"bits=True; allowed: 1, 2, 3, 4, or a fraction"),
    (lambda: EDEN(1, "paper"), r"scale='paper'; allowed: 'least_error', 'inner_product'"),
    (lambda: EDEN(1, block=100), r"block=100; allowed: 128"),
    (lambda: Quantized(RandK(3), EDEN(2)), r"Q=EDEN.*allowed: an unbiased quantiser"),
    (lambda: Shrunk(EDEN(2, "inner_product")), r"U=EDEN.*allowed: an unbiased compressor"),
    (lambda: TwoMeans("f2"), r"values='f2'; allowed: 'f4', 'f8'"),
    (lambda: HardThreshold(-1.0), r"lam=-1\.0; allowed"),
    (lambda: HardThreshold(float("nan")), r"lam=nan; allowed"),
    (lambda: HardThreshold.averaging("10"), r"k='10'; allowed: an average number"),
    (lambda: HardThreshold.averaging(True), r"k=True; allowed: an average number"),
    (lambda: RandK(2, layout=np.array([1, 2])), r"layout=array.*allowed: 'uniform', 'block'"),
    (lambda: HardThreshold(1.0, "f16"), r"'f16'.*f8, f4, f2, bf16"),
    (lambda: Quantized(TopK(3), Natural()), r"S=TopK.*allowed: RandK, PermK.*QuantizedTopK"),
    (lambda: Quantized(Natural(), Natural()), r"S=Natural.*allowed: RandK"),
    (lambda: Quantized(RandK(3), RandK(2)), r"Q=RandK.*allowed: an unbiased quantiser"),
    (lambda: Quantized(RandK(3), Sign()), r"Q=Sign.*allowed: an unbiased quantiser"),
    (
        lambda: Quantized(RandK(3), Quantized(RandK(2), Natural())),
        r"Q=Quantized.*allowed: an unbiased quantiser",
    ),
    (lambda: QuantizedTopK(3, PermK()), r"Q=PermK.*an unbiased quantiser.*Dithering\(s=7\), or Sign\(\)"),
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


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_nbytes_refuses_the_dimensions_that_compress_refuses(case, d):
    """A method calls it where d becomes known, so that the first round meets no such error."""

    def said(ask):
        try:
            ask()
        except ConfigError as error:
            return str(error)
        return None

    by_compress = said(lambda: case.c.compress(np.ones(d), Key(0, 0, 0, case.n)))
    assert (said(lambda: case.c.nbytes(d)) is None) == (by_compress is None), by_compress


@pytest.mark.parametrize("c", [PermK(), Quantized(PermK(), Natural()), Shrunk(PermK("block"))], ids=str)
def test_permk_cannot_serve_the_server(c):
    with pytest.raises(ConfigError, match="PermK"):
        c.compress(np.ones(5), Key(1, 0, None, 3))


@pytest.mark.parametrize("c", [RandK(2), Bernoulli(0.5), Ternary(), Natural(), TopK(2), Lossless()], ids=str)
def test_the_others_can(c):
    key = Key(1, 0, None, 3)
    assert c.decompress(c.compress(np.ones(5), key), 5, key).shape == (5,)
