"""A run's record on disk: resuming from it, whole, damaged or of an older version, and disks that refuse."""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import pytest

from mpicomp import GD
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.compressors import PermK
from mpicomp.lab.experiment.run_tables import phases_table, summary_table
from mpicomp.problems import Objective, Problem
from mpicomp.runtime.record import Recorder, read_rows
from mpicomp.transports.local import Local
from tests.support.running import METHOD, PROBLEM, N, every_method, interrupted, largest_file, outcome, run

# --- resuming ---


@every_method
@pytest.mark.parametrize("seed", range(3))
def test_resumed_runs_are_the_uninterrupted_one(method, seed, tmp_path):
    """Bit for bit, interrupted twice at random rounds, once with a checkpoint in between."""
    whole = run(method, rounds=40)
    first, second = sorted(np.random.default_rng(seed).choice(np.arange(1, 40), 2, replace=False).tolist())
    interrupted(first, method, out=tmp_path / "run", checkpoint_every=3)
    interrupted(second, method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    last = run(method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    assert outcome(last) == outcome(whole)
    assert read_rows(tmp_path / "run" / "rows.csv") == last.rows
    assert last.rows[-1].seconds > 0


@every_method
@pytest.mark.parametrize(("own", "given"), [("f8", "f4"), ("f4", "f8"), ("f2", "f4"), ("f8", "f2")])
def test_gradients_of_another_precision_than_x_are_resumed_too(method, own, given, tmp_path):
    """Their checkpoints had records in the precision of the gradients, and could never be loaded."""
    problem = Rounded(own, given)
    whole = run(method, problem)
    run(method, problem, rounds=7, out=tmp_path / "run")
    assert outcome(run(method, problem, out=tmp_path / "run", resume=True)) == outcome(whole)


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


def generations(folder):
    return sorted(int(path.name.removeprefix("round-")) for path in (folder / "checkpoint").iterdir())


@pytest.fixture
def stopped(tmp_path):
    """A run interrupted in round 30 with checkpoints every 10 rounds."""
    interrupted(30, out=tmp_path / "run", checkpoint_every=10)
    return tmp_path / "run"


def file_of(folder, round, name):
    """The file of a generation whose name matches ``name``, or the generation's folder."""
    place = folder / "checkpoint" / f"round-{round}"
    (path,) = place.glob(name) if name else [place]
    return path


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


DAMAGE = [
    *[
        (name, damage)
        for name in ("part-0-*.npz", "manifest.json")
        for damage in (flip, truncate, empty, remove)
    ],
    ("", shutil.rmtree),
]


def test_two_generations_are_kept(stopped):
    assert generations(stopped) == [20, 30]
    assert not list(stopped.rglob("*.tmp"))


@pytest.mark.parametrize(("name", "damage"), DAMAGE, ids=lambda v: getattr(v, "__name__", v))
def test_a_damaged_checkpoint_gives_way_to_the_one_before(name, damage, stopped):
    damage(file_of(stopped, 30, name))
    started = []
    last = run(out=stopped, resume=True, progress=lambda round, row: started.append(round))
    assert started[0] == 21
    assert outcome(last) == outcome(run())


@pytest.mark.parametrize("damage", [flip, truncate, empty, remove])
@pytest.mark.parametrize("name", ["part-0-*.npz", "manifest.json"])
def test_without_a_sound_checkpoint_the_files_are_named(name, damage, stopped):
    path = file_of(stopped, 30, name)
    for round in (20, 30):
        damage(file_of(stopped, round, name))
    rows = (stopped / "rows.csv").read_text()
    with pytest.raises(RecordError) as caught:
        run(out=stopped, resume=True)
    named = f"round-30/{path.name}" if (name, damage) != ("manifest.json", remove) else "checkpoint"
    assert named in str(caught.value)
    assert (stopped / "rows.csv").read_text() == rows


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


def test_a_lost_table_is_missed_and_put_back_the_run_goes_on(stopped):
    table = stopped / "rows.csv"
    rows = table.read_bytes()
    table.unlink()
    with pytest.raises(RecordError, match=r"rows\.csv: No such file.*Put them back, or start in another"):
        run(out=stopped, resume=True)
    table.write_bytes(rows)
    assert outcome(run(out=stopped, resume=True)) == outcome(run())


def test_a_table_that_has_lost_rows_is_missed_and_put_back_the_run_goes_on(stopped):
    """Of a crash, or a copy that was broken off: a run had gone on, and its curve had a hole or no start."""
    table = stopped / "rows.csv"
    rows = table.read_bytes()
    head, *lines = rows.splitlines(keepends=True)
    for held, kept in (("no rows", []), ("rows from round 0 to", lines[:-1]), ("rows from round", lines[1:])):
        table.write_bytes(b"".join([head, *kept]))
        with pytest.raises(RecordError, match=rf"rows\.csv holds {held}.* and the run had recorded 0 to 30"):
            run(out=stopped, resume=True)
    table.write_bytes(rows)
    assert outcome(run(out=stopped, resume=True)) == outcome(run())


def test_rows_of_a_run_whose_rounds_of_rows_have_changed_are_not_missed(tmp_path):
    run(rounds=20, every=5, out=tmp_path / "run")
    run(rounds=30, every=7, out=tmp_path / "run", resume=True)
    run(rounds=35, at=[3, 31], out=tmp_path / "run", resume=True)
    rows = read_rows(tmp_path / "run" / "rows.csv")
    assert [row.round for row in rows] == [0, 5, 10, 15, 21, 28, 31, 35]


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


# --- a disk that refuses ---


@pytest.mark.parametrize(
    "place", ["file/run", "file", "x" * 300, "/proc/run", "/dev/null/run"], ids=lambda p: p[:20]
)
def test_a_folder_that_cannot_be_made_is_named(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError) as caught:
        run(out=tmp_path / place)
    assert str(tmp_path / place) in str(caught.value)


def test_a_table_that_cannot_be_written_is_named(tmp_path):
    """The disk is full once run.json is there."""
    folder = tmp_path / "run"
    with ExitStack() as until_later:

        class Full(Local):
            def raise_on_all(self, action):
                result = super().raise_on_all(action)
                if (folder / "run.json").exists():
                    until_later.enter_context(largest_file(10))
                return result

        with pytest.raises(RecordError, match=r"cannot write .*rows\.csv"):
            run(out=folder, transport=Full(N))


def test_rows_written_before_the_disk_was_full_are_kept(tmp_path):
    whole = run(every=1, rounds=200)
    with largest_file(4000), pytest.raises(RecordError, match=r"rows\.csv"):
        run(every=1, rounds=200, out=tmp_path / "run")
    kept = [replace(row, seconds=0.0) for row in read_rows(tmp_path / "run" / "rows.csv")]
    assert len(kept) > 10
    assert kept == outcome(whole)[-1][: len(kept)]


def test_resuming_on_a_full_disk_loses_nothing(stopped):
    """The rows and the checkpoints of the run before are still there."""
    rows = read_rows(stopped / "rows.csv")
    with largest_file(100), pytest.raises(RecordError, match="cannot write"):
        run(out=stopped, resume=True)
    assert read_rows(stopped / "rows.csv")[:3] == rows[:3]
    assert outcome(run(out=stopped, resume=True)) == outcome(run())


@pytest.mark.parametrize("limit", [0, 300, 1500])
def test_checkpoints_on_a_full_disk(limit, tmp_path):
    """The part or the manifest cannot be written: the file is named, and no half of a generation counts."""
    folder = tmp_path / "run"
    with ExitStack() as until_later:

        def fill(round, row):
            if round == 15:
                until_later.enter_context(largest_file(limit))

        with pytest.raises(RecordError, match=r"cannot write .*/round-20/(part-0-.*\.npz|manifest\.json)"):
            run(every=100, out=folder, checkpoint_every=10, progress=fill)
    assert not list(folder.rglob("*.tmp"))
    started = []
    last = run(every=100, out=folder, resume=True, progress=lambda round, row: started.append(round))
    assert started[0] == 11
    assert outcome(last) == outcome(run(every=100))


def test_a_checkpoint_folder_that_cannot_be_made_is_named(tmp_path):
    def obstruct(round, row):
        if round == 1:
            (tmp_path / "run" / "checkpoint").write_text("in the way")

    with pytest.raises(RecordError, match="checkpoint"):
        run(out=tmp_path / "run", progress=obstruct)


def test_a_table_cut_off_anywhere_is_read_up_to_its_last_whole_line(tmp_path):
    """Also where it is cut inside the last number, and what is left looks like a number."""
    run(out=tmp_path / "run")
    path = tmp_path / "run" / "rows.csv"
    content, rows = path.read_bytes(), read_rows(path)
    last = content.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(last, len(content)):
        path.write_bytes(content[:end])
        assert read_rows(path) == rows[:-1], content[last:end]


# --- what older versions have written ---


def _without(path, column):
    """Take a column out of a table."""
    with open(path, newline="") as file:
        table = list(csv.DictReader(file))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [name for name in table[0] if name != column], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: v for k, v in row.items() if k != column} for row in table)


