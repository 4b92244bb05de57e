"""State to files and back.

A generation is a folder ``round-K`` with one ``part-R.npz`` from each rank and a manifest.  The
manifest is written last, by rename, and holds each part's SHA-256: a generation without it, or whose
parts do not match it, does not count.  The two newest generations are kept.  States are stored by
worker, so a run may be resumed on another number of ranks.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Collection
from dataclasses import fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.base.errors import RecordError
from mpicomp.base.files import write_atomically
from mpicomp.transports import Transport

FORMAT = 6
_KEPT = 2

States = dict[str, Any]  # a name such as "worker-3" -> a record of arrays and numbers


class DamageError(RecordError):
    """A generation that cannot be read in full; the one before may be sound."""


def save(folder: Path, transport: Transport, round: int, states: States, header: dict[str, Any]) -> None:
    """Write a generation; collective.  ``states`` are this rank's, ``header`` the server's own facts."""
    place = folder / f"round-{round}"

    def write_part() -> tuple[str, str, list[str]]:
        arrays = {f"{name}.{f.name}": getattr(s, f.name) for name, s in states.items() for f in fields(s)}
        buffer = io.BytesIO()
        np.savez(buffer, **{name: kernels.to_host(value) for name, value in arrays.items()})
        name = f"part-{transport.rank}.npz"
        write_atomically(place / name, buffer.getvalue())
        return name, sha256(buffer.getbuffer()).hexdigest(), list(states)

    parts = transport.collect(transport.raise_on_all(write_part))

    def write_manifest() -> None:
        if parts is not None:
            manifest = json.dumps({"format": FORMAT, "round": round, "parts": parts, **header})
            seal = sha256(manifest.encode()).hexdigest()  # the second line is the SHA-256 of the first
            write_atomically(place / "manifest.json", f"{manifest}\n{seal}\n".encode())
            # Later ones are damaged, or this run had resumed there; without a manifest: torn.
            kept = [f"round-{k}" for k in _generations(folder) if k <= round][:_KEPT]
            for other in folder.glob("round-*"):
                if other.name not in kept:
                    shutil.rmtree(other, ignore_errors=True)

    transport.raise_on_all(write_manifest)


def exists(folder: Path) -> bool:
    """Whether there is a generation to load."""
    return bool(_generations(folder))


def refuse_to_replace(folder: Path, trainings: Collection[str | None]) -> None:
    """Raise ``RecordError`` if the newest generation that can be read is of none of the ``trainings``.

    None stands for a generation that does not say whose it is.
    """
    for round in _generations(folder):
        try:
            manifest = _read_manifest(folder / f"round-{round}")
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
    needed: Collection[str] = (),
) -> dict[str, Any]:
    """Fill ``states`` from the newest checkpoint that is complete and undamaged; return its manifest.

    Collective.  A damaged checkpoint is passed over, and the one before is tried.  Raises ``RecordError`` if
    none can be read, if its ``config`` differs from the given one, or if it lacks a state that is
    ``needed``; others that it lacks stay as they are.
    """
    damage: list[str] = []
    for round in transport.ask_server(lambda: _generations(folder)):
        place = folder / f"round-{round}"
        try:
            manifest = transport.raise_on_all(partial(_read_manifest, place))
            transport.raise_on_all(partial(_refuse_other, place, manifest["config"], config))
            transport.raise_on_all(partial(_refuse_lacking, place, manifest, needed))
            read = transport.raise_on_all(partial(_read_states, place, manifest, states))
        except DamageError as error:
            damage.append(str(error))
            continue
        for record, field, value in read:  # not before every rank has read all
            setattr(record, field, value)
        return manifest
    raise RecordError(" ".join(damage) or f"{folder} holds no checkpoint: start anew in another folder.")


def _generations(folder: Path) -> list[int]:
    """The rounds of the complete generations, newest first.  Raises ``RecordError`` if unreadable."""
    try:
        names = [place.name for place in folder.iterdir() if (place / "manifest.json").exists()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"cannot look into {folder}: {error.strerror}.") from None
    return sorted((int(n[6:]) for n in names if n.startswith("round-") and n[6:].isdigit()), reverse=True)


def _read_manifest(place: Path) -> dict[str, Any]:
    path = place / "manifest.json"
    try:
        content, seal = path.read_bytes().splitlines()
    except OSError as error:
        raise DamageError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise DamageError(f"{path} is damaged: it is not complete.") from None
    if sha256(content).hexdigest().encode() != seal:
        raise DamageError(f"{path} is damaged: its SHA-256 is not the one it ends with.")
    manifest = json.loads(content)
    if manifest["format"] != FORMAT:
        raise RecordError(f"{place} has checkpoint format {manifest['format']}; this version reads {FORMAT}.")
    return manifest


def _refuse_other(place: Path, saved: dict[str, str], config: dict[str, str]) -> None:
    for field in {**saved, **config}:
        if saved.get(field) != config.get(field):
            raise RecordError(
                f"{place} belongs to another run: {field} is {saved.get(field)} there "
                f"and {config.get(field)} here."
            )


def _refuse_lacking(place: Path, manifest: dict[str, Any], needed: Collection[str]) -> None:
    held = {name for _, _, names in manifest["parts"] for name in names}
    if lacking := sorted(set(needed) - held):
        raise RecordError(f"{place} was saved without {', '.join(lacking)}.")


def _read_states(place: Path, manifest: dict[str, Any], states: States) -> list[tuple[Any, str, Any]]:
    """The values of all fields of ``states`` that were saved: record, name and value."""
    read = []
    for name, digest, held in manifest["parts"]:
        wanted = [state for state in held if state in states]
        if not wanted:
            continue
        try:
            content = (place / name).read_bytes()
        except OSError as error:
            raise DamageError(f"cannot read {place / name}: {error.strerror}.") from None
        if sha256(content).hexdigest() != digest:
            raise DamageError(f"{place / name} is damaged: its SHA-256 is not the manifest's.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for state in wanted:
                for f in fields(states[state]):
                    value = arrays[f"{state}.{f.name}"]
                    fresh = getattr(states[state], f.name)
                    if kernels.on_device(fresh):
                        value = kernels.to_device(value)
                    elif not isinstance(fresh, np.ndarray):
                        value = type(fresh)(value)
                    read.append((states[state], f.name, value))
    return read
