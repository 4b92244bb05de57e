"""Save the state of a run to files, by all ranks together, and load it.

A checkpoint of one round is called a generation (see ``generations``).  Each rank writes its part of it, and
the server writes the manifest last.  A generation is ignored if it has no manifest or its parts do not match
it.  The two newest generations are kept.  States are stored by worker, so a run may be resumed on another
number of ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mpicomp.base.errors import ConfigError, MpicompError, RecordError
from mpicomp.base.files import flush_folder, write_atomically
from mpicomp.base.former import present_config
from mpicomp.base.units import from_difference
from mpicomp.runtime import generations, saved
from mpicomp.runtime.generations import FORMAT, MANIFEST, Checks, DamageError, read_manifest
from mpicomp.transports import Transport

States = dict[str, Any]  # a name such as "worker-3" -> a record of arrays and numbers


def save(folder: Path, transport: Transport, round: int, states: States, header: dict[str, Any]) -> None:
    """Write a checkpoint of round ``round``; collective.

    states  this rank's records, by name
    header  the server's further entries of the manifest; other ranks' are ignored

    If it is killed at any time, or raises ``RecordError``, the previous checkpoint is the one to load.
    Raises ``ConfigError`` if two ranks save a record under the same name.
    """
    place = folder / f"round-{round}"

    def write_part() -> tuple[str, str, list[str]]:
        content = saved.to_npz(states)
        digest = sha256(content).hexdigest()
        name = f"part-{transport.rank}-{digest}.npz"
        write_atomically(place / name, content)
        flush_folder(place)
        return name, digest, list(states)

    def write_manifest(parts: Any) -> None:
        if parts is None:  # on other ranks than the server
            return
        _refuse_twice(parts)
        manifest = {"format": FORMAT, "round": round, "parts": parts, **header}
        try:
            generations.set_aside(place / MANIFEST)
            write_atomically(place / MANIFEST, generations.seal(manifest))
            flush_folder(place)
            flush_folder(folder)
            generations.clear(folder, round)
        except OSError as error:
            raise RecordError(f"cannot write {error.filename or place}: {error.strerror}.") from None

    try:
        parts = transport.collect(transport.raise_on_all(write_part))
        transport.raise_on_all(lambda: write_manifest(parts))
    except MpicompError:
        if transport.is_server:
            with suppress(OSError):
                generations.clear(folder)
        raise


def _refuse_twice(parts: list[tuple[str, str, list[str]]]) -> None:
    """Raise ``ConfigError`` if two ranks save a record under one name: one would be lost."""
    rank_of: dict[str, int] = {}
    for rank, (_, _, names) in enumerate(parts):
        for name in names:
            if (other := rank_of.setdefault(name, rank)) != rank:
                raise ConfigError(
                    f"ranks {other} and {rank} both save {name!r}: give each a name of its own."
                )


def exists(folder: Path) -> bool:
    """Whether ``folder`` holds a checkpoint with a manifest."""
    return bool(generations.rounds_in(folder))


def refuse_to_replace(folder: Path, trainings: Collection[str | None]) -> None:
    """Raise ``RecordError`` if the newest readable checkpoint belongs to none of ``trainings``.

    A training is named by a random text; None stands for a checkpoint that has no such name.
    """
    for round in generations.rounds_in(folder):
        try:
            manifest = read_manifest(folder / f"round-{round}")
        except DamageError:
            continue
        if manifest.get("training") not in trainings:
            raise RecordError(
                f"{folder} holds the state of another training, after {round} rounds. Load it first to go on "
                "from there, or save into another folder: one for each aggregator."
            )
        return


def load(
    folder: Path,
    transport: Transport,
    states: States,
    config: dict[str, str],
    facts: Checks,
    records: States | None = None,
) -> dict[str, Any]:
    """Fill ``states`` from the newest checkpoint that is complete and sound; return its manifest.

    config   the configuration that the saved one has to equal, by name
    facts    further entries of the manifest: name -> a function that says whether a value is valid
    records  further records to fill; their arrays may have any shape and type

    Collective.  A damaged checkpoint is skipped, and the previous one is tried.  Raises ``RecordError`` if
    none can be read, if its ``config`` differs from the given one, or if it lacks one of ``records``.  The
    manifest may list the workers that were alive as its ``crew``; the states of others stay as they are.
    """
    damage: list[str] = []
    records = records or {}
    for round in transport.ask_server(lambda: generations.rounds_in(folder)):
        place = folder / f"round-{round}"

        def manifest_here(place: Path = place) -> dict[str, Any]:
            found = read_manifest(place)
            if other := difference(found["config"], config):
                raise RecordError(f"{place} belongs to another run: {other}")
            generations.check_facts(place, found, facts)
            _refuse_lacking(place, found, states, records)
            return found

        try:
            manifest = transport.raise_on_all(manifest_here)
            read = transport.raise_on_all(partial(_read, place, manifest, states, records))
        except DamageError as error:
            damage.append(str(error))
            continue
        for record, field, value in read:  # not before every rank has read all
            object.__setattr__(record, field, value)  # in a frozen record too
        return manifest
    raise RecordError(" ".join(damage) or f"{folder} holds no checkpoint: start anew in another folder.")


def difference(theirs: Mapping[str, Any], config: dict[str, str]) -> str | None:
    """The first entry of a saved configuration, ``theirs``, that is not that of ``config``, with a remedy."""
    theirs = present_config(theirs)
    for field in {**theirs, **config}:
        there, here = theirs.get(field), config.get(field)
        if not isinstance(there, str | None) or there != here:
            then, now = from_difference(*("not given" if v is None else str(v) for v in (there, here)))
            return f"{field} is {then} there and {now} here.{remedy(field, there)}"
    return None


def remedy(field: str, there: str | None) -> str:
    """Advice if a saved state has another value, ``there``, of the configuration's ``field``."""
    if not isinstance(there, str):
        return ""
    if " at 0x" in there:
        return (
            " Such a text differs in each program: make the class a dataclass, whose text has its fields, "
            "and keep functions out of these."
        )
    if field != "workers":
        return ""
    return f" Give workers={there}, which any number of ranks can host, or start as many ranks as before."


