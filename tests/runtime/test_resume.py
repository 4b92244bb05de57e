"""Resuming a run from its folder: the run goes on as if it had not been interrupted, or is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.compressors import PermK
from mpicomp.lab.experiment.run_tables import phases_table, summary_table
from mpicomp.problems import Objective, Problem
from mpicomp.runtime.record import Recorder
from mpicomp.runtime.rows import read_rows
from tests.support.own_file import Centre, Distance
from tests.support.running import (
    METHOD,
    PROBLEM,
    every_method,
    file_of,
    interrupted,
    outcome,
    outcome_of,
    run,
)


@every_method
@pytest.mark.parametrize("seed", range(3))
def test_resumed_runs_are_the_uninterrupted_one(method, seed, tmp_path):
    """Bit for bit, interrupted twice at random rounds, once with a checkpoint in between."""
    first, second = sorted(np.random.default_rng(seed).choice(np.arange(1, 40), 2, replace=False).tolist())
    interrupted(first, method, out=tmp_path / "run", checkpoint_every=3)
    interrupted(second, method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    last = run(method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    assert outcome(last) == outcome_of(method)
    assert read_rows(tmp_path / "run" / "rows.csv") == last.rows
    assert last.rows[-1].seconds > 0


@every_method
@pytest.mark.parametrize(("own", "given"), [("f8", "f4"), ("f4", "f8"), ("f2", "f4"), ("f8", "f2")])
def test_gradients_of_another_precision_than_x_are_resumed_too(method, own, given, tmp_path):
    """Their checkpoints had records in the precision of the gradients, and could never be loaded."""
    problem = Rounded(own, given)
    uninterrupted = run(method, problem)
    run(method, problem, rounds=7, out=tmp_path / "run")
    assert outcome(run(method, problem, out=tmp_path / "run", resume=True)) == outcome(uninterrupted)


@dataclass(frozen=True)
class Rounded(Problem):
    """``PROBLEM`` with gradients of the type ``own``, begun at an x⁰ of the type ``given``."""

    own: str
    given: str

    def dimension(self):
        return PROBLEM.dimension()

    def x0(self):
        return PROBLEM.x0().astype(self.given)

    def constants(self, n):
        return PROBLEM.constants(n)

    def objective(self, i, n):
        return RoundedObjective(PROBLEM.objective(i, n), self.own)


class RoundedObjective(Objective):
    def __init__(self, f, own):
        self.f, self.own = f, own

    def value(self, x):
        return self.f.value(x)

    def grad(self, x):
        return self.f.grad(x).astype(self.own)

    def batch_grad(self, x, b, stream):
        return self.grad(x)

    def smoothness_matrix(self):
        return self.f.smoothness_matrix()


def test_a_finished_run_resumed_is_as_it_was(tmp_path):
    """Whether or not its last round is a regular one; and its rows and summary stay consistent."""
    for rounds in (40, 35):
        whole = run(rounds=rounds, out=tmp_path / str(rounds))
        again = run(rounds=rounds, out=tmp_path / str(rounds), resume=True)
        assert outcome(again) == outcome(whole)
        assert again.summary()["rounds"] == rounds
        assert read_rows(tmp_path / str(rounds) / "rows.csv") == whole.rows
        # Of where its time went and what it sent the run before knows, not this one.
        assert json.loads((tmp_path / str(rounds) / "summary.json").read_text()) == whole.summary()


@dataclass(frozen=True)
class Flat(Problem):
    """f_i(x) = 1 - exp(-x²), begun at 1/2: where a step has thrown x far away, f is 1 and f' is 0."""

    def dimension(self):
        return 1

    def objective(self, i, n):
        return Pit()

    def x0(self):
        return np.array([0.5])


class Pit(Objective):
    def value(self, x):
        return float(1 - np.exp(-x @ x))

    def grad(self, x):
        return 2 * x * np.exp(-x @ x)


@pytest.mark.parametrize("rounds", [20, 25])
def test_a_target_of_a_resumed_run_is_none_above_the_f_at_which_the_run_began(rounds, tmp_path):
    """Whether the last row is looked at again, or was dropped and is recorded anew, or others follow."""
    options = {"problem": Flat(), "out": tmp_path / "run"}
    first = run(GD(gamma=100.0), rounds=rounds, **options)
    assert first.rows[-1].grad_norm_sq == 0 and first.rows[-1].f == 1 > first.rows[0].f
    for more in (0, 3, 20):
        again = run(GD(gamma=100.0), rounds=rounds + more, resume=True, target_grad_norm_sq=1e-6, **options)
        assert (again.status, again.rows[-1].round) == ("rounds", rounds + more)


