"""Which differences between methods the seeds of a comparison resolve."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy.stats import PermutationMethod, mannwhitneyu

from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.fairness import _p_value, caveats, unresolved
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.suite_file import parse_suite
from tests.support.lines import line
from tests.support.suites import FAIR


def test_a_method_against_itself_is_not_resolved(tmp_path):
    """The draws differ by p alone, which hardly matters here."""
    again = '\n[[method]]\nlabel = "again"\nmethod = "marina(Q=randk(k=5), gamma=0.4, p=0.249)"\n'
    suite = parse_suite(FAIR + again)
    lines = compare(suite, tmp_path).lines()
    assert unresolved(lines, "total_bytes", suite) == [("MARINA", "again")]
    text = " ".join(caveats(lines, suite))
    assert "Not resolved in bytes up + down: MARINA and again." in text
    assert "(Mann-Whitney, 5 seeds, each pair by itself, 5% level.)" in text


@pytest.mark.parametrize("m", [4, 5, 8])
def test_apart_means_resolved(m):
    """All values of one below all of the other: p = 2/C(2m, m)."""
    suite = replace(parse_suite(FAIR), seeds=tuple(range(m)))
    apart = [line("a", [*range(m)]), line("b", [*range(m, 2 * m)])]
    assert 2 / comb(2 * m, m) <= 0.05 and unresolved(apart, "total_bytes", suite) == []
    mixed = [line("a", [*range(m)]), line("b", [x + 0.5 for x in range(m)])]
    assert unresolved(mixed, "f", suite) == [("a", "b")]


@pytest.mark.parametrize("seed", range(20))
def test_the_exact_test_is_scipys(seed):
    """With ties, infinities and unequal numbers of seeds, over all deals of the values."""
    rng = np.random.default_rng(seed)
    a, b = (rng.choice([1, 2, 3, 4, 5, np.inf], size=rng.integers(2, 6)) for _ in range(2))
    deals = PermutationMethod(n_resamples=10_000)
    assert _p_value(a, b) == pytest.approx(mannwhitneyu(a, b, method=deals).pvalue, abs=1e-12)


def test_methods_without_draws_differ_as_they_do():
    suite: Suite = parse_suite(FAIR)
    alike = [line("a", [3] * 5), line("b", [3] * 5), line("c", [4] * 5)]
    assert unresolved(alike, "total_bytes", suite) == [("a", "b")]
    begun = [line("a", [3] * 2), line("c", [4] * 2)]  # p = 1/3, and yet no seed changes them
    assert unresolved(begun, "total_bytes", suite) == []
    random = line("d", [3, 4, 5, 6, 7])
    assert (
        unresolved([alike[0], random], "total_bytes", suite)
        == []
        != unresolved([alike[2], random], "total_bytes", suite)
    )


def test_seeds_that_diverged_count_as_the_worst_and_one_seed_resolves_nothing():
    suite = parse_suite(FAIR)
    good = line("good", [5, 6, 7, 8, 9])
    lost = replace(line("lost", [1]), seeds=5, diverged=4)
    assert unresolved([good, lost], "f", suite) == [("good", "lost")]
    assert unresolved([good, replace(line("lost", [10]), seeds=5, diverged=4)], "f", suite) == []
    assert unresolved([good, line("begun", [1])], "f", suite) == [("good", "begun")]


def test_a_cost_of_a_target_that_was_missed_is_above_all_others():
    suite = parse_suite(FAIR)
    missed = line("missed", [1] * 5, status="rounds")
    assert unresolved([missed, line("a", [5, 6, 7, 8, 9])], "total_bytes", suite) == []
    assert unresolved([missed, replace(missed, label="too")], "total_bytes", suite) == []  # not compared