def _refuse_lacking(place: Path, manifest: dict[str, Any], states: States, records: States) -> None:
    held = {name for _, _, names in manifest["parts"] for name in names}
    if lacking := sorted(records.keys() - held):
        raise RecordError(f"{place} was saved without {', '.join(lacking)}.")
    if crew := manifest.get("crew"):  # a run may have lost workers
        states = {name: s for name, s in states.items() if not _is_of_others(name, crew)}
    if lacking := sorted(states.keys() - held):
        raise DamageError(f"{place / MANIFEST} is invalid: it lacks {', '.join(lacking)}.")


def _is_of_others(name: str, crew: list[int]) -> bool:
    """Whether a state belongs to a worker that is not in ``crew``."""
    kind, _, number = name.partition("-")
    return kind in ("worker", "meter") and int(number) not in crew


def _read(
    place: Path, manifest: dict[str, Any], states: States, records: States
) -> list[tuple[Any, str, Any]]:
    """Read the saved fields of ``states`` and ``records``: a list of (record, field name, value)."""
    read = []
    asked = states | records
    for file, digest, held in manifest["parts"]:
        wanted = [name for name in held if name in asked]
        if not wanted:
            continue
        content = generations.read_inside(place / file)
        if sha256(content).hexdigest() != digest:
            raise DamageError(f"{place / file} is damaged: its SHA-256 is not the manifest's.")
        try:
            arrays = saved.Npz(content)
            for name in wanted:
                for f in fields(asked[name]):
                    value, fresh = arrays.read(f"{name}.{f.name}"), getattr(asked[name], f.name)
                    if name in states:
                        value = saved.fitting(f"{name}.{f.name}", value, fresh)
                    elif not isinstance(fresh, np.ndarray):
                        value = saved.number(f"{name}.{f.name}", value, fresh)
                    read.append((asked[name], f.name, value))
        except RecordError as error:
            raise DamageError(f"{place / file} is invalid: {error}.") from None
    return read
