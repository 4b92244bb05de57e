"""What a figure shows of one problem: the curves, and the quantities on the axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import copysign

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError, DataError
from mpicomp.lab.experiment.canvas import drawable
from mpicomp.lab.experiment.styling import FARTHEST, PLAIN, STYLES, Look, Style
from mpicomp.problems import Problem
from mpicomp.runtime.rows import Row

Value = Callable[[Row], float]  # the number in a row that an axis shows

# What a subtitle says of the seeds, by bands.
SEEDS = {"range": "median and range of", "quantile": "median and quartiles of", "none": "median of"}


def _number(value: float | None) -> float:
    """``value``, NaN for what was not observed."""
    return np.nan if value is None else value


VERTICAL: dict[str, tuple[str, Value]] = {
    "gradient": (r"$\|\nabla f(x)\|^2$", lambda row: _number(row.grad_norm_sq)),
    "f": ("$f(x)$", lambda row: _number(row.f)),
    "f-f*": (r"$f(x)-f^\star$", lambda row: _number(row.f)),  # ``heights_of`` subtracts f*
    # It is 0 at the start, and None without error feedback.
    "error": (r"total error $\sum_k\,\|e^k\|^2$", lambda row: row.error or np.nan),
}


@dataclass(frozen=True)
class Picture:
    """The curves and marks in the panels of one problem.

    n        number of workers
    curves   label -> the runs of that method, one for each seed, each a list of rows
    target   the squared gradient norm to mark, if any
    x, y     names out of ``suite.AXES``; each x gets a panel
    missing  a text that names the runs that cannot be drawn
    problem  the problem, which may know its minimum f*
    data     the fingerprint of the data that was run on, if it was recorded
    full     whether f of all rows is that of all samples and all workers, as the problem's f* is
    look     style, bands and limits
    """

    title: str
    subtitle: str
    n: int
    curves: dict[str, list[list[Row]]]
    target: float | None = None
    x: tuple[str, ...] = ("rounds", "up", "both", "seconds")
    y: str = "gradient"
    missing: str = ""
    problem: Problem | None = None
    data: str | None = None
    full: bool = True
    look: Look = PLAIN

    @property
    def style(self) -> Style:
        """The sizes of the figure."""
        return STYLES[self.look.style]

    def with_look(self, look: Look) -> Picture:
        """The picture with this look, and with the axes and labels that the look names.

        Raises ``ConfigError`` if there are not as many different labels as curves.
        """
        subtitle, curves = self.subtitle.replace(SEEDS["range"], SEEDS[look.bands]), self.curves
        if look.labels:
            labels = dict.fromkeys(map(drawable, look.labels))
            if not len(look.labels) == len(labels) == len(curves):
                raise ConfigError(
                    f"the labels are {'; '.join(look.labels)}; allowed: a different one for each curve, in "
                    f"this order: {'; '.join(curves)}."
                )
            curves = dict(zip(labels, curves.values(), strict=True))
        return replace(
            self, x=look.x or self.x, y=look.y or self.y, subtitle=subtitle, curves=curves, look=look
        )


def horizontal(n: int) -> dict[str, tuple[str, Value]]:
    """The label and the value of each x axis; byte counts are divided by n, the number of workers."""
    return {
        "rounds": ("rounds", lambda row: row.round),
        "up": ("uplink bytes per worker", lambda row: row.up_bytes / n),
        "both": (
            "bytes in both directions, per worker",
            lambda row: (row.up_bytes + row.down_bytes) / n,
        ),
        "seconds": ("seconds", lambda row: row.seconds),
        "epochs": ("passes over the samples", lambda row: row.epochs),
    }


def height_label(picture: Picture) -> str:
    if picture.y == "f-f*" and minimum(picture)[1]:
        return r"$f(x)-\min\,f$ of all rows"  # f* is not known
    return VERTICAL[picture.y][0]


def minimum(picture: Picture) -> tuple[float, bool]:
    """f*, or else the least f in the picture; and whether it is the latter."""
    problem = picture.problem
    if problem is not None and picture.full:
        with suppress(ConfigError, DataError):  # the problem gives no constants, or its data are gone
            on_these = picture.data in (None, problem.fingerprint())  # a file may have changed since the run
            if on_these and (known := problem.constants(picture.n).f_star) is not None:
                return known, False
    seen = (_number(row.f) for runs in picture.curves.values() for rows in runs for row in rows)
    return min(seen, default=0.0), True  # a problem without curves has no rows


def heights_of(picture: Picture) -> Value:
    """The value that the y axis shows.  Rounding may put f below f*: such a row has the value 0.

    Values beyond ``FARTHEST``, of a run that diverges, are infinite: no curve shows them.
    """
    value = VERTICAL[picture.y][1]
    least = minimum(picture)[0] if picture.y == "f-f*" else None

    def height(row: Row) -> float:
        found = value(row) if least is None else max(value(row) - least, 0.0)
        return copysign(np.inf, found) if abs(found) > FARTHEST else found

    return height


def band(runs: Sequence[Sequence[Row]], x: Value, y: Value, bands: str) -> tuple[NDArray[np.float64], ...]:
    """For each observation, over the seeds: median x; then median, least and largest y, or its quartiles.

    Four arrays of one length.  The observations are those of the median run after rounds at which each run
    has a row, or has ended: runs may have been recorded after other rounds.  A run that ended earlier counts
    with its last y; the median x is taken over the runs that go on.
    """
    if len(runs) == 1:  # which may have two rows after one round, where ranks have died
        across, metric = (np.array([[value(row) for row in runs[0]]], float) for value in (x, y))
    else:
        by_round = [{row.round: row for row in rows} for rows in runs]
        recorded = [(rows, max(rows)) for rows in by_round]
        median, _ = sorted(recorded, key=lambda pair: pair[1])[len(runs) // 2]
        rounds = [k for k in median if all(k in rows or k > end for rows, end in recorded)]
        across = np.array([[x(rows[k]) if k in rows else np.nan for k in rounds] for rows in by_round], float)
        metric = np.array([[y(rows[min(k, end)]) for k in rounds] for rows, end in recorded], float)
    # The median may fall when a run ends and leaves it to the others.
    along = np.maximum.accumulate(np.nanmedian(across, axis=0))
    low, high = (0.25, 0.75) if bands == "quantile" else (0.0, 1.0)
    with np.errstate(invalid="ignore"):  # of infinite values, which are not drawn
        return along, np.median(metric, axis=0), *np.quantile(metric, [low, high], axis=0)
