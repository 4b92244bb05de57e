"""Comparing, tuning, loading and drawing from Python: the same as by the commands."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, GD, MARINA, DCGDPlus, RandK, TopK
from mpicomp.base.errors import ConfigError, DivergedError, RecordError
from mpicomp.lab.experiment import compare as comparing
from mpicomp.lab.experiment.picturing import picture_of_runs
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.trials import Trial
from mpicomp.problems import Quadratics
from mpicomp.runtime.rows import Row
from tests.support.own_file import Centre

QUADRATICS = Quadratics(d=20, noise=0.5, lam=0.1)
METHODS = {"GD": GD(gamma=0.2), "MARINA": MARINA(Q=RandK(k=5), gamma=0.4)}
SETTINGS = {"workers": 4, "rounds": 20, "every": 5, "seeds": range(2), "target_grad_norm_sq": 1e-6}
SUITE = """
problem = "quadratics(d=20, noise=0.5, lam=0.1)"
workers = 4
rounds = 20
every = 5
seeds = [0, 1]
target_grad_norm_sq = 1e-6

[[method]]
label = "GD"
method = "gd(gamma=0.2)"

[[method]]
label = "MARINA"
method = "marina(Q=randk(k=5), gamma=0.4)"
tune = [-1, 0]
"""
CLOCK = {"seconds", "phases"}


def content(comparison):
    """All of a comparison that does not depend on the clock."""
    runs = [
        (
            outcome.label,
            outcome.seed,
            [asdict(row) | {"seconds": 0} for row in outcome.rows],
            {k: v for k, v in outcome.summary.items() if k not in CLOCK},
        )
        for outcome in comparison.outcomes
    ]
    return json.dumps([runs, {label: tuning.to_json() for label, tuning in comparison.tunings.items()}])


@pytest.fixture(scope="module")
def comparison():
    return mpicomp.compare(METHODS, QUADRATICS, tune={"MARINA": (-1, 0)}, **SETTINGS)


@pytest.fixture(scope="module")
def run():
    return mpicomp.run(METHODS["GD"], QUADRATICS, workers=4, rounds=20, every=5)


def test_a_comparison_of_objects_is_that_of_the_suite_with_their_texts(comparison, tmp_path):
    assert comparison.suite == parse_suite(SUITE)
    (tmp_path / "suite.toml").write_text(SUITE)
    by_file = mpicomp.compare(tmp_path / "suite.toml", out=tmp_path / "out")
    assert content(comparison) == content(by_file) == content(mpicomp.load(tmp_path / "out"))
    assert comparison.table() != "" and (tmp_path / "out" / "table.md").exists()
    assert (tmp_path / "out" / "figure.png").exists()


def test_a_comparison_of_objects_is_kept_and_continued(comparison, tmp_path):
    seen = []
    for resume in (False, True):
        kept = mpicomp.compare(
            METHODS,
            QUADRATICS,
            tune={"MARINA": (-1, 0)},
            out=tmp_path,
            resume=resume,
            progress=(lambda *stage: seen.append(stage)) if resume else None,
            **SETTINGS,
        )
        assert content(kept) == content(comparison)
    assert not seen  # the second call found every run done
    assert parse_suite((tmp_path / "suite.toml").read_text()) == comparison.suite


def test_its_table_and_its_frame(comparison):
    pytest.importorskip("pandas")
    assert "| GD |" in comparison.table() and "| MARINA |" in comparison.table()
    frame = comparison.to_frame()
    assert list(frame.columns) == ["label", "seed", *(f.name for f in fields(Row))]
    rows = [row for outcome in comparison.outcomes for row in outcome.rows]
    assert len(frame) == len(rows)
    np.testing.assert_array_equal(frame["f"], [row.f for row in rows])
    assert set(zip(frame["label"], frame["seed"], strict=True)) == {
        (label, seed) for label in METHODS for seed in (0, 1)
    }


def test_a_run_that_diverged_has_its_rows_in_memory_as_in_a_folder(tmp_path):
    methods, settings = {"far": GD(gamma=1000.0)}, {"workers": 2, "rounds": 20, "every": 1}
    here = mpicomp.compare(methods, QUADRATICS, **settings)
    kept = mpicomp.compare(methods, QUADRATICS, **settings, out=tmp_path)
    assert [row.round for row in here.outcomes[0].rows] == [0, 1, 2, 3]
    assert content(here) == content(kept)
    with pytest.raises(DivergedError) as caught:
        mpicomp.run(methods["far"], QUADRATICS, workers=2, rounds=20, every=1)
    assert [row.f for row in caught.value.so_far] == [row.f for row in here.outcomes[0].rows]


def test_the_frame_of_a_run(run, tmp_path):
    pytest.importorskip("pandas")
    frame = run.to_frame()
    assert list(frame["round"]) == [0, 5, 10, 15, 20]
    assert frame["up_bytes"].iloc[-1] == run.ledger.up_bytes
    assert frame.dtypes["round"] == np.int64 and frame.dtypes["f"] == np.float64
    assert all(row.error is None for row in run.rows) and frame.dtypes["error"] == np.float64


def test_the_frame_of_a_tuning(comparison):
    pytest.importorskip("pandas")
    tuning = comparison.tunings["MARINA"]
    frame = tuning.to_frame()
    assert list(frame.columns) == [f.name for f in fields(Trial)]
    assert [Trial(*line) for line in frame.itertuples(index=False)] == [*tuning.trials]


def test_a_set_of_methods_is_refused_by_its_name():
    for kind in (set, frozenset):
        with pytest.raises(ConfigError, match=r"methods in a set, .*GD.*: give a list\.$"):
            mpicomp.compare(kind([GD()]), QUADRATICS, workers=2, rounds=1)


def test_a_run_is_loaded(run, tmp_path):
    mpicomp.run(run.method, run.problem, workers=4, rounds=20, every=5, out=tmp_path / "run")
    record = mpicomp.load(tmp_path / "run")
    assert [asdict(row) | {"seconds": 0} for row in record.rows] == [
        asdict(row) | {"seconds": 0} for row in run.rows
    ]
    assert record.summary["iterates_sha256"] == run.iterates_sha256
    assert record.config["asked"]["method"] == repr(run.method)
    with pytest.raises(RecordError, match="neither a comparison nor a run"):
        mpicomp.load(tmp_path)
    with pytest.raises(RecordError, match="nowhere: no such folder"):
        mpicomp.load(tmp_path / "nowhere")


def test_without_pandas_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'mpicomp\[frames\]'"):
        run.to_frame()


def test_tuning_is_that_of_a_comparison(comparison):
    tuning = mpicomp.tune(METHODS["MARINA"], QUADRATICS, exponents=(-1, 0), **SETTINGS | {"down": "f4"})
    assert tuning == comparison.tunings["MARINA"]
    assert {0.2, 0.4} <= {trial.gamma for trial in tuning.trials}
    assert tuning.best.f == min(trial.f for trial in tuning.trials)
    assert METHODS["MARINA"].with_step(tuning.best.gamma).gamma == tuning.best.gamma


def test_a_method_that_diverges_is_part_of_the_result():
    found = mpicomp.compare({"far": GD(gamma=1e6), "GD": GD(gamma=0.2)}, QUADRATICS, workers=2, rounds=50)
    assert [o.summary["status"] for o in found.outcomes] == ["diverged", "rounds"]
    assert "diverged" in found.table()
    assert len(found.plot().get_lines()) == 1


X = {"rounds": lambda row: row.round, "bytes": lambda row: (row.up_bytes + row.down_bytes) / 4}


@pytest.mark.parametrize("x", X)
def test_a_plot_shows_the_rows(run, x):
    (line,) = mpicomp.plot(run, x=x, y="f").get_lines()
    np.testing.assert_allclose(line.get_xdata(), [X[x](row) for row in run.rows], rtol=1e-15)
    np.testing.assert_allclose(line.get_ydata(), [row.f for row in run.rows], rtol=1e-15)


def test_runs_of_one_method_are_one_curve_and_others_have_their_own(run):
    method = METHODS["MARINA"]
    seeds = [mpicomp.run(method, QUADRATICS, workers=4, rounds=20, every=5, seed=s) for s in range(3)]
    lines = mpicomp.plot(run, *seeds, x="rounds").get_lines()
    assert len(lines) == 2
    median = np.median([[row.grad_norm_sq for row in one.rows] for one in seeds], axis=0)
    np.testing.assert_allclose(lines[1].get_ydata(), median, rtol=1e-15)


def test_a_run_and_its_record_are_one_curve(tmp_path):
    """With a step size of theory, the run's label had its number and the record's had not."""
    method = MARINA(Q=RandK(2))
    run = mpicomp.run(method, QUADRATICS, workers=4, rounds=20, every=5, out=tmp_path)
    assert run.asked is method and run.method.gamma > 0
    assert [*picture_of_runs([run, mpicomp.load(tmp_path)]).curves] == ["marina(Q=randk(k=2))"]


def test_runs_of_one_method_with_other_blocks_or_another_start_are_not_one_curve(tmp_path):
    """They were drawn as if they had other seeds only: their median, within a band of their range."""
    method, settings = EF21(TopK(k=5), gamma=0.1), {"workers": 4, "rounds": 4, "every": 1}
    plain = [mpicomp.run(method, QUADRATICS, seed=s, **settings) for s in range(2)]
    blocks = mpicomp.run(method, QUADRATICS, server="sharded", blocks=2, out=tmp_path, **settings)
    far = mpicomp.run(method, QUADRATICS, x0=np.ones(20), **settings)

    def labels(*runs):
        return [line.get_label().rpartition("; ")[2] for line in mpicomp.plot(*runs, x="rounds").get_lines()]

    at = [f"f(x⁰) = {run.rows[0].f:.6g}" for run in (plain[0], far)]
    assert len(labels(*plain)) == 1 and "f(x" not in labels(*plain)[0]
    assert labels(*plain, blocks) == labels(*plain, mpicomp.load(tmp_path))
    assert labels(*plain, blocks) == ["1 block of the coordinates", "2 blocks of the coordinates"]
    assert labels(*plain, far) == at and labels(*plain, blocks, far) == [at[0], at[0], at[1]]


def test_runs_that_were_cut_off_at_other_rounds_are_not_one_curve():
    """The shorter one was drawn on to the end of the other; one that met its target early goes on there."""
    runs = [
        mpicomp.run("gd(gamma=0.1)", QUADRATICS, workers=4, rounds=rounds, seed=seed, every=1)
        for seed, rounds in enumerate((9, 4, 9))
    ]
    curves = picture_of_runs(runs).curves
    assert {label: len(rows) for label, rows in curves.items()} == {
        "gd(gamma=0.1); 9 rounds": 2,
        "gd(gamma=0.1); 4 rounds": 1,
    }
    met = replace(runs[1], status="target")
    assert {label: len(rows) for label, rows in picture_of_runs([runs[0], met]).curves.items()} == {
        "gd(gamma=0.1)": 2
    }


def test_a_run_that_is_not_finished_is_no_seed_of_a_curve(tmp_path):
    """Its last row counted as its end: the curve went on with the mean of it and the other run's rows."""
    method, settings = MARINA(Q=RandK(2)), {"workers": 4, "rounds": 9, "every": 1}
    whole = mpicomp.run(method, QUADRATICS, seed=1, **settings)
    mpicomp.run(method, QUADRATICS, out=tmp_path, **settings)
    (tmp_path / "summary.json").unlink()
    lines = mpicomp.plot(whole, mpicomp.load(tmp_path), x="rounds").get_lines()
    assert [line.get_label().rpartition("; ")[2] for line in lines] == ["finished", "not finished"]
    assert [*lines[0].get_ydata()] == [row.grad_norm_sq for row in whole.rows]


