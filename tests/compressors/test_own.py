"""A compressor of one's own that is careless with memory: right, or refused in one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, Aggregator, ConfigError
from mpicomp.compressors import Contractive


@dataclass(frozen=True)
class Whole(Contractive):
    """Every coordinate, in double precision."""

    def compress(self, x, key):
        return x.copy().view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * d

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def alpha(self, d, n):
        return 1.0


@dataclass(frozen=True)
class Own(Whole):
    def compress(self, x, key):
        return x.view(np.uint8)


@dataclass(frozen=True)
class Same(Whole):
    scratch = np.empty(80, np.uint8)

    def compress(self, x, key):
        self.scratch[:] = x.view(np.uint8)
        return self.scratch


@dataclass(frozen=True)
class HalvesX(Whole):
    def compress(self, x, key):
        x *= 0.5
        return super().compress(x, key)


@dataclass(frozen=True)
class ScalesMessage(Whole):
    def decompress_add(self, buf, out, key, scale=1.0):
        values = buf.view(np.float64)
        values *= scale
        out += values


@dataclass(frozen=True)
class Texts(Whole):
    def compress(self, x, key):
        return x.tobytes()


def run(compressor):
    return mpicomp.run(EF21(compressor, gamma=0.1), "quadratics(d=10)", workers=3, rounds=5)


@pytest.mark.parametrize("compressor", [Own(), Same()])
def test_a_message_may_be_the_memory_of_x_or_of_the_message_before(compressor):
    assert run(compressor).iterates_sha256 == run(Whole()).iterates_sha256
    first, second = compressor.compress(np.ones(10), None), compressor.compress(np.zeros(10), None)
    assert first.view(np.float64).all() and not second.any()


@pytest.mark.parametrize(
    ("compressor", "said"),
    [
        (HalvesX(), "HalvesX.compress: .* read-only; x is read-only there: write into a copy of it"),
        (
            ScalesMessage(),
            "ScalesMessage.decompress_add: .* read-only; the message is read-only there",
        ),
        (Texts(), r"Texts.compress returned a bytes; expected a vector of uint8, as .view\(np.uint8\) gives"),
    ],
)
def test_what_a_compressor_may_not_do(compressor, said):
    with pytest.raises(ConfigError, match=said):
        run(compressor)
    with pytest.raises(ConfigError, match=said):
        Aggregator(EF21(compressor), like=np.zeros(10))(np.ones(10))


def test_an_error_of_the_compressor_itself_stays():
    @dataclass(frozen=True)
    class Wrong(Whole):
        def compress(self, x, key):
            raise ValueError("a fault of its own")

    with pytest.raises(ValueError, match="a fault of its own"):
        Wrong().compress(np.ones(10), None)
