"""Suites with several cases: read, run, resumed, drawn."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import mpicomp.lab.experiment.job
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.lab.experiment.compare import compare, compare_all
from mpicomp.lab.experiment.figure import draw, draw_all
from mpicomp.lab.experiment.folder import read_comparison, unfinished
from mpicomp.lab.experiment.picturing import picture_of
from mpicomp.lab.experiment.report import plot_files, publish_study
from mpicomp.lab.experiment.study import Study, load_file, parse
from mpicomp.lab.experiment.suite import Suite, parse_part
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import cells, header

STUDY = """
title = "Two cases"
rounds = 20
every = 5
workers = 4
x = ["up", "epochs"]
seeds = [0, 1]

[[case]]
label = "no noise"
problem = "quadratics(d=20, noise=0.0, lam=0.1)"

[[case]]
label = "κ: \\"noise\\""
problem = "quadratics(d=20, noise=0.5, lam=0.1)"
workers = 8
rounds = 10

[[case.method]]
method = "gd(gamma=0.5)"
label = "GD, $x$"

[[method]]
method = "marina(Q=permk)"
tune = [0, 1]
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    compare_all(parse(STUDY), out)
    return out


def test_a_study_is_read():
    study = parse(STUDY)
    assert isinstance(study, Study)
    first, second = study.cases
    assert (first.slug, second.slug) == ("no-noise", "noise")
    assert first.suite.title == "Two cases: no noise" and second.suite.title == 'Two cases: κ: "noise"'
    assert (first.suite.workers, second.suite.workers) == (4, 8)
    assert (first.suite.limits.rounds, second.suite.limits.rounds) == (20, 10)
    assert [e.label for e in first.suite.entries] == ["marina(Q=permk)"]
    assert [e.label for e in second.suite.entries] == ["marina(Q=permk)", "GD, $x$"]
    assert first.suite.x == ("up", "epochs") and first.suite.entries[0].tune == (0, 1)
    # what is written into a case's folder is the suite itself
    assert all(parse_suite(case.suite.source) == case.suite for case in study.cases)


def test_a_control_character_may_stand_in_a_label():
    """A case that had U+007F was refused, as no TOML file: JSON has that letter as it is."""
    case = parse(STUDY.replace("GD, $x$", "GD \\u007f")).cases[1]
    assert case.suite.entries[-1].label == "GD \x7f" and parse_suite(case.suite.source) == case.suite