@pytest.mark.parametrize("given", [[1, 2], "runs/demo", None])
def test_plot_refuses_what_it_cannot_draw(given):
    with pytest.raises(ConfigError, match=r"plot was given .*; allowed: a comparison, or runs one after"):
        mpicomp.plot(given)


def test_a_plot_goes_into_given_axes(comparison, tmp_path):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert comparison.plot(x="seconds", axes=axes) is axes
    assert len([line for line in axes.get_lines() if len(line.get_xdata()) > 2]) == 2
    axes.figure.savefig(tmp_path / "one.png")
    own = comparison.plot(x="up")
    own.figure.savefig(tmp_path / "own.png")
    assert own.get_xlabel() == "uplink bytes per worker"


def test_a_loaded_run_is_drawn(run, tmp_path):
    mpicomp.run(run.method, run.problem, workers=4, rounds=20, every=5, out=tmp_path)
    (line,) = mpicomp.load(tmp_path).plot(x="rounds").get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [row.round for row in run.rows])
    np.testing.assert_array_equal(line.get_ydata(), [row.grad_norm_sq for row in run.rows])
    assert len(mpicomp.plot(run, mpicomp.load(tmp_path)).get_lines()) == 1


def wrong_calls(run, comparison):
    return {
        "Did you mean 'rounds'": lambda: mpicomp.plot(run, x="round"),
        "one comparison, or any number of runs": lambda: mpicomp.plot(run, comparison),
        "one or more runs": lambda: mpicomp.plot(),
        "plot them apart": lambda: mpicomp.plot(run, mpicomp.run(GD(), QUADRATICS, workers=2, rounds=2)),
        "a suite needs rounds": lambda: mpicomp.compare(METHODS, QUADRATICS, workers=4),
        "unknown key of a suite 'round'": lambda: mpicomp.compare(METHODS, QUADRATICS, workers=4, round=3),
        "seeds = [0, 0]": lambda: mpicomp.compare(METHODS, QUADRATICS, **SETTINGS | {"seeds": (0, 0)}),
        "unknown label to tune 'gd'": lambda: mpicomp.compare(
            METHODS, QUADRATICS, tune={"gd": (0, 1)}, **SETTINGS
        ),
        "exponents = [2, 1]": lambda: mpicomp.tune(GD(), QUADRATICS, exponents=(2, 1), **SETTINGS),
        "the powers of two to multiply the step by: integers from -64 to 64": (
            lambda: mpicomp.tune(GD(), QUADRATICS, exponents=(0, 65), **SETTINGS)
        ),
        "exponents = None; allowed": lambda: mpicomp.tune(GD(), QUADRATICS, exponents=None, **SETTINGS),
        "unknown label to tune 0": lambda: mpicomp.compare(METHODS, QUADRATICS, tune={0: (0, 1)}, **SETTINGS),
        "x = 1; allowed: a text, or a list": lambda: mpicomp.plot(run, x=1),
        "xlim = 5; allowed: a text, or a list": lambda: mpicomp.plot(run, x="rounds", xlim=5),
        "unknown y axis \"['f']\"": lambda: mpicomp.plot(run, y=["f"]),
        "allowed: one panel of matplotlib's": lambda: mpicomp.plot(run, axes=np.array([1, 2])),
        "tune = 3; allowed: [lo, hi]": lambda: mpicomp.compare(METHODS, QUADRATICS, tune=3, **SETTINGS),
        "compare takes Methods and a Problem": lambda: mpicomp.compare([RandK(k=2)], QUADRATICS, **SETTINGS),
        "two of the methods are the same": lambda: mpicomp.compare([GD(), GD()], QUADRATICS, **SETTINGS),
        "give out": lambda: mpicomp.compare(METHODS, QUADRATICS, resume=True, **SETTINGS),
        "a suite holds its problem": lambda: mpicomp.compare(comparison.suite, QUADRATICS),
    }


