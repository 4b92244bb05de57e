"""Save and restore an Aggregator or Descent: by all ranks together (save, load) or rank by rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import BadZipFile
from zlib import crc32

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import as_path
from mpicomp.base.given_arrays import in_full
from mpicomp.base.units import one_line, shortened
from mpicomp.loops.agreement import other_rank
from mpicomp.loops.stepping import NONE, SENT, SKIPPED, Stepping, check_options, operation
from mpicomp.methods.base import Method
from mpicomp.runtime import checkpoint
from mpicomp.runtime.generations import Checks, is_count
from mpicomp.runtime.saved import fields_of, fitting
from mpicomp.transports.calls import Operation

_COUNTS = ("rounds", "steps", "skipped", "pending")  # attributes of a loop that are saved with its state
_FACTS: Checks = {
    "steps": is_count,
    "skipped": is_count,
    "pending": lambda value: type(value) is int and value in (NONE, SENT, SKIPPED),
    "training": lambda value: value is None or isinstance(value, str),
}


class Resumable(Stepping):
    """A ``Stepping`` whose state can be saved and loaded; it has the same arguments."""

    def __init__(self, method: Method, like: Any, **options: Any) -> None:
        check_options(options)
        super().__init__(method, like, **options)
        # A random name for this training, and the names of the trainings whose saved states it may replace.
        # Rank 0's are used.
        self._training = uuid4().hex
        self._replaces: set[str | None] = {self._training}
        self._config = {"method": type(self.method).__name__, "seed": str(self.seed)}
        self._config |= {"workers": str(self.workers), "parts": self._packing.description}
        self._config |= {} if self._blocks is None else {"blocks": str(len(self._blocks))}
        given = {f.name: getattr(self.method, f.name) for f in fields(self.method)}
        self._config |= {f"method.{name}": in_full(value) for name, value in given.items()}

    def add_to_config(self, **facts: object) -> None:
        """Add ``facts`` to the configuration; ``load`` refuses a state saved with another configuration.

        ``load`` compares these facts first, because other entries may follow from them.
        """
        self._config = {name: str(value) for name, value in facts.items()} | self._config

    @operation
    def save(self, folder: str | Path, others: Sequence[Resumable] = (), **records: Any) -> None:
        """Save the state of all workers and of the server in ``folder``; collective.

        ``load`` reads the state on any number of ranks.  If each of 4 ranks was one worker, make the
        Aggregator or Descent on another number of ranks with ``workers=4``; then it can load the state.

        others   further Aggregators and Descents of these ranks, to save and load with this one
        records  your own dataclasses of arrays, numbers and texts, by keyword: rank 0 calls
                 save(folder, progress=p), and the others save(folder).  load(folder, progress=p) then sets
                 the fields of p.  Two ranks must not use the same name

        If the program is killed at any time, the folder holds the previous state or this one.
        Raises ``RecordError`` if the folder holds the state of another training, which would be lost, or if
        it cannot be written; the previous state is still there.  Raises ``ConfigError`` for a name in use,
        and if a method of your own keeps what ``load`` would refuse, such as NaN.
        """
        for one in others:
            one._background.wait()  # for the step that its thread is playing
        self._begin(Operation.SAVE, folder, others, lambda: self._check_saved(others, records))
        self.transport.ask_server(lambda: checkpoint.refuse_to_replace(Path(folder), self._replaces))
        for one in others:
            one.settle()
        self._play.settle()
        header: dict[str, Any] = {"config": self._config, "training": self._training} | self._counts()
        header |= {"others": [one._counts() for one in others]} if others else {}
        states = self._play.states() | records | _numbered([one._play.states() for one in others])
        checkpoint.save(Path(folder), self.transport, self.rounds, states, header)
        self._replaces = {self._training}

    def _counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _COUNTS}

    def _begin(
        self,
        operation: Operation,
        folder: str | Path,
        others: Sequence[Resumable],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to save in ``folder``, or to load from it, on all ranks, if ``check`` raises on none.

        Raises ``ConfigError`` on all ranks for no path, inside of ``holding`` of one of the loops, and if a
        rank has another folder or other ``others``: what the ranks save in two folders is whole in neither.
        """

        def number() -> int:
            place = as_path("folder", folder)
            for one in (self, *others):
                one._holding.refuse()
            check()
            return crc32(f"{[one._agreement.number for one in others]} {place}".encode("utf-8", "replace"))

        told = self._agreement.begin(operation, number)
        if (other := other_rank(told)) is not None:
            raise ConfigError(
                f"rank {other} has another folder than rank 0, or saves or loads other loops with this one: "
                "all ranks give the same."
            )

    def _check_saved(self, others: Sequence[Resumable], records: dict[str, Any]) -> None:
        """Raise ``MpicompError`` after a step that failed part-way, or for a name in use.

        Also if a method of one's own keeps what could not be loaded.
        """
        for one in (self, *others):
            one._play.check_saved()
        if taken := sorted(records.keys() & (self._play.states() | {"replica": None, "ledger": None}).keys()):
            raise ConfigError(f"{shortened(taken)} are names of the method's own records; give others.")

    @operation
    def load(self, folder: str | Path, others: Sequence[Resumable] = (), **records: Any) -> None:
        """Load the state that ``save`` wrote to ``folder``, and set the fields of ``records``; collective.

        ``others`` are as in ``save``.

        Raises ``RecordError`` if the state is damaged, lacks one of ``records``, or belongs to another
        method, seed, ``like`` or number of workers, and ``ConfigError`` in a step of which blocks have been
        brought; nothing has changed then.
        """
        all_loops = [self, *others]
        # Also after a step that has failed.
        self._begin(Operation.LOAD, folder, others, lambda: _refuse_half_sent(all_loops))
        for one in all_loops:
            one._background.wait()
            one._play.settle()
        own, *theirs = [one._play.states() | {"replica": one._play.replica} for one in all_loops]
        facts = _FACTS | {"others": partial(_are_counts, len(others))}
        facts["pending"] = lambda value: value is None or _FACTS["pending"](value)  # not in older ones
        states = own | _numbered(theirs)
        manifest = checkpoint.load(Path(folder), self.transport, states, self._config, facts, records)
        counts = {name: manifest.get(name) for name in _COUNTS} | {"rounds": manifest["round"]}
        counts["pending"] = counts["pending"] or NONE
        for one, its in zip(all_loops, [counts, *manifest.get("others", [])], strict=True):
            one._take_ledger()
            one._go_on(its)
        self._replaces |= {manifest.get("training")}

    def _take_ledger(self) -> None:
        """Take this rank's part of the ledger, which the server has loaded; collective."""
        t, play = self.transport, self._play
        ledger = t.ask_server(lambda: play.ledger)
        if not t.is_server:
            ledger.up[[i for i in range(t.n) if i not in t.hosted]] = 0
            play.books.ledger = ledger

    def _go_on(self, counts: dict[str, Any]) -> None:
        """Go on from the records that are here now, which were saved with ``counts``."""
        for name in _COUNTS:
            setattr(self, name, counts[name])
        self._play.books.fail(None)
        self._background.forget()
        self._begin_audit()

    def _own_records(self) -> dict[str, Any]:
        """All records that make up this rank's state, by name."""
        play = self._play
        return play.states() | {"replica": play.replica, "ledger": play.ledger} | play.averaging.unsettled()

    @operation
    def state(self) -> dict[str, Any]:
        """This rank's part of the state: a dict of numpy arrays, numbers and texts.

        It is for programs that save each rank's state themselves, for ``restore``.  Raises ``MpicompError``
        after a step that failed part-way, and if a method of your own keeps what ``restore`` would refuse.
        """
        self._holding.refuse()
        self._play.check_saved()
        own = fields_of(self._own_records())
        copies = {name: deepcopy(kernels.to_host(value)) for name, value in own.items()}
        facts = self._counts() | {"training": self._training, "rank": self.transport.rank}
        return copies | facts | {f"config.{name}": value for name, value in self._config.items()}

    @operation
    def restore(
        self,
        state: dict[str, Any],
        check: Callable[[], None] = lambda: None,
        others: Sequence[tuple[Resumable, dict[str, Any]]] = (),
    ) -> None:
        """Restore a state that ``state()`` returned on this rank; collective.

        check   called first, to check a state of the caller's own; an ``MpicompError`` of it is raised on all
                ranks
        others  further Aggregators and Descents of these ranks, each with its state, to restore with this one

        Raises ``ConfigError`` if the state belongs to another method, rank or number of ranks, or to another
        step than the other ranks' states, or in a step of which blocks have been brought, and ``RecordError``
        if it is invalid: on all ranks, and nothing changes.
        """
        together: list[tuple[Resumable, dict[str, Any]]] = [(self, state), *others]
        found: list[tuple[dict[str, Any], list[tuple[Any, str, Any]]]] = []
        for one, _ in others:
            one._background.wait()  # else its thread would go on changing what is restored

        def checked() -> None:
            for one, _ in together:
                one._holding.refuse()
            _refuse_half_sent([one for one, _ in together])
            check()
            found.extend(one._read(_as_dict(its)) for one, its in together)

        self._agreement.begin(Operation.RESTORE, checked)
        for facts, _ in found:
            self._check_same_step(facts)
        for (one, _), (facts, values) in zip(together, found, strict=True):
            for record, field, value in values:
                object.__setattr__(record, field, value)  # in a frozen record too
            one._replaces |= {facts["training"]}
            one._go_on(facts)

    def _read(self, state: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, str, Any]]]:
        """Check ``state``; return its facts about the training, and a list of (record, field name, value)."""
        named = isinstance(state, dict) and all(isinstance(name, str) for name in state)
        if not named or not any(name.startswith("config.") for name in state):
            raise ConfigError(f"{one_line(state)} is no state; allowed: what state() has returned.")
        own = {f"{name}.{f.name}": (r, f.name) for name, r in self._own_records().items() for f in fields(r)}
        facts = {name: _plain(value) for name, value in state.items() if name not in own}
        theirs = {name.removeprefix("config."): v for name, v in facts.items() if name.startswith("config.")}
        if other := checkpoint.difference(theirs, self._config):
            raise ConfigError(f"the state is of another run: {other}")
        rank, held = self.transport.rank, {name for name in state if not name.startswith("config.")}
        facts = {"rank": rank, "pending": NONE} | facts  # older states do not say them
        wanted = {*own, *_FACTS, "rounds", "rank"}
        if held | {"rank", "pending"} != wanted or not is_count(facts["rank"]) or facts["rank"] != rank:
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

        def refuse_different() -> None:
            for rank, theirs in enumerate(told):
                for name, a, b in zip(_COUNTS, told[0], theirs, strict=True):
                    if a != b:
                        raise ConfigError(
                            f"rank {rank} restores a state of {name} = {b}, and rank 0 one of {a}: all "
                            "ranks restore the state of one step, as load does from what save has saved."
                        )

        self.transport.ask_server(refuse_different)


