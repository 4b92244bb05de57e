"""Array kernels: one interface, and which backend serves.  numpy's, in ``definition``, define the bytes.

``backend_for`` picks the backend by the vectors at hand: the device's where they lie on one; else the
compiled ones, once they are loaded, which the first long vector does; numpy's while all have been short, for
loading takes a second and saves some 50 microseconds a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Float
from mpicomp.base.bits import Bytes
from mpicomp.kernels import definition
from mpicomp.kernels.host import Host
from mpicomp.kernels.interface import Kernels
from mpicomp.kernels.loading import load, loaded, refusal

if TYPE_CHECKING:
    from mpicomp.kernels.cuda import Cuda

P = ParamSpec("P")
T = TypeVar("T")

_NUMPY = Host(definition)

_forgone = False
_device: Cuda | None = None  # the device in use
_clears: list[Callable[[], None]] = []  # each clears what one function keeps on the device

LONG = 2**14  # from here on a call gains more than some tens of microseconds, a run more than the loading
LONG_BITMAP = LONG // 4  # positions: numpy codes a bitmap of them in a step of Python a byte
MANY = 2**15  # short vectors that gain what loading costs

_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


def backend_for(x: Float, *others: Float) -> Kernels:
    """The kernels for these vectors, whose length is that of x or less."""
    if (there := device_of(x)) is not None:
        return there
    backend = _host(x.size)
    return backend if backend is _NUMPY or all(map(_plain, (x, *others))) else _NUMPY


def backend_for_length(length: int, a: NDArray[Any] | None = None) -> Kernels:
    """The kernels for draws, index sets and messages of vectors of that length; those of the device if ``a``
    lies there."""
    return device_of(a) or _host(length)


def expect(count: int, length: int = 1) -> str | None:
    """``count`` vectors of that length are to come: load the compiled kernels now if that will have paid.

    So that they are not loaded in the midst of what is timed, nor compiled while other ranks wait; an index
    set may need them from ``LONG_BITMAP`` positions on.  Ranks that wait for each other have to expect the
    same.  Gives why numpy's have to serve, if so; such ranks then ``forgo`` them together.
    """
    if _device is None and (length >= LONG_BITMAP or count >= MANY):
        load()
    return None if _forgone else refusal()


def forgo() -> None:
    """Let numpy's kernels serve in this process from here on."""
    global _forgone
    _forgone = True


def add_scaled(out: NDArray[np.floating], x: NDArray[np.floating], scale: float) -> None:
    """out += scale * x in float64, rounded to the type of ``out``; one pass and no temporary if long."""
    backend_for(out, x).add_scaled(out, x, scale)


def promoted(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """x in float64; x itself if it is."""
    if (there := device_of(x)) is not None:
        return there.promoted(x)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return x.astype(np.float64, copy=False)


@contextmanager
def using(device: Cuda | None) -> Iterator[None]:
    """Within, what ``put`` is given goes to ``device``; None: it stays."""
    before = _device
    _use(device)
    try:
        yield
    finally:
        _use(before)


def placed(make: Callable[P, T]) -> Callable[P, T]:
    """``make``, which puts its result on the device in use; its last results are kept there meanwhile."""
    cached: Any = lru_cache(4)(make)
    clear_with_device(cached.cache_clear)

    @wraps(make)
    def there(*args: P.args, **kwargs: P.kwargs) -> T:
        return make(*args, **kwargs) if _device is None else cached(*args, **kwargs)

    return there


def clear_with_device(clear: Callable[[], None]) -> None:
    """From now on call ``clear`` whenever another device, or none, comes into use."""
    _clears.append(clear)


def device() -> Cuda | None:
    """The kernels of the device in use, None where there is none."""
    return _device


def device_of(x: object) -> Cuda | None:
    """The device in use, if x is an array there."""
    return _device if on_device(x) else None


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
    there = device_of(a)
    return a if there is None else there.host(a)


def join(*parts: Bytes) -> Bytes:
    """One message of these parts, one after the other; on the device if one of them is there."""
    if not any(map(on_device, parts)):
        return np.concatenate(parts)
    parts = tuple(map(put, parts))
    message = np.empty_like(parts[0], shape=sum(map(len, parts)))
    stop = 0
    for part in parts:  # CuPy copies contiguous bytes as such, and concatenates them one by one
        start, stop = stop, stop + len(part)
        np.copyto(message[start:stop], part)
    return message


def _use(device: Cuda | None) -> None:
    global _device
    _device = device
    for clear in _clears:
        clear()


def _host(length: int) -> Host:
    wanted = not _forgone and (length >= LONG or loaded())
    return _compiled() if wanted else _NUMPY


@cache
def _compiled() -> Host:
    """The compiled kernels; numpy's if they cannot be kept."""
    pieces = load()
    return _NUMPY if pieces is definition else Host(pieces)


def _plain(x: NDArray[np.floating]) -> bool:
    return x.dtype in _FLOATS and x.ndim == 1 and x.flags.c_contiguous
