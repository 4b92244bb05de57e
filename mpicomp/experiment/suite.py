"""A comparison as a TOML file: one problem, several methods, seeds, and where step sizes are tuned.

title = "Digits, 8 workers"
problem = "logistic(data=digits, lam=1e-3)"
workers = 8
rounds = 2000                    # the most that a run may take
every = "1%"                     # the default; or the number of rounds between observations
seeds = [0, 1, 2, 3, 4]
tuning_seeds = 2                 # the first so many seeds choose step sizes; without it, all of them
down = "f4"                      # the default: lossless broadcasts are rounded to float32, as dense ones are;
                                 # "exact" leaves to each method the precision of its text
target_grad_norm_sq = 1e-6       # further ends of a run, as of ``mpicomp run``; all optional
max_bytes = 100_000_000
max_seconds = 60.0
x = ["rounds", "up", "both", "seconds"]   # the figure's panels, and what they show; see ``AXES``
y = "gradient"

[[method]]
method = "marina(Q=randk(k=0.1), gamma=theory)"
label = "MARINA RandK"           # without it, the method's text
tune = [0, 6]                    # try the step times 2^0 .. 2^6, keep the best; see ``experiment.tuning``

``experiment.fairness`` says what of a comparison a reader should not take for granted.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.compressors import Sparse
from mpicomp.compressors.base import check_choice
from mpicomp.config import parse_method, parse_problem, to_text
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.schedule import FINE, check_every

T = TypeVar("T")

_DEEPEST = 8  # lists and tables in each other: a method's ``tune`` in a case of a study is at 4

# What a figure can show of a run, across and up; ``experiment.figure`` knows how.
AXES = {
    "x": ("rounds", "up", "both", "seconds", "epochs"),
    "y": ("gradient", "f", "error"),
}


def slug(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")


@dataclass(frozen=True)
class Entry:
    """One method of a suite.  ``tune`` is the range of powers of two to try its step size at."""

    method: Method
    label: str
    tune: tuple[int, int] | None = None

    @property
    def slug(self) -> str:
        """The label as the name of a folder."""
        return slug(self.label)

    @property
    def trials(self) -> int:
        """How many step sizes are to be tried."""
        return 0 if self.tune is None else self.tune[1] - self.tune[0] + 1


Piece = tuple[Entry, tuple[int, ...]]  # a method, and some of the seeds to run it with


@dataclass(frozen=True)
class Part:
    """Share ``number`` of ``of``, counted from 1, of a comparison that several jobs work at."""

    number: int
    of: int

    def of_all(self, work: list[T]) -> list[T]:
        """This share of ``work``."""
        return work[self.number - 1 :: self.of]


def parse_part(text: str) -> Part:
    """The part that "2/8" names."""
    numbers = re.fullmatch(r"(\d+)/(\d+)", text)
    if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise ConfigError(f"part {text!r}; allowed: I/N with I from 1 to N, such as 1/4 .. 4/4.")
    return Part(int(numbers[1]), int(numbers[2]))


@dataclass(frozen=True)
class Suite:
    """What to compare.  ``source`` is the text it was read from."""

    title: str
    problem: Problem
    workers: int
    rounds: int
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...] = (0,)
    every: int | str = FINE
    down: str = "f4"
    tuning_seeds: int | None = None
    target_grad_norm_sq: float | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    x: tuple[str, ...] = field(default=("rounds", "up", "both", "seconds"), compare=False)
    y: str = field(default="gradient", compare=False)
    source: str = field(default="", compare=False, repr=False)

    def limits(self) -> dict[str, Any]:
        """What ``run`` is told about how long to go on and how often to look."""
        names = ("workers", *(f.name for f in fields(Limits)))
        return {name: getattr(self, name) for name in names}

    @property
    def seeds_to_tune(self) -> tuple[int, ...]:
        """The seeds that step sizes are chosen with."""
        return self.seeds[: self.tuning_seeds]

    def pieces(self) -> list[Piece]:
        """The work in pieces that do not need each other: the seeds of a method wait for its tuning."""
        work: list[Piece] = []
        for entry in self.entries:
            work += [(entry, self.seeds)] if entry.tune else [(entry, (seed,)) for seed in self.seeds]
        return work


def load_suite(path: str | Path) -> Suite:
    """The suite in the file ``path``.  Raises ``ConfigError``, naming the file, if it is not one."""
    try:
        return parse_suite(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def read_toml(source: str) -> dict[str, Any]:
    """The tables in ``source``.  ``ConfigError`` if it is no TOML, or has a value that nothing here takes."""
    try:
        top = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not a TOML file: {error}.") from None
    except RecursionError:
        raise ConfigError("its values are nested too deeply.") from None
    for key, value in top.items():
        _check_value(key, value)
    return top


def _check_value(key: str, value: Any, depth: int = 0) -> None:
    """Refuse dates, numbers that are not finite, and lists in lists without end."""
    if depth > _DEEPEST:
        raise ConfigError(f"{key} is nested too deeply.")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_value(name, inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_value(key, inner, depth + 1)
    elif not isinstance(value, str | int | float) or value in (inf, -inf) or value != value:
        raise ConfigError(f"{key} = {value}; allowed: a text, a finite number, true, false, a list, a table.")


def parse_suite(source: str) -> Suite:
    """The suite that ``source`` describes."""
    top = read_toml(source)
    _check("suite", top, SETTINGS, required=("problem", "workers", "rounds", "method"))
    _check_seeds(top.get("seeds", [0]))
    for key in ("workers", "rounds", "tuning_seeds"):
        if top.get(key, 1) < 1:
            raise ConfigError(f"{key} = {top[key]}; allowed: a positive integer.")
    check_every(top.get("every", FINE))
    check_choice("down", down := top.get("down", "f4"), ("exact", "f8", "f4", "f2", "bf16"))
    x, y = top.pop("x", ["rounds", "up", "both", "seconds"]), top.pop("y", "gradient")
    if not x:
        raise ConfigError(f"x = []; allowed: some of {', '.join(AXES['x'])}.")
    for axis, names in (("x", x), ("y", [y])):
        for name in names:
            if name not in AXES[axis]:
                raise unknown(f"{axis} axis", str(name), AXES[axis])
    entries = tuple(_entry(table, down) for table in top.pop("method"))
    _check_labels(entries)
    problem = parse_problem(top.pop("problem"))
    return Suite(
        title=top.pop("title", to_text(problem)),
        problem=problem,
        entries=entries,
        seeds=tuple(top.pop("seeds", [0])),
        x=tuple(x),
        y=y,
        source=source,
        **top,
    )


SETTINGS: dict[str, Any] = {
    "title": str,
    "problem": str,
    "workers": int,
    "rounds": int,
    "every": int | str,
    "down": str,
    "seeds": list,
    "tuning_seeds": int,
    "target_grad_norm_sq": int | float,
    "max_bytes": int,
    "max_seconds": int | float,
    "x": list,
    "y": str,
    "method": list,
}
_METHOD: dict[str, Any] = {"method": str, "label": str, "tune": list}


def _entry(table: Any, down: str) -> Entry:
    if not isinstance(table, dict):
        raise ConfigError("each method is a table of its own, headed [[method]].")
    _check("[[method]]", table, _METHOD, required=("method",))
    method = parse_method(table["method"])
    label = table.get("label", to_text(method))
    method = with_downlink(method, down)
    tune = table.get("tune")
    if tune is None:
        return Entry(method, label)
    if len(tune) != 2 or any(type(e) is not int or abs(e) > 64 for e in tune) or tune[0] > tune[1]:
        raise ConfigError(f"tune = {tune}; allowed: [lo, hi], the powers of two to multiply the step by.")
    return Entry(method, label, (tune[0], tune[1]))


def with_downlink(method: Method, values: str) -> Method:
    """``method`` with a lossless broadcast, if it has one, in the format ``values``."""
    lossless = getattr(method, "down", None) == Sparse() and any(f.name == "down" for f in fields(method))
    return replace(method, down=Sparse(values)) if lossless else method  # type: ignore[call-arg]


def _check(what: str, table: dict[str, Any], allowed: dict[str, Any], required: Iterable[str]) -> None:
    """Refuse a table with a key that is unknown, missing, or of the wrong type."""
    for key, value in table.items():
        if key not in allowed:
            raise unknown(f"key of a {what}", key, allowed)
        if isinstance(value, bool) or not isinstance(value, allowed[key]):
            kind = getattr(allowed[key], "__name__", str(allowed[key]))
            raise ConfigError(f"{key} = {value!r}; allowed: a value of type {kind}.")
    if missing := [key for key in required if key not in table]:
        raise ConfigError(f"a {what} needs {' and '.join(missing)}.")


def _check_seeds(seeds: list[Any]) -> None:
    if not seeds or any(type(s) is not int or s < 0 for s in seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds = {seeds}; allowed: a list of different non-negative integers.")


def _check_labels(entries: tuple[Entry, ...]) -> None:
    if not entries:
        raise ConfigError("a suite needs a [[method]].")
    seen: dict[str, str] = {}
    for entry in entries:
        if not entry.slug or entry.slug in seen:
            other = f": too much like {seen[entry.slug]!r}" if entry.slug in seen else ""
            raise ConfigError(
                f"label = {entry.label!r}{other}. Labels name folders and must differ in letters or digits."
            )
        seen[entry.slug] = entry.label
