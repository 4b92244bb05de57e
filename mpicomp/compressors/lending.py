"""Lend vectors and messages, read-only, to a compressor of one's own, and copy the messages that it makes.

A compressor that wrote into the vector, or gave a view of it as the message, would change the method's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError


def lend(cls: type) -> None:
    """Give ``compress`` and ``decompress_add``, where ``cls`` defines them, what they may not change."""
    careful = {"compress": _compressing, "decompress_add": _decompressing}
    for name in careful.keys() & vars(cls).keys():
        setattr(cls, name, careful[name](vars(cls)[name]))


@contextmanager
def _lent(array: Any, call: str, what: str) -> Iterator[Any]:
    """``array``, read-only in the ``with`` block.  Raises ``ConfigError`` if ``call`` meets that."""
    if isinstance(array, np.ndarray):
        array = array.view()
        array.flags.writeable = False
    try:
        yield array
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise ConfigError(f"{call}: {error}; {what} is read-only there: write into a copy of it.") from error


def _compressing(compress: Callable[..., Any]) -> Callable[..., Any]:
    """``compress`` of a class of one's own, which may not change x, and returns memory of the caller's."""

    @wraps(compress)
    def careful(self: Any, x: Any, key: Any) -> Any:
        call = f"{type(self).__name__}.compress"
        with _lent(x, call, "x") as given:
            message = compress(self, given, key)
        if isinstance(message, np.ndarray):
            # It may be x's memory, which the method changes, or memory that the next message is written to.
            return message.copy() if message.flags.c_contiguous else message  # else refused where it is sent
        if kernels.on_device(message):
            return message
        raise ConfigError(
            f"{call} returned a {type(message).__name__}; expected a vector of uint8, "
            "as .view(np.uint8) gives."
        )

    return careful


def _decompressing(decompress_add: Callable[..., None]) -> Callable[..., None]:
    """``decompress_add`` of a class of one's own, which may not change the message: others decode it too."""

    @wraps(decompress_add)
    def careful(self: Any, buf: Bytes, out: Any, key: Any, scale: float = 1.0) -> None:
        with _lent(buf, f"{type(self).__name__}.decompress_add", "the message") as given:
            decompress_add(self, given, out, key, scale)

    return careful
