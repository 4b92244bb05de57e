"""What pages of docs/ show is what happens."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["python.md", "loops.md", "serving.md"])
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
