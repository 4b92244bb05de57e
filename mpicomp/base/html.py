"""Make HTML tables for notebooks, with escaped text and no external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(caption: str, header: Sequence[str], lines: Iterable[Sequence[str]], notes: str = "") -> str:
    """A table under its ``caption``, with a row of cells for each of the ``lines``; ``notes`` follow it.

    All arguments are plain text.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    below = f"<p><small>{escape(notes)}</small></p>" if notes else ""
    return (
        f"<p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
    )
