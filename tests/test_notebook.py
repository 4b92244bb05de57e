"""The notebook of the site says what it did when it was stored; bars and interrupts in a real kernel."""

from __future__ import annotations

import ast
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.support.launching import LIMIT

NOTEBOOK = json.loads((Path(__file__).parent.parent / "docs" / "notebook.ipynb").read_text())
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def evaluated(code: str, names: dict[str, object]) -> object:
    """Execute the cell; returns the value of its last line, if that is an expression."""
    body = ast.parse(code).body
    last = body.pop() if isinstance(body[-1], ast.Expr) and not code.endswith(";") else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def comparable(text: str) -> str:
    """``text`` without seconds, and without the last digits of a step: eigenvalues differ by machine."""
    text = re.sub(r"\b\d+\.\d\d( s>|</td></tr>)", r"SECONDS\1", text)
    return re.sub(r"\b(\d\.\d{12})\d+\b", r"\1", text)


def test_the_cells_show_what_is_stored(monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, object] = {"__name__": "__main__"}
    for cell in CELLS:
        printed = io.StringIO()
        with redirect_stdout(printed):
            value = evaluated("".join(cell["source"]), names)
        streams = ["".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream"]
        assert printed.getvalue() == "".join(streams)
        stored = [o["data"] for o in cell["outputs"] if o["output_type"] == "execute_result"]
        assert len(stored) == (value is not None)
        for data in stored:
            assert comparable(repr(value)) == comparable("".join(data["text/plain"]))
            assert comparable(value._repr_html_()) == comparable("".join(data["text/html"]))
        figures = [o for o in cell["outputs"] if "image/png" in o.get("data", {})]
        assert len(figures) == len(plt.get_fignums())
        plt.close("all")
    assert 6 <= len(CELLS) <= 10


LONG = """
import mpicomp
mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.problems.Quadratics(d=40, lam=0.1), workers=4, rounds=10**8)
"""


def test_a_bar_in_a_kernel_and_its_stop_button():
    """An interrupt while the bar is there: the cell returns the run so far, and the bar is gone."""
    jupyter_client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
    pages, result = [], None
    try:
        client.execute(LONG)
        while True:
            message = client.get_iopub_msg(timeout=LIMIT)
            kind, content = message["msg_type"], message["content"]
            assert kind != "error", content
            if kind in ("display_data", "update_display_data"):
                pages.append(content["data"])
                if sum("<progress " in page["text/html"] for page in pages) == 2:
                    manager.interrupt_kernel()
            elif kind == "execute_result":
                result = content["data"]
            elif kind == "status" and content["execution_state"] == "idle" and result:
                break
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "status 'interrupted'" in result["text/plain"] and "<table>" in result["text/html"]
    shown = [page["text/plain"] for page in pages]
    assert shown[0] == shown[-1] == "" and re.fullmatch(r"\d+/100000000 \|∇f\|² = \S+", shown[1])
