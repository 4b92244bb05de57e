"""Convert records of arrays and numbers to the bytes of an uncompressed ``.npz`` file, and back.

Reading executes no code from the file, and takes at most a few times the memory of its bytes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.given_arrays import has_mask
from mpicomp.base.units import one_line

_ALLOWED = (np.ndarray, np.generic, bool, int, float, complex, str, bytes)


def fields_of(records: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all fields of ``records``, dataclasses by name, each by its name "RECORD.FIELD"."""
    return {f"{name}.{f.name}": getattr(r, f.name) for name, r in records.items() for f in fields(r)}


def to_npz(records: Mapping[str, Any]) -> bytes:
    """The bytes of an ``.npz`` file with the arrays ``fields_of(records)``.

    Raises ``ConfigError`` for a field that is no array, number or text.
    """
    arrays: dict[str, Any] = {name: kernels.to_host(value) for name, value in fields_of(records).items()}
    for name, value in arrays.items():
        plain = isinstance(value, _ALLOWED) and not has_mask(value)
        if not plain or np.asarray(value).dtype.kind not in "biufcSU":
            raise ConfigError(f"{name} is {one_line(value)}; allowed: arrays, numbers and texts.")
        if isinstance(value, str | bytes) and np.asarray(value).item() != value:
            raise ConfigError(
                f"{name} ends in a NUL, which numpy drops of a text: give numpy.frombuffer(.., numpy.uint8)."
            )
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


class Npz:
    """Read the arrays in ``content``, bytes made by ``to_npz``; they need not be trusted.

    The constructor and ``read`` raise ``RecordError`` for any other bytes.
    """

    def __init__(self, content: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except Exception as error:  # zipfile raises a dozen of types
            raise RecordError(f"it is no archive of arrays ({error})") from None
        members = self._archive.infolist()
        if any(m.compress_type for m in members) or sum(m.file_size for m in members) > len(content):
            raise RecordError("its arrays are compressed")

    def read(self, name: str) -> NDArray[Any]:
        """The array ``name``."""
        try:
            member = self._archive.read(f"{name}.npy")
            array = np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)
        except KeyError:
            raise RecordError(f"{name} is missing") from None
        except Exception as error:  # zipfile and numpy raise a dozen of types
            raise RecordError(f"{name} cannot be read ({error})") from None
        if array.nbytes > len(member):
            raise RecordError(f"{name} has fewer bytes than its shape {array.shape} needs")
        return array


def fitting(name: str, value: Any, fresh: Any) -> Any:
    """Convert the saved ``value`` for a field that holds ``fresh`` at the start of a run.

    Raises ``RecordError`` unless a number has the type of ``fresh``, and an array its type and shape.  Masks,
    NaN and negative counts (single integers, and the ledger's) are refused.  Infinity is allowed: it may be
    the end of a line search's bracket.  Matrices of shape (.., d, d), made in the first round, may replace
    the empty array of shape (0, .., d) that stands for them before.
    """
    if not isinstance(value, _ALLOWED):
        raise RecordError(f"{name} is {one_line(value)}")
    if has_mask(value):
        raise RecordError(f"{name} has a mask")
    array = np.asarray(value)
    if array.dtype.kind in "fc" and np.isnan(array).any():
        raise RecordError(f"{name} has entries that are NaN")
    is_count = array.dtype.kind == "i" and (not array.ndim or name.startswith("ledger."))
    if is_count and (array < 0).any():
        raise RecordError(f"{name} has negative entries")
    if isinstance(fresh, np.ndarray) or kernels.on_device(fresh):
        native = array.dtype.newbyteorder("=")
        shapes = {fresh.shape}
        if fresh.ndim > 1 and not fresh.shape[0] and array.ndim == fresh.ndim:
            shapes.add((*array.shape[:-2], fresh.shape[-1], fresh.shape[-1]))
        if array.shape not in shapes or native != fresh.dtype:
            raise RecordError(
                f"{name} has shape {array.shape} and type {array.dtype}; expected {fresh.shape} and "
                f"{fresh.dtype}"
            )
        array = array.astype(native)  # a copy, in this machine's order of bytes
        return kernels.to_device(array) if kernels.on_device(fresh) else array
    return number(name, array, fresh)


def number(name: str, array: NDArray[Any], fresh: Any) -> Any:
    """The number or text in ``array``, shape (), as the type of ``fresh``.

    Raises ``RecordError`` if it is none, or not exactly representable in this type.
    """
    kind = type(fresh)
    if array.shape == () and array.dtype.kind in ("SU" if isinstance(fresh, str | bytes) else "biufc"):
        item = array.item()
        try:
            if (found := kind(item)) == item or item != item:  # exactly, or no number (NaN) at all
                return found
        except (TypeError, ValueError, OverflowError):
            pass
    raise RecordError(
        f"{name} has shape {array.shape} and type {array.dtype}, where {kind.__name__} is needed"
    )
