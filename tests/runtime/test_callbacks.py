"""Rows that leave the run while it goes on: lines of JSON, and TensorBoard's curves."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp import GD, callbacks
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.lab.cli import root
from mpicomp.problems import Quadratics
from tests.support.launching import mpicomp as command_line

QUADRATICS = Quadratics(d=20, noise=0.5, lam=0.1)
SETTINGS = {"workers": 4, "rounds": 20, "every": 5}
COMMAND = [
    *("run", "--problem", "quadratics(d=20, noise=0.5, lam=0.1)", "--method", "gd(gamma=0.2)"),
    *("--workers", "4", "--rounds", "20", "--every", "5", "--json"),
]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_is_a_line_as_soon_as_it_is_there(tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    lengths = []

    def look(round, row, x):
        lengths.append(len(lines(path)))

    callback = callbacks.together(callbacks.JSONLines(path), look)
    run = mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **SETTINGS)
    assert lines(path) == [asdict(row) for row in run.rows] and len(run.rows) == 5
    assert lengths == [1, 2, 3, 4, 5]


def test_a_resumed_run_goes_on_in_its_file(tmp_path):
    callback = callbacks.JSONLines(str(tmp_path / "rows.jsonl"))
    for rounds, resume in ((10, False), (20, True)):
        settings = SETTINGS | {"rounds": rounds, "resume": resume, "out": tmp_path / "run"}
        run = mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **settings)
    assert lines(tmp_path / "rows.jsonl") == [asdict(row) for row in run.rows]


@pytest.mark.parametrize(
    "start", [b"", b"\n", b'{"ro', b'{"round": 1, "f"', b' {"round": 3}\n', b'\xef\xbb\xbf{"round": 3}\n']
)
def test_rows_follow_those_that_were_cut_short_or_edited(start, tmp_path):
    (tmp_path / "rows").write_bytes(start)
    callback = callbacks.JSONLines(tmp_path / "rows")
    run = mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **SETTINGS)
    found = (tmp_path / "rows").read_bytes()
    assert found.startswith(start)
    kept = [json.loads(line) for line in found.decode().splitlines()[-len(run.rows) :]]
    assert kept == [asdict(row) for row in run.rows]


def test_a_file_that_holds_something_else_stays_as_it_is(tmp_path):
    """A slip of the name, such as that of another run's record, put rows at the end of that file."""
    other = tmp_path / "other"
    mpicomp.run(GD(gamma=0.2), QUADRATICS, out=other, **SETTINGS)
    for name in ("run.json", "rows.csv", "summary.json"):
        before = (other / name).read_bytes()
        with pytest.raises(RecordError, match=rf"{name} begins with .* holds no rows of a run"):
            callback = callbacks.JSONLines(other / name)
            mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **SETTINGS)
        assert (other / name).read_bytes() == before


@pytest.mark.parametrize("left", ["", '{"round": 0, "f": 1.0}\n', '{"round": 0, "f": 1.0}\n{"round": 5, "f'])
def test_a_row_begins_a_line_even_after_one_that_was_cut_short(left, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(left)
    run = mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callbacks.JSONLines(path), **SETTINGS)
    kept = path.read_text().splitlines()[len(left.splitlines()) :]
    assert [json.loads(line) for line in kept] == [asdict(row) for row in run.rows]


def test_a_number_that_json_cannot_write_is_null(tmp_path):
    (row,) = mpicomp.run(GD(gamma=0.2), QUADRATICS, **SETTINGS).rows[:1]
    callback = callbacks.JSONLines(tmp_path / "rows.jsonl")
    callback(0, replace(row, f=None, error=float("inf"), epochs=float("nan")), np.zeros(20))
    (line,) = lines(tmp_path / "rows.jsonl")
    assert [name for name, value in line.items() if value is None] == ["f", "epochs", "error"]


@pytest.mark.parametrize("make", [callbacks.JSONLines, callbacks.TensorBoard])
def test_what_cannot_be_written_ends_the_run(make, tmp_path):
    if make is callbacks.TensorBoard:
        pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"cannot write .*file/rows"):
        mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=make(tmp_path / "file" / "rows"), **SETTINGS)


