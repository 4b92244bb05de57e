"""A run's record on a disk that refuses: the file is named, and nothing written before is lost."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest

from mpicomp.base.errors import RecordError
from mpicomp.runtime.rows import read_rows
from mpicomp.transports.local import Local
from tests.support.running import (
    N,
    largest_file,
    outcome,
    run,
)


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
