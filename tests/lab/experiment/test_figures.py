"""What a figure promises: which scale, which colours, how many panels, which words it takes."""

import builtins
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rc_context, rcParams
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import mpicomp
from mpicomp import EFSGD, GD, MARINA, RandK, TopK
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.lab.cli import cli
from mpicomp.lab.experiment.canvas import COLOURS, DASHES, MOST_STYLES, curve_style
from mpicomp.lab.experiment.figure import (
    MOST_PANELS,
    crushed,
    draw,
    draw_all,
    pages,
)
from mpicomp.lab.experiment.layout import MOST_CURVES
from mpicomp.lab.experiment.picture import Picture, minimum
from mpicomp.lab.experiment.picturing import picture_of, picture_of_runs
from mpicomp.lab.experiment.report import plot_files
from mpicomp.lab.experiment.styling import STYLES, X, Y, as_look
from mpicomp.lab.experiment.suite import AXES
from mpicomp.problems import MLP, LeastSquares, Logistic, Quadratics
from tests.support.own_file import Centre, Distance

REPORT = "mpicomp.lab.experiment.report"
QUADRATICS = Quadratics(d=20)
SETTINGS = {"workers": 4, "rounds": 40, "every": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures") / "comparison"
    methods = {"GD": GD(), "MARINA": MARINA(Q=RandK(k=0.1))}
    mpicomp.compare(methods, QUADRATICS, seeds=(0, 1, 2, 3, 4), out=out, **SETTINGS)
    return out


@pytest.fixture(scope="module")
def comparison(folder):
    return mpicomp.load(folder)


@pytest.fixture(scope="module")
def picture(comparison):
    return picture_of(comparison)


def many(picture: Picture, count: int) -> Picture:
    """The picture with ``count`` curves, all of them the first one."""
    runs = next(iter(picture.curves.values()))
    return replace(picture, curves={f"method {i}": runs for i in range(count)})


def test_curves_that_begin_with_rounds_without_bytes_have_a_logarithmic_axis():
    """A comparison of methods that skip rounds ended in a traceback of Python when its runs were done."""
    methods = {f"{i}": f"diana(Q=lazy(q={q}), gamma=1e-3, alpha=0.01)" for i, q in enumerate((0.02, 0.9))}
    compared = mpicomp.compare(methods, QUADRATICS, workers=2, rounds=300)
    picture = picture_of(compared)
    for runs in picture.curves.values():
        for rows in runs:
            rows[1] = replace(rows[1], up_bytes=0)
    first = min(row.up_bytes for o in compared.outcomes for row in o.rows if row.up_bytes) / 2
    axes = draw(replace(picture, x=("up",))).axes[0]
    assert (axes.get_xscale(), axes.get_xlim()[0]) == ("log", first)
    silent = {"none": [[replace(row, up_bytes=0) for row in compared.outcomes[0].rows]]}
    assert draw(replace(picture, x=("up",), curves=silent)).axes[0].get_xscale() == "linear"


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=40))
def test_the_axis_is_logarithmic_where_a_quarter_of_the_curves_ends_in_its_first_fifth(ends):
    assert crushed(ends) == (4 * sum(end < 0.2 * max(ends) for end in ends) >= len(ends))


@pytest.mark.parametrize(
    ("ends", "scale"),
    [([9, 9, 9, 9], "linear"), ([1, 9, 9, 9], "log"), ([1, 9, 9, 9, 9], "linear"), ([9], "linear")],
)
def test_the_scale_of_a_panel_follows_the_rule(picture, ends, scale):
    runs = next(iter(picture.curves.values()))
    curves = {
        f"{i}": [[replace(row, round=row.round * end) for row in rows] for rows in runs]
        for i, end in enumerate(ends)
    }
    (axes,) = draw(replace(picture, curves=curves, x=("rounds",))).axes
    assert axes.get_xscale() == scale


