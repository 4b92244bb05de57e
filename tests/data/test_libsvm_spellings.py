"""Spellings of LIBSVM files, many from reports about other readers: exact arrays, or one clear line."""

import bz2
import gzip
import lzma
import re

import pytest

from mpicomp.base.errors import DataError
from mpicomp.data.libsvm import read_libsvm

# The text of a file, X and the labels.
READ = [
    (b"1 1:2 3:4\n-1 2:5\n", [[2, 0, 4], [0, 5, 0]], [1, -1]),
    (b"1 1:2 3:4\n-1 2:5", [[2, 0, 4], [0, 5, 0]], [1, -1]),  # no last line end
    (b"1 1:2\r\n-1 2:5\r\n", [[2, 0], [0, 5]], [1, -1]),
    (b"1\t1:2\t2:3\n0\t2:5\n", [[2, 3], [0, 5]], [1, 0]),
    (b"  1   1:2    2:3  \n0 2:5 \n", [[2, 3], [0, 5]], [1, 0]),
    (b"\n1 1:2\n\n\n0 1:5\n\n", [[2], [5]], [1, 0]),
    (b"   \n1 1:2\n \t \n0 1:5\n", [[2], [5]], [1, 0]),
    (b"# a remark\n1 1:2 # another\n0 1:5#third\n", [[2], [5]], [1, 0]),
    (b"1 1:2 # an_underscore 1_0\n0 1:5\n", [[2], [5]], [1, 0]),
    (b"+1 1:2\n-1 1:5\n", [[2], [5]], [1, -1]),
    (b"1.0 1:2\n0.0 1:5\n", [[2], [5]], [1, 0]),
    (b"1e0 1:2\n-1e0 1:5\n", [[2], [5]], [1, -1]),
    (b"1 1:.50\n0 1:5.\n", [[0.5], [5]], [1, 0]),
    (b"1 1:+2\n0 1:-5\n", [[2], [-5]], [1, 0]),
    (b"1 1:2e3\n0 1:5E-1\n", [[2000], [0.5]], [1, 0]),
    (b"1 1:1.7976931348623157e308\n0 1:5e-324\n", [[1.7976931348623157e308], [5e-324]], [1, 0]),
    (b"1 1:0.1000000000000000055511151231257827\n0 1:3\n", [[0.1], [3]], [1, 0]),
    (b"1 1:9007199254740993\n0 1:3\n", [[9007199254740992.0], [3]], [1, 0]),  # rounded, as numbers are
    (b"9007199254740993 1:5\n0 1:3\n", [[5], [3]], [9007199254740992.0, 0]),
    (b"1\n0 1:5\n", [[0], [5]], [1, 0]),  # a row without values
    (b"1 1:5\n0\n", [[5], [0]], [1, 0]),
    (b"1 1:5 3:0\n0 1:1\n", [[5, 0, 0], [1, 0, 0]], [1, 0]),  # an explicit 0 counts for d
    (b"1 01:5 002:1\n0 1:1\n", [[5, 1], [1, 0]], [1, 0]),
    (b"1 +1:5 +2:1\n0 1:1\n", [[5, 1], [1, 0]], [1, 0]),
    (b"1 qid:3 1:5\n0 qid:4 1:1\n", [[5], [1]], [1, 0]),
    (b"\xef\xbb\xbf1 1:5\n0 1:1\n", [[5], [1]], [1, 0]),
    (b"\xef\xbb\xbf# remark\n1 1:5\n0 1:1\n", [[5], [1]], [1, 0]),
    (b"1 1:5\x0b2:1\x0c\n0 1:1\n", [[5, 1], [1, 0]], [1, 0]),
    (b"-0 1:5\n1 1:-0\n", [[5], [0]], [0, 1]),
    (b"1 1:1e-400\n0 1:1\n", [[0], [1]], [1, 0]),  # below double precision
    (b"3 1:1\n2.5 1:1\n-7 1:1\n", [[1], [1], [1]], [3, 2.5, -7]),
    (bz2.compress(b"1 1:5\n0 1:1\n"), [[5], [1]], [1, 0]),
    (bz2.compress(b"1 1:5\n0 1:1\n", 1), [[5], [1]], [1, 0]),
    (gzip.compress(b"1 1:5\n0 1:1\n"), [[5], [1]], [1, 0]),
    (gzip.compress(b"1 1:5\n") + gzip.compress(b"0 1:1\n"), [[5], [1]], [1, 0]),
    (lzma.compress(b"1 1:5\n0 1:1\n"), [[5], [1]], [1, 0]),
    (lzma.compress(b"\xef\xbb\xbf1 1:5\n0 1:1\n"), [[5], [1]], [1, 0]),
]

