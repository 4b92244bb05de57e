"""Nothing that somebody else's folder names is imported."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.lab.cli import cli
from mpicomp.lab.experiment.folder import read_comparison, read_study, unfinished
from mpicomp.text.config import parse_compressor, parse_method, parse_problem
from mpicomp.text.own_classes import NotImported, without_imports
from mpicomp.text.unimported import UnimportedMethod, UnimportedProblem
from tests.support import own_file
from tests.support.foreign_folders import QUADRATICS, STUDY, a_comparison, a_run

CANARY = "\nimport pathlib\npathlib.Path(__file__).with_name('executed').touch()\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder.  What is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    known = set(sys.modules)
    yield tmp_path
    forget(tmp_path, known)


def forget(folder, known):
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def canary(here):
    """A file of classes that says when it is executed."""
    (here / "canary.py").write_text(Path(own_file.__file__).read_text() + CANARY)
    return here / "executed"


def names(here):
    """How a text can name the file: by its path, from here or from the root, or as a module."""
    return ["./canary.py", f"{here}/canary.py", "canary"]


def looks(folder):
    """All ways to look at a folder."""
    found = mpicomp.load(folder)
    repr(found), found._repr_html_()
    found.plot(x="rounds", y="f-f*")
    if hasattr(found, "table"):
        found.table()
        unfinished(folder)
    done = CliRunner().invoke(cli, ["plot", str(folder)], standalone_mode=False)
    assert done.exception is None, done.exception


def test_the_canary_sings(canary):
    """What the other tests rely on: the user's own text imports the file, and the file says so."""
    parse_method("./canary.py:Plain(C=./canary.py:First(k=2))")
    assert canary.exists()


def test_looking_at_a_record_imports_nothing(canary, here):
    here_, root, module = names(here)
    method = f"{here_}:Plain(C={here_}:First(k=2), gamma=0.1)"
    a_run(
        here / "one", asked={"method": method}, config={"method": method, "problem": f"{module}:Centre(d=4)"}
    )
    a_run(here / "two", asked={"method": f"ef21(C={root}:First(k=2))"}, config={"problem": f"{root}:Centre"})
    a_run(here / "three", asked={"method": f"{module}:Plain"})
    a_run(here / "four", config={"problem": f"noisy(problem={here_}:Centre(d=4), sigma=1)"})
    for name in ("one", "two", "three", "four"):
        looks(here / name)
    assert not canary.exists()


def test_looking_at_a_comparison_imports_nothing(canary, here):
    here_, root, module = names(here)
    a_comparison(here / "one", method=f"{here_}:Plain(C={root}:First(k=2))", problem=f"{here_}:Centre(d=4)")
    a_comparison(here / "two", method=f"ef21(C={module}:First(k=2))")
    a_comparison(here / "three", problem=f"{module}:Centre(d=4)")
    for name in ("one", "two", "three"):
        looks(here / name)
        assert [o.label for o in mpicomp.load(here / name).outcomes] == ["A"]
    held = mpicomp.load(here / "one")
    assert held.suite.problem == UnimportedProblem(f"{here_}:Centre(d=4)")
    assert f"on {here_}:Centre(d=4), 1 of 1 runs ended" in repr(held)
    assert "The class of A is not imported here: in what precision it sends is not said." in held.table()
    assert not canary.exists()


def test_looking_at_a_study_imports_nothing(canary, here):
    texts = {"problem": "./canary.py:Centre(d=4)", "method": "./canary.py:Plain(C=./canary.py:First(k=2))"}
    folder = here / "study"
    a_comparison(folder / "one", **texts)
    as_its_case = 'label = "A"\ntune = [0, 0]\n'
    (folder / "study.toml").write_text("every = 2" + STUDY.format(**texts) + as_its_case)
    assert [case.label for case in read_study(folder).cases] == ["one"]
    assert unfinished(folder) == 0
    with pytest.raises(RecordError, match=r"holds a study\. Load one of its comparisons"):
        mpicomp.load(folder)
    done = CliRunner().invoke(cli, ["plot", str(folder)], standalone_mode=False)
    assert done.exception is None, done.exception
    for arguments in (["list"], ["list", "methods"], ["suites", "list"]):
        assert CliRunner().invoke(cli, arguments, standalone_mode=False).exception is None
    assert not canary.exists()


def test_resuming_what_somebody_else_has_begun_imports_nothing(canary, here):
    own = "./canary.py"
    a_run(
        here / "run", asked={"method": f"{own}:Plain(C={own}:First(k=2))"}, config={"method": f"{own}:Plain"}
    )
    mpicomp.run(GD(gamma=0.1), QUADRATICS, workers=2, rounds=6, every=2, out="run", resume=True)
    for changed in ({"method": f"{own}:Plain(C={own}:First(k=2))"}, {"problem": f"{own}:Centre(d=4)"}):
        a_comparison(here / "both", **changed)
        for resume in (True, None):
            with pytest.raises(RecordError, match=f"both holds a comparison with other {'entries|problem'}"):
                mpicomp.compare(
                    {"A": GD(gamma=0.1)}, QUADRATICS, workers=2, rounds=4, every=2, tune=(0, 0), out="both",
                    resume=resume,
                )  # fmt: skip
        shutil.rmtree(here / "both")
    assert not canary.exists()


def test_what_the_user_s_own_text_has_imported_is_used(canary, here):
    """A text names the class where the process has it already, and that is no import."""
    method, problem = "./canary.py:Plain(C=./canary.py:First(k=2))", "canary:Centre(d=4)"
    with without_imports():
        assert parse_method(method) == UnimportedMethod(method)
        assert parse_problem(problem) == UnimportedProblem(problem)
        with pytest.raises(NotImported, match=r"\./canary.py:First is not imported here"):
            parse_compressor("./canary.py:First(k=2)")
    assert not canary.exists()
    own = parse_method(method), parse_problem(problem)
    with without_imports():
        assert (parse_method(method), parse_problem(problem)) == own
        assert parse_method("./canary.py:Gone") == UnimportedMethod("./canary.py:Gone")


def test_a_class_that_is_only_named_does_not_run(here):
    with without_imports():
        method, problem = parse_method("mine:Own(gamma=1)"), parse_problem("mine:Other")
    for pair in ((method, QUADRATICS), (GD(gamma=0.1), problem)):
        with pytest.raises(ConfigError, match=r"mine:\w+.* is known by its text alone"):
            mpicomp.run(*pair, workers=2, rounds=2)


SUITE = """
problem = "./canary.py:Centre(d=4)"
workers = 2
rounds = 4

[[method]]
method = "./canary.py:Plain(./canary.py:First(4), gamma=theory*1.0, down=lossless)"
"""


def test_a_method_without_a_label_keeps_it_where_its_class_is_not_imported(canary, here):
    """Positional parameters and defaults are no part of it, and the class alone tells which they are."""
    (here / "suite.toml").write_text(SUITE)
    known = set(sys.modules)
    ran = mpicomp.compare(here / "suite.toml", out=here / "out")
    label = "./canary.py:Plain(C=./canary.py:First(k=4), gamma=theory*1.0)"
    assert [o.label for o in ran.outcomes] == [label]
    forget(here, known)
    canary.unlink()
    held = read_comparison(here / "out")
    assert [(o.label, o.rows) for o in held.outcomes] == [(label, ran.outcomes[0].rows)]
    assert not canary.exists()
    again = mpicomp.compare(here / "suite.toml", out=here / "out", resume=True)  # the user's own text
    assert [o.label for o in again.outcomes] == [label]