def test_no_two_curves_have_the_same_colour_and_dashes():
    styles = {(curve_style(i)["color"], curve_style(i)["linestyle"]) for i in range(MOST_STYLES)}
    assert len(styles) == MOST_STYLES == len(COLOURS) * len(DASHES)
    with pytest.raises(ConfigError, match=f"{MOST_STYLES} curves at most.* Draw some of the runs"):
        curve_style(MOST_STYLES)


def test_the_colours_are_apart():
    colours = np.array([to_rgb(colour) for colour in COLOURS])
    apart = np.abs(colours[:, None] - colours).max(axis=2) + np.eye(len(COLOURS))
    assert apart.min() > 0.15


def test_curves_in_axes_that_have_some_get_other_colours(comparison):
    axes = Figure().subplots()
    run = mpicomp.run(GD(), QUADRATICS, **SETTINGS)
    comparison.plot(ax=axes)
    run.plot(ax=axes)
    colours = [line.get_color() for line in axes.get_lines()]
    assert len(colours) == len(set(colours)) == 3


@pytest.mark.parametrize("count", [2, MOST_CURVES, MOST_CURVES + 1, 10])
def test_more_than_six_curves_have_numbers_at_their_ends(picture, count):
    figure = draw(replace(many(picture, count), x=("rounds", "up")))
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    numbered = count > MOST_CURVES
    assert names == [f"{i + 1}  method {i}" if numbered else f"method {i}" for i in range(count)]
    for axes in figure.axes:
        assert sorted(text.get_text() for text in axes.texts) == sorted(
            str(i + 1) for i in range(count if numbered else 0)
        )
        colours = {text.get_text(): text.get_bbox_patch().get_facecolor() for text in axes.texts}
        for text, colour in colours.items():
            assert colour[:3] == to_rgb(curve_style(int(text) - 1)["color"])


def test_numbers_of_curves_that_end_together_do_not_overlap(picture):
    figure = draw(replace(many(picture, 9), x=("rounds",)))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    panel = axes.get_window_extent()
    assert all(panel.y0 <= (box.y0 + box.y1) / 2 <= panel.y1 for box in boxes)


@given(cases=st.integers(1, 40), x=st.integers(1, 5))
def test_no_figure_of_a_study_has_more_than_six_panels(cases, x):
    pictures = [Picture(str(i), "", 4, {}, x=tuple(X)[:x]) for i in range(cases)]
    found = pages(pictures)
    assert [picture for page in found for picture in page] == pictures
    assert all(len(page) * x <= MOST_PANELS for page in found)


def test_a_study_with_many_panels_gets_several_files(picture, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{REPORT}.read_study", lambda place: type("S", (), {"title": "t"}))
    monkeypatch.setattr(f"{REPORT}._pictures", lambda place, study: [picture] * 3)
    (tmp_path / "study.toml").touch()
    files = plot_files([tmp_path], tmp_path / "out.png")
    assert [path.name for path in files] == ["out.png", "out-2.png", "out-3.png"]  # four panels each
    assert all(path.exists() for path in files)
    assert [path.name for path in plot_files([tmp_path], look=as_look(x="bytes"))] == ["figure.png"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("x", [AXES["x"][:k] for k in range(1, 6)])
@pytest.mark.parametrize("count", [2, 10])
def test_panels_keep_their_size_and_text_is_readable(picture, style, x, count):
    """The legend and the title take no room of the panels; on screen, half the width leaves 6 points."""
    figure = draw(replace(many(picture, count), x=x).with_look(as_look(style=style)))
    figure.draw_without_rendering()
    wanted = STYLES[style]
    assert len(figure.axes) == len(x)
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert box.height / figure.dpi > 0.55 * wanted.panel[1]
        assert box.width / figure.dpi > 0.55 * wanted.panel[0]
        assert axes.xaxis.label.get_fontsize() == wanted.font
    if style != "paper":
        assert 0.5 * 0.9 * wanted.font > 6


def test_limits_are_those_that_were_asked_for(comparison):
    axes = comparison.plot(x="rounds", xlim=(5, 20), ylim="1e-6:1")
    assert (axes.get_xlim(), axes.get_ylim()) == ((5, 20), (1e-6, 1))
    free = comparison.plot(x="rounds")
    axes = comparison.plot(x="rounds", xlim=":20", ylim=(None, 1))
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 20), (free.get_ylim()[0], 1))


