"""Classes of the user's own in texts: imported from a module or a file, and named again by the same text."""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.text.config import (
    describe,
    parse_compressor,
    parse_method,
    parse_problem,
    to_text,
)
from mpicomp.text.own_classes import code_of, import_class
from tests.support import own_file

PATH = str(Path(own_file.__file__))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a copy of the user's file; what is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(Path(PATH).read_text())
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


TEXTS = [
    (parse_problem, "./mine.py:Centre"),
    (parse_problem, "mine.py:Centre(d=7)"),
    (parse_problem, "noisy(problem=./mine.py:Centre(d=7), sigma=0.5)"),
    (parse_method, "./mine.py:Plain(C=topk(k=2), gamma=theory*0.5)"),
    (parse_method, "./mine.py:Plain(C=./mine.py:First(k=2))"),
    (parse_method, "ef21(C=./mine.py:First(k=2))"),
    (parse_compressor, "./mine.py:First(k=2)"),
    (parse_compressor, "a_module:First(k=2)"),
    (parse_compressor, "layered(rules={'*.b': ./mine.py:First(k=3), 'w*': topk(k=2)}, default=identity)"),
]


@pytest.mark.parametrize(("parse", "text"), TEXTS)
def test_the_text_of_an_object_is_the_text_it_came_from(here, parse, text):
    (here / "mine.py").rename(here / "a_module.py") if "a_module" in text else None
    obj = parse(text)
    assert to_text(obj) == text
    assert parse(to_text(obj)) == obj


def test_a_file_is_imported_once(here):
    assert import_class("./mine.py:Plain") is import_class(f"{here}/mine.py:Plain")
    assert type(parse_compressor("./mine.py:First(k=2)")) is import_class("./mine.py:First", "compressor")


def test_a_path_with_a_space_is_quoted(here):
    (here / "my file.py").write_text((here / "mine.py").read_text())
    text = "'./my file.py:First'(k=2)"
    assert to_text(parse_compressor(text)) == text
    assert parse_compressor(text).k == 2


def test_a_class_that_python_imported_is_named_by_its_module():
    text = "tests.support.own_file:First(k=2)"
    assert to_text(own_file.First(2)) == text
    assert parse_compressor(text) == own_file.First(2)
    assert to_text(EF21(C=own_file.First(2))) == f"ef21(C={text})"


def test_a_class_that_no_other_process_can_import_gives_its_repr():
    class First(own_file.First):
        pass

    assert to_text(First(2)) == repr(First(2))


def test_the_object_is_the_user_s(here):
    """f(x) = (1/n) sum_i |x - i|^2 / 2 has its minimum at the mean of 0, .., n - 1."""
    problem = parse_problem("./mine.py:Centre(d=4)")
    run = mpicomp.run(parse_method("./mine.py:Plain(C=./mine.py:First(k=4))"), problem, workers=3, rounds=2)
    np.testing.assert_allclose(run.x, 1.0, rtol=1e-15)
    same = mpicomp.run(own_file.Plain(own_file.First(4), gamma=1.0), own_file.Centre(4), workers=3, rounds=2)
    assert run.iterates_sha256 == same.iterates_sha256
    assert run.ledger.up_bytes == same.ledger.up_bytes == 3 * 2 * 4 * 8


def test_what_list_says_of_it(here):
    about = describe(import_class("./mine.py:Plain"))
    assert about.signature == "./mine.py:Plain(C, gamma=theory, down=lossless)"
    assert about.summary == "Gradients compressed, without feedback."


WRONG = [
    (parse_method, "./mine.py:Centre", "./mine.py:Centre is a problem; a method is expected"),
    (parse_method, "./mine.py:Plain(C=./mine.py:Centre)", "is a problem; a compressor is expected"),
    (
        parse_problem,
        "./mine.py:Helper",
        "a class of another kind; a problem is expected: a subclass of mpicomp's",
    ),
    (parse_problem, "./mine.py:np", "is a module; a problem is expected"),
    (parse_problem, "./mine.py:Center", "unknown class of ./mine.py 'Center'. Did you mean 'Centre'?"),
    (parse_problem, "./mine.py:Problem", "is abstract: it lacks dimension, objective"),
    (parse_problem, "./other.py:Centre", "no such file: ./other.py. A relative path starts at"),
    (parse_problem, "other:Centre", "no module 'other' on Python's path or in the current folder"),
    (parse_problem, "mine.other:Centre", "mine.other"),
    (parse_problem, "./mine.py:Centre(e=3)", "unknown parameter of ./mine.py:Centre 'e'"),
    (parse_problem, "./mine.py:Centre(d=0.5)", "d=0.5; allowed: a value of type int"),
    (parse_compressor, "./mine.py:First", "./mine.py:First lacks k"),
    (parse_method, "./mine.py:Plain(C=natural)", "contractive"),
]


@pytest.mark.parametrize(("parse", "text", "said"), WRONG)
def test_what_is_not_expected_is_refused(here, parse, text, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(text)


RAISING = [
    ("import nosuch", "ModuleNotFoundError: No module named 'nosuch' (line 1"),
    ("\nx = 1 / 0", "ZeroDivisionError: division by zero (line 2"),
    ("def f(:", "SyntaxError: invalid syntax (line 1"),
    ("raise SystemExit(3)", "SystemExit: 3 (line 1"),
    ("import json\njson.loads('{')", "json.decoder.JSONDecodeError: Expecting property name"),
]


@pytest.mark.parametrize(("source", "said"), RAISING)
@pytest.mark.parametrize("place", ["./bad.py", "bad"])
def test_an_import_that_raises_is_one_line(here, place, source, said):
    (here / "bad.py").write_text(source)
    for _ in range(2):  # half a module is not kept
        with pytest.raises(ConfigError) as error:
            parse_problem(f"{place}:Centre")
        assert f"cannot import {place}: {said}" in str(error.value)
        assert f"of {here}/bad.py)" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["mine.py", "./mine.py"])