def test_a_file_without_cases_is_a_suite():
    suite = parse("problem = 'quadratics'\nworkers = 2\nrounds = 3\n[[method]]\nmethod = 'gd'\n")
    assert isinstance(suite, Suite)
    assert suite.x == ("rounds", "up", "both", "seconds") and suite.y == "gradient"


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('label = "no noise"', "", "with a label"),
        ('label = "no noise"', 'label = "noise."', "differ in the letters a to z or digits"),
        ('label = "no noise"', 'label = "Table.md"', "case 'Table.md': a file of the study has this name"),
        ('label = "no noise"', 'label = "figure-2.png"', "a file of the study has this name"),
        ("workers = 8", "workers = 0", r"case 'κ: .*workers = 0; allowed"),
        ("[[case.method]]", "[[case.methods]]", "unknown key of case .*methods"),
        ('x = ["up", "epochs"]', 'x = ["time"]', "time.*rounds, up, both, seconds, epochs"),
        ('x = ["up", "epochs"]', "x = []", r"x = \[\]; allowed: some of rounds"),
        ('x = ["up", "epochs"]', 'y = "loss"', "loss.*gradient, f, error"),
        (
            "workers = 8",
            'x = ["up"]',
            r"case 'κ: .*x = \['up'\], and 'no noise' has \['up', 'epochs'\].*above the",
        ),
        ("[[method]]", "[method]", "tables of their own"),
        ("title = ", "title ", "not a TOML file"),
        ('title = "Two cases"', "title = 3", "title = 3; allowed: a text"),
        # This was said to be no TOML file, with a line number of another text.
        ("workers = 8", "seeds = {a = 1}", r"case 'κ: .*seeds = \{'a': 1\}; allowed: a value of type list"),
    ],
)
def test_a_wrong_study_is_refused(tmp_path, right, wrong, said):
    assert right in STUDY
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(right, wrong))
    with pytest.raises(ConfigError, match=said) as raised:
        load_file(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_every_case_is_a_comparison_of_its_own(done, tmp_path):
    case = parse(STUDY).cases[1]
    compare(case.suite, tmp_path / "alone")
    for alone, within in zip(
        read_comparison(tmp_path / "alone").outcomes, read_comparison(done / "noise").outcomes, strict=True
    ):
        assert alone.summary["iterates_sha256"] == within.summary["iterates_sha256"]


def test_resuming_runs_what_is_missing(tmp_path, monkeypatch):
    study, out, calls = parse(STUDY), tmp_path / "out", []

    def interrupted(*args, **kwargs):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(args)
        return run(*args, **kwargs)

    run = mpicomp.lab.experiment.job.run
    monkeypatch.setattr(mpicomp.lab.experiment.job, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare_all(study, out)
    with pytest.raises(RecordError, match=r"already holds a study.*--resume"):
        compare_all(study, out)
    monkeypatch.setattr(mpicomp.lab.experiment.job, "run", run)
    with pytest.raises(RecordError, match="holds another study"):
        compare_all(parse(STUDY.replace("rounds = 10", "rounds = 11")), out, resume=True)
    compare_all(study, out, resume=True)
    assert [len(read_comparison(out / case.slug).outcomes) for case in study.cases] == [2, 4]
    with pytest.raises(RecordError, match="no study to resume"):
        compare_all(study, tmp_path / "elsewhere", resume=True)


def test_parts_of_a_study_share_its_cases(done, tmp_path):
    """Four pieces of work, one in the first case and three in the second: two for each of two parts."""
    study = parse(STUDY)
    compare_all(study, tmp_path, resume=None, part=parse_part("2/2"))
    assert unfinished(tmp_path / "no-noise") == 2 and unfinished(tmp_path) == 3
    compare_all(study, tmp_path, resume=None, part=parse_part("1/2"))
    assert unfinished(tmp_path) == 0
    for case in study.cases:
        mine, whole = read_comparison(tmp_path / case.slug), read_comparison(done / case.slug)
        hashes = [[o.summary["iterates_sha256"] for o in held.outcomes] for held in (mine, whole)]
        assert hashes[0] == hashes[1]


def test_tables_and_figure_of_a_study(done):
    lines = publish_study(done)
    assert {label: len(ls) for label, ls in lines.items()} == {"no noise": 1, 'κ: "noise"': 2}
    assert (done / "figure.png").read_bytes()[:4] == b"\x89PNG"
    text = (done / "table.md").read_text(encoding="utf-8")
    assert text.count("### Two cases: ") == 2 and "GD, $x$" in text
    assert json.loads((done / "table.json").read_text()).keys() == lines.keys()
    assert plot_files([done]) == [done / "figure.png"]


def test_a_case_in_the_folder_of_another_one_is_not_drawn(done, tmp_path):
    """Its panel would have the other's title.  The title of the study may be edited."""
    out = shutil.copytree(done, tmp_path / "out")
    path = out / "study.toml"
    path.write_text(path.read_text().replace("Two cases", "Both"))
    assert plot_files([out]) == [out / "figure.png"]
    for before, after in (("noise", "kept"), ("no-noise", "noise"), ("kept", "no-noise")):
        (out / before).rename(out / after)
    with pytest.raises(RecordError, match=r"no-noise holds another comparison than the case 'no noise' of "):
        plot_files([out])


def test_the_table_has_the_columns_that_the_figure_shows(done):
    study = parse(STUDY.replace('x = ["up", "epochs"]', 'y = "error"'))
    (one, *_) = publish_study(done)["no noise"]
    shown = dict(zip(header(suite := parse(STUDY).cases[0].suite), cells(one, suite), strict=True))
    assert list(shown)[-3:] == ["seconds", "epochs", "f"] and shown["epochs"] == "20"  # f: there is no target
    shown = dict(zip(header(suite := study.cases[0].suite), cells(one, suite), strict=True))
    assert list(shown)[-3:] == ["seconds", "total error", "f"]
    assert shown["total error"] == "-"  # MARINA has no error feedback


def test_panels_of_a_study(done):
    pictures = [picture_of(read_comparison(done / slug)) for slug in ("no-noise", "noise")]
    figure = draw_all("t", pictures)
    assert [axes.get_xlabel() for axes in figure.axes] == [
        *["uplink bytes per worker"] * 2,
        *["passes over the samples"] * 2,
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["marina(Q=permk)", r"GD, \$x\$"]
    # a label has its colour in every panel
    colours = {(line.get_label(), line.get_color()) for axes in figure.axes for line in axes.lines}
    assert len(colours) == 2
    assert [len(axes.lines) for axes in figure.axes] == [1, 2, 1, 2]
    one = draw(pictures[1])
    assert len(one.axes) == 2
    # a pass over the samples is a round of these methods: where the first curve ends is known
    assert figure.axes[2].lines[0].get_xdata()[-1] == 20


def test_a_total_error_that_is_still_zero_is_not_drawn(done):
    """On a logarithmic axis it has no place, and a stand-in for it would squeeze all else together."""
    picture = replace(picture_of(read_comparison(done / "noise")), x=("rounds",), y="error")
    for runs in picture.curves.values():
        runs[:] = [[replace(row, error=2.0 * row.round) for row in rows] for rows in runs]
    figure = draw(picture)
    heights = figure.axes[0].lines[0].get_ydata()
    assert np.isnan(heights[0]) and heights[1] == 10.0
    assert figure.axes[0].get_ylim()[0] > 1.0


def test_a_gradient_that_is_exactly_zero_leaves_by_the_lower_edge(done):
    """And all else keeps its place."""
    picture = replace(picture_of(read_comparison(done / "noise")), x=("rounds",))
    runs = next(iter(picture.curves.values()))
    least = min(row.grad_norm_sq for runs in picture.curves.values() for rows in runs for row in rows)
    still = [[replace(row, grad_norm_sq=0.0) for row in rows] for rows in runs]
    figure = draw(replace(picture, curves=picture.curves | {"at a saddle": still}))
    assert figure.axes[0].get_ylim()[0] == pytest.approx(least / 10)
    assert figure.axes[0].get_yscale() == "log"


def test_both_panels_of_bytes_have_one_scale(done):
    """Where ends are far apart in one of them, whichever, both are logarithmic."""
    picture = replace(picture_of(read_comparison(done / "noise")), x=("rounds", "up", "both"))
    (label, runs), *_ = picture.curves.items()
    for changed in ("up_bytes", "down_bytes"):
        more = [[replace(row, **{changed: 100 * getattr(row, changed)}) for row in rows] for rows in runs]
        figure = draw(replace(picture, curves=picture.curves | {f"{label}, more": more}))
        assert [axes.get_xscale() for axes in figure.axes] == ["linear", "log", "log"]
    assert {axes.get_xscale() for axes in draw(picture).axes} == {"linear"}


def test_all_cases_are_checked_before_the_first_is_run(tmp_path, monkeypatch):
    """The error names the case, and the method if one is refused; the folder stays free for the study."""
    monkeypatch.setattr(mpicomp.lab.experiment.job, "run", None)
    wrong = STUDY.replace('method = "gd(gamma=0.5)"', 'method = "diana(Q=randk(k=21), gamma=0.5)"')
    with pytest.raises(ConfigError, match='κ: "noise": GD, \\$x\\$: k=21 exceeds the dimension'):
        compare_all(parse(wrong), tmp_path / "out")
    wrong = STUDY.replace("workers = 8", "workers = 8\nx0 = [1, 2]")
    with pytest.raises(ConfigError, match=r'κ: "noise": x0 has shape \(2,\)'):
        compare_all(parse(wrong), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_study_of_which_everything_diverges_has_tables_and_no_figure(tmp_path):
    diverging = STUDY.replace("gamma=0.5", "gamma=1e9").replace(
        '"marina(Q=permk)"\ntune = [0, 1]', '"gd(1e9)"'
    )
    compare_all(parse(diverging), tmp_path / "out")
    lines = publish_study(tmp_path / "out")
    assert all(line.diverged == 2 for of in lines.values() for line in of)
    assert not (tmp_path / "out" / "figure.png").exists()
    with pytest.raises(RecordError, match="every run diverged"):
        plot_files([tmp_path / "out"])


def test_one_axis_of_many_cases_fills_rows(done):
    picture = replace(picture_of(read_comparison(done / "noise")), x=("up",), y="f")
    figure = draw_all("t", [picture] * 6)
    assert len(figure.axes) == 6
    assert {axes.get_yscale() for axes in figure.axes} == {"linear"}  # f may be negative
    assert [axes.get_ylabel() for axes in figure.axes] == ["$f(x)$", "", "", "$f(x)$", "", ""]
