"""The generations of a checkpoint folder: their names, their manifests, and the removal of old ones.

A generation is the checkpoint of one round: a folder ``round-K`` with one file from each rank,
``part-R-SHA256.npz``, and a manifest.  The manifest's second line is the SHA-256 of its first.  A part's name
has the SHA-256 of its content, so a second save of the same round touches no file of the first save.  The
manifest is written last, by rename, and lists the parts that belong to the checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

from mpicomp.base.errors import RecordError
from mpicomp.base.files import is_file, is_folder, mode_of, os_errors_as

FORMAT = 6
MANIFEST = "manifest.json"
_KEPT = 2

Checks = dict[str, Callable[[Any], bool]]  # name of an entry of a manifest -> whether its value is allowed

_FOLDER = re.compile(r"round-(0|[1-9][0-9]*)")
_PART = re.compile(r"part-[0-9]+(-[0-9a-f]{64})?\.npz")  # older ones have no SHA-256 in their name
# Files that a killed save leaves behind: nobody else gives files such names.
_LEFT = re.compile(
    rf"part-[0-9]+-[0-9a-f]{{64}}\.npz|\.({_PART.pattern}|manifest\.json)\.[0-9a-f]{{16}}\.tmp"
)

_OURS = re.compile(rf"{_PART.pattern}|manifest\.json|{_LEFT.pattern}")


class DamageError(RecordError):
    """A generation cannot be read in full; the one before it may be sound."""


class UnreadableError(DamageError):
    """A file does not exist, or the system does not let us read it, so its content is unknown."""


def rounds_in(folder: Path) -> list[int]:
    """The rounds of the generations with a manifest, newest first.  Raises ``RecordError`` if unreadable."""
    try:
        return sorted((k for k, place in _places(folder) if mode_of(place / MANIFEST)), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"cannot look into {folder}: {error.strerror}.") from None


def _places(folder: Path) -> list[tuple[int, Path]]:
    """(round, folder) for each folder named ``round-K``, by increasing round."""
    named = [(_FOLDER.fullmatch(place.name), place) for place in folder.iterdir()]
    return sorted((int(match[1]), place) for match, place in named if match)


def seal(manifest: dict[str, Any]) -> bytes:
    """The bytes of a manifest file: ``manifest`` as one line of JSON, and the SHA-256 of this line."""
    line = json.dumps(manifest).encode()
    return line + f"\n{sha256(line).hexdigest()}\n".encode()


def read_manifest(place: Path) -> dict[str, Any]:
    """Read the manifest of the generation in ``place``; its format, round, config and parts are checked.

    Raises ``DamageError`` if it cannot be used, and ``RecordError`` if it has another format.
    """
    path = place / MANIFEST
    try:
        line, digest = read_inside(path).splitlines()
    except ValueError:
        raise DamageError(f"{path} is damaged: it is not complete.") from None
    if sha256(line).hexdigest().encode() != digest:
        raise DamageError(f"{path} is damaged: its SHA-256 is not the one it ends with.")
    try:
        manifest = json.loads(line)
    except (ValueError, RecursionError):
        raise DamageError(f"{path} is invalid: it is no JSON.") from None
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise DamageError(f"{path} is invalid: it is no manifest of a checkpoint.")
    if manifest["format"] != FORMAT:
        raise RecordError(
            f"{place} has checkpoint format {manifest['format']!r:.40}; this version reads {FORMAT}."
        )
    named: Checks = {"round": lambda k: is_count(k) and f"round-{k}" == place.name}
    check_facts(place, manifest, named | {"config": _is_config, "parts": _are_parts})
    return manifest


def check_facts(place: Path, manifest: dict[str, Any], checks: Checks) -> None:
    """Raise ``DamageError`` if an entry of ``manifest`` does not pass its check."""
    for name, check in checks.items():
        if not check(value := manifest.get(name)):
            raise DamageError(f"{place / MANIFEST} is invalid: {name} is {value!r:.40}.")


def is_count(value: Any) -> bool:
    """Whether ``value`` is an integer from 0 to 2^63 - 1."""
    return type(value) is int and 0 <= value < 2**63


def _is_config(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _are_parts(value: Any) -> bool:
    """Whether ``value`` is a list of [file, SHA-256, names of states], with no file or state twice."""
    if not isinstance(value, list) or not all(isinstance(part, list) and len(part) == 3 for part in value):
        return False
    if not all(isinstance(part[2], list) for part in value):
        return False
    files, held = [part[0] for part in value], [name for part in value for name in part[2]]
    return (
        all(isinstance(text, str) for text in (*files, *(part[1] for part in value), *held))
        and all(map(_PART.fullmatch, files))
        and len({*files}) == len(files)
        and len({*held}) == len(held)
    )


def read_inside(path: Path) -> bytes:
    """The content of a file of a generation.

    Raises ``DamageError`` if the file cannot be read, is a symbolic link, or is no regular file.
    """
    with os_errors_as(UnreadableError, f"cannot read {path}"):
        path.stat()  # says what is wrong, if nothing is there
        if path.is_symlink() or not is_file(path):
            raise DamageError(f"{path} is invalid: it is a link, or no file.")
        return path.read_bytes()


def set_aside(path: Path) -> None:
    """If the file at ``path`` is no valid manifest, rename it: it may be damaged, or somebody else's."""
    try:
        read_manifest(path.parent)
    except UnreadableError:
        if mode_of(path):
            raise
    except RecordError:
        path.rename(path.with_name(f"{path.name}.{token_hex(4)}.damaged"))