def test_a_finished_run_can_be_prolonged_and_says_since_when_it_has_counted(tmp_path):
    first = run(rounds=25, out=tmp_path / "run")
    last = run(rounds=40, out=tmp_path / "run", resume=True)
    assert outcome(last) == outcome(run(rounds=40))
    assert (first.resumed_after, last.resumed_after) == (0, 25)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == last.summary()
    assert phases_table(first.summary()).title == "Seconds by phase"
    assert phases_table(summary).title == "Seconds by phase since it was resumed after round 25"
    said = list(summary_table(summary | {"ranks": 2}).columns[1].cells)
    assert any(text.endswith("from rank to rank since it was resumed after round 25") for text in said)


def test_a_summary_of_an_earlier_end_is_replaced_if_a_kill_came_before_the_last_one(tmp_path):
    folder = tmp_path / "run"
    run(rounds=25, out=folder)
    earlier = (folder / "summary.json").read_text()
    run(rounds=40, out=folder, resume=True)
    (folder / "summary.json").write_text(earlier)  # as it is until the new one is renamed into place
    last = run(rounds=40, out=folder, resume=True)
    assert json.loads((folder / "summary.json").read_text()) == last.summary()


@pytest.mark.parametrize("content", ["", '{"status": "rou'])
def test_a_damaged_summary_is_refused_before_any_round(content, tmp_path):
    folder = tmp_path / "run"
    run(rounds=25, out=folder)
    (folder / "summary.json").write_text(content)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(RecordError, match=r"cannot read .*summary\.json: "):
        run(rounds=40, out=folder, resume=True)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_a_run_is_not_resumed_to_fewer_rounds_than_it_has_done(tmp_path):
    run(rounds=25, out=tmp_path / "run")
    with pytest.raises(RecordError, match=r"rounds=24, and the run in .* has done 25: ask for more"):
        run(rounds=24, out=tmp_path / "run", resume=True)
    assert run(rounds=25, out=tmp_path / "run", resume=True).rows[-1].round == 25


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    """Not stopped in order: the process is gone in the middle of round 18, checkpoints are at 5, 10, 15."""

    class Killed(BaseException):
        pass

    def kill(round, row):
        if round == 18:
            raise Killed

    with pytest.raises(Killed):
        run(every=4, out=tmp_path / "run", checkpoint_every=5, progress=kill)
    assert [row.round for row in read_rows(tmp_path / "run" / "rows.csv")] == [0, 4, 8, 12, 16]
    last = run(every=4, out=tmp_path / "run", resume=True)
    assert outcome(last) == outcome(run(every=4))


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("seed", {"seed": 4}),
        ("workers", {"workers": 5, "transport": None}),
        ("method.gamma", {"method": replace(METHOD, gamma=0.2)}),
        ("method.p", {"method": replace(METHOD, gamma=0.1, p=0.3)}),
        ("method.Q", {"method": replace(METHOD, gamma=0.1, Q=PermK("block"))}),
        ("method", {"method": GD(0.1)}),
        ("problem", {"problem": replace(PROBLEM, noise=0.5)}),
    ],
)
def test_another_configuration_is_not_resumed(field, changed, tmp_path):
    method = replace(METHOD, gamma=0.1)
    run(method, rounds=20, out=tmp_path / "run")
    before = (tmp_path / "run" / "rows.csv").read_text()
    with pytest.raises(RecordError, match=rf"another run: {field} is .* there and .* here"):
        run(**{"method": method, "out": tmp_path / "run", "resume": True} | changed)
    assert (tmp_path / "run" / "rows.csv").read_text() == before
    assert run(method, out=tmp_path / "run", resume=True).rows[-1].round == 40