def test_labels_name_the_curves_in_their_order(comparison, folder, tmp_path):
    plain, named = comparison.plot(x="rounds"), comparison.plot(x="rounds", labels=["plain GD", "mine"])
    runs = [
        [(line.get_xydata().tolist(), line.get_color()) for line in axes.get_lines()]
        for axes in (plain, named)
    ]
    assert runs[0] == runs[1]
    assert [line.get_label() for line in named.get_lines()[:2]] == ["plain GD", "mine"]
    assert [text.get_text() for text in named.figure.legends[0].get_texts()] == ["plain GD", "mine"]
    words = ["--label", "plain, GD", "--label", "mine", "--out", str(tmp_path / "a.svg")]
    with rc_context({"svg.fonttype": "none"}):
        done = CliRunner().invoke(cli, ["plot", str(folder), *words])
    assert done.exit_code == 0, done.output
    svg = (tmp_path / "a.svg").read_text()
    assert "plain, GD" in svg and "mine" in svg and "MARINA" not in svg


@pytest.mark.parametrize("labels", ["EF21", ["a", 1], ["a", " "], {"a", "b"}, {"a": 1, "b": 2}, 5])
def test_labels_that_are_no_list_of_texts_are_refused(labels):
    with pytest.raises(ConfigError, match="allowed: a list of texts, one for each curve"):
        as_look(labels=labels)


@pytest.mark.parametrize("labels", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_as_many_different_labels_as_curves_are_needed(comparison, labels):
    with pytest.raises(ConfigError, match=r"a different one for each curve, in this order: GD; MARINA\."):
        comparison.plot(labels=labels)


@pytest.mark.parametrize("given", [{"xlim": "1e6:"}, {"xlim": ":-5"}, {"ylim": ":1e-90"}, {"ylim": "1e9:"}])
def test_one_end_beyond_the_curves_is_refused(comparison, given):
    """The axis was drawn from right to left."""
    with pytest.raises(ConfigError, match=r"allowed: an end on this axis, which (ends|begins) at .*"):
        comparison.plot(x="rounds", **given)


@pytest.mark.parametrize("y", ["f", "f-f*", "gradient"])
def test_values_near_the_largest_float_are_left_out(picture, y):
    """matplotlib raised an error of its own: it has no ticks for them."""
    rows = next(iter(picture.curves.values()))[0]
    far = [replace(row, f=(-1.0) ** i * 1e308, grad_norm_sq=1e308) for i, row in enumerate(rows[1:])]
    figure = draw(replace(picture, curves={"a": [rows], "b": [[rows[0], *far]]}, y=y))
    drawn, left_out = (np.asarray(line.get_ydata()) for line in figure.axes[0].lines[:2])
    assert np.isfinite(drawn).all() and not np.isfinite(left_out[1::2]).any()
    figure.canvas.draw()


def test_f_minus_its_minimum(comparison):
    """Where a problem does not know f*, or no constants, the least f seen stands in; the label says so."""
    known = QUADRATICS.constants(4).f_star
    axes = comparison.plot(x="rounds", y="f-f*")
    rows = comparison.outcomes[0].rows
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [row.f - known for row in rows], rtol=1e-12)
    assert axes.get_ylabel() == r"$f(x)-f^\star$" and axes.get_yscale() == "log"
    for method, problem in ((GD(), Logistic(data="digits", lam=0.1)), (GD(gamma=0.1), MLP(data="digits"))):
        run = mpicomp.run(method, problem, workers=4, rounds=20, every=5)
        axes = run.plot(x="rounds", y="f-f*")
        least = min(row.f for row in run.rows)
        np.testing.assert_allclose(
            axes.get_lines()[0].get_ydata(), [row.f - least for row in run.rows], rtol=1e-12
        )
        assert axes.get_ylabel() == r"$f(x)-\min\,f$ of all rows"