def clear(folder: Path, newest: int | None = None) -> None:
    """Remove the files of killed saves, which belong to no checkpoint; files of others stay.

    newest  the round that has just been saved.  Later generations are removed too: they are damaged, or from
            before the training went back to an earlier round.  Of the others the two newest are kept

    Raises ``OSError`` or ``RecordError`` if a generation after ``newest`` cannot be removed, because it would
    be loaded in place of ``newest``.
    """
    places = [(k, place) for k, place in _places(folder) if is_folder(place) and not place.is_symlink()]
    parts: dict[Path, list[str]] = {}  # of the generations with a manifest that is ours
    for k, place in places:
        try:
            parts[place] = [name for name, _, _ in read_manifest(place)["parts"]]
        except UnreadableError:
            if newest is not None and k > newest and mode_of(place / MANIFEST):
                raise
        except RecordError:
            pass
    gone: list[Path] = []
    if newest is not None:
        # In this order: while the last of them is there, it is the one that is loaded.
        gone = [place for k, place in places if k > newest and place in parts]
        for place in gone:
            (place / MANIFEST).unlink()
        gone += [place for k, place in places if k <= newest and place in parts][:-_KEPT]
    for _, place in places:
        with suppress(OSError):
            if place in parts or not mode_of(place / MANIFEST):  # else nobody knows what counts in it
                _clear_one(place, parts.get(place, []), place in gone)


def foreign(folder: Path) -> list[Path]:
    """The entries of ``folder`` and of its generations that no save has written, as far as one may look.

    If ``folder`` is a link, itself.
    """
    if folder.is_symlink():
        return [folder]
    found: list[Path] = []
    with suppress(OSError):
        for place in folder.iterdir():
            if place.is_symlink() or not (_FOLDER.fullmatch(place.name) and is_folder(place)):
                found.append(place)
            else:
                found += [file for file in place.iterdir() if not _OURS.fullmatch(file.name)]
    return found


def remove(folder: Path) -> None:
    """Remove all generations, as far as allowed, of a folder that holds nothing ``foreign``."""
    with suppress(OSError):
        for _, place in _places(folder):
            with suppress(OSError):
                _clear_one(place, [f.name for f in place.iterdir() if _OURS.fullmatch(f.name)], gone=True)
        folder.rmdir()


def _clear_one(place: Path, parts: list[str], gone: bool) -> None:
    """If ``gone``, remove a generation's manifest and parts; else only the files of killed saves in it."""
    removed = gone
    if gone:
        (place / MANIFEST).unlink(missing_ok=True)
    for file in [*place.iterdir()]:
        if gone if file.name in parts else _LEFT.fullmatch(file.name):
            file.unlink()
            removed = True
    if removed:
        place.rmdir()  # fails as long as anything is in it
