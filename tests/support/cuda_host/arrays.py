"""Arrays that behave as CuPy's do where that differs from numpy's, on a machine without a device.

They do not mix with numpy's arrays, do not turn into them unasked, and have the functions and attributes
that CuPy has, no others.  What they compute is numpy's.  Whoever asks for an array's address, which MPI
does, is noted: on a device what has been launched may not be done yet.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import special
from scipy.sparse import issparse

# What CuPy 14 takes through numpy's protocols, of all that this package asks for.
FUNCTIONS = {
    "abs", "any", "all", "argsort", "array_equal", "concatenate", "copy", "copyto", "cumsum", "diagonal",
    "dot", "einsum", "empty_like", "flatnonzero", "full_like", "hstack", "isfinite", "max",
    "may_share_memory", "mean", "min", "ones_like", "outer", "ravel", "repeat", "reshape", "searchsorted",
    "sort", "split", "stack", "sum", "where", "zeros_like",
}  # fmt: skip

ATTRIBUTES = {"dtype", "itemsize", "nbytes", "ndim", "shape", "size"}
METHODS = {
    "all", "any", "argsort", "astype", "copy", "fill", "max", "mean", "min", "ravel", "reshape", "sum",
    "view",
}  # fmt: skip
MOVING = {"copy", "fill", "ravel", "reshape", "view"}  # of them those that compute nothing


class Stream:
    """The current stream of the device.

    busy    whether anything has been launched, copied or allocated since somebody last waited
    handed  whether it was not, for each time that an array's address was taken
    """

    busy = False
    handed: ClassVar[list[bool]] = []


class DeviceArray(NDArrayOperatorsMixin):
    """An array "on the device"."""

    def __init__(self, memory: Any) -> None:
        self.memory = np.asarray(memory)

    def get(self) -> Any:
        Stream.busy = False
        return self.memory.copy()

    # mpi4py takes an address by DLPack where there is that, and asks that no stream be waited for.

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # a CUDA device, the first

    def __dlpack__(self, *, stream: Any, **asked: Any) -> Any:
        assert stream == -1
        capsule = self.memory.__dlpack__(**asked)
        Stream.handed.append(not Stream.busy)
        return capsule

    # --- numpy's protocols ---

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        if getattr(ufunc, "__module__", "numpy") != "numpy" and not hasattr(np, ufunc.__name__):
            return NotImplemented  # scipy's
        kwargs = {k: below(v) for k, v in (kwargs | {"out": out} if out else kwargs).items()}
        return above(flushed(getattr(ufunc, method)(*map(flushed, map(below, inputs)), **kwargs)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ not in FUNCTIONS:
            return NotImplemented
        return above(function(*map(below, args), **{k: below(v) for k, v in kwargs.items()}))

    # --- what an array has ---

    def __getitem__(self, where: Any) -> DeviceArray:
        found = self.memory[below(where)]
        Stream.busy |= not np.may_share_memory(found, self.memory)
        return DeviceArray(found)

    def __setitem__(self, where: Any, value: Any) -> None:
        Stream.busy = True
        self.memory[below(where)] = below(value)

    def __len__(self) -> int:
        return len(self.memory)

    def __bool__(self) -> bool:
        return bool(self.memory)

    def __float__(self) -> float:
        return float(self.memory)

    def __int__(self) -> int:
        return int(self.memory)

    def __getattr__(self, name: str) -> Any:
        if name in ATTRIBUTES:
            return getattr(self.memory, name)
        if name == "T":
            return DeviceArray(self.memory.T)
        if name == "flags":
            return _Flags(self.memory)
        if name == "tobytes":
            return self.memory.tobytes
        if name in METHODS:
            method = getattr(self.memory if name in MOVING else flushed(self.memory), name)
            return lambda *args, **kwargs: above(method(*map(below, args), **kwargs))
        raise AttributeError(f"a device array has no {name!r} here")

    def __deepcopy__(self, memo: Any) -> DeviceArray:
        return DeviceArray(self.memory.copy())


class _Flags:
    def __init__(self, memory: Any) -> None:
        self.c_contiguous = memory.flags.c_contiguous


class DeviceSparse:
    """A sparse matrix on the device, for products."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.shape = matrix.shape

    @property
    def T(self) -> DeviceSparse:
        return DeviceSparse(self.matrix.T)

    def __getitem__(self, rows: Any) -> DeviceSparse:
        return DeviceSparse(self.matrix[below(rows)])

    def __matmul__(self, x: DeviceArray) -> DeviceArray:
        return DeviceArray(self.matrix @ below(x))

    __array_ufunc__ = None


class Library:
    """The array library of the device: numpy's names, device arrays."""

    ndarray = DeviceArray

    def asarray(self, a: Any) -> Any:
        return a if isinstance(a, DeviceArray | DeviceSparse) else DeviceArray(a)

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        return lambda *args, **kwargs: above(function(*map(below, args), **kwargs))


def put(a: Any) -> Any:
    """A copy on the device."""
    if isinstance(a, DeviceArray | DeviceSparse):
        return a
    Stream.busy = True
    return DeviceSparse(a.copy()) if issparse(a) else DeviceArray(np.array(a))


def expit(x: DeviceArray) -> DeviceArray:
    """The logistic function."""
    return DeviceArray(special.expit(below(x)))


def flushed(a: Any) -> Any:
    """What CuPy's own kernels make of subnormal float32: 0."""
    if not isinstance(a, np.ndarray) or a.dtype != np.float32:
        return a
    return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)


def below(a: Any) -> Any:
    """numpy's array under a device array.  Raises ``TypeError`` for an array that is not on the device."""
    if isinstance(a, DeviceArray):
        return a.memory
    if isinstance(a, np.ndarray):
        raise TypeError(f"Unsupported type {type(a)}: an array of the host among those of the device")
    if isinstance(a, tuple | list):
        return type(a)(map(below, a))
    return a


def above(a: Any) -> Any:
    """On the device; reductions give arrays without axes there, not numbers."""
    if isinstance(a, np.ndarray | np.generic):
        Stream.busy = True
        return DeviceArray(a)
    if isinstance(a, tuple | list):
        return type(a)(map(above, a))
    return a
