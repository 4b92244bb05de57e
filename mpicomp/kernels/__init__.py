"""Array kernels with three backends: numpy (``definition``, which defines the bytes), compiled, and CUDA.

``backend_for`` picks the backend for given vectors: that of the device if they are on one, else the host's.
On the host numpy's kernels serve until the first long vector loads the compiled ones, which then serve all
vectors.  Loading takes a second, and compiling, once on a machine, some 30.  They save some 50 microseconds
for each short vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.kernels import definition
from mpicomp.kernels.host import Host, host
from mpicomp.kernels.interface import Kernels
from mpicomp.kernels.loading import compiled_before, load_compiled, refusal

if TYPE_CHECKING:
    from mpicomp.kernels.cuda import Cuda

P = ParamSpec("P")
T = TypeVar("T")

_NUMPY = host(definition)

_short = _NUMPY  # serves short vectors: numpy's kernels, until the compiled ones are loaded
_forgone = False
_device: Cuda | None = None  # the device in use
_clears: list[Callable[[], None]] = []  # each clears what one function keeps on the device

LONG = 2**14  # entries of a vector from which on compiled kernels pay for their loading
LONG_BITMAP = LONG // 4  # likewise, positions of a coded bitmap: numpy takes a step of Python for each byte
MANY = 600_000  # short vectors, which together gain as much time as compiling costs; or an unknown number
LOADING = 2**15  # the same for loading what was compiled before

_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


def backend_for(x: Array, *others: Array) -> Kernels:
    """The kernels for the vectors x and ``others``, none of which is longer than x."""
    if _device is not None and on_device(x):
        return _device
    backend = _host(x.size)
    if backend is not _NUMPY:
        for vector in (x, *others):
            if not native_floats(vector) or vector.ndim != 1 or not vector.flags.c_contiguous:
                return _NUMPY
    return backend


def native_floats(x: NDArray[Any]) -> bool:
    """Whether x has floats that the compiled kernels read.

    They must not be given others: numba takes numbers in the other order of bytes for native ones.
    """
    return x.dtype in _FLOATS


def backend_for_length(length: int, a: NDArray[Any] | None = None) -> Kernels:
    """The kernels for draws, index sets and messages of vectors of this length.

    If the array ``a`` is on the device in use, these are the device's kernels.
    """
    return _host(length) if _device is None or not on_device(a) else _device


def pieces_on_host(length: int) -> ModuleType:
    """The host's kernels for vectors of this length, the package ``definition`` or ``compiled``.

    They are for functions that the device does not have.
    """
    return _host(length).pieces


def preload(count: int, length: int = 1) -> str | None:
    """Load the compiled kernels now, or compile them, if that pays for ``count`` vectors of this length.

    Otherwise they would be loaded during timed rounds, or even compiled while other ranks wait.  An index set
    may need them from ``LONG_BITMAP`` positions on.  Ranks that wait for each other must call this with equal
    arguments.  Returns None, or the reason why the compiled kernels cannot be loaded; all ranks should then
    call ``forgo``.
    """
    if _device is None:
        pays = length >= LONG_BITMAP or count >= MANY
        if pays or (count >= LOADING and compiled_before()):
            _compiled()
    return None if _forgone else refusal()


def forgo() -> None:
    """Use only numpy's kernels in this process from now on."""
    global _forgone, _short
    _forgone, _short = True, _NUMPY


def add_scaled(out: NDArray[np.floating], x: NDArray[np.floating], scale: float) -> None:
    """out += scale * x in float64, rounded to the type of ``out``; one pass and no temporary if long."""
    backend_for(out, x).add_scaled(out, x, scale)


def norm(x: NDArray[np.floating]) -> float:
    """|x|, the same bits on every device.  Raises ``DivergedError`` if it is not finite."""
    return float(backend_for(x).encode_norms([x], "f8")[1][0])


def promoted(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """x in float64; x itself if it is float64 already."""
    if (there := device_of(x)) is not None:
        return there.promoted(x)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return x.astype(np.float64, copy=False)


@contextmanager
def using(device: Cuda | None) -> Iterator[None]:
    """In the ``with`` block ``device`` is the device in use; None means the host."""
    before = _device
    _use(device)
    try:
        yield
    finally:
        _use(before)


def cached_on_device(make: Callable[P, T]) -> Callable[P, T]:
    """Decorator: cache the last 4 results of ``make``, arrays on the device, as long as it is in use."""
    cached: Any = lru_cache(4)(make)
    clear_with_device(cached.cache_clear)

    @wraps(make)
    def there(*args: P.args, **kwargs: P.kwargs) -> T:
        return make(*args, **kwargs) if _device is None else cached(*args, **kwargs)

    return there


def clear_with_device(clear: Callable[[], None]) -> None:
    """Register ``clear``, to be called whenever the device in use changes."""
    _clears.append(clear)


def device() -> Cuda | None:
    """The device in use, or None."""
    return _device


def device_of(x: object) -> Cuda | None:
    """The device in use if x is an array on it, else None."""
    return _device if on_device(x) else None


def on_device(x: object) -> bool:
    """Whether x is an array on the device in use."""
    return _device is not None and isinstance(x, _device.xp.ndarray)


def to_device(a: Any) -> Any:
    """Copy a numpy array or a scipy sparse array to the device in use; without a device, return it itself."""
    return a if _device is None else _device.put(a)


def to_same_place(x: Any, a: Any) -> Any:
    """Copy the numpy array ``a`` to the device if x is there; otherwise return ``a`` itself."""
    return to_device(a) if on_device(x) else a


def to_host(a: Any) -> Any:
    """Copy an array on the device to a numpy array; return anything else itself."""
    return a if _device is None or not on_device(a) else _device.host(a)


def join(*parts: Bytes) -> Bytes:
    """Concatenate the parts of a message; the message is on the device if one of its parts is."""
    if _device is None or not any(map(on_device, parts)):
        return np.concatenate(parts)
    parts = tuple(map(to_device, parts))
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
    return _short if length < LONG or _forgone else _compiled()


@cache
def _compiled() -> Host:
    """Load the compiled kernels, for short vectors too from now on; numpy's if they cannot be loaded."""
    global _short
    pieces = load_compiled()
    if pieces is not definition:
        _short = host(pieces)
    return _short