SAID = list(wrong_calls(None, None))


@pytest.mark.parametrize("said", SAID)
def test_what_is_wrong_is_said(run, comparison, said):
    with pytest.raises(ConfigError) as error:
        wrong_calls(run, comparison)[said]()
    assert said in str(error.value)


def test_a_study_is_not_a_comparison(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        'rounds = 2\nworkers = 2\n[[case]]\nlabel = "a"\nproblem = "quadratics"\n[[method]]\nmethod = "gd"\n'
    )
    with pytest.raises(ConfigError, match="it is a study"):
        mpicomp.compare(path)
    with pytest.raises(RecordError, match="holds a study"):
        mpicomp.load(tmp_path)


def test_classes_of_one_s_own(tmp_path):
    """In memory, any; in a folder, those that a text can name."""

    @dataclass(frozen=True)
    class Local(Centre):
        pass

    options = {"workers": 3, "rounds": 4}
    methods = [GD(), EF21(C=TopK(2))]
    local = mpicomp.compare(methods, Local(d=4), **options)
    kept = mpicomp.compare(methods, Centre(d=4), out=tmp_path / "kept", **options)
    assert [o.rows[-1].f for o in local.outcomes] == [o.rows[-1].f for o in kept.outcomes]
    assert mpicomp.load(tmp_path / "kept").suite == kept.suite
    with pytest.raises(ConfigError, match=r"cannot be read back: .* not local to a function or a notebook"):
        mpicomp.compare(methods, Local(d=4), out=tmp_path / "refused", **options)
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x0": [float("nan"), 1.0, 1.0]}, "cannot be read back: not a TOML file.* numbers are finite"),
        ({"seeds": [2**64]}, "cannot be read back: seeds has an integer of 65 bits"),
        (
            {"problem": mpicomp.Logistic(data=(np.eye(4), [0, 1, 0, 1]), lam=0.1)},
            "cannot be read back: cannot read 'logistic.* data are named by the path of a file",
        ),
    ],
)
def test_what_a_folder_cannot_keep_is_said(given, said, tmp_path):
    asked = {"problem": "quadratics(d=3)", "workers": 2, "rounds": 3, "out": tmp_path / "out"} | given
    with pytest.raises(ConfigError, match=said):
        mpicomp.compare([GD(gamma=0.1)], **asked)


