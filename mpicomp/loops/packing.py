"""Flatten a user's arrays into one vector, and turn the vector back into arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.given_arrays import is_finite, readable, refuse_mask
from mpicomp.base.parts import Part, Parts
from mpicomp.base.units import one_line, shortened
from mpicomp.loops.trees import arrays_of, rebuilt, shape_of

if TYPE_CHECKING:
    from mpicomp.kernels.cuda import Cuda

# What to give in the place of an object, by an attribute that tells it: of a DataFrame, a sparse matrix of
# scipy, a torch module, an iterator such as model.parameters(), or what a dict's values() returns.
_WAYS = {
    "to_numpy": "its .to_numpy()",
    "toarray": "its .toarray()",
    "named_parameters": "dict(it.named_parameters())",
    "__next__": "list(..) of it",
    "mapping": "list(..) of it",
}
TAKES = "a numpy array, a torch tensor, any array that speaks DLPack; or dicts, lists, tuples of them"


@dataclass(frozen=True)
class Leaf:
    """One of the user's arrays: its library, such as "torch", and its type in that library.

    xp      its library's functions
    native  whether the library is numpy, or the device's library
    there   whether the array is on the GPU that holds the vector
    """

    library: str
    dtype: Any
    part: Part
    xp: Any
    native: bool
    there: bool


class Packing:
    """Flatten arrays shaped like ``like`` into one vector, one after the other in C order, and back.

    like    an array of any shape, or dicts, lists and tuples of arrays, one within the other: numpy's,
            torch's, or of a library that speaks DLPack.  Their entries are floats.
    device  the GPU that holds the vector, or None for numpy's memory.  Arrays on that GPU are not copied to
            the host
    what    the name of ``like`` in error messages
    parts   the names and shapes of the arrays: a dict's keys, or the numbers in a list; see ``trees``
    dtype   the vector's type: float64 if one of the arrays is float64, else float32
    settings  settings of its maker's that all ranks must share, by name; they are compared first

    Raises ``ConfigError`` for anything else.
    """

    name: ClassVar[str] = ""  # what error messages call it, if its maker gave another thing than ``like``
    alike: ClassVar[str] = ""  # what ``number`` stands for in error messages, with the remedy
    missing: ClassVar[str] = ""  # the error message if a worker's gradient is missing; "": the usual one

    def __init__(self, like: Any, device: Cuda | None = None, what: str = "like") -> None:
        self.device, self.settings = device, dict[str, object]()
        arrays, self._structure = arrays_of(like), shape_of(like)
        if not arrays:
            raise ConfigError(f"{what} is an empty {type(like).__name__}; allowed: {TAKES}.")
        self._leaves = [self._leaf(name, array, what) for name, array in arrays.items()]
        self.parts = Parts(tuple(leaf.part for leaf in self._leaves))
        wide = any(str(leaf.dtype).endswith(("float64", "f8")) for leaf in self._leaves)  # ">f8" too
        self.dtype = np.dtype(np.float64 if wide else np.float32)

    @classmethod
    def of(cls, like: Any, device: Cuda | None, what: str = "like") -> Packing:
        """The packing of ``like``, with the vector on ``device``; ``like`` may be a packing itself."""
        return like.placed(device) if isinstance(like, Packing) else cls(like, device, what)

    def placed(self, device: Cuda | None) -> Self:
        """Put the vector on ``device`` from now on; returns ``self``."""
        self.device = device
        return self

    def number(self) -> int:
        """A number below 2³² that the ranks compare in each call, for what else has to be equal on them."""
        return 0

    @property
    def description(self) -> str:
        """Names, shapes and types, as text."""
        return ", ".join(f"{f.part.name}: {f.library} {f.dtype} {f.part.shape}" for f in self._leaves)

    def pack(self, tree: Any, what: str = "the gradient") -> Array:
        """A new vector, shape (d,), with the entries of ``tree``, whose arrays are like those of ``like``.

        ``what`` names ``tree`` in messages.  Raises ``ConfigError`` if a name, shape or type differs.
        """
        arrays = arrays_of(tree)
        wanted = [leaf.part.name for leaf in self._leaves]
        if list(arrays) != wanted:
            if sorted(arrays) != sorted(wanted):
                advice = " Numbers in a list: give numpy.array(..) of it." if _are_numbers(arrays) else ""
                raise ConfigError(
                    f"{what} has the parts {shortened(arrays, str) or 'none'}; expected, as at the start: "
                    f"{shortened(wanted, str)}.{advice}"
                )
            arrays = {name: arrays[name] for name in wanted}
        xp: Any = np if self.device is None else self.device.xp
        vector = xp.empty(self.parts.size, dtype=self.dtype)
        for (name, array), (part, where) in zip(arrays.items(), self.parts, strict=True):
            values = self._read(name, array, what)
            if values.shape != part.shape:
                raise ConfigError(
                    f"{what} has the shape {values.shape} in part {name!r}; expected {part.shape}, as at the "
                    "start."
                )
            with np.errstate(over="ignore", under="ignore"):  # an infinity is refused by those who need it
                vector[where].reshape(part.shape)[...] = values
        return vector

    def is_beyond(self, tree: Any) -> bool:
        """Whether ``tree``, of which ``pack`` has made a vector that is not finite, is finite itself."""
        if self.dtype == np.float64:
            return False
        return all(
            is_finite(self._read(name, array, "the gradient")) for name, array in arrays_of(tree).items()
        )

    def unpack(self, vector: Array) -> Any:
        """New arrays with the entries of ``vector``, in the structure, libraries and types of ``like``.

        Raises ``DivergedError`` if an entry is beyond the type of its array, such as float16.
        """
        arrays = [
            self._to_library(leaf, vector[where].reshape(leaf.part.shape))
            for leaf, (_, where) in zip(self._leaves, self.parts, strict=True)
        ]
        return rebuilt(self._structure, iter(arrays))

    def _leaf(self, name: str, array: Any, what: str) -> Leaf:
        values = self._read(name, array, what)
        native = isinstance(array, np.ndarray | np.floating) or self._is_of_device(array)
        there = self._is_there(array)
        xp = np if native else _functions(array, f"{what} has in part {name!r}")
        return Leaf(_library(array), array.dtype, Part(name, values.shape), xp, native, there)

    def _is_of_device(self, array: Any) -> bool:
        return self.device is not None and isinstance(array, self.device.xp.ndarray)

    def _is_there(self, array: Any) -> bool:
        """Whether an array of any library is on the GPU that the vector is on."""
        if self.device is None or isinstance(array, np.ndarray | np.floating):
            return False
        return self._is_of_device(array) or array.__dlpack_device__() == self.device.dlpack

    def _read(self, name: str, array: Any, what: str) -> Any:
        """``array`` in the memory of the vector's device; it is copied only if it has to be."""
        refuse_mask(f"{what} in part {name!r}", array)
        array = readable(array)
        if not isinstance(array, np.ndarray | np.floating) and not self._is_of_device(array):
            if not hasattr(array, "__dlpack__"):
                ways = [f": give {way}" for has, way in _WAYS.items() if hasattr(array, has)]
                shown = f"a {type(array).__name__}" if ways else one_line(array)
                remedy = " Numbers in a list: give numpy.array(..) of it." * _are_numbers({name: array})
                raise ConfigError(
                    f"{what} has {shown} in part {name!r}{''.join(ways)}; allowed: {TAKES}.{remedy}"
                )
            try:
                xp = self.device.xp if self.device is not None and self._is_there(array) else np
                array = xp.from_dlpack(array)
            except (BufferError, RuntimeError, TypeError) as error:
                reason = one_line(str(error).rstrip("."), 200).strip("'\"")
                raise ConfigError(
                    f"{what} has in part {name!r} an array that cannot be read: {reason}. Where it is on the "
                    "GPU of this rank: device='cuda'; else it has to be dense floats in the host's memory."
                ) from None
        if array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise ConfigError(
                f"{what} has entries of type {array.dtype} in part {name!r}; allowed: floats of at most 64 "
                "bits."
            )
        return array if self.device is None else self.device.put(array)

    def _to_library(self, leaf: Leaf, values: Any) -> Any:
        """A new array with the entries ``values``, in the leaf's library, type and memory."""
        xp: Any = leaf.xp
        if self.device is not None and not leaf.there:
            values = self.device.host(values)
        if leaf.native:
            with np.errstate(over="ignore", under="ignore"):
                array = values.astype(leaf.dtype)
        else:
            array = _cast(xp, xp.from_dlpack(values.copy()), leaf.dtype)
        narrower = xp.finfo(leaf.dtype).bits < 8 * values.itemsize
        if narrower and not bool(xp.all(xp.isfinite(array))) and is_finite(values):
            raise DivergedError(
                f"the result in part {leaf.part.name!r} has a magnitude of {abs(values).max():.3g}, which "
                f"{leaf.dtype} does not hold; allowed: arrays of float32 or float64."
            )
        return array


