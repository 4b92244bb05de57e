"""The site's own code: docstrings become reStructuredText, and every example of the catalogue runs."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from mpicomp.compressors import COMPRESSORS
from mpicomp.lab.cli import root
from mpicomp.methods import METHODS
from mpicomp.problems import PROBLEMS

DOCS = Path(__file__).parent.parent / "docs"
CLASSES = {**METHODS, **COMPRESSORS, **PROBLEMS}
NAMES = [*CLASSES]
KINDS = ["methods", "compressors", "problems"]


@pytest.fixture(autouse=True)
def extensions(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


def pages():
    return importlib.import_module("catalogue_pages")


def to_rst(text):
    return importlib.import_module("docstrings").to_rst(text)


def rounds_of_the_example(name, *more):
    """The rounds of the run that a page shows: the shell's words are the command's arguments."""
    shown = pages().page(name).partition("```sh\n")[2].partition("```")[0]
    program, *arguments = shlex.split(shown.replace("\\\n", " "))
    assert program == "mpicomp" and name in shown
    done = CliRunner().invoke(root.cli, [*arguments, *more, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["rounds"]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_page_begins(name):
    assert rounds_of_the_example(name, "--rounds", "10") == 10


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_page_runs(name):
    assert rounds_of_the_example(name) == (10 if name == "full_images" else 100)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_what_the_class_says(name):
    cls, page = CLASSES[name], pages().page(name).replace("\\", "")
    assert cls.paper in page or cls.paper.startswith("none")
    assert getattr(cls, "recalled", "") in page
    words = re.findall(r"\w+", cls.__doc__)
    assert [word for word in words if word not in re.findall(r"\w+", page)] == []


def test_a_formula_stands_as_it_is_and_text_is_escaped():
    assert to_rst("The step |x|_1 * h_i::\n\n    x = y - γ g^k\n\nSee ``a_*``s end.") == [
        r"The step \|x\|_1 \* h_i:",
        "",
        ".. code-block:: none",
        "",
        "    x = y - γ g^k",
        "",
        r"See ``a_*``\ s end.",
        "",
    ]


def test_parameters_are_a_definition_list():
    wanted = ["``a, b``", "    the first two", "", "``c``", "    the third", ""]
    assert to_rst("a, b  the first\n      two\nc     the third") == wanted
    assert to_rst("a..., b_  text")[0] == "``a..., b_``"
    assert to_rst("====  =====\na, b  the first\n      two\nc     the third\n====  =====") == wanted


def test_a_label_begins_a_paragraph():
    wanted = ["Text.", "", "**Theory:** gamma = 1/L.  More text.", ""]
    assert to_rst("Text.\ntheory: gamma = 1/L.  More\ntext.") == wanted


def test_pages_that_no_class_has_are_removed(tmp_path, monkeypatch):
    module = pages()
    monkeypatch.setattr(module, "FOLDER", tmp_path / "catalogue")
    module.write()
    (module.FOLDER / "gone.md").write_text("")
    module.write()
    assert sorted(path.stem for path in module.FOLDER.iterdir()) == sorted([*NAMES, *KINDS])


def test_every_page_is_in_the_table_of_contents():
    contents = re.findall(r"```{toctree}.*?```", (DOCS / "index.md").read_text(), flags=re.DOTALL)
    listed = re.findall(r"^(?:[A-Z].* <)?([a-z/-]+)>?$", "\n".join(contents), flags=re.MULTILINE)
    pages_there = {path.stem for path in DOCS.iterdir() if path.suffix in (".md", ".ipynb")} - {"index"}
    assert sorted(listed) == sorted([*pages_there, *(f"catalogue/{kind}" for kind in KINDS)])


def test_public_names_are_in_the_reference():
    import mpicomp

    shown = re.findall(r"auto\w+:: (\w+)", (DOCS / "api.md").read_text())
    own = set(NAMES) | {cls.__name__ for cls in CLASSES.values()}
    missing = set(mpicomp.__all__) - set(shown) - own
    assert missing <= {"__version__", "callbacks"}, missing
