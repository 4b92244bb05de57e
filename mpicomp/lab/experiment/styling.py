"""The options of a figure: axes, limits, bands, style.  Commands and Python give them the same names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.lab.experiment.suite import AXES, X

Y = (*AXES["y"], "f-f*")
BANDS = ("range", "quantile", "none")
FORMATS = ("png", "pdf", "svg")
FARTHEST = 1e200  # matplotlib fails to put ticks on an axis that ends near the largest float

Range = tuple[float | None, float | None]


@dataclass(frozen=True)
class Style:
    """Sizes of a figure.

    panel   width and height of a panel, inches
    font    size of the text of the axes, points
    line    width of a curve, points
    titled  whether the figure has a title; in a paper the caption says it
    """

    panel: tuple[float, float]
    font: float
    line: float
    titled: bool = True


STYLES = {
    "screen": Style((5.0, 3.6), 14.0, 2.0),
    "paper": Style((3.3, 2.3), 8.0, 1.2, titled=False),
    "talk": Style((6.2, 4.4), 20.0, 3.2),
}


@dataclass(frozen=True)
class Look:
    """How a figure looks.  None leaves the choice to the suite, or the limits to the data.

    x, y    names out of ``X`` and ``Y``
    style   "screen"; "paper", as wide as a column, at its real size; or "talk", with large text
    bands   over the seeds: "range", least to largest; "quantile", the quartiles; or "none"
    xlim    the ends of the x axis, either of them None to leave it to the data
    ylim    the ends of the y axis
    labels  the names of the curves, in their order; empty leaves them as they are
    """

    x: tuple[str, ...] | None = None
    y: str | None = None
    style: str = "screen"
    bands: str = "range"
    xlim: Range | None = None
    ylim: Range | None = None
    labels: tuple[str, ...] = ()


PLAIN = Look()


def as_look(
    x: str | Sequence[str] | None = None,
    y: str | None = None,
    style: str = "screen",
    bands: str = "range",
    xlim: str | Sequence[float | None] | None = None,
    ylim: str | Sequence[float | None] | None = None,
    labels: Sequence[str] | None = None,
) -> Look:
    """The look that these words ask for; limits are (A, B) or the text A:B, either end left out.

    Raises ``ConfigError`` for a word that is not allowed, for limits of several x axes, and for labels that
    are not texts.
    """
    axes = None
    if x is not None:
        words = [word.strip() for word in x.split(",")] if isinstance(x, str) else _entries("x", x)
        axes = tuple(dict.fromkeys(X[_one_of("x axis", word, X)] for word in words))
        if not axes:
            raise ConfigError(f"x = {x!r}; allowed: one or more of {', '.join(X)}.")
    if xlim is not None and (axes is None or len(axes) > 1):
        raise ConfigError("xlim is of one x axis, and there may be several. Choose one, such as x = bytes.")
    return Look(
        axes,
        None if y is None else _one_of("y axis", y, Y),
        _one_of("style", style, STYLES),
        _one_of("bands", bands, BANDS),
        _limits("xlim", xlim),
        _limits("ylim", ylim),
        _labels(labels),
    )


def check_format(name: str) -> str:
    """``name`` if it is a format of figures.  Raises ``ConfigError`` if it is none."""
    return _one_of("format", name, FORMATS)


def _labels(given: Any) -> tuple[str, ...]:
    labels = () if given is None else given
    texts = isinstance(labels, list | tuple) and all(isinstance(one, str) and one.strip() for one in labels)
    if not texts:
        raise ConfigError(f"labels = {given!r}; allowed: a list of texts, one for each curve.")
    return tuple(labels)


def _one_of(kind: str, name: str, allowed: Collection[str]) -> str:
    if not isinstance(name, str) or name not in allowed:
        raise unknown(kind, str(name), allowed)
    return name


def _entries(name: str, given: Any) -> list[Any]:
    """The entries of a list or the like.  Raises ``ConfigError`` if ``given`` has no entries."""
    if not isinstance(given, Iterable):
        raise ConfigError(f"{name} = {given!r}; allowed: a text, or a list.")
    return list(given)


def _limits(name: str, given: str | Sequence[float | None] | None) -> Range | None:
    if given is None:
        return None
    ends = [] if isinstance(given, str) else _entries(name, given)
    shown = given if isinstance(given, str) else ":".join("" if end is None else str(end) for end in ends)
    try:
        low, high = (float(end) if end.strip() else None for end in shown.split(":"))
    except ValueError:
        low = high = None
    known = [end for end in (low, high) if end is not None]
    if not known or not all(-FARTHEST <= end <= FARTHEST for end in known) or known != sorted(set(known)):
        raise ConfigError(
            f"{name} = {shown!r}; allowed: A:B with numbers A < B up to {FARTHEST:g}, such as 0:1e6, or one "
            "end alone, A: or :B. In Python (A, B), where None leaves an end out."
        )
    return low, high
