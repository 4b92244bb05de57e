"""Folders that somebody else has written: nothing they name is imported, and what is damaged is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp import GD, Quadratics
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.lab.cli import cli
from mpicomp.lab.experiment import report
from mpicomp.lab.experiment.figure import Picture
from mpicomp.lab.experiment.report import plot_files, publish
from mpicomp.lab.experiment.results import read_comparison, read_study, unfinished
from mpicomp.runtime.record import read_rows
from mpicomp.runtime.session import Session
from mpicomp.text.config import parse_compressor, parse_method, parse_problem
from mpicomp.text.own_classes import NotImported, without_imports
from mpicomp.text.unimported import UnimportedMethod, UnimportedProblem
from tests.support import own_file

CANARY = "\nimport pathlib\npathlib.Path(__file__).with_name('executed').touch()\n"
QUADRATICS = Quadratics(d=4)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder.  What is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    known = set(sys.modules)
    yield tmp_path
    forget(tmp_path, known)


def forget(folder, known):
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def canary(here):
    """A file of classes that says when it is executed."""
    (here / "canary.py").write_text(Path(own_file.__file__).read_text() + CANARY)
    return here / "executed"


def names(here):
    """How a text can name the file: by its path, from here or from the root, or as a module."""
    return ["./canary.py", f"{here}/canary.py", "canary"]


def a_run(folder, **facts):
    """The record of a run of 4 rounds, with some parts of run.json replaced."""
    mpicomp.run(GD(gamma=0.1), QUADRATICS, workers=2, rounds=4, every=2, out=folder)
    path = folder / "run.json"
    content = json.loads(path.read_text())
    for part, changed in facts.items():
        content[part] |= changed
    path.write_text(json.dumps(content))


def a_comparison(folder, resume=False, **changed):
    """The folder of a comparison whose suite says something else in some places."""
    mpicomp.compare(
        {"A": GD(gamma=0.1)}, QUADRATICS, workers=2, rounds=4, every=2, tune=(0, 0), out=folder, resume=resume
    )
    path = folder / "suite.toml"
    suite = path.read_text()
    for before, after in changed.items():
        assert f"{before} = " in suite
        lines = (
            f'{before} = "{after}"' if line.startswith(f"{before} =") else line for line in suite.split("\n")
        )
        suite = "\n".join(lines)
    path.write_text(suite)


def looks(folder):
    """All ways to look at a folder."""
    found = mpicomp.load(folder)
    repr(found), found._repr_html_()
    found.plot(x="rounds", y="f-f*")
    if hasattr(found, "table"):
        found.table()
        unfinished(folder)
    done = CliRunner().invoke(cli, ["plot", str(folder)], standalone_mode=False)
    assert done.exception is None, done.exception


def test_the_canary_sings(canary):
    """What the other tests rely on: the user's own text imports the file, and the file says so."""
    parse_method("./canary.py:Plain(C=./canary.py:First(k=2))")
    assert canary.exists()


def test_looking_at_a_record_imports_nothing(canary, here):
    here_, root, module = names(here)
    method = f"{here_}:Plain(C={here_}:First(k=2), gamma=0.1)"
    a_run(
        here / "one", asked={"method": method}, config={"method": method, "problem": f"{module}:Centre(d=4)"}
    )
    a_run(here / "two", asked={"method": f"ef21(C={root}:First(k=2))"}, config={"problem": f"{root}:Centre"})
    a_run(here / "three", asked={"method": f"{module}:Plain"})
    a_run(here / "four", config={"problem": f"noisy(problem={here_}:Centre(d=4), sigma=1)"})
    for name in ("one", "two", "three", "four"):
        looks(here / name)
    assert not canary.exists()


def test_looking_at_a_comparison_imports_nothing(canary, here):
    here_, root, module = names(here)
    a_comparison(here / "one", method=f"{here_}:Plain(C={root}:First(k=2))", problem=f"{here_}:Centre(d=4)")
    a_comparison(here / "two", method=f"ef21(C={module}:First(k=2))")
    a_comparison(here / "three", problem=f"{module}:Centre(d=4)")
    for name in ("one", "two", "three"):
        looks(here / name)
        assert [o.label for o in mpicomp.load(here / name).outcomes] == ["A"]
    held = mpicomp.load(here / "one")
    assert held.suite.problem == UnimportedProblem(f"{here_}:Centre(d=4)")
    assert f"on {here_}:Centre(d=4), 1 of 1 runs ended" in repr(held)
    assert "The class of A is not imported here: in what precision it sends is not said." in held.table()
    assert not canary.exists()


