"""Benchmarks: what they measure is what they say; no time is asserted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mpicomp.bench.kernels import CASES, WORKERS, kernel_costs
from mpicomp.bench.models import Message, model_costs
from mpicomp.bench.plain import plain
from mpicomp.bench.wire import SHARES, wire_costs
from mpicomp.coding.indices import index_nbytes
from mpicomp.compressors import Coded, Dithering, HardThreshold, Natural, PermK, RandK, Sign, TopK
from mpicomp.keys import Key
from tests.launching import mpicomp


@pytest.mark.parametrize(("dtype", "name"), [("f4", "float32"), ("f8", "float64")])
def test_the_kernels_figures(dtype, name):
    d = 20_000  # long enough for the compiled kernels, and a multiple of the workers
    rows = list(kernel_costs(d, dtype, repeats=1))
    assert [row["compressor"] for row in rows] == [str(case.C) for case in CASES]
    for row, case in zip(rows, CASES, strict=True):
        assert row["d"] == d
        assert row["dtype"] == name
        assert row["copied"] == (d // 100 if case.of_sent else d)
        assert row["compress_copies"] == row["compress_seconds"] / row["copy_seconds"]
        assert row["add_copies"] == row["add_seconds"] / row["copy_seconds"]
        size = case.C.nbytes(d)
        if size is not None:
            assert row["bits_per_coordinate"] == 8 * size / d
        if row["plain_copies"] is not None:
            assert row["plain_copies"] == row["plain_seconds"] / row["copy_seconds"]
    permk = [row for row in rows if row["compressor"].startswith("PermK")]
    assert [row["bits_per_coordinate"] for row in permk] == [32 / WORKERS] * 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.C))
def test_plain_versions_send_what_ours_do(case):
    """The same selection, as many numbers, and no fewer bytes."""
    d, key = 5000, Key(0, 0, 0, WORKERS)
    x = np.random.default_rng(2).normal(size=d).astype(np.float32)
    parts = plain(case.C, x, WORKERS, np.random.default_rng(3))
    if parts is None:
        return
    value = case.C.decompress(case.C.compress(x, key), d, key)
    assert sum(part.nbytes for part in parts) >= case.C.compress(x, key).size
    match case.C:
        case TopK() | HardThreshold():
            assert np.array_equal(np.sort(parts[0]), np.flatnonzero(value))
        case RandK() | PermK():
            assert parts[0].size == np.count_nonzero(value)
        case Sign() | Natural():
            signs = parts[1 if isinstance(case.C, Sign) else 0]
            assert np.array_equal(np.unpackbits(signs, count=d).astype(bool), value < 0)
    if isinstance(case.C, Natural):
        assert set(np.log2(np.abs(value)) - parts[1].astype(int) + 127) <= {-1.0, 0.0, 1.0}


def test_the_wire_s_figures():
    d = 20_000
    rows = list(wire_costs(d, repeats=1))
    assert [row["k"] for row in rows] == [max(1, round(share * d)) for share in SHARES]
    for row in rows:
        assert row["bits"] == 8 * index_nbytes(d, int(row["k"]))
        assert row["of_optimum"] >= 1


def test_a_model_s_figures_are_what_is_sent():
    """Per symbol; head and form apart, a few words of the coder more."""
    Q, d, key = Dithering(7, "inf"), 20_000, Key(0, 0, 0, 1)
    x = np.random.default_rng(1).normal(size=d)
    y = x[::-1].copy()
    first, second = Q.compress(x, key), Q.compress(y, key)
    a, b = (Message(np.bincount(Q.symbols(m, d), minlength=Q.alphabet), 4.0 * d) for m in (first, second))
    fitted, known = Coded(Q).compress(y, key), Coded(Q).learned(Coded(Q).compress(x, key), d)
    assert known.compress(y, key)[0] == 2
    for figure, sent in ((b.figures()["fitted"], fitted), (b.bits_by(a), known.compress(y, key))):
        assert 0 <= 8 * (sent.size - 1 - Q.head) - d * figure <= 64
    assert b.figures()["entropy"] <= b.bits_by(b) < b.bits_by(a) < 4 == b.figures()["packed"]


def test_the_models_figures():
    rows = list(model_costs("digits", rounds=(1, 3)))
    assert len({row["method"] for row in rows}) == 5
    assert len(rows) == 4 * (2 + 2 * 2) + 2  # rounds, and layers in each, of quantisers; rounds of TopK
    for row in rows:
        assert row["message"] in row["by_model_of"]
        assert row["entropy"] <= min(row["fitted"], *row["by_model_of"].values())


def test_the_command_prints_an_object_a_line():
    done = mpicomp("bench", "wire", "-d", "2000", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["d"] for line in done.stdout.splitlines()] == [2000] * len(SHARES)
    done = mpicomp("bench", "kernels", "-d", "2000")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(CASES)
