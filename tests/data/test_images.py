"""Images: the IDX format, the known sets, the cache."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import struct
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data import KNOWN_IMAGES, KnownImages, fetch, load_dataset, load_images
from mpicomp.data import idx as idx_module
from mpicomp.data.cache import set_folder
from mpicomp.data.idx import read_idx
from mpicomp.data.opening import opened
from mpicomp.lab.cli.catalogue import catalogue

PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 2, 3) * 10
LABELS = np.array([1, 0, 2, 1], dtype=np.uint8)


def idx(array: np.ndarray, kind: int = 8) -> bytes:
    """The format as its description has it: 0 0 type axes, big-endian lengths, values."""
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(monkeypatch, tmp_path) -> Path:
    """A known set of four images, one file of which is compressed, in a folder."""
    known = KnownImages(4, "tiny-folder", "http://127.0.0.1:9", "train", sha(idx(PIXELS)), sha(idx(LABELS)))
    monkeypatch.setitem(KNOWN_IMAGES, "tiny", known)
    (tmp_path / "source" / "tiny-folder").mkdir(parents=True)
    (tmp_path / "source" / "tiny-folder" / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(idx(PIXELS))
    )
    (tmp_path / "source" / "tiny-folder" / "train-labels-idx1-ubyte").write_bytes(idx(LABELS))
    return tmp_path / "source"


# The format


@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress)]
)
@pytest.mark.parametrize("array", [PIXELS, LABELS, np.zeros((0, 28, 28), np.uint8)])
def test_an_array_is_read_exactly_whatever_its_compression(tmp_path, suffix, compress, array):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(compress(idx(array)))
    found = read_idx(path)
    assert found.dtype == np.uint8
    assert np.array_equal(found, array)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "starts with nothing"),
        (b"\0\0\x08", "starts with 00 00 08"),
        (b"1 1:0.5 2:1\n", "starts with 31 20 31 3a"),
        (idx(PIXELS, kind=0x0D), "starts with 00 00 0d 03"),
        (idx(PIXELS)[:15], "truncated within its header of 16 bytes"),
        (idx(PIXELS)[:-1], "announces 4 x 2 x 3 values and holds 23"),
        (idx(PIXELS) + b"\0", "announces 4 x 2 x 3 values and holds more"),
        (b"\0\0\x08\x41" + bytes([0, 0, 0, 1]) * 65 + b"\0", "starts with 00 00 08 41; .* at most 64"),
        (b"\0\0\x08\3" + b"\xff" * 12, r"announces 4294967295 x .* values in 16 bytes; allowed: 4096 a byte"),
        (b"\0\0\x08\3" + bytes(4) + b"\xff" * 8, "announces 0 x .*, a shape that no array can have"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, content, found):
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(DataError, match=found) as error:
        read_idx(tmp_path / "bad")
    assert str(tmp_path / "bad") in str(error.value)


def test_a_truncated_archive_is_refused(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx(PIXELS))[:-12])
    with pytest.raises(DataError, match="truncated, damaged or unreadable"):
        read_idx(tmp_path / "cut.gz")


@pytest.mark.parametrize(("suffix", "compress"), [(".bz2", bz2.compress), (".gz", gzip.compress)])
def test_no_more_is_read_of_a_file_than_it_announces(tmp_path, suffix, compress, monkeypatch):
    """A few KB of bzip2 or gzip may hold many MB."""
    read = []

    @contextmanager
    def counting(path):
        with opened(path) as file:
            original = file.read
            monkeypatch.setattr(file, "read", lambda n: read.append(original(n)) or read[-1], raising=False)
            yield file

    monkeypatch.setattr(idx_module, "opened", counting)
    bomb = tmp_path / f"bomb{suffix}"
    for announced, held, text in [(100, 2**23, "and holds more"), (2**31, 2**23, "allowed: 4096 a byte")]:
        read.clear()
        bomb.write_bytes(compress(b"\0\0\x08\1" + struct.pack(">I", announced) + bytes(held)))
        with pytest.raises(DataError, match=text):
            read_idx(bomb)
        assert sum(map(len, read)) <= 8 + announced + 1 <= 2**20 or sum(map(len, read)) == 8


# Fetching and loading


def test_fetch_from_a_folder(tiny, tmp_path):
    fetched = fetch("tiny", tiny)
    images = load_images("tiny")
    assert images.shape == fetched.shape == (4, 6)
    assert np.array_equal(images.pixels, PIXELS.reshape(4, 6))
    assert np.array_equal(images.labels, LABELS)
    assert (images.classes, images.white) == (3, 255)
    assert isinstance(images.pixels, np.memmap)
    assert not images.pixels.flags.writeable
    assert np.array_equal(images.intensities(np.array([3, 1])), PIXELS.reshape(4, 6)[[3, 1]] / 255)
    assert fetch("tiny", tmp_path / "gone").sha256 == images.sha256  # already there: the source is not asked


def test_a_folder_without_a_file_says_what_it_looked_for(tiny):
    (tiny / "tiny-folder" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(
        DataError, match=r"holds none of tiny-folder/train-labels-idx1-ubyte, .*\.bz2, .*\.gz"
    ):
        fetch("tiny", tiny)


def test_a_checksum_mismatch_is_refused_and_leaves_nothing(tiny):
    other = idx(LABELS[::-1])
    (tiny / "tiny-folder" / "train-labels-idx1-ubyte").write_bytes(other)
    with pytest.raises(DataError, match=f"expected {sha(idx(LABELS))}, got {sha(other)}") as error:
        fetch("tiny", tiny)
    assert str(error.value).endswith("Get the file from http://127.0.0.1:9/train-labels-idx1-ubyte.gz.")
    assert not set_folder("images-tiny").exists()


def test_an_unreachable_site_names_the_remedy(tiny):
    with pytest.raises(
        DataError, match=r"fetch tiny --from FOLDER_OR_URL`; there it is tiny-folder/train-images"
    ):
        fetch("tiny")


def test_labels_and_images_belong_together(tiny, monkeypatch):
    short = idx(LABELS[:3])
    (tiny / "tiny-folder" / "train-labels-idx1-ubyte").write_bytes(short)
    known = KnownImages(4, "tiny-folder", "http://127.0.0.1:9", "train", sha(idx(PIXELS)), sha(short))
    monkeypatch.setitem(KNOWN_IMAGES, "tiny", known)
    with pytest.raises(DataError, match="4 images and 3 labels"):
        fetch("tiny", tiny)


def test_the_digits_are_bundled_with_ten_classes():
    images, binary = load_images("digits"), load_dataset("digits")
    assert images.shape == (1797, 64)
    assert (images.classes, images.white, images.pixels.max()) == (10, 16, 16)
    assert images.labels[:5].tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(images.intensities(slice(None)), binary.X.toarray())  # two sets of one name
    assert np.array_equal(np.where(images.labels % 2, 1, -1), binary.y)


def test_the_digits_from_the_cache_and_without_one_are_the_same(tmp_path, monkeypatch):
    first = load_images("digits")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "file"))  # cannot be written
    again = load_images("digits")
    assert again.sha256 == first.sha256
    assert again.pixels.tobytes() == first.pixels.tobytes()


def test_a_damaged_entry_says_which_folder_to_delete(tiny):
    fetch("tiny", tiny)
    (set_folder("images-tiny") / "meta.json").write_text('{"white": 255}')
    with pytest.raises(DataError, match=r"images-tiny is damaged .*Delete that folder"):
        load_images("tiny")


def test_names_that_are_no_images_say_what_there_is():
    with pytest.raises(DataError, match="`mpicomp data fetch mnist` once"):
        load_images("mnist")
    with pytest.raises(ConfigError, match=r"Did you mean 'fashion_mnist'.*digits, mnist"):
        load_images("fashion-mnist")
    with pytest.raises(ConfigError, match=r"mnist is a set of images in ten classes"):
        load_dataset("mnist")
    with pytest.raises(ConfigError, match="Did you mean 'mnist'"):
        fetch("mnits")
    listed = "\n".join(catalogue("data"))
    assert all(f"mpicomp data fetch {name}" in listed for name in KNOWN_IMAGES)