def test_resuming_what_somebody_else_has_begun_imports_nothing(canary, here):
    own = "./canary.py"
    a_run(
        here / "run", asked={"method": f"{own}:Plain(C={own}:First(k=2))"}, config={"method": f"{own}:Plain"}
    )
    mpicomp.run(GD(gamma=0.1), QUADRATICS, workers=2, rounds=6, every=2, out="run", resume=True)
    for changed in ({"method": f"{own}:Plain(C={own}:First(k=2))"}, {"problem": f"{own}:Centre(d=4)"}):
        a_comparison(here / "both", **changed)
        for resume in (True, None):
            with pytest.raises(RecordError, match=f"both holds a comparison with other {'entries|problem'}"):
                mpicomp.compare(
                    {"A": GD(gamma=0.1)}, QUADRATICS, workers=2, rounds=4, every=2, tune=(0, 0), out="both",
                    resume=resume,
                )  # fmt: skip
        shutil.rmtree(here / "both")
    assert not canary.exists()


STUDY = """
workers = 2
rounds = 4

[[case]]
label = "one"
problem = "{problem}"

[[method]]
method = "{method}"
"""


def test_looking_at_a_study_imports_nothing(canary, here):
    texts = {"problem": "./canary.py:Centre(d=4)", "method": "./canary.py:Plain(C=./canary.py:First(k=2))"}
    folder = here / "study"
    a_comparison(folder / "one", **texts)
    (folder / "study.toml").write_text(STUDY.format(**texts))
    assert [case.label for case in read_study(folder).cases] == ["one"]
    assert unfinished(folder) == 0
    with pytest.raises(RecordError, match=r"holds a study\. Load one of its comparisons"):
        mpicomp.load(folder)
    done = CliRunner().invoke(cli, ["plot", str(folder)], standalone_mode=False)
    assert done.exception is None, done.exception
    for arguments in (["list"], ["list", "methods"], ["suites", "list"]):
        assert CliRunner().invoke(cli, arguments, standalone_mode=False).exception is None
    assert not canary.exists()


def test_what_the_user_s_own_text_has_imported_is_used(canary, here):
    """A text names the class where the process has it already, and that is no import."""
    method, problem = "./canary.py:Plain(C=./canary.py:First(k=2))", "canary:Centre(d=4)"
    with without_imports():
        assert parse_method(method) == UnimportedMethod(method)
        assert parse_problem(problem) == UnimportedProblem(problem)
        with pytest.raises(NotImported, match=r"\./canary.py:First is not imported here"):
            parse_compressor("./canary.py:First(k=2)")
    assert not canary.exists()
    own = parse_method(method), parse_problem(problem)
    with without_imports():
        assert (parse_method(method), parse_problem(problem)) == own
        assert parse_method("./canary.py:Gone") == UnimportedMethod("./canary.py:Gone")


def test_a_class_that_is_only_named_does_not_run(here):
    with without_imports():
        method, problem = parse_method("mine:Own(gamma=1)"), parse_problem("mine:Other")
    for pair in ((method, QUADRATICS), (GD(gamma=0.1), problem)):
        with pytest.raises(ConfigError, match=r"mine:\w+.* is known by its text alone"):
            mpicomp.run(*pair, workers=2, rounds=2)


SUITE = """
problem = "./canary.py:Centre(d=4)"
workers = 2
rounds = 4

[[method]]
method = "./canary.py:Plain(./canary.py:First(4), gamma=theory*1.0, down=lossless)"
"""


def test_a_method_without_a_label_keeps_it_where_its_class_is_not_imported(canary, here):
    """Positional parameters and defaults are no part of it, and the class alone tells which they are."""
    (here / "suite.toml").write_text(SUITE)
    known = set(sys.modules)
    ran = mpicomp.compare(here / "suite.toml", out=here / "out")
    label = "./canary.py:Plain(C=./canary.py:First(k=4), gamma=theory*1.0)"
    assert [o.label for o in ran.outcomes] == [label]
    forget(here, known)
    canary.unlink()
    held = read_comparison(here / "out")
    assert [(o.label, o.rows) for o in held.outcomes] == [(label, ran.outcomes[0].rows)]
    assert not canary.exists()
    again = mpicomp.compare(here / "suite.toml", out=here / "out", resume=True)  # the user's own text
    assert [o.label for o in again.outcomes] == [label]


