"""A run in the place of another one, or of a suite that was edited, is not taken for the suite's."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import mpicomp
from mpicomp.base.errors import RecordError
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.report import publish
from mpicomp.lab.experiment.suite_file import parse_suite
from tests.support import own_file

SUITE = """
problem = "quadratics(d=6)"
workers = 2
rounds = 5
seeds = [0, 1]

[[method]]
label = "one"
method = "ef21(topk(k=1))"

[[method]]
label = "two"
method = "ef21(topk(k=2))"

[[method]]
label = "tuned"
method = "gd"
tune = [0, 1]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "out"
    compare(parse_suite(SUITE), out)
    return out


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "out")


def refused(folder, name, text=SUITE):
    for read in (mpicomp.load, publish, lambda out: compare(parse_suite(text), out, resume=True)):
        with pytest.raises(RecordError, match=name):
            read(folder)


def test_a_run_of_another_seed_is_refused(folder):
    """Two copies of one run would pass for two seeds."""
    shutil.copytree(folder / "runs/one/seed-0", folder / "runs/one/seed-1", dirs_exist_ok=True)
    refused(folder, re.escape("one/seed-1 holds a run with seed = 0, and the suite has 1 there."))


def test_a_run_of_another_method_is_refused(folder):
    for before, after in (("one", "kept"), ("two", "one"), ("kept", "two")):
        (folder / "runs" / before).rename(folder / "runs" / after)
    refused(
        folder, r"one/seed-0 holds a run with method = EF21\(C=TopK\(k=2, .* the suite has EF21\(C=TopK\(k=1,"
    )


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [("workers = 2", "workers = 4", "workers = 2, and"), ("d=6", "d=7", r"problem = Quadratics\(d=6,")],
)
def test_runs_of_another_suite_are_refused(folder, before, after, name):
    """The copy of the suite in the folder was edited, and the comparison is resumed from it."""
    changed = SUITE.replace(before, after)
    (folder / "suite.toml").write_text(changed)
    refused(folder, f"one/seed-0 holds a run with {name}", changed)


def test_a_problem_of_ones_own_with_other_fields_is_refused(tmp_path):
    suite = SUITE.replace("quadratics(d=6)", f"{own_file.__file__}:Centre(d=6)").replace(
        '"gd"', '"gd(gamma=0.1)"'
    )
    suite = suite.replace("topk(k=1)", "topk(k=1), gamma=0.1").replace("topk(k=2)", "topk(k=2), gamma=0.1")
    made = compare(parse_suite(suite), tmp_path)
    assert len(compare(parse_suite(suite), tmp_path, resume=True).outcomes) == len(made.outcomes) == 6
    changed = suite.replace("Centre(d=6)", "Centre(d=7)")
    (tmp_path / "suite.toml").write_text(changed)
    with pytest.raises(RecordError, match=r"one/seed-0 holds a run with problem = Centre\(d=6.*Centre\(d=7"):
        compare(parse_suite(changed), tmp_path, resume=True)


OWN = """
from dataclasses import dataclass, field
from tests.support.own_file import Centre, First

@dataclass(frozen=True)
class TopK(First):
    pass

@dataclass(frozen=True)
class Cached(Centre):
    made: dict = field(default_factory=dict, compare=False)

    def objective(self, i, n):
        self.made[i] = n
        return super().objective(i, n)
"""


def test_classes_of_ones_own_are_told_from_those_of_the_package_and_their_caches_left_out(tmp_path):
    """A run's record names a class without its file, and has what a cache held then."""
    own, out = tmp_path / "own.py", tmp_path / "out"
    own.write_text(OWN)
    suite = SUITE.replace("quadratics(", f"{own}:Cached(").replace("topk(k=1)", f"{own}:TopK(k=1)")
    suite = (
        suite.replace("k=1)", "k=1), gamma=0.1")
        .replace("topk(k=2)", f"layered(rules={{'*': {own}:TopK(k=2)}}), gamma=0.1")
        .replace('"gd"', '"gd(gamma=0.1)"')
    )
    compare(parse_suite(suite), out)
    assert len(compare(parse_suite(suite), out, resume=True).outcomes) == len(mpicomp.load(out).outcomes) == 6
    for was, said in (
        (
            "TopK(k=1)",
            r"one/seed-0 holds a run with method = EF21\(C=TopK\(k=1\), .* has EF21\(C=TopK\(k=3\),",
        ),
        ("TopK(k=2)", r"two/seed-0 holds a run .*\(C=Layered\({'\*': TopK\(k=2\)}\), .* TopK\(k=3\)}\),"),
    ):
        changed = suite.replace(was, "TopK(k=3)")
        (out / "suite.toml").write_text(changed)
        refused(out, said, changed)


def test_a_step_that_tuning_chose_is_no_other_method(made):
    seeds = [f"runs/tuned/seed-{seed}/run.json" for seed in (0, 1)]
    assert all("GD(gamma='theory*" in (made / name).read_text() for name in seeds)
    assert mpicomp.load(made).lines()[2].finished == 2


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("workers = 2", "workers = 4", "workers = 2, and the suite has 4"),
        ("d=6", "d=7", r"problem = Quadratics\(d=6,.*Quadratics\(d=7,"),
        ("rounds = 5", "rounds = 6", "rounds = 5, and the suite has 6"),
        ("[0, 1]\n\n", "[0, 1]\ntuning_seeds = 1\n\n", r"seeds = \[0, 1\], and the suite has \[0\]"),
        ("[0, 1]\n\n", "[0, 1]\nmax_bytes = 999\n\n", r"max_bytes = None, and the suite has 999"),
        ('"gd"', '"gd(gamma=0.1)"', r"method = GD\(gamma='theory'.*GD\(gamma=0.1"),
        ("tune = [0, 1]", "tune = [0, 2]", r"tune = \[0, 1\], and the suite has \[0, 2\]"),
    ],
)
def test_a_tuning_of_another_suite_is_not_taken(folder, before, after, said):
    """It was copied from another comparison, or only the runs were deleted after the suite was edited."""
    changed = SUITE.replace(before, after)
    assert changed != SUITE
    (folder / "suite.toml").write_text(changed)
    for run in (folder / "runs").glob("*/seed-*"):
        shutil.rmtree(run)
    refused(folder, f"tuned/tuning.json holds steps tuned with {said}", changed)
    (folder / "runs/tuned/tuning.json").unlink()
    assert len(compare(parse_suite(changed), folder, resume=True).outcomes) == 6


def test_a_tuning_of_an_older_version_says_less_and_is_taken(folder):
    path = folder / "runs/tuned/tuning.json"
    path.write_text(json.dumps({"trials": json.loads(path.read_text())["trials"]}))
    assert mpicomp.load(folder).tunings["tuned"].trials
