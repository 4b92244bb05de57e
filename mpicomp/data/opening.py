"""Open a data file, decompress it, and refuse known other kinds of file by name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mpicomp.base.errors import DataError
from mpicomp.data.streams import Streams


def _of_streams(start: Callable[[], Any]) -> Callable[[Path, str], Any]:
    """An opener of files of the streams that ``start`` decompresses."""
    return lambda path, mode: io.BufferedReader(Streams(path, start))


# The suffix of a compressed file and its first bytes.  The suffix identifies a file with damaged first bytes.
PACKED: dict[str, tuple[bytes, Any]] = {
    ".gz": (rb"\x1f\x8b", gzip.open),
    ".bz2": (rb"BZh[1-9]1AY&SY", _of_streams(bz2.BZ2Decompressor)),
    ".xz": (rb"\xfd7zXZ\x00", _of_streams(lzma.LZMADecompressor)),
}
# A ZIP archive is read at any place, and checks its own bytes.
PACKED_ARCHIVES = PACKED | {".bz2": (PACKED[".bz2"][0], bz2.open), ".xz": (PACKED[".xz"][0], lzma.open)}
TAR = slice(257, 262), b"ustar"
ZIP = b"PK\x03\x04"
# The first bytes of files that are no data of ours: what the file is, and the remedy.
FOREIGN = {
    b"version https://git-lfs": "a Git LFS pointer in place of the file. Run `git lfs pull`",
    b"/annex/objects/": "a git-annex pointer in place of the file. Run `git annex get`",
    ZIP: "a ZIP archive. Unpack it; if numpy wrote it, let its name end in .npz",
    b"\x93NUMPY": "a single array of numpy's. Write X and y by numpy.savez, and let the name end in .npz",
    b"\xff\xfe": "UTF-16 text. Save it as UTF-8",
    b"\xfe\xff": "UTF-16 text. Save it as UTF-8",
    b"(\xb5/\xfd": "compressed by Zstandard. Unpack it, or take gzip, bzip2 or xz",
    b"\x04\x22\x4d\x18": "compressed by LZ4. Unpack it, or take gzip, bzip2 or xz",
    b"\x1f\x9d": "compressed by compress, as .Z files are. Unpack it, or take gzip, bzip2 or xz",
    b"\x5d\0\0": "compressed as .lzma files are. Unpack it, or take gzip, bzip2 or xz",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive. Unpack it",
    b"PAR1": "a Parquet file. Write it as CSV",
    b"ARROW1": "an Arrow file. Write it as CSV",
    b"\x89HDF": "an HDF5 file. Write its arrays X and y by numpy.savez",
    b"<!doctype": "a web page, perhaps of an error. Get the file again",
    b"<html": "a web page, perhaps of an error. Get the file again",
}


@contextmanager
def opened(path: Path, archive: bool = False) -> Iterator[Any]:
    """Open a file for reading bytes, decompressed if it is compressed by gzip, bzip2 or xz.

    The first bytes decide this, not the name.  In the ``with`` block errors of reading become ``DataError``.
    Raises ``DataError`` for a kind of file in ``FOREIGN``; a ZIP archive is allowed with ``archive``.
    """
    try:
        with path.open("rb") as file:
            head = file.read(10)
        packed = PACKED_ARCHIVES if archive else PACKED
        found = [method for magic, method in packed.values() if re.match(magic, head)]
        _, named = packed.get(path.suffix.lower(), (b"", open))
        with (*found, named)[0](path, "rb") as file:
            start = file.peek(512)
            if start[TAR[0]] == TAR[1]:
                raise DataError(f"{path} is a tar archive. Unpack it.")
            for magic, kind in FOREIGN.items():
                if start[: len(magic)].lower() == magic.lower() and not (archive and magic == ZIP):
                    raise DataError(f"{path} is {kind}.")
            yield file
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"{path} is truncated, damaged or unreadable: {error}. Get the file again."
        ) from error