# --- what is damaged ---

ROW = "2,0.5,0.25,80,80,640,640,2.0,,0.001,1.0\n"
ROWS = {
    "a round below 0": ("2,0", "-2,0"),
    "a round that is no number": ("\n2,", "\nx,"),
    "a round that is no integer": ("\n2,", "\n2.0,"),
    "a round with 5000 digits": ("\n2,", f"\n{'9' * 5000},"),
    "a round before the last": ("\n2,", "\n9,"),
    "bytes below 0": (",80,80,", ",-80,80,"),
    "an f that is no number": ("\n2,0.5", "\n2,high"),
    "too few fields": (ROW, "2,0.5\n"),
    "too many fields": (ROW, ROW.replace("\n", ",7,8\n")),
    "a field of 200,000 characters": ("\n2,", f"\n{' ' * 200_000}2,"),
    "no UTF-8": ("\n2,", "\n\udcff,"),
}


def test_rows_that_cannot_be_are_refused(tmp_path):
    """Not left out together with all rows after them."""
    path = tmp_path / "rows.csv"
    head = (
        "round,f,grad_norm_sq,up_bytes,down_bytes,paper_bits_up,paper_bits_down,epochs,error,seconds,x_norm\n"
    )
    sound = head + ROW.replace("2,", "0,", 1) + ROW + ROW.replace("2,", "4,", 1)
    path.write_text(sound)
    assert [row.round for row in read_rows(path)] == [0, 2, 4]
    accepted = []
    for what, (before, after) in ROWS.items():
        assert before in sound, what
        path.write_bytes(sound.replace(before, after, 1).encode(errors="surrogateescape"))
        try:
            read_rows(path)
            accepted.append(what)
        except RecordError as error:
            assert str(path) in str(error) and "\n" not in str(error)
    assert accepted == []


DEEP = "[" * 100_000
FACTS = {
    "run.json": [
        '{"config": []}', '{"config": {"problem": 5}}', '{"config": {"workers": "0"}}',
        '{"config": {"workers": "x"}}', '{"config": {"workers": 2}}',
        '{"asked": "x"}', '{"asked": {"method": 1}}',
        '{"resumed": {}}', '{"lost": 3}', "[]", "5", "{", "\udcff", DEEP, f'{{"config": {DEEP}',
    ],
    "summary.json": [
        '{"status": 5}', '{"status": ["target"]}', '{"status": "target", "ranks": [1]}',
        '{"status": "target", "method": 5}', '{"set_up_bytes": "x"}', "[]", "{", "\udcff", DEEP,
    ],
}  # fmt: skip


def test_facts_of_a_run_that_cannot_be_are_refused(tmp_path):
    a_run(tmp_path / "run")
    accepted = []
    for name, contents in FACTS.items():
        path = tmp_path / "run" / name
        kept = path.read_bytes()
        for content in contents:
            path.write_bytes(content.encode(errors="surrogateescape"))
            try:
                mpicomp.load(tmp_path / "run")
                accepted.append((name, content[:50]))
            except RecordError as error:
                assert str(path) in str(error) and len(str(error)) < 400
        path.write_bytes(kept)
    assert accepted == []


def test_a_figure_of_a_record_that_says_too_little_is_refused(tmp_path):
    a_run(tmp_path)
    for content, missing in (
        ({"config": {}}, "asked.method"),
        ({"asked": {"method": ""}}, "asked.method"),
        ({"asked": {"method": "gd"}}, "config.problem"),
        ({"asked": {"method": "gd"}, "config": {"problem": "", "workers": "2"}}, "config.problem"),
    ):
        (tmp_path / "run.json").write_text(json.dumps(content))
        assert "rounds" in repr(mpicomp.load(tmp_path))
        with pytest.raises(RecordError, match=f"run.json does not say {missing}"):
            mpicomp.load(tmp_path).plot()


