"""What a comparison says against itself, on suites that break one rule each; and how it chooses steps."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import comb
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import PermutationMethod, mannwhitneyu

import mpicomp
from mpicomp import AGD, DIANA, EF21, GD, RandK, TopK, TwoDirection
from mpicomp.base.errors import ConfigError, DataError, RecordError
from mpicomp.base.units import human_bytes
from mpicomp.compressors import Lossless
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.fairness import _p_value, caveats, unresolved
from mpicomp.lab.experiment.lines import End, Line
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import cells, header, markdown
from mpicomp.lab.experiment.tuning import Tuning, rose, tail, tune
from mpicomp.problems import LeastSquares, NonconvexGLM, Quadratics
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.record import Row
from mpicomp.runtime.schedule import gap, is_observed

FAIR = """
problem = "quadratics(d=20, noise=0.5, lam=0.05)"
workers = 3
rounds = 400
seeds = [0, 1, 2, 3, 4]
tuning_seeds = 1
target_grad_norm_sq = 1e-6

[[method]]
label = "GD"
method = "gd(gamma=0.2)"

[[method]]
label = "MARINA"
method = "marina(Q=randk(k=5), gamma=0.4)"
"""


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> str:
    """A file of labels that the features say nothing of: (1 - σ)² is 1/4 at 0 and about 1/2 far away."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "noise.svm"
    rows = [" ".join(f"{j}:{x:.3f}" for j, x in enumerate(rng.normal(size=5), 1)) for _ in range(300)]
    path.write_text("".join(f"{rng.choice([-1, 1])} {row}\n" for row in rows))
    return str(path)


def said(tmp_path, *changes: tuple[str, str]) -> list[str]:
    """The caveats of ``FAIR`` with some of its text replaced, from the files of its comparison."""
    text = FAIR
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    suite = parse_suite(text)
    lines = compare(suite, tmp_path).lines()
    found = caveats(lines, suite)
    assert all(sentence in markdown(lines, suite) for sentence in found)
    return found


def test_a_fair_comparison_has_nothing_to_say(tmp_path):
    assert said(tmp_path) == []


def test_unequal_precision(tmp_path):
    (sentence,) = said(tmp_path, ("gamma=0.4", "gamma=0.4, down=lossless(values=f8)"))
    assert sentence == "Unequal precision of what is sent. f4: GD; f4 and f8: MARINA."


def test_what_is_lossless_goes_down_in_float32_as_what_is_dense(tmp_path):
    """The default; "exact" leaves to each method its own, and the table says so."""
    method = parse_suite(FAIR).entries[1].method
    assert method.down == Lossless("f4") and method.sync.values == "f4"
    assert parse_suite(FAIR.replace("workers = 3", 'workers = 3\ndown = "bf16"')).entries[1].method.down == (
        Lossless("bf16")
    )
    (sentence,) = said(tmp_path, ("workers = 3", 'workers = 3\ndown = "exact"'))
    assert sentence == "Unequal precision of what is sent. f4: GD; exact and f4: MARINA."
    with pytest.raises(ConfigError, match=r"down='f3'; allowed: 'exact', 'f8'"):
        parse_suite(FAIR.replace("workers = 3", 'workers = 3\ndown = "f3"'))


def test_unequal_budgets(tmp_path):
    changes = ('gamma=0.2)"', 'gamma=0.2)"\ntune = [-2, -1]'), ('gamma=0.4)"', 'gamma=0.4)"\ntune = [-1, 1]')
    found = said(tmp_path, *changes)
    assert "Unequal budgets: step sizes asked for, 2: GD; 3: MARINA." in found


def test_an_untuned_method_beside_a_tuned_one(tmp_path):
    found = said(tmp_path, ('gamma=0.4)"', 'gamma=0.4)"\ntune = [-1, 1]'))
    assert "Unequal budgets: step sizes asked for, none: GD; 3: MARINA." in found


EF21_SGDM = """
[[method]]
label = "{label}"
method = "ef21sgdm(C={C}, gamma=0.2, eta={eta})"
tune = [-1, 0]
"""


