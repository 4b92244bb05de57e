"""A comparison as a TOML file: one problem, several methods, seeds, and ranges to tune step sizes in.

title = "Digits, 8 workers"
problem = "logistic(data=digits, lam=1e-3)"
workers = 8
rounds = 2000                    # the largest number of rounds of a run
every = "1%"                     # how often a row is recorded: this default, or a number of rounds; ..
# at = [1, 2, 10, 100]           # .. or after which rounds, besides the start and the end
observe = "full"                 # f and ∇f on all samples: the default; or on that many of each worker's
# x0 = "start.npy"               # where all runs start: a file that numpy.save wrote, or a list of numbers;
                                 # by default where the problem says
seeds = [0, 1, 2, 3, 4]
tuning_seeds = 2                 # choose step sizes with the first 2 seeds; by default with all
down = "f4"                      # the default: lossless broadcasts are rounded to float32, as dense ones are.
                                 # "exact" keeps the precision that each method's text asks for
target_grad_norm_sq = 1e-6       # extra stopping conditions, as of ``mpicomp run``; all optional
hold = 1.0                       # the target counts once it has held for as many rounds again, and costs are
                                 # those of the first row that stays there; 0, the default: at the first row
max_bytes = 100_000_000
max_seconds = 60.0
x = ["rounds", "up", "both", "seconds"]   # the x axes of the figure's panels; see ``suite.AXES``
y = "gradient"                   # the y axis of all panels

[[method]]
method = "marina(Q=randk(k=0.1), gamma=theory)"
label = "MARINA RandK"           # by default the method's text
tune = [0, 6]                    # try the step times 2^0 .. 2^6, keep the best; see ``experiment.tuning``

A method and a problem may be the user's own, as in method = "./mine.py:MyMethod(C=topk(k=0.1))".  The paths
of such files and of data start at the current folder, not at that of the suite; see ``own_classes``.

``experiment.fairness`` adds the caveats to the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from mpicomp.base.checks import as_workers, check_choice
from mpicomp.base.errors import ConfigError, check_known
from mpicomp.base.given_arrays import ADDRESS
from mpicomp.compressors import Lossless
from mpicomp.lab.experiment.suite import AXES, Entry, Suite, X
from mpicomp.lab.experiment.toml import read_file, read_toml, write_toml
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.observation import FULL, NEVER, Observation
from mpicomp.runtime.schedule import FINE
from mpicomp.runtime.settings import settings_of
from mpicomp.text.config import parse_method, parse_problem, to_text

DOWN = "f4"  # the default of ``down``


def load_suite(path: str | Path) -> Suite:
    """The suite in the file ``path``.  Raises ``ConfigError``, naming the file, if it is not one."""
    return read_file(path, parse_suite)


def parse_suite(source: str) -> Suite:
    """The suite that the TOML text ``source`` describes.  Raises ``ConfigError``."""
    return suite_in(read_toml(source), source)


def suite_in(top: dict[str, Any], source: str) -> Suite:
    """The suite of the settings and methods ``top``, in TOML ``source``.  Raises ``ConfigError``."""
    _check("suite", top, SETTINGS, required=("problem", "workers", "rounds", "method"))
    _check_settings(top)
    tables = top.pop("method")
    entries = tuple(_entry(table, top.get("down", DOWN)) for table in tables)
    if any(_may_differ(table, entry) for table, entry in zip(tables, entries, strict=True)):
        labels = [{"label": entry.label} for entry in entries]
        source = write_toml(top, map(or_, tables, labels))
    return _suite(parse_problem(top.pop("problem")), entries, top, source)


def _may_differ(table: dict[str, Any], entry: Entry) -> bool:
    """Whether a reader who does not import the method's class may give it another label."""
    return "label" not in table and ":" in entry.label and table["method"].strip() != entry.label


def suite_of(
    methods: Mapping[str, Method],
    problem: Problem,
    tune: Mapping[str, tuple[int, int] | None],
    settings: Mapping[str, Any],
) -> Suite:
    """The suite of these objects: methods by their labels, and by label the range to tune the step in.

    ``settings`` are those of the TOML file; a list may be any sequence.  Raises ``ConfigError``.
    """
    top = {key: plain(value) for key, value in settings.items()}
    _check("suite", top, {k: v for k, v in SETTINGS.items() if k not in _OBJECTS}, ("workers", "rounds"))
    _check_settings(top)
    for label in methods:
        if not isinstance(label, str):
            raise ConfigError(f"label = {label!r}; allowed: a text, such as {str(label)!r}.")
    for label in tune:
        check_known("label to tune", label, methods)
    for method in methods.values():
        method.check_made_of_fields()
    ranges = {label: plain(tune.get(label)) for label in methods}
    down = top.get("down", DOWN)
    entries = tuple(_tuned(with_downlink(m, down), label, ranges[label]) for label, m in methods.items())
    tables = [
        {"method": to_text(method), "label": label} | ({"tune": ranges[label]} if ranges[label] else {})
        for label, method in methods.items()
    ]
    return _suite(problem, entries, top, write_toml(top | {"problem": to_text(problem)}, tables))


