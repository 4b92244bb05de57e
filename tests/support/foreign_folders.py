"""Folders of a run, a comparison or a study that say what somebody else has written into them."""

from __future__ import annotations

import json

import mpicomp
from mpicomp import GD, Quadratics

QUADRATICS = Quadratics(d=4)

STUDY = """
workers = 2
rounds = 4

[[case]]
label = "one"
problem = "{problem}"

[[method]]
method = "{method}"
"""


def a_run(folder, **facts):
    """The record of a run of 4 rounds, with some parts of run.json replaced."""
    mpicomp.run(GD(gamma=0.1), QUADRATICS, workers=2, rounds=4, every=2, out=folder)
    path = folder / "run.json"
    content = json.loads(path.read_text())
    for part, changed in facts.items():
        content[part] |= changed
    path.write_text(json.dumps(content))


def a_comparison(folder, resume=False, **changed):
    """The folder of a comparison whose suite says something else in some places."""
    mpicomp.compare(
        {"A": GD(gamma=0.1)}, QUADRATICS, workers=2, rounds=4, every=2, tune=(0, 0), out=folder, resume=resume
    )
    path = folder / "suite.toml"
    suite = path.read_text()
    for before, after in changed.items():
        assert f"{before} = " in suite
        lines = (
            f'{before} = "{after}"' if line.startswith(f"{before} =") else line for line in suite.split("\n")
        )
        suite = "\n".join(lines)
    path.write_text(suite)
