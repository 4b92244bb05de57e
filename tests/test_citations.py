"""Citations: each page, heading and file that is named exists; docs/methods.md agrees with the classes."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from mpicomp.compressors import COMPRESSORS
from mpicomp.lab.cli.catalogue import catalogue
from mpicomp.methods import METHODS
from mpicomp.text.config import describe
from tests.test_layers import LEVEL

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mpicomp"
FOLDERS = ("mpicomp", "tests", "docs", "jobs")
TEXTS = (".py", ".md", ".toml", ".sh", ".cu", ".cuh", ".c")
MADE = ("_build", "catalogue")  # folders of docs/ that `make docs` writes; tests/test_site.py is about them
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if not {"__pycache__", *MADE} & set(path.parts)
)
SOURCES = [path for path in [*FILES, *ROOT.glob("*.md"), ROOT / "Makefile"] if path.suffix in (*TEXTS, "")]
SOURCES = [path for path in SOURCES if path.is_file() and path != Path(__file__)]
MODULES = [path for path in SOURCES if path.suffix == ".py" and path.is_relative_to(PACKAGE)]
PAGES = [path for path in SOURCES if path.suffix == ".md"]
DESIGN_PAGE = ROOT / "docs" / "design.md"
METHODS_PAGE = ROOT / "docs" / "methods.md"


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def words(path: Path) -> str:
    """The text of a file in one line, without comment marks, so that a citation may be broken over lines."""
    return " ".join(re.sub(r"^[ \t]*(#|//) ?", "", line).strip() for line in path.read_text().splitlines())


@cache
def prose(path: Path) -> str:
    """The text of a page without what it shows of code and output."""
    return re.sub(r"^```.*?^```|^    .*?$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def links(path: Path) -> list[tuple[str, str, str]]:
    """Target and anchor of each link of a page, with # between them."""
    return [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", prose(path))]


@cache
def headings(path: Path) -> list[str]:
    return re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE), re.M
    )


@cache
def anchors(path: Path) -> list[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(path)]


def sections(kind: str) -> dict[str, str]:
    """Heading and text of each section of docs/methods.md under the heading ``kind``."""
    text = METHODS_PAGE.read_text().partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def is_there(folder: Path, parts: list[str]) -> bool:
    """Whether ``parts`` lead from ``folder`` to a module, or to a name in one."""
    if not parts:
        return True
    if (folder / parts[0]).is_dir():
        return is_there(folder / parts[0], parts[1:])
    module, names = folder / f"{parts[0]}.py", parts[1:]
    if not module.exists():
        module, names = folder / "__init__.py", parts
    return all(re.search(rf"\b{part}\b", module.read_text()) for part in names)


CLASSES = [("Methods", cls) for cls in METHODS.values()] + [
    ("Compressors", cls) for cls in COMPRESSORS.values()
]


def test_what_is_cited_exists(subtests):
    for path in SOURCES:
        with subtests.test(name(path)):
            text = words(path)
            for page, anchor in re.findall(r"\bdocs/(\w+\.md)#([\w-]+)", text):
                assert anchor in anchors(ROOT / "docs" / page), f"docs/{page}#{anchor}"
            for names in re.findall(r"\bdocs/methods\.md, (\w+(?:(?:, and |, | and )[A-Z]\w+)*)", text):
                for cited in re.split(r", and |, | and ", names):
                    assert cited in headings(METHODS_PAGE), f"docs/methods.md, {cited}"
            assert not re.search(r"[Ss]ections? \d|§", text), (
                "a section of what?  Cite a heading, or a theorem of a paper"
            )


def test_files_that_are_named_exist(subtests):
    for path in SOURCES:
        with subtests.test(name(path)):
            for cited in re.findall(r"(?<![\w./-])((?:mpicomp|tests|docs|jobs)/[\w./-]*\w)", words(path)):
                made = cited.startswith(tuple(f"docs/{folder}" for folder in MADE))
                assert made or "NAME" in cited or any((at / cited).exists() for at in (ROOT, PACKAGE)), cited


def test_files_that_pages_name_without_a_folder_exist(subtests):
    for path in PAGES:
        with subtests.test(name(path)):
            known = {name(file) for file in FILES}
            for cited in re.findall(r"`([\w/]+\.(?:py|cuh?))`", prose(path)):
                assert "NAME" in cited or any(f"/{file}".endswith(f"/{cited}") for file in known), cited


