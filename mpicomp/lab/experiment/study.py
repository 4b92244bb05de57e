"""A study: the same methods on several problems, as one TOML file with a [[case]] for each.

title = "PermK over the heterogeneity"
rounds = 2000                    # any setting of a suite may stand here, for all cases, ..
x = ["up"]

[[case]]
label = "no noise"
problem = "quadratics(d=100, noise=0)"
workers = 10                     # .. or in a case, for that case alone

[[method]]                       # for every case
method = "marina(Q=permk)"

[[case.method]]                  # for the case above alone
method = "marina(Q=randk(k=10))"

Each case is a suite of its own (see ``experiment.suite_file``) in a folder called after its label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, check_known
from mpicomp.lab.experiment.suite import Suite, slug
from mpicomp.lab.experiment.suite_file import SETTINGS, parse_suite, suite_in
from mpicomp.lab.experiment.toml import read_file, read_toml, write_toml

_FILES = re.compile(r"study\.toml|table\.(md|json)|figure(-\d+)?\.png")  # files of a study's folder
_WHEN = {"every", "at"}  # the settings that say after which rounds there is a row


@dataclass(frozen=True)
class Case:
    """One suite of a study, under its label."""

    label: str
    suite: Suite

    @property
    def slug(self) -> str:
        """The label as the name of a folder."""
        return slug(self.label)


@dataclass(frozen=True)
class Study:
    """Several comparisons that belong together.  ``source`` is the TOML text of the study."""

    title: str
    cases: tuple[Case, ...]
    source: str = field(default="", compare=False, repr=False)


def load_file(path: str | Path) -> Suite | Study:
    """The suite or study in the file ``path``.  Raises ``ConfigError``, naming the file, if it is neither."""
    return read_file(path, parse)


def parse(source: str) -> Suite | Study:
    """The study in ``source`` if it has a [[case]], else the suite.  Raises ``ConfigError`` for neither."""
    top = read_toml(source)
    if "case" not in top:
        return parse_suite(source)
    tables, methods = top.pop("case"), top.pop("method", [])
    if not tables or not _are_tables(tables) or not _are_tables(methods):
        raise ConfigError("cases and methods are tables of their own, headed [[case]] and [[method]].")
    if not isinstance(title := top.get("title", ""), str):
        raise ConfigError(f"title = {title!r}; allowed: a text.")
    cases = tuple(_case(table, top, methods) for table in tables)
    names = [case.slug for case in cases]
    if "" in names or len(set(names)) < len(names):
        labels = ", ".join(repr(case.label) for case in cases)
        raise ConfigError(
            f"cases {labels}: labels name folders and must differ in the letters a to z or digits."
        )
    for case in cases:
        if _FILES.fullmatch(case.slug):
            raise ConfigError(
                f"case {case.label!r}: a file of the study has this name. Choose another label."
            )
    for case in cases:
        if case.suite.x != cases[0].suite.x:
            raise ConfigError(
                f"case {case.label!r}: x = {list(case.suite.x)}, and {cases[0].label!r} has "
                f"{list(cases[0].suite.x)}. The panels of one figure have the same x axes: give x above the "
                "cases."
            )
    return Study(title or cases[0].label, cases, source)


def _case(table: Any, top: dict[str, Any], methods: list[Any]) -> Case:
    """One case: its own settings override the study's; its methods are added to the study's."""
    if not isinstance(label := table.pop("label", None), str):
        raise ConfigError("each case is a table of its own, headed [[case]], with a label.")
    own = table.pop("method", [])
    if not _are_tables(own):
        raise ConfigError(f"case {label!r}: each method is a table of its own, headed [[case.method]].")
    if _WHEN & table.keys():  # each takes the place of the other
        top = {key: value for key, value in top.items() if key not in _WHEN}
    settings = top | {"title": f"{top.get('title', '')}: {label}".removeprefix(": ")} | table
    for key in settings:
        check_known(f"key of case {label!r}", key, SETTINGS)
    try:
        tables = [*methods, *own]
        return Case(label, suite_in(settings | {"method": tables}, write_toml(settings, tables)))
    except ConfigError as error:
        raise ConfigError(f"case {label!r}: {error}") from None


def _are_tables(value: Any) -> bool:
    """Whether ``value`` is a list of tables, as TOML's headers in double brackets give."""
    return isinstance(value, list) and all(isinstance(table, dict) for table in value)