@pytest.mark.parametrize(("field", "changed"), [("workers", {"workers": 5}), ("seed", {"seed": 4})])
def test_what_was_changed_is_named_and_not_what_follows_from_it(field, changed, tmp_path):
    """A theory step follows from the number of workers; the message names that number."""
    run(rounds=20, out=tmp_path / "run")
    with pytest.raises(RecordError, match=rf"another run: {field} is"):
        run(out=tmp_path / "run", resume=True, **changed)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    run(out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for options in ({}, {"seed": 9}):
        with pytest.raises(RecordError, match="already holds a run"):
            run(out=tmp_path / "run", **options)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


def test_two_runs_that_begin_in_one_folder_at_once_are_not_mixed(tmp_path, monkeypatch):
    """Both had found it empty: run.json could be of one of them, and the rows of the other."""
    begin = Recorder.start

    def late(self, *args):
        monkeypatch.setattr(Recorder, "start", begin)
        content = json.loads((tmp_path / "run.json").read_text())
        content["config"]["seed"] = "4"
        (tmp_path / "run.json").write_text(json.dumps(content))
        begin(self, *args)

    monkeypatch.setattr(Recorder, "start", late)
    with pytest.raises(RecordError, match=r"run.json is of another run.*Choose another --out for each"):
        run(out=tmp_path)
    assert not (tmp_path / "rows.csv").exists()


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(RecordError, match="no run to resume"):
        run(out=tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="out"):
        run(resume=True)
    with pytest.raises(ConfigError, match="out"):
        run(checkpoint_every=5)
    assert not (tmp_path / "run").exists()


def test_resume_none_starts_continues_and_leaves_alone(tmp_path):
    """The same call each time: nothing there, interrupted, finished."""
    again = {"out": tmp_path / "run", "resume": None}
    interrupted(17, **again)
    assert outcome(run(**again)) == outcome(run())
    assert outcome(run(**again)) == outcome(run())
    with pytest.raises(RecordError, match="belongs to another run"):
        run(seed=9, **again)
    with pytest.raises(ConfigError, match="out"):
        run(resume=None)


def test_resume_none_begins_again_what_ended_before_its_first_checkpoint(tmp_path):
    again = {"out": tmp_path / "run", "resume": None}
    interrupted(17, out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(RecordError, match="another configuration"):
        run(seed=9, **again)
    assert outcome(run(**again)) == outcome(run())
    rows = (tmp_path / "run" / "rows.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in rows[1:]] == ["0", "10", "20", "30", "40"]


@pytest.mark.parametrize("value", [-1, 2.5, "3"])
def test_checkpoint_every_is_checked(value, tmp_path):
    with pytest.raises(ConfigError, match="checkpoint_every"):
        run(out=tmp_path / "run", checkpoint_every=value)


def test_a_resume_that_is_refused_leaves_no_trace(tmp_path):
    """Another seed, fewer rounds than were done, no rows, no sound checkpoint: every file is as before."""
    folder = tmp_path / "run"
    run(out=folder, rounds=20)

    def files():
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = files()
    for changed in ({"seed": 4}, {"rounds": 10}, {"method": GD(0.1)}):
        for resume in (True, None):
            with pytest.raises(RecordError):
                run(**{"out": folder, "resume": resume} | changed)
            assert files() == before
    for lost in (folder / "rows.csv", file_of(folder, 20, "part-0-*.npz")):
        lost.unlink()
        with pytest.raises(RecordError):
            run(out=folder, resume=True)
        assert files() == {path: content for path, content in before.items() if path != lost}
        lost.write_bytes(before[lost])
    for expected in (1, 2):
        run(out=folder, resume=True)
        assert len(json.loads((folder / "run.json").read_text())["resumed"]) == expected


def test_a_target_met_in_an_irregular_last_round_is_met_when_that_run_is_resumed(tmp_path):
    """The row of round 35 is dropped, because a longer run has none; recorded anew, it ends the run again."""
    whole = run(rounds=35)
    target = {"target_grad_norm_sq": whole.rows[-1].grad_norm_sq}
    assert all(row.grad_norm_sq > whole.rows[-1].grad_norm_sq for row in whole.rows[:-1])
    first = run(rounds=35, out=tmp_path / "run", **target)
    again = run(rounds=35, out=tmp_path / "run", resume=True, **target)
    assert first.status == again.status == "target"
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == first.summary()


def test_a_last_row_that_another_machine_records_anew_is_that_of_its_summary(tmp_path, monkeypatch):
    """There f has other last bits; the row of round 7 is recorded by each call, as it is not due."""
    call = {"workers": 2, "rounds": 7, "every": 5, "out": tmp_path}
    before = mpicomp.run("gd(gamma=0.1)", Centre(d=3), **call).rows[-1].f
    value = Distance.value
    monkeypatch.setattr(Distance, "value", lambda self, x: np.nextafter(value(self, x), np.inf))
    after = mpicomp.run("gd(gamma=0.1)", Centre(d=3), **call, resume=True).rows[-1].f
    assert mpicomp.load(tmp_path).summary["f"] == mpicomp.load(tmp_path).rows[-1].f == after != before
