"""The time of a training step, and time to accuracy: torch's DistributedDataParallel beside our methods.

One launch of four ranks holds all contestants; its ranks run ``mpicomp.lab.bench.train.rank``.  They are on
this host, or each on a host of its own, joined by links of a known speed (``mpicomp.lab.bench.hosts``).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from mpicomp.base.checks import check_choice
from mpicomp.base.errors import ConfigError
from mpicomp.base.units import one_line
from mpicomp.lab.bench.hosts import CONTROL, Hosts
from mpicomp.lab.bench.job import rows_of
from mpicomp.lab.bench.train.asked import Asked

RANKS = 4
# Learning rates by optimiser, the usual one first.
RATES = {"sgd": (0.05, 0.1, 0.2, 0.025), "adamw": (0.003, 0.006, 0.0015)}


@dataclass(frozen=True)
class Ask:
    """The contestants, models, links and targets of a comparison.

    models     pairs of "cnn" and about how many parameters, or of "transformer" and 0
    rates      rates of the links, bits a second; None: the four ranks are on this host
    steps      the timed steps of each contestant; a few more are taken to fill its turns
    targets    the "cnn"'s, a test accuracy, and the "transformer"'s, a loss in nats a character; without one,
               steps are timed only
    images     the images that train the CNN, "fashion_mnist" or "digits"
    limit      seconds of training after which a contestant has missed the target
    most       steps of training after which it has missed the target; None: as many as it takes
    optimiser  "sgd", with momentum, or "adamw", in the ranks; see ``mpicomp.lab.bench.train.contestants``
    labels     the contestants; None: all that step with this optimiser
    learning   a contestant's learning and outer rate by its label; None: the usual ones
    grid       learning rates to choose from, see ``mpicomp.lab.bench.train.target``
    seeds      seeds of the models' starts and the batches: a training to the target for each
    tuning     seeds of the trainings that choose from the grid
    """

    models: Sequence[tuple[str, int]]
    rates: Sequence[float | None]
    steps: int = 40
    targets: Mapping[str, float] = field(default_factory=dict)
    images: str = "fashion_mnist"
    limit: float = 600.0
    most: int | None = None
    optimiser: str = "sgd"
    labels: Sequence[str] | None = None
    learning: dict[str, tuple[float, float]] | None = None
    grid: Sequence[float] = ()
    seeds: Sequence[int] = (0,)
    tuning: Sequence[int] = (0,)

    def __post_init__(self) -> None:
        check_choice("optimiser", self.optimiser, tuple(RATES))


def named(texts: Sequence[str], optimiser: str = "sgd", to_target: bool = False) -> list[str]:
    """The labels of the contestants that have one of ``texts`` in their names; without texts, of all.

    ``to_target`` leaves out those that are only timed.  Raises ``ConfigError`` for a text that is in the name
    of no contestant with this optimiser, and without torch.
    """
    _need_torch()
    from mpicomp.lab.bench.train.contestants import CONTESTANTS

    ready = [c for c in CONTESTANTS if c.competes or not to_target]
    labels = [c.label for c in ready if optimiser == "sgd" or not c.own]
    who = "contestant that trains to a target" if to_target else "contestant"
    for text in texts:
        if not any(text in label for label in labels):
            raise ConfigError(f"no {who} has {one_line(text)} in its name: {'; '.join(labels)}.")
    return [label for label in labels if not texts or any(text in label for text in texts)]


def contest(ask: Ask, ranks: int = RANKS) -> Iterator[dict[str, Any]]:
    """Yield the figures of each contestant, model and link.

    Raises ``ConfigError`` without torch, or if links are asked for where hosts cannot be made, and
    ``MpicompError`` if the ranks fail.
    """
    known = named((), ask.optimiser)
    labels = known if ask.labels is None else list(ask.labels)
    if unknown := set(labels) - set(known):
        raise ConfigError(f"no contestant with {ask.optimiser} is called {min(unknown)!r}.")
    for rate in ask.rates:
        interface, address = ("lo", "127.0.0.1") if rate is None else ("eth0", f"{CONTROL}.1")
        with nullcontext() if rate is None else Hosts(ranks, rate) as hosts:
            for model, d in ask.models:
                asked = Asked(
                    model=model,
                    d=d,
                    target=ask.targets.get(model),
                    images=ask.images,
                    steps=ask.steps,
                    limit=ask.limit,
                    most=ask.most,
                    optimiser=ask.optimiser,
                    labels=labels,
                    usual=RATES[ask.optimiser][0],
                    learning=ask.learning,
                    grid=ask.grid,
                    seeds=list(ask.seeds),
                    interface=interface,
                    address=address,
                )
                doing = f"training on {ranks} ranks"
                for row in rows_of("train.rank", asdict(asked), ranks, hosts, doing):
                    yield {"rate": rate, "ranks": ranks, "optimiser": ask.optimiser, **row}


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("this compares with torch, which is not installed: pip install torch.")
