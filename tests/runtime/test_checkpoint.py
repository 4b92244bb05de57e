"""Generations on disk: killed or failing at every step of a save, among others' files, and invalid ones."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.runtime import checkpoint
from mpicomp.runtime.generations import seal
from mpicomp.transports.local import Local
from tests.support.running import largest_file


@dataclass
class Record:
    v: NDArray[np.float64]


class Rank(Local):
    """One of two ranks, which save one after the other in this process: rank 0 the last."""

    def __init__(self, rank, told):
        super().__init__(2)
        self.rank, self.is_server, self._told = rank, rank == 0, told

    def collect(self, value):
        self._told[self.rank] = value
        return [self._told[0], self._told[1]] if self.is_server else None

    def raise_on_all(self, action):
        try:
            result = action()
        except RecordError as error:
            self._told["error"] = error
        if "error" in self._told:
            raise self._told["error"]
        return result


def save(folder, round, value):
    told = {}
    for rank in (1, 0):
        states = {f"worker-{rank}": Record(np.full(3, value))}
        with nullcontext() if rank == 0 else suppress(RecordError):
            checkpoint.save(folder, Rank(rank, told), round, states, {"config": {}, "value": value})


def load(folder):
    """The round and the value that are loaded, the same from both parts and the manifest."""
    records = {f"worker-{i}": Record(np.zeros(3)) for i in range(2)}
    manifest = checkpoint.load(folder, Local(2), records, {}, {})
    (value,) = {manifest["value"], *records["worker-0"].v, *records["worker-1"].v}
    return manifest["round"], value


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- killed, or failing, at every step ---


class Killed(BaseException):
    pass


class Strike:
    """Raises ``error`` instead of the operation number ``at`` on files below ``folder``."""

    EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")

    def __init__(self):
        self.folder = None

    def __call__(self, event, args):
        if self.folder is not None and event in self.EVENTS and str(args[0]).startswith(self.folder):
            self.seen += 1
            if self.seen == self.at:
                raise self.error

    def during(self, action, folder, at, error):
        """Do ``action``; returns what it has raised, or None."""
        self.folder, self.seen, self.at, self.error = str(folder), 0, at, error
        try:
            action()
            return None
        except (Killed, RecordError) as raised:
            return raised
        finally:
            self.folder = None


STRIKE = Strike()
sys.addaudithook(STRIKE)

BEFORE = [(1, 1.0), (2, 2.0)]
SAVES = {"same round": (2, 2.5), "next round": (3, 3.0), "gone back": (1, 1.5), "far back": (0, 0.5)}


@pytest.fixture
def saved(tmp_path):
    for round, value in BEFORE:
        save(tmp_path / "saved", round, value)
    return tmp_path / "saved"


def struck(saved, new, error, tmp_path):
    """For each operation of the save of ``new``: what was raised instead of it, and the folder then."""
    for at in count(1):
        folder = tmp_path / f"struck-{at}"
        shutil.copytree(saved, folder)
        raised = STRIKE.during(lambda folder=folder: save(folder, *new), folder, at, error)
        if STRIKE.seen < at:
            assert raised is None
            return
        yield raised, folder


@pytest.mark.parametrize("new", SAVES.values(), ids=SAVES)
def test_killed_at_any_step_of_a_save_the_state_before_or_the_new_one_is_loaded(new, saved, tmp_path):
    """And a later save leaves no file that a save without a kill would not."""
    whole = tmp_path / "whole"
    shutil.copytree(saved, whole)
    save(whole, *new)
    assert load(whole) == new
    found = []
    for raised, folder in struck(saved, new, Killed(), tmp_path):
        assert isinstance(raised, Killed)
        found.append(load(folder))
        save(folder, *new)
        assert load(folder) == new and files(folder) == files(whole)
    assert set(found) == {BEFORE[-1], new} and len(found) > 10
    assert found == sorted(found, key=[BEFORE[-1], new].index)  # from one state to the other, once


@pytest.mark.parametrize("new", SAVES.values(), ids=SAVES)
def test_whatever_operation_fails_the_state_before_is_loaded_and_nothing_else_left(new, saved, tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    failed = 0
    for raised, folder in struck(saved, new, full, tmp_path):
        now = load(folder)
        if raised is None:  # an old file could not be removed, or the folder was there already
            assert now == new
            continue
        failed += 1
        assert "No space left on device" in str(raised) and now in (BEFORE[-1], new)
        if now == BEFORE[-1] and new[0] >= BEFORE[-1][0]:
            assert files(folder) == files(saved)
        save(folder, *new)
        assert load(folder) == new
    assert failed > 5


@pytest.mark.parametrize("new", SAVES.values(), ids=SAVES)
def test_a_disk_that_is_full_in_mid_file_keeps_the_state_before(new, saved):
    before = files(saved)
    for limit in (0, 1, 100, 200, 400):  # a part has 300 bytes or so, the manifest 500
        with largest_file(limit), pytest.raises(RecordError, match="cannot write"):
            save(saved, *new)
        assert load(saved) == BEFORE[-1] and files(saved) == before


def test_a_second_save_of_the_same_state_heals_a_damaged_part(saved):
    (part,) = (saved / "round-2").glob("part-1-*")
    part.write_bytes(b"damaged")
    assert load(saved) == BEFORE[0]
    save(saved, *BEFORE[1])
    assert load(saved) == BEFORE[1]


def test_two_records_of_one_name_are_refused(tmp_path):
    told = {}
    checkpoint.save(tmp_path, Rank(1, told), 1, {"sampler": Record(np.zeros(1))}, {"config": {}})
    with pytest.raises(ConfigError, match="ranks 0 and 1 both save 'sampler'"):
        checkpoint.save(tmp_path, Rank(0, told), 1, {"sampler": Record(np.ones(1))}, {"config": {}})
    assert not files(tmp_path)


# --- what others have put there ---


def test_files_and_folders_of_others_stay(tmp_path):
    """Whatever they are called; also in the folder of a generation, and in the place of a manifest."""
    elsewhere = tmp_path / "elsewhere"
    save(elsewhere, 1, 1.0)
    folder = tmp_path / "folder"
    theirs = [
        *("round-trip/notes", "round-table-notes/notes", "round-1/notes", "round-07/notes", "round-7/notes"),
        *(
            "round-8/part-0.npz",
            "round-9/manifest.json",
            "round-3/manifest.json",
            "round-4/notes",
            "round-²/x",
        ),
        *("round-1/part-0.npz", "notes", "part-0.npz", "manifest.json", "round-6/.hidden.tmp"),
    ]
    for name in theirs:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "round-5").symlink_to(elsewhere / "round-1")
    (folder / "round-10").write_text("a file")
    (folder / "round-11").mkdir()
    others = {path.relative_to(folder) for path in folder.rglob("*")} | {(elsewhere / "round-1")}
    kept = files(elsewhere)
    for round in (1, 2, 3, 4, 6, 8):
        save(folder, round, float(round))
        assert load(folder) == (round, float(round))
    there = {path.relative_to(folder) for path in folder.rglob("*")} | {elsewhere / "round-1"}
    moved = [path for path in there if path.name.endswith(".damaged")]
    assert others - there <= {path.parent / "manifest.json" for path in moved}
    contents = {path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    assert set(theirs) <= contents and files(elsewhere) == kept
    assert len([path for path in there if path.name.startswith("part-") and "-" in path.name[5:]]) == 4


def test_a_manifest_does_not_name_files_to_be_removed(saved, tmp_path):
    (tmp_path / "mine.npz").write_text("mine")
    (tmp_path / "saved" / "part-7.npz").write_text("mine")
    place = saved / "round-1"
    parts = [["../part-7.npz", "0" * 64, []], ["../../mine.npz", "0" * 64, []]]
    manifest = {"format": 6, "round": 1, "config": {}, "parts": parts}
    (place / "manifest.json").write_bytes(seal(manifest))
    for round in (3, 4, 5):
        save(saved, round, 0.0)
    assert (tmp_path / "mine.npz").exists() and (saved / "part-7.npz").exists()


def test_nothing_outside_the_folder_is_read(saved, tmp_path):
    """A link or a pipe in the place of a part, or of a manifest, is refused; a pipe would wait for ever."""
    for name in ("part-0-*", "manifest.json"):
        (path,) = (saved / "round-2").glob(name)
        moved = tmp_path / path.name
        path.rename(moved)
        for put in (lambda: path.symlink_to(moved), lambda: os.mkfifo(path), path.mkdir):  # noqa: B023
            put()
            assert load(saved) == BEFORE[0]
            path.rmdir() if path.is_dir() else path.unlink()
        moved.rename(path)
    assert load(saved) == BEFORE[1]


def test_only_a_class_whose_text_has_an_address_is_to_be_made_a_dataclass():
    """Of a compressor nothing was said; of a dataclass with a function in a field, that it be a dataclass."""
    said = "make the class a dataclass, whose text has its fields, and keep functions out of these."
    assert checkpoint.remedy("problem", "<mine.Problem object at 0x7f10>").endswith(said)
    assert checkpoint.remedy("method.C", "First(fn=<function h at 0x7f10>)").endswith(said)
    assert not checkpoint.remedy("problem", "Quadratics(d=12)") + checkpoint.remedy("problem", None)
