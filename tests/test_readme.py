"""What the README and docs/start.md show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README, START = (ROOT / "README.md").read_text(), (ROOT / "docs" / "start.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README + START, flags=re.DOTALL)


def test_there_are_examples():
    assert len(EXAMPLES) == (README + START).count("```python") == 3


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_prints_what_is_shown(code, output):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_what_is_named_exists():
    """Files, and make targets; in every page the files that it links to."""
    for path in re.findall(r"`?\b((?:jobs|docs|mpicomp|tests)/[\w./-]+\w)`?", README + START):
        assert (ROOT / path).exists(), path
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", page.read_text()):
            made = link.startswith("catalogue/")  # by `make docs`; tests/test_site.py is about them
            assert made or (page.parent / link).exists(), f"{page.name}: {link}"
    targets = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z]+)\b", README + START):
        assert target == "make" or re.search(rf"^{target}:", targets, flags=re.MULTILINE), target


def test_make_deletes_no_results():
    """Commands write into runs by default; ``make demo`` and ``make clean`` deleted there."""
    deletes = [line for line in (ROOT / "Makefile").read_text().splitlines() if re.search(r"\brm\b", line)]
    assert deletes and not [line for line in deletes if re.search(r"\bruns\b", line)]
