"""The CUDA kernels give the bytes of the numpy definitions.

Every test runs on a CPU that plays the device (``cuda_host``: the kernels' own sources, built by a C++
compiler) and on a GPU where CuPy finds one.
"""

from __future__ import annotations

from contextlib import suppress
from math import gcd

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpicomp import compressors
from mpicomp.base.bits import pack, packed_nbytes
from mpicomp.base.errors import ConfigError, DivergedError, MessageError
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.codecs.values import decode_values, encode_values
from mpicomp.kernels import definition, using
from mpicomp.kernels.cuda import norms
from mpicomp.kernels.cuda.norms import MEAN
from mpicomp.kernels.definition.reductions import tree_sum
from mpicomp.kernels.definition.scales import encode_scale
from mpicomp.kernels.index_layouts import index_nbytes, layout
from mpicomp.kernels.tiles import tiles_of
from mpicomp.keys import Key
from mpicomp.lab.bench import cuda as bench_cuda
from tests.support.backends import only
from tests.support.cuda_host import Host

FORMATS = ("f8", "f4", "f2", "bf16")
KEY = Key(20240229 << 20, 3, 1, 4)
LEVELED = [
    compressors.Sign("f8"),
    compressors.Dithering(7, values="f8"),
    compressors.NaturalDithering(7, values="f8"),
    compressors.Ternary("f8"),
]
few = settings(deadline=None, derandomize=True, max_examples=40)


@pytest.fixture(scope="session")
def kernels(cuda):
    return cuda


@pytest.fixture(autouse=True, scope="module")
def _numpy_defines():
    """What the kernels are compared with is numpy's for long vectors too."""
    with pytest.MonkeyPatch.context() as patch:
        only(patch, definition)
        yield


def up(K, a):
    return K.xp.asarray(a)


def down(a):
    return a if isinstance(a, np.ndarray) else a.get()


def same(a, b) -> bool:
    """The same type and the same bits, -0.0 and 0.0 apart."""
    a, b = down(a), down(b)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def key_and_stream(tag: str, seed: int = 20240229):
    key = Key(seed << 20, 3, 1, 4)
    return key, key.private(tag).name


