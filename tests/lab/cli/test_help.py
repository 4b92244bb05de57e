"""Help: options under headings, and examples that the commands take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mpicomp.lab.cli import root
from mpicomp.lab.cli.sections import FURTHER, Sections
from mpicomp.text.config import parse_method, parse_problem


def sectioned(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Sections]]:
    """The commands with sections, each with its words on the command line."""
    for name, command in group.commands.items():
        if isinstance(command, Sections):
            yield (*path, name), command
        if isinstance(command, click.Group):
            yield from sectioned(command, (*path, name))


COMMANDS = dict(sectioned(root.cli))
EXAMPLES = [example for command in COMMANDS.values() for example in command.examples]


def test_which_commands_have_sections():
    assert {("run",), ("submit",), ("compare",), ("bench",), ("bench", "link")} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_option_stands_under_one_heading(path):
    command = COMMANDS[path]
    done = CliRunner().invoke(root.cli, [*path, "--help"])
    assert done.exit_code == 0, done.output
    named = [name for names in command.sections.values() for name in names]
    assert len(set(named)) == len(named)
    if isinstance(command, click.Group):
        assert set(named) == set(command.commands)
    else:
        assert set(named) <= {option for parameter in command.params for option in parameter.opts}
        for parameter in command.params:
            count = len(re.findall(rf"^  (?:-\w, )?{parameter.opts[0]}\b(?!-)", done.output, re.MULTILINE))
            assert count == (not isinstance(parameter, click.Argument)), parameter.opts
    headings = re.findall(r"^(\S.*):$", done.output, re.MULTILINE)
    assert [h for h in headings if h not in ("Options", FURTHER)] == [*command.sections, "Examples"]
    assert 2 <= len(command.examples) <= 4


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_taken(example):
    """Each word by its command, each text by its class; nothing is run."""
    program, *words = shlex.split(example, comments=True)
    assert program == "mpicomp" and len(example) <= 108
    command: click.Command = root.cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    words = ["demo" if word == "demo.toml" else word for word in words]  # the copy that an example makes
    given = command.make_context("mpicomp", words).params
    if given.get("method"):
        parse_method(given["method"]), parse_problem(given["problem"])
