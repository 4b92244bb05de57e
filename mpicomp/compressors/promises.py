"""Check that a compressor, such as one of your own, keeps what its class promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, log, sqrt
from typing import Any

import numpy as np

from mpicomp.base.arrays import Reals
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import as_integer
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import constants
from mpicomp.compressors.base import Absolute, Compressor, Contractive, Unbiased
from mpicomp.keys import Key

_SIGMAS = 6  # standard errors by which a mean may miss its bound
# Test vectors without an entry that matters more than the others.
_DENSE = ("normal numbers", "equal entries")


def check_compressor(
    C: Compressor,
    d: int = 64,
    n: int = 2,
    draws: int = 2000,
    rounding: float = 1e-6,
    sizes: Sequence[float] = (1e-30, 1e30),
) -> None:
    """Check what ``Compressor`` and the class of C promise, on vectors of d entries and n workers.

    * A message is a vector of bytes, a function of x and the key alone.  It has ``nbytes(d)`` bytes, unless
      that is None.  ``paper_bits`` is a count.
    * ``decompress_add`` adds C(x) times the scale, to double and single precision.
    * ``Unbiased``: E C(x) = x, E |C(x) - x|² <= omega |x|², and with n > 1 the AB-inequality of ``ab``.
      ``Contractive``: E |C(x) - x|² <= (1 - alpha) |x|².  ``Absolute``: |C(x) - x|² <= delta.

    x are vectors of normal numbers, of Student's with 3 degrees of freedom, of one entry, of two equal ones,
    of equal entries, of falling ones, and 0, and normal numbers times each of ``sizes``, which float16 would
    make 0 or infinite.  A constant that is wrong for other vectors alone is not found.
    A mean is over ``draws`` keys, the same in each call.  It may miss its bound by six standard errors, and
    by 14 / ``draws`` of the largest error for rare events: a compressor that keeps its promises fails with a
    probability below 1e-6 as far as the means are normal.
    C(x) may be off by ``rounding`` |x| besides: 1e-6 suits values of single precision, 0.004 bfloat16.

    Raises ``ConfigError`` that names the first promise broken, and whatever C raises.
    """
    if not isinstance(C, Compressor):
        raise ConfigError(f"C={C!r}; allowed: a compressor, an object of a class derived from Compressor.")
    d, n, draws = as_integer("d", d), as_integer("n", n), as_integer("draws", draws, least=100)
    if not 0 <= rounding < 1:
        raise ConfigError(f"rounding={rounding!r}; allowed: a number from 0 on and below 1.")
    for name, x in _vectors(d):
        _check_message(C, x, n)
        _check_sum(C, x, n)
        _check_error(C, name, x, n, draws, rounding, dense=name in _DENSE)
    for size in sizes:
        x = size * np.random.default_rng(0).standard_normal(d)
        try:
            _check_message(C, x, n)
            _check_sum(C, x, n)
            _check_error(C, "these", x, n, draws, rounding, dense=True)
        except ConfigError as error:
            raise ConfigError(
                f"with normal numbers times {size:g}, {error} Send numbers and scales in a format of such a "
                "range, as float32; or give other sizes here, none by sizes=()."
            ) from None
    if isinstance(C, Unbiased) and n > 1:
        _check_mean_of_workers(C, d, n, draws, rounding)


def _vectors(d: int) -> Iterator[tuple[str, Reals]]:
    """The test vectors, each with its name."""
    draw = np.random.default_rng(0)
    one, two = np.zeros(d), np.zeros(d)
    one[d // 2] = 3.0
    two[[0, -1]] = -0.5
    yield "normal numbers", draw.standard_normal(d)
    yield "Student's numbers with 3 degrees of freedom", draw.standard_t(3, d)
    yield "one entry", one
    yield "two equal entries", two
    yield "equal entries", np.ones(d)
    yield "falling entries", 0.9 ** np.arange(d) * (-1.0) ** np.arange(d)
    yield "0", np.zeros(d)


def _key(t: int, i: int, n: int) -> Key:
    return Key(seed=0, round=t, worker=i, n=n)


def _check_message(C: Compressor, x: Reals, n: int) -> None:
    key = _key(0, 0, n)
    message: Any = C.compress(x, key)
    if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.ndim != 1:
        what = getattr(message, "dtype", type(message).__name__)
        raise _broken(C, f"compress gave {what}; allowed: a vector of bytes, uint8")
    if C.compress(x, key).tobytes() != message.tobytes():
        raise _broken(C, "two messages for the same x and key differ; draw from key.private or key.shared")
    expected = C.nbytes(x.size)
    if expected is not None and expected != message.size:
        raise _broken(C, f"nbytes({x.size}) is {expected}, and a message has {message.size} bytes")
    bits: Any = C.paper_bits(message, x.size, key)
    if not isinstance(bits, int | np.integer) or bits < 0:
        raise _broken(C, f"paper_bits is {bits!r}; allowed: an integer from 0 on")


def _check_sum(C: Compressor, x: Reals, n: int) -> None:
    key = _key(0, 0, n)
    message = C.compress(x, key)
    value, start = _decoded(C, message, x.size, key), np.linspace(-1.0, 2.0, x.size)
    for dtype, rounding in (("float64", 1e-12), ("float32", 1e-6)):
        out = start.astype(dtype)
        C.decompress_add(message, out, key, -0.5)
        if np.abs(out - (start - 0.5 * value)).max() > rounding * (2.0 + np.abs(value).max()):
            raise _broken(C, f"decompress_add does not add scale * C(x) to a vector of {dtype}")


def _check_error(
    C: Compressor, name: str, x: Reals, n: int, draws: int, rounding: float, dense: bool
) -> None:
    """Compare the means of C(x) - x and of its square with the constants of the class."""
    bound, constant = _bound(C, x, n)
    if bound == inf:
        return
    total, squares, length = np.zeros(x.size), np.empty(draws), sqrt(_square(x))
    for t in range(draws):
        key = _key(t, 0, n)
        error = _decoded(C, C.compress(x, key), x.size, key) - x
        total += error
        squares[t] = _square(error)
    absolute, mean = isinstance(C, Absolute), float(squares.mean())
    worst, what = (squares.max(), "|C(x) - x|²") if absolute else (mean, "E |C(x) - x|²")
    if worst - (0.0 if absolute else _slack(squares)) > (sqrt(bound) + rounding * length) ** 2:
        raise _broken(C, f"{what} is {worst:.4g} for {name}, and {constant} allows {bound:.4g}")
    if isinstance(C, Unbiased):
        # Entries of a sparse x may fall in few draws or none; omega then bounds the variance.
        bias = sqrt(_square(total / draws))
        variance = mean - bias**2 if dense else max(bound, mean)
        if bias > _SIGMAS * sqrt(max(variance, 0.0) / draws) + rounding * length:
            raise _broken(C, f"|E C(x) - x| is {bias / length:.4g} |x| for {name}; allowed: 0")


def _check_mean_of_workers(C: Unbiased, d: int, n: int, draws: int, rounding: float) -> None:
    """Check the AB-inequality, for equal vectors and for others."""
    A, B = C.ab(d, n)
    others = np.random.default_rng(1).standard_normal((n, d))
    for name, a in (("equal vectors", np.tile(others[0], (n, 1))), ("different vectors", others)):
        squares = np.empty(draws)
        for t in range(draws):
            keys = [_key(t, i, n) for i in range(n)]
            decoded = [_decoded(C, C.compress(v, key), d, key) for v, key in zip(a, keys, strict=True)]
            squares[t] = _square(np.mean(decoded, axis=0) - a.mean(axis=0))
        bound = A * _square(a) / n - B * _square(a.mean(axis=0))
        slack = rounding * sqrt(_square(a) / n)
        if squares.mean() - _slack(squares) > (sqrt(max(bound, 0.0)) + slack) ** 2:
            raise _broken(
                C,
                f"E |mean C_i(a_i) - mean a_i|² is {squares.mean():.4g} for {name} on {n} workers, and ab "
                f"allows {bound:.4g}; draws from key.private are independent",
            )


def _bound(C: Compressor, x: Reals, n: int) -> tuple[float, str]:
    """The bound on the squared error, infinite for a class that has none, and the constant it is made of."""
    d = x.size
    if isinstance(C, Unbiased):
        omega = constants.omega(C, d, n)
        return omega * _square(x), f"omega({d}, {n}) = {omega:.4g}"
    if isinstance(C, Contractive):
        alpha = constants.alpha(C, d, n)
        return (1 - alpha) * _square(x), f"alpha({d}, {n}) = {alpha:.4g}"
    if isinstance(C, Absolute):
        delta = C.delta(d)
        if not 0 <= delta < inf:
            raise _broken(C, f"delta({d}) = {delta}; allowed: a finite number from 0 on")
        return delta, f"delta({d})"
    return inf, ""


def _decoded(C: Compressor, message: Bytes, d: int, key: Key) -> Reals:
    value: Any = C.decompress(message, d, key)
    if not isinstance(value, np.ndarray) or value.shape != (d,) or not np.isfinite(value).all():
        raise _broken(C, f"decompress gave no vector of {d} finite numbers")
    return value


def _slack(squares: Reals) -> float:
    """How much the mean of these may exceed its expectation.

    Six standard errors, and a part of the largest, as in Bernstein's inequality: rare events may be missed.
    """
    return float(_SIGMAS * squares.std() / sqrt(squares.size) + log(1e6) * squares.max() / squares.size)


def _square(x: Reals) -> float:
    """|x|²"""
    return float(np.sum(np.square(x)))


def _broken(C: Compressor, what: str) -> ConfigError:
    return ConfigError(f"{C}: {what}.")
