"""Refuse a run or a loop whose arguments differ between ranks: they would mix two runs, or wait for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.base.given_arrays import ADDRESS, in_full
from mpicomp.base.units import from_difference
from mpicomp.problems.base import Problem, fingerprint_of
from mpicomp.transports import Transport


def refuse_other_call(transport: Transport, call: str) -> None:
    """Raise ``MpicompError`` on all ranks unless all make the same ``call``, such as "mpicomp.run".

    It comes first on a new transport: what follows is another exchange of messages in each call.  Collective.
    """
    told: Any = transport.collect(call)

    def check() -> None:
        for rank, other in enumerate(told):
            if other != call:
                raise MpicompError(
                    f"rank 0 calls {call}, and rank {rank} calls {other}: all ranks have to make the same "
                    "calls in the same order."
                )

    transport.ask_server(check)


def refuse_unlike(told: Sequence[Mapping[str, str]]) -> None:
    """Raise ``ConfigError``, which names the first difference, if some rank's facts are not rank 0's.

    ``told`` has each rank's facts, texts by name, in rank order.
    """
    for rank, theirs in enumerate(told):
        for name in {**told[0], **theirs}:
            other, own = (str(facts.get(name)) for facts in (theirs, told[0]))
            if other != own:
                other, own = from_difference(other, own)
                raise ConfigError(
                    f"rank {rank} has {name} = {other}, and rank 0 has {own}: all ranks give the same."
                    + " Seed what is drawn, and read copies of one file." * (name == "data"),
                    unlike=True,
                )


def as_text(fact: Any) -> str:
    """A text itself; any other ``fact`` in one line, without memory addresses, which differ between ranks."""
    return fact if isinstance(fact, str) else ADDRESS.sub("", " ".join(in_full(fact).split()))


def facts_of(problem: Problem) -> dict[str, Any]:
    """The facts about ``problem`` that must be equal on all ranks, by name: its data and its fields.

    Of a user's own problem it is the class alone: its fields may hold this rank's data, or name its file.
    """
    if has_ones_own(problem):
        return {"problem": type(problem)}
    return {"data": fingerprint_of(problem), "problem": problem}


def has_ones_own(problem: Problem) -> bool:
    """Whether ``problem``, or a problem in one of its fields, is of a user's own class."""
    inside = [one for one in vars(problem).values() if isinstance(one, Problem)]
    return problem.of_ones_own or any(map(has_ones_own, inside))