HEADERS = [
    {"round": -1}, {"round": "x"}, {"round": 2.0}, {"seconds": "x"}, {"seconds": -1}, {"scale": None},
    {"digest": "x"}, {"digest": 5}, {"digest": "0" * 62}, {"begun": -1}, {"begun": "0"}, {"crew": 2},
    {"crew": ["x", 1]}, {"lost": {}}, {"lost": [3]},
]  # fmt: skip


def test_a_checkpoint_whose_header_cannot_be_is_refused(tmp_path):
    """Sealed anew, as somebody would who made it up; or a part of it is not there."""
    a_run(tmp_path)
    (path,) = tmp_path.glob("checkpoint/round-*/manifest.json")
    sound = json.loads(path.read_bytes().splitlines()[0])
    made = [sound | wrong for wrong in HEADERS]
    made += [{k: v for k, v in sound.items() if k != gone} for gone in ("seconds", "scale", "begun", "crew")]
    accepted = []
    for header in made:
        content = json.dumps(header).encode()
        path.write_bytes(content + b"\n" + sha256(content).hexdigest().encode() + b"\n")
        try:
            mpicomp.run(GD(gamma=0.1), QUADRATICS, workers=2, rounds=6, every=2, out=tmp_path, resume=True)
            accepted.append(header)
        except RecordError as error:
            assert str(tmp_path) in str(error)
    assert accepted == []


def test_a_figure_of_the_user_s_is_not_deleted(tmp_path):
    """A comparison has one figure; a study has pages, and those that it no longer has go."""
    a_comparison(tmp_path / "one")
    theirs = [f"figure-{name}.png" for name in ("2", "7", "2024", "3d", "2-talk", "1a2")]
    for name in theirs:
        (tmp_path / "one" / name).write_text("a picture")
    publish(tmp_path / "one")
    held = {path.name: path.read_bytes() for path in (tmp_path / "one").glob("figure*.png")}
    assert held.pop("figure.png").startswith(b"\x89PNG")
    assert held == dict.fromkeys(theirs, b"a picture")
    for name in theirs[:3]:
        (tmp_path / name).write_text("a picture")
    report._draw_into(tmp_path, [Picture("t", "", 2, {})], lambda pictures: [], most=2)
    assert sorted(path.name for path in tmp_path.glob("figure*.png")) == ["figure-2024.png", "figure-7.png"]


def refused_before_any_run(out, held, words, monkeypatch):
    """Whether ``words`` say in one line that ``held`` is in the way, start no run, and change no file."""
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(Session, "run", lambda *_: pytest.fail("a run has started"))
    done = CliRunner().invoke(cli, [*words, "--out", str(out)], standalone_mode=False)
    monkeypatch.undo()
    said = f"{out} holds {held}, which would be overwritten, and no "
    right = isinstance(done.exception, RecordError) and str(done.exception).startswith(said)
    return right and before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_files_of_the_user_s_are_not_overwritten(tmp_path, monkeypatch):
    (tmp_path / "suite.toml").write_text(STUDY.format(problem="quadratics(d=4)", method="gd(gamma=0.1)"))
    alone = STUDY.replace('[[case]]\nlabel = "one"\n', "")
    (tmp_path / "alone.toml").write_text(alone.format(problem="quadratics(d=4)", method="gd(gamma=0.1)"))
    study, suite = ["compare", str(tmp_path / "suite.toml")], ["compare", str(tmp_path / "alone.toml")]
    run = ["run", "--method", "gd(gamma=0.1)", "--problem", "quadratics(d=4)", "--workers", "2"]
    run += ["--rounds", "2"]
    cases = [
        (suite, name, name) for name in ("table.md", "table.json", "figure.png", "tuning.json", "rows.csv")
    ]
    cases += [(suite, "runs/gd-gamma-0.1/notes", "runs/gd-gamma-0.1"), (run, "summary.json", "summary.json")]
    cases += [(study, name, name) for name in ("table.md", "table.json", "figure.png")]
    cases += [(run, "checkpoint/round-2/mine", "checkpoint")]
    lost = []
    for i, (words, name, held) in enumerate(cases):
        for more in ([], ["--resume-or-start"]):
            path = tmp_path / str(i) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
            if not refused_before_any_run(tmp_path / str(i), held, [*words, *more], monkeypatch):
                lost.append((words, name, more))
    (tmp_path / "cases" / "one").mkdir(parents=True)
    (tmp_path / "cases" / "one" / "rows.csv").write_text("mine")
    done = CliRunner().invoke(cli, [*study, "--out", str(tmp_path / "cases")], standalone_mode=False)
    assert "cases/one holds rows.csv, which would be overwritten" in str(done.exception)
    assert lost == []


