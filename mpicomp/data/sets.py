"""The data sets that this library knows by name; ``fetch`` downloads them into the cache.

The LIBSVM sets come from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/ .  Files are verified by
the SHA-256 of their uncompressed content, so a mirror or a colleague's copy is as good as the official one.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from mpicomp.base.errors import ConfigError, DataError, unknown
from mpicomp.base.files import as_path, is_file, os_errors_as
from mpicomp.data.bundled import BUNDLED
from mpicomp.data.cache import images_key, read_entry, set_folder, write_entry
from mpicomp.data.dataset import Dataset
from mpicomp.data.idx import read_idx
from mpicomp.data.images import Images
from mpicomp.data.libsvm import read_libsvm
from mpicomp.data.opening import opened

SUFFIXES = ("", ".bz2", ".gz")


@dataclass(frozen=True)
class Published:
    """A file of a known set.

    path    its path in a folder or on a mirror, without a suffix for compression
    url     its official address, suffix included
    sha256  hash of the uncompressed file
    """

    path: str
    url: str
    sha256: str


@dataclass(frozen=True)
class KnownSet:
    """A LIBSVM file: ``sha256`` is of the uncompressed file, ``suffix`` of the compressed one on the site."""

    rows: int
    features: int
    sha256: str
    suffix: str = ""

    def files(self, name: str) -> tuple[Published, ...]:
        site = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
        return (Published(name, f"{site}/{name}{self.suffix}", self.sha256),)

    def parse(self, name: str, paths: list[Path]) -> Dataset:
        return Dataset.of(name, *read_libsvm(paths[0], self.features))


@dataclass(frozen=True)
class KnownImages:
    """Images of 28 x 28 pixels and their labels, in two IDX files.

    Many sets use the same file names.  In a folder or on a mirror, the files are therefore expected in a
    subfolder ``folder``.
    """

    rows: int
    folder: str
    site: str
    part: str  # "train" or "t10k"
    images_sha256: str
    labels_sha256: str

    features = 784

    def files(self, name: str) -> tuple[Published, ...]:
        parts = {"images-idx3": self.images_sha256, "labels-idx1": self.labels_sha256}
        names = {f"{self.part}-{part}-ubyte": sha256 for part, sha256 in parts.items()}
        return tuple(
            Published(f"{self.folder}/{file}", f"{self.site}/{file}.gz", sha256)
            for file, sha256 in names.items()
        )

    def parse(self, name: str, paths: list[Path]) -> Images:
        pixels, labels = (read_idx(path) for path in paths)
        return Images.of(name, pixels, labels, white=255)


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


_MNIST = partial(KnownImages, folder="mnist", site="https://ossci-datasets.s3.amazonaws.com/mnist")
_FASHION = partial(
    KnownImages, folder="fashion-mnist", site="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
)
KNOWN_IMAGES: dict[str, KnownImages] = {
    "mnist": _MNIST(
        60000,
        part="train",
        images_sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        labels_sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "mnist.t": _MNIST(
        10000,
        part="t10k",
        images_sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        labels_sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion_mnist": _FASHION(
        60000,
        part="train",
        images_sha256="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        labels_sha256="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "fashion_mnist.t": _FASHION(
        10000,
        part="t10k",
        images_sha256="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        labels_sha256="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}


def fetch(name: str, source: str | Path | None = None) -> Dataset | Images:
    """Put a known set into the cache, unless it is there, and return it.

    ``source`` is a folder, or the base URL of a mirror, that holds the files uncompressed, as .bz2 or as .gz;
    by default it is the official site.  Raises ``ConfigError`` for an unknown name, and ``DataError`` if a
    file cannot be obtained, has another SHA-256, or the cache cannot be written.
    """
    if name in BUNDLED:
        raise ConfigError(f"{name} comes with the library: there is nothing to fetch.")
    known = KNOWN.get(name) or KNOWN_IMAGES.get(name)
    if known is None:
        raise unknown("data set", name, (*KNOWN, *KNOWN_IMAGES))
    if source is not None:
        as_path("source", source)
    if (cached := _read(name)) is not None:
        return cached
    with tempfile.TemporaryDirectory(prefix="mpicomp-") as folder:
        paths = []
        for file in known.files(name):
            paths.append(_obtain(name, file, source, Path(folder)))
            _check(paths[-1], name, file)
        parsed = known.parse(name, paths)
    try:
        write_entry(images_key(name) if name in KNOWN_IMAGES else name, parsed)
    except OSError as error:
        raise DataError(
            f"cannot write {set_folder(name)}: {error}. Set MPICOMP_CACHE to a folder that you can write."
        ) from error
    return _read(name) or parsed


def _read(name: str) -> Dataset | Images | None:
    if name in KNOWN_IMAGES:
        return read_entry(Images, images_key(name), name)
    return read_entry(Dataset, name, name)


def _obtain(name: str, file: Published, source: str | Path | None, folder: Path) -> Path:
    """The local path of ``file``: in the source folder, or downloaded into ``folder``."""
    names = [f"{file.path}{suffix}" for suffix in SUFFIXES]
    if source is None:
        candidates = [file.url]
    elif "://" in str(source):
        candidates = [f"{str(source).rstrip('/')}/{path}" for path in names]
    else:
        with os_errors_as(DataError, f"cannot look into {source}"):
            found = next((path for path in (Path(source) / n for n in names) if is_file(path)), None)
        if found is None:
            raise DataError(f"{source} holds none of {', '.join(names)}.")
        return found
    failures = []
    for url in candidates:
        path = folder / url.rpartition("/")[2]
        try:
            with urllib.request.urlopen(url, timeout=60) as reply, path.open("wb") as copy:
                shutil.copyfileobj(reply, copy)
            return path
        except (OSError, HTTPException, ValueError) as error:
            failures.append(f"{url}: {error}")
            if not isinstance(error, urllib.error.HTTPError):
                break
            error.close()  # the server is there but has no such file: try the next suffix
    raise DataError(
        f"could not download {name} ({'; '.join(failures)}). Get the file elsewhere and run "
        f"`mpicomp data fetch {name} --from FOLDER_OR_URL`; there it is {file.path}, plain, .bz2 or .gz."
    )


def _check(path: Path, name: str, file: Published) -> None:
    """Raise ``DataError`` unless the uncompressed file at ``path`` has the published SHA-256."""
    with opened(path) as content:
        got = hashlib.file_digest(content, "sha256").hexdigest()
    if got != file.sha256:
        own = ", or give the path of this one as the data" if name in KNOWN else ""
        raise DataError(
            f"{path.name} is not the published {name}: SHA-256 expected {file.sha256}, got {got}. "
            f"Get the file from {file.url}{own}."
        )