def test_modules_that_docstrings_name_exist(subtests):
    """In double backticks, from the package down or from a folder that the module is in."""
    for path in MODULES:
        with subtests.test(name(path)):
            folders = [folder for folder in path.parents if folder.is_relative_to(PACKAGE)]
            for cited in re.findall(r"``(?:mpicomp\.)?([a-z_]+(?:\.\w+)+)``", path.read_text()):
                first, *rest = cited.split(".")
                found = [folder / first for folder in folders if (folder / first).is_dir()]
                assert not found or any(is_there(place, rest) for place in found), cited


def test_links_lead_somewhere(subtests):
    for path in PAGES:
        with subtests.test(name(path)):
            for target, _, anchor in links(path):
                if target.startswith("http"):
                    continue
                page = path.parent / target if target else path
                if page.parent.name in MADE:
                    continue
                assert page.exists(), target
                assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


def test_no_page_waits_for_its_figures(subtests):
    """A long word in capitals that names neither a class nor a page stands for a sentence not yet written."""
    for path in PAGES:
        with subtests.test(name(path)):
            text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", prose(path))
            names = {cls.__name__ for _, cls in CLASSES} | {page.stem for page in PAGES}
            assert set(re.findall(r"\b[A-Z]{8,}\b", text)) <= names


def test_a_link_is_to_one_heading(subtests):
    for path in PAGES:
        with subtests.test(name(path)):
            linked = {a for p in PAGES for t, _, a in links(p) if a and (p.parent / t if t else p) == path}
            assert all(anchors(path).count(anchor) == 1 for anchor in linked)


def test_the_design_has_the_levels_of_the_layers():
    """From the top down, each folder and module once; those of one level in any order."""
    block = DESIGN_PAGE.read_text().partition("## Folders")[2].split("```")[1]
    shown = [line.split()[0] for line in block.strip().splitlines()]
    assert sorted(shown) == sorted(set(LEVEL) - {"__init__", "__main__"})
    assert [LEVEL[module] for module in shown] == sorted((LEVEL[module] for module in shown), reverse=True)


def test_every_class_has_its_heading_and_every_heading_its_class():
    for kind, table in (("Methods", METHODS), ("Compressors", COMPRESSORS)):
        found, wanted = list(sections(kind)), [cls.__name__ for cls in table.values()]
        missing = [name for name in wanted if name not in found]
        assert not missing, f"docs/methods.md has no section '### {missing[0]}'"
        assert found == wanted, f"the sections of docs/methods.md stand in the order of {kind.upper()}"


@pytest.mark.parametrize(("kind", "cls"), CLASSES, ids=lambda value: getattr(value, "__name__", value))
def test_the_page_has_signature_paper_and_what_is_recalled(kind, cls):
    text, about = sections(kind)[cls.__name__], describe(cls)
    recalled = getattr(cls, "recalled", "")
    lines = [f"`{about.signature}`", f"*Paper:* {about.paper}."]
    lines += [f"*From memory:* {recalled}."] if recalled else []
    for line in lines:
        assert line in text.split("\n"), f"expected this line in the section {cls.__name__}:\n{line}"
    assert text.count("*From memory:*") == bool(recalled)


@pytest.mark.parametrize("cls", METHODS.values(), ids=lambda cls: cls.__name__)
def test_the_page_names_the_transcription_of_a_method(cls):
    assert f"`tests/reference/{cls.__module__.rpartition('.')[2]}.py`" in sections("Methods")[cls.__name__]


STARTED = [cls for cls in METHODS.values() if "start" in {f.name for f in fields(cls)}]


@pytest.mark.parametrize("cls", STARTED, ids=lambda cls: cls.__name__)
def test_the_page_says_which_start_is_the_default(cls):
    """Papers leave it open, and programs differ: it stands with the differences from the paper."""
    text = sections("Methods")[cls.__name__]
    assert "default start" in " ".join(text.partition("**Differences from the paper**")[2].split())


def test_the_command_line_says_what_is_recalled():
    listed = "\n".join(catalogue("methods"))
    recalled = [cls.recalled for cls in METHODS.values() if cls.recalled]
    assert listed.count("from memory, not checked against the paper: ") == len(recalled)
    assert all(f"from memory, not checked against the paper: {text}" in listed for text in recalled)


@pytest.mark.parametrize("cls", METHODS.values(), ids=lambda cls: cls.__name__)
def test_what_is_recalled_is_said_once(cls):
    """In ``recalled``, and neither in the docstring nor with the paper."""
    assert "recalled" not in (cls.__doc__ or "") + cls.paper
