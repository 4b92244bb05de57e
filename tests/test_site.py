"""The site's pages of methods, compressors and problems."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("entries", Path(__file__).parents[1] / "docs" / "entries.py")
entries = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(entries)

CLASSES = [cls for table in entries.TABLES.values() for cls in table.values()]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_page_has_the_docstring_word_by_word_and_the_paper(cls):
    page = entries.page(cls)
    written = page.replace("\\", "").replace("`", "").split()
    for word in (cls.__doc__ or "").replace("`", "").replace("::", ":").split():
        assert word in written
    assert page.count("```") % 2 == 0
    if getattr(cls, "paper", ""):
        assert cls.paper in page


def test_every_entry_is_listed(tmp_path):
    entries.write(tmp_path)
    for table, classes in entries.TABLES.items():
        listed = (tmp_path / f"{table}.md").read_text()
        assert all(
            f"{table}/{name}\n" in listed and (tmp_path / table / f"{name}.md").exists() for name in classes
        )
