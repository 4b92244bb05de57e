"""The folder and the tables of a comparison."""

from __future__ import annotations

import csv
import json
from dataclasses import fields, replace
from pathlib import Path
from statistics import median

import pytest

import mpicomp
from mpicomp.base.units import human_bytes
from mpicomp.compressors import Identity, Lossless, RandK, TopK
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.folder import read_comparison
from mpicomp.lab.experiment.run_tables import phases_table
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import cells, markdown, terminal
from mpicomp.methods import DIANA, EF14, GD, MARINA
from mpicomp.problems import Noisy, Quadratics
from mpicomp.runtime.rows import Row
from tests.support.suites import SUITE


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
            "epochs": [float(r["epochs"]) for r in last.values()],
            "f": [float(r["f"]) for r in last.values()],
        }
        for name, values in expected.items():
            assert lines[label][name] == pytest.approx(median(values), rel=1e-12)
    gd = lines["GD"]
    assert gd["up_bytes_per_worker"] == gd["rounds"] * 20 * 4  # 20 coordinates of 4 bytes
    assert gd["gamma"] == pytest.approx(1 / Quadratics(d=20, noise=0.5, lam=0.05).constants(3).L)


def test_the_total_error_of_a_line_is_the_median_over_the_seeds():
    method = EF14(TopK(1), gamma=0.1, batch=1)
    found = mpicomp.compare([method], Noisy(Quadratics(d=5), 0.1), workers=2, rounds=5, seeds=(0, 1, 2))
    errors = [outcome.rows[-1].error for outcome in found.outcomes]
    assert len({*errors}) == 3 and found.lines()[0].error == median(errors)


def test_the_precisions_of_a_line_are_in_one_order():
    method = MARINA(RandK(2, values="f2"), gamma=0.1, p=0.5, sync=Identity("f8"), down=Lossless("f4"))
    found = mpicomp.compare([method], Quadratics(d=5), workers=2, rounds=1)
    assert found.lines()[0].formats == ("f2", "f4", "f8")


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


def test_without_a_target_f_and_its_gradient_are_means_over_the_last_tenth():
    found = mpicomp.compare([GD(gamma=0.1)], Quadratics(d=5), workers=2, rounds=20, every=1)
    last = found.outcomes[0].rows[-3:]
    assert [row.round for row in last] == [18, 19, 20] and last[0].f > last[1].f > last[2].f
    shown = found.lines()[0]
    assert shown.f == sum(row.f for row in last) / 3
    assert shown.grad_norm_sq == sum(row.grad_norm_sq for row in last) / 3


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


def test_a_line_break_in_a_label_or_title_does_not_end_a_row_of_the_table():
    compared = mpicomp.compare(
        {"one\nmethod": GD(), "b": GD(gamma=0.5)}, "quadratics(d=20)", workers=2, rounds=5, title="of\ntwo"
    )
    title, _, head, _, first, second, blank, _ = compared.table().splitlines()
    assert title == "### of two" and first.startswith("| one method |") and second.startswith("| b |")
    assert head.count("|") == first.count("|") + 2 and not blank  # two are of \\|∇f\\|²


def test_an_empty_title_is_no_heading():
    compared = mpicomp.compare([GD()], "quadratics(d=20)", workers=2, rounds=5, title=" ")
    assert compared.table().startswith("| method | step size |")


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
