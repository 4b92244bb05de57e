"""A comparison as a TOML file: one problem, several methods, seeds, and ranges to tune step sizes in.

title = "Digits, 8 workers"
problem = "logistic(data=digits, lam=1e-3)"
workers = 8
rounds = 2000                    # the largest number of rounds of a run
every = "1%"                     # how often a row is recorded: this default, or a number of rounds; ..
# at = [1, 2, 10, 100]           # .. or after which rounds, besides the start and the end
observe = "full"                 # f and ∇f on all samples: the default; or on that many of each worker's
seeds = [0, 1, 2, 3, 4]
tuning_seeds = 2                 # choose step sizes with the first 2 seeds; by default with all
down = "f4"                      # the default: lossless broadcasts are rounded to float32, as dense ones are.
                                 # "exact" keeps the precision that each method's text asks for
target_grad_norm_sq = 1e-6       # extra stopping conditions, as of ``mpicomp run``; all optional
max_bytes = 100_000_000
max_seconds = 60.0
x = ["rounds", "up", "both", "seconds"]   # the x axes of the figure's panels; see ``suite.AXES``
y = "gradient"                   # the y axis of all panels

[[method]]
method = "marina(Q=randk(k=0.1), gamma=theory)"
label = "MARINA RandK"           # by default the method's text
tune = [0, 6]                    # try the step times 2^0 .. 2^6, keep the best; see ``experiment.tuning``

``experiment.fairness`` adds the caveats to the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

from mpicomp.base.checks import check_choice
from mpicomp.base.errors import ConfigError, unknown
from mpicomp.compressors import Sparse
from mpicomp.config import parse_method, parse_problem, to_text
from mpicomp.experiment.suite import AXES, Entry, Suite
from mpicomp.methods import Method
from mpicomp.runtime.observation import FULL, NEVER, Observation

_DEEPEST = 8  # levels of nested lists and tables; a method's ``tune`` in a study's case is at level 4


def load_suite(path: str | Path) -> Suite:
    """The suite in the file ``path``.  Raises ``ConfigError``, naming the file, if it is not one."""
    try:
        return parse_suite(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def read_toml(source: str) -> dict[str, Any]:
    """The tables in ``source``.  Raises ``ConfigError`` if it is no TOML, or has a value of no use here."""
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
    """Raise ``ConfigError`` for dates, numbers that are not finite, and values nested too deeply."""
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
    """The suite that the TOML text ``source`` describes.  Raises ``ConfigError``."""
    top = read_toml(source)
    _check("suite", top, SETTINGS, required=("problem", "workers", "rounds", "method"))
    _check_seeds(top.get("seeds", [0]))
    for key in ("workers", "rounds", "tuning_seeds"):
        if top.get(key, 1) < 1:
            raise ConfigError(f"{key} = {top[key]}; allowed: a positive integer.")
    if "every" in top and "at" in top:
        raise ConfigError("every and at: both say when there is a row. Give one.")
    asked = Observation(top.get("every", Observation.every), top.pop("at", None), top.get("observe", FULL))
    if not asked.observes:
        raise ConfigError(
            f"observe = {NEVER!r}; a comparison tunes and draws by f and ∇f. Allowed: {FULL!r}, or a "
            "number of samples of each worker."
        )
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
        at=None if asked.at is None else tuple(asked.at),
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
    "at": list,
    "observe": int | str,
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
    """``method`` with its lossless broadcast rounded to ``values``; unchanged if it has none."""
    lossless = getattr(method, "down", None) == Sparse() and any(f.name == "down" for f in fields(method))
    return replace(method, down=Sparse(values)) if lossless else method  # type: ignore[call-arg]


def _check(what: str, table: dict[str, Any], allowed: dict[str, Any], required: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a key of the table is unknown, missing, or of the wrong type."""
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
