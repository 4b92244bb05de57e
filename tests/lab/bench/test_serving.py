"""What passes the busiest rank, and the benchmark of the ranks that average."""

from __future__ import annotations

import json

import pytest

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.lab.bench.figures import draw_traffic
from mpicomp.lab.bench.job import rows_of
from mpicomp.lab.bench.serving.compare import table, time_averaging
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


@pytest.mark.parametrize(("d", "nearest"), [(100, 1000), (1600, 2000)])
def test_a_dimension_that_a_method_cannot_take_is_refused_before_any_is_timed(d, nearest):
    """By a parameter of ARC-Top-K or PowerSGD, which the user had not given, and after other methods."""
    with pytest.raises(ConfigError, match=rf"^d={d}; allowed: multiples of 1000, .* nearest is {nearest}\.$"):
        next(time_averaging([1000, d], 2, [None]))


def test_an_error_of_all_ranks_is_the_last_line_and_what_mpirun_says_is_left_out():
    rows = rows_of("serving.rank", {"dimensions": [100], "repeats": 1}, 2, None, "averaging on 2 ranks")
    with pytest.raises(MpicompError) as caught:
        list(rows)
    first, last = str(caught.value).splitlines()
    assert first == "averaging on 2 ranks ended with 1."
    assert last.startswith("mpicomp: width=250 does not divide the dimension d=100")


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