def test_a_label_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match=r"label = 0\.1; allowed: a text, such as '0\.1'"):
        mpicomp.compare({0.1: GD(gamma=0.1)}, Quadratics(d=4), workers=2, rounds=4)


@pytest.mark.parametrize(
    ("options", "method", "said"),
    [
        ({"server": "allreduce"}, EF21(C=TopK(2)), "sends something else"),
        ({"server": "sharded"}, DCGDPlus(RandK(2), gamma=0.1), "cannot be served in blocks"),
        ({"device": "cuda"}, DCGDPlus(RandK(2), gamma=0.1), "runs on the CPU only"),
        ({"server": "sharded", "blocks": 9}, EF21(C=TopK(2), gamma=0.1), "block 0 of 4: k=2 exceeds"),
    ],
    ids=["allreduce", "sharded", "device", "small blocks"],
)
def test_where_a_method_cannot_run_it_is_refused_before_the_first_run(options, method, said):
    seen = []
    with pytest.raises(ConfigError, match=said):
        mpicomp.compare(
            [GD(gamma=0.1), method],
            Centre(d=4),
            workers=3,
            rounds=4,
            progress=lambda *stage: seen.append(stage),
            **options,
        )
    assert seen == []


def test_the_command_s_function_takes_no_folder_too():
    suite = parse_suite(SUITE)
    assert comparing.compare(suite, None).suite is suite


