"""The suites that come with the package, by name: ``demo`` is jobs/demo.toml of the repository."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from mpicomp.base.errors import ConfigError, check_known
from mpicomp.base.files import present, write_atomically
from mpicomp.lab.experiment.toml import read_toml


def suites() -> dict[str, Path]:
    """The TOML files of the suites by their names, in alphabetical order."""
    folder = Path(str(files("mpicomp.lab.experiment") / "suites"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def located(name: str | Path) -> Path:
    """The file ``name`` if there is one, else the file of the suite called ``name``.

    Raises ``ConfigError`` with the nearest name if there is neither, and if one cannot look for the file.
    """
    path, known = Path(name), suites()
    if present(path, ConfigError):
        return path
    if str(name) in known:
        return known[str(name)]
    near = get_close_matches(path.stem.lower(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"no file {str(path)!r}, and no suite of that name.{hint} Suites: {', '.join(known)}.")


def title(path: Path) -> str:
    """The title in the TOML file ``path`` of a suite or study."""
    return str(read_toml(path.read_text(encoding="utf-8"))["title"])


def copy(name: str, folder: Path) -> Path:
    """Copy the suite called ``name`` into ``folder``, which is made if need be; the path of the copy.

    Raises ``ConfigError`` for an unknown name and where the copy would overwrite a file, and ``RecordError``
    where it cannot be written.
    """
    known = suites()
    check_known("suite", name, known)
    target = folder / known[name].name
    if present(target):
        raise ConfigError(f"{target} exists. Name another folder, or delete that file.")
    write_atomically(target, known[name].read_bytes())
    return target
