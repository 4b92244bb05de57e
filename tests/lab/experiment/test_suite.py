"""Suites, comparisons, tables and figures, on small quadratics."""

from __future__ import annotations

import csv
import json
import re
import signal
import warnings
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, DivergedError, RecordError
from mpicomp.base.units import human_bytes
from mpicomp.compressors import Lossless, RandK
from mpicomp.lab.experiment import compare as comparing
from mpicomp.lab.experiment.canvas import plain_title, save
from mpicomp.lab.experiment.compare import Stage, compare
from mpicomp.lab.experiment.figure import draw, draw_all
from mpicomp.lab.experiment.report import _picture_of_runs, picture_of, plot_files, publish
from mpicomp.lab.experiment.results import Comparison, read_comparison, unfinished
from mpicomp.lab.experiment.run_tables import phases_table
from mpicomp.lab.experiment.suite import Entry, parse_part
from mpicomp.lab.experiment.suite_file import METHOD, SETTINGS, load_suite, parse_suite
from mpicomp.lab.experiment.tables import cells, markdown, terminal
from mpicomp.lab.experiment.tuning import Trial, Tuning, scale_step, tune
from mpicomp.methods import DIANA, GD
from mpicomp.problems import Objective, Problem, Quadratics
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.record import Row
from mpicomp.runtime.run import run

