"""What a rank of ``train.rank`` is asked for, in JSON: an ``Ask`` for one model and one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """``compare.Ask`` explains the fields that it has too.

    target     the score of this model; None: steps are timed
    usual      the learning rate of contestants that are not in ``learning``
    interface  the network interface of this host that carries the messages
    address    that of rank 0's host, where torch's ranks meet
    """

    model: str
    d: int
    target: float | None
    images: str
    steps: int
    limit: float
    most: int | None
    optimiser: str
    labels: Sequence[str]
    usual: float
    learning: Mapping[str, tuple[float, float]] | None
    grid: Sequence[float]
    seeds: Sequence[int]
    interface: str
    address: str