# The text of a file, and a part of the message.
REFUSED = [
    (b"1 1:1_0\n0 1:1\n", "line 1: found '1:1_0'"),  # Python's float reads 10
    (b"1 1:1\n0 1_0:1\n", "line 2: found '1_0:1'"),
    (b"1_0 1:1\n0 1:1\n", "line 1: label '1_0'"),
    (b"# a_b\n1 1:1\n0 1:5_ # c_d\n", "line 3: found '1:5_'"),
    (b"1 +1:1\n0 1:x\n", "line 2: found '1:x'"),  # line 1 is right
    (
        b"# a\n\n9007199254740993 1:1\n9007199254740992 1:1 # b\n",
        "labels 9007199254740993 and 9007199254740992",
    ),
    (b"1 qid:1 1:1\n0 qid:1 1:x\n", "line 2: found '1:x'"),
    (b"1 1:1 qid:2\n", "line 1: found 'qid:2'"),
    (b"1 0:1\n0 1:1\n", "line 1: index 0, so the file counts from 0"),
    (b"0 21:1.00 63: .50\n", "line 1: found '63:'"),
    (b"1 1 :5\n", "line 1: found '1'"),
    (b"1 1:6.6e-0114:8.7\n", "line 1: found '1:6.6e-0114:8.7'"),
    (b"1 514_:2\n", "line 1: found '514_:2'"),
    (b"1 14:Chrome\n", "line 1: found '14:Chrome'"),
    (b"1 1:nan\n", "line 1: found '1:nan'"),
    (b"1 1:inf\n0 1:-Infinity\n", "line 1: found '1:inf'"),
    (b"1 1:0x10\n", "line 1: found '1:0x10'"),
    (b"1 0x1:1\n", "line 1: found '0x1:1'"),
    (b"1 1:1d5\n", "line 1: found '1:1d5'"),
    (b"1 1:1,5\n", "line 1: found '1:1,5'"),
    (b"1,2 1:1\n", "line 1: label '1,2'"),  # several labels
    (b"1:0.5 1:1\n", "line 1: label '1:0.5'"),  # a weight
    (b"1:0.5 2:1\n", "line 1: label '1:0.5'"),  # no label
    (b"1,2,3\n4,5,6\n", "line 1: label '1,2,3'"),  # CSV
    (b"a,b,label\n1,2,0\n", "line 1: label 'a,b,label'"),
    (b"1 2 3\n", "line 1: found '2'"),  # a table
    (b"label 1:1\n", "line 1: label 'label'"),
    (b"1 3:1 2:1\n", "line 1: index 2 after 3"),
    (b"1 2:1 2:1\n", "line 1: index 2 after 2"),
    (b"1 2147483648:1\n", "line 1: index 2147483648 exceeds"),
    (b"1 99999999999999999999:1\n", "exceeds"),
    (b"1 " + b"1" * 5000 + b":1\n", "line 1: index 1111111111111111111111111111111111111111 exceeds"),
    (b"1 " + b"0" * 5000 + b"1:1\n", "Exceeds the limit"),  # as Python says
    (b"1 1:1\r0 1:2\r", "line 1: found '0'"),  # lines that end as on an old Macintosh
    (b"1 1:1\x00\n", "line 1: found '1:1"),
    (b"1 1:\xd9\xa1\n", "line 1: found '1:"),  # an Arabic 1
    (b"1\xc2\xa01:1\n", "line 1: label '1"),  # a space that does not break
    (b"\xff\xfe1\x00 \x00", "is UTF-16 text"),
    ("1 1:1\n".encode("utf-16-be"), "line 1: label"),
    (b"", "0 rows and no values"),
    (b"# nothing\n", "0 rows and no values"),
    (b"\xef\xbb\xbf", "0 rows and no values"),
    (b"1 1:0\n0 2:0\n", "2 rows and no values other than 0"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", "is a Git LFS pointer"),
    (b"/annex/objects/SHA256E-s9--4d7a\n", "is a git-annex pointer"),
    (b"PK\x03\x04\x14\x00", "is a ZIP archive"),
    (gzip.compress(b"PK\x03\x04\x14\x00"), "is a ZIP archive"),
    (gzip.compress(b"f\0".ljust(257, b"\0") + b"ustar\0"), "is a tar archive"),
    (b"<!DOCTYPE html>\n<html>", "is a web page"),
    (b"\x93NUMPY\x01\x00", "is a single array of numpy's"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
    (b"(\xb5/\xfd\x04", "is compressed by Zstandard"),
    (gzip.compress(b"1 1:1\n0 1:2\n")[:-4], "truncated, damaged or unreadable"),
    (bz2.compress(b"1 1:1\n0 1:2\n")[:-4], "truncated, damaged or unreadable"),
    (lzma.compress(b"1 1:1\n0 1:2\n")[:-4], "truncated, damaged or unreadable"),
    (lzma.compress(b"1 1:1\n0 1:2\n")[:20] + b"\x55" * 40, "truncated, damaged or unreadable"),
]


def test_each_spelling_is_read_exactly(tmp_path):
    wrong = []
    for content, X, labels in READ:
        (tmp_path / "file").write_bytes(content)
        found, y = read_libsvm(tmp_path / "file")
        if (found.toarray().tolist(), y.tolist()) != (X, labels):
            wrong.append((content, found.toarray().tolist(), y.tolist()))
    assert not wrong


def test_each_spelling_that_is_wrong_is_refused_in_one_line(tmp_path):
    wrong = []
    for content, said in REFUSED:
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_libsvm(tmp_path / "file")
        message = str(caught.value)
        if said not in message or "\n" in message or str(tmp_path / "file") not in message:
            wrong.append((content, message))
    assert not wrong


@pytest.mark.parametrize("suffix", ["", ".gz", ".GZ", ".bz2", ".BZ2", ".xz", ".txt"])
def test_the_first_bytes_decide_how_a_file_is_decompressed(tmp_path, suffix):
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        (tmp_path / f"file{suffix}").write_bytes(compress(b"1 1:5\n0 1:1\n"))
        X, y = read_libsvm(tmp_path / f"file{suffix}")
        assert (X.toarray().tolist(), y.tolist()) == ([[5], [1]], [1, 0])


@pytest.mark.parametrize("suffix", [".gz", ".BZ2", ".xz"])
def test_a_plain_text_named_as_compressed_is_refused(tmp_path, suffix):
    (tmp_path / f"file{suffix}").write_bytes(b"1 1:5\n0 1:1\n")
    with pytest.raises(DataError, match=re.escape(f"file{suffix} is truncated, damaged or unreadable")):
        read_libsvm(tmp_path / f"file{suffix}")