def test_rows_without_the_column_are_refused_by_name(tmp_path):
    """And not taken for a table without rows."""
    run(out=tmp_path / "run", checkpoint_every=10)
    rows = tmp_path / "run" / "rows.csv"
    _without(rows, "paper_bits_down")
    with pytest.raises(RecordError, match=r"rows.csv has no column paper_bits_down: another version"):
        read_rows(rows)
    kept = rows.read_bytes()
    with pytest.raises(RecordError, match=r"no column paper_bits_down|checkpoint format"):
        run(out=tmp_path / "run", resume=True, rounds=60)
    assert rows.read_bytes() == kept


def test_a_checkpoint_of_the_format_before_is_refused_by_name(tmp_path):
    run(out=tmp_path / "run", checkpoint_every=10)
    for path in (tmp_path / "run" / "checkpoint").glob("round-*/manifest.json"):
        content = json.loads(path.read_bytes().splitlines()[0]) | {"format": 4}
        text = json.dumps(content)
        path.write_text(f"{text}\n{sha256(text.encode()).hexdigest()}\n")
    with pytest.raises(RecordError, match="checkpoint format 4; this version reads"):
        run(out=tmp_path / "run", resume=True, rounds=60)


def test_an_empty_table_has_no_rows(tmp_path):
    (tmp_path / "rows.csv").write_text("")
    assert read_rows(tmp_path / "rows.csv") == []


def test_a_target_met_in_an_irregular_last_round_is_met_when_that_run_is_resumed(tmp_path):
    """The row of round 35 is dropped, because a longer run has none; recorded anew, it ends the run again."""
    whole = run(rounds=35)
    target = {"target_grad_norm_sq": whole.rows[-1].grad_norm_sq}
    assert all(row.grad_norm_sq > whole.rows[-1].grad_norm_sq for row in whole.rows[:-1])
    first = run(rounds=35, out=tmp_path / "run", **target)
    again = run(rounds=35, out=tmp_path / "run", resume=True, **target)
    assert first.status == again.status == "target"
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == first.summary()
