"""The facts of a run: run.json, which are needed to repeat it, and summary.json, its outcome."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mpicomp.base.errors import RecordError
from mpicomp.base.files import read_json
from mpicomp.base.version import __version__

# The entries that are read from the two JSON files, and their types.  Older versions wrote fewer.
_FACTS = {"config": dict, "asked": dict, "code": dict, "resumed": list, "lost": list}
_SUMMARY = {"status": str, "method": str, "problem": str, "ranks": int, "rounds": int, "set_up_bytes": int}


def read_facts(folder: Path) -> dict[str, Any]:
    """The contents of a run's run.json; {} if there is no such file.

    Raises ``RecordError`` if it is damaged.
    """
    path = folder / "run.json"
    facts = _checked(path, read_json(path), _FACTS)
    for one in facts.get("resumed", []):
        if not isinstance(one, dict):
            raise _damaged(path, "resumed", facts["resumed"])
        _checked(path, one, _FACTS)
    _checked(path, facts.get("asked", {}), {"method": str})
    config = facts.get("config", {})
    _checked(path, config, dict.fromkeys(config, str))
    if re.fullmatch(r"[1-9]\d{0,8}", config.get("workers", "1"), re.ASCII) is None:
        raise _damaged(path, "workers", config["workers"])
    return facts


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of a run's summary.json; {} if there is no such file.

    Raises ``RecordError`` if it is damaged.
    """
    path = folder / "summary.json"
    return _checked(path, read_json(path), _SUMMARY)


def _checked(path: Path, content: dict[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    for name, kind in types.items():
        if name in content and type(content[name]) is not kind:
            raise _damaged(path, name, content[name])
    return content


def _damaged(path: Path, name: str, value: Any) -> RecordError:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}.."
    return RecordError(
        f"{path} is damaged: {name} = {shown}. Put the file back as it was written, or choose another folder."
    )


def changed_code(facts: Mapping[str, Any], code: Mapping[str, str]) -> str:
    """The files of ``code`` that had other code in the run with these ``facts``; "" for none.

    Both have hashes by a file's name, ``code_of`` classes of one's own.
    """
    held = facts.get("code", {})
    return ", ".join(name for name, hash in code.items() if held.get(name, hash) != hash)


def describe_machine() -> dict[str, str]:
    """The versions of Python, the platform, mpicomp, numpy, scipy and mpi4py, for the record."""
    found = {"python": sys.version.split()[0], "platform": platform.platform(), "mpicomp": __version__}
    return found | {package: _version_of(package) for package in ("numpy", "scipy", "mpi4py")}


@cache  # a millisecond each, which a comparison's short runs would notice
def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
