"""Suites that come with the package: found by name, copied, and in the wheel."""

from __future__ import annotations

from configparser import ConfigParser
from importlib.resources import files
from math import comb
from pathlib import Path

import pytest

import mpicomp
from mpicomp import AGD, GD, LBFGS, ConfigError
from mpicomp.lab.experiment.fairness import LEVEL
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.shipped import copy, located, suites, title
from mpicomp.lab.experiment.study import Study, load_file
from tests.support.launching import mpicomp as command

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.stem for path in (ROOT / "jobs").glob("*.toml"))


def test_the_suites_are_those_of_the_repository():
    assert list(suites()) == NAMES
    for name, path in suites().items():
        assert path.read_text() == (ROOT / "jobs" / f"{name}.toml").read_text()
        assert load_file(path).title == title(path)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if not n.startswith(("link", "local_images", "robustness"))]
)
def test_the_suites_of_the_papers_are_fair(name):
    """One precision for all methods, seeds enough to tell two apart, and rows as fine as a target needs."""
    study = load_file(ROOT / "jobs" / f"{name}.toml")
    for suite in [case.suite for case in study.cases] if isinstance(study, Study) else [study]:
        lines = Comparison(suite, {}, []).lines()
        assert {line.formats for line in lines if line.formats} == {("f4",)}  # rotated levels have one only
        m = len(suite.seeds)
        assert 2 / comb(2 * m, m) <= LEVEL
        assert suite.target is None or suite.observation.every in ("1%", 1)


@pytest.mark.parametrize("name", ["marina", "smoothness"])
def test_the_theorems_step_and_a_tuned_one_stand_side_by_side(name):
    """Where a claim is about theorems: each method that has one, with the other numbers as they are."""
    for case in load_file(ROOT / "jobs" / f"{name}.toml").cases:
        entries = [e for e in case.suite.entries if not isinstance(e.method, LBFGS)]  # nothing is tuned there
        theory = [entry.method for entry in entries if entry.tune is None]
        tuned = [entry.method for entry in entries if entry.tune is not None]
        assert theory and all(method.step == "theory" and method in tuned for method in theory)
        assert all(method in theory or isinstance(method, GD | AGD) for method in tuned)


def test_smoothness_is_compared_at_two_condition_numbers():
    """The gain of whitening depends on κ: the same methods at 100 and at 10⁴, on the same data."""
    study = load_file(ROOT / "jobs" / "smoothness.toml")
    seen = {}
    for case in study.cases:
        problem = case.suite.problem
        labels = {e.label for e in case.suite.entries if not isinstance(e.method, AGD | LBFGS)}
        seen.setdefault(problem.data, {})[problem.cond] = labels
    assert {100.0, 1e4} <= seen["splice"].keys() and seen["splice"][100.0] == seen["splice"][1e4]


def test_a_name_is_found_among_the_packages_resources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resource = files("mpicomp.lab.experiment") / "suites" / "demo.toml"
    assert located("demo").read_text() == resource.read_text(encoding="utf-8")
    Path("demo").write_text("a file goes before a suite")
    assert located("demo") == Path("demo")


@pytest.mark.parametrize("name", ["dem", "jobs/demo.toml", "Demo.toml"])
def test_what_is_neither_file_nor_suite_is_refused_with_the_nearest_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no file .* and no suite .*Did you mean 'demo'\? Suites: a9a, "):
        located(name)
    with pytest.raises(ConfigError, match="Did you mean 'demo'"):
        mpicomp.compare(name)
    done = command("compare", name)
    assert done.returncode == 2 and "Did you mean 'demo'?" in done.stderr


def test_a_copy_is_the_suite_and_overwrites_nothing(tmp_path):
    made = copy("permk", tmp_path / "new")
    assert made == tmp_path / "new" / "permk.toml"
    assert load_file(made) == load_file(ROOT / "jobs" / "permk.toml")
    with pytest.raises(ConfigError, match=r"permk\.toml exists"):
        copy("permk", tmp_path / "new")
    with pytest.raises(ConfigError, match="Did you mean 'permk'"):
        copy("permc", tmp_path)


def test_the_command_lists_and_copies(tmp_path):
    listed = command("suites", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    done = command("suites", "copy", "demo", str(tmp_path))
    assert done.stdout == f"{tmp_path / 'demo.toml'}\n" and (tmp_path / "demo.toml").exists()
    assert command("suites", "copy", "demo", str(tmp_path)).returncode == 1


def test_the_wheel_has_the_suites_and_the_marker_of_types():
    """Each pattern of setup.cfg, resolved in the package's folder as the build does."""
    package, config = ROOT / "mpicomp", ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = config["options.package_data"]["mpicomp"].split()
    names = {str(path.relative_to(package)) for pattern in patterns for path in package.glob(pattern)}
    assert {"py.typed", "lab/jobs/run.sh", "lab/jobs/requeue.sh"} <= names
    assert {f"lab/experiment/suites/{name}.toml" for name in NAMES} <= names
