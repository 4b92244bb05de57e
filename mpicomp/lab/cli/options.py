"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf
from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import ConfigError
from mpicomp.runtime.devices import DEVICES
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.observation import Observation
from mpicomp.runtime.placement import CUDA_AWARE, ON_FAILURE, SERVERS, Placement
from mpicomp.runtime.resume import Resume


class Place(click.Path):
    """A path that is not empty: an unset shell variable gives an empty one, which would mean this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not str(value) or value == b"":
            self.fail("an empty path. Name a folder; '.' is the current one.", param, ctx)
        return super().convert(value, param, ctx)


class Rate(click.ParamType):
    name = "rate"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        from mpicomp.base.units import parse_rate

        return parse_rate(value)


class Time(click.ParamType):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        from mpicomp.base.units import parse_time

        return parse_time(value)


class Count(click.ParamType):
    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            number = int(float(value))
        except (ValueError, OverflowError):
            number = 0
        if number < 1:
            raise ConfigError(f"{param.opts[0]} {value!r}; allowed: numbers such as 1e5, 1 or more.")
        return number


class Positive(click.ParamType):
    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < inf:
            raise ConfigError(f"{param.opts[0]} has {value!r}; allowed: positive numbers, such as 0.05,0.1.")
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


class Every(click.ParamType):
    name = "rounds"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        from mpicomp.runtime.schedule import check_every

        every = int(value) if str(value).isdecimal() else value
        check_every(every)
        return every


class At(click.ParamType):
    name = "rounds"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        from mpicomp.runtime.observation import as_rounds

        if isinstance(value, str):
            words = value.split(",")
            if not all(word.strip().isdecimal() for word in words):
                self.fail(f"{value!r}. Give rounds with commas between them, such as 1,2,10,100.", param, ctx)
            value = [int(word) for word in words]
        return as_rounds(value)


class Observe(click.ParamType):
    name = "samples"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        from mpicomp.runtime.observation import as_observed

        return as_observed(int(value) if str(value).isdecimal() else value)


ranks_option = click.option("--ranks", type=click.IntRange(1), help="Start this many MPI ranks.")
server_option = click.option(
    "--server",
    type=click.Choice(SERVERS),
    default=Placement.server,
    show_default=True,
    help="Who averages.  shared: rank 0, which also hosts workers.  dedicated: rank 0 alone.  sharded: every "
    "rank, a share of the coordinates.  allreduce: MPI_Allreduce.",
)
shards_option = click.option(
    "--shards",
    type=click.IntRange(1),
    help="With --server sharded, cut the coordinates into this many blocks.  "
    "[default: one a worker, at most 64]",
)
device_option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default=Placement.device,
    show_default=True,
    help="Where vectors, gradients and messages are computed; ranks on a host share its GPUs.",
)
failure_option = click.option(
    "--on-failure",
    type=click.Choice(list(ON_FAILURE)),
    default=Placement.on_failure,
    show_default=True,
    help="If a rank dies, end the job, or shrink: go on with the other ranks (needs Open MPI's ULFM).",
)
cuda_aware_option = click.option(
    "--cuda-aware",
    type=click.Choice(list(CUDA_AWARE)),
    default=Placement.cuda_aware,
    show_default=True,
    help="With --device cuda, pass GPU buffers to MPI: yes, no, or ask the MPI library.",
)


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
RESUME = {None: Resume.NO, "yes": Resume.YES, "if begun": Resume.IF_BEGUN}

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
        show_default=True,
        help="The number of workers; each has an objective f_i of its own.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(1),
        default=Limits.rounds,
        show_default=True,
        help="Stop after this many rounds.",
    ),
    click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="The seed of all random draws."
    ),
    ranks_option,
    server_option,
    shards_option,
    device_option,
    cuda_aware_option,
    click.option(
        "--every",
        type=Every(),
        default=Observation.every,
        show_default=True,
        help="Rounds between rows; 1%: at most 1 % of the rounds so far, and a row each round up to 256.",
    ),
    click.option(
        "--at",
        type=At(),
        default=Observation.at,
        help="Record rows after these rounds, such as 1,2,10,100, instead of --every.",
    ),
    click.option(
        "--observe",
        type=Observe(),
        default=Observation.observe,
        show_default=True,
        help="Evaluate f and ∇f for rows on all samples (full), on this many of each worker, or never.",
    ),
    click.option(
        "--x0",
        type=click.Path(path_type=Path),  # on the server's host; other hosts need not have it
        help="The starting point: a file written by numpy.save, of shape (d,).",
    ),
    click.option("--target-grad-norm-sq", type=float, help="Stop when |∇f|² is at most this."),
    click.option(
        "--hold",
        type=click.FloatRange(0),
        default=Limits.hold,
        show_default=True,
        help="If the target is met from round k on, stop at round (1 + hold) k.",
    ),
    click.option(
        "--max-bytes", type=click.IntRange(1), help="Stop after this many bytes, both directions together."
    ),
    click.option("--max-seconds", type=float, help="Stop after this many seconds."),
    click.option("--out", type=Place(), help="Folder for the record of the run."),
    click.option(
        "--follow",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.jsonl",
        help="Append each row to this file at once, as a line of JSON.",
    ),
    click.option("--tensorboard", type=Place(), help="Write the rows as TensorBoard curves to this folder."),
    *resume_options,
    click.option("--checkpoint-every", type=click.IntRange(1), help="Rounds between checkpoints in --out."),
    click.option(
        "--stall-timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="After waiting this long, name the rank that is silent and end the job [off].",
    ),
    failure_option,
    click.option(
        "--verify-bytes", is_flag=True, help="Also count the bytes in MPI; fail unless the ledger agrees."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the outcome as one line of JSON."),
)

# The headings of the help, with the options under each.
PLACE = ["--ranks", "--server", "--shards", "--device", "--cuda-aware"]
RUN_SECTIONS = {
    "What to run": ["--problem", "--method", "--workers", "--seed", "--x0"],
    "Rounds and time": ["--rounds", "--target-grad-norm-sq", "--hold", "--max-bytes", "--max-seconds"],
    "What is observed": ["--every", "--at", "--observe"],
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
