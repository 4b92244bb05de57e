"""Files that are there in full or not at all, whoever else writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from mpicomp.base.errors import RecordError
from mpicomp.base.files import refuse_unwritable, write_atomically
from tests.support.launching import LIMIT

WRITER = """
import os, sys
from pathlib import Path
from mpicomp.base.files import write_atomically

os.getpid = lambda: 7  # as in another container
print("ready", flush=True)
sys.stdin.readline()
for _ in range(100):
    write_atomically(Path({path!r}), {letter!r} * 100_000)
"""


def test_processes_of_one_number_do_not_tear_a_file(tmp_path):
    """Two hosts, or two containers, may have a process of the same number each."""
    path = tmp_path / "file"
    code = [WRITER.format(path=str(path), letter=letter) for letter in (b"a", b"b")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", c], **pipes) for c in code]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            seen.add(path.read_bytes())
    assert [writer.communicate(timeout=LIMIT)[1] for writer in writers] == ["", ""]
    assert seen <= {b"a" * 100_000, b"b" * 100_000}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_file_has_the_permissions_that_open_would_give(umask, tmp_path):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


def test_of_two_that_write_a_new_file_at_once_one_is_refused(tmp_path):
    """Both had found the name free, before work that takes minutes; and the last one won."""
    path = tmp_path / "file"

    def write(letter: bytes) -> bytes | None:
        try:
            write_atomically(path, letter * 1000, new=True)
            return letter * 1000
        except RecordError as error:
            assert str(error) == f"{path} is already there. Choose another name."
            return None

    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            (written,) = filter(None, pool.map(write, (b"a", b"b", b"c", b"d")))
        assert path.read_bytes() == written and list(tmp_path.iterdir()) == [path]
        path.unlink()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_new_file_that_is_not_completed_leaves_its_name_free(error, tmp_path, monkeypatch):
    def interrupted(source, target):
        raise error

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises((KeyboardInterrupt, RecordError)):
        write_atomically(tmp_path / "file", b"a", new=True)
    assert not list(tmp_path.iterdir())


def test_what_could_not_be_written_leaves_nothing(tmp_path):
    (tmp_path / "file").mkdir()  # in the way of the renaming
    with pytest.raises(RecordError, match=r"cannot write .*file: Is a directory"):
        write_atomically(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127, "図" * 85])
def test_a_file_may_have_the_longest_name_that_there_is(name, tmp_path):
    """The temporary name, which is longer than a short one, was refused."""
    write_atomically(tmp_path / name, b"content")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"content")]


def test_a_folder_is_tried_before_long_work(tmp_path):
    """It is made, and nothing is left in it."""
    (file := tmp_path / "file").write_text("")
    refuse_unwritable(tmp_path / "new" / "folder")
    assert [*(tmp_path / "new" / "folder").iterdir()] == [] and file.read_text() == ""
    with pytest.raises(RecordError, match=f"cannot write {file}"):
        refuse_unwritable(file)
