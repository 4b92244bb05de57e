"""Advice on a method: lines to paste for given workers, dimension and link, with bytes and seconds.

The lines are those of ``situations`` that suit, the one that takes the least time to a target first: seconds
of a round by the cost model of ``predict``, times the rounds of the tables.  How many rounds the user's own
problem takes is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpicomp.base.units import human_bytes, human_time
from mpicomp.lab.bench.message_sizes import is_bound, keeps_few, message_nbytes
from mpicomp.lab.bench.predict import Forecast, given
from mpicomp.lab.bench.question import Question, question
from mpicomp.lab.bench.situation import Seen, Situation
from mpicomp.lab.bench.situations import SITUATIONS
from mpicomp.runtime.placement import MOST_BLOCKS
from mpicomp.text.config import to_text

NEGLIGIBLE = 0.05  # of a gradient's time: messages that take less are not worth compressing; a choice
LEAST_BLOCK = 10_000  # coordinates: in shorter blocks "1 %" may be no coordinate, or more than 1 % of all
MOST_LINES = 3


@dataclass(frozen=True)
class Line:
    """A method's text with its predicted costs.

    situation  the row of the table that it is from
    method     the text to paste
    forecast   bytes a round of a worker up and down, and the seconds of the messages
    bound      whether the bytes down are a bound, for they depend on the data
    seconds    of a round: of its gradients and of the messages that count
    times      the least and the most of (time to a target)/(time of the dense line), with the tables' rounds
    """

    situation: Situation
    method: str
    forecast: Forecast
    bound: bool
    seconds: float
    times: tuple[float, float]

    def __str__(self) -> str:
        f, row = self.forecast, self.situation
        down = f"{'at most ' * self.bound}{human_bytes(f.costs.down)} down"
        local = f", and computes {row.gradients:.0f} gradients" if row.gradients > 1 else ""
        said = [
            f"{row.name}.",
            f"A round takes {human_time(self.seconds)}: a worker sends {human_bytes(f.costs.up)} up and gets "
            f"{down}, server={f.server}{local}.",
            f"Measured: {_plain(row.measured)}.",
        ]
        if row.seen:
            rounds = "; ".join(_rounds(one) for one in row.seen)
            said.append(f"Rounds, and those of the dense method: {rounds} ({_pages(row)}).")
        if not row.dense:
            low, high = (f"{value:.2g}" for value in self.times)
            between = low if low == high else f"{low} to {high}"
            rounds = "rounds in these proportions" if row.seen else "as many rounds"
            said.append(f"With {rounds} it takes {between} times as long as the dense line.")
        return "\n".join([self.method, *(f"* {text}" for text in said)])


@dataclass(frozen=True)
class Advice:
    """Lines to paste, the one with the least time first, and what holds for all of them.

    lines  one to three ``Line``; the dense one is among them
    notes  one sentence or two each
    """

    question: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n\n".join([self.question, *map(str, self.lines), "\n".join(f"* {n}" for n in self.notes)])


def advise(
    *,
    n: int,
    d: int,
    link: str,
    step_seconds: float,
    latency: str = "50us",
    convex: bool | None = None,
    batch: int | None = None,
    mu: float | None = None,
    up_only: bool = False,
    alike: bool = False,
) -> Advice:
    """Advise on a method, from what was measured: print the result for one to three lines to paste::

        print(mpicomp.advise(n=8, d=1000, link="10mbit", step_seconds=1e-3, convex=True))

    n             the number of workers, one a host, from 2 to 10000
    d             the dimension
    link          the rate of a host's link each way, such as "100mbit"
    step_seconds  the time in which a worker computes a gradient
    latency       that of a link, one way, such as "50us"
    convex        whether every f_i is convex; None: only if ``mu`` is given
    batch         the samples of which a worker takes a gradient; None: all
    mu            the μ of f_i that are all μ-strongly convex, such as the weight of a quadratic penalty
    up_only       whether the way down costs nothing, so that only bytes up count
    alike         whether the workers' data are alike

    Each line has the bytes and the predicted seconds of a round, and figures of a table with its page.  If
    dense messages take at most 5 % of a gradient's time, the dense line is the only one; 5 % is a choice.
    Seconds are those of ``mpicomp predict --up --down`` for these bytes, and the gradient's; compressing is
    taken to take no time.  The server is the one that is predicted to be the fastest.

    Raises ``ConfigError`` for a value that is not allowed.
    """
    asked = question(n, d, link, step_seconds, latency, convex, batch, mu, up_only, alike)
    found = [row for row in SITUATIONS if asked.suits(row)]
    (dense,) = (row for row in found if row.dense)
    base = asked.seconds(_forecast(asked, dense))
    if base <= NEGLIGIBLE * asked.step_seconds:
        why = f"Dense messages take {human_time(base)}, below 5 % of a gradient: compressing gains nothing."
        return Advice(str(asked), (_line(asked, dense, base),), (why, *_cautions(asked, [dense])))
    lines = sorted((_line(asked, row, base) for row in found), key=lambda line: line.times[1])
    kept = lines[:MOST_LINES]
    if not any(line.situation.dense for line in kept):
        kept[-1] = next(line for line in lines if line.situation.dense)
    notes = [
        "Rounds depend on the problem, and those of yours are not known: `mpicomp compare` measures them. "
        "The order of the lines is that of the longest time, with rounds in the proportions of the tables.",
        "Seconds are those of `mpicomp predict` for these bytes, without compressing and decoding.",
        *_cautions(asked, [line.situation for line in kept]),
    ]
    return Advice(str(asked), tuple(kept), tuple(notes))


def _line(asked: Question, row: Situation, base: float) -> Line:
    """The line of a situation, where dense messages take ``base`` seconds."""
    forecast = _forecast(asked, row)
    messages, step = asked.seconds(forecast), asked.step_seconds
    times = [
        (one.row.rounds * messages + one.all_gradients * step) / (one.dense.rounds * (base + step))
        for one in row.seen
    ] or [(messages + step) / (base + step)]
    method = asked.method(row)
    bound = not row.dense and is_bound(method)
    seconds = messages + row.gradients * step
    return Line(row, to_text(method), forecast, bound, seconds, (min(times), max(times)))


def _forecast(asked: Question, row: Situation) -> Forecast:
    """The forecast with the server that takes the least time."""
    method, n = asked.method(row), asked.n
    blocks = min(n, MOST_BLOCKS, asked.d)
    servers = [("shared", 1)] + [("allreduce", 1)] * row.dense
    if asked.d // blocks >= LEAST_BLOCK or not keeps_few(method):
        servers.append(("sharded", blocks))
    found = [
        given(*message_nbytes(method, asked.d, n, count), n, asked.link, server, count)
        for server, count in servers
    ]
    return min(found, key=asked.seconds)


def _cautions(asked: Question, situations: list[Situation]) -> list[str]:
    """Cautions: the origin of each step size, and the settings that were not measured."""
    steps = [(_name(row), asked.method(row).step) for row in situations]
    said = []
    if to_tune := [name for name, step in steps if str(step).startswith("theory")]:
        said.append(
            f"The step of {', '.join(to_tune)} is the theorem's or a multiple here, and in the tables a "
            "tuned one: `mpicomp.tune` finds it. For some methods gamma=auto needs no trial runs, and more "
            "rounds and bytes (docs/steps.md)."
        )
    if asked.batch is not None:
        said += [
            "gamma=0.1 stands for the step of your SGD, with which to begin (docs/which.md).",
            "A model of torch may take local steps: `mpicomp.torch.recipe` compares them (docs/which.md).",
        ]
    elif any(step == 0.1 for _, step in steps):
        said.append("gamma=0.1 stands for a step of your own: `mpicomp.tune` finds it, or gamma=auto.")
    elif asked.convex:
        said.append(
            "At a condition number of 10⁴ L-BFGS sent the least in total of the tables' methods "
            "(docs/results/twodirection.md)."
        )
    for k, (name, mine) in enumerate((("d", asked.d), ("n", asked.n))):
        tried = [(_name(row), row.tried[k]) for row in situations]
        if less := [f"{line} up to {most}" for line, most in tried if most < mine]:
            said.append(f"Not measured: {name} = {mine}. Of these lines, the tables have {', '.join(less)}.")
    return said


def _name(row: Situation) -> str:
    return row.line.partition("(")[0]


def _rounds(one: Seen) -> str:
    gradients = "" if one.gradients is None else f" with {one.gradients} gradients"
    other = f" of {one.dense.name}" if one.dense.name.startswith("AGD") else ""
    return f"{one.where}: {one.row.rounds}{gradients} and {one.dense.rounds}{other}"


def _pages(row: Situation) -> str:
    pages = (rounds.page for one in row.seen for rounds in (one.row, one.dense))
    return ", ".join(dict.fromkeys(f"docs/{page}" for page in pages))


def _plain(markdown: str) -> str:
    """A text of Markdown with the pages in the place of links to them."""
    return re.sub(r"\[[^\]]+\]\(([^)]+)\)", r"docs/\1", markdown)