def test_nothing_runs_outside_the_folder(tmp_path, monkeypatch):
    """A link to elsewhere is refused before the first run, and nothing is written or deleted there."""
    out, beside = tmp_path / "out", tmp_path / "beside"
    a_comparison(out)
    study = tmp_path / "study"
    study.mkdir()
    text = STUDY.format(problem="quadratics(d=4)", method="gd(gamma=0.1)")
    (study / "study.toml").write_text(text)
    (tmp_path / "study.toml").write_text(text)
    (beside / "seed-0").mkdir(parents=True)
    (beside / "seed-0" / "mine").write_text("kept")
    resumed = {"out": lambda: a_comparison(out, resume=True), "read": lambda: mpicomp.load(out)}
    words = ["compare", str(tmp_path / "study.toml"), "--out", str(study), "--resume"]
    resumed |= {
        "study": lambda: CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    }
    resumed |= {"drawn": lambda: plot_files([study])}
    monkeypatch.setattr(Session, "run", lambda *_: pytest.fail("a run has started"))
    for link, names in (
        (out / "runs" / "a" / "seed-0", ("out", "read")),
        (out / "runs" / "a", ("out", "read")),
        (out / "runs", ("out", "read")),
        (study / "one", ("study", "drawn")),
    ):
        shutil.rmtree(link, ignore_errors=True)
        link.symlink_to(beside)
        for name in names:
            with pytest.raises(
                RecordError, match=f"leads out of {out if name in ('out', 'read') else study}: "
            ):
                resumed[name]()
        link.unlink()
    assert [path.name for path in beside.rglob("*")] == ["seed-0", "mine"]


TRIAL = {
    "exponent": 0,
    "gamma": 0.1,
    "status": "rounds",
    "seeds": 1,
    "reached": 0,
    "total_bytes": 9,
    "f": 0.5,
}
TUNINGS = [
    {}, {"trials": []}, {"trials": 5}, {"trials": [5]}, {"trials": [{}]}, {"trials": [TRIAL | {"more": 1}]},
    *({"trials": [TRIAL | wrong]} for wrong in (
        {"exponent": 0.5}, {"gamma": []}, {"status": 5}, {"seeds": "x"}, {"reached": True},
        {"total_bytes": "9"}, {"f": "low"}, {"f": [0.5]},
    )),
]  # fmt: skip


def test_a_comparison_that_is_damaged_is_refused(tmp_path):
    a_comparison(tmp_path)
    run = tmp_path / "runs" / "a" / "seed-0"
    damages = [(tmp_path / "runs" / "a" / "tuning.json", json.dumps(tuning)) for tuning in TUNINGS]
    damages += [(run / "summary.json", '{"status": "rounds"}'), (run / "rows.csv", "")]
    unseen = (run / "rows.csv").read_text().splitlines()
    start = unseen[1].split(",")
    damages += [(run / "rows.csv", "\n".join([*unseen[:2], ""]))]  # cut off
    damages += [(run / "rows.csv", "\n".join([unseen[0], ",".join([start[0], "", "", *start[3:]]), ""]))]
    accepted = []
    for path, content in damages:
        kept = path.read_bytes()
        path.write_text(content)
        try:
            mpicomp.load(tmp_path).table()
            accepted.append(content)
        except RecordError as error:
            assert str(path.parent) in str(error)
        path.write_bytes(kept)
    assert accepted == []
    assert mpicomp.load(tmp_path).table()


def test_a_record_whose_table_was_cut_off_is_refused(tmp_path):
    """Its curve ended early, without a word."""
    mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.Quadratics(d=5), workers=2, rounds=20, every=5, out=tmp_path)
    table = tmp_path / "rows.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(RecordError, match=r"holds rows from round 0 to 5, and the run had recorded 0 to 20"):
        mpicomp.load(tmp_path)


