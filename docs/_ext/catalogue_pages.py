"""A page for every method, compressor and problem, written from its class into docs/catalogue/ before each
build."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from docstrings import to_rst

from mpicomp.base.docstrings import ENTRY
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import COMPRESSORS, Layered
from mpicomp.lab.cli.examples import command, example, kinds
from mpicomp.lab.cli.parameters import parameters
from mpicomp.methods import METHODS
from mpicomp.problems import PROBLEMS
from mpicomp.text.config import describe, parse_problem

FOLDER = Path(__file__).parent.parent / "catalogue"
KINDS: dict[str, Mapping[str, type]] = {"methods": METHODS, "compressors": COMPRESSORS, "problems": PROBLEMS}
CLASSES = {name: cls for table in KINDS.values() for name, cls in table.items()}


def shell(arguments: list[str]) -> list[str]:
    """The lines of the command for a shell."""
    quoted = [f'"{a}"' if set(a) & set(" (){}'*") else a for a in arguments]
    subcommand, *rest = quoted
    options = [" ".join(pair) for pair in zip(rest[::2], rest[1::2], strict=True)]
    lines = [f"mpicomp {subcommand} {options[0]}", options[1], " ".join(options[2:])]
    return [f"{'    ' * (i > 0)}{line}{' ' + chr(92) if i < 2 else ''}" for i, line in enumerate(lines)]


def page(name: str) -> str:
    """The page in MyST: summary, signature, docstring, source, parameters, an example, where to read on."""
    cls = CLASSES[name]
    about = describe(cls)
    lines = [f"# {cls.__name__}", ""]
    if name in METHODS:
        lines += [about.summary, ""]
    elif name in COMPRESSORS and cls is not Layered:
        names = " and ".join(kind.__name__ for kind in kinds(cls))
        lines += [f"Class: [{names}](../methods.md#notation).", ""]
    lines += ["```", about.signature, "```", ""]
    lines += ["```{eval-rst}", *to_rst(prose(inspect.getdoc(cls) or "", set(about.parameters))), "```", ""]
    if not about.paper.startswith("none"):
        lines += [f"**Paper**: {about.paper}.", ""]
    if getattr(cls, "recalled", ""):
        lines += [f"**From memory**, not checked against the paper: {cls.recalled}.", ""]
    if name in PROBLEMS:
        lines += [f"**Constants for theory**: {constants(name)}", ""]
    rows = [
        [f"`{p.name}`", p.meaning, f"`{p.default}`" if p.default else "to be given", p.allowed]
        for p in parameters(cls)
    ]
    if rows:
        lines += ["## Parameters", "", "| name | what it is | default | allowed |", "|:---|:---|:---|:---|"]
        lines += ["| " + " | ".join(map(escaped, row)) + " |" for row in rows] + [""]
    lines += ["## Example", "", "```sh", *shell(command(name)), "```", ""]
    if name in PROBLEMS:
        lines += ["[Data of your own, and how rows are shared out](../data.md)."]
    else:
        lines += [f"[Symbols, what travels, and the tests](../methods.md#{cls.__name__.lower()})."]
    return "\n".join(lines) + "\n"


def prose(docstring: str, names: set[str]) -> str:
    """``docstring`` without its entries on parameters of these ``names``, which the table has."""
    kept: list[str] = []
    inside = False
    for line in docstring.split("\n"):
        entry = ENTRY.fullmatch(line)
        inside = names.issuperset(entry[1].split(", ")) if entry else inside and line.startswith(" ")
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def escaped(text: str) -> str:
    """``text`` in a cell of a table; code stays as it is."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if i % 2 else re.sub(r"([*_<\[])", r"\\\1", part) for i, part in enumerate(parts))


def constants(name: str) -> str:
    """Which constants the example of a problem knows, and which are not known."""
    try:
        known = parse_problem(example(name)).constants(8)
    except ConfigError:
        return "none are known: give step sizes as numbers."
    has = {f.name: getattr(known, f.name) is not None for f in fields(known)}
    said = ", ".join(f"`{key}`" for key, there in has.items() if there)
    missing = ", ".join(f"`{key}`" for key, there in has.items() if not there)
    return f"for the example below {said} are known" + (f", and not {missing}." if missing else ".")


def index(kind: str) -> str:
    """The list of one kind's pages."""
    lines = [f"# {kind.capitalize()}", "", "| name | what it is | paper |", "|---|---|---|"]
    for name, cls in KINDS[kind].items():
        about = describe(cls)
        cells = [f"[{cls.__name__}]({name}.md)", about.summary, about.paper]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *KINDS[kind], "```", ""])


def write(app: Any = None) -> None:
    """Write all pages, and leave unchanged files alone, so that Sphinx reads again only what differs."""
    pages = {f"{name}.md": page(name) for table in KINDS.values() for name in table}
    pages |= {f"{kind}.md": index(kind) for kind in KINDS}
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
