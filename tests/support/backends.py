"""The compiled kernels, and what they are given beside the numpy definition: vectors of every kind."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import strategies as st

from mpicomp import kernels
from mpicomp.kernels.host import host
from mpicomp.kernels.loading import load_compiled

compiled = load_compiled()


def only(patch: pytest.MonkeyPatch, backend: ModuleType) -> None:
    """Vectors of any length go by ``backend``."""
    patch.setattr(kernels, "_host", lambda length: host(backend))


FLOATS = (np.float32, np.float64)
STREAM = ((0x89ABCDEF, 0x1234), (3, 2**32 - 1, 0xDEADBEEF))

SCALES = st.sampled_from([1.0, -1.0, 0.0, 0.1, -2.5e-3, 1e30, 2.0**-1030])


@st.composite
def vectors(draw, finite: bool = True, most: int = 300, dtype=None):
    """Vectors whose entries have all magnitudes, with ties, zeros of both signs and subnormals."""
    dtype = dtype or draw(st.sampled_from(FLOATS))
    d = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    info = np.finfo(dtype)
    tiny, huge = float(info.smallest_subnormal), float(info.max)
    kind = draw(st.sampled_from(["normal", "few values", "all magnitudes", "zero", "subnormal", "huge"]))
    x = {
        "normal": lambda: rng.standard_normal(d),
        "few values": lambda: rng.integers(-2, 3, d) * 0.75,
        "all magnitudes": lambda: np.ldexp(rng.standard_normal(d), rng.integers(-160, 120, d)),
        "zero": lambda: np.zeros(d),
        "subnormal": lambda: rng.integers(-5, 6, d) * tiny,
        "huge": lambda: rng.choice([-huge, huge, 0.0, 1.0], d),
    }[kind]().astype(dtype)
    special = [0.0, -0.0, tiny, -tiny, float(info.tiny), 1.0, -1.0, huge, -huge]
    if not finite:
        special += [np.inf, -np.inf, np.nan]
    for value in draw(st.lists(st.sampled_from(special), max_size=5)):
        x[draw(st.integers(0, d - 1))] = value
    return x


def damaged(data, buf):
    """The buffer with up to three bits flipped."""
    buf = buf.copy()
    for _ in range(data.draw(st.integers(0, 3))):
        bit = data.draw(st.integers(0, 8 * buf.size - 1))
        buf[bit // 8] ^= 1 << (bit % 8)
    buf.setflags(write=False)
    return buf


def assert_same(a, b) -> None:
    """The same type of numbers, and the same bits; so 0.0 differs from -0.0, and one NaN is not another."""
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()
