"""Whether a recorded run is the one that a suite has in its folder, which may have been copied or renamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.former import present_config
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.text.own_classes import without_imports
from mpicomp.text.unimported import UnimportedMethod, UnimportedProblem


def check_belongs(run: Path, facts: Mapping[str, Any], suite: Suite, entry: Entry, seed: int) -> None:
    """Raise ``RecordError`` if the run in the folder ``run`` is not that of ``entry`` with ``seed``.

    ``facts`` are those of its run.json.  What they leave out is not compared, nor is a class of the user's
    own that they name, nor the step size of a method that is tuned.
    """
    config, asked = (present_config(facts.get(part, {})) for part in ("config", "asked"))
    besides = entry.method.step_name if entry.tune else ""
    wanted = {
        "seed": str(seed),
        "workers": str(suite.workers),
        "problem": _shown(suite.problem),
        "method": _shown(entry.method, besides),
    }
    held = {
        "seed": config.get("seed"),
        "workers": config.get("workers"),
        "problem": _shown(_read(parse_problem, config.get("problem"))),
        "method": _shown(_read(parse_method, asked.get("method")), besides),
    }
    for name, value in held.items():
        if None not in (value, wanted[name]) and value != wanted[name]:
            raise RecordError(
                f"{run} holds a run with {name} = {value}, and the suite has {wanted[name]} there. Put the "
                "folder and suite.toml back as they were, or delete that folder and resume."
            )


def _read(parse: Callable[[str], Problem | Method], text: str | None) -> Problem | Method | None:
    """What ``text`` describes; None if it is missing, or is not read here."""
    with suppress(ConfigError), without_imports():
        return None if text is None else parse(text)
    return None


def _shown(known: Problem | Method | None, besides: str = "") -> str | None:
    """Its ``repr`` without the field ``besides``; None for what is known by its text alone."""
    if known is None or isinstance(known, UnimportedMethod | UnimportedProblem):
        return None
    if not besides:
        return repr(known)
    shown = (f"{f.name}={getattr(known, f.name)!r}" for f in fields(known) if f.name != besides)  # type: ignore[arg-type]
    return f"{type(known).__name__}({', '.join(shown)})"
