"""Docstrings of this package as reStructuredText, for autodoc and for the catalogue's pages.

The docstrings are plain text with formulas in it: |x|² is a norm and not a substitution, and a parameter
stands before its description, two spaces or more apart.
"""

from __future__ import annotations

import ast
import re
from inspect import cleandoc
from textwrap import dedent
from typing import Any

ENTRY = re.compile(r"([\w.]*\w(?:, [\w.]*\w)*) {2,}(\S.*)")
RULE = re.compile(r"(=+ +)=+")
LABEL = re.compile(
    r"(theory|eta|Wire|The wire|Proof|Draws|Source|Differences from the papers?)([:.,]|, [^:.]+:)(?= )"
)


def escaped(text: str) -> str:
    """``text`` with the characters of reStructuredText escaped, but for code in double backticks."""
    parts = text.split("``")
    for i, part in enumerate(parts):
        if i % 2:
            # an escaped space ends code where a letter follows at once
            parts[i] = f"``{part}``" + ("\\ " if parts[i + 1][:1].isalnum() else "")
        else:
            parts[i] = re.sub(r"([\\*|`]|_(?!\w))", r"\\\1", part)
    return "".join(parts)


def to_rst(docstring: str) -> list[str]:
    """The lines of ``docstring`` as reStructuredText: paragraphs, programs and formulas, and parameters."""
    lines, out, paragraph = cleandoc(docstring).split("\n"), [], []

    def end_paragraph() -> None:
        if paragraph:
            text = " ".join(paragraph)
            text = text[:-1] if text.endswith("::") else text
            label = LABEL.match(text)
            if label:
                out.append(f"**{label[0][0].upper()}{label[0][1:]}**{escaped(text[label.end() :])}")
            else:
                out.append(escaped(text))
            out.append("")
            paragraph.clear()

    def take_indented() -> list[str]:
        taken = []
        while lines and (not lines[0].strip() or lines[0].startswith(" ")):
            taken.append(lines.pop(0))
        return dedent("\n".join(taken)).strip("\n").split("\n")

    def add_entry(term: str, text: list[str]) -> None:
        out.extend([f"``{term}``", f"    {escaped(' '.join(text))}", ""])

    while lines:
        if not lines[0].strip():
            lines.pop(0)
            end_paragraph()
        elif lines[0].startswith(" "):
            end_paragraph()
            block = take_indented()
            out.extend([f".. code-block:: {language(block)}", "", *(f"    {line}" for line in block), ""])
        elif rule := RULE.fullmatch(lines[0]):
            end_paragraph()
            lines.pop(0)
            column = len(rule[1])
            while not RULE.fullmatch(line := lines.pop(0)):
                text = [line[column:].strip()]
                while lines[0].startswith(" "):
                    text.append(lines.pop(0).strip())
                add_entry(line[:column].strip(), text)
        elif entry := ENTRY.fullmatch(lines[0]):
            end_paragraph()
            lines.pop(0)
            text = [entry[2]]
            while lines and lines[0].startswith(" "):
                text.append(lines.pop(0).strip())
            add_entry(entry[1], text)
        else:
            if LABEL.match(lines[0]):
                end_paragraph()
            paragraph.append(lines.pop(0))
    end_paragraph()
    return out


def language(block: list[str]) -> str:
    """The language of a block that is set apart: Python, or none for a formula."""
    try:
        ast.parse("\n".join(block))
    except SyntaxError:
        return "none"
    return "python"


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Autodoc's docstring, in place."""
    lines[:] = to_rst("\n".join(lines))


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
