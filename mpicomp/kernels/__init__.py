"""Array kernels.  ``definition`` holds numpy's, which every other backend must match byte for byte.

``of`` picks the backend by the vectors at hand: the device's where they lie on one; else the compiled ones,
once they are loaded, which the first long vector does; numpy's while all have been short, for loading takes a
second and saves some 50 microseconds a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.kernels import definition
from mpicomp.kernels.loading import load, loaded, refusal

P = ParamSpec("P")
T = TypeVar("T")

_forgone = False
_device: Any = None  # the ``cuda.Kernels`` of the device in use
_placed: list[Callable[[], None]] = []  # each clears what one function has put there

LONG = 2**14  # from here on a call gains more than some tens of microseconds, a run more than the loading
MANY = 2**15  # short vectors that gain what loading costs

_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


def of(x: NDArray[Any], *others: NDArray[np.floating]) -> Any:
    """The kernels for these vectors, whose length is that of x or less."""
    if on_device(x):
        return _device
    backend = sized(x.size)
    return backend if backend is definition or all(map(_plain, (x, *others))) else definition


def sized(length: int) -> ModuleType:
    """The kernels for draws and index sets of that length."""
    wanted = not _forgone and (length >= LONG or loaded())
    return load() if wanted else definition


def expect(count: int, length: int = 1) -> str | None:
    """``count`` vectors of that length are to come: load the compiled kernels now if that will have paid.

    So that they are not loaded in the midst of what is timed.  Ranks that wait for each other have to expect
    the same, for the first to load may have to compile.  Gives why numpy's have to serve, if so; such ranks
    then ``forgo`` them together.
    """
    if _device is None and (length >= LONG or count >= MANY):
        load()
    return None if _forgone else refusal()


def forgo() -> None:
    """Let numpy's kernels serve in this process from here on."""
    global _forgone
    _forgone = True


def add_scaled(out: NDArray[np.floating], x: NDArray[np.floating], scale: float) -> None:
    """out += scale * x in float64, rounded to the type of ``out``; one pass and no temporary if long."""
    of(out, x).add_scaled(out, x, scale)


def promoted(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """x in float64; x itself if it is."""
    if on_device(x):
        return of(x).promoted(x)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return x.astype(np.float64, copy=False)


@contextmanager
def using(device: Any) -> Iterator[None]:
    """Within, what ``put`` is given goes to ``device``, a ``cuda.Kernels``; None: it stays."""
    global _device
    before, _device = _device, device
    try:
        yield
    finally:
        _device = before
        for clear in _placed:
            clear()


def placed(make: Callable[P, T]) -> Callable[P, T]:
    """``make``, the last results of which are kept while a device is in use: they lie there."""
    cached: Any = lru_cache(4)(make)
    _placed.append(cached.cache_clear)
    return cached


def device() -> Any:
    """The kernels of the device in use, None where there is none."""
    return _device


def on_device(x: object) -> bool:
    """Whether x is an array of the device in use."""
    return _device is not None and isinstance(x, _device.xp.ndarray)


def put(a: Any) -> Any:
    """An array of numpy's or a sparse one of scipy's on the device in use; itself where there is none."""
    return a if _device is None else _device.put(a)


def beside(x: Any, a: Any) -> Any:
    """An array of numpy's where x is."""
    return put(a) if on_device(x) else a


def host(a: Any) -> Any:
    """An array of the device as one of numpy's; anything else as it is."""
    return _device.host(a) if on_device(a) else a


def _plain(x: NDArray[np.floating]) -> bool:
    return x.dtype in _FLOATS and x.ndim == 1 and x.flags.c_contiguous
