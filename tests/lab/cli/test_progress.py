"""The progress display: what it says before the first round, and then."""

from __future__ import annotations

import os
import pty
import sys

import pytest
from rich.text import Text

from mpicomp import GD, problems, run
from mpicomp.kernels import loading
from mpicomp.lab.cli import progress, root


class Display:
    """Records what a display is told."""

    def __init__(self):
        self.seen = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.seen.append("closed")

    def add_task(self, description, total):
        self.seen.append((description, total))

    def update(self, task, description, **changes):
        self.seen.append((description, changes))


@pytest.fixture
def display(monkeypatch):
    made = Display()
    monkeypatch.setattr(progress, "_progress", lambda: made)
    return made


@pytest.mark.parametrize(("ranks", "text"), [(None, "starting"), (1, "starting"), (4, "starting 4 ranks")])
def test_a_bar_without_length_says_that_ranks_start(ranks, text, display, monkeypatch):
    monkeypatch.setattr(progress, "launched_ranks", lambda: ranks)
    with progress.rounds(3, True) as advance:
        assert display.seen == [(text, None)]
        run(GD(), problems.Quadratics(d=5, lam=0.1), workers=2, rounds=3, every=2, progress=advance)
    texts, changes = zip(*display.seen[1:-1], strict=True)
    assert [change["completed"] for change in changes] == [1, 2, 3]
    assert {change["total"] for change in changes} == {3}
    assert texts[0] == "" and texts[1].startswith("|∇f|² = ") and display.seen[-1] == "closed"


def test_it_says_that_kernels_are_compiled(display, monkeypatch, tmp_path, capsys):
    """By this process or by another one, which this one waits for; and not once they are there."""
    monkeypatch.setattr(loading, "_compile", lambda folder, held: "kernels")
    with progress.stages(True):
        assert loading._load_from(tmp_path / "kernels-new") == "kernels"
        assert display.seen[1:] == [("compiling kernels, once on this machine", {})]
    assert loading._load_from(tmp_path / "kernels-other") == "kernels"
    assert len(display.seen) == 3 and display.seen[-1] == "closed"


def test_nobody_watching_is_shown_nothing(display):
    with progress.rounds(3, False) as rounds, progress.stages(False) as stages:
        assert rounds is None and stages is None
    assert display.seen == []


def test_a_line_says_that_ranks_start_and_rank_0_clears_it(monkeypatch, capsys):
    monkeypatch.setattr(root, "launch", lambda *arguments: 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert root.relaunch(4) == 0
    assert capsys.readouterr().err == "starting 4 ranks\r"
    monkeypatch.setenv("MPICOMP_TERMINAL", "stderr")
    monkeypatch.setattr(root, "launched_rank", lambda: 0)
    root.clear_start()
    assert capsys.readouterr().err == "\x1b[2K\r"


@pytest.mark.parametrize(
    ("launched", "plain"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "2", "MPICOMP_STATUS": "status", "COLUMNS": "80"}, False),
    ],
    ids=["one process", "mpirun", "mpicomp launch"],
)
def test_tables_fit_a_terminal_but_mpirun_s_own(launched, plain, monkeypatch):
    """A terminal of 80 columns, and a table of 100: bold and folded, or plain and whole."""
    for name in ("COLUMNS", "TERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    here, there = pty.openpty()
    monkeypatch.setattr(os, "get_terminal_size", lambda *descriptor: os.terminal_size((80, 25)))
    with open(there, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        root.show_tables(Text("x" * 100, style="bold"))
        terminal.flush()
        shown = os.read(here, 1000).decode()
    os.close(here)
    assert shown.count("x") == 100
    assert ("\x1b[1m" in shown, "x" * 100 in shown) == (not plain, plain)
