"""What pages of docs/ show is what happens."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.support.launching import LIMIT

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["python.md", "loops.md", "serving.md", "steps.md"])
def test_the_blocks_print_what_is_shown_in_their_order(name, tmp_path, monkeypatch):
    if name == "python.md":
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    page = (DOCS / name).read_text()
    examples = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, flags=re.DOTALL)
    assert len(examples) == page.count("```python") > 0
    names: dict[str, object] = {}
    for code, output in examples:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == output


OWN = (DOCS / "own.md").read_text()


def test_the_classes_of_ones_own_print_what_is_shown(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", OWN, flags=re.DOTALL)
    assert len(blocks) == OWN.count("```python") > 0
    (tmp_path / "mine.py").write_text("\n".join(code for code, _ in blocks))
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(output for _, output in blocks)


def test_the_command_with_ones_own_classes_runs(tmp_path):
    body = ast.parse("\n".join(re.findall(r"```python\n(.*?)```", OWN, flags=re.DOTALL))).body
    kept = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    (tmp_path / "mine.py").write_text(ast.unparse(ast.Module(kept, [])))
    (command,) = re.findall(r"^    (mpicomp run .*)$", OWN, flags=re.MULTILINE)
    _, *arguments = shlex.split(command)
    whole = [sys.executable, "-m", "mpicomp", *arguments, "--json"]
    done = subprocess.run(whole, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ranks"] == 4
