"""``check_compressor``: the package's own compressors pass, and each broken promise is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import COMPRESSORS, Absolute, Contractive, Unbiased
from tests.support.conformance import CASES

FIRST = [next(case for case in CASES if isinstance(case.c, cls)) for cls in COMPRESSORS.values()]


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_the_package_s_compressors_keep_their_promises(case):
    mpicomp.check_compressor(case.c, case.d, case.n, draws=100)


@pytest.mark.parametrize(("values", "rounding"), [("f2", 1e-3), ("bf16", 4e-3)])
def test_rounding_is_allowed_for_where_it_is_said(values, rounding):
    sizes = () if values == "f2" else (1e-30, 1e30)
    mpicomp.check_compressor(mpicomp.Identity(values), rounding=rounding, sizes=sizes)
    with pytest.raises(ConfigError, match=r"\|E C\(x\) - x\| is|E \|C\(x\) - x\|² is"):
        mpicomp.check_compressor(mpicomp.Identity(values))


def test_the_check_leaves_numpy_s_global_generator_alone():
    before = np.random.get_state()[1].copy()
    mpicomp.check_compressor(mpicomp.RandK(3), draws=100)
    assert np.array_equal(before, np.random.get_state()[1])


@dataclass(frozen=True)
class Part(Contractive):
    """The first or the second half of x, as the key draws it."""

    def compress(self, x, key):
        return x[self.where(x.size, key)].astype(np.float32).view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out[self.where(out.size, key)] += scale * buf.view(np.float32)

    def where(self, d, key):
        return slice(0, d // 2) if key.private("half").below(2) else slice(d // 2, d)

    def nbytes(self, d):
        return 2 * d

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def alpha(self, d, n):
        return 0.5


@dataclass(frozen=True)
class Doubled(Part, Unbiased):
    """Twice a half of x: omega = 1."""

    def decompress_add(self, buf, out, key, scale=1.0):
        super().decompress_add(buf, out, key, 2.0 * scale)

    def omega(self, d, n):
        return 1.0


@dataclass(frozen=True)
class Rounded(Absolute):
    """The entries of x, rounded to integers."""

    def compress(self, x, key):
        return np.rint(x).astype(np.int32).view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out += scale * buf.view(np.int32)

    def nbytes(self, d):
        return 4 * d

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def delta(self, d):
        return d / 4


@pytest.mark.parametrize("C", [Part(), Doubled(), Rounded()])
def test_compressors_of_one_s_own_keep_their_promises(C):
    mpicomp.check_compressor(C, sizes=() if isinstance(C, Rounded) else (1e-30, 1e30))  # int32 ends at 2e9


@dataclass(frozen=True)
class Scaled(Contractive):
    """The signs of x times the mean of |x|, which is sent in the format ``scale``."""

    scale: str

    def compress(self, x, key):
        size = np.abs(x).mean().astype(self.scale)
        return np.concatenate([np.array([size]).view(np.uint8), np.packbits(x < 0)])

    def decompress_add(self, buf, out, key, scale=1.0):
        width = np.dtype(self.scale).itemsize
        out += (
            scale
            * float(buf[:width].view(self.scale)[0])
            * (1 - 2.0 * np.unpackbits(buf[width:])[: out.size])
        )

    def nbytes(self, d):
        return np.dtype(self.scale).itemsize + -(-d // 8)

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def alpha(self, d, n):
        return 1 / d


def test_a_scale_without_small_or_large_numbers_is_found():
    """It sent 0 for x of size 1e-30, and passed."""
    mpicomp.check_compressor(Scaled("f4"))
    mpicomp.check_compressor(Scaled("f2"), rounding=1e-3, sizes=(1e-3, 1e3))
    with pytest.raises(ConfigError, match=r"times 1e-30, Scaled.* allows .* as float32; or give other sizes"):
        mpicomp.check_compressor(Scaled("f2"), rounding=1e-3)
    with np.errstate(over="ignore"), pytest.raises(ConfigError, match=r"times 1e\+30, .* 64 finite numbers"):
        mpicomp.check_compressor(Scaled("f2"), rounding=1e-3, sizes=[1e30])


COMPRESS, ADD = Part.compress, Part.decompress_add  # before a test replaces them


def drawing(self, x, key):
    return COMPRESS(self, x + np.random.default_rng().standard_normal(x.size), key)


def assigning(self, buf, out, key, scale=1.0):
    out[:] = 0.0
    ADD(self, buf, out, key, scale)


def scaling_doubles_only(self, buf, out, key, scale=1.0):
    ADD(self, buf, out, key, scale if out.dtype == np.float64 else 1.0)


@pytest.mark.parametrize(
    ("name", "broken", "words"),
    [
        ("compress", lambda self, x, key: [1, 2], "compress gave list; allowed: a vector of bytes"),
        ("compress", lambda self, x, key: x.astype("f4"), "compress gave float32"),
        ("compress", drawing, "two messages for the same x and key differ"),
        ("nbytes", lambda self, d: d, r"nbytes\(64\) is 64, and a message has 128 bytes"),
        ("paper_bits", lambda self, buf, d, key: None, "paper_bits is None; allowed: an integer from 0 on"),
        ("paper_bits", lambda self, buf, d, key: -8, "paper_bits is -8; allowed"),
        ("decompress_add", assigning, r"does not add scale .* to a vector of float64"),
        ("decompress_add", scaling_doubles_only, r"does not add scale .* to a vector of float32"),
        ("decompress_add", lambda self, buf, out, key, scale=1.0: None, r"E \|C\(x\) - x\|² is"),
        ("alpha", lambda self, d, n: 0.6, r"for normal numbers, and alpha\(64, 2\) = 0.6 allows"),
        ("alpha", lambda self, d, n: 1.5, r"alpha\(64, 2\) = 1.5; allowed: a number above 0"),
        ("alpha", lambda self, d, n: float("nan"), "= nan; allowed: a number above 0"),
    ],
)
def test_a_broken_promise_is_named(name, broken, words, monkeypatch):
    monkeypatch.setattr(Part, name, broken)
    with pytest.raises(ConfigError, match=words):
        mpicomp.check_compressor(Part())


def test_a_bias_is_found(monkeypatch):
    monkeypatch.setattr(Doubled, "decompress_add", ADD)
    with pytest.raises(
        ConfigError, match=r"\|E C\(x\) - x\| is 0\.[45]... \|x\| for normal numbers; allowed: 0"
    ):
        mpicomp.check_compressor(Doubled())


def test_a_small_omega_is_found(monkeypatch):
    monkeypatch.setattr(Doubled, "omega", lambda self, d, n: 0.9)
    with pytest.raises(ConfigError, match=r"omega\(64, 2\) = 0.9 allows"):
        mpicomp.check_compressor(Doubled())


def test_draws_that_workers_share_are_found(monkeypatch):
    """omega is right, but E |mean C_i(a) - a|² is omega |a|², not omega |a|²/n."""
    monkeypatch.setattr(
        Part, "where", lambda self, d, key: [slice(0, d // 2), slice(d // 2, d)][key.shared("a").below(2)]
    )
    with pytest.raises(ConfigError, match=r"for equal vectors on 2 workers, and ab allows .* key\.private"):
        mpicomp.check_compressor(Doubled())
    mpicomp.check_compressor(Doubled(), n=1)


def test_an_absolute_bound_is_checked_for_each_draw(monkeypatch):
    monkeypatch.setattr(Rounded, "delta", lambda self, d: 1.0)
    with pytest.raises(
        ConfigError, match=r"\|C\(x\) - x\|² is 5.* for normal numbers, and delta\(64\) allows 1"
    ):
        mpicomp.check_compressor(Rounded())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"C": 3}, "C=3; allowed: a compressor"),
        ({"d": 0}, "d=0; allowed: an integer from 1"),
        ({"n": True}, "n=True"),
        ({"draws": 99}, "draws=99; allowed: an integer from 100"),
        ({"rounding": float("nan")}, "rounding=nan; allowed: a number from 0 on and below 1"),
    ],
)
def test_bad_parameters_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        mpicomp.check_compressor(**{"C": Part()} | given)


@dataclass(frozen=True)
class One(Unbiased):
    """A coordinate that the key draws, times d: omega = d - 1."""

    scaled: bool = True

    def compress(self, x, key):
        return x[[self.where(x.size, key)]].astype(np.float32).view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        gain = out.size if self.scaled else 1
        out[self.where(out.size, key)] += scale * gain * buf.view(np.float32)[0]

    def where(self, d, key):
        return key.private("one").below(d)

    def nbytes(self, d):
        return 4

    def paper_bits(self, buf, d, key):
        return 32

    def omega(self, d, n):
        return d - 1.0


@dataclass(frozen=True)
class Rare(Contractive):
    """The same without the factor: alpha = 1/d."""

    scaled = False
    compress, decompress_add, where = One.compress, One.decompress_add, One.where
    nbytes, paper_bits = One.nbytes, One.paper_bits

    def alpha(self, d, n):
        return 1 / d


@pytest.mark.parametrize("d", [64, 1000, 7000])
def test_rare_events_are_allowed_for(d):
    """The entry of a sparse x is sent in few draws, or in none."""
    mpicomp.check_compressor(Rare(), d=d, draws=300)
    mpicomp.check_compressor(One(), d=min(d, 1000), draws=300)


@pytest.mark.parametrize("d", [64, 1000])
def test_a_factor_that_is_forgotten_is_found_however_large_omega_is(d):
    with pytest.raises(ConfigError, match=r"\|E C\(x\) - x\| is 0\.9.* \|x\| for normal numbers; allowed: 0"):
        mpicomp.check_compressor(One(scaled=False), d=d)