def test_a_run_that_ends_while_it_is_read_is_not_taken_for_one_that_lost_rows(tmp_path, monkeypatch):
    a_comparison(tmp_path)
    run = tmp_path / "runs" / "a" / "seed-0"
    whole, summary = (run / "rows.csv").read_text(), (run / "summary.json").read_text()
    (run / "rows.csv").write_text("".join(whole.splitlines(keepends=True)[:2]))
    (run / "summary.json").unlink()

    def ends(path):
        rows = read_rows(path)
        if path.parent == run:
            path.write_text(whole)
            (run / "summary.json").write_text(summary)
        return rows

    monkeypatch.setattr("mpicomp.lab.experiment.results.read_rows", ends)
    assert mpicomp.load(tmp_path).lines()[0].finished == 0
    assert mpicomp.load(tmp_path).lines()[0].finished == 1


def test_nothing_outside_the_folder_is_read(tmp_path):
    """A link, a pipe, whose reading waits for ever, and a device, whose reading does not end."""
    out, beside = tmp_path / "out", tmp_path / "beside"
    a_comparison(out)
    a_run(beside)
    run = out / "runs" / "a" / "seed-0"
    read = []
    for path in (
        run / "rows.csv",
        run / "summary.json",
        out / "suite.toml",
        out / "runs" / "a" / "tuning.json",
    ):
        kept = path.read_bytes()
        (tmp_path / path.name).write_bytes(kept)
        for put in (
            lambda path: path.symlink_to(tmp_path / path.name),
            lambda path: path.symlink_to("/dev/zero"),
            lambda path: path.symlink_to(os.path.relpath(tmp_path / path.name, path.parent)),
            os.mkfifo,
        ):
            path.unlink()
            put(path)
            try:
                mpicomp.load(out)
                read.append(path)
            except RecordError as error:
                assert f"cannot read {path}: it is no file of its folder" in str(error)
        path.unlink()
        path.write_bytes(kept)
    shutil.rmtree(run)
    run.symlink_to(beside)
    with pytest.raises(RecordError, match="leads out of"):
        mpicomp.load(out)
    assert read == []
    assert mpicomp.load(beside).rows  # the folder that the user names may be a link itself
    (tmp_path / "link").symlink_to(beside)
    assert replace(mpicomp.load(tmp_path / "link"), folder=beside) == mpicomp.load(beside)


def test_nothing_is_written_through_a_link(tmp_path):
    """What a figure or a table replaces is the link, and not the file outside the folder."""
    out, victim = tmp_path / "out", tmp_path / "victim"
    a_comparison(out)
    victim.write_text("kept")
    names = ["figure.png", "table.md", "table.json", "rows.csv", "tuning.json"]
    for name in names:
        (out / name).unlink()
        (out / name).symlink_to(victim)
    done = CliRunner().invoke(cli, ["plot", str(out)], standalone_mode=False)
    assert done.exception is None, done.exception
    assert victim.read_text() == "kept" and not (out / "figure.png").is_symlink()
    a_comparison(out, resume=True)
    assert victim.read_text() == "kept"
    assert [name for name in names if (out / name).is_symlink()] == []


def test_any_text_of_a_record_can_be_drawn(tmp_path):
    """Cut where it is long, and told apart by what was cut; a text is measured letter by letter."""
    folders = [tmp_path / name for name in "abcd"]
    texts = ["m" * 100_000, "m" * 99_999 + "n", "\ud800", "_own"]
    for folder, text in zip(folders, texts, strict=True):
        a_run(folder, asked={"method": text}, config={"problem": "p" * 100_000})
    axes = mpicomp.plot(*map(mpicomp.load, folders))
    labels = axes.get_legend_handles_labels()[1]
    assert labels[2:] == ["?", " _own"]
    assert len(set(labels)) == 4 and {label[:502] for label in labels[:2]} == {"m" * 500 + ".."}
    title = axes.get_title(loc="left")
    assert "CRC" in title and len(title) < 600
    curves = report._picture_of_runs(folders).curves
    assert len(curves) == 4 and max(map(len, curves)) < 600
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"method": texts[0], "problem": texts[0]}))
    assert len(repr(mpicomp.load(tmp_path / "a"))) < 800
