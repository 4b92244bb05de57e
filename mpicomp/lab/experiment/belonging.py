"""Whether a recorded run is the one that a suite has in its folder, which may have been copied or renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.former import present_config
from mpicomp.compressors import Compressor
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.text.own_classes import reference, without_imports
from mpicomp.text.unimported import UnimportedMethod, UnimportedProblem


def check_belongs(run: Path, facts: Mapping[str, Any], suite: Suite, entry: Entry, seed: int) -> None:
    """Raise ``RecordError`` if the run in the folder ``run`` is not that of ``entry`` with ``seed``.

    ``facts`` are those of its run.json.  What they leave out is not compared, nor is a problem or a method
    whose text no suite can have, such as one with a cache, nor the step size of a method that is tuned.
    """
    config, asked = (present_config(facts.get(part, {})) for part in ("config", "asked"))
    besides = entry.method.step_name if entry.tune else ""
    problem, method = suite.problem, entry.method

    def shown(problem_text: str | None, method_text: str | None) -> dict[str, str | None]:
        return {
            "problem": _shown(_read(parse_problem, problem_text, problem)),
            "method": _shown(_read(parse_method, method_text, method), besides),
        }

    wanted = {"seed": str(seed), "workers": str(suite.workers)} | shown(repr(problem), repr(method))
    held = {name: config.get(name) for name in ("seed", "workers")}
    held |= shown(config.get("problem"), asked.get("method"))
    for name, value in held.items():
        if None not in (value, wanted[name]) and value != wanted[name]:
            raise RecordError(
                f"{run} holds a run with {name} = {value}, and the suite has {wanted[name]} there. Put the "
                "folder and suite.toml back as they were, or delete that folder and resume."
            )


def _read(
    parse: Callable[[str], Problem | Method], text: str | None, like: Problem | Method
) -> Problem | Method | None:
    """What ``text``, a ``repr``, describes; None if it is missing, or is not read here.

    A ``repr`` names a class without its module.  It means the user's own in ``like``, if they are called so.
    """
    if text is None:
        return None
    for cls in set(_own_classes(like)):
        text = re.sub(rf"\b{cls.__name__}\(", f"{reference(cls)}(", text)
    with suppress(ConfigError), without_imports():
        return parse(text)
    return None


def _own_classes(known: object) -> Iterator[type]:
    if isinstance(known, Problem | Method | Compressor):
        if type(known).__module__.partition(".")[0] != "mpicomp":
            yield type(known)
        known = vars(known)
    for inside in known.values() if isinstance(known, dict) else ():
        yield from _own_classes(inside)


def _shown(known: Problem | Method | None, besides: str = "") -> str | None:
    """Its ``repr`` without the field ``besides``; None for what is known by its text alone."""
    if known is None or isinstance(known, UnimportedMethod | UnimportedProblem):
        return None
    if not besides:
        return repr(known)
    shown = (f"{f.name}={getattr(known, f.name)!r}" for f in fields(known) if f.name != besides)  # type: ignore[arg-type]
    return f"{type(known).__name__}({', '.join(shown)})"
