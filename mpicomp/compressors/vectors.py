"""Refuse what is no vector of real numbers: numpy would drop a mask, or an imaginary part, without a word."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import refuse_mask

_USUAL = {np.dtype(np.float32), np.dtype(np.float64)}


def take_vectors(cls: type) -> None:
    """Wrap ``compress`` and ``compress_difference`` where ``cls`` defines them."""
    careful = {"compress": compressing, "compress_difference": differing}
    for name in careful.keys() & vars(cls).keys():
        setattr(cls, name, careful[name](vars(cls)[name]))


def compressing(compress: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``compress``: it raises ``ConfigError`` unless x is a vector of real numbers."""

    @wraps(compress)
    def careful(self: Any, x: Any, key: Any) -> Any:
        return compress(self, x if _is_usual(x) else _real("x", x), key)

    return careful


def differing(compress_difference: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``compress_difference``: as ``compressing``, for x and y, which have one length."""

    @wraps(compress_difference)
    def careful(self: Any, x: Any, y: Any, key: Any) -> Any:
        if not (_is_usual(x) and _is_usual(y)):
            x, y = _real("x", x), _real("y", y)
        if x.size != y.size:
            raise ConfigError(
                f"x has {x.size} entries and y has {y.size}; their difference needs one length."
            )
        return compress_difference(self, x, y, key)

    return careful


def _is_usual(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in _USUAL and x.ndim == 1


def _real(name: str, x: Any) -> Any:
    """x; integers and 16-bit floats as float64, which has a magnitude and a difference for all of them.

    Raises ``ConfigError`` unless x is a vector without a mask, of real numbers of at most 64 bits.
    """
    refuse_mask(name, x)
    if isinstance(x, np.ndarray) or kernels.on_device(x):
        if x.ndim == 1 and x.dtype.kind in "fiub" and x.dtype.itemsize <= 8:
            return x if x.dtype.kind == "f" and x.dtype.itemsize > 2 else x.astype(np.float64)
        what = f"an array of shape {x.shape} and type {x.dtype}"
    else:
        what = f"a {type(x).__name__}"
    raise ConfigError(
        f"{name} is {what}; a compressor takes an array of shape (d,) of real numbers, such as float64."
    )
