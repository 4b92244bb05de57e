"""The state of an embedding: saved by all ranks together or rank by rank, and gone on from."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

from mpicomp import kernels
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import shortened
from mpicomp.embedded.embedding import Embedding, operation
from mpicomp.methods.base import Method
from mpicomp.runtime import checkpoint
from mpicomp.transports.calls import Operation

_COUNTS = ("rounds", "steps", "skipped")  # attributes of an embedding that belong to its state


class Resumable(Embedding):
    """An embedding whose state can be saved, and gone on from.

    For the arguments see ``Embedding``.
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

        records  dataclasses of arrays and numbers to be saved with it, by names that are unique to a rank

        Raises ``RecordError`` if the folder holds the state of another training, which would be lost.
        """
        self._agreement.begin(Operation.SAVE, self._play.books.check)
        self.transport.ask_server(lambda: checkpoint.refuse_to_replace(Path(folder), self._replaces))
        self._play.settle()
        header = {"config": self._config, "steps": self.steps, "skipped": self.skipped}
        header |= {"training": self._training}
        checkpoint.save(Path(folder), self.transport, self.rounds, self._play.states() | records, header)
        self._replaces = {self._training}

    @operation
    def load(self, folder: str | Path, **records: Any) -> None:
        """Go on from what ``save`` saved; the fields of ``records`` become those that were saved.

        Raises ``RecordError`` if it is damaged, lacks one of ``records``, or is of another method, seed,
        ``like`` or number of workers.
        """
        t, rounds = self.transport, self._play
        self._agreement.begin(Operation.LOAD, lambda: None)  # also after a step that has failed
        rounds.settle()
        states = rounds.states() | {"replica": rounds.replica} | records
        manifest = checkpoint.load(Path(folder), t, states, self._config, records)
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
        counts |= {"training": self._training}
        return copies | counts | {f"config.{name}": value for name, value in self._config.items()}

    @operation
    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state()`` of this rank.

        Raises ``ConfigError``, on this rank alone, for the state of another method, rank or number of ranks.
        """
        theirs = {name.removeprefix("config."): v for name, v in state.items() if name.startswith("config.")}
        for name in {**theirs, **self._config}:
            there, here = theirs.get(name), self._config.get(name)
            if there != here:
                raise ConfigError(f"the state is of another run: {name} is {there} there and {here} here.")
        records = self._own_records()
        own = {f"{name}.{f.name}": (r, f.name) for name, r in records.items() for f in fields(r)}
        saved = {name for name in state if not name.startswith("config.")}
        if odd := sorted(saved ^ {*own, *_COUNTS, "training"}):
            raise ConfigError(
                f"the state is another rank's: {shortened(odd)} differ. Each rank restores the state that it "
                "has saved itself; save and load work on any number of ranks."
            )
        for name, (record, field) in own.items():
            value = deepcopy(state[name])
            there = kernels.on_device(getattr(record, field))
            setattr(record, field, kernels.to_device(value) if there else value)
        self.rounds, self.steps, self.skipped = (state[name] for name in _COUNTS)
        self._replaces |= {state["training"]}
        self._play.books.fail(None)
        self._begin_audit()
