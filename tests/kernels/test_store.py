"""Where compiled kernels are kept: a folder of code is its owner's alone, whole, or not used.

A package of one kernel stands for that of all, which takes half a minute to compile.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from mpicomp.kernels import store
from tests.support.launching import LIMIT, mpirun

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
OTHER = 12345  # a user that is not us

LOAD = """
import sys
from pathlib import Path
from mpicomp.kernels import loading

sys.path.insert(0, {package!r})
loading.compiling.PACKAGE, loading._BESIDE = "one_kernel", Path({beside!r})
kernels = loading.load_compiled()
print("numpy's" if kernels is loading.definition else kernels.doubled(21), loading.refusal())
"""


@pytest.fixture
def place(tmp_path):
    """A package of one kernel, and folders: one that cannot be written beside it, a shared cache, our own."""
    package = tmp_path / "package" / "one_kernel"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("PARTS = (), ()")
    (package / "all.py").write_text(
        dedent("""
        from numba import njit

        @njit(["int64(int64)"], cache=True)
        def doubled(x):
            return 2 * x
        """)
    )
    (tmp_path / "beside").write_text("")
    (tmp_path / "shared").mkdir()
    return tmp_path


def begin(place: Path, shared: Path | None = None, before: str = "") -> subprocess.Popen[str]:
    """Another process that loads the kernels, ``before`` which it does something else."""
    code = before + LOAD.format(package=str(place / "package"), beside=str(place / "beside"))
    caches = {"MPICOMP_CACHE": str(shared or place / "shared"), "XDG_CACHE_HOME": str(place / "own")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | caches, **pipes)


def load(place: Path, shared: Path | None = None, before: str = "") -> subprocess.CompletedProcess[str]:
    """What such a process prints."""
    process = begin(place, shared, before)
    out, err = process.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def kept(cache: Path) -> Path:
    """The one folder of kernels in a cache."""
    (folder,) = cache.glob("kernels-*")
    return folder


@pytest.fixture
def filled(place):
    """A cache with kernels in it; gives its folder of them."""
    done = load(place)
    assert done.stdout == "42 None\n" and "once on this machine" in done.stderr, done.stderr
    assert load(place).stderr == ""  # and nothing is compiled again
    return kept(place / "shared")


def rewrite(folder: Path, content: Callable[[bytes], bytes], suffixes: str = "[ic]") -> None:
    """Change the entries of ``folder``, and seal it as if they had been made so."""
    entries = {path: content(path.read_bytes()) for path in folder.rglob(f"*.nb{suffixes}")}
    others = {path: path.read_bytes() for path in folder.rglob("*.nb[ic]") if path not in entries}
    with store.filling(folder):
        for path, written in (entries | others).items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(written)


def plant(folder: Path, mark: Path) -> None:
    """Let every entry of ``folder`` make ``mark`` when it is read."""

    class Code:
        def __reduce__(self):
            return os.makedirs, (str(mark), 0o700, True)

    rewrite(folder, lambda _: pickle.dumps(Code()))


def test_what_is_made_is_ours_alone_whatever_the_umask(place):
    before = "import os; os.umask(0)\n"
    assert load(place, before=before).stdout == "42 None\n"
    folder = kept(place / "shared")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {entry.stat().st_mode & 0o777 for entry in folder.rglob("*.nb[ic]")} == {0o600}
    assert load(place).stderr == ""  # it finds them good


@as_root
@pytest.mark.parametrize(
    "whose", ["folder", "entry", "folder that all may write", "entry that all may write"]
)
def test_what_others_may_have_written_is_not_run(whose, filled, place):
    mark = place / "planted code ran"
    plant(filled, mark)
    entry = next(filled.rglob("*.nbc"))
    at = filled if whose.startswith("folder") else entry
    if "all" in whose:
        at.chmod(0o777)
    else:
        os.chown(at, OTHER, OTHER)
    done = load(place)
    assert not mark.exists()
    assert done.stdout == "42 None\n"
    reason = done.stderr.splitlines()[0]
    assert str(at) in reason and f"kept in {place / 'own' / 'mpicomp'}" in reason
    assert ("mode 777" if "all" in whose else f"user {OTHER}") in reason
    assert load(place).stderr == ""  # the private ones serve from here on


def test_planted_code_would_run_where_it_is_ours(filled, place):
    """So the test above would see it."""
    plant(filled, place / "planted code ran")
    load(place)
    assert (place / "planted code ran").exists()


def test_whole_kernels_that_cannot_be_loaded_are_named(filled, place):
    rewrite(filled, lambda content: content[:100], suffixes="c")
    done = load(place)
    assert f"the compiled kernels in {filled} cannot be loaded" in done.stderr
    assert "Delete that folder." in done.stderr


def test_a_folder_that_is_held_is_not_exchanged_for_another(tmp_path):
    """By somebody who may write to the folder around it."""
    (tmp_path / "kernels").mkdir(mode=0o700)
    (tmp_path / "kernels" / "entry").write_text("ours")
    with store.ours(tmp_path / "kernels") as held:
        (tmp_path / "kernels").rename(tmp_path / "moved")
        (tmp_path / "kernels").mkdir()
        (tmp_path / "kernels" / "entry").write_text("theirs")
        assert (held / "entry").read_text() == "ours"


def test_a_link_is_no_folder_of_ours(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "kernels").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), store.ours(tmp_path / "kernels"):
        pass


@pytest.mark.parametrize("damage", ["cut off", "emptied", "removed", "seal cut off"])
def test_damaged_kernels_are_made_again(damage, filled, place):
    entry = next(filled.rglob("*.nbc"))
    match damage:
        case "removed":
            entry.unlink()
        case "seal cut off":
            (filled / store.SEAL).write_text((filled / store.SEAL).read_text()[:20])
        case _:
            entry.write_bytes(entry.read_bytes()[: 100 * (damage == "cut off")])
    done = load(place)
    assert done.stdout == "42 None\n"
    assert f"the compiled kernels in {filled} are damaged, and made again." in done.stderr
    assert load(place).stderr == ""


def test_half_made_kernels_are_made_again(filled, place):
    (filled / store.SEAL).unlink()
    done = load(place)
    assert done.stdout == "42 None\n" and "damaged" not in done.stderr


@pytest.mark.parametrize("damaged", [False, True])
def test_of_processes_that_begin_together_one_compiles(damaged, filled, place):
    """And the others wait for it, and look into no other place meanwhile."""
    entry = next(filled.rglob("*.nbc"))
    if damaged:
        entry.write_bytes(b"")
    else:
        store.clear(filled)
    started = [begin(place) for _ in range(3)]
    said = [process.communicate(timeout=LIMIT) for process in started]
    assert [out for out, _ in said] == ["42 None\n"] * 3
    assert "".join(err for _, err in said).count("compiling the kernels") == 1
    assert not (place / "own").exists()


@contextmanager
def tiny_file_system(folder: Path, size: str):
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(folder)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"  # EFBIG for ENOSPC


@pytest.mark.parametrize("limit", ["one page", "no file above 2000 bytes"])
def test_on_a_full_disk_numpys_kernels_serve(limit, place):
    (place / "own").write_text("")  # nor is there another place
    if limit == "one page":
        with tiny_file_system(place / "tiny", "4k") as tiny:
            done = load(place, tiny)
            assert not [path for path in kept(tiny).rglob("*") if path.is_file() and path.name != store.LOCK]
    else:
        done = load(place, before=FULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("numpy's ")
    assert ("No space left" if limit == "one page" else "File too large") in done.stdout


def test_where_the_shared_disk_is_full_the_users_own_cache_serves(place):
    with tiny_file_system(place / "tiny", "4k") as tiny:
        assert load(place, tiny).stdout == "42 None\n"
    assert kept(place / "own" / "mpicomp").is_dir()


@pytest.mark.parametrize("which", [0, 1])
def test_ranks_forgo_the_kernels_together_and_say_so_once(which, place):
    """One of two can keep none.  The iterates are those of numpy's kernels, which are those of any."""
    for name in ("own", "file"):
        (place / name).write_text("")
    code = f"""
import os, sys
from pathlib import Path
import mpicomp
from mpicomp import kernels
from mpicomp.kernels import loading

rank = int(os.environ["OMPI_COMM_WORLD_RANK" if "OMPI_COMM_WORLD_RANK" in os.environ else "PMI_RANK"])
if rank == {which}:
    loading._BESIDE = Path({str(place / "file")!r})
problem = mpicomp.problems.Quadratics(d=kernels.LONG)
run = mpicomp.run(mpicomp.EF21(mpicomp.TopK(20)), problem, workers=2, rounds=3)
import numpy as np
forgone = kernels.backend_for(np.zeros(kernels.LONG)).pieces is kernels.definition
sys.stdout.write(f"{{forgone}} {{run.iterates_sha256}}\\n")
"""
    caches = {"MPICOMP_CACHE": str(place / "file"), "XDG_CACHE_HOME": str(place / "own")}
    done = mpirun(2, "-c", code, **caches)
    assert done.returncode == 0, done.stderr
    (first, second) = done.stdout.splitlines()
    assert first == second and first.startswith("True ")
    (line,) = done.stderr.splitlines()
    assert f"mpicomp: rank {which} can keep no compiled kernels ({place / 'file'}: " in line
    whole = mpirun(1, "-c", code.replace(f"== {which}", "== 2"))
    assert whole.stdout == first.replace("True", "False") + "\n"


def test_numba_that_may_not_compile_leaves_nothing_behind(place):
    """Its functions are Python's then: some cannot be called, and a folder without code looked whole."""
    told = load(place, before="import os; os.environ['NUMBA_DISABLE_JIT'] = '1'")
    assert (told.stdout, told.stderr) == ("numpy's None\n", "")
    assert not [*(place / "shared").iterdir()]
    assert load(place).stdout == "42 None\n"
