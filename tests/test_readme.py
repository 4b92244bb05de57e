"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_examples():
    assert len(EXAMPLES) == README.count("```python")


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_prints_what_is_shown(code, output):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_what_is_named_exists():
    """Files, and make targets."""
    root = Path(__file__).parent.parent
    for path in re.findall(r"`?\b((?:jobs|docs|mpicomp|tests)/[\w./]+\w)`?", README):
        assert (root / path).exists(), path
    targets = (root / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z]+)\b", README):
        assert target == "make" or re.search(rf"^{target}:", targets, flags=re.MULTILINE), target
