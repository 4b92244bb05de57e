"""Guard a method against a compressor of one's own.

Vectors and messages are lent to it read-only, and the messages that it makes are copied: one that wrote into
the vector, or gave a view of it as the message, would change the method's state.  Its constants are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from math import inf, nan
from numbers import Integral, Real
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError

_ALLOWED = {"omega": "a number from 0 on", "alpha": "above 0 and at most 1", "delta": "a number from 0 on"}


def guard(cls: type) -> None:
    """Guard the methods of a compressor that the class ``cls`` itself defines."""
    careful = {"compress": _compressing, "decompress_add": _decompressing}
    careful |= {name: partial(_stating, name) for name in _ALLOWED} | {"paper_bits": _counting}
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


def _stating(name: str, state: Callable[..., Any]) -> Callable[..., Any]:
    """The method ``name`` of a class of one's own, whose constant goes into a theorem's step."""

    @wraps(state)
    def careful(self: Any, *size: int) -> Any:
        return checked_constant(self, name, size, state(self, *size))

    return careful


def checked_constant(C: Any, name: str, size: tuple[int, ...], value: Any) -> Any:
    """``value``, which the compressor's ``name`` gives for ``size``.

    Raises ``ConfigError`` if no compressor has such an omega, alpha or delta.
    """
    number = float(value) if isinstance(value, Real) else nan
    fits = 0 < number <= 1 if name == "alpha" else 0 <= number < inf
    if not fits:
        raise ConfigError(f"{C}: {name}({', '.join(map(str, size))}) = {value}; allowed: {_ALLOWED[name]}.")
    return value


def _counting(count: Callable[..., Any]) -> Callable[..., Any]:
    """``paper_bits`` of a class of one's own, which the ledger adds up."""

    @wraps(count)
    def careful(self: Any, buf: Bytes, d: int, key: Any) -> Any:
        return checked_bits(self, count(self, buf, d, key))

    return careful


def checked_bits(C: Any, bits: Any) -> Any:
    """``bits``, which the compressor's ``paper_bits`` gives.  Raises ``ConfigError`` if that is no count."""
    if not isinstance(bits, Integral) or bits < 0:
        raise ConfigError(f"{C}: paper_bits is {bits!r}; allowed: an integer from 0 on.")
    return bits