def test_a_method_with_several_values_of_another_parameter_has_more_trials(tmp_path):
    """Two values of η, each tuned; another compressor is another method, and so is what is not tuned."""
    rows = [("η = 0.1", "topk(k=5)", 0.1), ("η = 1", "topk(k=5)", 1), ("sign", "sign", 0.1)]
    more = "".join(EF21_SGDM.format(label=label, C=C, eta=eta) for label, C, eta in rows)
    found = said(
        tmp_path,
        ('gamma=0.2)"', 'gamma=0.2)"\ntune = [-2, -1]'),
        ('gamma=0.4)"\n', f'gamma=0.4)"\n{more}'),
        ("rounds = 400", "rounds = 10"),
    )
    wanted = (
        "Unequal budgets: step sizes asked for, none: MARINA; 2: GD, sign; 4: η = 0.1 and η = 1 together."
    )
    assert wanted in found


def test_a_number_beside_the_theorems_own_is_one_more():
    """μ of AGD as its theorem has it, and another one."""
    rows = ("AGD", "agd(gamma=0.1)"), ("AGD, 2 μ", "agd(gamma=0.1, mu=0.1)")
    text = FAIR.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]') + "".join(
        f'[[method]]\nlabel = "{label}"\nmethod = "{method}"\ntune = [0, 1]\n' for label, method in rows
    )
    suite = parse_suite(text)
    found = caveats(Comparison(suite, {}, []).lines(), suite)
    assert any("2: GD; 4: AGD and AGD, 2 μ together" in sentence for sentence in found)


def test_methods_of_other_sizes_are_other_methods():
    """As compressors of other sizes are."""
    text = FAIR + "".join(
        f'[[method]]\nlabel = "rank {r}"\nmethod = "powersgd(r={r}, rows=4, gamma=0.1)"\ntune = [0, 1]\n'
        for r in (1, 2)
    )
    text = text.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]').replace(
        'gamma=0.4)"', 'gamma=0.4)"\ntune = [0, 1]'
    )
    suite = parse_suite(text)
    lines = Comparison(suite, {}, []).lines()
    assert not any("budgets" in sentence for sentence in caveats(lines, suite))


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
    assert "held for as many rounds as it took" in markdown(lines, replace(suite, hold=1.0))


def test_coarse_observation(tmp_path):
    found = said(tmp_path, ("workers = 3", "workers = 3\nevery = 25"))
    assert any(
        sentence.startswith("Observed every 25 rounds: costs of GD or MARINA may be up to")
        for sentence in found
    )


def test_an_edge(tmp_path):
    """The range grows towards the best, and has an end all the same."""
    found = said(tmp_path, ('gamma=0.2)"', 'gamma=0.2)"\ntune = [-15, -13]'))
    assert any(sentence.startswith("† The best step size tried is at the edge") for sentence in found)


def test_a_blown_up_run_on_a_loss_that_saturates(tmp_path, noise):
    """A huge step of GD throws x to where the loss is flat and f above f(x⁰), with a gradient of nearly 0."""
    text = FAIR.replace("quadratics(d=20, noise=0.5, lam=0.05)", f"nonconvex_glm(data='{noise}')").replace(
        "target_grad_norm_sq = 1e-6", ""
    )
    suite = parse_suite(text.replace("gamma=0.2", "gamma=1e7"))
    line, _ = lines = compare(suite, tmp_path).lines()
    assert line.rose == 5 and line.grad_norm_sq == 0 < lines[1].grad_norm_sq
    assert "f ended above f(x⁰) with some seed of GD." in caveats(lines, suite)
    assert "(5 of 5 rose)" in dict(zip(header(suite), cells(line, suite), strict=True))["|∇f|²"]


