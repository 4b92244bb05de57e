"""Refuse a run that the ranks were not given alike: they would mix two runs, or wait for ever."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mpicomp.base.errors import ConfigError
from mpicomp.base.given_arrays import in_full
from mpicomp.problems.base import Problem, fingerprint_of
from mpicomp.transports import Transport

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the text of an object that has none of its own


def refuse_unlike(t: Transport, given: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` on all ranks if some rank has ``given`` others than rank 0; collective."""
    if t.ranks == 1:
        return
    told: Any = t.collect({name: _text(value) for name, value in given.items()})

    def check() -> None:
        for rank, theirs in enumerate(told):
            for name, ours in told[0].items():
                if theirs[name] != ours:
                    raise ConfigError(
                        f"rank {rank} was given another {name} than rank 0: {theirs[name]:.200} in place of "
                        f"{ours:.200}. Every rank gives the same arguments and the same data: seed what is "
                        "drawn, and read copies of one file.",
                        unlike=True,
                    )

    t.ask_server(check)


def facts_of(problem: Problem) -> dict[str, Any]:
    """What all ranks have in common of ``problem``: its data and all of it; of a user's own, the class alone.

    There a rank may hold the data of its own workers, or the name of its own file.
    """
    if _has_ones_own(problem):
        return {"problem": type(problem)}
    return {"data": fingerprint_of(problem), "problem": problem}


def _has_ones_own(problem: Problem) -> bool:
    """Whether ``problem``, or one that it is made of, is of a user's own class."""
    inside = [one for one in vars(problem).values() if isinstance(one, Problem)]
    return problem.of_ones_own or any(map(_has_ones_own, inside))


def _text(value: Any) -> str:
    """``value`` in one line, without what differs between ranks though nothing was given differently."""
    return _ADDRESS.sub("", " ".join(in_full(value).split()))
