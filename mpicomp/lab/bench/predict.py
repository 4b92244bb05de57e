"""The time of a round with more workers than fit here: ``cost_model`` on extrapolated costs.

A method runs for some rounds in this process, with 4 and with 16 workers.  The forecast for n workers
assumes:

* Each worker has as much data as one of the 16, and takes as long; every host has a core to itself.
* A worker's message has a + b/n bytes, fitted to the two runs (b is 0 but for PermK).
* A broadcast that grows with n has the share 1 - (1 - q)^(n^theta) of a dense float64 vector, fitted to the
  two runs: theta = 1 if the workers draw their supports independently, theta = 0 if all draw one support.
* The server's time is a + b n, through that of the run with 16 workers and that with 256, of whom 16 are real
  and the others send copies of their messages (``crowd``).  The step on their mean is taken to take no longer
  as the mean fills up; where workers take part in turns, a round with none of the 16 counts as empty.
* Messages to one worker alone have a + b/n bytes too, as has the broadcast beside them.
* Where the server forwards messages, a broadcast is as long as the mean or as n messages, whichever are fewer
  bytes, and the times are those of means.
* The number of rounds is given; how it depends on n is a question for the method's theory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import exp, log, log1p
from typing import Any

from mpicomp import kernels
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import human_bytes, human_rate, human_time
from mpicomp.compressors import Lossless
from mpicomp.lab.bench.cost_model import HEADERS, Costs, Link, RoundModel, RoundTime, model_of
from mpicomp.lab.bench.crowd import server_seconds
from mpicomp.lab.bench.timed_run import costs, timed_run
from mpicomp.lab.experiment.tables import markdown_table
from mpicomp.methods import Method
from mpicomp.methods.support.scattering import ScatteringMethod
from mpicomp.problems import Problem
from mpicomp.runtime.result import Run
from mpicomp.text.config import to_text

FEW, MORE = 4, 16  # numbers of workers of the two runs in this process
MANY = 256  # workers of a server's run, all but MORE of which send copies
ROUNDS = 20  # of each of these runs
SETTLED = 2  # rounds whose bytes do not count, for the first one of some methods sends gradients whole
WIDTH = 8  # bytes of an entry of a dense float64 broadcast
MOST_BYTES = 1e18  # of a message whose size is given


@dataclass(frozen=True)
class Forecast:
    """The costs of a method with the given number of workers, and the times that follow from them.

    server  one of ``runtime.placement.SERVERS``
    blocks  with "sharded", the number of blocks; each is averaged by one rank
    """

    method: str
    workers: int
    server: str
    link: Link
    costs: Costs
    blocks: int = 1

    @property
    def model(self) -> RoundModel:
        return model_of(self.server, self.blocks)

    @property
    def round(self) -> RoundTime:
        return self.model.time(self.costs, self.link, self.workers)

    @property
    def received(self) -> float:
        """Payload bytes that a rank that averages receives in a round; of several, the busiest."""
        return self.model.received(self.costs, self.workers)

    @property
    def sent(self) -> float:
        """Payload bytes that it sends itself."""
        return self.model.sent(self.costs, self.workers)

    @property
    def link_load(self) -> float:
        """The fraction of a round during which this rank's link is busy, in its busier direction."""
        return 8 * HEADERS * max(self.received, self.sent) / self.link.rate / (self.round.total or 1.0)

    @property
    def processor_load(self) -> float:
        """The fraction of a round during which a server decodes and adds messages."""
        return self.round.server / (self.round.total or 1.0)

    def to_json(self, rounds: int) -> dict[str, Any]:
        """The forecast as a JSON object, with times for ``rounds`` rounds."""
        return asdict(self) | {
            "round_seconds": asdict(self.round) | {"total": self.round.total},
            "server_received_bytes": self.received,
            "server_sent_bytes": self.sent,
            "server_link_load": self.link_load,
            "server_processor_load": self.processor_load,
            "rounds": rounds,
            "total_seconds": rounds * self.round.total,
        }


def forecast(
    method: Method, problem: Problem, workers: int, link: Link, server: str = "shared", blocks: int = 1
) -> Forecast:
    """The forecast for ``method`` on ``problem``, from costs measured in this process.

    Raises ``ConfigError`` if ``server`` cannot serve the method, or FEW or MORE workers cannot run it.
    """
    # The root's costs are those of one process, whether or not it hosts workers.
    there: dict[str, dict[str, Any]] = {
        "sharded": {"server": server, "blocks": blocks},
        "allreduce": {"server": server},
    }
    options = there.get(server, {})
    lossless = getattr(method, "down", None)
    forwards = isinstance(lossless, Lossless) and lossless.forward and server != "allreduce"
    text = to_text(method)
    if forwards:  # bytes of the means, which the messages may take the place of; the iterates are the same
        method = replace(method, down=replace(lossless, forward=False))  # type: ignore[call-arg, type-var]
    kernels.preload(kernels.MANY)  # as in a run of many rounds
    few, more = (_measured(method, problem, n, workers, options) for n in (FEW, MORE))
    up = _up(few.up, more.up, workers)
    own = max(0.0, _up(few.own, more.own, workers))
    if isinstance(method, ScatteringMethod):
        down = max(0.0, _up(few.down, more.down, workers))
    else:
        down = _down(few.down, more.down, problem.dimension(), workers)
    if forwards:
        down = min(down, 1 + workers * up)
    seconds = MORE * more.server  # with Allreduce there is one sum to decode, whatever n is
    if server != "allreduce":
        many = server_seconds(method, problem, MANY, MORE, ROUNDS, **options)
        seconds = _server(seconds, many, workers)
    spent = replace(more, up=up, down=down, own=own, server=seconds / workers)
    return Forecast(text, workers, server, link, spent, blocks)


