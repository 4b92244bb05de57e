"""Benchmarks: what they measure is what they say; no time is asserted."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from itertools import count

import numpy as np
import pytest
from click.testing import CliRunner

from mpicomp import kernels
from mpicomp.compressors import HardThreshold, Identity, Natural, PermK, RandK, Sign, TopK
from mpicomp.keys import Key
from mpicomp.lab.bench.kernels import CASES, WORKERS, Case, _cost, kernel_costs
from mpicomp.lab.bench.plain import plain
from mpicomp.lab.cli import cli
from tests.support.launching import mpicomp


@pytest.fixture
def no_torch(monkeypatch):
    """Nobody finds torch, and importing it fails."""
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def peers():
    pytest.importorskip("torch", reason="no torch: pip install -e '.[peers]'")
    from mpicomp.lab.bench.peers import PEERS

    return PEERS


@pytest.mark.parametrize(("dtype", "name"), [("f4", "float32"), ("f8", "float64")])
def test_the_kernels_figures(dtype, name, no_torch):
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
    x = np.random.default_rng(0).standard_normal(d, dtype=np.dtype(dtype).type)
    lost = x.astype(np.float16) - x
    error = {row["compressor"]: row["error"] for row in rows}
    assert error[str(Identity("f2"))] == np.vdot(lost, lost) / np.vdot(x, x)
    permk = [row for row in rows if row["compressor"].startswith("PermK")]
    assert [row["bits_per_coordinate"] for row in permk] == [32 / WORKERS] * 2


def test_the_kernels_figures_where_messages_differ_in_length(no_torch):
    """1024 coordinates are 10 or 11 for each of 100 workers: each message is decoded with its own key."""
    rows = list(kernel_costs(1024, "f4"))
    assert [row["compressor"] for row in rows] == [str(case.C) for case in CASES]
    permk = [row["bits_per_coordinate"] for row in rows if row["compressor"].startswith("PermK")]
    assert set(permk) <= {32 * 10 / 1024, 32 * 11 / 1024}


@pytest.mark.parametrize(("C", "draws"), [(RandK(0.01), 1), (PermK(), 2)], ids=str)
def test_each_call_that_is_timed_draws(C, draws, monkeypatch):
    """PermK draws a slot, too.  Only the message that the error is taken of is decoded by memory."""
    drawn, permute = [], kernels._NUMPY.permute
    monkeypatch.setattr(kernels, "backend_for_length", lambda length, a=None: kernels._NUMPY)
    monkeypatch.setattr(kernels._NUMPY, "permute", lambda *names: drawn.append(names) or permute(*names))
    vectors = list(np.random.default_rng(5).standard_normal((4, 1000)))
    keys = (Key(1, round, 0, WORKERS) for round in count())
    _cost(Case(C), vectors, keys, repeats=2)
    assert len(drawn) == draws * (1 + 4 + 8 + 8)


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


@pytest.mark.parametrize(("dtype", "name"), [("f4", "float32"), ("f8", "float64")])
def test_torch_s_figures(dtype, name, peers):
    """Its rows are like ours; what both compute comes to the same."""
    d = 2000
    rows = list(kernel_costs(d, dtype, repeats=1))
    ours, theirs = rows[: len(CASES)], rows[len(CASES) :]
    assert [row["compressor"] for row in theirs] == [peer.name for peer in peers]
    assert all(row.keys() == ours[0].keys() for row in theirs)
    assert {(row["d"], row["dtype"], row["copied"]) for row in theirs} == {(d, name, d)}
    assert {row["plain_copies"] for row in theirs} == {None}
    channels = d // 512 + 1
    kept = (32 + 8 * np.dtype(dtype).itemsize) / 100
    bits = [kept, (8 * d + 64) / d, channels * (8 * 512 + 64) / d, 16, 16]
    assert [row["bits_per_coordinate"] for row in theirs] == bits
    if dtype == "f4":  # from float64 ours rounds values to float32, and torch rounds twice to bfloat16
        error = {row["compressor"]: row["error"] for row in ours}
        same = [str(TopK(0.01)), str(Identity("f2")), str(Identity("bf16"))]
        assert [theirs[i]["error"] for i in (0, 3, 4)] == [error[C] for C in same]


@pytest.mark.parametrize("d", [1000, 1024])  # 512 coordinates are a channel
def test_torch_s_messages(d, peers):
    """out += scale * C(x), with C(x) within a step of x where bytes are sent."""
    x = np.random.default_rng(4).standard_normal(d, dtype=np.float32)
    for peer in peers:
        message = peer.compress(x, None)
        value, out = np.zeros_like(x), np.ones_like(x)
        peer.decompress_add(message, value, None)
        peer.decompress_add(message, out, None, 0.5)
        assert np.array_equal(out, 1 + value / 2)
        if "quantization" in peer.name:
            step = message[1][0].numpy().repeat(512 if message[1].ndim == 2 else d)[:d]
            assert message[0].numpy().dtype == np.uint8
            assert np.all(np.abs(value - x) <= step)


def test_the_command_prints_a_compressor_a_line():
    done = mpicomp("bench", "kernels", "-d", "2e3")
    assert done.returncode == 0, done.stderr
    theirs = [line for line in done.stdout.splitlines() if line.startswith("torch")]
    assert len(done.stdout.splitlines()) == len(CASES) + len(theirs)
    assert bool(theirs) == (find_spec("torch") is not None)


def test_a_dimension_too_small_is_refused_in_one_line():
    done = CliRunner().invoke(cli, ["bench", "kernels", "-d", "99"])
    assert str(done.exception) == "-d '99'; allowed: whole numbers from 100 to 1e15, such as 1e5."


def test_the_command_does_without_torch(no_torch):
    done = CliRunner().invoke(cli, ["bench", "kernels", "-d", "2000", "--json"])
    assert done.exception is None
    assert done.stderr == ""
    assert [json.loads(line)["compressor"] for line in done.stdout.splitlines()] == [
        str(case.C) for case in CASES
    ]
