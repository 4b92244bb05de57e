"""The LIBSVM sets this library knows by name, and how they get into the cache.

The sets are those of https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/ .  They are recognised
by the SHA-256 of the plain file, so a mirror or a colleague's copy is as good as the official one.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from mpicomp.data.bundled import BUNDLED
from mpicomp.data.cache import read_set, set_folder, write_set
from mpicomp.data.dataset import Dataset
from mpicomp.data.libsvm import opened, read_libsvm
from mpicomp.errors import ConfigError, DataError, unknown

OFFICIAL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
SUFFIXES = ("", ".bz2", ".gz")


@dataclass(frozen=True)
class KnownSet:
    """``sha256`` is that of the plain file, ``suffix`` what its name on the official site ends in."""

    rows: int
    features: int
    sha256: str
    suffix: str = ""


KNOWN: dict[str, KnownSet] = {
    "mushrooms": KnownSet(8124, 112, "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538"),
    "a1a": KnownSet(1605, 123, "eb54c45f1bdb51286f803dd092eb8202b44637a858fc6c4e533a2d64a0d94b4e"),
    "a9a": KnownSet(32561, 123, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    "a9a.t": KnownSet(16281, 123, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    "w8a": KnownSet(49749, 300, "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"),
    "phishing": KnownSet(11055, 68, "0cf66ef36604c393da9359b2e5d894a2df8aee31fd184633cefa138add2ef08a"),
    "ijcnn1": KnownSet(49990, 22, "16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f", ".bz2"),
    "german.numer": KnownSet(1000, 24, "49cd2d01c2b2908a84db1f1c94e3ec04f772db3a91560af1225edf739f003194"),
    "splice": KnownSet(1000, 60, "5eee48697657a500cf014322130fafc46706beb8d8ae6837cdbee6672b213897"),
    "madelon": KnownSet(2000, 500, "4801c452441772b47674fa8deb3724b1cb897eff49ccd8d47078367080c05b54"),
}


def official_url(name: str) -> str:
    """Where a known set is published."""
    return f"{OFFICIAL}/{name}{KNOWN[name].suffix}"


def fetch(name: str, source: str | Path | None = None) -> Dataset:
    """Put a known set into the cache, unless it is there, and return it.

    ``source`` is a folder, or the base URL of a mirror, that holds the file plain, as .bz2 or as .gz;
    by default the official site.  Raises ``ConfigError`` for an unknown name, and ``DataError`` if the
    file cannot be had, has another SHA-256, or the cache cannot be written.
    """
    if name in BUNDLED:
        raise ConfigError(f"{name} comes with the library: there is nothing to fetch.")
    if name not in KNOWN:
        raise unknown("data set", name, KNOWN)
    if (cached := read_set(name, name)) is not None:
        return cached
    with tempfile.TemporaryDirectory(prefix="mpicomp-") as folder:
        path = _obtain(name, source, Path(folder))
        _check(path, name)
        dataset = Dataset.of(name, *read_libsvm(path, KNOWN[name].features))
    try:
        write_set(name, dataset)
    except OSError as error:
        raise DataError(
            f"cannot write {set_folder(name)}: {error}. Set MPICOMP_CACHE to a folder that you can write."
        ) from error
    return read_set(name, name) or dataset


def _obtain(name: str, source: str | Path | None, folder: Path) -> Path:
    """A local path of the set's file: in the source folder, or downloaded into ``folder``."""
    if source is None:
        candidates = [official_url(name)]
    elif "://" in str(source):
        candidates = [f"{str(source).rstrip('/')}/{name}{suffix}" for suffix in SUFFIXES]
    else:
        paths = [Path(source) / f"{name}{suffix}" for suffix in SUFFIXES]
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            raise DataError(f"{source} holds none of {', '.join(path.name for path in paths)}.")
        return found
    failures = []
    for url in candidates:
        path = folder / url.rpartition("/")[2]
        try:
            with urllib.request.urlopen(url, timeout=60) as reply, path.open("wb") as file:
                shutil.copyfileobj(reply, file)
            return path
        except (OSError, HTTPException, ValueError) as error:
            failures.append(f"{url}: {error}")
            if not isinstance(error, urllib.error.HTTPError):
                break
            error.close()  # the server is there but has no such file: try the next suffix
    raise DataError(
        f"could not download {name} ({'; '.join(failures)}). Get the file elsewhere and run "
        f"`mpicomp data fetch {name} --from FOLDER_OR_URL`; it may be plain, .bz2 or .gz."
    )


def _check(path: Path, name: str) -> None:
    """Refuse a file that is not, byte for byte, the published one."""
    with opened(path) as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    if got != KNOWN[name].sha256:
        raise DataError(
            f"{path.name} is not the published {name}: SHA-256 expected {KNOWN[name].sha256}, got {got}. "
            f"Get the file from {official_url(name)}, or give the path of this one as the data."
        )
