"""Every block of Python in docs/ and in the README runs, or is listed here with the reason why it does not.

tests/test_pages.py, tests/test_readme.py and tests/torch/test_pages.py run some pages; this file runs the
others, and the commands that the pages show.
"""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import click
import pytest
from click.testing import CliRunner

from mpicomp.lab.cli import root
from mpicomp.text.config import parse_method, parse_problem

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```(?:text)?\n(.*?)^```)?", re.DOTALL | re.MULTILINE)

ELSEWHERE = {
    **dict.fromkeys(["python.md", "loops.md", "serving.md", "steps.md", "own.md"], "tests/test_pages.py"),
    **dict.fromkeys(["README.md", "start.md"], "tests/test_readme.py"),
    "torch.md": "tests/torch/test_pages.py",
}
HERE = ["data.md", "images.md"]
# What the text around a block says of its names, by the start of the block.
BEFORE = {'parts = {"data": X.data': "import numpy, scipy.sparse; X = scipy.sparse.csr_array(X)"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of Python with the output shown below each, "" if none is."""
    return BLOCK.findall(page.read_text())


def test_every_page_with_python_is_run_somewhere():
    with_python = {page.name for page in PAGES if blocks(page)}
    assert with_python == {*ELSEWHERE, *HERE}
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / test).read_text() or name == "README.md"


@pytest.mark.parametrize("name", HERE)
def test_the_blocks_run_in_their_order_and_print_what_is_shown(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code, output in blocks(ROOT / "docs" / name):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(next((said for start, said in BEFORE.items() if code.startswith(start)), ""), names)
            exec(code, names)
        assert printed.getvalue() == output


# --- commands ---

PARSE = {"--method": parse_method, "--problem": parse_problem}
# Words of a page that stand for one's own, with a value for each.
STAND_FOR = {"SUITE.toml": "demo", "SUITE": "demo", "NAME": "mushrooms", "I/N": "1/2", "N": "4"}
# Commands that are not tried, by a part of theirs.
NOT_TRIED = {
    "..": "the page leaves words out",
    "./mine.py": "a file of the reader's; tests/lab/cli/test_own_classes.py has such commands",
    "mpicomp plot": "its folders are those of runs; tests/lab/cli/test_cli.py plots",
}


def commands() -> list[tuple[str, str]]:
    """The lines that begin with `mpicomp`, of blocks that are set apart, with the page of each."""
    found = []
    for page in PAGES:
        text = re.sub(r" *\\\n *", " ", page.read_text())
        for block in re.findall(r"(?:^    .*\n)+|^```(?:sh|bash|console)\n.*?^```", text, re.M | re.S):
            lines = re.findall(r"^ *(?:\$ )?(mpicomp [^|\n]*)", block, re.MULTILINE)
            found += [(page.name, line.rstrip()) for line in lines]
    return found


def is_tried(line: str) -> bool:
    return not any(part in line for part in NOT_TRIED)


@pytest.mark.parametrize(("page", "line"), [(page, line) for page, line in commands() if is_tried(line)])
def test_a_command_of_a_page_is_taken(page, line, monkeypatch):
    """Its words by the command, its texts by their classes; it is not run, as most take minutes or root."""
    monkeypatch.chdir(ROOT)
    words = [STAND_FOR.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    command: click.Command = root.cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context("mpicomp", words)
    for option, text in pairwise(words):
        if option in PARSE:
            PARSE[option](text)


def transcripts() -> list[tuple[str, str]]:
    """The commands list and submit of the pages, each with the output that is shown below it."""
    found = []
    for page in PAGES:
        text = re.sub(r" *\\\n *", " ", page.read_text())
        shown = re.findall(r"^    \$ (mpicomp (?:list|submit) .*)\n((?:    .*\n|\n)+)", text, re.MULTILINE)
        found += [(line, dedent(output).strip()) for line, output in shown]
    return found


def test_list_and_submit_print_what_is_shown():
    assert len(transcripts()) == 2
    for line, output in transcripts():
        done = CliRunner().invoke(root.cli, shlex.split(line)[1:])
        assert dedent(done.output).strip() == output
