"""Print ``--help`` in sections: options or commands under headings, and then examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

WHOLE = 1000  # characters: the help's first sentence is shown whole, in lines
FURTHER = "Further"  # the heading of the options that no section names


class Sections:
    """A command's help by ``sections``, heading -> names of options or commands, and its ``examples``."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]], examples: Sequence[str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections, self.examples = sections, examples

    def write_sections(self, formatter: click.HelpFormatter, rows: Mapping[str, tuple[str, str]]) -> None:
        """Write ``rows``, each under the heading whose list has its name, in the order of the lists."""
        placed = {name for names in self.sections.values() for name in names}
        further = {FURTHER: [name for name in rows if name not in placed]}
        for heading, names in {**self.sections, **further}.items():
            if shown := [rows[name] for name in names if name in rows]:
                with formatter.section(heading):
                    formatter.write_dl(shown)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class SectionedCommand(Sections, click.Command):
    """A command whose options stand in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, tuple[str, str]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and isinstance(parameter, click.Option):
                rows[parameter.opts[0]] = record
        self.write_sections(formatter, rows)


class SectionedGroup(Sections, click.Group):
    """A group whose commands stand in sections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: (name, command.get_short_help_str(WHOLE)) for name, command in self.commands.items()}
        self.write_sections(formatter, rows)
