"""Read what a user gives as numpy's arrays: lists, torch tensors, data of pandas, sparse matrices.

``as_array`` converts it, and refuses masks.  ``in_full`` hashes it, so that other data are noticed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from hashlib import sha256
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, MpicompError

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the text of an object that has none of its own
# numpy's and pandas' own defaults; in a terminal pandas shows as many columns as fit.
_NUMPY_PRINTS: dict[str, Any] = {"precision": 8, "threshold": 1000, "edgeitems": 3, "linewidth": 75}
_NUMPY_PRINTS |= {"suppress": False, "nanstr": "nan", "infstr": "inf", "sign": "-", "floatmode": "maxprec"}
_NUMPY_PRINTS |= {"formatter": None, "legacy": False}
_PANDAS_PRINTS: tuple[Any, ...] = ("display.width", 80, "display.max_columns", 20, "display.max_rows", 60)
_PANDAS_PRINTS += ("display.min_rows", 10, "display.precision", 6, "display.show_dimensions", "truncate")
PLAIN = {float, int, bool, str}  # types of a list's entries that cannot hold a mask


def refuse_mask(what: str, given: Any, error: type[MpicompError] = ConfigError) -> None:
    """Raise ``error`` if ``given``, or an array in the list ``given``, has a mask.

    ``what`` names ``given`` in the message.  numpy drops a mask silently when it converts an array, and then
    masked entries would count.
    """
    if _masked(given):
        raise error(
            f"{what} has a mask, which would be ignored; allowed: arrays without one. Leave the masked "
            "entries out, or fill them in, as .filled(0) does."
        )


def _masked(given: Any) -> bool:
    if isinstance(given, (list, tuple)):  # a ``list | tuple`` is made at each call
        return not PLAIN.issuperset(map(type, given)) and any(map(_masked, given))
    return has_mask(given) or type(given).__name__ == "MaskedTensor"


def has_mask(given: Any) -> bool:
    """Whether ``given`` is an array with a mask: numpy's, or one of astropy's, which is no MaskedArray."""
    if not isinstance(given, np.ndarray):
        return False
    mask = getattr(given, "mask", None)  # of other classes also None, a method, or a column of that name
    return isinstance(given, np.ma.MaskedArray) or getattr(mask, "dtype", None) == np.bool_


def readable(given: Any) -> Any:
    """``given`` itself, unless it is a torch tensor: then that tensor detached, 16-bit floats as float32.

    numpy can read the result if the tensor is on the CPU; a tensor on a GPU stays there.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(given, torch.Tensor):
        return given
    given = given.detach().resolve_conj().resolve_neg()
    return given.float() if given.dtype in (torch.bfloat16, torch.float16) else given


def as_array(what: str, given: Any, error: type[MpicompError] = ConfigError) -> NDArray[Any]:
    """``given`` as a numpy array, copied only if it has to be.

    Raises ``error``, which names it ``what``, if it has a mask, is ragged, or cannot be read.
    """
    refuse_mask(what, given, error)
    try:
        array = np.asanyarray(readable(given))  # which keeps a mask, where ``asarray`` drops it
    except (ValueError, TypeError, RuntimeError) as fault:
        if "inhomogeneous" in str(fault):
            raise error(f"{what} is ragged; allowed: rows of one length.") from None
        reason = str(fault).partition("\n")[0].rstrip(".")
        raise error(f"{what}, a {type(given).__name__}, cannot be read as an array: {reason}.") from None
    refuse_mask(what, array, error)
    return np.asarray(array)


def in_full(value: object) -> str:
    """``repr(value)``, and the SHA-256 of the arrays in it, in fields that it shows, dicts, lists and tuples.

    numpy leaves out digits, and most entries of a long array, so that two of them may look alike.  So do
    tensors, sparse matrices and data of pandas, which are hashed as the arrays that they consist of.
    """
    arrays = [*_arrays(value)]
    if not arrays:
        return repr(value)
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        entries = np.ascontiguousarray(array).reshape(-1)  # mostly no copy: it may be all data of a problem
        digest.update(entries.view(np.uint8).data)
    with _default_print_options():
        return f"{value!r}, sha256 {digest.hexdigest()[:12]}"


@contextmanager
def _default_print_options() -> Iterator[None]:
    """Have arrays and tables look alike in a terminal, in a job, and whatever print options are set."""
    with ExitStack() as entered:
        entered.enter_context(np.printoptions(**_NUMPY_PRINTS))
        if (pandas := sys.modules.get("pandas")) is not None:
            entered.enter_context(pandas.option_context(*_PANDAS_PRINTS))
        yield


def _arrays(value: Any) -> Iterator[NDArray[Any]]:
    value = _in_arrays(value)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:  # whose bytes are addresses
            held = value.reshape(-1).tolist()
            yield from _arrays(held)
            with _default_print_options():
                text = ADDRESS.sub("", repr(held))
            value = np.frombuffer(f"{value.shape} {text}".encode(), np.uint8)
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _arrays([getattr(value, f.name) for f in fields(value) if f.repr])
    elif isinstance(value, dict):
        yield from _arrays([*value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _arrays(one)


def _in_arrays(value: Any) -> Any:
    """The arrays that hold a masked array, a tensor, a sparse matrix or data of pandas; else ``value``."""
    if has_mask(value):
        return [np.asarray(value), np.asarray(value.mask)]
    torch, sparse, pandas = map(sys.modules.get, ("torch", "scipy.sparse", "pandas"))
    if torch is not None and isinstance(value, torch.Tensor):
        return readable(value).to_dense().cpu().numpy()
    if sparse is not None and sparse.issparse(value):
        held = vars(value if hasattr(value, "indptr") else value.tocoo())  # mostly no copy
        return [held[name] for name in sorted(held)]  # their order depends on how it was made
    if pandas is not None and isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, j].to_numpy() for j in range(value.shape[1])]  # each of its own type
        return [value.index.to_numpy(), value.columns.to_numpy(), *columns]
    if pandas is not None and isinstance(value, pandas.Series):
        return [value.index.to_numpy(), value.to_numpy()]
    if pandas is not None and isinstance(value, pandas.Index | pandas.api.extensions.ExtensionArray):
        return value.to_numpy()
    return value


def is_finite(x: Any) -> bool:
    """Whether all entries of x are finite; it may be on a GPU."""
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum that is finite has finite terms; the converse is only checked when it fails.
        return isfinite(x.sum()) or bool(np.isfinite(x).all())


def refuse_nonfinite(what: str, x: NDArray[Any]) -> None:
    """Raise ``ConfigError`` if an entry of x, called ``what``, is NaN or infinite."""
    if not np.isfinite(x).all():
        raise ConfigError(f"{what} is not finite in {np.sum(~np.isfinite(x))} of its {x.size} coordinates.")
