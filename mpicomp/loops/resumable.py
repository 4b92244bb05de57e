"""The state of a loop of the user's: saved by all ranks together or rank by rank, and gone on from."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.units import one_line, shortened
from mpicomp.loops.stepping import Stepping, operation
from mpicomp.methods.base import Method
from mpicomp.runtime import checkpoint
from mpicomp.runtime.generations import Checks, is_count
from mpicomp.runtime.saved import fitting
from mpicomp.transports.calls import Operation

_COUNTS = ("rounds", "steps", "skipped")  # attributes of a loop that belong to its state
_FACTS: Checks = {
    "steps": is_count,
    "skipped": is_count,
    "training": lambda value: value is None or isinstance(value, str),
}


class Resumable(Stepping):
    """A loop whose state can be saved, and gone on from.

    For the arguments see ``Stepping``.
    """

    def __init__(self, method: Method, like: Any, **options: Any) -> None:
        super().__init__(method, like, **options)
        # Rank 0's count: whose the states are that this one saves, and whose states they may replace.
        self._training = uuid4().hex
        self._replaces: set[str | None] = {self._training}
        self._config = {"method": type(self.method).__name__, "seed": str(self.seed)}
        self._config |= {"workers": str(self.workers), "parts": self._packing.description}
        self._config |= {} if self._blocks is None else {"shards": str(len(self._blocks))}
        self._config |= {f"method.{f.name}": repr(getattr(self.method, f.name)) for f in fields(self.method)}

    def add_to_config(self, **facts: object) -> None:
        """Add ``facts`` to the configuration, in which a saved state has to agree before it is taken."""
        self._config |= {name: str(value) for name, value in facts.items()}

    @operation
    def save(self, folder: str | Path, **records: Any) -> None:
        """Save the state of all workers and of the server, for ``load`` on any number of ranks.

        Saved with a worker on each of 4 ranks, it goes on on others with ``workers=4``.

        records  dataclasses of arrays, numbers and texts to be saved with it, by names that are unique to a
                 rank

        Killed at any time, it leaves the state that was saved before, or this one.
        Raises ``RecordError`` if the folder holds the state of another training, which would be lost, or
        cannot be written: what was saved before is still there.
        """
        self._agreement.begin(Operation.SAVE, lambda: self._check_saved(records))
        self.transport.ask_server(lambda: checkpoint.refuse_to_replace(Path(folder), self._replaces))
        self._play.settle()
        header = {"config": self._config, "steps": self.steps, "skipped": self.skipped}
        header |= {"training": self._training}
        checkpoint.save(Path(folder), self.transport, self.rounds, self._play.states() | records, header)
        self._replaces = {self._training}

    def _check_saved(self, records: dict[str, Any]) -> None:
        """Raise ``MpicompError`` after a step that has ended half-way, or for a name that is taken."""
        self._play.books.check()
        if taken := sorted(records.keys() & (self._play.states() | {"replica": None, "ledger": None}).keys()):
            raise ConfigError(f"{shortened(taken)} are names of the method's own records; give others.")

    @operation
    def load(self, folder: str | Path, **records: Any) -> None:
        """Go on from what ``save`` saved; the fields of ``records`` become those that were saved.

        Raises ``RecordError`` if it is damaged, lacks one of ``records``, or is of another method, seed,
        ``like`` or number of workers: nothing has changed then.
        """
        t, rounds = self.transport, self._play
        self._agreement.begin(Operation.LOAD, lambda: None)  # also after a step that has failed
        rounds.settle()
        states = rounds.states() | {"replica": rounds.replica}
        manifest = checkpoint.load(Path(folder), t, states, self._config, _FACTS, records)
        self.rounds, self.steps, self.skipped = manifest["round"], manifest["steps"], manifest["skipped"]
        ledger = t.ask_server(lambda: rounds.ledger)
        if not t.is_server:
            others = [i for i in range(t.n) if i not in t.hosted]
            ledger.up[others] = 0
            rounds.books.ledger = ledger
        self._replaces |= {manifest.get("training")}
        rounds.books.fail(None)
        self._begin_audit()

    def _own_records(self) -> dict[str, Any]:
        """All records that this rank goes on from, by name."""
        play = self._play
        return play.states() | {"replica": play.replica, "ledger": play.ledger} | play.averaging.unsettled()

    @operation
    def state(self) -> dict[str, Any]:
        """This rank's part of the state, numpy's arrays, numbers and texts by name.

        For programs that save rank by rank.  Raises ``MpicompError`` after a step that has ended half-way.
        """
        self._play.books.check()
        records = self._own_records()
        own = {f"{name}.{f.name}": getattr(r, f.name) for name, r in records.items() for f in fields(r)}
        copies = {name: deepcopy(kernels.to_host(value)) for name, value in own.items()}
        counts = {name: getattr(self, name) for name in _COUNTS}
        counts |= {"training": self._training, "rank": self.transport.rank}
        return copies | counts | {f"config.{name}": value for name, value in self._config.items()}

    @operation
    def restore(self, state: dict[str, Any], check: Callable[[], None] = lambda: None) -> None:
        """Go on from ``state()`` of this rank; collective.

        check  is called first: what it raises for the caller's own state, all ranks raise

        Raises ``ConfigError`` for the state of another method, rank or number of ranks, or of another step
        than the other ranks', and ``RecordError`` for what is no state: on all ranks, and nothing changes.
        """
        found: list[tuple[dict[str, Any], list[tuple[Any, str, Any]]]] = []

        def checked() -> None:
            check()
            found.append(self._read(state))

        self._agreement.begin(Operation.RESTORE, checked)
        ((facts, values),) = found
        self._check_same_step(facts)
        for record, field, value in values:
            setattr(record, field, value)
        self.rounds, self.steps, self.skipped = (facts[name] for name in _COUNTS)
        self._replaces |= {facts["training"]}
        self._play.books.fail(None)
        self._begin_audit()

    def _read(self, state: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, str, Any]]]:
        """What ``state`` says of the training, and the values of all fields here: record, name and value."""
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise ConfigError(f"{one_line(state)} is no state; allowed: what state() has returned.")
        own = {f"{name}.{f.name}": (r, f.name) for name, r in self._own_records().items() for f in fields(r)}
        facts = {name: _plain(value) for name, value in state.items() if name not in own}
        theirs = {name.removeprefix("config."): v for name, v in facts.items() if name.startswith("config.")}
        for name in {**theirs, **self._config}:
            there, here = theirs.get(name), self._config.get(name)
            if not isinstance(there, str | None) or there != here:
                raise ConfigError(
                    f"the state is of another run: {name} is {there} there and {here} here."
                    f"{checkpoint.remedy(name, there)}"
                )
        rank, held = self.transport.rank, {name for name in state if not name.startswith("config.")}
        whose = facts.get("rank", rank)  # older states do not say it; but the names of their workers do
        if held - {"rank"} != {*own, *_FACTS, "rounds"} or not is_count(whose) or whose != rank:
            raise ConfigError(
                f"rank {rank} was given the state of another rank, and each has one of its own. Save with "
                "save(folder) on all ranks (with torch, mpicomp.torch.save), or each rank's state in a file "
                "of its own."
            )
        for name, check in (_FACTS | {"rounds": is_count}).items():
            if not check(facts[name]):
                raise RecordError(f"the state is invalid: {name} is {one_line(facts[name])}.")
        try:
            return facts, [(r, f, fitting(name, state[name], getattr(r, f))) for name, (r, f) in own.items()]
        except RecordError as error:
            raise RecordError(f"the state is invalid: {error}.") from None

    def _check_same_step(self, facts: dict[str, Any]) -> None:
        """Raise ``ConfigError`` on all ranks unless they restore states of the same step."""
        told: Any = self.transport.collect([facts[name] for name in _COUNTS])

        def compare() -> None:
            for rank, theirs in enumerate(told):
                for name, a, b in zip(_COUNTS, told[0], theirs, strict=True):
                    if a != b:
                        raise ConfigError(
                            f"rank {rank} restores a state of {name} = {b}, and rank 0 one of {a}: all "
                            "ranks restore the state of one step, as load does from what save has saved."
                        )

        self.transport.ask_server(compare)


def _plain(value: Any) -> Any:
    """The number or text in an array of no axes, such as ``numpy.savez`` makes of one; else ``value``."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.shape == () else value