def _refuse_half_sent(loops: Sequence[Resumable]) -> None:
    """Raise ``ConfigError`` if one of ``loops`` has sent blocks of a step, made from its present state."""
    if any(one._early is not None and one._early.begun for one in loops):
        raise ConfigError(
            "blocks of a step have been sent: end it by the call with the whole gradient, with torch by "
            "opt.step(), or give it up by drop() of the aggregator, and then load a state."
        )


def _numbered(states: list[dict[str, Any]]) -> dict[str, Any]:
    """The records of several loops in one dict: the names of the first begin with "1.", and so on."""
    return {f"{k}.{name}": record for k, own in enumerate(states, 1) for name, record in own.items()}


def _are_counts(number: int, value: Any) -> bool:
    """Whether ``value`` has the counts of ``number`` loops; None if there are none."""
    if not number:
        return value is None
    return (
        isinstance(value, list)
        and len(value) == number
        and all(isinstance(one, dict) and one.keys() == {*_COUNTS} for one in value)
        and all(is_count(count) for one in value for count in one.values())
    )


def _as_dict(state: Any) -> Any:
    """``state`` as a dict if it is another mapping, such as the open file of ``numpy.savez``."""
    if not isinstance(state, Mapping):
        return state
    try:
        return dict(state)
    except (OSError, ValueError, BadZipFile) as error:
        raise RecordError(f"the state is invalid: {one_line(error)}.") from error


def _plain(value: Any) -> Any:
    """The number or text in an array of shape (), such as ``numpy.savez`` makes; else ``value`` itself."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.shape == () else value
