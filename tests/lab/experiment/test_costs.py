"""What a method is said to cost: up to which row, observed how finely, and in what precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp import AGD, EF21, GD, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import human_bytes
from mpicomp.compressors import Lossless
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.fairness import caveats
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import cells, header, markdown
from mpicomp.problems import Quadratics
from mpicomp.runtime.schedule import gap, is_observed
from tests.support.lines import line
from tests.support.suites import FAIR

HOLD = """
title = "A target that has to hold"
problem = "quadratics(d=30, noise=0.0, lam=1e-3)"
workers = 2
rounds = 600
every = 1
seeds = [0]
target_grad_norm_sq = 0.0

[[method]]
label = "AGD"
method = "agd"

[[method]]
label = "AGD, tuned"
method = "agd"
tune = [-1, 0]
"""


def test_costs_are_those_of_the_row_from_which_the_target_holds(tmp_path):
    """AGD meets the target, leaves it and comes back; with hold its first visit does not count."""
    rows = mpicomp.run(AGD(), parse_suite(HOLD).problem, workers=2, rounds=600, every=1).rows
    norms = np.array([row.grad_norm_sq for row in rows])
    k = next(k for k in range(10, 300) if norms[k + 1] > norms[k] < norms[k - 1])
    text = HOLD.replace("target_grad_norm_sq = 0.0", f"target_grad_norm_sq = {float(norms[k])!r}")
    suite = parse_suite(text.replace("every = 1", "every = 1\nhold = 0.5"))
    at_once, _ = compare(parse_suite(text), tmp_path / "at once").lines()
    held, tuned = lines = compare(suite, tmp_path / "held").lines()
    stays = int(held.rounds)
    assert at_once.rounds == np.flatnonzero(norms <= norms[k])[0] < stays
    assert norms[stays - 1] > norms[k] >= norms[stays : int(1.5 * stays) + 1].max()
    assert held.total_bytes == rows[stays].up_bytes + rows[stays].down_bytes
    assert tuned.step == "theory*1" and tuned.total_bytes == held.total_bytes  # half the step takes longer
    assert "held for 0.5 times as many rounds as it took" in markdown(lines, suite)
    assert "held for as many rounds as it took" in markdown(
        lines, replace(suite, limits=replace(suite.limits, hold=1.0))
    )


@pytest.mark.parametrize("round", [1, 100, 255, 256, 511, 512, 1000, 4096, 100_000])
def test_fine_observation_is_within_one_per_cent(round):
    assert gap(round, "1%") == 1 or gap(round, "1%") <= round / 100
    assert gap(round, 7) == 7
    assert is_observed(0, "1%") and all(is_observed(k, "1%") for k in range(256))


def test_a_run_observed_finely_resumes_as_if_it_had_not_stopped(tmp_path):
    options = {"workers": 2, "every": "1%", "seed": 1}
    whole = mpicomp.run(GD(), Quadratics(d=5), rounds=700, out=tmp_path / "whole", **options)
    assert [row.round for row in whole.rows[254:260]] == [254, 255, 256, 258, 260, 262]
    mpicomp.run(GD(), Quadratics(d=5), rounds=601, out=tmp_path / "parts", **options)
    rest = mpicomp.run(GD(), Quadratics(d=5), rounds=700, out=tmp_path / "parts", resume=True, **options)
    assert [replace(r, seconds=0) for r in rest.rows] == [replace(r, seconds=0) for r in whole.rows]
    with pytest.raises(ConfigError, match="every='2%'; allowed: a positive number of rounds, or '1%'"):
        mpicomp.run(GD(), Quadratics(d=5), workers=2, every="2%")


def test_float32_down_costs_half_and_no_rounds():
    """EF21 on a problem of float64 state: the same rounds to 1e-6, about half the bytes down."""
    problem = Quadratics(d=20, noise=0.5, lam=0.05)
    ends = {}
    for down in (Lossless("f4"), Lossless()):
        method = EF21(TopK(10), gamma=0.5, down=down)
        run = mpicomp.run(method, problem, workers=3, rounds=400, every=1, target_grad_norm_sq=1e-6)
        ends[down.values] = (run.status, run.rows[-1].round, run.rows[-1].down_bytes / run.rows[-1].round)
    assert ends["f4"][:2] == ends["exact"][:2] and ends["f4"][0] == "target"
    assert ends["f4"][2] < 0.6 * ends["exact"][2]


def test_in_brackets_the_first_quartile_comes_before_the_third():
    """Of 1, .., 9 MB these are 3 and 7 MB; of a target all seeds reach it."""
    suite = parse_suite(FAIR)
    sizes = [1e6 * i for i in (4, 1, 9, 2, 8, 3, 7, 5, 6)]
    nine = line("nine", sizes)
    nine = replace(nine, gamma=0.2, grad_norm_sq=0.0, rounds=1.0, up_bytes_per_worker=1.0, total_bytes=5e6)
    nine = replace(nine, seconds=0.0, epochs=0.0, error=0.0, f=0.0, paper_bytes_up_per_worker=1.0)
    shown = dict(zip(header(suite), cells(nine, suite), strict=True))
    assert shown["up + down"] == f"{human_bytes(5e6)} [{human_bytes(3e6)} .. {human_bytes(7e6)}]"


def test_a_seed_that_diverged_has_missed_the_target():
    """Two of three seeds reached it: what these took is less than it takes."""
    suite = parse_suite(FAIR)
    two = replace(line("two", [5.0, 5.0]), seeds=3, diverged=1, gamma=0.2, grad_norm_sq=0.0, rounds=7.0)
    two = replace(two, up_bytes_per_worker=8.0, paper_bytes_up_per_worker=9.0, total_bytes=10.0, f=0.0)
    shown = dict(zip(header(suite), cells(two, suite), strict=True))
    assert shown["|∇f|²"] == "0.0e+00 (1 of 3 diverged)"
    assert (shown["rounds"], shown["up/worker"], shown["up + down"]) == ("> 7 (2 of 3)", "> 8 B", "> 10 B")


def test_only_costs_of_a_target_that_every_seed_reached_are_said_to_be_too_high():
    """Between two rows are 10 rounds, and 9 of the 30 may have been too many."""
    suite = parse_suite(FAIR.replace("workers = 3", "workers = 3\nevery = 10"))
    met = replace(line("met", [5.0] * 5), rounds=30.0)
    said = caveats([met, replace(met, label="missed", reached=4)], suite)
    assert [sentence for sentence in said if "too high" in sentence] == [
        'Observed every 10 rounds: costs of met may be up to 30% too high; every = "1%" mends it.'
    ]
