"""The examples run, at small sizes, on real ranks, and print what the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.launching import mpirun

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(ranks, name, *options):
    done = mpirun(ranks, str(EXAMPLES / name), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_numpy_loop(tmp_path):
    figure = tmp_path / "loop.png"
    text = ran(3, "numpy_loop.py", "--steps", "60", "--figure", str(figure))
    dense, compressed = (float(loss) for loss in re.findall(r"loss (\d\.\d+)", text))
    assert figure.stat().st_size > 5000
    assert abs(dense - compressed) < 0.05 * dense
    sent, got = (int(n) for n in re.search(r"sends (\d+) a step and gets (\d+)", text).groups())
    assert sent < got < 2560