def test_the_minimum_of_other_data_than_the_run_s_is_not_subtracted(tmp_path, monkeypatch):
    """The file may have changed since, or be gone: then f is drawn over the least f of the rows."""
    monkeypatch.chdir(tmp_path)

    def write(factor: float) -> None:
        rows = [(1.0, 2.0, 3.0), (2.0, -1.0, 5.0), (0.5, 1.0, -2.0), (3.0, 1.0, 1.0)]
        lines = "".join(f"{a!r},{b!r},{factor * y!r}\n" for a, b, y in rows)
        Path("data.csv").write_text(f"a,b,y\n{lines}")

    write(1.0)
    problem = LeastSquares("data.csv:y", lam=0.1)
    mpicomp.run(GD(), problem, workers=2, rounds=20, every=10, out="run")
    mpicomp.compare({"GD": GD()}, problem, workers=2, rounds=20, every=10, out="compared")
    known = problem.constants(2).f_star
    records = [mpicomp.load("run"), mpicomp.load("compared")]
    assert all(minimum(p) == (known, False) for p in pictures(records))
    write(10.0)
    assert problem.constants(2).f_star > 2 * known
    mpicomp.run(GD(), problem, workers=2, rounds=20, every=10, out="other")
    least = records[0].rows[-1].f
    assert [minimum(p) for p in pictures(records)] == [(least, True)] * 2
    with pytest.raises(ConfigError, match=r"of other data each.*Plot them apart"):
        plot_files(["run", "other"])
    Path("data.csv").unlink()
    assert [minimum(p) for p in pictures(records)] == [(least, True)] * 2
    plot_files(["run"], look=as_look(y="f-f*"))


def test_the_minimum_of_all_samples_is_not_subtracted_from_f_on_some(tmp_path):
    """f on some samples may be below f*: its curve ended at 0, as of a run that has converged."""
    settings = {"workers": 2, "rounds": 60, "every": 1, "observe": 4}
    problem = LeastSquares(regression(), lam=0.1)
    compared = mpicomp.compare({"GD": GD()}, problem, seeds=[1], **settings)
    run = mpicomp.run(GD(), problem, seed=1, out=tmp_path / "run", **settings)
    assert min(row.f for row in run.rows) < problem.constants(2).f_star
    for result in (compared, run, mpicomp.load(tmp_path / "run")):
        axes = result.plot(x="rounds", y="f-f*")
        assert axes.get_ylabel() == r"$f(x)-\min\,f$ of all rows"
        least = min(row.f for row in run.rows)
        np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [row.f - least for row in run.rows])
        assert "; f of 4 samples of each worker" in axes.get_title(loc="left").replace("\n", " ")


def test_the_minimum_of_all_workers_is_not_subtracted_from_f_of_those_that_were_left(tmp_path):
    run = mpicomp.run(GD(), QUADRATICS, workers=4, rounds=20, every=5, out=tmp_path)
    held = mpicomp.load(tmp_path)
    lost = [{"round": 10, "rank": 1, "host": "a", "workers": [3]}]
    for whole, left in (
        (run, replace(run, lost=lost)),
        (held, replace(held, config=held.config | {"lost": lost})),
    ):
        assert not minimum(picture_of_runs([whole]))[1] and minimum(picture_of_runs([left]))[1]


