"""Divide the rows of a data set among workers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.base.given_arrays import as_array
from mpicomp.keys import Key

SPLITS = ("contiguous", "shuffled", "sorted")
Split = str | tuple[int, ...]
DIRICHLET = re.compile(r"dirichlet\((.+)\)")


def checked_split(split: Any) -> Split:
    """Check ``split``; return its name for ``rows_of``, or a tuple with the worker of each row.

    An integer array becomes a tuple, so that a problem that holds it can be compared and hashed.  Raises
    ``ConfigError`` if it is neither.
    """
    if isinstance(split, str):
        if split not in SPLITS and _alpha(split) is None:
            raise unknown("split", split, (*SPLITS, "dirichlet(ALPHA)"))
        return split
    workers = as_array("split", split)
    if workers.ndim != 1 or workers.dtype.kind not in "iu" or (workers < 0).any() or (workers >= 2**31).any():
        raise ConfigError(
            f"split is of type {workers.dtype} and shape {workers.shape}; allowed: {', '.join(SPLITS)}, "
            "dirichlet(ALPHA), or the number of each row's worker, from 0 upwards."
        )
    return tuple(workers.tolist())


def _alpha(split: str) -> float | None:
    """The alpha of dirichlet(alpha); None if ``split`` is no such text.  Raises ``ConfigError``."""
    match = DIRICHLET.fullmatch(split)
    if match is None:
        return None
    try:
        alpha = float(match[1])
    except ValueError:
        alpha = 0.0
    if not 1e-3 <= alpha <= 1e6:
        raise ConfigError(f"split = {split}: alpha is a number from 0.001 to 1e6, as in dirichlet(0.1).")
    return alpha


def shard_sizes(n: int, y: NDArray[Any], split: Split) -> list[int]:
    """The number of rows of each of n workers; see ``rows_of``."""
    if isinstance(split, str) and split in SPLITS:
        size, longer = divmod(len(y), n)
        return [size + (i < longer) for i in range(n)]
    return np.bincount(_owners(n, y, split, 0), minlength=n).tolist()


def rows_of(i: int, n: int, y: NDArray[Any], split: Split, seed: int = 0) -> slice | NDArray[np.intp]:
    """The indices of the rows of worker i out of n; y, shape (m,), has the labels of all rows.

    The rows are put in an order and cut into n pieces whose lengths differ by at most one, the longer
    pieces first; no row is dropped.  The order is

    * ``contiguous``: the order of the file;
    * ``shuffled``: a random permutation drawn from ``seed``, which does not depend on n;
    * ``sorted``: by label, stably; most workers then hold one class, so the f_i are heterogeneous.

    Two splits make shards of uneven lengths, each with its rows in increasing order:

    * ``dirichlet(alpha)``: the rows of each class, shuffled, are divided among the workers in proportions
      drawn from the Dirichlet distribution with all parameters alpha; a small alpha skews the labels.  The
      draws depend on ``seed``, n and y alone.  A worker left without a row takes the last row of the
      largest shard.
    * a tuple: the number of each row's worker.

    Raises ``ConfigError`` for an unknown split, for more workers than rows, and for a tuple that has
    another length than y, that names a worker beyond n - 1, or that leaves a worker without a row.
    """
    m = len(y)
    if not 1 <= n <= m:
        raise ConfigError(
            f"cannot share {m} rows among {n} workers: every worker needs a row, so 1 <= n <= {m}."
        )
    if not 0 <= i < n:
        raise ConfigError(f"worker {i} is not one of the {n} workers 0..{n - 1}.")
    if not (isinstance(split, str) and split in SPLITS):
        return np.flatnonzero(_owners(n, y, split, seed) == i)
    size, longer = divmod(m, n)
    start = i * size + min(i, longer)
    run = slice(start, start + size + (i < longer))
    match split:
        case "contiguous":
            return run
        case "shuffled":
            stream = Key(seed=seed, round=0, worker=None, n=1).shared("shuffled rows")
            return stream.permutation(m, run.start, run.stop)
    return np.argsort(y, kind="stable")[run]  # sorted


def _owners(n: int, y: NDArray[Any], split: Split, seed: int) -> NDArray[np.intp]:
    """The worker of each row, shape (m,), for the splits of uneven lengths."""
    if not isinstance(split, str):
        return _given(n, len(y), np.array(split, dtype=np.intp))
    alpha = _alpha(split)
    if alpha is None:
        raise unknown("split", split, (*SPLITS, "dirichlet(ALPHA)"))
    owners = np.empty(len(y), dtype=np.intp)
    for c, label in enumerate(np.unique(y)):
        rows = np.flatnonzero(y == label)
        key = Key(seed=seed, round=0, worker=None, n=n).named(f"class {c}")
        rows = rows[key.shared("dirichlet rows").permutation(len(rows), 0, len(rows))]
        shares = _shares(alpha, key.shared("dirichlet shares").uniform(n))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.intp)
        for i, run in enumerate(np.split(rows, cuts)):
            owners[run] = i
    sizes = np.bincount(owners, minlength=n)
    for i in np.flatnonzero(sizes == 0).tolist():
        largest = int(np.argmax(sizes))
        owners[np.flatnonzero(owners == largest)[-1]] = i
        sizes[largest], sizes[i] = sizes[largest] - 1, 1
    return owners


def _shares(alpha: float, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """A Dirichlet draw from uniform numbers u: gamma quantiles over their sum.

    The quantiles are kept as logarithms, because most underflow for a small alpha.  There, the distribution
    function at g is g^alpha / Gamma(alpha + 1), about.
    """
    g = scipy.special.gammaincinv(alpha, u)
    small = (np.log(u) + scipy.special.gammaln(alpha + 1)) / alpha
    logs = np.where(g > 1e-100, np.log(np.maximum(g, 1e-100)), small)
    return scipy.special.softmax(logs)


def _given(n: int, m: int, owners: NDArray[np.intp]) -> NDArray[np.intp]:
    if len(owners) != m:
        raise ConfigError(f"split names the workers of {len(owners)} rows; the data has {m} rows.")
    if owners.max() >= n:
        raise ConfigError(f"split names worker {owners.max()}; the {n} workers are 0..{n - 1}.")
    empty = np.flatnonzero(np.bincount(owners, minlength=n) == 0)
    if empty.size:
        shown = ", ".join(map(str, empty[:10])) + (", ..." if empty.size > 10 else "")
        raise ConfigError(
            f"split gives no row to {empty.size} of the {n} workers ({shown}): every worker needs a row. "
            "Give them rows, or take fewer workers."
        )
    return owners
