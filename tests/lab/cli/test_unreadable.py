"""Files that cannot be read, or must not be believed: one message, from one rank, and nothing crashes."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError, DataError, RecordError
from mpicomp.data import cache as data_cache
from mpicomp.data import fetch, load_dataset, load_images, loading
from mpicomp.data.cache import set_folder
from mpicomp.images import ImageModel, Stack, read_images, write_images
from mpicomp.images.grey import load_grey
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.folder import read_comparison
from mpicomp.lab.experiment.report import plot_files
from mpicomp.lab.experiment.shipped import copy, located
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.problems import Logistic, Quadratics
from mpicomp.text.config import parse_problem
from tests.support.launching import mpicomp as command
from tests.support.launching import mpirun

NOBODY = 65534
LONG = "x" * 300
SUITE = 'problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = [{method = "gd"}]'
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")


@contextmanager
def nobody():
    """Within, this process may read what everybody may."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def closed():
    """A folder that its owner alone may enter, with a data file and a run in it.

    It lies in one that everybody may enter, unlike pytest's own, which tests beside this one use too.
    """
    with TemporaryDirectory() as around:
        Path(around).chmod(0o755)
        folder = Path(around) / "closed"
        folder.mkdir()
        (folder / "data").write_text("1 1:1\n-1 1:2\n")
        run(out=folder / "run")
        folder.chmod(0o700)
        (folder / "data").chmod(0o600)
        yield folder


def run(**options):
    return mpicomp.run(GD(), Quadratics(d=9), workers=2, rounds=3, **options)


@as_root
def test_data_in_a_folder_that_one_may_not_enter(closed):
    with nobody(), pytest.raises(DataError, match=r"cannot read data '.*closed/data': Permission denied"):
        load_dataset(str(closed / "data"))


@as_root
def test_a_data_file_that_one_may_not_read(closed):
    closed.chmod(0o755)
    with nobody(), pytest.raises(DataError, match=r"cannot read data '.*closed/data': Permission denied"):
        load_dataset(str(closed / "data"))


@as_root
def test_files_to_fetch_from_a_folder_that_one_may_not_enter(closed):
    with nobody(), pytest.raises(DataError, match=r"cannot look into .*closed: Permission denied"):
        fetch("german.numer", closed)


@as_root
@pytest.mark.parametrize("resume", [False, True, None])
def test_a_record_in_a_folder_that_one_may_not_enter(resume, closed):
    with nobody(), pytest.raises(RecordError, match=r"cannot look into .*closed/run.*: Permission denied"):
        run(out=closed / "run", resume=resume)


@as_root
@pytest.mark.parametrize("resume", [False, True, None])
def test_a_comparison_in_a_folder_that_one_may_not_enter(resume, closed):
    suite = parse_suite(SUITE)
    with nobody(), pytest.raises(RecordError, match=r"cannot look into .*/comparison: Permission denied"):
        compare(suite, closed / "comparison", resume=resume)


@as_root
@pytest.mark.parametrize("resume", [True, None])
def test_checkpoints_that_one_may_not_see_are_not_taken_for_none(resume, closed):
    """Else the run would begin again, over its own record."""
    closed.chmod(0o755)
    (closed / "run" / "checkpoint").chmod(0o700)
    for path in (closed / "run", closed / "run" / "rows.csv", closed / "run" / "run.json"):
        os.chown(path, NOBODY, NOBODY)
    before = (closed / "run" / "rows.csv").read_bytes()
    with nobody(), pytest.raises(RecordError, match=r"cannot look into .*/checkpoint: Permission denied"):
        run(out=closed / "run", resume=resume)
    assert (closed / "run" / "rows.csv").read_bytes() == before


@as_root
@pytest.mark.parametrize("read", [load_grey, read_images])
@pytest.mark.parametrize("name", ["", "images", "images.idx"])
def test_images_in_a_folder_that_one_may_not_enter(name, read, closed):
    """The folder itself is one of PNG files."""
    with nobody(), pytest.raises(DataError, match=r"cannot .*closed.*: Permission denied"):
        read(str(closed / name))


@as_root
def test_a_model_of_images_in_a_folder_that_one_may_not_enter(closed):
    with nobody(), pytest.raises(DataError, match=r"cannot read the model .*/run: Permission denied"):
        ImageModel.load(closed / "run")


@as_root
@pytest.mark.parametrize("name", ["out.idx", "out"])
def test_images_are_not_written_where_one_may_not_look(name, closed):
    stacks = [Stack(np.zeros((1, 2, 2), dtype=np.uint8))]
    with nobody(), pytest.raises(RecordError, match=r"cannot look into .*: Permission denied"):
        write_images(stacks, closed / name)


@as_root
@pytest.mark.parametrize("read", [mpicomp.load, lambda folder: plot_files([folder])], ids=["load", "plot"])
def test_a_record_to_show_in_a_folder_that_one_may_not_enter(read, closed):
    with nobody(), pytest.raises(RecordError, match=r"cannot look into .*closed/run: Permission denied"):
        read(closed / "run")