SUITE = """
title = "Quadratics | small"
problem = "quadratics(d=20, noise=0.5, lam=0.05)"
workers = 3
rounds = 200
every = 5
seeds = [0, 1, 2]
target_grad_norm_sq = 1e-6

[[method]]
method = "gd"
label = "GD"

[[method]]
method = "diana(Q=randk(k=5))"
label = "DIANA RandK"
tune = [1, 4]

[[method]]
method = "gd(gamma=1000)"
label = "too far"

[[method]]
method = "dcgd(Q=randk(k=2), gamma=1e-4)"
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Comparison]:
    """The comparison of ``SUITE``, published."""
    out = tmp_path_factory.mktemp("suite") / "out"
    comparison = compare(parse_suite(SUITE), out)
    publish(out)
    return out, comparison


def test_a_suite_is_read():
    suite = parse_suite(SUITE)
    assert (suite.title, suite.workers, suite.rounds, suite.every) == ("Quadratics | small", 3, 200, 5)
    assert suite.problem == Quadratics(d=20, noise=0.5, lam=0.05)
    assert suite.seeds == (0, 1, 2) and suite.target_grad_norm_sq == 1e-6 and suite.max_bytes is None
    assert suite.entries[1] == Entry(DIANA(Q=RandK(k=5), down=Lossless("f4")), "DIANA RandK", (1, 4))
    assert suite.entries[3].label == "dcgd(Q=randk(k=2), gamma=0.0001)"
    assert [e.slug for e in suite.entries] == [
        "gd",
        "diana-randk",
        "too-far",
        "dcgd-q-randk-k-2-gamma-0.0001",
    ]


def test_what_may_be_left_out_has_defaults():
    suite = parse_suite('problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = [{method = "gd"}]')
    assert (suite.title, suite.every, suite.seeds, suite.down) == ("quadratics", "1%", (0,), "f4")
    assert suite.entries == (Entry(GD(), "gd"),)


def test_exact_means_travel_in_the_format_of_the_suite_forwarded_or_not():
    head = 'problem = "quadratics"\nworkers = 2\nrounds = 9\n'
    for given, wanted in (
        ("lossless(forward=True)", Lossless("f4", forward=True)),
        ("lossless", Lossless("f4")),
        ("lossless(values=f2)", Lossless("f2")),
    ):
        (entry,) = parse_suite(f'{head}method = [{{method = "diana(Q=natural, down={given})"}}]').entries
        assert entry.method.down == wanted


WRONG = [
    ("workers = 3", "worker = 3", "unknown key of a suite 'worker'. Did you mean 'workers'?"),
    ("workers = 3", "", "a suite needs workers"),
    ("workers = 3", "workers = 'three'", "workers = 'three'; allowed: a value of type int"),
    ("workers = 3", "workers = true", "workers = True"),
    ("every = 5", "max_bytes = 1e6", "max_bytes = 1000000.0; allowed: a value of type int"),
    ("tune = [1, 4]", "tunes = [-1, 6]", "Did you mean 'tune'?"),
    ("tune = [1, 4]", "tune = [6, -1]", "tune = [6, -1]; allowed: [lo, hi]"),
    ("tune = [1, 4]", "tune = [0.5, 1]", "allowed: [lo, hi]"),
    ("seeds = [0, 1, 2]", "seeds = []", "seeds = []"),
    ("seeds = [0, 1, 2]", "seeds = [1, 1]", "different"),
    ("seeds = [0, 1, 2]", "seeds = [-1]", "non-negative"),
    ('label = "too far"', 'label = "gd"', "label = 'gd': too much like 'GD'"),
    ('label = "too far"', 'label = "?"', "must differ in the letters a to z or digits"),
    ('method = "gd"', 'method = "gdd"', "Did you mean 'gd'?"),
    ('method = "gd"\n', "", "a [[method]] needs method"),
    ("problem = ", "problem ", "not a TOML file"),
]


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG)
def test_a_wrong_suite_is_refused(tmp_path, right, wrong, said):
    path = tmp_path / "suite.toml"
    path.write_text(SUITE.replace(right, wrong, 1))
    with pytest.raises(ConfigError) as error:
        load_suite(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_a_suite_needs_methods_and_a_file(tmp_path):
    with pytest.raises(ConfigError, match=r"needs a \[\[method\]\]"):
        parse_suite('problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = []')
    with pytest.raises(ConfigError, match="a table of its own"):
        parse_suite('problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = ["gd"]')
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        load_suite(tmp_path / "none.toml")


def test_gamma_is_scaled_by_powers_of_two():
    assert scale_step(GD(), 3).gamma == "theory*8"
    assert scale_step(GD(gamma="theory*0.5"), -1).gamma == "theory*0.25"
    assert scale_step(GD(gamma=0.5), 2).gamma == 2.0


def trial(exponent: int, status: str, total: int = 0, f: float = 1.0) -> Trial:
    return Trial(exponent, 2.0**exponent, status, 2, 2 * (status == "target"), total, f)


def test_the_best_trial():
    diverged, slow, fast, stuck = (
        trial(3, "diverged", f=inf),
        trial(2, "target", 9),
        trial(1, "target", 5),
        trial(0, "rounds"),
    )
    assert Tuning((diverged, slow, fast, stuck)).best == fast
    assert Tuning((trial(1, "rounds", f=0.1), trial(0, "rounds", f=0.2))).best.exponent == 1
    assert Tuning((trial(1, "rose", f=0.1), trial(0, "rounds", f=0.2))).best.exponent == 0
    assert Tuning((trial(1, "rose", 1), trial(0, "target", 9))).best.exponent == 0
    assert Tuning((diverged, trial(0, "diverged", f=inf))).best.exponent == 0
    assert Tuning((diverged, slow)).runs == 4
    assert Tuning((slow, fast, stuck)).at_edge is False
    assert Tuning((slow, fast)).at_edge is True
    again = Tuning((diverged, slow, fast, stuck))
    assert Tuning.from_json(json.loads(json.dumps(again.to_json()))) == again


@dataclass(frozen=True)
class Valued(Problem):
    """|x|² with a value that is not that of its gradient."""

    factor: float

    def dimension(self):
        return 3

    def x0(self):
        return np.ones(3)

    def objective(self, i, n):
        return Square(self.factor)


class Square(Objective):
    def __init__(self, factor):
        self.factor = factor

    def value(self, x):
        return self.factor * float(np.sum(x**2))

    def grad(self, x):
        return 2 * x


@pytest.mark.parametrize(("factor", "said"), [(-1.0, r"was refused, .* f rose"), (0.0, "ended alike")])
def test_a_tuning_without_a_good_step_warns(factor, said):
    """As of a value of the wrong sign: the smallest step was the best, without a word."""
    with pytest.warns(UserWarning, match=said):
        mpicomp.tune(GD(gamma=0.1), Valued(factor), workers=2, rounds=5, exponents=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mpicomp.tune(GD(gamma=0.1), Valued(1.0), workers=2, rounds=5, exponents=(0, 1))


def test_tuning_finds_the_best_step_and_reports_the_diverged():
    problem = Quadratics(d=20, noise=0.0, lam=0.05)

    def attempt(method, seed, max_bytes):
        limits = {"rounds": 400, "target_grad_norm_sq": 1e-8, "max_bytes": max_bytes}
        return run(method, problem, workers=2, every=1, seed=seed, **limits)

    tuning = tune(GD(), (-2, 12), (0,), None, attempt, Limits(400, target_grad_norm_sq=1e-8))
    status = {t.exponent: t.status for t in tuning.trials}
    assert status[12] == "diverged" and status[0] == "target"
    assert not tuning.at_edge
    alone = {}  # the same without a limit on bytes, so that every trial runs to its own end
    for exponent in range(-2, 2):
        row = attempt(scale_step(GD(), exponent), 0, None).rows[-1]
        if row.grad_norm_sq <= 1e-8:
            alone[exponent] = row.up_bytes + row.down_bytes
    assert tuning.best.exponent == min(alone, key=alone.__getitem__)
    assert tuning.best.total_bytes == min(alone.values())


@pytest.mark.parametrize("limit", [{"target_grad_norm_sq": 1e9}, {"max_bytes": 0}])
def test_nothing_is_tuned_where_no_step_is_taken(limit):
    """All steps tied, and the smallest one, far below the range, was the best."""
    (name,) = limit
    said = rf"GD is not tuned: its run with seed 0 ends at its start, by {name.partition('_grad')[0]}, where"
    with pytest.raises(ConfigError, match=said):
        mpicomp.tune(GD(), Quadratics(d=20), workers=2, rounds=20, exponents=(0, 1), **limit)


def read(path: Path) -> str:
    return path.read_text()


def test_a_comparison_leaves_its_folder(done):
    out, comparison = done
    assert {p.name for p in out.iterdir()} >= {"suite.toml", "tuning.json", "runs", "rows.csv", "table.md"}
    assert read(out / "suite.toml") == SUITE
    for entry in comparison.suite.entries:
        for seed in (0, 1, 2):
            assert (out / "runs" / entry.slug / f"seed-{seed}" / "summary.json").exists()
    with open(out / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(o.rows) for o in comparison.outcomes)
    assert list(rows[0]) == ["label", "seed", *(f.name for f in fields(Row))]
    assert read_comparison(out) == comparison


def test_the_table_is_what_the_rows_say(done):
    out, _ = done
    rows = list(csv.DictReader(read(out / "rows.csv").splitlines()))
    lines = {line["label"]: line for line in json.loads(read(out / "table.json"))}
    for label in ("GD", "DIANA RandK"):
        last = {}
        for row in rows:
            if row["label"] == label:
                last[row["seed"]] = row
        assert len(last) == lines[label]["seeds"] == lines[label]["reached"] == 3
        assert all(float(row["grad_norm_sq"]) <= 1e-6 for row in last.values())
        expected = {
            "rounds": [int(r["round"]) for r in last.values()],
            "grad_norm_sq": [float(r["grad_norm_sq"]) for r in last.values()],
            "up_bytes_per_worker": [int(r["up_bytes"]) / 3 for r in last.values()],
            "paper_bytes_up_per_worker": [int(r["paper_bits_up"]) / 24 for r in last.values()],
            "paper_bytes_down_per_worker": [int(r["paper_bits_down"]) / 24 for r in last.values()],
            "total_bytes": [int(r["up_bytes"]) + int(r["down_bytes"]) for r in last.values()],
            "seconds": [float(r["seconds"]) for r in last.values()],
        }
        for name, values in expected.items():
            assert lines[label][name] == pytest.approx(median(values), rel=1e-12)
    gd = lines["GD"]
    assert gd["up_bytes_per_worker"] == gd["rounds"] * 20 * 4  # 20 coordinates of 4 bytes
    assert gd["gamma"] == pytest.approx(1 / Quadratics(d=20, noise=0.5, lam=0.05).constants(3).L)


def test_a_method_that_diverges_is_shown_as_such(done):
    out, comparison = done
    line = next(line for line in comparison.lines() if line.label == "too far")
    assert (line.diverged, line.finished, line.gamma) == (3, 0, None)
    assert "| too far | - | diverged |" in read(out / "table.md")
    summary = json.loads(read(out / "runs" / "too-far" / "seed-0" / "summary.json"))
    assert summary["status"] == "diverged" and "step size" in summary["error"]


def test_a_method_that_misses_the_target_is_shown_as_such(done):
    _, comparison = done
    line = comparison.lines()[3]
    assert line.reached == 0 and line.rounds == 200
    assert cells(line, comparison.suite)[3] == "> 200"


def test_a_tuned_step_is_kept_for_every_seed(done):
    _, comparison = done
    tuning = comparison.tunings["DIANA RandK"]
    assert [t.exponent for t in tuning.trials] == [4, 3, 2, 1]
    method = DIANA(Q=RandK(k=5), gamma=tuning.best.gamma, down=Lossless("f4"))
    resolved = method.resolve(lambda: comparison.suite.problem.constants(3), 20, 3)
    own = [o.summary["method"] for o in comparison.outcomes if o.label == "DIANA RandK"]
    assert own == [repr(resolved)] * 3


def test_multiples_of_theory_are_explained_where_there_are_some(done):
    _, comparison = done
    lines = comparison.lines()
    assert "(8×)" in markdown(lines, comparison.suite)
    numbers = [line for line in lines if not line.step.startswith("theory")]
    assert len(numbers) == 2 and "×" not in markdown(numbers, comparison.suite)
    lost = replace(lines[0], gamma=None, grad_norm_sq=None, diverged=3)
    assert cells(lost, comparison.suite)[1] == "-"


def test_a_comparison_of_function_values_shows_them(done):
    _, comparison = done
    suite = parse_suite(SUITE.replace("workers = 3", 'workers = 3\ny = "f"'))
    line = comparison.lines()[0]
    f = sorted(o.rows[-1].f for o in comparison.outcomes if o.label == "GD")
    assert cells(line, suite)[-1] == f"{f[1]:.4g}"
    assert markdown([line], suite).splitlines()[2].split(" | ")[-1].rstrip(" |") == "f"


def test_where_everything_diverges_there_is_no_figure(tmp_path):
    out = tmp_path / "out"
    suite = parse_suite(SUITE.split("[[method]]")[0] + '[[method]]\nmethod = "gd(gamma=1000)"')
    compare(suite, out)
    (out / "figure.png").write_bytes(b"of before")
    assert publish(out)[0].diverged == 3
    assert not (out / "figure.png").exists()


def test_the_edge_of_a_range_is_marked(tmp_path):
    suite = parse_suite(SUITE.replace("tune = [1, 4]", "tune = [-13, -12]").replace("seeds = [0, 1, 2]", ""))
    comparison = compare(suite, tmp_path)
    line = comparison.lines()[1]
    assert line.at_edge and cells(line, suite)[1].endswith("(0.0625×)†")  # the range grew by 8
    assert "at the edge of its range" in markdown(comparison.lines(), suite)
    assert not any(other.at_edge for other in comparison.lines() if other != line)


def test_markdown_and_terminal_show_the_same(done):
    _, comparison = done
    lines = comparison.lines()
    text = markdown(lines, comparison.suite)
    body = [row for row in text.splitlines() if row.startswith("| ")]
    drawn = terminal(lines, comparison.suite)
    assert len(body) == 2 + len(lines) and drawn.row_count == len(lines)
    for i, line in enumerate(lines):
        assert [list(column.cells)[i] for column in drawn.columns] == cells(line, comparison.suite)
    assert "1e-06" in text and "Medians over 3 seeds" in text


def test_resuming_runs_nothing_again_and_gives_the_same(done, monkeypatch):
    out, comparison = done
    before = read(out / "table.json")
    monkeypatch.setattr(comparing, "run", None)
    stages: list[Stage] = []
    assert (
        compare(parse_suite(SUITE), out, resume=True, progress=lambda s, k, r: stages.append(s)) == comparison
    )
    publish(out)
    assert read(out / "table.json") == before and not stages


def test_resuming_runs_what_is_missing(done, tmp_path):
    small = SUITE.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("tune = [1, 4]", "tune = [1, 3]")
    stages: list[Stage] = []
    first = compare(parse_suite(small), tmp_path, progress=lambda s, k, r: stages.append(s))
    assert [s.number for s in dict.fromkeys(stages)] == [1, 2, 3, 4, 5, 6, 7] and stages[0].of == 7
    (tmp_path / "runs" / "gd" / "seed-0" / "summary.json").unlink()
    notes = tmp_path / "runs" / "gd" / "seed-0" / "notes.txt"
    notes.write_text("the user's")
    stages.clear()
    again = compare(parse_suite(small), tmp_path, resume=True, progress=lambda s, k, r: stages.append(s))
    assert {(s.number, s.what) for s in stages} == {(1, "GD, seed 0")}
    assert again.outcomes[0].summary["iterates_sha256"] == first.outcomes[0].summary["iterates_sha256"]
    assert again.outcomes[1:] == first.outcomes[1:]
    assert notes.read_text() == "the user's"


def test_the_page_has_all_keys_of_a_suite():
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    _, _, section = page.partition("### The file of a suite\n")
    settings, methods = (
        re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
        for table in section.partition("\n## ")[0].split("| key of a `[[method]]`")
    )
    assert sorted([*settings, "method"]) == sorted(SETTINGS)
    assert sorted(methods) == sorted(METHOD)


def test_an_interrupted_comparison_can_be_resumed(tmp_path):
    suite = parse_suite(SUITE.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("tune = [1, 4]", ""))

    def stop(stage, round, row):
        if stage.number == 2 and round == 7:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        compare(suite, tmp_path, progress=stop)
    held = read_comparison(tmp_path)
    assert [o.summary["status"] for o in held.outcomes] == ["target", "interrupted"]
    assert held.lines()[1].finished == 0 and cells(held.lines()[1], suite)[2] == "not run"
    resumed = compare(suite, tmp_path, resume=True)
    assert [o.summary["status"] for o in resumed.outcomes] == ["target", "rounds", "diverged", "rounds"]


@pytest.mark.parametrize("of", [2, 3, 20])
def test_parts_make_the_whole(done, tmp_path, of):
    """Run in any order, each a job of its own; the last one to end finds nothing missing."""
    out, whole = done
    suite = parse_suite(SUITE)
    missing = []
    for number in range(of, 0, -1):
        comparison = compare(suite, tmp_path, resume=None, part=parse_part(f"{number}/{of}"))
        missing.append(unfinished(tmp_path))
    assert missing == sorted(missing, reverse=True) and missing[-2] > missing[-1] == 0
    assert comparison.tunings == whole.tunings
    assert [(o.label, o.seed) for o in comparison.outcomes] == [(o.label, o.seed) for o in whole.outcomes]
    for mine, other in zip(comparison.outcomes, whole.outcomes, strict=True):
        assert [(r.round, r.f, r.up_bytes) for r in mine.rows] == [
            (r.round, r.f, r.up_bytes) for r in other.rows
        ]
    tables = [(folder / "rows.csv").read_text().splitlines() for folder in (tmp_path, out)]
    assert len(tables[0]) == len(tables[1])
    assert (tmp_path / "tuning.json").read_text() == (out / "tuning.json").read_text()


def test_the_seeds_of_a_tuned_method_are_in_one_part():
    tasks = parse_suite(SUITE).tasks()
    assert [(entry.label, seeds) for entry, seeds in tasks[:5]] == [
        ("GD", (0,)),
        ("GD", (1,)),
        ("GD", (2,)),
        ("DIANA RandK", (0, 1, 2)),
        ("too far", (0,)),
    ]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "-1/4", "1/0"])
def test_a_part_is_one_of_several(text):
    with pytest.raises(ConfigError, match="allowed: I/N with I from 1 to N"):
        parse_part(text)


def test_another_comparison_is_not_overwritten(done, tmp_path):
    out, _ = done
    with pytest.raises(RecordError, match="already holds a comparison"):
        compare(parse_suite(SUITE), out)
    with pytest.raises(RecordError, match="with other workers"):
        compare(parse_suite(SUITE.replace("workers = 3", "workers = 4")), out, resume=True)
    with pytest.raises(RecordError, match="no comparison to resume"):
        compare(parse_suite(SUITE), tmp_path, resume=True)
    with pytest.raises(RecordError, match="already holds a run"):
        compare(parse_suite(SUITE), out / "runs" / "gd" / "seed-0")


def test_a_configuration_error_ends_the_comparison(tmp_path):
    """Before anything has run, the method being named; the folder is free for the suite once it is mended."""
    with pytest.raises(ConfigError, match="DIANA RandK: k=21 exceeds the dimension"):
        compare(parse_suite(SUITE.replace("randk(k=5)", "randk(k=21)")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_figure_has_four_panels(done):
    out, comparison = done
    assert (out / "figure.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    figure = draw(picture_of(comparison))
    assert len(figure.axes) == 4
    labels = ["GD", "DIANA RandK", "dcgd(Q=randk(k=2), gamma=0.0001)"]  # what diverged is not drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "rounds",
        "uplink bytes per worker",
        "bytes in both directions, per worker",
        "seconds",
    ]
    gd = [o.rows for o in comparison.outcomes if o.label == "GD"]
    last = gd[0][-1]
    ends = [last.round, last.up_bytes / 3, (last.up_bytes + last.down_bytes) / 3]
    for axes, end in zip(figure.axes, ends, strict=False):
        line = axes.get_lines()[0]
        assert axes.get_yscale() == "log"
        assert (line.get_xdata()[-1], line.get_ydata()[-1]) == (end, last.grad_norm_sq)


def test_the_figure_says_what_diverged(done, tmp_path):
    """Some seeds, and the curve is that of the other seeds; all seeds; and in a study a whole case."""
    _, comparison = done
    *others, one = [o for o in comparison.outcomes if o.label == "DIANA RandK"]
    lost = replace(one, summary=one.summary | {"status": "diverged"})
    outcomes = tuple(lost if o is one else o for o in comparison.outcomes)
    picture = picture_of(replace(comparison, outcomes=outcomes))
    assert picture.curves["DIANA RandK"] == [o.rows for o in others]
    assert picture.missing == "diverged: DIANA RandK (1 of 3 seeds), too far (3 of 3 seeds)"
    assert picture.missing in draw(picture).axes[0].get_title(loc="left")
    assert picture.missing in " ".join(draw_all("a study", [picture]).axes[0].get_title().split("\n"))
    assert "diverged" not in draw(replace(picture, missing="")).axes[0].get_title(loc="left")
    everything = replace(picture, curves={}, missing=r"diverged: GD $\foo$ too")  # no formula
    figure = draw_all("a study", [everything, picture])
    save(figure, tmp_path / "figure.png")
    assert figure.axes[0].get_title() == f"{picture.title}\n" + r"diverged: GD \$\foo\$ too"
    assert [axes.axison for axes in figure.axes] == [False, True] * 4


def test_a_title_that_is_no_formula_is_drawn_as_it_is(done, tmp_path):
    """It was an error at the end of the comparison, after its tables."""
    picture, deep = replace(picture_of(done[1]), x=("rounds",)), f"${'{' * 2000}$"
    shown = {
        r"$\|\nabla f\|$, digits": r"$\|\nabla f\|$, digits",
        "$x$\n$y_{$": "\\$x\\$\n\\$y_{\\$",
        "of 5 $": "of 5 $",
        deep: deep.replace("$", r"\$"),
    }
    assert {title: plain_title(title) for title in shown} == shown
    for figure in (
        draw(replace(picture, title=r"$\frac{1$")),
        draw_all("a study", [replace(picture, title=r"$\frac{1$")]),
    ):
        save(figure, tmp_path / "figure.png")


def test_an_axis_that_is_named_twice_has_one_panel():
    """Seven names were a Python error after the last run."""
    names = '"up", "rounds", "up", "up", "seconds", "both", "epochs", "up"'
    suite = parse_suite(f"x = [{names}]\n{SUITE}")
    assert suite.x == ("up", "rounds", "seconds", "both", "epochs")


def test_the_curve_is_the_median_over_seeds(done):
    _, comparison = done
    runs = [o.rows for o in comparison.outcomes if o.label == "DIANA RandK"]
    line = draw(picture_of(comparison)).axes[0].get_lines()[1]
    assert len(line.get_xdata()) == sorted(map(len, runs))[len(runs) // 2]  # it ends with the median run
    for k in range(len(line.get_xdata())):
        metric = [rows[min(k, len(rows) - 1)].grad_norm_sq for rows in runs]
        assert line.get_ydata()[k] == median(metric)
        assert line.get_xdata()[k] == 5 * k


def test_a_line_break_in_a_label_or_title_does_not_end_a_row_of_the_table():
    compared = mpicomp.compare(
        {"one\nmethod": GD(), "b": GD(gamma=0.5)}, "quadratics(d=20)", workers=2, rounds=5, title="of\ntwo"
    )
    title, _, head, _, first, second, blank, _ = compared.table().splitlines()
    assert title == "### of two" and first.startswith("| one method |") and second.startswith("| b |")
    assert head.count("|") == first.count("|") + 2 and not blank  # two are of \\|∇f\\|²


def test_plot_redraws(done, tmp_path):
    out, _ = done
    (out / "figure.png").unlink()
    assert plot_files([out]) == [out / "figure.png"] and (out / "figure.png").exists()
    runs = [out / "runs" / "gd" / "seed-0", out / "runs" / "diana-randk" / "seed-0"]
    assert plot_files(runs[:1], tmp_path / "one.png")[0].exists()
    assert plot_files(runs, tmp_path / "two.pdf")[0].read_bytes()[:4] == b"%PDF"
    with pytest.raises(RecordError, match="neither a comparison nor a run"):
        plot_files([tmp_path])
    with pytest.raises(ConfigError, match="a folder"):
        plot_files([])
    for folders in ([out, runs[0]], [runs[0], out]):  # it was said to hold neither
        with pytest.raises(ConfigError, match=r"holds more than one run.*/runs/METHOD/seed-0"):
            plot_files(folders)
    with pytest.raises(ConfigError, match="cannot write"):
        plot_files(runs, tmp_path / "figure.unknown")


def test_runs_of_different_problems_are_not_drawn_together(done, tmp_path):
    out, _ = done
    run(GD(), Quadratics(d=5), workers=2, rounds=10, every=5, out=tmp_path / "other")
    with pytest.raises(ConfigError, match="differ in their problem"):
        plot_files([out / "runs" / "gd" / "seed-0", tmp_path / "other"])


def test_a_plotted_run_says_which_method_it_is(tmp_path):
    for name, method in (("first", GD()), ("second", DIANA(RandK(2)))):
        run(method, Quadratics(d=5), workers=2, rounds=10, every=5, out=tmp_path / name)
    picture = _picture_of_runs([tmp_path / "first", tmp_path / "second"])
    assert picture.title == "first, second"
    assert list(picture.curves) == ["first: gd", "second: diana(Q=randk(k=2))"]


def test_a_run_without_rows_cannot_be_drawn(tmp_path):
    with pytest.raises(DivergedError):
        run(GD(gamma=1e300), Quadratics(d=5), workers=2, rounds=10, every=10, out=tmp_path)
    with pytest.raises(RecordError, match="nothing to draw"):
        plot_files([tmp_path])


def test_phases_are_a_line_for_each_rank(done):
    _, comparison = done
    drawn = phases_table(comparison.outcomes[0].summary)
    assert drawn.row_count == 1
    assert [c.header for c in drawn.columns] == ["rank", "gradient", "compress", "wait", "server", "decode"]


def test_bytes_for_people():
    assert [human_bytes(b) for b in (0, 999, 1000, 12345, 1e6, 2.5e9, 3e12)] == [
        "0 B",
        "999 B",
        "1 KB",
        "12.3 KB",
        "1 MB",
        "2.5 GB",
        "3 TB",
    ]
