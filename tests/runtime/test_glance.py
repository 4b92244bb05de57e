"""What a prompt and a notebook show of results: short, and the numbers of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html.parser import HTMLParser

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, GD, TopK
from mpicomp.base.units import human_bytes
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.problems import Logistic, Quadratics
from mpicomp.runtime.glance import risen

QUADRATICS = Quadratics(d=20, noise=0.5, lam=0.1)
METHODS = {"GD": GD(gamma=0.2), "<b>EF21</b> & co": EF21(TopK(k=5), gamma=0.1)}
SETTINGS = {"workers": 4, "rounds": 20, "every": 5}


@pytest.fixture(scope="module")
def run():
    return mpicomp.run(METHODS["GD"], QUADRATICS, **SETTINGS)


@pytest.fixture(scope="module")
def comparison():
    return mpicomp.compare(METHODS, QUADRATICS, seeds=range(2), **SETTINGS)


class Table(HTMLParser):
    """The cells of a page, row by row, and all its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.attributes: list[str] = []
        self._in_cell = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += [name for name, _ in attributes]
        if tag == "tr":
            self.rows.append([])
        self._in_cell = tag in ("td", "th")
        if self._in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._in_cell = False

    def handle_data(self, data):
        if self._in_cell:
            self.rows[-1][-1] += data


def table_of(result) -> Table:
    table = Table(result._repr_html_())
    assert table.tags <= {"p", "small", "table", "thead", "tbody", "tr", "th", "td"}
    assert table.attributes == [] and len({len(row) for row in table.rows}) == 1
    return table


def expect_short(result) -> str:
    text = repr(result)
    assert "\n" not in text and len(text) < 200
    return text


def test_a_run_says_where_it_ended(run):
    last = run.rows[-1]
    text = expect_short(run)
    assert text.startswith("<Run of GD on Quadratics, 4 workers: 20 rounds, status 'rounds', ")
    for part in (f"f = {last.f:.4g}", f"{last.grad_norm_sq:.1e}", f"{human_bytes(last.up_bytes)} up"):
        assert part in text
    head, *rows = table_of(run).rows
    assert head == ["rounds", "f", "|∇f|²", "bytes up", "bytes down", "seconds"]
    for shown, row in zip(rows, (run.rows[0], last), strict=True):
        assert int(shown[0]) == row.round
        assert [float(cell) for cell in shown[1:3]] == pytest.approx([row.f, row.grad_norm_sq], rel=5e-3)
        assert shown[3:5] == [human_bytes(row.up_bytes), human_bytes(row.down_bytes)]


def test_a_run_says_that_f_rose(run):
    far = mpicomp.run(GD(gamma=9.0), QUADRATICS, workers=4, rounds=2)
    assert f" f = {far.rows[-1].f:.4g}, above f(x⁰) = {far.rows[0].f:.4g}, |∇f|² = " in expect_short(far)
    assert "above" not in repr(run)
    f = far.rows[0].f
    for last, words in ((f * (1 + 1e-9), ""), (f * 1.01, f"above f(x⁰) = {f:.4g}"), (None, "")):
        assert risen([far.rows[0], replace(far.rows[1], f=last)]) == words


def test_a_run_that_observes_nothing_has_empty_cells():
    unobserved = mpicomp.run(METHODS["GD"], QUADRATICS, observe="never", **SETTINGS)
    assert "f =" not in expect_short(unobserved)
    assert [row[1:3] for row in table_of(unobserved).rows[1:]] == [["", ""], ["", ""]]


def test_arrays_are_not_shown(run):
    """Neither those of the run nor those that are a problem's data."""
    rng = np.random.default_rng(0)
    own = Logistic(data=(rng.standard_normal((3000, 40)), rng.choice([-1.0, 1.0], 3000)), lam=0.1)
    big = mpicomp.run(METHODS["GD"], own, workers=2, rounds=2)
    expect_short(big)
    expect_short(replace(run, x=np.zeros(10**6)))
    assert len(big._repr_html_()) < 2000


def test_a_comparison_shows_the_cells_of_its_table(comparison):
    assert expect_short(comparison).endswith("on Quadratics, 4 of 4 runs ended: GD, <b>EF21</b> & co>")
    markdown = [line for line in comparison.table().splitlines() if line.startswith("|")]
    shown = table_of(comparison).rows
    assert len(shown) == len(markdown) - 1  # which has a rule below the header
    for row, line in zip(shown, [markdown[0], *markdown[2:]], strict=True):
        assert "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" == line
    assert "<b>" not in comparison._repr_html_()


def test_runs_that_are_missing_are_not_counted(comparison):
    part = replace(comparison, outcomes=comparison.outcomes[:2])
    assert "2 of 4 runs ended" in expect_short(part)
    assert [row[2] for row in table_of(part).rows[2:]] == ["not run"]


def test_an_outcome_shows_no_rows(comparison):
    assert expect_short(comparison.outcomes[0]).startswith("<Outcome of GD with seed 0: 20 rounds, ")


def test_a_tuning_names_the_best_step():
    tuning = mpicomp.tune(GD(gamma=0.1), QUADRATICS, exponents=(0, 2), **SETTINGS)
    assert expect_short(tuning).startswith(f"<Tuning: the best step is {tuning.best.gamma}, of ")
    rows = table_of(tuning).rows[1:]
    assert [row[0] for row in rows] == [str(trial.gamma) for trial in tuning.trials]
    assert [row[0] for row in rows if row[-1] == "best"] == [str(tuning.best.gamma)]
    assert expect_short(Tuning(())) == "<Tuning: no step tried>" and len(table_of(Tuning(())).rows) == 1


def test_a_record_is_shown_like_its_run(run, tmp_path):
    mpicomp.run(METHODS["GD"], QUADRATICS, out=tmp_path / "run", **SETTINGS)
    record = mpicomp.load(tmp_path / "run")
    assert table_of(record).rows[2][:5] == table_of(run).rows[2][:5]
    assert "GD on Quadratics in" in repr(record) and "status 'rounds'" in repr(record)
    (tmp_path / "run" / "summary.json").unlink()
    assert "GD on Quadratics in" in repr(mpicomp.load(tmp_path / "run"))
    assert "status 'not finished'" in repr(mpicomp.load(tmp_path / "run"))
    unwritten = replace(record, rows=[], summary={}, config={})
    assert "no rows" in repr(unwritten) and len(table_of(unwritten).rows) == 1


def test_texts_of_ones_own_are_escaped():
    @dataclass(frozen=True)
    class Marked(GD):
        def __repr__(self) -> str:
            return "<script>alert(1)</script>" + "x" * 1000

    marked = mpicomp.run(GD(gamma=0.2), QUADRATICS, workers=2, rounds=1)
    marked = replace(marked, method=Marked(gamma=0.2))
    page = marked._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and len(page) < 1500
    table_of(marked)