def _functions(array: Any, what: str) -> Any:
    """The functions of an array's library, of which ``from_dlpack`` takes results back.

    Raises ``ConfigError``, in whose message ``what`` says where the array is, for a library without it.
    """
    library = _library(array)
    named = sys.modules.get("jax.numpy" if library.startswith("jax") else library)
    xp = array.__array_namespace__() if hasattr(array, "__array_namespace__") else named
    if not hasattr(xp, "from_dlpack"):
        raise ConfigError(
            f"{what} a {type(array).__name__} of {library}, which has no from_dlpack to take results back; "
            "allowed: arrays of a library that has one. Give numpy.from_dlpack(array)."
        )
    return xp


def _are_numbers(arrays: Mapping[str, Any]) -> bool:
    """Whether the arrays are the numbers of a list, which are called 0, 1, ..."""
    return all(isinstance(array, Real) and name.isdecimal() for name, array in arrays.items())


def _cast(xp: Any, array: Any, dtype: Any) -> Any:
    """``array`` in its library's type ``dtype``: numpy's way, torch's, or that of the array API standard."""
    if hasattr(array, "astype"):
        return array.astype(dtype)
    return array.to(dtype) if hasattr(array, "to") else xp.astype(array, dtype)


def _library(array: Any) -> str:
    """The name of the package that defines the array's class."""
    return type(array).__module__.partition(".")[0]
