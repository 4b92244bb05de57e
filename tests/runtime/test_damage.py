"""A run's record that was damaged, cut off, or written by an older version."""

from __future__ import annotations

import csv
import json
import shutil
from hashlib import sha256

import pytest

import mpicomp
from mpicomp.base.errors import RecordError
from mpicomp.runtime.rows import read_rows
from tests.support.running import file_of, interrupted, outcome, run


def generations(folder):
    return sorted(int(path.name.removeprefix("round-")) for path in (folder / "checkpoint").iterdir())


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


@pytest.mark.parametrize("asked", [{"every": 5}, {"every": "1%"}, {"every": 10, "at": [10, 15, 20, 90]}])
def test_a_table_without_a_row_in_its_middle_is_refused(asked, tmp_path):
    """Its curve went straight over the hole.  That of a stop, after round 17, may be there or not."""
    interrupted(17, **asked, out=tmp_path)
    assert mpicomp.load(tmp_path).rows[-1].round == 17
    run(**asked, out=tmp_path, resume=True)
    table, kept = tmp_path / "rows.csv", mpicomp.load(tmp_path).rows
    head, *lines = table.read_bytes().splitlines(keepends=True)
    (gone,) = (i for i, row in enumerate(kept) if row.round == 15)
    table.write_bytes(b"".join([head, *lines[:gone], *lines[gone + 1 :]]))
    said = r"rows\.csv has no row after round 15, which the run had recorded: it is lost\. Put the"
    with pytest.raises(RecordError, match=said):
        mpicomp.load(tmp_path)
    with pytest.raises(RecordError, match=said):
        run(**asked, rounds=50, out=tmp_path, resume=True)
    table.write_bytes(b"".join([head, *lines]))
    assert mpicomp.load(tmp_path).rows == kept
    assert run(**asked, rounds=50, out=tmp_path, resume=True).rows[-1].round == 50


def test_rows_of_a_run_whose_rounds_of_rows_have_changed_are_not_missed(tmp_path):
    run(rounds=20, every=5, out=tmp_path / "run")
    run(rounds=30, every=7, out=tmp_path / "run", resume=True)
    assert [row.round for row in mpicomp.load(tmp_path / "run").rows] == [0, 5, 10, 15, 21, 28, 30]
    run(rounds=35, at=[3, 31], out=tmp_path / "run", resume=True)
    rows = read_rows(tmp_path / "run" / "rows.csv")
    assert [row.round for row in rows] == [0, 5, 10, 15, 21, 28, 31, 35]


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