def test_runs_that_were_recorded_after_other_rounds_share_a_curve_at_the_rounds_of_all():
    """The k-th rows were taken together: f after 3 rounds with f after 30, and drawn at their mean round."""
    often, rarely = (
        mpicomp.run(MARINA(Q=RandK(k=0.1)), QUADRATICS, workers=4, rounds=60, every=every, seed=seed)
        for every, seed in ((3, 0), (20, 1))
    )
    line = mpicomp.plot(often, rarely, x="rounds", y="f").get_lines()[0]
    f = [{row.round: row.f for row in run.rows} for run in (often, rarely)]
    assert line.get_xdata().tolist() == [0, 60]
    expected = [np.median([f[0][k], f[1][k]]) for k in (0, 60)]
    np.testing.assert_array_equal(line.get_ydata(), expected)
    early = replace(often, rows=often.rows[:6], status="target")  # after 15 rounds
    line = mpicomp.plot(early, rarely, x="rounds", y="f").get_lines()[0]
    assert line.get_xdata().tolist() == [0, 20, 40, 60]
    expected = [np.median([f[0][min(k, 15)], f[1][k]]) for k in (0, 20, 40, 60)]
    np.testing.assert_array_equal(line.get_ydata(), expected)


def test_runs_that_observe_f_on_other_samples_are_not_drawn_together(tmp_path):
    """They were one curve, the median of two functions."""
    problem = LeastSquares(regression(), lam=0.1)
    for observe in ("full", 4):
        out = tmp_path / f"{observe}"
        mpicomp.run(GD(), problem, workers=2, rounds=20, observe=observe, out=out)
    with pytest.raises(ConfigError, match=r"other samples each \(observe = full, 4\).*Plot them apart"):
        plot_files([tmp_path / "full", tmp_path / "4"])


def regression() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    return X, X.sum(axis=1) + rng.normal(size=200)


def pictures(records) -> list[Picture]:
    """The pictures of a run and of a comparison."""
    return [replace(p, y="f-f*") for p in (picture_of_runs(records[:1]), picture_of(records[1]))]


@pytest.mark.parametrize(("bands", "ends"), [("range", (0, 1)), ("quantile", (0.25, 0.75)), ("none", None)])
def test_bands_are_over_the_seeds(comparison, bands, ends):
    axes = comparison.plot(x="rounds", bands=bands)
    if ends is None:
        assert not axes.collections
        return
    runs = [o.rows for o in comparison.outcomes if o.label == "MARINA"]
    metric = np.array([[row.grad_norm_sq for row in rows] for rows in runs])
    band = axes.collections[1].get_paths()[0].vertices
    for i, rounds in enumerate(axes.get_lines()[1].get_xdata()):
        heights = band[band[:, 0] == rounds, 1]
        np.testing.assert_allclose(
            [heights.min(), heights.max()], np.quantile(metric[:, i], ends), rtol=1e-12
        )


def test_the_subtitle_says_what_the_bands_are(picture):
    for bands, said in {"range": "range", "quantile": "quartiles", "none": "median of 5 seeds"}.items():
        assert said in picture.with_look(as_look(bands=bands)).subtitle


@pytest.mark.parametrize("y", Y)
def test_every_axis_is_drawn_and_has_a_label(comparison, y, tmp_path):
    with_error = mpicomp.run(EFSGD(TopK(k=2), gamma=0.01), QUADRATICS, **SETTINGS)
    for x in X:
        axes = (with_error if y == "error" else comparison).plot(x=x, y=y, style="paper")
        assert axes.get_xlabel() and "$" in axes.get_ylabel()
    axes.figure.savefig(tmp_path / "one.png")


@dataclass(frozen=True)
class Steep(Centre):
    """Values beyond those that matplotlib can put ticks on."""

    def objective(self, i, n):
        return SteepDistance(np.full(self.d, float(i)))


class SteepDistance(Distance):
    def value(self, x):
        return 1e203 * (1 + super().value(x))


def test_no_empty_panel_is_drawn_of_values_too_large_for_an_axis():
    run = mpicomp.run(GD(gamma=0.1), Steep(), workers=2, rounds=20)
    with pytest.raises(RecordError, match=r"^there is nothing to draw: all values of f are beyond 1e\+200"):
        run.plot(y="f")
    assert run.plot(y="gradient").lines


def test_no_empty_panels_are_drawn_of_methods_without_error_feedback(comparison):
    with pytest.raises(RecordError, match="nothing to draw: no run has an error above 0"):
        comparison.plot(x="rounds", y="error")