def test_a_target_reached_where_a_loss_is_flat(tmp_path_factory):
    """Nearly separable: far away f is the error rate, below f(x⁰), and the gradient is 0 all the same."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("flat")
    X = rng.normal(size=(300, 5))
    y = np.sign(X[:, 0]) * np.where(rng.random(300) < 0.15, -1, 1)
    rows = [" ".join(f"{j}:{x:.3f}" for j, x in enumerate(row, 1)) for row in X]
    (folder / "data.svm").write_text("".join(f"{int(s)} {row}\n" for s, row in zip(y, rows, strict=True)))
    text = FAIR.replace("quadratics(d=20, noise=0.5, lam=0.05)", f"nonconvex_glm(data='{folder}/data.svm')")
    suite = parse_suite(text.replace("gamma=0.2", "gamma=512").replace("1e-6", "1e-4"))
    lines = compare(suite, folder / "out").lines()
    assert lines[0].reached == 5 and lines[0].rounds < 10 < lines[1].rounds
    assert 0.25 > lines[0].f > 1.1 * lines[1].f
    (sentence,) = [text for text in caveats(lines, suite) if "far from" in text]
    assert sentence.startswith(f"The target was reached far from the least f, {lines[1].f:.4g}: GD at f = ")


def test_few_seeds(tmp_path):
    assert said(tmp_path / "1", ("[0, 1, 2, 3, 4]", "[0]")) == [
        "One seed resolves no difference between methods that draw at random."
    ]
    assert said(tmp_path / "3", ("[0, 1, 2, 3, 4]", "[0, 1, 2]")) == [
        "3 seeds resolve no difference between random methods; 4 may."
    ]


def test_a_method_against_itself_is_not_resolved(tmp_path):
    """The draws differ by p alone, which hardly matters here."""
    again = '\n[[method]]\nlabel = "again"\nmethod = "marina(Q=randk(k=5), gamma=0.4, p=0.249)"\n'
    suite = parse_suite(FAIR + again)
    lines = compare(suite, tmp_path).lines()
    assert unresolved(lines, "total_bytes", suite) == [("MARINA", "again")]
    text = " ".join(caveats(lines, suite))
    assert "Not resolved in bytes up + down: MARINA and again." in text
    assert "(Mann-Whitney, 5 seeds, each pair by itself, 5% level.)" in text


def line(label: str, values: list[float], status: str = "target") -> Line:
    ends = tuple(End(i, status, 1, int(v), int(v), v, v, 0.0, 100.0, False) for i, v in enumerate(values))
    return Line(label, "theory", False, len(values), len(values), 0, len(values), rounds=1e9, ends=ends)


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


def test_observing_every_round_is_not_coarse():
    suite = parse_suite(FAIR)
    quick = [replace(line("a", [3] * 5), rounds=4.0), replace(line("b", [4] * 5), rounds=300.0)]
    assert not any("Observed" in sentence for sentence in caveats(quick, suite))


def test_methods_without_draws_differ_as_they_do():
    suite: Suite = parse_suite(FAIR)
    alike = [line("a", [3] * 5), line("b", [3] * 5), line("c", [4] * 5)]
    assert unresolved(alike, "total_bytes", suite) == [("a", "b")]
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


def test_tuning_refuses_what_ends_above_its_start(noise):
    """Chosen by |∇f|², the largest step would win; f says that it has blown up."""
    problem = NonconvexGLM(data=noise)

    def attempt(method, seed, max_bytes):
        return mpicomp.run(method, problem, workers=3, rounds=60, seed=seed, max_bytes=max_bytes)

    tuning = tune(GD(gamma=1.0), (0, 24), (0,), None, attempt, Limits())
    largest = tuning.trials[0]
    assert largest.status == "rose" and not tuning.best.refused
    blown_up = attempt(GD(gamma=2.0**24), 0, None).rows
    kept = attempt(GD(gamma=tuning.best.gamma), 0, None).rows
    assert blown_up[-1].grad_norm_sq < kept[-1].grad_norm_sq and blown_up[-1].f > blown_up[0].f > kept[-1].f
    assert tuning.best.f == pytest.approx(np.mean([row.f for row in tail(kept)]))


def test_a_small_gradient_above_the_start_is_no_target(noise):
    problem = NonconvexGLM(data=noise)
    run = mpicomp.run(GD(gamma=2.0**24), problem, workers=3, rounds=60, every=1, target_grad_norm_sq=1e-4)
    assert run.status == "rounds" and run.rows[-1].grad_norm_sq <= 1e-4
    assert Limits(60, target_grad_norm_sq=1e-4).reached(run.rows, run.rows[0].f) is None
    assert Limits(60, target_grad_norm_sq=1e-4).reached(run.rows, run.rows[-1].f) == "target"


def test_a_step_size_given_as_its_inverse_grows_the_other_way():
    """The largest step of 2Direction has the smallest L̄ and is tried first."""
    problem = Quadratics(d=20, noise=0.0, lam=0.05)

    def attempt(method, seed, max_bytes):
        return mpicomp.run(method, problem, workers=3, rounds=100, seed=seed, max_bytes=max_bytes)

    tuning = tune(
        TwoDirection(TopK(5), RandK(5), Lbar=2.0**-12, p=0.2), (0, 1), (0,), None, attempt, Limits()
    )
    exponents = [t.exponent for t in tuning.trials]
    assert exponents == sorted(exponents)
    assert (
        Tuning(tuple(replace(t, status="diverged", f=np.inf) for t in tuning.trials)).best.exponent
        == exponents[-1]
    )


def test_every_step_is_tried_with_the_same_seeds_until_one_refuses_it():
    problem = Quadratics(d=20, noise=0.5, lam=0.05)
    asked: list[tuple[float, int]] = []

    def attempt(method, seed, max_bytes):
        asked.append((method.gamma, seed))
        return mpicomp.run(method, problem, workers=3, rounds=100, seed=seed, max_bytes=max_bytes)

    tuning = tune(DIANA(RandK(5), gamma=0.5), (-1, 12), (7, 8, 9), None, attempt, Limits())
    tried = {t.exponent: t for t in tuning.trials}
    assert tried[12].status == "diverged" and [s for g, s in asked if g == 0.5 * 2**12] == [7]
    assert tried[0].seeds == 3 and [s for g, s in asked if g == 0.5] == [7, 8, 9]
    means = [
        np.mean([r.f for r in tail(attempt(DIANA(RandK(5), gamma=0.5), s, None).rows)]) for s in (7, 8, 9)
    ]
    assert tried[0].f == pytest.approx(np.mean(means), rel=1e-12)


TO_TARGET = Limits(target_grad_norm_sq=1e-4)


def ended(status: str, *f: float, sent: int = 100) -> SimpleNamespace:
    """A run of which ``tune`` sees f in the rounds 0, 1, .., and ``sent`` bytes in each direction."""
    rows = [Row(k, value, 1.0, sent, sent, 0, 0, 0.0, 0.0, 0.0) for k, value in enumerate(f)]
    return SimpleNamespace(status=status, rows=rows)


def test_once_a_step_has_reached_the_target_no_other_is_given_more_bytes_than_it_took():
    """Over all its seeds; and a step that has spent them, or missed with one seed, is tried no further."""
    sent = {4: 150, 2: 50, 1: 40, 0.5: 45}  # by step size, in each direction, where the target is reached
    asked: list[tuple[float, int, int | None]] = []

    def attempt(method, seed, max_bytes):
        asked.append((method.gamma, seed, max_bytes))
        if method.gamma == 8:
            return ended("rounds", 9.0, 2.0, sent=200)
        if max_bytes is not None and 2 * sent[method.gamma] >= max_bytes:
            return ended("max_bytes", 9.0, 2.0, sent=max_bytes // 2)
        return ended("target", 9.0, 1.0, sent=sent[method.gamma])

    tuning = tune(GD(gamma=1.0), (0, 3), (5, 6), 1000, attempt, TO_TARGET)
    assert asked == [
        (8, 5, 1000),  # no limit but the suite's while no step has reached the target with all seeds
        (4, 5, 1000),
        (4, 6, 1000),
        (2, 5, 600),  # two runs of 300 bytes were enough
        (2, 6, 500),
        (1, 5, 200),
        (1, 6, 120),
        (0.5, 5, 160),  # beyond the best, which was the smallest
        (0.5, 6, 70),
    ]
    found = [(t.gamma, t.status, t.seeds, t.reached, t.total_bytes) for t in tuning.trials]
    assert found == [
        (8, "rounds", 1, 0, 400),
        (4, "target", 2, 2, 300),
        (2, "target", 2, 2, 100),
        (1, "target", 2, 2, 80),
        (0.5, "max_bytes", 2, 1, 80),
    ]
    assert tuning.best.gamma == 1

    asked.clear()
    sent[2] = 400  # which the first seed may not spend
    tune(GD(gamma=1.0), (1, 2), (5, 6), None, attempt, TO_TARGET)
    assert [(gamma, seed) for gamma, seed, _ in asked if gamma == 2] == [(2, 5)]


def test_where_no_step_reaches_the_target_with_every_seed_all_steps_are_tried_with_every_seed():
    """No run is made twice, and no step that was refused goes on."""
    reaching = {(4, 5), (2, 6), (2, 7)}
    asked: list[tuple[float, int]] = []

    def attempt(method, seed, max_bytes):
        assert max_bytes == 1000
        asked.append((method.gamma, seed))
        if method.gamma == 8 and seed == 5:
            return ended("rounds", 1.0, 2.0)
        return ended("target" if (method.gamma, seed) in reaching else "rounds", 9.0, method.gamma)

    tuning = tune(GD(gamma=1.0), (0, 3), (5, 6, 7), 1000, attempt, TO_TARGET)
    first = [(8, 5), (4, 5), (4, 6), (2, 5), (1, 5)]
    assert asked == [*first, (4, 7), (2, 6), (2, 7), (1, 6), (1, 7)]
    found = [(t.gamma, t.status, t.seeds, t.reached, t.f) for t in tuning.trials]
    assert found[0] == (8, "rose", 1, 0, np.inf)
    assert found[1:] == [(4, "rounds", 3, 1, 4), (2, "rounds", 3, 2, 2), (1, "rounds", 3, 0, 1)]
    assert tuning.best.gamma == 2


@pytest.mark.parametrize(
    ("f", "above"),
    [
        ([1.0, *[0.5] * 17, 2, 2, 2], True),  # whatever f was before the last tenth
        ([1.0, *[5.0] * 17, 2, 2, 0.5], False),
        ([1.0, *[5.0] * 17, 0.5, 2, 2], False),  # once below is enough: stochastic methods move about
        ([1.0, *[5.0] * 17, 1, 2, 2], False),
    ],
)
def test_f_rose_if_it_is_above_its_start_throughout_the_last_tenth_of_the_rounds(f, above):
    run = ended("rounds", *f)
    assert [row.round for row in tail(run.rows)] == [18, 19, 20]
    assert rose(run.rows) == above
    tuning = tune(GD(gamma=1.0), (0, 0), (0,), None, lambda *_: run, Limits())
    assert (tuning.best.status == "rose") == above


def test_in_brackets_the_first_quartile_comes_before_the_third():
    """Of 1, .., 9 MB these are 3 and 7 MB; of a target all seeds reach it."""
    suite = parse_suite(FAIR)
    sizes = [1e6 * i for i in (4, 1, 9, 2, 8, 3, 7, 5, 6)]
    nine = line("nine", sizes)
    nine = replace(nine, gamma=0.2, grad_norm_sq=0.0, rounds=1.0, up_bytes_per_worker=1.0, total_bytes=5e6)
    nine = replace(nine, seconds=0.0, epochs=0.0, error=0.0, f=0.0, paper_bytes_up_per_worker=1.0)
    shown = dict(zip(header(suite), cells(nine, suite), strict=True))
    assert shown["up + down"] == f"{human_bytes(5e6)} [{human_bytes(3e6)} .. {human_bytes(7e6)}]"


def test_a_range_grows_until_the_best_lies_inside(tmp_path):
    text = FAIR.replace('gamma=0.2)"', 'gamma=0.8)"\ntune = [-3, -3]')
    comparison = compare(parse_suite(text), tmp_path)
    tuning = comparison.tunings["GD"]
    assert not tuning.at_edge and tuning.best.exponent == 1
    assert [t.exponent for t in tuning.trials] == [2, 1, 0, -1, -2, -3]
    assert comparison == compare(parse_suite(text), tmp_path, resume=True)


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


def write_data(path, modulus: int) -> None:
    """40 samples of 8 features, which differ with ``modulus``."""
    rows = [" ".join(f"{j}:{(i * j) % modulus}" for j in range(1, 9)) for i in range(40)]
    path.write_text("".join(f"{i % 2} {row}\n" for i, row in enumerate(rows)))


def test_a_comparison_whose_data_change_between_two_runs_ends(tmp_path, monkeypatch):
    """Else one table would compare a method on one file with a method on another."""
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text("a,b,y\n1,2,3\n2,1,-1\n3,5,1\n")
    problem = LeastSquares("data.csv:y", lam=0.1)
    methods = {"first": GD(gamma=0.01), "second": GD(gamma=0.02)}

    def change(stage, round, row):
        if round == 4:
            Path("data.csv").write_text("a,b,y\n1,2,3\n2,1,-1\n3,5,2\n")

    options = {"workers": 2, "rounds": 4, "out": "out"}
    for folder in ("out", None):
        with pytest.raises(DataError, match="data have changed since this comparison began"):
            mpicomp.compare(methods, problem, **options | {"out": folder}, progress=change)
        Path("data.csv").write_text("a,b,y\n1,2,3\n2,1,-1\n3,5,1\n")
    done = mpicomp.compare(methods, problem, **options, resume=True)
    assert [o.summary["status"] for o in done.outcomes] == ["rounds", "rounds"]
    path = Path("out/runs/second/seed-0/run.json")  # as of a part on another machine, with its own file
    path.write_text(path.read_text().replace(problem.fingerprint(), "0" * 64))
    with pytest.raises(RecordError, match=r"are of other data each.*out/runs/second/seed-0: 0000"):
        mpicomp.load("out")


def test_a_comparison_is_not_continued_on_other_data(tmp_path):
    """Neither where a run is missing, nor where nothing but a tuning is there."""
    data, out = tmp_path / "data.svm", tmp_path / "out"
    write_data(data, modulus=7)
    text = FAIR.replace("quadratics(d=20, noise=0.5, lam=0.05)", f"logistic(data='{data}', lam=0.1)")
    text = text.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]')
    compare(parse_suite(text), out)
    (out / "runs" / "gd" / "seed-3" / "summary.json").unlink()
    before = json.loads((out / "tuning.json").read_text())
    write_data(data, modulus=5)

    def refused(by: str) -> None:
        said = rf"{by} is of other data: their fingerprint is .*Put the data back"
        with pytest.raises(RecordError, match=said):
            compare(parse_suite(text), out, resume=True)
        assert json.loads((out / "tuning.json").read_text()) == before

    refused(by=r"tuning\.json")
    tuning = out / "runs" / "gd" / "tuning.json"
    kept = tuning.read_text()
    tuning.unlink()
    refused(by="seed-0")
    for run in (out / "runs").glob("*/seed-*"):
        shutil.rmtree(run)
    tuning.write_text(kept)
    refused(by=r"tuning\.json")


def test_a_comparison_is_not_continued_with_other_blocks(tmp_path):
    """Compressors act on each block alone: one table would have methods of other iterates and bytes."""
    out, text = tmp_path / "out", FAIR.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]')
    four = Placement(server="sharded", blocks=4)
    compare(parse_suite(text), out, placement=four)
    runs, tuning = out / "runs", out / "runs" / "gd" / "tuning.json"
    shutil.rmtree(runs / "gd" / "seed-3")
    for other in (Placement(), Placement(server="sharded", blocks=2)):
        for held in (tuning, runs):
            said = rf"{held}.* is of runs with 4 blocks.* they have {other.block_count(3)} block.* --blocks"
            with pytest.raises(RecordError, match=said):
                compare(parse_suite(text), out, resume=True, placement=other)
            if held == tuning:  # then the runs tell it
                kept = tuning.read_text()
                tuning.unlink()
        tuning.write_text(kept)
    compare(parse_suite(text), out, resume=True, placement=four)
    tuning.write_text(json.dumps({"trials": json.loads(kept)["trials"]}))  # as older versions wrote it
    compare(parse_suite(text), out, resume=True, placement=four)
    path = runs / "gd" / "seed-3" / "run.json"  # as of a part that was started otherwise
    whole = path.read_text()
    for blocks in ("2", "damaged"):
        path.write_text(whole.replace('"blocks": "4"', f'"blocks": "{blocks}"'))
        with pytest.raises(RecordError, match=rf"in several ways: .*seed-3: {blocks} blocks of the"):
            mpicomp.load(out)


def test_a_run_whose_rows_are_gone_is_missing(tmp_path):
    suite = parse_suite(FAIR)
    whole = compare(suite, tmp_path)
    (tmp_path / "runs" / "gd" / "seed-1" / "rows.csv").unlink()
    lines = mpicomp.lab.experiment.results.read_comparison(tmp_path).lines()
    assert (lines[0].finished, lines[0].missing) == (4, 1)
    assert "Of 5 seeds, runs are missing: 1 of GD." in caveats(lines, suite)
    again = compare(suite, tmp_path, resume=True)
    assert [o.summary["iterates_sha256"] for o in again.outcomes] == [
        o.summary["iterates_sha256"] for o in whole.outcomes
    ]


def test_a_finished_run_of_another_method_is_not_taken(tmp_path):
    suite = parse_suite(FAIR)
    compare(suite, tmp_path)
    path = tmp_path / "runs" / "gd" / "seed-1" / "run.json"
    path.write_text(path.read_text().replace("GD(gamma=0.2", "GD(gamma=0.9"))
    with pytest.raises(RecordError, match=r"holds a run with method = GD\(gamma=0.9"):
        compare(suite, tmp_path, resume=True)


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
