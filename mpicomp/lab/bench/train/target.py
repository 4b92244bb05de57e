"""Seconds and bytes to a target, with rates of each contestant's own.

How many steps a training takes does not depend on the links.  So the steps to the target are counted on this
host, once for each seed, and multiplied by the time and the bytes of a step on each link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any

from mpicomp.lab.bench.train.compare import RANKS, Ask, contest

CONTESTANT = ("rate", "ranks", "optimiser", "label", "side", "every", "model", "d")  # as timed and as trained


def to_target(
    ask: Ask, ranks: int = RANKS, say: Callable[[str], object] = lambda line: None
) -> Iterator[dict[str, Any]]:
    """Yield for each model, place and contestant the steps, seconds and bytes to the target.

    ``say`` is given a line for each training as it ends, and when the timing of steps begins.

    ``ask`` has a target for each of its models, a grid and seeds.  ``all_steps`` has the steps of each seed,
    None where the target was missed; ``steps`` is their median, or ``most`` where that is missed.
    ``diverged`` says of each seed whether its training diverged.
    ``per_step`` and ``link_per_step`` are seconds and the busiest link's bytes, measured in turns without a
    target.  ``messages`` are bytes of all workers, up and down, by seed, None for torch.  ``curve`` is of the
    first seed.  Raises the errors of ``contest``.
    """
    for model in ask.models:
        asked = replace(ask, models=[model])
        here = replace(asked, rates=[None])
        learning = chosen_rates(_saying(contest(replace(here, seeds=ask.tuning), ranks), say))
        trained: dict[str, list[dict[str, Any]]] = {}
        for row in _saying(contest(replace(here, grid=(), learning=learning), ranks), say):
            trained.setdefault(row["label"], []).append(row)
        timing = replace(asked, targets={}, labels=list(trained), grid=())
        say("the time of a step, on each link")
        for timed in contest(timing, ranks):
            yield _together(timed, trained[timed["label"]], ask.images)


def chosen_rates(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Map each label to its pair of learning and outer rate: that whose slowest seed took the fewest steps.

    Of equally good rates the smallest are chosen.  Where no pair reached the target with every seed, the
    pairs are compared by their worst final score over the seeds that missed the target.
    """
    worst: dict[tuple[str, tuple[float, float]], tuple[float, float]] = {}
    for row in rows:
        last = row["curve"][-1][2] if row["curve"] else None
        score = inf if last is None else (-last if row["model"] == "cnn" else last)
        rank = (row["steps"], 0.0) if row["reached"] else (inf, score)
        pair = row["label"], (row["lr"], row["outer"])
        worst[pair] = max(rank, worst.get(pair, rank))
    labels = dict.fromkeys(label for label, _ in worst)
    return {own: min((rank, rates) for (of, rates), rank in worst.items() if of == own)[1] for own in labels}


def middle(values: Sequence[float | None]) -> float | None:
    """The median of ``values``, where None counts as infinity; None if the median is infinite."""
    found = median([inf if v is None else v for v in values])
    return None if found == inf else found


def check(row: dict[str, Any], limit: float = 600.0) -> dict[str, Any]:
    """Time a whole training of the contestant of ``row``, on its links and with its first seed.

    Returns the row of ``contest``.
    """
    ask = Ask(
        models=[(row["model"], row["d"])],
        rates=[row["rate"]],
        targets={row["model"]: row["target"]},
        images=row["images"],
        limit=limit,
        optimiser=row["optimiser"],
        labels=[row["label"]],
        learning={row["label"]: (row["lr"], row["outer"])},
        seeds=row["seeds"][:1],
    )
    (timed,) = contest(ask, row["ranks"])
    return timed


def _saying(rows: Iterable[dict[str, Any]], say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    for row in rows:
        outer = f", outer {row['outer']:g}" if row["every"] > 1 else ""
        end = "" if row["reached"] else ", diverged" if row["diverged"] else ", target missed"
        say(
            f"{row['label']}: learning rate {row['lr']:g}{outer}, seed {row['seed']}: {row['steps']} steps, "
            f"{row['seconds']:.0f} s{end}"
        )
        yield row


def _together(timed: dict[str, Any], trained: Sequence[dict[str, Any]], images: str) -> dict[str, Any]:
    steps = [row["steps"] if row["reached"] else None for row in trained]
    most = max(row["steps"] for row in trained)
    reached, ours = middle(steps) is not None, timed["side"] == "ours"
    return {
        **{name: timed[name] for name in CONTESTANT},
        "target": trained[0]["target"],
        "images": images,
        "lr": trained[0]["lr"],
        "outer": trained[0]["outer"],
        "seeds": [row["seed"] for row in trained],
        "all_steps": steps,
        "most": most,
        "per_step": timed["seconds"],
        "link_per_step": timed["link_bytes"],
        "messages": [row["up_bytes"] + row["down_bytes"] if ours else None for row in trained],
        "reached": reached,
        "diverged": [row["diverged"] for row in trained],
        "steps": middle(steps) or most,
        "seconds": (middle(steps) or most) * timed["seconds"],
        "curve": [(step * timed["seconds"], step, score) for _, step, score in trained[0]["curve"]],
    }