def plain(value: Any) -> Any:
    """A sequence or an array as a list, and numbers of numpy as Python's."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [plain(one) for one in value] if isinstance(value, list | tuple | range) else value


def _check_settings(top: dict[str, Any]) -> None:
    """Raise ``ConfigError`` for a setting whose value is not allowed."""
    _check_seeds(top.get("seeds", [0]))
    for key in ("workers", "rounds", "tuning_seeds"):
        if top.get(key, 1) < 1:
            raise ConfigError(f"{key} = {top[key]}; allowed: a positive integer.")
    as_workers(top.get("workers", 1))
    check_choice("down", top.get("down", DOWN), ("exact", "f8", "f4", "f2", "bf16"))
    x = top.get("x", ["rounds"])
    if not x:
        raise ConfigError(f"x = []; allowed: some of {', '.join(X)}.")
    for name in x:
        check_known("x axis", str(name), X)
    check_known("y axis", top.get("y", "gradient"), AXES["y"])


def _limits(top: Mapping[str, Any]) -> Limits:
    """When a run ends.  Raises ``ConfigError``."""
    return Limits(**{f.name: top[f.name] for f in fields(Limits) if f.name in top})


def _observation(top: Mapping[str, Any]) -> Observation:
    """Which rows a run has.  Raises ``ConfigError``."""
    if "every" in top and "at" in top:
        raise ConfigError("every and at: both say when there is a row. Give one.")
    usual = {"every": FINE} if top.get("at") is None else {}
    asked = Observation(**usual | {f.name: top[f.name] for f in fields(Observation) if f.name in top})
    if not asked.observes:
        raise ConfigError(
            f"observe = {NEVER!r}; a comparison tunes and draws by f and ∇f. Allowed: {FULL!r}, or a "
            "number of samples of each worker."
        )
    return asked


def _suite(problem: Problem, entries: tuple[Entry, ...], settings: dict[str, Any], source: str) -> Suite:
    """The suite with these settings.  Raises ``ConfigError``, also for equal labels."""
    _check_labels(entries)
    lists = {  # an axis named twice has one panel
        key: tuple(dict.fromkeys(X.get(word, word) if key == "x" else word for word in settings[key]))
        for key in ("seeds", "x")
        if settings.get(key) is not None
    }
    of_records = {f.name for record in (Limits, Observation) for f in fields(record)}
    given = {key: value for key, value in settings.items() if key not in of_records}
    given = {"title": ADDRESS.sub("", to_text(problem))} | given | lists
    given |= {"limits": _limits(settings), "observation": _observation(settings)}
    if isinstance(x0 := given.get("x0"), list):
        given["x0"] = tuple(x0)
    return Suite(problem=problem, entries=entries, source=source, **given)


def _toml_type(types: tuple[type, ...]) -> Any:
    """The type of a setting's value in a TOML file, where 1 may stand for 1.0."""
    return reduce(or_, (*types, *([int] if float in types else [])))


SETTINGS: dict[str, Any] = {
    "title": str,
    "problem": str,
    "workers": int,
    **{setting.name: _toml_type(types) for setting, types in settings_of(Observation)},
    **{setting.name: _toml_type(types) for setting, types in settings_of(Limits)},
    "down": str,
    "x0": str | list,
    "seeds": list,
    "tuning_seeds": int,
    "x": list,
    "y": str,
    "method": list,
}
_OBJECTS = ("problem", "method")
METHOD: dict[str, Any] = {"method": str, "label": str, "tune": list}


def _entry(table: Any, down: str) -> Entry:
    if not isinstance(table, dict):
        raise ConfigError("each method is a table of its own, headed [[method]].")
    _check("[[method]]", table, METHOD, required=("method",))
    method = parse_method(table["method"])
    label = table.get("label", to_text(method))
    method = with_downlink(method, down)
    return _tuned(method, label, table.get("tune"))


def _tuned(method: Method, label: str, tune: list[Any] | None) -> Entry:
    """The entry of a method; ``tune`` is the range to tune its step in, if any.  Raises ``ConfigError``."""
    if tune is None:
        return Entry(method, label)
    check_range(tune)
    return Entry(method, label, (tune[0], tune[1]))


def check_range(tune: Any, name: str = "tune") -> None:
    """Raise ``ConfigError``, which names ``name``, unless ``tune`` is a list [lo, hi] of exponents."""
    if (
        not isinstance(tune, list)
        or len(tune) != 2
        or any(type(e) is not int or abs(e) > 64 for e in tune)
        or tune[0] > tune[1]
    ):
        raise ConfigError(
            f"{name} = {tune}; allowed: [lo, hi], the powers of two to multiply the step by: integers from "
            "-64 to 64, lo at most hi."
        )


def with_downlink(method: Method, values: str) -> Method:
    """``method`` with its lossless broadcast rounded to ``values``; unchanged if it has none."""
    down = getattr(method, "down", None) if any(f.name == "down" for f in fields(method)) else None
    if not isinstance(down, Lossless) or down.values != "exact":
        return method
    return replace(method, down=replace(down, values=values))  # type: ignore[call-arg]


def _check(what: str, table: dict[str, Any], allowed: dict[str, Any], required: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a key of the table is unknown, missing, or of the wrong type."""
    for key, value in table.items():
        check_known(f"key of a {what}", key, allowed)
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
                f"label = {entry.label!r}{other}. Labels name folders and must differ in the letters a to z "
                "or digits."
            )
        seen[entry.slug] = entry.label