def test_a_file_without_a_class_is_told_how_to_name_one(text):
    with pytest.raises(
        ConfigError, match=r"mine\.py is no problem; name a class in it, as in \./mine\.py:MyC"
    ):
        parse_problem(text)


def test_a_method_without_a_step_size_is_refused_in_one_line(here):
    with open(here / "mine.py", "a") as file:
        file.write("\n@dataclass(frozen=True)\nclass Stepless(Plain):\n    gamma: float = 0.1\n")
    with pytest.raises(ConfigError, match=r"\./mine\.py:Stepless is no method: .*declare `gamma: StepSize`"):
        import_class("./mine.py:Stepless")


def test_a_class_s_own_refusal_is_one_line(here):
    with open(here / "mine.py", "a") as file:
        file.write("\n@dataclass(frozen=True)\nclass Odd(Centre):\n")
        file.write("    def __post_init__(self):\n        raise ValueError(f'd={self.d} is even')\n")
    with pytest.raises(ConfigError, match=re.escape("./mine.py:Odd(d=4): d=4 is even")):
        parse_problem("./mine.py:Odd(d=4)")


def test_what_is_no_dataclass_is_refused(here):
    with open(here / "mine.py", "a") as file:
        file.write("\nclass Bare(Problem):\n    dimension = objective = None\n")
    with pytest.raises(ConfigError, match=r"Bare is no dataclass. Write @dataclass\(frozen=True\)"):
        parse_problem("./mine.py:Bare")


def test_nothing_else_in_a_text_is_executed(here):
    for text in ("gd(gamma=open('made', 'w'))", "./mine.py:Centre(d=open('made', 'w'))"):
        for parse in (parse_method, parse_problem):
            with pytest.raises(ConfigError):
                parse(text)
    assert not (here / "made").exists()


def test_types_as_typing_writes_them(here):
    with open(here / "mine.py", "a") as file:
        file.write("\nfrom typing import Literal, Optional\n")
        file.write("\n@dataclass(frozen=True)\nclass Typed(Centre):\n")
        file.write("    e: Optional[int] = None\n    kind: Literal['a', 'b'] = 'a'\n")
    text = "./mine.py:Typed(e=3, kind=b)"
    assert to_text(parse_problem(text)) == text
    with pytest.raises(ConfigError, match=re.escape("e=0.5; allowed: a value of type")):
        parse_problem("./mine.py:Typed(e=0.5)")


def test_defaults_that_a_factory_makes(here):
    with open(here / "mine.py", "a") as file:
        file.write("\nfrom dataclasses import field\nfrom mpicomp import TopK\n")
        file.write("\n@dataclass(frozen=True)\nclass Made(Plain):\n")
        file.write("    C: Contractive = field(default_factory=lambda: TopK(3))\n")
    method = parse_method("./mine.py:Made")
    assert method.C == TopK(3) and to_text(method) == "./mine.py:Made"
    assert describe(type(method)).parameters["C"] == "topk(k=3)"


def test_the_hash_of_code_is_that_of_its_lines(here):
    """A long sum cannot be shown as a tree of Python, and the tree's text differs from version to version."""
    known = parse_compressor("./mine.py:First(k=2)")
    own = (here / "mine.py").read_text() + "A = " + " + ".join(["1"] * 2000) + "\nB = 'a\\d'\n"
    hashes = []
    for text in (own, f"# mine\n\n{own}  # more\n", own + "C = 1\n"):
        (here / "mine.py").write_text(text)
        with warnings.catch_warnings(action="error"):
            hashes += code_of(known).values()
    assert hashes[0] == hashes[1] != hashes[2] and len(hashes) == 3


def test_the_code_of_base_classes_is_hashed_too(here):
    """Where they are in files of their own: an edit there was not named at a resume."""
    (here / "heir.py").write_text(
        "from dataclasses import dataclass\nfrom mine import First\nfrom numpy.lib.mixins import *\n\n"
        "@dataclass(frozen=True)\nclass Second(First, NDArrayOperatorsMixin):\n    pass\n"
    )
    known = parse_compressor("./heir.py:Second(k=2)")
    before = code_of(known)
    with open(here / "mine.py", "a") as file:
        file.write("A = 1\n")
    after = code_of(known)
    assert set(before) == set(after) == {"heir.py", "mine.py"}
    assert [name for name in before if before[name] != after[name]] == ["mine.py"]


def test_files_of_one_name_have_one_hash(here):
    """Of the two hashes one was kept."""
    known, files = [], [here / folder / "own.py" for folder in "ab"]
    for file in files:
        file.parent.mkdir()
        shutil.copy(here / "mine.py", file)
        known.append(parse_compressor(f"{file}:First(k=2)"))
    seen = [code_of(*known)]
    for file in files:
        file.write_text(file.read_text() + "A = 1\n")
        seen.append(code_of(*known))
    assert [list(code) for code in seen] == [["own.py"]] * 3
    assert len({code["own.py"] for code in seen}) == 3


def test_a_file_that_cannot_be_read_again_has_no_hash(here):
    """A pipe would be waited for."""
    known = parse_compressor("./mine.py:First(k=2)")
    (here / "mine.py").unlink()
    assert code_of(known) == {}
    os.mkfifo(here / "mine.py")
    assert code_of(known) == {}