def given(
    up: float, down: float, workers: int, link: Link, server: str = "shared", blocks: int = 1
) -> Forecast:
    """The forecast for messages of ``up`` and ``down`` bytes; computing takes no time.

    Raises ``ConfigError`` for sizes beyond ``MOST_BYTES``.
    """
    if not all(size <= MOST_BYTES for size in (up, down)):  # so written, nan is refused too
        raise ConfigError(f"messages of {up} and {down} bytes; allowed: numbers up to {MOST_BYTES:g}.")
    return Forecast("messages as given", workers, server, link, Costs(up, down, 0.0, 0.0, 0.0), blocks)


def _measured(method: Method, problem: Problem, n: int, workers: int, options: dict[str, Any]) -> Costs:
    """The costs with n workers, for a forecast for ``workers``; an error says of which run it speaks."""
    try:
        done = timed_run(method, problem, workers=n, rounds=ROUNDS, at=[SETTLED, ROUNDS], **options)
    except ConfigError as error:
        raise ConfigError(
            f"the forecast for {workers} workers is made from runs with {FEW} and {MORE} workers, so these "
            f"must be possible too. With {n}: {error}"
        ) from None
    return _settled(done)


def _settled(done: Run) -> Costs:
    """The mean costs of a round of ``done``, bytes without those of the first rounds."""
    first, last = (next(row for row in done.rows if row.round == k) for k in (SETTLED, ROUNDS))
    messages = done.workers * (ROUNDS - SETTLED)
    up, down = (last.up_bytes - first.up_bytes) / messages, (last.down_bytes - first.down_bytes) / messages
    whole = costs(done)
    own = down * whole.own / (whole.own + whole.down) if whole.own else 0.0  # as in all rounds
    return replace(whole, up=up, down=down - own, own=own)


def _up(few: float, more: float, n: int) -> float:
    """Bytes of a worker's message with n workers: a + b/n through the two measured sizes."""
    b = (few - more) / (1 / FEW - 1 / MORE)
    return more + b * (1 / n - 1 / MORE)


def _server(more: float, many: float, n: int) -> float:
    """The server's seconds with n workers: a + b n through those measured with MORE and with MANY."""
    b = max(0.0, (many - more) / (MANY - MORE))
    return max(0.0, more + b * (n - MORE))


def _down(few: float, more: float, d: int, n: int) -> float:
    """Bytes of the broadcast with n workers: constant, or growing towards those of a dense vector."""
    dense = WIDTH * d
    if more <= 1.01 * few or more >= dense:
        return more
    absent_few, absent = log1p(-few / dense), log1p(-more / dense)
    theta = min(1.0, log(absent / absent_few) / log(MORE / FEW))
    return dense * (1 - exp(absent * (n / MORE) ** theta))


def report(found: list[Forecast], rounds: int) -> str:
    """The forecasts as a table in Markdown, below a paragraph on the assumptions."""
    one = found[0]
    head = ["method", "up", "down", "worker", "gather", "server", "broadcast", "replica", "round"]
    head += [f"{rounds} rounds", "server's link", "server's core"]
    rows = []
    for f in found:
        parts = [f.round.worker, f.round.up, f.round.server, f.round.down, f.round.replica, f.round.total]
        sizes = [human_bytes(f.costs.up), human_bytes(f.costs.down + f.costs.own)]
        times = [human_time(seconds) for seconds in [*parts, rounds * f.round.total]]
        rows.append([f.method, *sizes, *times, f"{f.link_load:.0%}", f"{f.processor_load:.0%}"])
    said = [
        f"{one.workers} workers, one a rank and a host; links of {human_rate(one.link.rate)} each way, "
        f"{human_time(one.link.latency)} one way, where a byte takes {8 * HEADERS:.2f} bits, headers "
        f"included; {one.model.assumptions(one.workers)}",
        f"Sizes and times are extrapolated to {one.workers} workers from {ROUNDS} rounds with {FEW} and with "
        f"{MORE} workers in this process, sizes without the first {SETTLED} rounds; the server's time also "
        f"from {ROUNDS} rounds in which it gets copies of their messages as if from {MANY}. Each worker is "
        f"taken to have as much data as one of {MORE}, and a core to itself.",
    ]
    if one.costs.worker == 0:
        said[1:] = ["Sizes are as given, and nothing but messages takes time."]
    return "\n\n".join([*said, markdown_table(head, rows)])
