"""The figure of a comparison, or of single runs: its curves, and what it says of the runs that have none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from statistics import median

import pytest

from mpicomp.base.errors import ConfigError, DivergedError, RecordError
from mpicomp.compressors import RandK
from mpicomp.lab.experiment.canvas import plain_title, save
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.figure import draw, draw_all
from mpicomp.lab.experiment.picturing import picture_of, picture_of_folders
from mpicomp.lab.experiment.report import plot_files, publish
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.methods import DIANA, GD
from mpicomp.problems import Quadratics
from mpicomp.runtime.run import run
from tests.support.suites import SUITE


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


def test_the_curve_is_the_median_over_seeds(done):
    _, comparison = done
    runs = [o.rows for o in comparison.outcomes if o.label == "DIANA RandK"]
    line = draw(picture_of(comparison)).axes[0].get_lines()[1]
    assert len(line.get_xdata()) == sorted(map(len, runs))[len(runs) // 2]  # it ends with the median run
    for k in range(len(line.get_xdata())):
        metric = [rows[min(k, len(rows) - 1)].grad_norm_sq for rows in runs]
        assert line.get_ydata()[k] == median(metric)
        assert line.get_xdata()[k] == 5 * k


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


def test_the_figure_says_what_is_not_finished(done):
    """The last row of an unfinished run is no end: it was drawn on to the end of the others."""
    _, comparison = done
    gd = [o for o in comparison.outcomes if o.label == "GD"]
    cut = replace(gd[0], rows=gd[0].rows[:3], summary={})
    some = picture_of(replace(comparison, outcomes=[cut, gd[1]]))
    assert some.curves == {"GD": [gd[1].rows]}
    assert some.missing == (
        "not finished: GD (2 of 3 seeds), DIANA RandK (3 of 3 seeds), too far (3 of 3 seeds), "
        "dcgd(Q=randk(k=2), gamma=0.0001) (3 of 3 seeds)"
    )
    none = picture_of(replace(comparison, outcomes=[cut]))
    assert none.curves == {"GD": [cut.rows]} and none.missing.startswith("not finished: GD (3 of 3 seeds), ")


def test_where_everything_diverges_there_is_no_figure(tmp_path):
    out = tmp_path / "out"
    suite = parse_suite(SUITE.split("[[method]]")[0] + '[[method]]\nmethod = "gd(gamma=1000)"')
    compare(suite, out)
    (out / "figure.png").write_bytes(b"of before")
    assert publish(out)[0].diverged == 3
    assert not (out / "figure.png").exists()


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


def test_plot_redraws(done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "out")
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
    picture = picture_of_folders([tmp_path / "first", tmp_path / "second"])
    assert picture.title == "first, second"
    assert list(picture.curves) == ["first: gd", "second: diana(Q=randk(k=2))"]


def test_a_run_without_rows_cannot_be_drawn(tmp_path):
    with pytest.raises(DivergedError):
        run(GD(gamma=1e300), Quadratics(d=5), workers=2, rounds=10, every=10, out=tmp_path)
    with pytest.raises(RecordError, match="nothing to draw"):
        plot_files([tmp_path])