@pytest.mark.parametrize(("format", "begins"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_command_writes_each_format(folder, format, begins):
    words = ["--x", "bytes", "--y", "f-f*", "--xlim", "0:1e4", "--ylim", "1e-9:10"]
    words += ["--style", "talk", "--bands", "quantile", "--format", format]
    done = CliRunner().invoke(cli, ["plot", str(folder), *words], catch_exceptions=False)
    path = folder / f"figure.{format}"
    assert done.output == f"{path}\n" and path.read_bytes().startswith(begins)


def test_formats_and_names(folder, tmp_path):
    assert plot_files([folder], tmp_path / "a", format="pdf") == [tmp_path / "a.pdf"]
    with pytest.raises(ConfigError, match=r" is a folder: name a file, such as .*/figure\.png"):
        plot_files([folder], tmp_path)
    with pytest.raises(RecordError, match=r"cannot write .*: File name too long"):
        plot_files([folder], tmp_path / ("a" * 300))
    with pytest.raises(ConfigError, match=r"ends in \.png, and the format is pdf; allowed"):
        plot_files([folder], tmp_path / "a.png", format="pdf")
    with pytest.raises(
        ConfigError, match=r"unknown format 'pdff'\. Did you mean 'pdf'\? Allowed: png, pdf, svg"
    ):
        plot_files([folder], format="pdff")


REFUSED = {
    "unknown x axis 'byte'. Did you mean 'bytes'? Allowed:": {"x": "byte"},
    "unknown y axis 'f-f'. Did you mean 'f-f*'? Allowed:": {"y": "f-f"},
    "unknown style 'papers'. Did you mean 'paper'? Allowed: screen, paper, talk": {"style": "papers"},
    "unknown bands 'quantiles'. Did you mean 'quantile'? Allowed:": {"bands": "quantiles"},
    "xlim = '5'; allowed: A:B with numbers A < B": {"x": "up", "xlim": "5"},
    "ylim = '1:1e300'; allowed: A:B with numbers A < B up to 1e+200": {"x": "up", "ylim": "1:1e300"},
    "xlim = '5:2'; allowed:": {"x": "up", "xlim": (5, 2)},
    "ylim = 'a:b'; allowed:": {"ylim": "a:b"},
    "ylim = ':'; allowed:": {"ylim": (None, None)},
    "ylim = '1:inf'; allowed:": {"ylim": "1:inf"},
    "Choose one, such as x = bytes": {"xlim": "1:2", "x": "rounds,bytes"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_not_allowed_is_said(said):
    with pytest.raises(ConfigError) as error:
        as_look(**REFUSED[said])
    assert said in str(error.value)


def test_a_logarithmic_axis_refuses_zero(comparison):
    with pytest.raises(ConfigError, match="this y axis is logarithmic; allowed: ends above 0"):
        comparison.plot(ylim=(0, 1))
    assert comparison.plot(y="f", ylim=(0, 1)).get_ylim() == (0, 1)
    with pytest.raises(ConfigError, match="axes and ax, which are one argument"):
        comparison.plot(axes=Figure().subplots(), ax=Figure().subplots())
    with pytest.raises(ConfigError, match="one axis"):
        comparison.plot(x="rounds,up")


def test_a_comparison_without_a_figure_has_its_tables(tmp_path):
    """More methods than a figure has colours and dashes for, and runs that all end at their start."""
    settings = {"workers": 2, "rounds": 2, "every": 1}
    methods = {f"gd {i}": GD(gamma=0.01 * (i + 1)) for i in range(MOST_STYLES + 1)}
    with pytest.warns(UserWarning, match=rf"no figure in .*: a figure has {MOST_STYLES} curves at most"):
        mpicomp.compare(methods, QUADRATICS, out=tmp_path / "many", **settings)
    for name, limit in (("bytes", "max_bytes"), ("seconds", "max_seconds")):
        with pytest.warns(UserWarning, match=r"no figure in .*no run has recorded more than its start"):
            mpicomp.compare([GD()], QUADRATICS, out=tmp_path / name, **settings | {limit: 0})
    for folder in tmp_path.iterdir():
        assert (folder / "table.md").exists() and not (folder / "figure.png").exists()
        assert len(mpicomp.load(folder).outcomes) in (1, MOST_STYLES + 1)


def test_the_command_says_in_one_line_why_there_is_no_figure(tmp_path):
    suite = tmp_path / "suite.toml"
    suite.write_text(
        'problem = "quadratics(d=20)"\nworkers = 2\nrounds = 2\nmax_seconds = 0\n[[method]]\nmethod = "gd"\n'
    )
    command = [sys.executable, "-m", "mpicomp", "compare", str(suite), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reason = "there is nothing to draw: no run has recorded more than its start."
    assert done.stderr == f"mpicomp: no figure in {tmp_path / 'out'}: {reason}\n"
    assert done.stdout.endswith(f"\n{tmp_path / 'out'}/table.md\n")


def test_without_matplotlib_the_error_names_the_remedy(comparison, monkeypatch):
    found = builtins.__import__

    def without(name, *args):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return found(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs matplotlib, which is not installed: pip install matplotlib"):
        comparison.plot()


def test_a_figure_needs_no_tex_where_the_users_settings_ask_for_it(folder, comparison, tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.texmanager.TexManager.make_dvi", None)  # no label could be set by TeX
    with rc_context({"text.usetex": True}):
        written = plot_files([folder], tmp_path / "figure.png")
        assert not comparison.plot().xaxis.label.get_usetex()
        assert rcParams["text.usetex"]
    assert written == [tmp_path / "figure.png"]


@pytest.mark.parametrize("target", [0, np.inf])
def test_a_target_that_has_no_place_on_the_axis_is_not_drawn(picture, target):
    """A line at 0 stretched the logarithmic axis, and the layout was given up."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(replace(picture, target=target))
    assert figure.axes[0].get_ylim() == draw(replace(picture, target=None)).axes[0].get_ylim()


def test_a_figure_is_drawn_at_any_resolution_of_the_users_settings(folder, tmp_path):
    with rc_context({"figure.dpi": 1}):
        assert plot_files([folder], tmp_path / "figure.png") == [tmp_path / "figure.png"]


def test_a_backend_that_matplotlib_does_not_know_is_one_line(folder):
    done = subprocess.run(
        [sys.executable, "-m", "mpicomp", "plot", str(folder)],
        env=os.environ | {"MPLBACKEND": "nosuch"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.startswith(
        "mpicomp: a figure needs matplotlib, which does not"
    )
    assert done.stderr.count("\n") == 1


def test_runs_of_equal_names_are_told_apart_by_their_paths(folder):
    runs = [folder / "runs" / name / "seed-0" for name in ("gd", "marina")]
    from mpicomp.lab.experiment.picturing import picture_of_folders

    labels = [label.split(":")[0] for label in picture_of_folders(runs).curves]
    assert labels == [str(Path("gd") / "seed-0"), str(Path("marina") / "seed-0")]


def test_cases_of_a_study_share_one_numbering(picture):
    figure = draw_all("t", [replace(many(picture, 9), x=("up",))] * 2)
    for axes in figure.axes:
        assert {text.get_text() for text in axes.texts} == {str(i) for i in range(1, 10)}


def test_a_panel_beside_a_problem_that_knows_its_minimum_says_that_its_own_does_not(picture):
    """One label for a row of panels that show the same height, another one where it changes."""
    known = replace(picture, x=("up",), y="f-f*", problem=QUADRATICS)
    unknown, bare = replace(known, problem=None), replace(known, problem=None, curves={}, missing="all")
    labels = [axes.get_ylabel() for axes in draw_all("t", [known, known, unknown, unknown, bare, known]).axes]
    f_star, least = r"$f(x)-f^\star$", r"$f(x)-\min\,f$ of all rows"
    assert labels == [f_star, "", least, least, "", f_star]
