"""Whether a recorded run or tuning is the one that a suite has in its folder.  Both may have been copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.former import present_config
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.methods import Method
from mpicomp.problems import Problem
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.text.own_classes import classes_of_ones_own, reference, without_imports
from mpicomp.text.unimported import UnimportedMethod, UnimportedProblem

T = TypeVar("T", Problem, Method)


def check_belongs(run: Path, facts: Mapping[str, Any], suite: Suite, entry: Entry, seed: int) -> None:
    """Raise ``RecordError`` if the run in the folder ``run`` is not that of ``entry`` with ``seed``.

    ``facts`` are those of its run.json.  What they leave out is not compared, nor is a problem or a method
    whose text no suite can have, such as one with a cache, nor the step size of a method that is tuned.
    """
    _compare(run, "a run", facts, suite, entry, {"seed": str(seed), "workers": str(suite.workers)})


def facts_of_tuning(suite: Suite, entry: Entry) -> dict[str, Any]:
    """What the tuning of ``entry`` depends on, in the form of a run's facts."""
    config = suite.options() | {"tune": list(entry.tune or ()), "seeds": list(suite.seeds_to_tune)}
    return {"config": config | {"problem": repr(suite.problem)}, "asked": {"method": repr(entry.method)}}


def check_tuning(path: Path, facts: Mapping[str, Any], suite: Suite, entry: Entry) -> None:
    """Raise ``RecordError`` if the tuning in the file ``path`` is not that of ``entry``.

    ``facts`` are those that it holds.  As of a run, what they leave out is not compared.
    """
    untuned = replace(entry, tune=None)  # its step size is the one that the trials are multiples of
    _compare(path, "steps tuned", facts, suite, untuned, facts_of_tuning(suite, entry)["config"])


def _compare(
    path: Path,
    what: str,
    facts: Mapping[str, Any],
    suite: Suite,
    entry: Entry,
    wanted: dict[str, Any],
) -> None:
    """Raise ``RecordError`` if ``facts`` have other settings than ``wanted``, problem or method."""
    config, asked = (present_config(facts.get(part, {})) for part in ("config", "asked"))
    held = {name: config[name] for name in wanted if name in config}
    held |= _shown(config.get("problem"), asked.get("method"), suite.problem, entry)
    wanted = wanted | _shown(repr(suite.problem), repr(entry.method), suite.problem, entry)
    unknown = [name for name in ("problem", "method") if None in (held[name], wanted[name])]
    for name, value in held.items():
        if name not in unknown and value != wanted[name]:
            raise RecordError(
                f"{path} holds {what} with {name} = {value}, and the suite has {wanted[name]} there. Put the "
                f"folder and suite.toml back as they were, or delete {path} and resume."
            )


def _shown(problem: str | None, method: str | None, own: Problem, entry: Entry) -> dict[str, str | None]:
    """The two texts in one form; the method has the step of ``entry`` if that is tuned."""
    read, step = _read(parse_method, method, entry.method), entry.method.step_name
    if entry.tune and isinstance(read, type(entry.method)):
        read = replace(read, **{step: getattr(entry.method, step)})
    both = {"problem": _read(parse_problem, problem, own), "method": read}
    return {name: None if known is None else repr(known) for name, known in both.items()}


def _read(parse: Callable[[str], T], text: str | None, like: Problem | Method) -> T | None:
    """What ``text``, a ``repr``, describes; None if it is missing, or is not read here.

    A ``repr`` names a class without its module.  It means the user's own in ``like``, if they are called so.
    """
    if text is None:
        return None
    for cls in classes_of_ones_own(like):
        if (own := reference(cls)) is None:  # nobody else can import it
            return None
        text = re.sub(rf"\b{cls.__name__}\(", f"{own}(", text)
    with suppress(ConfigError), without_imports():
        known = parse(text)
        return None if isinstance(known, UnimportedMethod | UnimportedProblem) else known
    return None
