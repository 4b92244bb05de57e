"""The texts of a figure: characters that its font lacks, and titles that are the same each time."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

import mpicomp
from mpicomp import GD, MARINA, RandK
from mpicomp.lab.experiment import glyphs
from mpicomp.lab.experiment.figure import draw, draw_panel
from mpicomp.lab.experiment.picturing import picture_of
from mpicomp.problems import Quadratics
from tests.support.own_file import Distance

QUADRATICS = Quadratics(d=20)
SETTINGS = {"workers": 4, "rounds": 40, "every": 5}


@pytest.fixture(scope="module")
def picture():
    return picture_of(mpicomp.compare([GD(), MARINA(Q=RandK(k=0.1))], QUADRATICS, **SETTINGS))


def test_characters_of_another_font_are_drawn_with_it(picture):
    """U+2312 is in STIX, which comes with matplotlib, and not in DejaVu Sans.  Warnings are errors here."""
    runs = next(iter(picture.curves.values()))
    shown = replace(picture, curves={"⌒": runs, "b": runs}, title="⌒ in a title", x=("rounds",))
    figure = draw(shown)
    figure.draw_without_rendering()
    texts = [figure._suptitle, *figure.legends[0].get_texts()]
    assert [text.get_text() for text in texts] == ["⌒ in a title", "⌒", "b"]
    assert [len(text.get_fontfamily()) for text in texts] == [2, 2, 1]
    axes = draw_panel(shown, Figure().subplots())
    axes.figure.draw_without_rendering()
    assert [len(text.get_fontfamily()) for text in axes.get_legend().get_texts()] == [2, 1]


def test_characters_of_no_font_are_spelt_with_one_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(glyphs, "_font_with", lambda character: None)
    glyphs._warn_of_missing_fonts.cache_clear()
    methods = {"方 a": GD(gamma=0.1), "法 b": GD(gamma=0.2)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        mpicomp.compare(methods, QUADRATICS, title="比較", out=tmp_path / "out", **SETTINGS)
        shown = picture_of(mpicomp.load(tmp_path / "out"))
    (warning,) = told
    assert "no font of this machine has some of the characters" in str(warning.message)
    assert (shown.title, *shown.curves) == (r"\u6bd4\u8f03", r"\u65b9 a", r"\u6cd5 b")


class Nameless(mpicomp.Problem):
    """No dataclass: its text has its address."""

    def dimension(self):
        return 3

    def objective(self, i, n):
        return Distance(np.zeros(3))


def test_no_figure_or_table_is_titled_with_an_address():
    problem = Nameless()
    assert " at 0x" in repr(problem)
    compared = mpicomp.compare([GD(gamma=0.1)], problem, workers=2, rounds=20)
    run = mpicomp.run(GD(gamma=0.1), problem, workers=2, rounds=20)
    drawn = [one.plot().get_title(loc="left") for one in (compared, run)]
    whole = "".join(f"<{__name__}.Nameless object>, 2 workers".split())
    assert {"".join(title.split()) for title in drawn} == {whole}  # a long title is broken into lines
    assert compared.suite.title == f"<{__name__}.Nameless object>"
