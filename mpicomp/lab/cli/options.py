"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field
from functools import reduce
from math import inf, nan
from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import ConfigError
from mpicomp.base.units import parse_rate, parse_time
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.observation import Observation, as_observed, as_rounds
from mpicomp.runtime.placement import OF_COMPARISONS, Placement
from mpicomp.runtime.schedule import check_every
from mpicomp.runtime.settings import settings_of


class Place(click.Path):
    """A path that is not empty: an unset shell variable gives an empty one, which would mean this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not str(value) or value == b"":
            self.fail("an empty path. Name a folder; '.' is the current one.", param, ctx)
        return super().convert(value, param, ctx)


class Read(click.ParamType):
    """The type of an option whose text the function ``read`` converts; the help calls it ``name``."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self.read(value)


RATE, TIME = Read("rate", parse_rate), Read("time", parse_time)


def _number(text: Any) -> float:
    """The number that ``text`` writes; nan if it writes none."""
    try:
        return float(text)
    except ValueError:
        return nan


class Count(click.ParamType):
    """A whole number, ``least`` or more, which may be written as 1e5."""

    name = "number"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        number = _number(value)
        if not (self.least <= number <= 1e15 and number.is_integer()):  # a float holds these exactly
            raise ConfigError(
                f"{param.opts[0]} {value!r}; allowed: whole numbers from {self.least} to 1e15, such as 1e5."
            )
        return int(number)


class Positive(click.ParamType):
    """A finite number above 0."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = _number(value)
        if not 0 < number < inf:
            raise ConfigError(f"{param.opts[0]} has {value!r}; allowed: a positive number, such as 0.05.")
        return number


class Between(click.FloatRange):
    """A number within limits; click's own type takes nan, which is within none."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


class Listed(click.ParamType):
    """Values of a type with commas between them.

    empty  whether an empty text stands for an empty list
    """

    def __init__(self, of: click.ParamType, empty: bool = False) -> None:
        self.of, self.empty, self.name = of, empty, f"{of.name},.."

    def convert(self, value: Any, param: Any, ctx: Any) -> list[Any]:
        if not isinstance(value, str):
            return list(value)
        words = [] if self.empty and not value else value.split(",")
        return [self.of.convert(word, param, ctx) for word in words]


def _number_or_text(value: Any) -> int | str:
    return int(value) if str(value).isdecimal() else value


def _every(value: Any) -> int | str:
    every = _number_or_text(value)
    check_every(every)
    return every


class At(click.ParamType):
    """Rounds with commas between them."""

    name = "rounds"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, str):
            words = value.split(",")
            if not all(word.strip().isdecimal() for word in words):
                self.fail(f"{value!r}. Give rounds with commas between them, such as 1,2,10,100.", param, ctx)
            value = [int(word) for word in words]
        return as_rounds(value)


BY_TYPE: dict[type, click.ParamType] = {int: click.IntRange(1), float: click.FLOAT}
BY_NAME: dict[str, click.ParamType] = {  # of settings whose type does not say enough
    "every": Read("rounds", _every),
    "at": At(),
    "observe": Read("samples", lambda value: as_observed(_number_or_text(value))),
    "hold": click.FloatRange(0),
    "max_bytes": click.IntRange(0),
    "stall_timeout": click.FloatRange(0, min_open=True),
}


def option(setting: Field[Any], types: tuple[type, ...]) -> Any:
    """The option of the command line that is this setting of a run: ``--max-bytes``."""
    flag, help = "--" + setting.name.replace("_", "-"), setting.metadata["help"]
    if types == (bool,):
        return click.option(flag, is_flag=True, help=help)
    allowed = setting.metadata["allowed"]
    form = click.Choice(allowed) if allowed else BY_NAME.get(setting.name) or BY_TYPE[types[0]]
    metavar = setting.metadata["metavar"]
    return click.option(flag, type=form, default=setting.default, metavar=metavar, help=help)


OPTIONS = {
    setting.name: option(setting, types)
    for group in (Limits, Observation, Placement)
    for setting, types in settings_of(group)
}
ranks_option = click.option(
    "--ranks", type=click.IntRange(1), help="Start this many MPI ranks.  [default: one process]"
)
place_options = [ranks_option, *(OPTIONS[name] for name in OF_COMPARISONS)]


# A job script that is submitted again and again can always give --resume-or-start.
resume_options = (
    click.option("--resume", "resume", flag_value="yes", help="Continue the work saved in --out."),
    click.option(
        "--resume-or-start",
        "resume",
        flag_value="if begun",
        help="Continue the work saved in --out, or start if there is none.",
    ),
)
RESUME = {None: False, "yes": True, "if begun": None}  # the keyword ``resume`` of ``run``

checkpoint_option = click.option(
    "--checkpoint-every",
    type=click.IntRange(1),
    help="Rounds between checkpoints in --out.  [default: a single checkpoint, at the end]",
)

run_options = (
    click.option(
        "--problem", required=True, help="The problem, such as \"logistic(data='digits', lam=1e-3)\"."
    ),
    click.option(
        "--method", required=True, help='The method, such as "marina(Q=randk(k=0.01), gamma=theory)".'
    ),
    click.option(
        "--workers",
        type=click.IntRange(1),
        default=8,
        help="Number of workers; worker i has the objective f_i.",
    ),
    OPTIONS["rounds"],
    click.option("--seed", type=click.IntRange(0), default=0, help="Seed of all random draws."),
    *place_options,
    *(OPTIONS[name] for name in ("every", "at", "observe")),
    click.option(
        "--x0",
        type=click.Path(path_type=Path),  # on the server's host; other hosts need not have it
        help="File of the starting point, an array of shape (d,) written by numpy.save.  "
        "[default: the problem's]",
    ),
    *(OPTIONS[name] for name in ("target_grad_norm_sq", "hold", "max_bytes", "max_seconds")),
    click.option(
        "--out",
        type=Place(),
        help="Folder for rows, result and checkpoints.  [default: nothing is saved]",
    ),
    click.option(
        "--follow",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.jsonl",
        help="Append each row to this file, as a line of JSON, as soon as it is recorded.",
    ),
    click.option(
        "--tensorboard",
        type=Place(),
        help="Write the rows as TensorBoard curves to this folder; needs mpicomp[tensorboard].",
    ),
    *resume_options,
    checkpoint_option,
    *(OPTIONS[name] for name in ("stall_timeout", "on_failure", "verify_bytes")),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON."),
)

# The headings of the help, with the options under each.
PLACE = ["--ranks", "--server", "--blocks", "--device", "--cuda-aware"]
RUN_SECTIONS = {
    "Problem and method": ["--problem", "--method", "--workers", "--seed", "--x0"],
    "Rounds and time": ["--rounds", "--target-grad-norm-sq", "--hold", "--max-bytes", "--max-seconds"],
    "Rows of the record": ["--every", "--at", "--observe"],
    "Ranks and communication": [*PLACE, "--verify-bytes"],
    "Output": ["--out", "--follow", "--tensorboard", "--json"],
    "Reliability": [
        *("--resume", "--resume-or-start", "--checkpoint-every"),
        *("--stall-timeout", "--on-failure"),
    ],
}


def with_options(options: Sequence[Any]) -> Any:
    """One decorator for several options, which the help lists in their order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)
