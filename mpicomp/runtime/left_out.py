"""Leave some coordinates out of a step: nothing is sent for them, and the method's state there is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from mpicomp.averaging.sharded import Sharded
from mpicomp.runtime.rounds import Rounds


@contextmanager
def left_out(rounds: Rounds, slices: Sequence[slice], wait: Callable[[], None]) -> Iterator[None]:
    """In the ``with`` block, play rounds on all coordinates except ``slices``; the same on all ranks.

    Inside the block the vectors of all records, such as residuals, are 0 in ``slices``, and so are the rows
    of a server's matrices.  Afterwards they have their old values there.  If the gradients are 0 there too,
    this is the method in the subspace of the other coordinates.

    wait  waits for rounds that a thread plays; called before the records are changed, at both ends
    """
    wait()
    server = type(rounds.method).Server  # each row of its matrices belongs to a worker
    places = [
        place
        for record, block in _records(rounds)
        for place in _places(record, block, slices, isinstance(record, server))
    ]
    before = [getattr(record, name)[where].copy() for record, name, where in places]
    for record, name, where in places:
        getattr(record, name)[where] = 0
    try:
        yield
    finally:
        wait()
        for (record, name, where), old in zip(places, before, strict=True):
            getattr(record, name)[where] = old


def _records(rounds: Rounds) -> Iterator[tuple[Any, slice]]:
    """The records on this rank, each with the slice of coordinates that its vectors cover."""
    averaging, d = rounds.averaging, rounds.x.size
    for record in (rounds.replica, *rounds.workers.values()):
        yield record, slice(0, d)
    if isinstance(averaging, Sharded):
        blocks = averaging.slices(d)
        yield from ((server, blocks[b]) for b, server in averaging.servers.items())
    else:
        yield from ((server, slice(0, d)) for server in averaging.states().values())


def _places(
    record: Any, block: slice, slices: Sequence[slice], stacks: bool
) -> Iterator[tuple[Any, str, tuple[Any, slice]]]:
    """(record, field name, entries) for each part of ``slices`` in a vector of ``record``.

    The vectors of ``record`` cover the coordinates ``block``.  With ``stacks`` a matrix has them as its rows.
    """
    size = block.stop - block.start
    for f in fields(record):
        shape = getattr(getattr(record, f.name), "shape", ())
        if shape[-1:] == (size,) and len(shape) <= (2 if stacks else 1):
            for where in slices:
                start, stop = max(where.start, block.start), min(where.stop, block.stop)
                if start < stop:
                    yield record, f.name, (..., slice(start - block.start, stop - block.start))
