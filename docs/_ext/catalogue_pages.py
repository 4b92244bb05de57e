"""A page for every method and compressor, written from its class into docs/catalogue/ before each build."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docstrings import to_rst

from mpicomp.compressors import COMPRESSORS, Absolute, Contractive, Layered, Unbiased
from mpicomp.config import describe
from mpicomp.methods import METHODS, Method

FOLDER = Path(__file__).parent.parent / "catalogue"
KINDS: dict[str, Mapping[str, type]] = {"methods": METHODS, "compressors": COMPRESSORS}

# What an example gives to the parameters without a default: of methods, of compressors, and of some by name.
OF_METHODS = {"Q": "randk(k=0.1)", "C": "topk(k=0.1)", "down": "randk(k=0.5)", "batch": "10", "r": "4"}
OF_COMPRESSORS = {
    "k": "0.1",
    "q": "0.1",
    "s": "7",
    "lam": "0.01",
    "beta": "20",
    "blocks": "8",
    "Q": "natural",
    "S": "randk(k=0.1)",
    "U": "natural",
    "C": "topk(k=0.1)",
}
BY_NAME = {
    "dashamvr": {"Q": "randk(k=0.1)", "batch": "10", "b": "0.1"},
    "doublesqueeze": {"C": "topk(k=0.1)", "down": "topk(k=0.1)"},
    "perturbed_sgd": {"C": "topk(k=0.1)", "eta": "0.05", "r": "0.01"},
    "powersgd": {"r": "1", "rows": "8", "gamma": "0.5"},
    "arctopk": {"k": "0.1", "width": "8"},
    "rankr": {"r": "1", "rows": "8"},
    "layered": {"rules": "{'*': topk(k=0.1)}"},
}
MADE_FOR = {  # a method for a compressor of the kind
    Unbiased: "diana(Q={})",
    Contractive: "ef21(C={})",
    Absolute: "efsgd(C={})",
}


def kinds(cls: type) -> list[type]:
    """The classes of compressors that ``cls`` is of; for Layered, those of the example."""
    return [kind for kind in MADE_FOR if issubclass(cls, kind)] or [Contractive]


def example(name: str) -> list[str]:
    """The arguments with which `mpicomp` runs the method, or a method with the compressor, of that name."""
    is_method = name in METHODS
    cls, values = (METHODS[name], OF_METHODS) if is_method else (COMPRESSORS[name], OF_COMPRESSORS)
    needed = [key for key, default in describe(cls).parameters.items() if default is None]
    given = BY_NAME.get(name) or {key: values[key] for key in needed}
    text = f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})" if given else name
    if not is_method:
        text = MADE_FOR[kinds(cls)[0]].format(text)
    problem = "logistic(data=digits, lam=1e-2)"
    return ["run", "--problem", problem, "--method", text, "--workers", "8", "--rounds", "100"]


def shell(arguments: list[str]) -> list[str]:
    """The lines of the command for a shell."""
    quoted = [f'"{a}"' if set(a) & set(" (){}'*") else a for a in arguments]
    subcommand, *rest = quoted
    options = [" ".join(pair) for pair in zip(rest[::2], rest[1::2], strict=True)]
    lines = [f"mpicomp {subcommand} {options[0]}", options[1], " ".join(options[2:])]
    return [f"{'    ' * (i > 0)}{line}{' ' + chr(92) if i < 2 else ''}" for i, line in enumerate(lines)]


def page(name: str) -> str:
    """The page in MyST: summary, signature, docstring, source, an example, and where to read on."""
    cls = METHODS.get(name) or COMPRESSORS[name]
    about = describe(cls)
    lines = [f"# {cls.__name__}", ""]
    if issubclass(cls, Method):
        lines += [about.summary, ""]
    elif cls is not Layered:
        names = " and ".join(kind.__name__ for kind in kinds(cls))
        lines += [f"Class: [{names}](../methods.md#notation).", ""]
    lines += ["```", about.signature, "```", ""]
    lines += ["```{eval-rst}", *to_rst(inspect.getdoc(cls) or ""), "```", ""]
    lines += [f"**Paper**: {about.paper}.", ""]
    if getattr(cls, "recalled", ""):
        lines += [f"**From memory**, not checked against the paper: {cls.recalled}.", ""]
    if about.parameters:
        lines += ["## Parameters", "", "| name | default |", "|---|---|"]
        lines += [
            f"| `{key}` | {f'`{value}`' if value else 'none'} |" for key, value in about.parameters.items()
        ]
        lines += [""]
    lines += ["## Example", "", "```sh", *shell(example(name)), "```", ""]
    lines += [f"[Symbols, what travels, and the tests](../methods.md#{cls.__name__.lower()})."]
    return "\n".join(lines) + "\n"


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
