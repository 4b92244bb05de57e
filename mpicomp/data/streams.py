"""Read files compressed by bzip2 or xz, of one stream or several, as parallel compressors write them.

Python's own readers stop silently where the bytes after a stream do not begin another one.  So if the start
of a stream were damaged, all rows from there on would be lost without an error.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIECE = 2**16  # compressed bytes read at a time


class Streams(io.RawIOBase):
    """The content of the streams in the file ``path``; zeros between and after them are padding.

    ``start`` makes a decompressor of one stream.  Reading raises ``EOFError`` if a stream is cut short, and
    the errors of the decompressor if there is anything but streams and padding.
    """

    def __init__(self, path: Path, start: Callable[[], Any]) -> None:
        self._file = path.open("rb")
        self._start, self._stream = start, start()
        self._next = b""  # bytes of the stream that were read with the one before

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._stream.eof or self._begin_next():
            content, self._next = self._next, b""
            if not content and self._stream.needs_input:
                content = self._file.read(PIECE)
                if not content:
                    raise EOFError("it ends within a stream")
            found = self._stream.decompress(content, len(buffer))
            if found:
                buffer[: len(found)] = found
                return len(found)
        return 0

    def _begin_next(self) -> bool:
        """Begin the stream after the one that has ended; False if there is none."""
        content = self._stream.unused_data
        while not (begun := content.lstrip(b"\0")):
            if not (content := self._file.read(PIECE)):
                return False
        self._stream, self._next = self._start(), begun
        return True

    def close(self) -> None:
        self._file.close()
        super().close()