def test_names_are_found_on_demand():
    assert {"compare", "load", "plot", "tune"} <= set(mpicomp.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'compair'"):
        _ = mpicomp.compair


def test_numbers_of_numpy_are_settings_too(tmp_path):
    """A limit of numpy's could not be written to the record, and a list of its integers held no seeds."""
    limits = {"target_grad_norm_sq": np.float32(1e-9), "max_bytes": np.int64(10**9), "hold": np.float64(1)}
    asked = {"problem": "quadratics(d=5)", "workers": 2, "rounds": 3} | limits
    mpicomp.run(GD(), out=tmp_path / "run", **asked)
    held = mpicomp.load(tmp_path / "run").config["asked"]
    assert {name: held[name] for name in limits} == {name: value.item() for name, value in limits.items()}
    lists = {"seeds": [np.int64(3), np.uint8(5)], "tune": [np.int64(0), np.int8(1)]}
    assert mpicomp.compare([GD()], out=tmp_path / "both", **asked, **lists).suite.seeds == (3, 5)


def test_a_step_of_numpys_is_tuned_and_continued(tmp_path):
    """As of np.logspace.  A record had np.float64(0.2), the tuning 0.2: its own comparison was refused."""
    settings = {"workers": 2, "rounds": 3, "seeds": [0, 1], "tune": (0, 1), "out": tmp_path / "out"}
    done = mpicomp.compare({"GD": GD(gamma=np.float64(0.1))}, "quadratics(d=5)", **settings)
    shutil.rmtree(tmp_path / "out" / "runs" / "gd" / "seed-1")
    again = mpicomp.compare({"GD": GD(gamma=0.1)}, "quadratics(d=5)", **settings, resume=True)
    one, other = ([o.summary["iterates_sha256"] for o in made.outcomes] for made in (done, again))
    assert one == other and len(one) == 2


def test_a_limit_is_no_truth_value():
    with pytest.raises(ConfigError, match="max_bytes=True; allowed: a number"):
        mpicomp.run(GD(), "quadratics(d=5)", workers=2, rounds=3, max_bytes=True)
