"""The bar of runs from Python: when there is one, and what it shows."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError
from mpicomp.problems import Quadratics
from mpicomp.runtime import bars

QUADRATICS = Quadratics(d=5, lam=0.1)
SETTINGS = {"workers": 2, "rounds": 3, "every": 2}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(bars, "PATIENCE", 0.0)
    monkeypatch.setattr(bars, "APART", 0.0)


@pytest.fixture
def notebook(monkeypatch):
    """The pages that a cell shows, where this process is a notebook's kernel."""
    pages = []
    handle = SimpleNamespace(update=lambda page: pages.append((repr(page), page._repr_html_())))
    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=lambda page, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return pages


def test_a_notebook_has_a_bar_without_being_asked(notebook):
    run = mpicomp.run(GD(gamma=0.1), QUADRATICS, **SETTINGS)
    seen = f"|∇f|² = {run.rows[1].grad_norm_sq:.2e}"
    assert [text for text, _ in notebook][:2] == ["1/3", f"2/3 {seen}"]
    assert notebook[1][1] == f'<progress value="2" max="3"></progress> 2/3 {seen}'
    assert notebook[-1] == ("", "")


def test_a_notebook_has_a_bar_for_comparisons_and_tunings(notebook):
    mpicomp.compare({"<GD>": GD(gamma=0.1)}, QUADRATICS, seeds=range(2), **SETTINGS)
    assert notebook[0] == (
        "1/2 <GD>, seed 0",
        '<progress value="1" max="2"></progress> 1/2 &lt;GD&gt;, seed 0',
    )
    assert notebook[-2][0] == "2/2 <GD>, seed 1" and notebook[-1] == ("", "")
    notebook.clear()
    mpicomp.tune(GD(gamma=0.1), QUADRATICS, exponents=(0, 1), **SETTINGS)
    assert notebook[0][0].startswith("1/") and "step 0.2, seed 0" in notebook[0][0]
    assert notebook[-1] == ("", "")


def test_a_bar_is_gone_after_an_error(notebook):
    def fail(round, row, x):
        if round == 2:
            raise ConfigError("no more")

    with pytest.raises(ConfigError, match="no more"):
        mpicomp.run(GD(gamma=0.1), QUADRATICS, callback=fail, **SETTINGS)
    assert notebook == [("1/3", '<progress value="1" max="3"></progress> 1/3'), ("", "")]


def test_short_work_shows_nothing(notebook, monkeypatch):
    monkeypatch.setattr(bars, "PATIENCE", 60.0)
    mpicomp.run(GD(gamma=0.1), QUADRATICS, **SETTINGS)
    assert notebook == []


def test_false_and_a_function_stand_in_for_the_bar(notebook):
    seen = []
    mpicomp.run(GD(gamma=0.1), QUADRATICS, progress=False, **SETTINGS)
    mpicomp.run(GD(gamma=0.1), QUADRATICS, progress=lambda round, row: seen.append(round), **SETTINGS)
    assert notebook == [] and seen == [1, 2, 3]


def test_a_terminal_has_a_bar_if_asked(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    mpicomp.run(GD(gamma=0.1), QUADRATICS, **SETTINGS)
    assert capsys.readouterr().err == ""
    mpicomp.run(GD(gamma=0.1), QUADRATICS, progress=True, **SETTINGS)
    lines = capsys.readouterr().err.split("\r\x1b[2K")
    assert lines[0] == "" and lines[1] == "1/3" and lines[2].startswith("2/3 |∇f|²") and lines[-1] == ""


def test_a_log_has_none(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.delenv("MPICOMP_TERMINAL", raising=False)
    mpicomp.run(GD(gamma=0.1), QUADRATICS, progress=True, **SETTINGS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("call", [mpicomp.run, mpicomp.tune, lambda m, p, **o: mpicomp.compare([m], p, **o)])
def test_anything_else_is_refused(call):
    with pytest.raises(ConfigError, match=r"progress=3; allowed: True, False, None, or a function without"):
        call(GD(gamma=0.1), QUADRATICS, progress=3, **SETTINGS)
