"""Execute notebooks in place: ``python docs/_ext/notebooks.py docs/notebook.ipynb``.

The outputs are stored and the site shows them, so that building it starts no kernel.  Times of execution and
outputs without text, which a bar leaves, are left out: what does not change makes no difference to git.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def execute(path: Path) -> None:
    """Execute the notebook in ``path`` in its folder, and store it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = joined([output for output in cell.outputs if not is_empty(output)])
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


def is_empty(output: Any) -> bool:
    """Whether this is what a bar leaves when it is gone."""
    return output.get("data", {}).get("text/plain") == ""


def joined(outputs: list[Any]) -> list[Any]:
    """``outputs`` with neighbouring pieces of one stream as one: how it was cut depends on the clock."""
    kept: list[Any] = []
    for output in outputs:
        if kept and output.output_type == "stream" and kept[-1].get("name") == output.name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


if __name__ == "__main__":
    for name in sys.argv[1:]:
        execute(Path(name))
