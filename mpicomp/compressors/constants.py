"""Check the omega and alpha that a compressor states; theorems compute step sizes from them."""

from __future__ import annotations

from math import inf
from numbers import Real

from mpicomp.base.errors import ConfigError
from mpicomp.compressors.base import Compressor, Contractive, Unbiased


def omega(C: Unbiased, d: int, n: int) -> float:
    """C's omega.  Raises ``ConfigError`` unless it is a finite number, at least 0."""
    value = C.omega(d, n)
    if not (isinstance(value, Real) and 0 <= value < inf):
        raise ConfigError(f"{C}: omega({d}, {n}) = {value!r}; allowed: a finite number from 0 on.")
    return float(value)


def alpha(C: Contractive, d: int, n: int) -> float:
    """C's alpha.  Raises ``ConfigError`` unless it is a number in (0, 1]."""
    value = C.alpha(d, n)
    if not (isinstance(value, Real) and 0 < value <= 1):
        raise ConfigError(f"{C}: alpha({d}, {n}) = {value!r}; allowed: a number above 0 and at most 1.")
    return float(value)


def check_constants(C: Compressor, d: int, n: int) -> None:
    """Raise ``ConfigError`` if C, of a user's own class, states an omega or alpha that cannot be one."""
    if type(C).__module__.partition(".")[0] == "mpicomp":
        return
    if isinstance(C, Unbiased):
        omega(C, d, n)
    if isinstance(C, Contractive):
        alpha(C, d, n)