def vector(d: int, kind: str, dtype, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    info = np.finfo(dtype)
    match kind:
        case "normal":
            x = draw.standard_normal(d)
        case "ties":
            x = draw.integers(-2, 3, d) * 0.5
        case "zero":
            x = np.where(draw.random(d) < 0.5, -0.0, 0.0)
        case "powers":
            x = np.ldexp(draw.choice([-1.0, 1.0], d), draw.integers(-30, 30, d))
        case "subnormal":
            x = draw.integers(-9, 10, d) * float(info.smallest_subnormal)
        case "huge":
            x = draw.choice([-1.0, 1.0, 0.3], d) * float(info.max)
        case "any":
            size = np.dtype(dtype).itemsize
            x = draw.bytes(size * d)
            x = np.frombuffer(x, dtype=dtype)
            return np.where(np.isfinite(x), x, dtype(1))
    return x.astype(dtype)


KINDS = ("normal", "ties", "zero", "powers", "subnormal", "huge", "any")
sizes = st.one_of(st.integers(1, 40), st.sampled_from([127, 128, 129, 513, 1023, 1024, 1025, 2600, 9000]))


@st.composite
def vectors(draw):
    """Vectors that begin 0 to 3 elements into their buffer, so that not all lie on 16 bytes."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    offset = draw(st.integers(0, 3))
    return vector(draw(sizes) + offset, draw(st.sampled_from(KINDS)), dtype, draw(st.integers(0, 2**32)))[
        offset:
    ]


def shifted(K, x, offset: int):
    """x on the device, some elements into a buffer."""
    buf = K.xp.empty(x.size + offset, dtype=x.dtype)
    buf[offset:] = up(K, x)
    return buf[offset:]


def agree(ours, theirs):
    """Both functions give the same bytes, or both raise the same class of error."""
    with np.errstate(over="ignore", under="ignore"):
        try:
            expected = theirs()
        except (DivergedError, MessageError) as error:
            with pytest.raises(type(error)):
                ours()
        else:
            assert same(ours(), expected)


def alike(K, c, x, offset: int = 0, key: Key = KEY):
    """c compresses x on the device, some elements into a buffer, to the bytes of the host."""

    def ours():
        with using(K):
            return c.compress(shifted(K, x, offset), key)

    agree(ours, lambda: c.compress(x, key))


def added_alike(K, c, message, d: int, offset: int = 0, key: Key = KEY):
    """What c adds on the device for ``message``, there too some bytes into a buffer, is what it adds here."""
    for out in outputs(d):
        expected, ours = out.copy(), shifted(K, out, offset)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            c.decompress_add(message, expected, key, -0.3)
            with using(K):
                c.decompress_add(shifted(K, message, offset), ours, key, -0.3)
        assert same(ours, expected)


def decoded_alike(K, buf, d: int, k: int):
    """The device finds in ``buf`` the set that the host does, or refuses it too."""
    agree(lambda: K.decode_indices(up(K, buf), d, k), lambda: decode_indices(buf, d, k))


def added(add, out):
    """The vector after ``add`` has added to it."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        add(out)
    return out


def outputs(d: int):
    for dtype in (np.float32, np.float64):
        yield np.where(np.arange(d) % 5 == 0, -0.0, np.linspace(-1, 1, d)).astype(dtype)


# --- words, permutations, sums ---


@few
@given(start=st.integers(0, 2**33), count=st.integers(1, 3000), seed=st.integers(0, 2**40))
def test_words(kernels, start, count, seed):
    key, stream = key_and_stream("words", seed)
    assert same(kernels.words(stream, start, count), key.private("words").words(count, start))


@few
@given(
    d=st.one_of(st.integers(1, 1100), st.integers(1100, 2**33)),
    at=st.floats(0, 1),
    seed=st.integers(0, 2**40),
)
@example(d=1024, at=0.0, seed=0)
@example(d=1025, at=0.0, seed=0)
def test_permutation(kernels, d, at, seed):
    _, stream = key_and_stream("permute", seed)
    start = int(at * d)
    stop = min(d, start + 600)
    assert same(kernels.permute(stream, d, start, stop), definition.permute(stream, d, start, stop))


@few
@given(x=vectors(), p=st.sampled_from(["2", "inf"]))
@example(x=vector(2**20 + 1, "normal", np.float32, 1), p="2")
@example(x=vector(2**20 - 1, "normal", np.float64, 1), p="2")
@example(x=np.arange(2.0**17 + 5), p="inf")
@example(x=vector(50_000, "huge", np.float64, 1), p="2")
@example(x=vector(50_000, "subnormal", np.float64, 1), p="2")
def test_norms(kernels, x, p):
    """At the head of a message, in double precision."""
    alike(kernels, compressors.Dithering(1, p, "f8"), x)
    alike(kernels, compressors.Sign("f8"), x)


def test_a_tree_of_three_levels_in_the_grid_and_two_in_the_last_block(kernels):
    d = 2**25 + 3  # more than 2^15 block sums
    if isinstance(kernels.device, Host):
        sums = np.random.default_rng(0).random(2**15 + 3)
        scale = norms.finish_sum(kernels, up(kernels, sums), 1, MEAN, None, kernels.xp.zeros(8, np.uint8))
        assert down(scale)[1] == tree_sum(sums)
    else:
        alike(kernels, compressors.Dithering(1, "2", "f8"), vector(d, "normal", np.float32, 5))


# --- dense messages ---


@few
@given(x=vectors(), values=st.sampled_from(["f4", "f8"]), offset=st.integers(0, 3))
def test_sign(kernels, x, values, offset):
    alike(kernels, compressors.Sign(values), x, offset)


@few
@given(x=vectors(), values=st.sampled_from(["f4", "f8"]), offset=st.integers(0, 3))
def test_adding_signs(kernels, x, values, offset):
    message = np.concatenate([encode_scale(0.7, values)[0], np.packbits(x < 0, bitorder="little")])
    added_alike(kernels, compressors.Sign(values), message, x.size, offset)


@few
@given(x=vectors(), values=st.sampled_from(["f4", "f8"]), offset=st.integers(0, 3))
@example(x=np.array([1.0, -(2.0**128)]), values="f4", offset=0)
@example(x=np.array([1.0, np.nextafter(2.0**128, 0.0)]), values="f4", offset=0)
@example(x=np.array([1e300, np.finfo(np.float64).max]), values="f8", offset=0)
@example(x=np.array([1.0, np.nan]), values="f8", offset=0)
def test_natural(kernels, x, values, offset):
    c = compressors.Natural(values)
    alike(kernels, c, x, offset)
    with suppress(DivergedError):
        added_alike(kernels, c, c.compress(x, KEY), x.size, offset)


@few
@given(
    x=vectors(),
    bits=st.sampled_from([4, 8]),
    block=st.sampled_from([16, 32, 64, 128]),
    offset=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
@example(x=np.array([1.0, 1e300, np.inf]), bits=8, block=16, offset=0, seed=0)
@example(x=np.array([1.0, -np.nan]), bits=4, block=16, offset=0, seed=0)
def test_block_floats(kernels, x, bits, block, offset, seed):
    """And integers of any kind, among which is one that is refused."""
    for c in (compressors.BlockFloat(bits, block), compressors.BlockDithering(bits, block)):
        alike(kernels, c, x, offset)
    draw = np.random.default_rng(seed)
    message = draw.integers(0, 256, c.nbytes(x.size)).astype(np.uint8)
    if bits == 8:  # mostly none is refused
        message[message == 128] = 7
    else:
        message &= 0x77
    added_alike(kernels, c, message, x.size, offset)
    codes = -(-x.size // block)
    message[codes + draw.integers(0, -(-x.size * bits // 8))] = 128 if bits == 8 else 0x08
    with pytest.raises(MessageError, match="the integer -"), using(kernels):
        c.decompress_add(shifted(kernels, message, offset), up(kernels, np.ones(x.size)), KEY)


@settings(few, max_examples=10)
@given(
    x=vectors(),
    bits=st.sampled_from([1, 2, 3, 4]),
    block=st.sampled_from([128, 256, 1024, 4096]),
    offset=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
@example(x=np.array([1.0, 1e300, np.inf]), bits=1, block=128, offset=0, seed=0)
@example(x=np.array([1.0, 1e300, 2.0]), bits=3, block=128, offset=0, seed=0)
@example(x=np.append(np.ones(200), np.nan), bits=2, block=128, offset=0, seed=0)
@example(
    x=np.where(np.arange(300) < 2, 16.0 ** -np.arange(300), 0.0), bits=3, block=128, offset=0, seed=0
)  # as signs
def test_rotated_levels(kernels, x, bits, block, offset, seed):
    """With both scales; and symbols of any kind, which are all levels, and a scale that is refused."""
    for scale in ("least_error", "inner_product"):
        c = compressors.EDEN(bits, scale, block)
        alike(kernels, c, x, offset)
    draw = np.random.default_rng(seed)
    message = draw.integers(0, 256, c.nbytes(x.size)).astype(np.uint8)
    count = -(-x.size // block)
    scales = message[: 4 * count].view(np.float32)
    scales[:] = np.ldexp(draw.random(count), draw.integers(-160, 128, count))
    added_alike(kernels, c, message, x.size, offset)
    scales[draw.integers(0, count)] = draw.choice([np.nan, np.inf, -1e-40])
    with pytest.raises(MessageError, match="a scale of"), using(kernels):
        c.decompress_add(shifted(kernels, message, offset), up(kernels, np.ones(x.size)), KEY)


@settings(few, max_examples=20)
@given(x=vectors(), b=st.integers(1, 3), offset=st.integers(0, 3))
def test_rotated_signs_in_stages(kernels, x, b, offset):
    c = compressors.RotatedSign(b, 256)
    alike(kernels, c, x, offset)
    if np.abs(x.astype(np.float64)).max() < 1e30:
        added_alike(kernels, c, c.compress(x, KEY), x.size, offset)


levels = st.sampled_from([1, 2, 3, 4, 7, 8, 15, 60, 127, 128, 5000, 2**15 - 1])


@few
@given(
    x=vectors(),
    s=levels,
    p=st.sampled_from(["2", "inf"]),
    values=st.sampled_from(["f4", "f8"]),
    offset=st.integers(0, 3),
)
@example(x=vector(20_000, "normal", np.float32, 1), s=7, p="inf", values="f4", offset=0)
@example(x=vector(20_000, "any", np.float32, 1), s=7, p="inf", values="f4", offset=0)
def test_dithering(kernels, x, s, p, values, offset):
    alike(kernels, compressors.Dithering(s, p, values), x, offset)


@few
@given(
    x=vectors(),
    s=levels.filter(lambda s: s < 128),
    p=st.sampled_from(["2", "inf"]),
    values=st.sampled_from(["f4", "f8"]),
    offset=st.integers(0, 3),
)
def test_natural_dithering(kernels, x, s, p, values, offset):
    alike(kernels, compressors.NaturalDithering(s, p, values), x, offset)


@few
@given(x=vectors(), values=st.sampled_from(["f4", "f8"]), offset=st.integers(0, 3))
@example(x=vector(5121, "normal", np.float32, 1), values="f4", offset=0)
def test_ternary(kernels, x, values, offset):
    c = compressors.Ternary(values)
    alike(kernels, c, x, offset)
    trits = definition.ternary_pack(x, definition.norm(x, "inf"), KEY.private("trits").name)
    added_alike(kernels, c, np.concatenate([encode_scale(0.7, values)[0], trits]), x.size, offset)


@few
@given(
    d=sizes,
    s=levels,
    values=st.sampled_from(["f4", "f8"]),
    offset=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
def test_adding_levels(kernels, d, s, values, offset, seed):
    symbols = np.random.default_rng(seed).integers(0, 2 * s + 1, d).astype(np.uint64)
    message = np.concatenate([encode_scale(0.7, values)[0], pack(symbols, (2 * s).bit_length())])
    added_alike(kernels, compressors.Dithering(s, values=values), message, d, offset)
    if s < 128:
        added_alike(kernels, compressors.NaturalDithering(s, values=values), message, d, offset)


@st.composite
def stepped(draw):
    """Compressors with steps from the same for all to one in a million of another, in few blocks or many."""
    beta = draw(st.sampled_from([0.3, 4.0, 70.0, 2.0**15 - 1]))
    form = {"values": draw(st.sampled_from(["f4", "f8"])), "code": draw(st.sampled_from(["fixed", "sparse"]))}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def make(d: int):
        kind = draw(st.sampled_from(["equal", "unlike", "some 0"]))
        w = rng.random(d) ** 9 * (rng.random(d) < 0.5 if kind == "some 0" else 1.0)
        w[0] += 1.0
        weights = None if kind == "equal" else tuple(w.tolist())
        blocks = draw(st.sampled_from([None, 1, 2, 3, 40]))
        if blocks is None:
            return compressors.VaryingSteps(beta, weights, **form)
        return compressors.BlockSteps(beta, min(blocks, d), weights, **form)

    return make


@few
@given(x=vectors(), make=stepped(), offset=st.integers(0, 3))
@example(x=vector(9000, "normal", np.float32, 1), make=lambda d: compressors.VaryingSteps(900.0), offset=0)
@example(
    x=vector(9000, "any", np.float64, 1), make=lambda d: compressors.BlockSteps(9e3, 3, values="f8"), offset=1
)
def test_steps(kernels, x, make, offset):
    c = make(x.size)
    alike(kernels, c, x, offset)
    smaller = (x / np.max(np.abs(x), initial=1.0)).astype(x.dtype)  # whose norms fit
    added_alike(kernels, c, c.compress(smaller, KEY), x.size, offset)


@few
@given(d=sizes, most=st.integers(0, 16), offset=st.integers(0, 3), seed=st.integers(0, 2**32))
def test_symbols_of_different_widths(kernels, d, most, offset, seed):
    rng = np.random.default_rng(seed)
    widths = rng.integers(0, most + 1, d).astype(np.uint8)
    symbols = (rng.integers(0, 2**16, d) & (2 ** widths.astype(np.int64) - 1)).astype(np.uint16)
    nbytes = -(-int(widths.sum()) // 8)
    ours = kernels.pack_widths(up(kernels, symbols), up(kernels, widths), nbytes)
    assert same(ours, definition.pack_widths(symbols, widths, nbytes))
    buf = rng.integers(0, 256, nbytes).astype(np.uint8)
    ours = kernels.unpack_widths(shifted(kernels, buf, offset), up(kernels, widths), np.uint16)
    assert same(ours, definition.unpack_widths(buf, widths, np.uint16))


# --- selection and index sets ---


@few
@given(x=vectors(), at=st.floats(0, 1), values=st.sampled_from(FORMATS), offset=st.integers(0, 3))
@example(x=vector(40_000, "normal", np.float32, 1), at=0.01, values="f4", offset=0)
@example(x=vector(40_000, "ties", np.float64, 1), at=0.3, values="bf16", offset=1)
def test_top_k(kernels, x, at, values, offset):
    k = max(1, int(at * x.size))
    assert same(kernels.top_k(shifted(kernels, x, offset), k), definition.top_k(x, k))
    alike(kernels, compressors.TopK(k, values), x, offset)


@few
@given(
    x=vectors(), at=st.floats(0, 1), rows=st.integers(1, 9), t=st.integers(1, 40), offset=st.integers(0, 3)
)
@example(vector(12_000, "normal", np.float32, 1), 0.05, 100, 64, 0)
@example(vector(9_001, "normal", np.float64, 1), 0.05, 1, 64, 1)
@example(vector(9_000, "ties", np.float32, 1), 0.3, 1, 80, 0)  # tiles of more than 4096 entries
def test_top_k_of_tiles(kernels, x, at, rows, t, offset):
    rows = gcd(rows, x.size)
    for tiles in tiles_of(rows, x.size // rows, t):
        k = max(1, int(at * tiles.size))
        ours = kernels.top_k_of_tiles(shifted(kernels, x, offset), tiles, k)
        assert same(ours, definition.top_k_of_tiles(x, tiles, k))
    c = compressors.TiledTopK(max(1, int(at * t)), rows=rows, tile=t)
    alike(kernels, c, x, offset)
    added_alike(kernels, c, c.compress(np.ones_like(x), KEY), x.size, offset)


@few
@given(x=vectors(), lam=st.sampled_from([0.0, 0.1, 0.5, 1.0, 1e-40, 1e30]), values=st.sampled_from(FORMATS))
def test_threshold_and_nonzeros(kernels, x, lam, values):
    ours = up(kernels, x)
    assert same(kernels.at_least(ours, lam), definition.at_least(x, lam))
    assert same(kernels.nonzero(ours), definition.nonzero(x))
    assert kernels.count_nonzero(ours) == np.count_nonzero(x)
    alike(kernels, compressors.HardThreshold(lam, values), x)
    alike(kernels, compressors.Lossless(values), x)


@few
@given(d=sizes, q=st.sampled_from([1e-6, 0.01, 0.3, 0.9, 1.0]), seed=st.integers(0, 2**40))
def test_coins(kernels, d, q, seed):
    """One probability for all coordinates, or one for each, at any address."""
    _, stream = key_and_stream("bernoulli", seed)
    each = np.random.default_rng(seed).choice([0.0, 2.0**-32, q, 1.0], d)
    words = definition.words(stream, 0, d)
    assert same(kernels.heads(stream, d, q), np.flatnonzero(words < q * 2.0**32))
    for p in (each, words * 2.0**-32):  # the latter falls just short
        for offset in range(4):
            ours = kernels.heads(stream, d, shifted(kernels, p, offset))
            assert same(ours, np.flatnonzero(words < p * 2.0**32))


@st.composite
def index_sets(draw):
    d = draw(st.one_of(sizes, st.integers(1, 2**20)))
    k = draw(st.integers(0, min(d, 1500)))
    chosen = np.random.default_rng(draw(st.integers(0, 2**32))).choice(d, k, replace=False)
    return np.sort(chosen).astype(np.int64), d


@few
@given(set_=index_sets(), offset=st.integers(0, 3))
@example(set_=(np.arange(3, dtype=np.int64) * 7, 2**33), offset=1)
def test_index_sets(kernels, set_, offset):
    indices, d = set_
    buf = encode_indices(indices, d)
    assert same(kernels.encode_indices(up(kernels, indices), d), buf)
    assert same(kernels.decode_indices(shifted(kernels, buf, offset), d, indices.size), indices)


@pytest.mark.parametrize("share", [0.05, 0.11, 0.5, 0.93])
@pytest.mark.parametrize("d", [8 * 4096, 8 * 4096 + 1, 10**5, 9 * 8 * 4096 + 5])
def test_dense_sets_of_many_runs(kernels, d, share):
    """Coded bitmaps, cut and damaged too."""
    k, draw = int(share * d), np.random.default_rng(d)
    indices = np.sort(draw.choice(d, k, replace=False)).astype(np.int64)
    buf = encode_indices(indices, d)
    assert same(kernels.encode_indices(up(kernels, indices), d), buf)
    assert same(kernels.decode_indices(shifted(kernels, buf, 1), d, k), indices)
    unlucky = 16 * np.arange(d // 20 + 45)  # whose last run has little to say
    assert same(kernels.encode_indices(up(kernels, unlucky), d), encode_indices(unlucky, d))
    assert same(kernels.decode_indices(up(kernels, encode_indices(unlucky, d)), d, unlucky.size), unlucky)
    for at in (0, 5, 700, buf.size // 2, buf.size - 9):
        wrong = buf.copy()
        wrong[at] ^= 1 << at % 8
        decoded_alike(kernels, wrong, d, k)


def test_the_index_sets_above_reach_every_layout():
    assert {min(layout(d, k)[0], 0) for d in (50, 1000) for k in range(1, d // 2)} == {0, -1, -2, -3}


@few
@given(d=sizes, at=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_bytes_that_hold_no_index_set_are_refused_alike(kernels, d, at, seed):
    k = int(at * d)
    draw = np.random.default_rng(seed)
    buf = draw.integers(0, 256, index_nbytes(d, k)).astype(np.uint8)
    decoded_alike(kernels, buf, d, k)
    if buf.size:  # one bit away from a set
        buf = encode_indices(np.sort(draw.choice(d, k, replace=False)).astype(np.int64), d)
        buf[draw.integers(buf.size)] ^= 1 << draw.integers(8)
        decoded_alike(kernels, buf, d, k)


# --- values ---


@few
@given(x=vectors(), values=st.sampled_from(FORMATS), offset=st.integers(0, 3))
def test_values(kernels, x, values, offset):
    agree(
        lambda: kernels.encode_values(shifted(kernels, x, offset), values), lambda: encode_values(x, values)
    )


@pytest.mark.parametrize("values", ["f2", "bf16"])
def test_rounding_around_every_short_float(kernels, values):
    """Each number of the format, the midpoint to the next, and a hair to either side of it."""
    codes = np.arange({"f2": 0x7C00, "bf16": 0x7F80}[values], dtype="<u2")  # those below infinity
    exact = decode_values(codes.view(np.uint8), codes.size, values).astype(np.float64)
    middle = (exact[:-1] + exact[1:]) / 2
    x = np.concatenate([exact, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    x = np.concatenate([x, -x])
    assert same(kernels.encode_values(up(kernels, x), values), encode_values(x, values))


@pytest.mark.parametrize("values", ["f2", "bf16"])
def test_decoding_every_short_float(kernels, values):
    codes = np.arange(2**16, dtype="<u2").view(np.uint8)
    with np.errstate(invalid="ignore"):
        expected = decode_values(codes, 2**16, values).astype(np.float32)
    ours = down(kernels.decode_values(up(kernels, codes), 2**16, values))
    finite = np.isfinite(expected)
    assert same(ours[finite], expected[finite])
    assert np.array_equal(ours, expected, equal_nan=True)


@few
@given(x=vectors(), at=st.floats(0, 1), offset=st.integers(0, 3))
def test_gather_scatter_and_add(kernels, x, at, offset):
    draw = np.random.default_rng(x.size)
    indices = draw.choice(x.size, max(1, int(at * x.size)), replace=False).astype(np.int64)
    values = x[indices]
    assert same(kernels.gather(shifted(kernels, x, offset), up(kernels, indices)), values)
    for out in outputs(x.size):
        expected = added(lambda o: definition.scatter_add(o, indices, values, 0.3), out.copy())
        ours = shifted(kernels, out, offset)
        kernels.scatter_add(ours, up(kernels, indices), up(kernels, values), 0.3)
        assert same(ours, expected)
        expected = added(lambda o: definition.add_scaled(o, x, 0.3), out.copy())
        ours = up(kernels, out.copy())
        kernels.add_scaled(ours, shifted(kernels, x, offset), 0.3)
        assert same(ours, expected)


@pytest.mark.parametrize("values", FORMATS)
def test_sparse_messages_there_and_back(kernels, values):
    x = vector(3000, "normal", np.float64, 7)
    for c in (compressors.HardThreshold(1.0, values), compressors.TopK(700, values)):
        alike(kernels, c, x)
        added_alike(kernels, c, c.compress(x, KEY), x.size)


@pytest.mark.parametrize("d", [40, 1024, 1025, 5000])
@pytest.mark.parametrize(
    "c",
    [
        compressors.RandK(0.3),
        compressors.RandK(0.3, "block"),
        compressors.PermK(),
        compressors.PermK("block"),
        compressors.Bernoulli(0.3),
        compressors.Importance(0.3),
        compressors.Quantized(compressors.RandK(0.3), compressors.Natural()),
    ],
    ids=str,
)
def test_supports_that_the_key_names(kernels, c, d):
    """Drawn on the device, one worker's after the other's, and never found among those of the host."""
    x = vector(d, "normal", np.float32, 3)
    for worker in (0, 3, 3):
        alike(kernels, c, x, key=KEY.of(worker))
        added_alike(kernels, c, c.compress(x, KEY.of(worker)), d, key=KEY.of(worker))


# --- refusals ---


@pytest.mark.parametrize("norm", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("c", LEVELED, ids=str)
def test_a_norm_that_is_none_is_refused(kernels, c, norm):
    message = np.zeros(c.nbytes(50), np.uint8)
    message[:8] = np.array([norm]).view(np.uint8)
    assert f"a norm of {norm}" in refused_alike(kernels, c, message, 50)


@pytest.mark.parametrize("at", [0, 1000, 2000])
def test_symbols_that_stand_for_nothing_are_refused_and_nothing_is_added(kernels, at):
    d, head = 2001, encode_scale(1.0, "f8")[0]
    symbols = np.full(d, 7, np.uint64)
    symbols[at] = 15
    buf = np.concatenate([head, pack(symbols, 4)])
    for c in (compressors.Dithering(7, values="f8"), compressors.NaturalDithering(7, values="f8")):
        refused_alike(kernels, c, buf, d)
    for values, width in (("f4", 8), ("f8", 11)):
        symbols[at] = 2**width - 1
        buf = np.concatenate([np.zeros(packed_nbytes(d, 1), np.uint8), pack(symbols, width)])
        refused_alike(kernels, compressors.Natural(values), buf, d)
    trits = np.zeros(401, np.uint8)
    trits[at // 5] = 243
    refused_alike(kernels, compressors.Ternary("f8"), np.concatenate([head, trits]), d)


def refused_alike(K, c, message, d: int) -> str:
    """With the same words, which come back, and nothing is added."""
    out = np.ones(d)
    with pytest.raises(MessageError) as expected:
        c.decompress_add(message, out, KEY)
    assert same(out, np.ones(d))
    out = up(K, out)
    with using(K), pytest.raises(MessageError) as refused:
        c.decompress_add(up(K, message), out, KEY)
    assert str(refused.value) == str(expected.value)
    assert same(out, np.ones(d))
    return str(refused.value)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("at", [0, 2500])
def test_what_is_not_finite_is_refused(kernels, value, dtype, at):
    x = vector(2600, "normal", dtype, 3)
    x[at] = value
    for c in (
        compressors.Sign(),
        compressors.Natural(),
        compressors.Natural("f8"),
        compressors.Dithering(7, "inf"),
        compressors.Dithering(7, "2", "f8"),
        compressors.NaturalDithering(7),
        compressors.Ternary("f8"),
        compressors.TopK(1),
        compressors.TwoMeans(),
        compressors.Identity("f8"),
        compressors.HardThreshold(1.0, "bf16"),
    ):
        with using(kernels), pytest.raises(DivergedError):
            c.compress(up(kernels, x), KEY)
    alike(kernels, compressors.Sign(), np.ones(3, dtype))  # and what comes next is none the worse


def test_padding_is_ignored(kernels):
    """The bits that fill up the last byte may be anything."""
    out = up(kernels, np.zeros(9))
    buf = np.concatenate([encode_scale(1.0, "f4")[0], pack(np.full(9, 7, np.uint64), 4)])
    buf[-1] |= 0xF0
    with using(kernels):
        compressors.Dithering(7).decompress_add(up(kernels, buf), out, KEY)
    assert not down(out).any()


def test_wrong_lengths_are_refused(kernels):
    for c in (
        compressors.Sign(),
        compressors.Natural(),
        compressors.Dithering(7),
        compressors.NaturalDithering(7),
        compressors.Ternary(),
        compressors.TopK(5),
        compressors.TwoMeans(),
        compressors.HardThreshold(1.0),
        compressors.Identity("f4"),
    ):
        refused_alike(kernels, c, np.zeros(0, np.uint8), 100)


def test_other_arrays_are_refused(kernels):
    for x in (kernels.xp.zeros(3, np.int64), kernels.xp.zeros((2, 2)), kernels.xp.zeros(6)[::2]):
        with pytest.raises(ConfigError, match="contiguous"):
            kernels.top_k(x, 1)


# --- the benchmark ---


def test_the_benchmark_can_call_all_it_names(kernels):
    x = [up(kernels, vector(3000, "normal", np.float32, seed)) for seed in (1, 2)]
    names = []
    with using(kernels):
        for calls in (bench_cuda._compress, bench_cuda._add):
            for name, nbytes, call in calls(kernels, x):
                assert nbytes > 0
                for i in (0, 1):
                    call(i)
                names.append(name)
    assert len(names) == len(set(names)) > 20