def test_the_models_that_a_callback_keeps_stay_those_of_their_rows():
    kept = []
    mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=lambda round, row, x: kept.append((row, x)), **SETTINGS)
    assert len({row.x_norm for row, x in kept}) == 5
    assert all(row.x_norm == np.sqrt(np.sum(x * x)) for row, x in kept)


def test_several_callbacks_are_one_that_any_of_them_ends(tmp_path):
    seen = []
    callback = callbacks.together(lambda round, row, x: round == 10, lambda round, row, x: seen.append(round))
    run = mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **SETTINGS)
    assert run.status == "callback" and seen == [0, 5, 10]


@pytest.mark.parametrize("answer", [True, np.True_])
def test_numpys_true_ends_a_run_as_pythons_does_alone_and_together(answer):
    for callback in (lambda *seen: answer, callbacks.together(lambda *seen: None, lambda *seen: answer)):
        assert mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **SETTINGS).status == "callback"
    for other in (1, np.int64(1), "yes", np.ones(2)):
        callback = callbacks.together(lambda *seen, other=other: other)
        assert mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callback, **SETTINGS).status == "rounds"


def curves(folder):
    """The curves in the folder's event files: (round, value) in the order written, by name."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                (number,) = value.tensor.float_val
                found.setdefault(value.tag, []).append((event.step, number))
    return found


def test_tensorboard_has_a_curve_for_each_measure(tmp_path):
    pytest.importorskip("tensorboard")
    counts, board = [], callbacks.TensorBoard(tmp_path / "board")

    def look(round, row, x):
        counts.append(len(curves(tmp_path / "board")["f"]))

    run = mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=callbacks.together(board, look), **SETTINGS)
    board.close()
    board.close()
    found = curves(tmp_path / "board")
    assert found.keys() == asdict(run.rows[0]).keys() - {"round", "error"}  # GD has no error feedback
    for name, points in found.items():
        expected = [getattr(row, name) for row in run.rows]
        assert [round for round, _ in points] == [row.round for row in run.rows]
        assert [value for _, value in points] == pytest.approx(expected, rel=1e-6)  # 32-bit numbers
    assert counts == [1, 2, 3, 4, 5]


def test_measures_that_are_not_observed_have_no_curve(tmp_path):
    pytest.importorskip("tensorboard")
    board = callbacks.TensorBoard(tmp_path)
    mpicomp.run(GD(gamma=0.2), QUADRATICS, callback=board, observe="never", **SETTINGS)
    board.close()
    assert not {"f", "grad_norm_sq"} & curves(tmp_path).keys() and len(curves(tmp_path)["up_bytes"]) == 5


def test_without_tensorboard_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'mpicomp\[tensorboard\]'"):
        callbacks.TensorBoard(tmp_path)
    done = CliRunner().invoke(
        root.cli, [*COMMAND, "--tensorboard", str(tmp_path / "a"), "--out", str(tmp_path / "b")]
    )
    assert isinstance(done.exception, ConfigError) and not (tmp_path / "b").exists()


def test_the_commands_options_are_these_callbacks(tmp_path):
    pytest.importorskip("tensorboard")
    rows, board = tmp_path / "rows.jsonl", tmp_path / "board"
    done = CliRunner().invoke(root.cli, [*COMMAND, "--follow", str(rows), "--tensorboard", str(board)])
    assert done.exit_code == 0, done.output
    assert [line["round"] for line in lines(rows)] == [0, 5, 10, 15, 20]
    assert lines(rows)[-1]["f"] == json.loads(done.stdout)["f"]
    assert [round for round, _ in curves(board)["f"]] == [0, 5, 10, 15, 20]


def test_on_ranks_one_of_them_writes(tmp_path):
    rows = tmp_path / "rows.jsonl"
    done = command_line(*COMMAND, "--ranks", "2", "--follow", str(rows))
    assert done.returncode == 0, done.stderr
    assert [line["round"] for line in lines(rows)] == [0, 5, 10, 15, 20]
