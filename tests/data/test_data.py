"""Data sets: the format, the cache, the known sets, the shards."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import mpicomp
from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data import BUNDLED, KNOWN, SPLITS, KnownSet, cache_dir, fetch, load_dataset, rows_of
from mpicomp.data.cache import remember, set_folder, write_entry
from mpicomp.data.libsvm import read_libsvm
from mpicomp.data.opening import opened
from mpicomp.data.streams import PIECE
from tests.support.launching import LIMIT

TEXT = b"2 1:0.5 3:-2e-3 # a remark\n1 2:4\n\n2 4:1.25\r\n"
DENSE = np.array([[0.5, 0, -2e-3, 0], [0, 4, 0, 0], [0, 0, 0, 1.25]])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(monkeypatch):
    """A known set of three rows and five features, one of which no row has."""
    monkeypatch.setitem(KNOWN, "tiny", KnownSet(3, 5, hashlib.sha256(TEXT).hexdigest()))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# The format


@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress)]
)
def test_a_file_is_read_exactly_whatever_its_compression(tmp_path, suffix, compress):
    X, labels = read_libsvm(write(tmp_path / f"file{suffix}", compress(TEXT)))
    assert np.array_equal(X.toarray(), DENSE)
    assert labels.tolist() == [2, 1, 2]
    assert X.dtype == labels.dtype == np.float64


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress, gzip.compress])
def test_a_compressed_file_of_many_pieces_is_read_to_its_end(tmp_path, compress):
    """A block of bzip2 gives no byte before its end; the zeros after a stream do not end with a piece."""
    content = np.random.default_rng(0).bytes(2 * PIECE)
    file = write(tmp_path / "file", compress(content) + bytes(PIECE) + compress(b"more"))
    with opened(file) as found:
        assert found.read() == content + b"more"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"1 3:1 2:1", "index 2 after 3"),
        (b"1 2:1 2:1", "index 2 after 2"),
        (b"1 0:1", "index 0"),
        (b"1 -4:1", "'-4:1'"),
        (b"1 99999999999:1", "index 99999999999 exceeds"),
        (b"1 1:nan", "'1:nan'"),
        (b"1 1:-inf", "'1:-inf'"),
        (b"1 1:1e999", "'1:1e999'"),
        (b"1 1:", "'1:'"),
        (b"1 1:2x", "'1:2x'"),
        (b"1 7", "'7'"),
        (b"yes 1:2", "label 'yes'"),
        (b"nan 1:2", "label 'nan'"),
        (b"\xff\x00 1:2", "label"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_a_corrupt_line_is_named_with_what_is_wrong(tmp_path, line, found, suffix):
    content = b"1 1:1\n\n-1 2:3\n" + line + b"\n-1 1:1\n"
    path = write(tmp_path / f"bad{suffix}", bz2.compress(content) if suffix else content)
    with pytest.raises(DataError) as error:
        read_libsvm(path)
    for part in (f"{path}, line 4", found, "expected `label index:value ...`"):
        assert part in str(error.value)


@pytest.mark.parametrize("name", ["cut.bz2", "cut.gz", "plain.bz2", "plain.gz", "empty.bz2"])
def test_a_truncated_or_mislabelled_archive_is_refused(tmp_path, name):
    packed = (bz2 if name.endswith("bz2") else gzip).compress(TEXT * 1000)
    content = {"cut": packed[: len(packed) // 2], "plain": TEXT, "empty": b""}[name.split(".")[0]]
    with pytest.raises(DataError, match="truncated, damaged or unreadable"):
        read_libsvm(write(tmp_path / name, content))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"1\n-1\n"])
def test_a_file_without_values_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="no values"):
        read_libsvm(write(tmp_path / "empty", content))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such file: .*nowhere"):
        load_dataset(str(tmp_path / "nowhere"))


# Labels and names


def test_two_classes_become_minus_and_plus_one_by_order(tmp_path):
    data = load_dataset(str(write(tmp_path / "two", TEXT)))
    assert data.y.tolist() == [1, -1, 1]


@pytest.mark.parametrize(("labels", "shown"), [("5", "1 label classes (5)"), ("3 1 2.5", "(1, 2.5, 3)")])
def test_other_than_two_classes_are_listed(tmp_path, labels, shown):
    content = "".join(f"{label} 1:1\n" for label in labels.split())
    with pytest.raises(DataError) as error:
        load_dataset(str(write(tmp_path / "classes", content.encode())))
    assert shown in str(error.value)


def test_many_classes_are_listed_up_to_ten(tmp_path):
    content = "".join(f"{label} 1:1\n" for label in range(30))
    with pytest.raises(DataError, match=r"30 label classes \(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.\)"):
        load_dataset(str(write(tmp_path / "classes", content.encode())))


def test_an_unknown_name_gets_the_nearest_spelling_and_the_list():
    with pytest.raises(ConfigError, match="Did you mean 'mushrooms'") as error:
        load_dataset("mushroms")
    assert all(name in str(error.value) for name in (*BUNDLED, *KNOWN))
    assert "mpicomp data fetch NAME" in str(error.value)
    with pytest.raises(ConfigError, match="Did you mean 'a9a'"):
        fetch("a9")


def test_a_known_set_that_is_absent_names_its_remedy():
    with pytest.raises(DataError, match="`mpicomp data fetch w8a`"):
        load_dataset("w8a")


# Fetching


@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress)]
)
def test_fetch_from_a_folder(tmp_path, tiny, suffix, compress):
    write(tmp_path / f"tiny{suffix}", compress(TEXT))
    fetch("tiny", tmp_path)
    data = load_dataset("tiny")
    assert data.X.shape == (3, 5)
    assert np.array_equal(data.X.toarray()[:, :4], DENSE)
    assert fetch("tiny", tmp_path / "gone").sha256 == data.sha256  # already there: the source is not asked


def test_fetch_from_a_mirror_tries_the_suffixes(tmp_path, tiny):
    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            mirror = f"http://127.0.0.1:{server.server_port}/"
            with pytest.raises(DataError, match=r"404.*--from FOLDER_OR_URL"):
                fetch("tiny", mirror)
            write(tmp_path / "tiny.gz", gzip.compress(TEXT))
            assert np.array_equal(fetch("tiny", mirror).X.toarray()[:, :4], DENSE)
        finally:
            server.shutdown()


def test_an_unreachable_mirror_names_the_remedy(tiny):
    with pytest.raises(DataError, match=r"could not download tiny .*`mpicomp data fetch tiny --from"):
        fetch("tiny", "http://127.0.0.1:9/")  # the discard port: refused at once


def test_a_checksum_mismatch_is_refused_and_leaves_nothing(tmp_path, tiny):
    other = TEXT.replace(b"4", b"5")
    write(tmp_path / "tiny", other)
    with pytest.raises(DataError) as error:
        fetch("tiny", tmp_path)
    for part in (KNOWN["tiny"].sha256, hashlib.sha256(other).hexdigest(), "Get the file from https://"):
        assert part in str(error.value)
    assert not set_folder("tiny").exists()


def test_a_folder_without_the_file_says_what_it_looked_for(tmp_path, tiny):
    with pytest.raises(DataError, match=r"none of tiny, tiny\.bz2, tiny\.gz"):
        fetch("tiny", tmp_path)


def test_fetch_into_an_unwritable_cache_names_the_remedy(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(write(tmp_path / "a file", b"")))
    write(tmp_path / "tiny", TEXT)
    with pytest.raises(DataError, match="Set MPICOMP_CACHE"):
        fetch("tiny", tmp_path)


# The cache


def test_cache_dir_follows_the_environment(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("MPICOMP_CACHE", "/own")
    assert cache_dir() == Path("/own")
    monkeypatch.delenv("MPICOMP_CACHE")
    assert cache_dir() == Path("/x/mpicomp")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "mpicomp"


@pytest.mark.parametrize("name", BUNDLED)
def test_a_cached_set_equals_the_parsed_one_bit_for_bit(name, tmp_path, monkeypatch):
    mapped = load_dataset(name)
    monkeypatch.setenv("MPICOMP_CACHE", str(write(tmp_path / "a file", b"")))  # cannot be written
    parsed = load_dataset(name)
    assert mapped.sha256 == parsed.sha256
    for a, b in [
        (mapped.X.data, parsed.X.data),
        (mapped.X.indices, parsed.X.indices),
        (mapped.X.indptr, parsed.X.indptr),
        (mapped.y, parsed.y),
    ]:
        assert a.tobytes() == b.tobytes()
        assert a.dtype == b.dtype
        assert not (a.flags.writeable or b.flags.writeable)
    assert isinstance(mapped.y, np.memmap)
    assert not isinstance(parsed.y, np.memmap)


def test_the_bundled_sets_are_as_described():
    cancer, digits = load_dataset("breast_cancer"), load_dataset("digits")
    X = cancer.X.toarray()
    assert X.shape == (569, 30)
    assert np.abs(X.mean(axis=0)).max() < 1e-13
    assert np.abs(X.std(axis=0) - 1).max() < 1e-13
    assert [(cancer.y == s).sum() for s in (-1, 1)] == [212, 357]
    assert digits.X.shape == (1797, 64)
    assert (digits.X.data.min(), digits.X.data.max()) == (1 / 16, 1)
    assert digits.y[:4].tolist() == [-1, 1, -1, 1]  # the digits 0, 1, 2, 3


def test_a_file_is_parsed_again_when_its_content_changes(tmp_path):
    path = write(tmp_path / "mine", TEXT)
    before = load_dataset(str(path))
    assert load_dataset(str(path)) is before
    write(path, TEXT.replace(b"4:1.25", b"6:1.25"))
    os.utime(path, (1, 1))  # as long as before: only the time tells
    assert load_dataset(str(path)).X.shape == (3, 6)


def test_the_same_content_under_another_name_is_one_cache_entry(tmp_path):
    a, b = (load_dataset(str(write(tmp_path / name, TEXT))) for name in ("a", "b"))
    assert a.sha256 == b.sha256
    assert len(list(set_folder("x").parent.iterdir())) == 1


def test_writing_an_entry_that_another_process_wrote_is_no_error():
    data = load_dataset("digits")
    write_entry("digits", data)
    assert [path.name for path in set_folder("x").parent.iterdir()] == ["digits"]


def test_a_damaged_entry_says_which_folder_to_delete(tmp_path):
    load_dataset(str(write(tmp_path / "mine", TEXT)))
    (entry,) = set_folder("x").parent.iterdir()
    (entry / "data.npy").write_bytes(b"")
    with pytest.raises(DataError, match=f"{entry}.*Delete that folder"):
        load_dataset(str(write(tmp_path / "copy", TEXT)))


def test_remember_gives_the_same_bits_and_computes_once():
    values = [0.1 + 0.2, 1e-320, np.pi * 1e300]
    assert remember(("a", 1), lambda: values) == values
    assert remember(("a", 1), lambda: 1 / 0) == values
    assert remember(("a", 2), lambda: 7) == 7


def test_remember_survives_a_torn_entry_and_an_unwritable_folder(tmp_path, monkeypatch):
    remember(("a",), lambda: 1)
    (entry,) = (cache_dir() / "constants").iterdir()
    entry.write_text("{")
    assert remember(("a",), lambda: 2) == 2
    assert remember(("a",), lambda: 3) == 2
    monkeypatch.setenv("MPICOMP_CACHE", str(write(tmp_path / "a file", b"")))
    assert remember(("a",), lambda: 4) == 4


def test_processes_that_meet_an_empty_cache_at_once_agree():
    script = (
        "from mpicomp.data import load_dataset; d = load_dataset('digits'); print(d.sha256, d.X.data.sum())"
    )
    root = Path(mpicomp.__file__).parents[1]
    command = [sys.executable, "-c", script]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(4)]
    outputs = {rank.communicate(timeout=LIMIT)[0] for rank in ranks}
    assert [rank.returncode for rank in ranks] == [0] * 4
    assert outputs == {f"{load_dataset('digits').sha256} {load_dataset('digits').X.data.sum()}\n"}
    assert [path.name for path in set_folder("x").parent.iterdir()] == ["digits"]  # nothing left aside


# Shards


def labels(m: int) -> np.ndarray:
    return np.where(np.arange(m) * 7 % 5 < 2, 1.0, -1.0)


def indices(m: int, rows: object) -> np.ndarray:
    return np.arange(m)[rows]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (12, 4), (13, 4), (13, 13), (100, 7), (3001, 16)])
def test_every_row_belongs_to_exactly_one_worker(split, m, n):
    shards = [indices(m, rows_of(i, n, labels(m), split)) for i in range(n)]
    assert [len(s) for s in shards] == [len(s) for s in np.array_split(np.arange(m), n)]
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(m))


def test_a_contiguous_shard_is_a_slice():
    assert rows_of(1, 4, labels(13), "contiguous") == slice(4, 7)


def test_shuffling_mixes_and_is_the_same_for_every_n():
    m, y = 2000, labels(2000)
    order = indices(m, rows_of(0, 1, y, "shuffled"))
    again = np.concatenate([indices(m, rows_of(i, 7, y, "shuffled")) for i in range(7)])
    assert np.array_equal(order, again)
    # The number of fixed points of a random permutation is Poisson(1): 12 or more has probability 1e-9.
    assert np.sum(order == np.arange(m)) < 12
    assert not np.array_equal(order, indices(m, rows_of(0, 1, y, "shuffled", seed=1)))


def test_sorted_shards_see_one_class_each_and_keep_the_order_within_it():
    n, y = 10, labels(1000)
    shards = [rows_of(i, n, y, "sorted") for i in range(n)]
    assert sum(len(np.unique(y[s])) == 1 for s in shards) >= n - 1
    assert all(np.all(np.diff(s[y[s] == c]) > 0) for s in shards for c in (-1, 1))


def test_impossible_shards_are_refused():
    with pytest.raises(ConfigError, match="5 rows among 6 workers"):
        rows_of(0, 6, labels(5), "shuffled")
    with pytest.raises(ConfigError, match="among 0 workers"):
        rows_of(0, 0, labels(5), "shuffled")
    with pytest.raises(ConfigError, match="worker 4 is not one of the 4"):
        rows_of(4, 4, labels(5), "shuffled")
    with pytest.raises(ConfigError, match="Did you mean 'sorted'"):
        rows_of(0, 1, labels(5), "sort")
