"""A page for each method, compressor and problem, made of its class; docs/entries/ is ignored by git."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from mpicomp.compressors import COMPRESSORS, Absolute, Contractive, Unbiased
from mpicomp.config import describe
from mpicomp.methods import METHODS, Method
from mpicomp.problems import PROBLEMS

TABLES = {"methods": METHODS, "compressors": COMPRESSORS, "problems": PROBLEMS}


def page(cls: type) -> str:
    """The page of a class: how it is written, its paper, its docstring as it stands."""
    about = describe(cls)
    kinds = [k.__name__.lower() for k in (Unbiased, Contractive, Absolute) if issubclass(cls, k)]
    said = [f"# {cls.__name__}", about.summary.replace("``", "`"), f"```text\n{about.signature}\n```"]
    if kinds:
        said.append(f"It is {' and '.join(kinds)}.")
    if about.paper:
        said.append(f"**Paper**: {about.paper}")
    if issubclass(cls, Method) and cls.recalled:
        said.append(f"**From memory**, not checked against the paper: {cls.recalled}.")
    return "\n\n".join([*said, *_blocks(inspect.getdoc(cls) or "")]) + "\n"


def _blocks(docstring: str) -> Iterator[str]:
    """The docstring in Markdown: prose as prose; formulas, and tables of parameters, as they stand."""
    for paragraph in re.split(r"\n\n(?=\S)|\n(?=theory\b)", docstring):
        table = re.search(r"^\w+(, \w+)* {2,}\S", paragraph, flags=re.MULTILINE)
        prose = paragraph[: table.start()] if table else paragraph
        prose, colons, formulas = prose.partition("::\n\n")
        if prose.strip():
            yield _escaped(prose.strip()) + (":" if colons else "")
        for verbatim in (formulas, paragraph[table.start() :] if table else ""):
            if verbatim.strip():
                yield f"```text\n{textwrap.dedent(verbatim).rstrip()}\n```"


def _escaped(prose: str) -> str:
    """Prose in which Markdown sees its code, and nothing else of its own."""
    words = prose.split("``")  # every second one is code
    words[::2] = [re.sub(r"([*_<|^\[\]])", r"\\\1", word) for word in words[::2]]
    return "`".join(words)


def write(folder: Path) -> None:
    """Write the pages into ``folder``, and a page for each table that lists its entries."""
    for table, classes in TABLES.items():
        (folder / table).mkdir(parents=True, exist_ok=True)
        for name, cls in classes.items():
            (folder / table / f"{name}.md").write_text(page(cls))
        listed = "\n".join(f"{table}/{name}" for name in classes)
        toctree = f"```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```"
        (folder / f"{table}.md").write_text(f"# {table.capitalize()}, one by one\n\n{toctree}\n")
