"""Files of the user are neither overwritten nor deleted, and outside the folder none is read or written."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp.base.errors import RecordError
from mpicomp.lab.cli import cli
from mpicomp.lab.experiment import report
from mpicomp.lab.experiment.picture import Picture
from mpicomp.lab.experiment.report import plot_files, publish
from mpicomp.runtime.session import Session
from tests.support.foreign_folders import STUDY, a_comparison, a_run


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
