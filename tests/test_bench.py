"""Benchmarks: what they measure is what they say; no time is asserted."""

from __future__ import annotations

import json

import pytest

from mpicomp.bench.kernels import CASES, WORKERS, kernel_costs
from mpicomp.bench.wire import SHARES, wire_costs
from mpicomp.coding.indices import index_nbytes
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
    permk = [row for row in rows if row["compressor"].startswith("PermK")]
    assert [row["bits_per_coordinate"] for row in permk] == [32 / WORKERS] * 2


def test_the_wire_s_figures():
    d = 20_000
    rows = list(wire_costs(d, repeats=1))
    assert [row["k"] for row in rows] == [max(1, round(share * d)) for share in SHARES]
    for row in rows:
        assert row["bits"] == 8 * index_nbytes(d, int(row["k"]))
        assert row["of_optimum"] >= 1


def test_the_command_prints_an_object_a_line():
    done = mpicomp("bench", "wire", "-d", "2000", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["d"] for line in done.stdout.splitlines()] == [2000] * len(SHARES)
    done = mpicomp("bench", "kernels", "-d", "2000")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(CASES)
