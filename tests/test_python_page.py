"""What docs/python.md shows is what happens."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_blocks_print_what_is_shown_in_their_order(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) == PAGE.count("```python") > 0
    names: dict[str, object] = {}
    for code, output in EXAMPLES:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == output
