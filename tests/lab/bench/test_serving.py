"""What passes the busiest rank, and the benchmark of the ranks that average."""

from __future__ import annotations

import json

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.lab.bench.figures import draw_traffic
from mpicomp.lab.bench.serving.compare import table
from mpicomp.lab.bench.serving.traffic import traffic
from tests.support.launching import mpicomp


@pytest.fixture(scope="module")
def rows():
    return list(traffic([4, 16], 1600))


def test_dense_bytes_of_the_busiest_rank_are_known(rows):
    """n - 1 vectors in and out of the root; of every rank, its share: 2 (1 - 1/n) vectors in and out."""
    found = {(r["workers"], r["server"]): r["bytes"] for r in rows if r["method"] == "dense"}
    vector = 4 * 1600
    for n in (4, 16):
        assert found[n, "shared"] == 2 * (n - 1) * vector
        assert found[n, "sharded"] == 4 * (n - 1) * vector / n


def test_compressed_both_ways_the_busiest_of_ranks_that_all_serve_carries_less(rows):
    found = {(r["workers"], r["server"]): r["bytes"] for r in rows if r["method"] == "TopK 1 % both ways"}
    assert found[16, "shared"] >= 4 * found[4, "shared"]
    assert found[16, "sharded"] <= 2 * found[4, "sharded"] and found[16, "sharded"] < found[16, "shared"]


def test_the_figure_has_a_curve_for_each_method_and_way(rows):
    (axes,) = draw_traffic(rows).axes
    assert len(axes.get_lines()) == len({(r["method"], r["server"]) for r in rows}) == 6


@pytest.mark.parametrize(("workers", "d"), [([1, 4], 100), ([4, 16], 15)])
def test_fewer_than_two_ranks_or_a_rank_without_a_block_are_refused(workers, d):
    with pytest.raises(ConfigError, match=rf"with d={d}; allowed: from 2 to d"):
        next(traffic(workers, d))


def test_a_dimension_that_a_method_cannot_take_is_named_without_a_traceback():
    """ARC-Top-K's matrices are 250 wide."""
    done = mpicomp("bench", "serving", "--ranks", "2", "--links", "", "--d", "100")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "\nmpicomp: width=250 does not divide the dimension d=100" in done.stderr
    assert "prterun" not in done.stderr  # which would say below it that a rank has failed


def test_rounds_are_timed_by_all_ranks_that_may_average():
    done = mpicomp("bench", "serving", "--ranks", "2", "--links", "", "--d", "1e3", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    dense = {row["server"]: row for row in found if row["method"] == "dense"}
    assert list(dense) == ["shared", "sharded", "allreduce", "bare allreduce"]
    assert dense["shared"]["busiest_bytes"] == dense["sharded"]["busiest_bytes"] == 4000
    assert all(row["seconds"] > 0 for row in found)
    summed = {row["method"] for row in found if row["server"] == "allreduce"}
    assert summed == {"dense", "ARC-Top-K 1 %", "PowerSGD, rank 2"}
    assert table(found).count("| one host |") == 6
