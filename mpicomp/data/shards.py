"""How the rows of a data set are divided among workers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.keys import Key

SPLITS = ("contiguous", "shuffled", "sorted")


def rows_of(
    i: int, n: int, y: NDArray[np.float64] | NDArray[np.uint8], split: str, seed: int = 0
) -> slice | NDArray[np.intp]:
    """The indices of the rows of worker i out of n; y, shape (m,), has the labels of all rows.

    The rows are put in an order and cut into n runs whose lengths differ by at most one, the longer
    runs first; no row is dropped.  The order is

    * ``contiguous``: the order of the file;
    * ``shuffled``: a random permutation drawn from ``seed``, which does not depend on n;
    * ``sorted``: by label, stably; most workers then hold one class, so the f_i are heterogeneous.

    Raises ``ConfigError`` for an unknown split and for more workers than rows.
    """
    m = len(y)
    if not 1 <= n <= m:
        raise ConfigError(
            f"cannot share {m} rows among {n} workers: every worker needs a row, so 1 <= n <= {m}."
        )
    if not 0 <= i < n:
        raise ConfigError(f"worker {i} is not one of the {n} workers 0..{n - 1}.")
    size, longer = divmod(m, n)
    start = i * size + min(i, longer)
    run = slice(start, start + size + (i < longer))
    match split:
        case "contiguous":
            return run
        case "shuffled":
            stream = Key(seed=seed, round=0, worker=None, n=1).shared("shuffled rows")
            return stream.permutation(m, run.start, run.stop)
        case "sorted":
            return np.argsort(y, kind="stable")[run]
    raise unknown("split", split, SPLITS)