@as_root
def test_a_comparison_with_a_run_that_one_may_not_read(closed):
    closed.chmod(0o755)
    compare(parse_suite(SUITE), closed / "comparison")
    (closed / "comparison" / "runs" / "gd").chmod(0o700)
    with nobody(), pytest.raises(RecordError, match=r"cannot look into .*/gd/seed-0: Permission denied"):
        read_comparison(closed / "comparison")


@as_root
def test_suites_in_a_folder_that_one_may_not_enter(closed):
    denied = r"cannot look into .*closed: Permission denied"
    with nobody():
        with pytest.raises(ConfigError, match=denied):
            mpicomp.compare(str(closed / "suite.toml"))
        with pytest.raises(RecordError, match=denied):
            copy("demo", closed)


@as_root
def test_suites_are_not_copied_where_one_may_not_write(closed):
    closed.chmod(0o755)
    for folder in (closed, closed / "new"):
        with nobody(), pytest.raises(RecordError, match=r"cannot write .*demo\.toml: Permission denied"):
            copy("demo", folder)


@as_root
def test_a_class_in_a_folder_that_one_may_not_enter(closed):
    with nobody(), pytest.raises(ConfigError, match=r"cannot look into .*closed: Permission denied"):
        parse_problem(f"{closed}/mine.py:My()")


@pytest.mark.parametrize("name", [LONG, f"/tmp/{LONG}"], ids=["long", "long path"])
@pytest.mark.parametrize("read", [load_dataset, load_images, load_grey, read_images])
def test_names_that_no_file_can_have(read, name):
    with pytest.raises(DataError, match="cannot read data"):
        read(name)


def test_suites_and_classes_whose_names_are_too_long():
    with pytest.raises(ConfigError, match=r"cannot look for x+: File name too long"):
        located(LONG)
    with pytest.raises(ConfigError, match=r"cannot look for .*/x+\.py: File name too long"):
        parse_problem(f"./{LONG}.py:My()")
    done = command("compare", LONG)
    assert done.returncode == 2 and "File name too long" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("resume", [False, True, None])
def test_a_record_whose_name_is_too_long(resume, tmp_path):
    with pytest.raises(RecordError, match="File name too long"):
        run(out=tmp_path / LONG, resume=resume)


@pytest.mark.parametrize(
    ("problem", "out"),
    [
        (f"logistic(data={LONG}, lam=0.1)", "run"),
        (f"local_images(data=/tmp/{LONG})", "run"),
        (f"./{LONG}.py:My()", "run"),
        ("quadratics(d=9)", LONG),
    ],
    ids=["data", "images", "class", "out"],
)
def test_ranks_say_it_once(problem, out, tmp_path):
    options = (
        "--problem",
        problem,
        "--method",
        "gd(gamma=0.1)",
        "--workers",
        "2",
        "--out",
        str(tmp_path / out),
    )
    done = mpirun(2, "-m", "mpicomp", "run", *options, "--resume-or-start")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.count("File name too long") == 1


# --- the cache of data sets ---


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache, and nothing kept in memory of sets that were read before."""
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))

    def forget():
        loading._load.cache_clear()
        loading._load_images.cache_clear()

    forget()
    yield forget
    forget()


def put(path, change):
    """Change the array in a file of the cache."""
    values = np.load(path)
    change(values)
    np.save(path, values)


def beyond(values):
    values[3] = 10**6


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("array", ["indices", "indptr", "data", "y"])
def test_a_cached_set_that_was_changed_is_not_used(array, large, own_cache, monkeypatch):
    """An index beyond the columns would be read, and written, out of bounds."""
    monkeypatch.setattr(data_cache, "LARGE", 0 if large else 2**30)
    load_dataset("breast_cancer")
    own_cache()
    load_dataset("breast_cancer")  # from the cache, and of a large one its sum is noted
    put(set_folder("breast_cancer") / f"{array}.npy", beyond)
    own_cache()
    with pytest.raises(
        DataError, match=r"breast_cancer is damaged \(its SHA-256 is .*Delete that folder; .*fetch"
    ):
        load_dataset("breast_cancer")
    with pytest.raises(DataError):
        mpicomp.run(GD(), Logistic("breast_cancer", lam=0.1), workers=2, rounds=1)


@pytest.mark.parametrize("array", ["pixels", "labels"])
def test_cached_images_that_were_changed_are_not_used(array, own_cache):
    load_images("digits")
    put(set_folder("images-digits") / f"{array}.npy", lambda values: values.fill(11))
    own_cache()
    with pytest.raises(DataError, match="images-digits is damaged"):
        load_images("digits")


def test_the_sum_of_a_large_set_is_taken_once(own_cache, monkeypatch):
    monkeypatch.setattr(data_cache, "LARGE", 0)
    sums, real = [], data_cache.content_sha256
    monkeypatch.setattr(data_cache, "content_sha256", lambda *a: sums.append(1) or real(*a))
    for _ in range(3):
        own_cache()
        load_dataset("breast_cancer")
    assert len(sums) == 1
    noted = json.loads((set_folder("breast_cancer") / "checked.json").read_text())
    assert [name for name, _, _ in noted] == ["data.npy", "indices.npy", "indptr.npy", "y.npy"]
