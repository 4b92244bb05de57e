"""Lend vectors and messages, read-only, to a compressor of one's own; copy its messages, check its counts.

A compressor that wrote into the vector, or gave a view of it as the message, would change the method's state.
A count of bits that is no Python integer could not be read back from a checkpoint, or would overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.compressors.vectors import compressing


def lend(cls: type) -> None:
    """Wrap the methods below where ``cls`` defines them."""
    careful = {"compress": _compressing, "decompress_add": _decompressing, "paper_bits": _counting}
    for name in careful.keys() & vars(cls).keys():
        setattr(cls, name, careful[name](vars(cls)[name]))


@contextmanager
def _lent(array: Any, call: str, what: str) -> Iterator[Any]:
    """``array``, read-only in the ``with`` block.  Raises ``ConfigError`` if ``call`` writes into it."""
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
    """Wrap a user's ``compress``: x is a real vector, read-only there, and the message is a copy."""

    @compressing
    @wraps(compress)
    def careful(self: Any, x: Any, key: Any) -> Any:
        call = f"{type(self).__name__}.compress"
        with _lent(x, call, "x") as given:
            message = compress(self, given, key)
        if isinstance(message, np.ndarray):
            if message.dtype == np.uint8 and message.ndim == 1 and message.flags.c_contiguous:
                # It may be memory of x, which the method changes, or memory that the next message uses.
                return message.copy()
            what = f"an array of shape {message.shape} and type {message.dtype}"
        elif kernels.on_device(message):
            return message
        else:
            what = f"a {type(message).__name__}"
        raise ConfigError(
            f"{call} returned {what}; expected a contiguous vector of uint8, as .view(np.uint8) gives."
        )

    return careful


def _decompressing(decompress_add: Callable[..., None]) -> Callable[..., None]:
    """Wrap a user's ``decompress_add``: the message is read-only there, since other ranks decode it too."""

    @wraps(decompress_add)
    def careful(self: Any, buf: Bytes, out: Any, key: Any, scale: float = 1.0) -> None:
        with _lent(buf, f"{type(self).__name__}.decompress_add", "the message") as given:
            decompress_add(self, given, out, key, scale)

    return careful


def _counting(paper_bits: Callable[..., Any]) -> Callable[..., int]:
    """Wrap a user's ``paper_bits``: it returns a Python integer, or raises ``ConfigError``."""

    @wraps(paper_bits)
    def careful(self: Any, buf: Bytes, d: int, key: Any) -> int:
        return as_integer(f"{type(self).__name__}.paper_bits", paper_bits(self, buf, d, key), least=0)

    return careful
